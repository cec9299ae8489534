"""Compare violations: which are the same, and which one says most about what is wrong."""

from collections.abc import Iterable, Sequence

from xccl_emu.check import messages
from xccl_emu.check import verdict as kinds
from xccl_emu.check.trial import Trial
from xccl_emu.check.witness.highlight import marks
from xccl_emu.check.witness.shrink_schedule import signature

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
    if violation.kind in _OF_DATA:
        return 1 if _in_buffer(violation) else 0
    if violation.kind == kinds.WRONG_BITS:
        return 2
    if violation.kind in _OF_THE_RUN:
        return 3
    return 5 if messages.SET_AGAIN in violation.message else 4


def _in_buffer(violation: kinds.Violation) -> bool:
    return _IN_BUFFER in violation.message.partition("\n")[0]
