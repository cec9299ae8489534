"""Calls of shipped protocols that follow each other on one communicator, and communicators one after the other."""

from typing import Any

import pytest

from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED
from xccl_emu.fuzz.run import Plan, fuzz_part
from xccl_emu.protocol.registry import known, names
from xccl_emu.protocol.sequence import Sequence, Stage, makes_rows

PAIR, ONCE = {"ranks": 2}, {"calls": 1}
CHANGING: dict[str, tuple[dict[str, Any], tuple[dict[str, Any], ...]]] = {
    "all-gather-ring": (PAIR, (ONCE | {"elements": 40}, ONCE | {"elements": 1}, ONCE)),
    "all-reduce-lamport": (PAIR, (ONCE | {"lines": 2}, ONCE, ONCE | {"lines": 2})),
    "all-reduce-two-shot": (PAIR, (ONCE, ONCE | {"elements": 40, "in_place": 1})),
    "all-to-all-ring": (PAIR, (ONCE, ONCE | {"elements": 40}, {"calls": 2})),
    "barrier-sense": (PAIR, (ONCE, ONCE, ONCE)),
    "ll": ({"slots": 1}, ({"steps": 1}, {"steps": 2, "lines": 1})),
    "ll128": ({"slots": 1}, ({"steps": 2, "lines": 1}, {"steps": 1})),
    "mpsc-ring": ({"slots": 1}, ({"messages": 1}, {"messages": 1})),
    "mixserve-dispatch": ({}, ({"rounds": 1}, {"rounds": 2})),
    "sendrecv": ({"slots": 2}, ({"chunks": 3}, {"chunks": 1, "path": "zero-copy"}, {"chunks": 2, "path": "dma"})),
    "sendrecv-async": ({"slots": 1}, ({"chunks": 2}, {"chunks": 1})),
    "sendrecv-zero-copy": ({"cores": 2}, ({"chunks": 1}, {"chunks": 2, "waits": 1})),
    "sendrecv-both": ({"slots": 1}, ({"chunks": 1}, {"chunks": 2})),
    "sp-tp-sp": (PAIR, ({"layers": 1, "tokens": 3}, {"layers": 1, "tokens": 1})),
}


@pytest.mark.parametrize("name", CHANGING)
def test_calls_whose_sizes_change_are_verified(name: str) -> None:
    """Launches behind each other on one communicator, each with sizes of its own, are right under every schedule."""
    sizes, calls = CHANGING[name]
    verdict = check(Sequence(known(name), (Stage(sizes, calls),)))
    assert verdict.verdict == VERIFIED, verdict


@pytest.mark.parametrize("name", ["ll", "ll128"])
def test_flags_of_an_earlier_communicator_are_not_taken_for_new_ones(name: str) -> None:
    """Slots are in managed data, which stay: without being cleared their old lines would be taken for new ones."""
    sequence = Sequence(known(name), (Stage(), Stage({"seed": 1})))
    assert check(sequence).verdict == VERIFIED


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in names() if makes_rows(known(name))])
def test_nothing_is_found_in_what_is_shipped(name: str) -> None:
    """A few sequences of each shipped protocol are right, and there are calls that follow each other among them."""
    summary = fuzz_part(Plan(name, {}, 3))
    assert summary.findings == []
    assert summary.judged > 3
