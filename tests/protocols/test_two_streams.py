"""Two streams on a die: microbatches go through all layers, each buffer only when it has been read."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.base.errors import ConfigError
from xccl_emu.check.check import check
from xccl_emu.check.verdict import DEADLOCK, VERIFIED, VIOLATION
from xccl_emu.machine.state import ORDERS
from xccl_emu.protocol.case import reached_syncs
from xccl_emu.protocols.serving.two_streams import TwoStreams


@settings(max_examples=25, deadline=None)
@given(
    st.builds(
        TwoStreams, ranks=st.integers(1, 3), layers=st.integers(1, 3), microbatches=st.integers(1, 5),
        attention=st.integers(1, 3), moe=st.integers(1, 3), tokens=st.integers(3, 5), granules=st.integers(1, 2),
        seed=st.integers(0, 99),
    ),
    st.sampled_from(ORDERS),
)  # fmt: skip
def test_rows_go_through_all_layers(case: TwoStreams, order: str) -> None:
    """Bit for bit, for drawn sizes and orders, on some drawn schedules."""
    assert check(case, policy="random", schedules=2, order=order).violation is None


@pytest.mark.parametrize("order", ["sc", "unordered"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_it_is_verified_under_other_orders(order: str, ranks: int) -> None:
    """Not under `relaxed` alone (`tests/cases/test_verified.py`)."""
    assert check(TwoStreams(ranks=ranks, layers=3 - ranks), order=order, seconds=60).verdict == VERIFIED


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "surplus"),
    [(TwoStreams(tokens=2, microbatches=3), set()), (TwoStreams(tokens=2), {"read in", "taken in"})],
)
def test_what_it_needs_is_needed(case: TwoStreams, surplus: set[str]) -> None:
    """With three microbatches everything is; with two, that a microbatch is back says that its buffer was read."""
    found = {name: check(case, without=[name], seconds=60).verdict for name in reached_syncs(case, "relaxed")}
    assert {name for name, verdict in found.items() if verdict != VIOLATION} == surplus


def test_six_microbatches_are_refused() -> None:
    """With two buffers each way both streams would wait for each other; the range of the size says so."""
    with pytest.raises(ConfigError, match="microbatches=6"):
        TwoStreams(microbatches=6)
    case = TwoStreams(microbatches=5)
    object.__setattr__(case, "microbatches", 6)  # past the range
    violation = check(case).violation
    assert violation is not None
    assert violation.kind == DEADLOCK


@pytest.mark.slow
def test_cores_as_in_the_paper() -> None:
    """32 cores of a die for attention and 16 for experts, with 96 tokens on each of two dies, drawn schedules."""
    case = TwoStreams(ranks=2, attention=32, moe=16, tokens=96)
    assert check(case, policy="random", schedules=2).violation is None


@pytest.mark.parametrize("fault", ["stop:die0", "stop:die1", "cut:0-1"])
def test_no_fault_makes_it_compute_wrong(fault: str) -> None:
    """Exhaustively: who waits for a die that has stopped waits; no row is wrong."""
    verdict = check(TwoStreams(ranks=2, layers=1), fault=fault, policy="exhaustive", seconds=60)
    assert verdict.violation is None or verdict.violation.kind == DEADLOCK
