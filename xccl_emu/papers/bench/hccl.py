"""HCCL's all-gather on a server of 16 dies, as was measured of it, and the all-gather in which ranks read.

Which form it is follows HCCL's published sources, not these rows (gitee.com/ascend/cann-hccl, what it selects for this
server): up to 512 KiB of each rank cores copy, one for each rank; beyond that DMA reads what others have, up to 2 MiB
each rank from all others.  Beyond that HCCL reads along rings.  It comes to more of the bus than the port of a die
carries, so it must use the link between the dies of a chip, and here ranks read in two levels.
"""

from collections.abc import Sequence
from dataclasses import replace

from xccl_emu.machine.spec import KIB, MIB
from xccl_emu.papers.bench import baseline, published
from xccl_emu.papers.bench.published import Published
from xccl_emu.papers.bench.result import Result, Wire
from xccl_emu.papers.bench.setting import DEFAULT, Setting
from xccl_emu.protocols.collectives.case import CollectiveCase
from xccl_emu.protocols.collectives.two_level import TwoLevelCase

RANKS = 16
BY_CORES_MAX, ONE_LEVEL_MAX = 512 * KIB, 2 * MIB
"""Most bytes of a rank that cores copy, and that is read in one level."""
COMPARED_MAX = 2_000_000
"""Bytes of a rank up to which payload moves: all ranks get what all have, and the oracle has it once more."""


def rank_bytes_of(row: Published) -> int:
    """Bytes of each rank; the source has them in MiB."""
    number, unit, *_ = row.what.split()
    return round(float(number) * {"KiB": KIB, "MiB": MIB}[unit]) // 2 * 2


def case_of(row: Published) -> CollectiveCase:
    """Return a case of one call, with as many bytes of each rank as the row says."""
    nbytes = rank_bytes_of(row)
    case = CollectiveCase(collective="all-gather-by-cores", ranks=RANKS, cores=RANKS, calls=1)
    if nbytes > BY_CORES_MAX:
        group = 2 if nbytes > ONE_LEVEL_MAX else RANKS
        case = TwoLevelCase(collective="all-gather-by-reads", ranks=RANKS, calls=1, group=group)
    return case.of_bytes(RANKS * nbytes)


def hccl(setting: Setting = DEFAULT, rows: Sequence[Published] | None = None) -> list[Result]:
    """Every row, or some: from the first core's beginning to the last one's end."""
    results = []
    for row in published.rows("hccl") if rows is None else rows:
        case = case_of(row)
        data = setting.data and 2 * case.elements <= COMPARED_MAX
        with setting.stage(row.what):
            trial, us = replace(setting, data=data).run(case)
        wrong = sum(trial.wrong_bytes().values()) if data else None
        wire = Wire("all-gather", baseline.spread_us(setting.fabric, RANKS, RANKS * rank_bytes_of(row), write=False))
        results.append(Result.of(row, us, wrong=wrong, configuration=case.configuration, wire=wire))
    return results
