"""HCCL's all-gather on a server of 16 dies, as was measured of it, beside the all-gather that is shipped here."""

from collections.abc import Sequence
from dataclasses import replace

from xccl_emu.bench import published
from xccl_emu.bench.published import Published
from xccl_emu.bench.result import Result
from xccl_emu.bench.setting import DEFAULT, Setting
from xccl_emu.protocols.collectives.case import CollectiveCase

RANKS, CORES = 16, 16
COMPARED_MAX = 2_000_000
"""Bytes of a rank up to which payload moves: all ranks get what all have, and the oracle has it once more."""


def case_of(row: Published) -> CollectiveCase:
    """One call, with as many bytes of each rank as the row says."""
    rank_bytes = round(1e6 * float(row.what.split()[0]))
    case = CollectiveCase(collective="all-gather", ranks=RANKS, cores=CORES, calls=1)
    return case.of_bytes(RANKS * rank_bytes)


def hccl(setting: Setting = DEFAULT, rows: Sequence[Published] | None = None) -> list[Result]:
    """Every row, or some: from the first core's beginning to the last one's end."""
    results = []
    for row in published.rows("hccl") if rows is None else rows:
        case = case_of(row)
        data = setting.data and 2 * case.elements <= COMPARED_MAX
        with setting.stage(row.what):
            trial, us = replace(setting, data=data).run(case)
        wrong = sum(trial.wrong_bytes().values()) if data else None
        results.append(Result.of(row, us, wrong=wrong, configuration=case.configuration))
    return results
