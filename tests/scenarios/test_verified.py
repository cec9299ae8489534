"""Proofs of the shipped protocols: every schedule and order of delivery of these configurations."""

import pytest

from xccl_emu.check.check import check
from xccl_emu.check.search.exhaustive import Search
from xccl_emu.check.search.setup import Setup
from xccl_emu.check.verdict import VERIFIED
from xccl_emu.scenarios import make

SEND_RECV = {
    "a": ("sendrecv", {"slots": 4, "chunks": 8, "pieces": 4}),
    "b": ("sendrecv", {"slots": 4, "chunks": 32, "pieces": 8}),
    "c": ("sendrecv", {"cores": 4, "slots": 4, "chunks": 8, "pieces": 4}),
    "d": ("sendrecv-both", {"slots": 2, "chunks": 4, "pieces": 4}),
    "e": ("sendrecv-async", {"slots": 2, "chunks": 4, "pieces": 4}),
    "f": ("sendrecv-dma", {"slots": 2, "chunks": 4, "pieces": 4}),
    "g": ("sendrecv-zero-copy", {"slots": 2, "chunks": 4, "pieces": 4}),
    "h": ("sendrecv", {"slots": 2, "chunks": 3, "pieces": 2, "rounds": 3}),
}
EXPERTS = {
    "i": {"ranks": 2, "tokens": 2, "pieces": 4, "rounds": 2},
    "j": {"ranks": 3, "tokens": 1, "pieces": 2, "rounds": 3},
    "k": {"ranks": 4, "tokens": 1, "pieces": 2, "rounds": 1},
    "l": {"ranks": 2, "tokens": (2, 0), "pieces": 2, "rounds": 3},
    "m": {"ranks": 2, "cores": 2, "tokens": 2, "pieces": 2, "rounds": 1},
}
ONE_TOKEN = {"ranks": 2, "tokens": 1, "pieces": 224, "rounds": 1}
"""INT8 of hidden size 7168 is 224 pieces, with the slot 240."""


@pytest.mark.parametrize("letter", SEND_RECV)
def test_send_recv_is_verified(letter: str) -> None:
    """Under relaxed order send/recv is right in every schedule: full rings, lanes, both ways, async, DMA, zero-copy."""
    name, sizes = SEND_RECV[letter]
    verdict = check(make(name, **sizes), seconds=60)
    assert verdict.verdict == VERIFIED, verdict.reason


@pytest.mark.parametrize("letter", EXPERTS)
@pytest.mark.parametrize("name", ["dispatch", "combine", "moe"])
def test_expert_parallelism_is_verified(name: str, letter: str) -> None:
    """Under relaxed order dispatch, combine and both are right in every schedule, also for a rank with no tokens."""
    verdict = check(make(name, **EXPERTS[letter]), seconds=60)
    assert verdict.verdict == VERIFIED, verdict.reason


@pytest.mark.parametrize("name", ["dispatch", "combine"])
def test_tokens_of_true_size_cost_no_more_states(name: str) -> None:
    """A token of 240 pieces is verified with as many states as one of 18: data is no matter of schedules, flags are."""
    full = check(make(name, **ONE_TOKEN), seconds=60)
    small = check(make(name, **{**ONE_TOKEN, "pieces": 2}), seconds=60)
    assert full.verdict == small.verdict == VERIFIED, full.reason
    assert full.states == small.states


@pytest.mark.parametrize("order", ["sc", "fifo"])
@pytest.mark.parametrize("name", ["sendrecv", "sendrecv-dma", "sendrecv-zero-copy"])
def test_send_recv_is_verified_under_stronger_orders(name: str, order: str) -> None:
    """What holds under relaxed order is found to hold under sc and fifo by searches of their own, which reduce less."""
    setup = Setup(make(name, slots=2, chunks=3, pieces=2).build(order), full=True)
    found = Search(setup, max_states=1_000_000, seconds=60, progress=None).run()
    assert found.complete, found.message or found.reason


@pytest.mark.parametrize("name", ["sendrecv", "sendrecv-dma", "sendrecv-zero-copy", "sendrecv-both"])
def test_a_search_that_reduces_less_says_the_same(name: str) -> None:
    """Exploring when each piece of data becomes visible changes the number of states and not the verdict."""
    scenario = make(name, slots=2, chunks=3, pieces=2)
    full, merged = check(scenario), check(scenario, reduction="merged")
    assert full.verdict == merged.verdict == VERIFIED
    assert full.states < merged.states
