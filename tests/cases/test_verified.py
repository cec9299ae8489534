"""Proofs of the shipped protocols: every schedule of these configurations, and every order of writes."""

import pytest

from xccl_emu.check.check import check
from xccl_emu.check.verdict import DATA_RACE, VERIFIED, VIOLATION
from xccl_emu.protocol import Case
from xccl_emu.protocol.registry import make, proofs

SLOW = {
    "mixserve: 2 x 2 ranks, no overlap", "mixserve: 2 x 2 ranks", "mixserve-dispatch: AG-Dispatch, d_DP > d_EP",
    "mixserve-combine: RS-Combine, 2 x 2 ranks", "mixserve-combine: RS-Combine, 2 x 2 ranks, no overlap",
    "mixserve: 2 x 2 ranks, two tokens", "mixserve-combine: RS-Combine, two tokens",
    "mixserve-combine: RS-Combine, two tokens, no overlap", "mixserve-dispatch: AG-Dispatch, two tokens",
    "mixserve-dispatch: AG-Dispatch, two tokens, no overlap", "fused: three ranks, one token",
    "fused: a rank of three with no tokens, three rounds",
    *(f"{name}-swap: {what}" for name in ("dispatch", "fused") for what in (
        "two ranks, two rounds", "two swaps, three rounds", "two cores a rank",
    )),
    "eplb-loop: a period, and two iterations after it", "eplb-loop: two periods", "rollback-a2e: two cores",
}  # fmt: skip
"""Proofs of more than a few seconds that run with the slow tests."""
MORE = {
    "fused: one core, three tokens": make("fused", rounds=3, tokens=3),
    "fused: two ranks of three with no tokens": make("fused", rounds=2, ranks=3, tokens="1,0,0"),
    "fused: a rank of three with no tokens, three rounds": make("fused", rounds=3, ranks=3, tokens="1,0,1"),
}
PROOFS = [
    pytest.param(case, id=name, marks=[pytest.mark.slow] * (name in SLOW)) for name, case in (proofs() | MORE).items()
]
ONE_TOKEN = {"ranks": 2, "tokens": 1, "granules": 224, "rounds": 1}
"""INT8 of hidden size 7168 is 224 granules, with the slot 240."""


@pytest.mark.parametrize("case", PROOFS)
def test_every_proof_is_made(case: Case) -> None:
    """Under relaxed order every shipped protocol is right in every schedule of the configurations that are to be
    proved, and of a few more."""
    verdict = check(case, seconds=180)  # the largest takes 55 s of a core by itself
    assert verdict.verdict == VERIFIED, verdict.reason


@pytest.mark.parametrize("early", [1, 0])
def test_a_buffer_that_dispatch_and_combine_share_is_overwritten(early: int) -> None:
    """With one buffer for both, a fast rank's contribution is written where a slow one still reads a message."""
    verdict = check(make("fused", cores=2, double_buffered=0, early_quantization=early), seconds=60)
    assert verdict.verdict == VIOLATION
    assert verdict.violation is not None
    assert verdict.violation.kind == DATA_RACE
    assert "fused/dispatch.py" in verdict.violation.message
    assert "fused/combine.py" in verdict.violation.message
    assert "dispatch_buffer[" in verdict.violation.message


@pytest.mark.parametrize("name", ["dispatch", "combine", "fused"])
def test_tokens_of_true_size_cost_no_more_states(name: str) -> None:
    """A token of 240 granules is verified with as many states as one of 18: data is no matter of schedules, flags
    are."""
    full = check(make(name, **ONE_TOKEN), seconds=60)
    small = check(make(name, **{**ONE_TOKEN, "granules": 2}), seconds=60)
    assert full.verdict == small.verdict == VERIFIED, full.reason
    assert full.states == small.states


@pytest.mark.parametrize("name", ["sendrecv", "sendrecv-dma", "sendrecv-zero-copy", "sendrecv-both"])
def test_a_search_that_reduces_less_says_the_same(name: str) -> None:
    """Exploring when each granule of data becomes visible changes the number of states and not the verdict."""
    scenario = make(name, slots=2, chunks=3, granules=2)
    full, merged = check(scenario), check(scenario, reduction="merged")
    assert full.verdict == merged.verdict == VERIFIED
    assert full.states < merged.states
