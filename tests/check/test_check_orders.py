"""What the front door makes of a memory order stronger than `relaxed`, and of limits."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

import pytest

from xccl_emu.campaign.programs import Small, program
from xccl_emu.check.check import check
from xccl_emu.check.search.exhaustive import Search
from xccl_emu.check.search.setup import Setup
from xccl_emu.check.trial import Trial
from xccl_emu.check.verdict import VERIFIED, VIOLATION
from xccl_emu.protocols.sendrecv_case import SendRecvCase

STRONGER = ("sc", "fifo")
LARGE = SendRecvCase(slots=4, chunks=32, pieces=8)


@dataclass(frozen=True)
class Programs:
    """Small programs as a thing to check."""

    texts: tuple[str, ...]
    name: str = "programs"
    configuration: ClassVar[dict[str, int | str]] = {}

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        """Launched; nothing is expected in memory."""
        return Small(tuple(program(text) for text in self.texts)).trial(order, None)


@pytest.mark.parametrize("order", STRONGER)
def test_what_relaxed_verifies_is_verified_under_stronger_orders_by_the_same_search(order: str) -> None:
    """The verdict is of the order asked for, has the states of the search under relaxed, and says so."""
    scenario = SendRecvCase(slots=2, chunks=3, pieces=2)
    relaxed, stronger = check(scenario), check(scenario, order=order)
    assert relaxed.verdict == stronger.verdict == VERIFIED
    assert (stronger.order, stronger.states) == (order, relaxed.states)
    assert stronger.reason == f"verified under relaxed, which allows every run that {order} allows"


def test_what_only_a_stronger_order_makes_right_is_searched_under_it() -> None:
    """Data and flag on one die, no quiet: a race under relaxed, right by a search of their own under the others."""
    data_and_flag = Programs(("store 1.0 5; store 1.4 1", "ge 1.4 1; load 1.0"))
    assert check(data_and_flag).verdict == VIOLATION
    for order in STRONGER:
        verdict = check(data_and_flag, order=order)
        assert (verdict.verdict, verdict.order, verdict.reason) == (VERIFIED, order, "")


@pytest.mark.parametrize("order", STRONGER)
def test_what_is_wrong_under_every_order_has_a_witness_of_the_order_asked_for(order: str) -> None:
    """The schedule of a violation is one of the machine under that order, and replays there."""
    stuck = Programs(("store 1.4 1; store 1.4 0", "eq 1.4 1"))
    verdict = check(stuck, order=order)
    assert (verdict.verdict, verdict.order) == (VIOLATION, order)
    assert verdict.violation is not None
    assert "deadlock" in verdict.violation.kind


@pytest.mark.parametrize("breadth_first", [False, True])
def test_limits_are_looked_at_often(breadth_first: bool) -> None:
    """A search stops with the first states beyond its limit, or a fraction of a second behind its time."""
    most = 10_000
    looks: list[float] = []

    def search(max_states: int, seconds: float) -> tuple[str, int]:
        setup = Setup(LARGE.build("relaxed"), full=False)
        tell = lambda states, transitions, elapsed: looks.append(elapsed)  # noqa: E731
        found = Search(
            setup, max_states=max_states, seconds=seconds, progress=tell, breadth_first=breadth_first
        ).run()
        return found.reason, found.states

    reason, states = search(most, 60)
    assert reason == f"more than {most} states"
    assert most < states <= most + 64  # breadth first, all that one state leads to
    looks.clear()
    reason, _ = search(100_000_000, 0.5)
    assert reason == "more than 0.5 seconds"
    assert looks[-1] < 2
