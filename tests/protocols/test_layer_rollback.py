"""Rollback of layers: whenever they are aborted, tokens come to their experts and back as without it."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED, VIOLATION
from xccl_emu.kernels.fused.combine import fused_combine
from xccl_emu.kernels.fused.dispatch import fused_dispatch
from xccl_emu.kernels.pull.combine import combine
from xccl_emu.kernels.pull.dispatch import dispatch
from xccl_emu.protocol import Case
from xccl_emu.protocols.fused.case import FusedRollback
from xccl_emu.protocols.pull.case import DispatchRollback, MoeRollback

SIZES = {
    "ranks": st.integers(2, 4), "cores": st.integers(1, 3), "rounds": st.integers(1, 3), "experts": st.integers(1, 2),
    "top_k": st.integers(1, 2), "aborts": st.integers(0, 3), "failures": st.integers(0, 2), "seed": st.integers(0, 9),
    "counting": st.sampled_from(["vector", "scalar"]), "tokens": st.sampled_from([1, 3, "2,0", "0,1"]),
}  # fmt: skip
OF_PULL = {"path": st.sampled_from(["mtu", "dma"]), "quantized_back": st.integers(0, 1), "granules": st.just(2)}
OF_FUSED = {
    "path": st.sampled_from(["aiv", "sdma"]), "preallocated": st.integers(0, 1), "masked": st.integers(0, 1),
    "early_quantization": st.integers(0, 1), "pipelined": st.integers(0, 1),
}  # fmt: skip
Made = Callable[..., Case]
FUSED = FusedRollback(ranks=2, cores=1, tokens=1, rounds=2)
DISPATCH, MOE = DispatchRollback(tokens=1, granules=1), MoeRollback(tokens=1, granules=2)


@pytest.mark.parametrize(("case", "own"), [(FusedRollback, OF_FUSED), (MoeRollback, OF_PULL)])
def test_bits_are_those_of_a_run_without_aborts(case: Made, own: dict[str, st.SearchStrategy[int]]) -> None:
    """Bit for bit those of the oracle, for drawn sizes, switches, aborts and failures, on some drawn schedules."""

    @settings(max_examples=6)
    @given(st.fixed_dictionaries(SIZES | own))
    def bits(sizes: dict[str, int]) -> None:
        if isinstance(sizes["tokens"], str):
            sizes = {**sizes, "ranks": 2}
        assert check(case(**sizes), policy="random", schedules=2).violation is None

    bits()


def test_a_kernel_that_nothing_aborts_knows_of_none() -> None:
    """What `run` and `bench` launch polls as it did before there were aborts, and has no register for one."""
    for kernel in (fused_dispatch, fused_combine, dispatch, combine):
        assert not {site.operation for site in kernel.sites} & {"poll_any", "choose"}
        assert not [register for register in kernel.registers if "abort" in register]


OF_BOTH = ("counts", "counts in", "abort in", "ready", "ready in", "done", "done in", "end", "end in")
NEEDED = {
    FUSED: (*OF_BOTH, "arrival", "all arrived", "messages visible", "contributions visible"),
    DISPATCH: (*OF_BOTH, "dispatch blocks free", "dispatch ack", "tokens visible"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("case", "without"), [(case, name) for case, names in NEEDED.items() for name in names])
def test_what_it_needs_is_needed(case: Case, without: str) -> None:
    """Without it a schedule shows what goes wrong."""
    assert check(case, without=[without]).verdict == VIOLATION


@pytest.mark.slow
@pytest.mark.parametrize("order", ["sc", "fifo", "unordered"])
@pytest.mark.parametrize("case", [FUSED, DISPATCH, MOE])
def test_proved_under_other_orders(case: Case, order: str) -> None:
    """An abort at any moment of two rounds is survived under every memory order."""
    assert check(case, order=order).verdict == VERIFIED


@pytest.mark.slow
@pytest.mark.parametrize("case", [FusedRollback, MoeRollback])
def test_many_ranks(case: Made) -> None:
    """Sixteen ranks of two cores, 4 aborts and a failure each, by the portfolio of policies."""
    sizes = {"granules": 2} if case is MoeRollback else {}
    made = case(ranks=16, cores=2, tokens=2, top_k=2, rounds=3, aborts=4, failures=1, **sizes)
    assert check(made, policy="portfolio", schedules=8).violation is None
