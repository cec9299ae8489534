"""Proofs of the shipped protocols: every schedule and order of delivery of these configurations."""

import pytest

from xccl_emu.check.check import check
from xccl_emu.check.verdict import DATA_RACE, VERIFIED, VIOLATION
from xccl_emu.protocol.registry import make, proofs

SEND_RECV = {
    "a": ("sendrecv", {"slots": 4, "chunks": 8, "granules": 4}),
    "b": ("sendrecv", {"slots": 4, "chunks": 32, "granules": 8}),
    "c": ("sendrecv", {"cores": 4, "slots": 4, "chunks": 8, "granules": 4}),
    "d": ("sendrecv-both", {"slots": 2, "chunks": 4, "granules": 4}),
    "e": ("sendrecv-async", {"slots": 2, "chunks": 4, "granules": 4}),
    "f": ("sendrecv-dma", {"slots": 2, "chunks": 4, "granules": 4}),
    "g": ("sendrecv-zero-copy", {"slots": 2, "chunks": 4, "granules": 4}),
    "h": ("sendrecv", {"slots": 2, "chunks": 3, "granules": 2, "rounds": 3}),
}
EXPERTS = {
    "i": {"ranks": 2, "tokens": 2, "granules": 4, "rounds": 2},
    "j": {"ranks": 3, "tokens": 1, "granules": 2, "rounds": 3},
    "k": {"ranks": 4, "tokens": 1, "granules": 2, "rounds": 1},
    "l": {"ranks": 2, "tokens": (2, 0), "granules": 2, "rounds": 3},
    "m": {"ranks": 2, "cores": 2, "tokens": 2, "granules": 2, "rounds": 1},
}
FUSED = {
    "two ranks, two tokens, two cores": {"ranks": 2, "cores": 2, "tokens": 2},
    "three ranks, one token, two cores": {"ranks": 3, "cores": 2, "tokens": 1},
    "one core": {"tokens": 3},
    "two experts a die": {"cores": 2, "experts": 2, "top_k": 2},
    "a masked choice": {"cores": 2, "masked": 1},
    "a rank with no tokens": {"cores": 2, "tokens": "2,0"},
    "a rank of three with no tokens": {"ranks": 3, "tokens": "1,0,1"},
    "SDMA": {"cores": 2, "path": "sdma"},
    "late quantization": {"cores": 2, "early_quantization": 0},
    "nothing quantized": {"cores": 2, "quantized": 0, "granules": 2},
    "no allocation in advance": {"cores": 2, "preallocated": 0},
    "no pipeline": {"cores": 2, "pipelined": 0},
}
ONE_TOKEN = {"ranks": 2, "tokens": 1, "granules": 224, "rounds": 1}
"""INT8 of hidden size 7168 is 224 granules, with the slot 240."""


@pytest.mark.parametrize("letter", SEND_RECV)
def test_send_recv_is_verified(letter: str) -> None:
    """Under relaxed order send/recv is right in every schedule: full rings, channels, both ways, async, DMA,
    zero-copy."""
    name, sizes = SEND_RECV[letter]
    verdict = check(make(name, **sizes), seconds=60)
    assert verdict.verdict == VERIFIED, verdict.reason


@pytest.mark.parametrize("letter", EXPERTS)
@pytest.mark.parametrize("name", ["dispatch", "combine", "moe"])
def test_expert_parallelism_is_verified(name: str, letter: str) -> None:
    """Under relaxed order dispatch, combine and both are right in every schedule, also for a rank with no tokens."""
    verdict = check(make(name, **EXPERTS[letter]), seconds=60)
    assert verdict.verdict == VERIFIED, verdict.reason


@pytest.mark.parametrize("what", FUSED)
def test_fused_is_verified(what: str) -> None:
    """Three rounds of FusedDispatch and FusedCombine are right in every schedule, without any optimization too."""
    verdict = check(make("fused", rounds=3, **FUSED[what]), seconds=180)  # the largest takes 55 s of a core by itself
    assert verdict.verdict == VERIFIED, verdict.reason


@pytest.mark.parametrize("early", [1, 0])
def test_a_buffer_that_dispatch_and_combine_share_is_overwritten(early: int) -> None:
    """With one buffer for both, a fast rank's contribution is written where a slow one still reads a message."""
    verdict = check(make("fused", cores=2, double_buffered=0, early_quantization=early), seconds=60)
    assert verdict.verdict == VIOLATION
    assert verdict.violation is not None
    assert verdict.violation.kind == DATA_RACE
    assert "fused.py" in verdict.violation.message
    assert "fused_combine.py" in verdict.violation.message
    assert "dispatch_buffer[" in verdict.violation.message


@pytest.mark.parametrize("name", ["dispatch", "combine", "fused"])
def test_tokens_of_true_size_cost_no_more_states(name: str) -> None:
    """A token of 240 granules is verified with as many states as one of 18: data is no matter of schedules, flags
    are."""
    full = check(make(name, **ONE_TOKEN), seconds=60)
    small = check(make(name, **{**ONE_TOKEN, "granules": 2}), seconds=60)
    assert full.verdict == small.verdict == VERIFIED, full.reason
    assert full.states == small.states


@pytest.mark.parametrize("order", ["sc", "fifo"])
@pytest.mark.parametrize("name", ["sendrecv", "sendrecv-dma", "sendrecv-zero-copy"])
def test_send_recv_is_verified_under_stronger_orders(name: str, order: str) -> None:
    """What holds under relaxed order holds under sc and fifo, which the search reduces less."""
    verdict = check(make(name, slots=2, chunks=3, granules=2), order=order, seconds=60)
    assert verdict.verdict == VERIFIED, verdict.reason


@pytest.mark.parametrize("name", ["sendrecv", "sendrecv-dma", "sendrecv-zero-copy", "sendrecv-both"])
def test_a_search_that_reduces_less_says_the_same(name: str) -> None:
    """Exploring when each granule of data becomes visible changes the number of states and not the verdict."""
    scenario = make(name, slots=2, chunks=3, granules=2)
    full, merged = check(scenario), check(scenario, reduction="merged")
    assert full.verdict == merged.verdict == VERIFIED
    assert full.states < merged.states


@pytest.mark.parametrize("what", [what for what in proofs() if what.startswith("a2e")])
def test_a2e_is_verified(what: str) -> None:
    """Two attention and three expert dies, two calls, and others: right in every schedule, start and stop included."""
    verdict = check(proofs()[what], seconds=60)
    assert verdict.verdict == VERIFIED, verdict.reason
