"""Compare violations: which are the same, and which one says most about what is wrong."""

from collections.abc import Iterable

from xccl_emu.check import messages
from xccl_emu.check import verdict as kinds
from xccl_emu.check.witness.shrink import signature

_OF_DATA = (kinds.WRONG_BITS, kinds.DATA_RACE, kinds.TORN_METADATA, kinds.UNWRITTEN_READ, kinds.UNDEFINED)
_OF_THE_RUN = (kinds.DEADLOCK, kinds.LIVELOCK, kinds.ASSERTION, kinds.AREA_VIOLATION)
_IN_BUFFER = ".ub+"
"""In the headline of what goes wrong inside of a core's data buffer (`report.symbolic_byte`)."""


def place(violation: kinds.Violation) -> tuple[str, frozenset[str], bool]:
    """What tells violations apart: kind, source lines, and whether it is inside of a core's data buffer."""
    return *signature(violation), _in_buffer(violation)


def ranked(found: Iterable[kinds.Violation]) -> list[kinds.Violation]:
    """The first one of each kind and place, the most telling in front: of those that tell alike, what was found first.

    Data that go wrong between cores, then inside of one; then runs that end where they must not; then what the machine
    refuses, such as an event set twice, which says least about a protocol; then an event that could be set twice.
    """
    each: dict[object, kinds.Violation] = {}
    for violation in found:
        each.setdefault(place(violation), violation)
    return sorted(each.values(), key=_rank)


def _rank(violation: kinds.Violation) -> int:
    if violation.kind in _OF_DATA:
        return 1 if _in_buffer(violation) else 0
    if violation.kind in _OF_THE_RUN:
        return 2
    return 4 if messages.SET_AGAIN in violation.message else 3


def _in_buffer(violation: kinds.Violation) -> bool:
    return _IN_BUFFER in violation.message.partition("\n")[0]
