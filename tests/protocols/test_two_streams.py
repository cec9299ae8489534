"""Two streams on a die: microbatches go through all layers by the kernels that ship, each when it was handed over."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.base.errors import ConfigError
from xccl_emu.check.check import check
from xccl_emu.check.verdict import DATA_RACE, DEADLOCK, VERIFIED
from xccl_emu.machine.state import ORDERS
from xccl_emu.protocols.serving.two_streams import PrefillStreams, TwoStreams

SMALL = dict(cores=1, tokens=1, rounds=2)
ONE = dict(cores=1, tokens=1, rounds=1)


@dataclass(frozen=True)
class OneSet(PrefillStreams):
    """Both microbatches go through the same buffers, as they may where each ends before the other begins."""

    sets: ClassVar[int] = 1


@settings(max_examples=8, deadline=None)
@given(
    st.builds(
        TwoStreams, ranks=st.integers(2, 3), rounds=st.integers(1, 3), cores=st.integers(1, 2),
        attention=st.integers(1, 2), tokens=st.integers(1, 3), experts=st.just(2), top_k=st.integers(1, 2),
        seed=st.integers(0, 99),
    ),
    st.sampled_from(ORDERS),
)  # fmt: skip
def test_rows_go_through_all_layers(case: TwoStreams, order: str) -> None:
    """Bit for bit, for drawn sizes and orders, on some drawn schedules."""
    assert check(case, policy="random", schedules=2, order=order).violation is None


@pytest.mark.parametrize("order", ["sc", "unordered"])
@pytest.mark.parametrize("case", [TwoStreams(**ONE), PrefillStreams(**ONE, path="sdma")], ids=lambda case: case.name)
def test_it_is_verified_under_other_orders(order: str, case: TwoStreams) -> None:
    """Not under `relaxed` alone (`tests/cases/test_verified.py`)."""
    assert check(case, order=order, seconds=60).verdict == VERIFIED


@pytest.mark.parametrize("policy", ["exhaustive", "portfolio"])
def test_two_microbatches_under_way_need_two_sets_of_buffers(policy: str) -> None:
    """A second dispatch before the first one's combine, in the same buffers: contributions of both go to one place, by
    the search and by schedules; with one microbatch at a time, as in decode, one set is enough."""
    case = OneSet(**SMALL, path="sdma")
    violation = check(case, policy=policy, schedules=1000, seconds=60).violation
    assert violation is not None
    assert violation.kind == DATA_RACE


@pytest.mark.parametrize("name", ["masked", "repeats", "at_once"])
def test_what_the_gate_chooses_is_refused(name: str) -> None:
    """Choices that would be given have no meaning where the gate chooses."""
    with pytest.raises(ConfigError, match=name):
        TwoStreams(**{name: 1})


@pytest.mark.slow
def test_cores_as_in_the_paper() -> None:
    """32 cores of a die for attention and 16 for experts, with 96 tokens on each of two dies, drawn schedules."""
    case = TwoStreams(attention=32, cores=16, tokens=96, rounds=1)
    assert check(case, policy="random", schedules=1).violation is None


@pytest.mark.parametrize("fault", ["stop:die0", "cut:0-1"])
def test_no_fault_makes_it_compute_wrong(fault: str) -> None:
    """Exhaustively: who waits for a die that has stopped waits; no row is wrong."""
    verdict = check(TwoStreams(**ONE), fault=fault, policy="exhaustive", seconds=60)
    assert verdict.violation is None or verdict.violation.kind == DEADLOCK
