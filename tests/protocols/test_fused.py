"""FusedDispatch, stand-in expert and FusedCombine on small pods, bit for bit against the oracle."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.machine.pod import ORDERS, POLICIES
from xccl_emu.protocols.fused_layout import FusedConfig

from .ep_support import check_outputs, check_received, check_round
from .fused_support import SWITCHES, FusedCase, fused_cases, fused_rounds_of

WAYS = [(order, policy) for order in ORDERS for policy in POLICIES]
SMALL = FusedConfig(n_ranks=3, local_experts=2, hidden=64, top_k=3, tokens_max=4, cores=2)


def follow(case: FusedCase) -> None:
    """Run all rounds of a case on one group and compare each with the oracle."""
    group = case.group()
    for batch in case.batches():
        check_round(group, batch)


def follow_in_one_launch(case: FusedCase) -> None:
    """The same in one launch."""
    batches = case.batches()
    rounds = fused_rounds_of(case.group(), batches)
    rounds.run()
    for i, batch in enumerate(batches):
        for rank in range(case.config.n_ranks):
            check_received(case.config, batch, rank, rounds.received(i, rank))
        check_outputs(case.config, batch, [rounds.output(i, rank) for rank in range(case.config.n_ranks)])


@settings(max_examples=80)
@given(fused_cases(ranks=st.integers(2, 6), rounds=st.integers(1, 3)))
def test_rounds_give_what_the_oracle_gives(case: FusedCase) -> None:
    """Any small group with any of the optimizations, batch sizes that change from round to round, no reset."""
    follow(case)


@settings(max_examples=80)
@given(fused_cases(ranks=st.integers(2, 4), rounds=st.integers(1, 4)))
def test_rounds_in_one_launch_give_what_the_oracle_gives(case: FusedCase) -> None:
    """The same where a fast rank may be ahead of a slow one."""
    follow_in_one_launch(case)


@pytest.mark.boundscheck
@settings(max_examples=15)
@given(fused_cases(ranks=st.integers(2, 4), rounds=st.integers(1, 2)))
def test_rounds_stay_in_bounds(case: FusedCase) -> None:
    """No index of the machine's arrays leaves them (the run with bounds checks is what can fail here)."""
    follow(case)


@pytest.mark.nojit
@pytest.mark.parametrize("switches", [{}, *SWITCHES])
def test_two_rounds_without_the_jit(switches: dict[str, Any]) -> None:
    """The same kernels and machine in plain Python give what the oracle gives."""
    config = FusedConfig(n_ranks=2, hidden=32, top_k=2, tokens_max=2, **switches)
    follow_in_one_launch(FusedCase(config, "relaxed", "random", seed=5, lengths=((2, 1), (1, 2))))


@pytest.mark.parametrize(("order", "policy"), WAYS)
@pytest.mark.parametrize("switches", [{}, *SWITCHES])
def test_every_way_of_running(order: str, policy: str, switches: dict[str, Any]) -> None:
    """Each order, policy and switch is run at least once, whatever Hypothesis draws."""
    config = FusedConfig(
        n_ranks=4, local_experts=2, hidden=96, top_k=4, tokens_max=5, cores=3, shared=True, **switches
    )
    case = FusedCase(config, order, policy, seed=11, lengths=((5, 0, 2, 3), (1, 4, 0, 0)), spare_ub=2048)
    follow(case)
    follow_in_one_launch(case)
