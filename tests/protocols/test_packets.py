"""Protocols whose data come with their flags: what has to become visible at once, and which buffer may be emptied."""

from dataclasses import dataclass

import pytest

from xccl_emu.check.check import check
from xccl_emu.check.verdict import DATA_RACE, VERIFIED, VIOLATION, WRONG_BITS
from xccl_emu.machine.pod import ORDERS
from xccl_emu.protocol.registry import make
from xccl_emu.protocols.collectives.lamport import Lamport

NEEDED = {"ll": 8, "ll128": 128}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", NEEDED)
def test_lines_are_right_where_enough_becomes_visible_at_once(name: str, order: str) -> None:
    """LL is verified at 8 bytes, LL128 at 128, and at half of that both are refuted, with data that are not in."""
    enough = make(name, lines=1, steps=2, atomic_bytes=NEEDED[name])
    too_few = make(name, lines=1, steps=2, atomic_bytes=NEEDED[name] // 2)
    assert check(enough, order=order).verdict == VERIFIED
    found = check(too_few, order=order)
    assert (found.verdict, found.violation.kind) == (VIOLATION, WRONG_BITS)


@pytest.mark.parametrize("name", NEEDED)
def test_two_searches_and_sampled_schedules_agree(name: str) -> None:
    """So does a search that reduces less, and sampled schedules find the torn line."""
    for atomic_bytes, verdict in ((NEEDED[name], VERIFIED), (NEEDED[name] // 2, VIOLATION)):
        case = make(name, lines=1, steps=2, atomic_bytes=atomic_bytes)
        assert check(case, reduction="merged").verdict == verdict
        assert (check(case, policy="portfolio", schedules=200).verdict == VIOLATION) == (verdict == VIOLATION)


@dataclass(frozen=True)
class Eager(Lamport):
    """Empties the buffer of the next call."""

    emptied = 1


def test_the_next_buffer_may_be_in_use() -> None:
    """With three ranks and three calls (call + 2) % 3 is verified, and (call + 1) % 3 refuted."""
    assert check(Lamport()).verdict == VERIFIED
    found = check(Eager())
    assert (found.verdict, found.violation.kind) == (VIOLATION, DATA_RACE)
