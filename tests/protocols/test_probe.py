"""Probes tell a link that is cut from a decode die that is full, and never one for the other."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.base.errors import ConfigError
from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED, VIOLATION
from xccl_emu.machine.state import ORDERS
from xccl_emu.protocols.serving.kv.probe import ProbeCase


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 5), st.integers(1, 5), st.booleans(), st.integers(1, 4), st.booleans(), st.data(),
    st.sampled_from(ORDERS),
)  # fmt: skip
def test_what_is_found_is_so(
    requests: int, slots: int, stands: bool, probes: int, patient: bool, data: st.DataObject, order: str
) -> None:
    """Link and decode as they are, for drawn sizes and orders, on some drawn schedules."""
    answers = data.draw(st.integers(-1, probes - 1)) if stands else -1
    case = ProbeCase(requests, slots, int(stands), probes, answers, int(patient))
    assert check(case, policy="random", schedules=3, order=order).violation is None


@pytest.mark.parametrize("order", ["sc", "fifo", "unordered"])
@pytest.mark.parametrize("what", ProbeCase.proofs())
def test_proved_under_other_orders(what: str, order: str) -> None:
    """Not under `relaxed` alone (`tests/cases/test_verified.py`)."""
    assert check(ProbeCase.proofs()[what], order=order, seconds=60).verdict == VERIFIED


@pytest.mark.parametrize("fault", ["stop:die0", "stop:die1", "cut:0-1", "cut:1-0", "stall:1-0"])
@pytest.mark.parametrize("sizes", [{}, {"stands": 0, "requests": 3}], ids=["full", "full at times"])
def test_no_fault_makes_it_tell_what_is_not_so(sizes: Mapping[str, int], fault: str) -> None:
    """Exhaustively: a prober that ends has not called a link cut that has answered, whatever stops or is cut."""
    case = ProbeCase(**sizes, probes=2, patient=1)
    assert check(case, fault=fault, policy="exhaustive", seconds=60).verdict == VERIFIED


@pytest.mark.parametrize("without", ["task", "done", "probe", "answer", "answers before time-out", "time-out"])
def test_what_it_needs_is_needed(without: str) -> None:
    """Without it a schedule shows what goes wrong, where the link is cut behind an answer."""
    assert check(ProbeCase(probes=2, answers=1, patient=1), without=[without]).verdict == VIOLATION


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"probes": 2, "answers": 2}, "answers=2: must be less than probes=2, or -1 for all"),
        ({"probes": 2, "answers": 1, "stands": 0}, "answers=1: must be -1 with stands=0, where all blocks arrive"),
    ],
)
def test_what_cannot_be_is_refused(sizes: Mapping[str, int], says: str) -> None:
    """More answers than probes, and blocks that are to arrive over a link that is cut."""
    with pytest.raises(ConfigError, match=says):
        ProbeCase(**sizes)
