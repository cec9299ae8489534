"""A search that takes long looks at a few drawn schedules, once; what they show is the verdict at once."""

from collections.abc import Callable

import pytest

from xccl_emu.check import verdict as kinds
from xccl_emu.check.check import check
from xccl_emu.check.sampling.sample import first_drawn, replay, sample
from xccl_emu.check.search import exhaustive
from xccl_emu.check.verdict import SEARCH
from xccl_emu.protocol.registry import make

from .traps import NAMED

RIGHT = make("sendrecv", slots=1, chunks=2, granules=1)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Has searches look beside after so many states."""
    return lambda states: monkeypatch.setattr(exhaustive, "BESIDE_STATES", states)


@pytest.mark.parametrize("more", [{}, {"reduction": "less"}, {"reduction": "merged"}, {"breadth_first": True}])
@pytest.mark.parametrize("order", ["fifo", "relaxed"])
def test_what_a_drawn_schedule_shows_ends_the_search(order: str, more: dict, soon: Callable[[int], None]) -> None:
    """The violation says who found it and replays; the states are those until the look, in each kind of search."""
    trap = NAMED["a pulse is missed"]
    soon(1)
    found = check(trap, order=order, **more)
    assert (found.verdict, found.violation.kind, found.order) == (kinds.VIOLATION, kinds.DEADLOCK, order)
    assert found.violation.found_by != SEARCH
    assert found.states == 2
    assert replay(trap.build(order), found.violation.actions).kind == kinds.DEADLOCK


@pytest.mark.parametrize("breadth_first", [False, True])
def test_a_case_that_is_right_has_the_states_that_it_has(breadth_first: bool, soon: Callable[[int], None]) -> None:
    """The look changes nothing where it shows nothing, be it early, late or never."""
    told = set()
    for states in (1, 7, 1_000_000):
        soon(states)
        said = check(RIGHT, breadth_first=breadth_first)
        told.add((said.verdict, said.states, said.transitions, said.reason))
    assert len(told) == 1
    assert told.pop()[0] == kinds.VERIFIED


def test_a_limit_below_the_look_holds(soon: Callable[[int], None]) -> None:
    """A search of fewer states than that is unfinished as before."""
    for most in (2, 3):
        soon(2)
        assert check(RIGHT, max_states=most).reason == f"more than {most} states"


def test_a_run_that_is_long_is_no_answer_of_a_look() -> None:
    """A drawn run is taken for endless by its length, which is a guess: the search has the word."""
    trap = NAMED["a loop of loads need not end"]
    assert sample(trap.build("relaxed"), schedules=50).violation.kind == kinds.LIVELOCK
    assert first_drawn(trap.build("relaxed")) is None
