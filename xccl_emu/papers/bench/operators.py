"""All-reduce and all-to-all by degree and by size, on the paper's own cluster ([MixServe] II-B, Figure 3).

The figure's numbers are not in the text of the paper; what it says of them is, and that is what runs are held against.
By degree: a batch of tokens: TP adds up all hidden states, and EP sends each rank's share to eight experts a
token.  By size: four ranks of a node, or one rank on each of four nodes.  The size of the batch is not published.

HCCL's all-gather is of a server of 16 dies, as was measured, and next to it is the all-gather in which ranks read.
Which form it is follows HCCL's published sources, not these rows (gitee.com/ascend/cann-hccl, what it selects for this
server): up to 512 KiB of each rank cores copy, one for each rank; beyond that DMA reads what others have, up to 2 MiB
each rank from all others.  Beyond that HCCL reads along rings.  It comes to more of the bus than the port of a die
carries, so it must use the link between the dies of a chip, and here ranks read in two levels.  There are two such
rings on this server, each with a stream of its own; here each is a core's queue of descriptors.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from xccl_emu.machine.spec import KIB, MIB
from xccl_emu.papers.bench import baseline, published
from xccl_emu.papers.bench.layers import HIDDEN, TOP_K, Shape
from xccl_emu.papers.bench.published import Published
from xccl_emu.papers.bench.result import Result, Wire
from xccl_emu.papers.bench.setting import DEFAULT, Setting
from xccl_emu.protocol.registry import make
from xccl_emu.protocols.collectives.case import CollectiveCase
from xccl_emu.protocols.collectives.two_level import TwoLevelCase
from xccl_emu.timing.topologies import ATLAS_800T_A2

RANKS, RINGS = 16, 2
BY_CORES_MAX, ONE_LEVEL_MAX = 512 * KIB, 2 * MIB
"""Most bytes of a rank that cores copy, and that is read in one level."""
COMPARED_MAX = 2_000_000
"""Bytes of a rank up to which payload moves: all ranks get what all have, and the oracle has it once more."""


def rank_bytes_of(row: Published) -> int:
    """Bytes of each rank; the source has them in MiB."""
    number, unit, *_ = row.what.split()
    return round(float(number) * {"KiB": KIB, "MiB": MIB}[unit]) // 2 * 2


def ranks_of(row: Published) -> int:
    """Ranks, if the row says how many, else of a server."""
    last = row.what.split()[-2]
    return int(last) if last.isdecimal() else RANKS


def case_of(row: Published) -> CollectiveCase:
    """Return a case of one call, with as many bytes of each rank as the row says."""
    nbytes, ranks = rank_bytes_of(row), ranks_of(row)
    case = CollectiveCase(collective="all-gather-by-cores", ranks=ranks, cores=ranks, calls=1)
    if nbytes > BY_CORES_MAX:
        group = 2 if nbytes > ONE_LEVEL_MAX else ranks
        case = TwoLevelCase(
            collective="all-gather-by-reads", ranks=ranks, calls=1, group=group, cores=RINGS if group == 2 else 1
        )
    return case.of_bytes(ranks * nbytes)


def hccl(setting: Setting = DEFAULT, rows: Sequence[Published] | None = None) -> Iterator[Result]:
    """Every row, or some: from the first core's beginning to the last one's end."""
    for row in published.rows("hccl") if rows is None else rows:
        case = case_of(row)
        data = setting.data and 2 * case.elements <= COMPARED_MAX
        with setting.stage(row.what):
            trial, us = replace(setting, data=data).run(case)
        wrong = sum(trial.wrong_bytes().values()) if data else None
        ranks = ranks_of(row)
        wire = Wire("all-gather", baseline.spread_us(setting.fabric, ranks, ranks * rank_bytes_of(row), write=False))
        yield Result.of(row, us, wrong=wrong, configuration=case.configuration, wire=wire)


CASES = {"AR": "all-reduce-two-shot", "A2A": "all-to-all"}
TOKENS, CORES = 256, 16
DEGREES, SIZES_KB = (2, 4, 8, 16, 32), (8, 32, 128, 512, 2048, 8192)


def run_us(setting: Setting, operation: str, ranks: int, size: float) -> float:
    """Microseconds until all ranks are done; ``size`` is bytes of a rank, as in Eqs. (2) and (3)."""
    elements = max(1, round(size / 2 / ranks))
    return setting.run(make(CASES[operation], ranks=ranks, elements=elements, calls=1, cores=CORES))[1]


def flat_kb(sizes_kb: Sequence[float], us: Sequence[float]) -> float:
    """The size at which the time is twice the smallest one's, between sizes in proportion of logarithms."""
    return float(np.exp(np.interp(np.log(2 * us[0]), np.log(us), np.log(sizes_kb))))


def operators(setting: Setting = DEFAULT) -> list[Result]:
    """Times by degree and size, and what the paper says of them."""
    within = replace(setting, fabric=ATLAS_800T_A2)
    places = {"within nodes": within, "between nodes": replace(within, fabric=replace(ATLAS_800T_A2, chips_per_node=1))}
    us: dict[str, float] = {}
    made: dict[str, float] = {}
    for operation, factor in (("AR", lambda ranks: 1.0), ("A2A", lambda ranks: TOP_K / ranks)):
        for ranks in DEGREES:
            size = 2 * HIDDEN * TOKENS * factor(ranks)
            us[f"{operation}, {ranks} devices"] = run_us(within, operation, ranks, size)
        made[f"{operation}, 16 devices over 8"] = us[f"{operation}, 16 devices"] / us[f"{operation}, 8 devices"]
        flat: dict[str, float] = {}
        for place, where in places.items():
            ran = {
                f"{operation}, {kb} KB, 4 devices {place}": run_us(where, operation, 4, 1024 * kb) for kb in SIZES_KB
            }
            flat[place], us = flat_kb(SIZES_KB, [*ran.values()]), us | ran
        made[f"{operation}, flat up to, within nodes over between"] = flat["within nodes"] / flat["between nodes"]
    made["AR over A2A, 32 devices"] = us["AR, 32 devices"] / us["A2A, 32 devices"]
    shape: Shape = {"fabric": ATLAS_800T_A2.name, "cores": CORES, "tokens": TOKENS, "hidden": HIDDEN}
    rows = [Result.of(row, made[row.what], configuration=shape) for row in published.rows("operators")]
    return [*rows, *(Result("operators", what, value, "us", configuration=shape) for what, value in us.items())]
