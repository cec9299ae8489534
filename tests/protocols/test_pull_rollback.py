"""Rollback of dispatch and combine: whenever they are aborted, tokens come to their experts and back as without it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED, VIOLATION
from xccl_emu.kernels.pull.combine import combine
from xccl_emu.kernels.pull.dispatch import dispatch
from xccl_emu.protocols.pull.case import DispatchRollback, MoeRollback

SIZES = {
    "ranks": st.integers(2, 4), "cores": st.integers(1, 3), "rounds": st.integers(1, 3), "experts": st.integers(1, 2),
    "top_k": st.integers(1, 2), "aborts": st.integers(0, 3), "failures": st.integers(0, 2), "seed": st.integers(0, 9),
    "path": st.sampled_from(["mtu", "dma"]), "counting": st.sampled_from(["vector", "scalar"]),
    "quantized_back": st.integers(0, 1), "tokens": st.sampled_from([1, 3, "2,0", "0,1"]),
}  # fmt: skip


@settings(max_examples=6)
@given(st.fixed_dictionaries(SIZES))
def test_bits_are_those_of_a_run_without_aborts(sizes: dict[str, int]) -> None:
    """Bit for bit those of the oracle, for drawn sizes, aborts and failures, on some drawn schedules."""
    if isinstance(sizes["tokens"], str):
        sizes = {**sizes, "ranks": 2}
    case = MoeRollback(granules=2, **sizes)
    assert check(case, policy="random", schedules=2).violation is None


def test_a_kernel_that_nothing_aborts_knows_of_none() -> None:
    """What `run` and `bench` launch polls as it did before there were aborts, and has no register for one."""
    for kernel in (dispatch, combine):
        assert not {site.operation for site in kernel.sites} & {"poll_any", "choose"}
        assert not [register for register in kernel.registers if "abort" in register]


NEEDED = (
    "dispatch blocks free", "dispatch ack", "counts", "counts in", "tokens visible", "abort in", "ready", "ready in",
    "done", "done in", "end", "end in",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("without", NEEDED)
def test_what_it_needs_is_needed(without: str) -> None:
    """Without it a schedule shows what goes wrong."""
    assert check(DispatchRollback(tokens=1, granules=1), without=[without]).verdict == VIOLATION


@pytest.mark.slow
@pytest.mark.parametrize("order", ["sc", "fifo", "unordered"])
@pytest.mark.parametrize("case", [DispatchRollback(tokens=1, granules=1), MoeRollback(tokens=1, granules=2)])
def test_proved_under_other_orders(case: MoeRollback, order: str) -> None:
    """An abort at any moment of two rounds is survived under every memory order."""
    assert check(case, order=order).verdict == VERIFIED


@pytest.mark.slow
def test_many_ranks() -> None:
    """Sixteen ranks of two cores, 4 aborts and a failure each, by the portfolio of policies."""
    case = MoeRollback(ranks=16, cores=2, tokens=2, granules=2, top_k=2, rounds=3, aborts=4, failures=1)
    assert check(case, policy="portfolio", schedules=8).violation is None
