"""From the path on which a violation was found to what is told: the most telling one near it, by a short schedule."""

from dataclasses import replace

from xccl_emu.check.trial import Checkable
from xccl_emu.check.verdict import LIVELOCK, VIOLATION, Verdict, Violation

_SHRINK_SECONDS = 5.0


def told(checkable: Checkable, verdict: Verdict, violation: Violation) -> Verdict:
    """The verdict with the most telling violation, as its replay shows it and with fewer actions, and with the others.

    What is found first need not say what is wrong: without a quiet that also frees a buffer, an event may be set twice
    before any data is overtaken.  So more is looked for, by schedules that are always the same.
    """
    from xccl_emu.check.sampling.sample import replay
    from xccl_emu.check.witness.shrink import shrink
    from xccl_emu.check.witness.telling import place, ranked

    found = ranked(_near(checkable, verdict, violation))
    best = shrink(checkable.build(verdict.order, verdict.without), found[0], replay, seconds=_SHRINK_SECONDS)
    others = tuple(other for other in found[1:] if place(other) != place(best))
    return replace(verdict, verdict=VIOLATION, violation=best, others=others)


def _near(checkable: Checkable, verdict: Verdict, violation: Violation) -> list[Violation]:
    """A violation as its replay shows it, and what else goes wrong.

    Nothing else is looked for where the hardware fails, and for a livelock of a search, which has then seen all.
    """
    from xccl_emu.check.sampling.sample import further, replay, sample

    trial = checkable.build(verdict.order, verdict.without)
    shown = replay(trial, violation.actions, violation.loop)
    found = [] if verdict.fault or violation.loop else list(further(trial, seed=verdict.seed))
    if shown is not None:  # where several things go wrong at once, the one that a replay meets first
        return [replace(shown, found_by=violation.found_by, found_after=violation.found_after), *found]
    if violation.kind == LIVELOCK:
        return [violation, *found]
    if not found:  # its path does not show it yet: look for one that does
        sampled = sample(trial, seed=verdict.seed, seconds=_SHRINK_SECONDS).violation
        found = [] if sampled is None else [sampled]
    return found or [violation]
