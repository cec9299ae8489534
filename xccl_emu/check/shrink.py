"""From the path on which a violation was found to the report: the most telling one near it, by a short schedule."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from xccl_emu.base.errors import ReplayError
from xccl_emu.check import verdict as kinds
from xccl_emu.check.trial import Checkable, Trial
from xccl_emu.check.verdict import SEARCH, VIOLATION, Verdict, Violation
from xccl_emu.check.witness.highlight import marks
from xccl_emu.check.witness.shrink_schedule import signature
from xccl_emu.machine.clock import working_seconds

if TYPE_CHECKING:
    from xccl_emu.check.search.exhaustive import Found

_OF_DATA = (kinds.DATA_RACE, kinds.TORN_METADATA, kinds.UNWRITTEN_READ, kinds.UNDEFINED)
_OF_THE_RUN = (kinds.DEADLOCK, kinds.LIVELOCK, kinds.ASSERTION, kinds.AREA_VIOLATION)
_IN_BUFFER = ".ub+"
"""In the headline of what goes wrong inside of a core's data buffer (`report.symbolic_byte`)."""
_COMPARED, _ACTIONS = 4, 1 << 15
"""Violations whose runs are gone through step by step, which takes long, and the longest of these runs; a livelock's
run may have millions of actions.
"""


def place(violation: kinds.Violation) -> tuple[str, frozenset[str], bool]:
    """Return what makes violations different: kind, source lines, and whether inside of a core's data buffer."""
    return *signature(violation), _in_buffer(violation)


def ranked(found: Iterable[kinds.Violation]) -> list[kinds.Violation]:
    """Return one violation of each kind and place, the most informative first; ties keep the order of discovery.

    Accesses that go wrong between cores, then inside of one; then wrong bits, which such accesses make; then runs that
    end where they must not; then what the machine refuses, such as an event set twice, which says least of a protocol;
    then an event that could be set twice.
    """
    each: dict[object, kinds.Violation] = {}
    for violation in found:
        each.setdefault(place(violation), violation)
    return sorted(each.values(), key=_rank)


def cause(trial: Trial, found: Sequence[kinds.Violation]) -> kinds.Violation:
    """Return the first violation, or the one of its kind and rank that causes it.

    A causes B if the core that does wrong in B has come through A's source lines before, and not the other way round.

    The first `_COMPARED` of them are looked at, but for those by long runs.  ``trial`` must be fresh; it is left as it
    was.
    """
    alike = [one for one in found if (one.kind, _rank(one)) == (found[0].kind, _rank(found[0]))]
    alike = [one for one in alike if len(one.actions) <= _ACTIONS][:_COMPARED]
    if len(alike) < 2:
        return (alike or found)[0]
    lines, passed = [signature(one)[1] for one in alike], [_passed(trial, one) for one in alike]
    best = 0
    for other in range(1, len(alike)):
        leads = (lines[other] - lines[best]) & passed[best]
        if leads and not (lines[best] - lines[other]) & passed[other]:
            best = other
    return alike[best]


def _passed(trial: Trial, violation: kinds.Violation) -> set[str]:
    """The source lines that cores had come through before they did wrong."""
    before = trial.pod.snapshot()
    from xccl_emu.check.witness.tracer import steps  # compiled code is imported only when something runs

    run = steps(trial, violation.actions.tolist())
    trial.pod.restore(before)
    wrong = [run.steps[number - 1] for number in marks(run, violation)]
    sources = (step.source for one in wrong for step in run.steps[: one.instruction - 1] if step.core == one.core)
    return {f"{source.file}:{source.line}" for source in sources if source is not None}


def _rank(violation: kinds.Violation) -> int:
    from xccl_emu.check import messages  # it imports compiled code

    if violation.kind in _OF_DATA:
        return 1 if _in_buffer(violation) else 0
    if violation.kind == kinds.WRONG_BITS:
        return 2
    if violation.kind in _OF_THE_RUN:
        return 3
    return 5 if messages.SET_AGAIN in violation.message else 4


def _in_buffer(violation: kinds.Violation) -> bool:
    return _IN_BUFFER in violation.message.partition("\n")[0]


# ---- which is shown


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
