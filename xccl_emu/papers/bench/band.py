"""How far a predicted row may be off: its 80% interval, from what is not known of the constants.

The range of an assumed constant, and a fitted one's in the report of its fit, is read as its 80% interval.  A
bench is run again with each constant at each end of its range, all others left alone.  Constants are taken to be
independent, and a result to follow each of them in a straight line: then moves down and moves up are each added in
squares.  What somebody has set, by ``--cost`` or in the file of a fabric, is known, and has no range.

Forms are not known either: how far they are off is taken from rows of role ``fit`` and ``shown`` (`STRUCTURE_PERCENT`),
and added in squares too.  No check row was looked at for it.

A row that was fitted to has the interval of the fit: as far as the rows of the fit are off, for the constants fitted.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from statistics import NormalDist

from xccl_emu.base.jobs import Job
from xccl_emu.base.stage import silent
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


def fit_percent() -> float:
    """Return how far a row that was fitted to may be off, on either side: from the residuals of all of them."""
    rows = [row["residual_percent"] for row in REPORT["row"]]
    free = len(rows) - len(REPORT["constants"])
    return _OUTSIDE * math.sqrt(math.fsum(row * row for row in rows) / free)


def jobs(setting: Setting, make: Callable[[Setting], Sequence[Result]]) -> list[Job[Sequence[Result]]]:
    """List a bench at each end, without payload."""
    bare = replace(setting, stage=silent, data=False)
    return [
        Job(f"{name} {end:g}", partial(make, replace(bare, costs=costs)))
        for (name, end), costs in ends(setting.costs).items()
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

