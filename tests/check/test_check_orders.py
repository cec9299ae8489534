"""What the front door makes of a memory order stronger than `relaxed`, and of limits."""

import pytest

from xccl_emu.check.check import check
from xccl_emu.check.sampling.sample import replay
from xccl_emu.check.search import exhaustive
from xccl_emu.check.search.exhaustive import Search
from xccl_emu.check.search.setup import Setup
from xccl_emu.check.verdict import DATA_RACE, DEADLOCK, UNFINISHED, VERIFIED
from xccl_emu.protocol.registry import make
from xccl_emu.protocols.sendrecv.case import SendRecvCase

from .mutants import Of, Planted
from .mutants_ring import ACK, PUT_ACK, READ, RING

LARGE = SendRecvCase(slots=4, chunks=32, granules=8)


@pytest.mark.parametrize("order", ["sc", "fifo"])
def test_what_relaxed_verifies_is_verified_under_stronger_orders_by_the_same_search(order: str) -> None:
    """The verdict is of the order asked for, has the states of the search under relaxed, and says so."""
    scenario = SendRecvCase(slots=2, chunks=3, granules=2)
    relaxed, stronger = check(scenario), check(scenario, order=order)
    assert relaxed.verdict == stronger.verdict == VERIFIED
    assert (stronger.order, stronger.states) == (order, relaxed.states)
    assert stronger.reason == f"verified under relaxed, which allows every run that {order} allows"


@pytest.mark.slow
def test_acks_that_are_written_and_not_added_want_order() -> None:
    """Were the ack of each chunk written whole, an older one might land on the newer: `unordered` alone refutes it."""
    written = Planted(RING, (Of("sendrecv")(READ + ACK, READ + PUT_ACK),))
    assert check(written).verdict == VERIFIED
    found = check(written, order="unordered").violation
    assert found is not None
    assert found.kind == DEADLOCK


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
    assert looks[-1:] < [2.0]  # none if learning took as long


def test_what_a_search_learns_has_its_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Walks that pause behind each step learn the same; where the time is over before, the search is unfinished."""
    case = SendRecvCase(slots=2, chunks=3, granules=1)
    told = []
    for steps in (1_000, 1):
        monkeypatch.setattr(exhaustive, "_WALK_PIECE", steps)
        found = check(case)
        told.append((found.verdict, found.states, found.transitions))
    assert told[0] == told[1]
    assert told[0][0] == VERIFIED
    late = check(case, seconds=1e-9)
    assert (late.verdict, late.reason, late.transitions) == (UNFINISHED, "more than 1e-09 seconds", 0)


def test_a_witness_may_have_more_under_way_than_the_search_compares() -> None:
    """Writes that the search took to be visible are in flight while its path is written down, and no limit is met."""
    case = make("a2e-pull", attention=1, experts=2, cores=2, tokens=5, top_k=2, rounds=2)
    search = Search(Setup(case.build("relaxed", ["sum left"]), True), max_states=1 << 20, seconds=60, progress=None)
    found = search.run()
    assert (found.kind, found.reason) == (DATA_RACE, "")
    assert replay(case.build("relaxed", ["sum left"]), found.actions, found.loop) is not None
