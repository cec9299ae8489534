"""Reconfiguration of experts: tokens are computed by the experts that they are meant for, while a slot changes."""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED, VIOLATION
from xccl_emu.machine.state import ORDERS
from xccl_emu.protocol.case import reached_syncs
from xccl_emu.protocols.serving.reconfigure import ReconfigureCase


@settings(max_examples=30, deadline=None)
@given(
    st.builds(
        ReconfigureCase, sources=st.integers(1, 4), rounds=st.integers(1, 5), tokens=st.integers(1, 4),
        experts=st.integers(2, 4), swaps=st.integers(1, 4), granules=st.integers(1, 3), seed=st.integers(0, 99),
    ),
    st.sampled_from(ORDERS),
)  # fmt: skip
def test_tokens_are_computed_by_the_right_weights(case: ReconfigureCase, order: str) -> None:
    """Bit for bit, and the slot has the last weights, for drawn sizes and orders, on some drawn schedules."""
    assert check(case, policy="random", schedules=2, order=order).violation is None


@pytest.mark.parametrize("order", ["sc", "unordered"])
@pytest.mark.parametrize("sizes", [{"sources": 1}, {"sources": 1, "swaps": 2, "rounds": 3}])
def test_it_is_verified_under_other_orders(sizes: Mapping[str, int], order: str) -> None:
    """Not under `relaxed` alone (`tests/cases/test_verified.py`)."""
    assert check(ReconfigureCase(**sizes), order=order, seconds=60).verdict == VERIFIED


@pytest.mark.slow
def test_what_it_needs_is_needed() -> None:
    """Without any other synchronization a schedule shows what goes wrong.

    The number of a slot's map is a net for bugs, and catches nothing where there is none; if no map is ever seen, the
    loader waits until all sources have ended.
    """
    case = ReconfigureCase(sources=1, swaps=2, rounds=3)
    found = {name: check(case, without=[name], seconds=60).verdict for name in reached_syncs(case, "relaxed")}
    surplus = {name for name, verdict in found.items() if verdict != VIOLATION}
    assert surplus == {"slot version", "slot version in", "version"}


@pytest.mark.parametrize("fault", ["stop:die0", "stop:die2", "cut:0-2", "cut:2-0"])
def test_no_fault_makes_it_take_wrong_weights(fault: str) -> None:
    """Exhaustively: a source that has stopped holds up the loader for ever, and no other source."""
    assert check(ReconfigureCase(tokens=1), fault=fault, policy="exhaustive", seconds=60).violation is None


@dataclass(frozen=True)
class AsPrinted(ReconfigureCase):
    """Without the grace period."""

    grace = 0


def test_as_printed_it_is_refuted() -> None:
    """The paper's four phases alone: the slot is loaded while a token for it is computed."""
    verdict = check(AsPrinted(), seconds=60)
    assert verdict.violation is not None
    assert "die2.slots" in verdict.violation.message
