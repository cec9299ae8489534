"""A ring with tickets: every message arrives once and whole, whoever was faster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xccl_emu.check.check import check
from xccl_emu.check.verdict import VIOLATION
from xccl_emu.protocols.mpsc import MpscRing


@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 4), st.integers(1, 3), st.integers(0, 99))
def test_messages_of_any_number_arrive(producers: int, messages: int, slots: int, granules: int, seed: int) -> None:
    """Bit for bit, for drawn sizes, on some drawn schedules."""
    case = MpscRing(producers=producers, messages=messages, slots=slots, granules=granules, seed=seed)
    assert check(case, policy="random", schedules=3).violation is None


@pytest.mark.parametrize("without", ["ticket", "slot free", "message before tail", "tail in", "buffer free"])
def test_what_it_needs_is_needed(without: str) -> None:
    """Without it a schedule shows what goes wrong."""
    assert check(MpscRing(), without=[without]).verdict == VIOLATION
