"""From the path on which a violation was found to the report: the most telling one near it, by a short schedule."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from xccl_emu.base.errors import ReplayError
from xccl_emu.check.trial import Checkable, Trial
from xccl_emu.check.verdict import SEARCH, VIOLATION, Verdict, Violation
from xccl_emu.machine.clock import working_seconds

if TYPE_CHECKING:
    from xccl_emu.check.search.exhaustive import Found

WITNESS_SECONDS = 5.0
"""How long a witness is made shorter, at most."""


def with_violation(
    checkable: Checkable, verdict: Verdict, violation: Violation, seconds: float | None = None,
    most: float = WITNESS_SECONDS,
) -> Verdict:  # fmt: skip
    """The verdict with the most telling violation, as its replay shows it and with fewer actions, and with the others.

    What is found first need not say what is wrong: without a quiet that also frees a buffer, an event may be set twice
    before any data is overtaken.  So more is looked for, by schedules that are always the same.  Where ``seconds`` are
    left, that takes half of them at most, or of ``most`` if these are more; making it shorter takes ``most`` at most.
    """
    from xccl_emu.check.sampling.sample import further, replay
    from xccl_emu.check.witness.rank import cause, place, ranked
    from xccl_emu.check.witness.shrink_schedule import shrink

    started, left = working_seconds(), most if seconds is None else max(seconds, most)
    alone = verdict.fault or violation.loop  # the hardware fails, or a search has seen all of a livelock
    trial = checkable.build(verdict.order, verdict.without)
    until = math.inf if seconds is None else started + left / 2
    more = () if alone else further(trial, seed=verdict.seed, until=until)
    found = ranked([violation, *more])
    trial = checkable.build(verdict.order, verdict.without)
    first = cause(trial, found)
    left -= 0.0 if seconds is None else working_seconds() - started
    best = shrink(trial, first, replay, seconds=min(most, left))
    others = tuple(other for other in found if place(other) != place(best))
    return replace(verdict, verdict=VIOLATION, violation=best, others=others)


def shown(trial: Trial, found: "Found", seed: int, most: float = WITNESS_SECONDS) -> Violation | None:
    """Return what a search has found, as the schedule of its path shows it, else a sampled one; None if none does.

    Where several things go wrong at once, it is the one that the schedule meets first.  Sampling has ``most`` seconds.
    """
    from xccl_emu.check.sampling.sample import further, replay, sample

    if found.violation:
        try:
            replayed = replay(trial, found.actions, found.loop)
        except ReplayError:
            replayed = None
        if replayed is not None:
            return replace(replayed, found_by=SEARCH, found_after=found.states)
    return next(further(trial, seed=seed), None) or sample(trial, seed=seed, seconds=most).violation
