"""Of several violations: which are the same, and which one says most about what is wrong."""

from collections.abc import Iterable

from xccl_emu.check.verdict import (
    AREA_VIOLATION,
    ASSERTION,
    DATA_RACE,
    DEADLOCK,
    LIVELOCK,
    TORN_METADATA,
    UNWRITTEN_READ,
    WRONG_BITS,
    Violation,
)
from xccl_emu.check.witness.shrink import signature

_OF_DATA = (WRONG_BITS, DATA_RACE, TORN_METADATA, UNWRITTEN_READ)
_OF_THE_RUN = (DEADLOCK, LIVELOCK, ASSERTION, AREA_VIOLATION)
_IN_BUFFER = ".ub+"
"""In the headline of what goes wrong inside of a core's data buffer (`report.symbolic_byte`)."""


def place(violation: Violation) -> tuple[str, frozenset[str], bool]:
    """What tells violations apart: kind, source lines, and whether it is inside of a core's data buffer."""
    return *signature(violation), _in_buffer(violation)


def ranked(found: Iterable[Violation]) -> list[Violation]:
    """The first one of each kind and place, the most telling in front: of those that tell alike, what was found first.

    Data that go wrong between cores, then inside of one; then runs that end where they must not; then what the machine
    refuses, such as an event set twice, which says least about a protocol.
    """
    each: dict[object, Violation] = {}
    for violation in found:
        each.setdefault(place(violation), violation)
    return sorted(each.values(), key=_rank)


def _rank(violation: Violation) -> int:
    if violation.kind in _OF_DATA:
        return 1 if _in_buffer(violation) else 0
    return 2 if violation.kind in _OF_THE_RUN else 3


def _in_buffer(violation: Violation) -> bool:
    return _IN_BUFFER in violation.message.partition("\n")[0]
