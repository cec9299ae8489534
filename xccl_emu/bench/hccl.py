"""HCCL's all-gather on a server of 16 dies, as was measured of it, beside the all-gather in two levels.

It comes to more of the bus than the port of a die carries, so it must use the link between the dies of a chip.
"""

from collections.abc import Sequence
from dataclasses import replace

from xccl_emu.bench import baseline, published
from xccl_emu.bench.published import Published
from xccl_emu.bench.result import Result, Wire
from xccl_emu.bench.setting import DEFAULT, Setting
from xccl_emu.machine.spec import KIB, MIB
from xccl_emu.protocols.collectives.two_level import TwoLevelCase

RANKS, CORES = 16, 16
COMPARED_MAX = 2_000_000
"""Bytes of a rank up to which payload moves: all ranks get what all have, and the oracle has it once more."""


def rank_bytes_of(row: Published) -> int:
    """Bytes of each rank; the source has them in MiB."""
    number, unit, *_ = row.what.split()
    return round(float(number) * {"KiB": KIB, "MiB": MIB}[unit]) // 2 * 2


def case_of(row: Published) -> TwoLevelCase:
    """One call, with as many bytes of each rank as the row says."""
    case = TwoLevelCase(collective="all-gather-two-level", ranks=RANKS, cores=CORES, calls=1, group=2)
    return case.of_bytes(RANKS * rank_bytes_of(row))


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
