"""Rollback of FusedDispatch and FusedCombine: whenever they are aborted, tokens come back as without it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED, VIOLATION
from xccl_emu.kernels.fused.combine import fused_combine
from xccl_emu.kernels.fused.dispatch import fused_dispatch
from xccl_emu.protocols.fused.case import FusedRollback

SIZES = {
    "ranks": st.integers(2, 4), "cores": st.integers(1, 3), "rounds": st.integers(1, 3), "experts": st.integers(1, 2),
    "top_k": st.integers(1, 2), "aborts": st.integers(0, 3), "failures": st.integers(0, 2), "seed": st.integers(0, 9),
    "path": st.sampled_from(["aiv", "sdma"]), "counting": st.sampled_from(["vector", "scalar"]),
    "preallocated": st.integers(0, 1), "early_quantization": st.integers(0, 1), "pipelined": st.integers(0, 1),
    "tokens": st.sampled_from([1, 3, "2,0", "0,1"]), "masked": st.integers(0, 1),
}  # fmt: skip
USUAL = FusedRollback(ranks=2, cores=1, tokens=1, rounds=2)


@settings(max_examples=6)
@given(st.fixed_dictionaries(SIZES))
def test_bits_are_those_of_a_run_without_aborts(sizes: dict[str, int]) -> None:
    """Bit for bit those of the oracle, for drawn sizes, switches, aborts and failures, on some drawn schedules."""
    if isinstance(sizes["tokens"], str):
        sizes = {**sizes, "ranks": 2}
    assert check(FusedRollback(**sizes), policy="random", schedules=2).violation is None


def test_a_kernel_that_nothing_aborts_knows_of_none() -> None:
    """What `run` and `bench` launch polls as it did before there were aborts, and has no register for one."""
    for kernel in (fused_dispatch, fused_combine):
        assert not {site.operation for site in kernel.sites} & {"poll_any", "choose"}
        assert not [register for register in kernel.registers if "abort" in register]


NEEDED = (
    "counts", "counts in", "arrival", "all arrived", "messages visible", "contributions visible", "abort in", "ready",
    "ready in", "done", "done in", "end", "end in",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("without", NEEDED)
def test_what_it_needs_is_needed(without: str) -> None:
    """Without it a schedule shows what goes wrong."""
    assert check(USUAL, without=[without]).verdict == VIOLATION


@pytest.mark.slow
@pytest.mark.parametrize("order", ["sc", "fifo", "unordered"])
def test_proved_under_other_orders(order: str) -> None:
    """An abort at any moment of two rounds is survived under every memory order."""
    assert check(USUAL, order=order).verdict == VERIFIED


@pytest.mark.slow
def test_many_ranks() -> None:
    """Sixteen ranks of two cores, 4 aborts and a failure each, by the portfolio of policies."""
    case = FusedRollback(ranks=16, cores=2, tokens=2, top_k=2, rounds=3, aborts=4, failures=1)
    assert check(case, policy="portfolio", schedules=8).violation is None
