"""Collecting the load of experts: no token is lost or counted twice, whatever serves, reports and adds up meanwhile."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED, VIOLATION
from xccl_emu.machine.state import ORDERS
from xccl_emu.protocol.case import reached_syncs
from xccl_emu.protocols.serving.collect import CollectCase


@settings(max_examples=30, deadline=None)
@given(
    st.builds(
        CollectCase, dies=st.integers(1, 4), cores=st.integers(1, 3), tokens=st.integers(1, 9), top_k=st.integers(1, 4),
        quads=st.integers(1, 4), intervals=st.integers(1, 5), seed=st.integers(0, 99),
    ),
    st.sampled_from(ORDERS),
)  # fmt: skip
def test_counts_add_up_to_the_tokens(case: CollectCase, order: str) -> None:
    """The shell has each expert's tokens in the end, tokens x top-k in all, for drawn sizes, orders and schedules."""
    assert case.load().sum() == case.dies * case.cores * case.tokens * case.top_k
    assert np.array_equal(case.load(), [(case.chosen() == expert).sum() for expert in range(4 * case.quads)])
    assert check(case, policy="random", schedules=2, order=order).violation is None


@pytest.mark.parametrize("order", ["sc", "fifo", "unordered"])
@pytest.mark.parametrize("sizes", [{"dies": 1, "intervals": 3}, {"dies": 1, "cores": 2, "tokens": 1, "top_k": 2}])
def test_it_is_verified_under_other_orders(sizes: Mapping[str, int], order: str) -> None:
    """Not under `relaxed` alone (`tests/cases/test_verified.py`)."""
    assert check(CollectCase(**sizes), order=order, seconds=60).verdict == VERIFIED


@pytest.mark.slow
def test_what_it_needs_is_needed() -> None:
    """Under `unordered` nothing can be left out; under `relaxed` sums of an interval do not overtake the next one's."""
    case = CollectCase(dies=1, intervals=3)
    for order, surplus in (("unordered", set()), ("relaxed", {"sums visible"})):
        found = {name: check(case, without=[name], order=order).verdict for name in reached_syncs(case, order)}
        assert {name for name, verdict in found.items() if verdict != VIOLATION} == surplus


@pytest.mark.parametrize("fault", ["stop:die0", "stop:die2", "cut:0-2", "cut:2-0"])
def test_no_fault_makes_it_count_wrong(fault: str) -> None:
    """Exhaustively: a die that has stopped, or a shell that has, holds up nobody who serves tokens."""
    assert check(CollectCase(tokens=1), fault=fault, policy="exhaustive", seconds=60).violation is None
