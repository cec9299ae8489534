"""Multi-token prediction: metadata is prepared before the length is known, and no graph takes a stale one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED, VIOLATION
from xccl_emu.machine.state import ORDERS
from xccl_emu.protocol.case import reached_syncs
from xccl_emu.protocols.serving.mtp import Mtp


@settings(max_examples=25, deadline=None)
@given(
    st.builds(Mtp, drafts=st.integers(1, 5), steps=st.integers(1, 9), seed=st.integers(0, 99)), st.sampled_from(ORDERS)
)
def test_tokens_are_those_of_one_step_after_the_other(case: Mtp, order: str) -> None:
    """Bit for bit, for drawn sizes and orders, on some drawn schedules."""
    assert check(case, policy="random", schedules=2, order=order).violation is None


@pytest.mark.parametrize("order", ["sc", "fifo", "unordered"])
def test_it_is_verified_under_other_orders(order: str) -> None:
    """Not under `relaxed` alone (`tests/cases/test_verified.py`)."""
    assert check(Mtp(drafts=2, steps=4, seed=1), order=order, seconds=60).verdict == VERIFIED


@pytest.mark.slow
def test_what_it_needs_is_needed() -> None:
    """Without any synchronization a schedule shows what goes wrong."""
    case = Mtp(drafts=2, steps=4, seed=1)
    found = {name: check(case, without=[name], seconds=60).verdict for name in reached_syncs(case, "relaxed")}
    assert {name for name, verdict in found.items() if verdict != VIOLATION} == set()
