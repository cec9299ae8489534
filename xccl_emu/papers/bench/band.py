"""How far a predicted row may be off: its 80% interval, from what is not known of the constants.

The range of an assumed constant, and a fitted one's in the report of its fit, is read as its 80% interval.  A
bench is run again with each constant at each end of its range, all others left alone.  Constants are taken to be
independent, and a result to follow each of them in a straight line: then moves down and moves up are each added in
squares.  What somebody has set, by ``--cost`` or in the file of a fabric, is known, and has no range.

A constant that the clock reads for some operations alone (`READ_FOR`) moves no run in which none of these was granted:
until the first of them a run goes the same way whatever the constant is, so it never comes to one.  Such a run is not
made again.

Forms are not known either: how far they are off is taken from rows of role ``fit`` and ``shown`` (`STRUCTURE_PERCENT`),
and added in squares too.  No check row was looked at for it.

A row that was fitted to has the interval of the fit: as far as the rows of the fit are off, for the constants fitted.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import NormalDist

from xccl_emu.base.jobs import Job
from xccl_emu.base.stage import silent
from xccl_emu.lang.requests import DMA, MTU_IN, MTU_OUT, TABLE, VECTOR
from xccl_emu.papers.bench.result import Result
from xccl_emu.papers.bench.setting import Setting
from xccl_emu.timing.costs import REPORT, ends, in_squares

Key = tuple[str, str, str]
"""Bench, name and configuration of a row."""
PERCENT = 80
STRUCTURE_PERCENT = 5.0
"""Percent by which eight of ten rows are off at most, among the unchecked ones in docs/records/structure.md."""
_OUTSIDE = NormalDist().inv_cdf(0.5 + PERCENT / 200)
"""How many standard deviations the ends of the interval are from its middle."""


def _on(*pipes: int) -> frozenset[str]:
    return frozenset(row.name for row in TABLE if row.pipe in pipes)


READ_FOR: Mapping[str, frozenset[str]] = {
    "quiet_ns": frozenset({"quiet"}), "fence_ns": frozenset({"fence"}), "event_ns": frozenset({"wait_flag"}),
    **dict.fromkeys(("mtu_start_ns", "core_gb_s"), _on(MTU_IN, MTU_OUT)),
    **dict.fromkeys(("vector_start_ns", "vector_gelem_s"), _on(VECTOR)),
    **dict.fromkeys(("dma_start_us", "dma_less_us", "dma_gb_s"), _on(DMA)),
    **dict.fromkeys(("dma_in_flight", "dma_issue_ns", "dma_engines"), _on(DMA)),
}  # fmt: skip
"""Constants that the clock reads for some operations alone, and these."""


def moves(constant: str, granted: Collection[str]) -> bool:
    """Return whether a constant can move runs in which these operations were granted; it can if none is known."""
    return not granted or constant not in READ_FOR or not READ_FOR[constant].isdisjoint(granted)


def fit_percent() -> float:
    """Return how far a row that was fitted to may be off, on either side: from the residuals of all of them."""
    rows = [row["residual_percent"] for row in REPORT["row"]]
    free = len(rows) - len(REPORT["constants"])
    return _OUTSIDE * math.sqrt(math.fsum(row * row for row in rows) / free)


def jobs(setting: Setting, make: Callable[[Setting], Sequence[Result]]) -> list[Job[Sequence[Result]]]:
    """List a bench at each end that can move what it has run, without payload."""
    bare = replace(setting, stage=silent, data=False)
    return [
        Job(f"{name} {end:g}", partial(make, replace(bare, costs=costs)))
        for (name, end), costs in ends(setting.costs).items()
        if moves(name, setting.granted)
    ]


def with_bands(results: Sequence[Result], moved: Iterable[Sequence[Result]]) -> list[Result]:
    """Return the rows of a bench with their intervals, by what `jobs` found; one that is not among these has none."""
    runs, percent = [_by_key(each) for each in moved], fit_percent()
    return [_banded(one, runs, percent) for one in results]


def _banded(one: Result, runs: Sequence[dict[Key, float]], percent: float) -> Result:
    """A row with its interval; what is computed for a table depends on no constant, and has none."""
    if one.baseline:
        return one
    if one.role == "fit" and one.emulated is not None:
        return _between(one, -percent * one.emulated / 100, percent * one.emulated / 100)
    return _moved(one, [run[key] for run in runs if (key := one.key) in run])


def _by_key(results: Iterable[Result]) -> dict[Key, float]:
    return {one.key: one.emulated for one in results if one.emulated is not None}


def _moved(one: Result, moved: Sequence[float]) -> Result:
    """Return the row with the interval that follows from its values at each end."""
    if one.emulated is None or not moved:
        return one
    form = STRUCTURE_PERCENT / 100 * one.emulated
    return _between(one, *in_squares([-form, form, *(value - one.emulated for value in moved)]))


def _between(one: Result, down: float, up: float) -> Result:
    assert one.emulated is not None
    return replace(one, low=one.emulated + down, high=one.emulated + up)
