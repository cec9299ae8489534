"""Shrinking: a shorter schedule that replays to the same violation, and no action in it that could just be left out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from xccl_emu.base.errors import ReplayError
from xccl_emu.check.trial import Checkable, Trial
from xccl_emu.check.verdict import AREA_VIOLATION, DATA_RACE, DEADLOCK, WRONG_BITS, Violation
from xccl_emu.check.witness.device import attempts
from xccl_emu.check.witness.replayer import Replayer
from xccl_emu.check.witness.shrink_schedule import shrink, signature
from xccl_emu.machine.device import layout as ms
from xccl_emu.protocol.registry import make

from .witness_support import everything, judge, random_actions, relay, some_violation


def named(trial: Trial, actions: NDArray[np.int64]) -> NDArray[np.int64]:
    """The names of a schedule's actions."""
    raw = np.zeros((len(actions), attempts.NAME_WORDS), np.int64)
    raw[:, 0], raw[:, 1], raw[:, 2] = actions >> ms.CHOICE_BITS, attempts.RAW, actions & ms.CHOICE_ALL
    return taken_of(trial, raw)[1]


def taken_of(trial: Trial, names: NDArray[np.int64], finish: bool = False) -> tuple[list[int], NDArray[np.int64], int]:
    """What an attempt takes, under which names, and how it ends."""
    Replayer(trial.pod)
    codes, taken = np.zeros(4096, np.int64), np.zeros((4096, attempts.NAME_WORDS), np.int64)
    n, ended = attempts.attempt(trial.pod.memory, trial.pod.state, names, finish, codes, taken)
    return codes[:n].tolist(), taken[:n].copy(), ended


@pytest.mark.nojit
@pytest.mark.boundscheck
@settings(max_examples=20)
@given(st.sampled_from(("sc", "fifo", "relaxed")), st.integers(1, 2), st.integers(0, 1 << 20))
def test_actions_are_found_again_by_name(order: str, dies: int, seed: int) -> None:
    """A whole schedule by its names is the schedule itself."""
    checkable = everything(dies)
    actions = random_actions(checkable.build(order), seed)
    names = named(checkable.build(order), actions)
    codes, again, ended = taken_of(checkable.build(order), names)
    assert codes == actions.tolist()
    assert np.array_equal(again, names)
    assert ended == attempts.DONE


@pytest.mark.nojit
@pytest.mark.boundscheck
@settings(max_examples=20)
@given(st.sampled_from(("sc", "fifo", "relaxed")), st.integers(0, 1 << 20), st.data())
def test_whatever_is_dropped_the_rest_is_a_schedule(order: str, seed: int, data: st.DataObject) -> None:
    """With any actions dropped, what is taken replays; finished, it goes on until nothing is enabled."""
    checkable = everything()
    names = named(checkable.build(order), random_actions(checkable.build(order), seed))
    kept = data.draw(st.lists(st.integers(0, len(names) - 1), unique=True).map(sorted))
    codes, _, ended = taken_of(checkable.build(order), np.ascontiguousarray(names[kept]), finish=True)
    assert ended == attempts.DONE  # every run of it ends well
    trial = checkable.build(order)
    player = Replayer(trial.pod)
    assert all(player.take(code) for code in codes)
    assert player.end() == "done"


def still_fails(checkable: Checkable, order: str, without: list[str], shrunk: Violation) -> list[int]:
    """The actions that could be dropped alone, the rest of a late violation made up anew."""
    names = named(checkable.build(order, without), shrunk.actions)
    droppable = []
    for i in range(len(names)):
        fewer = np.ascontiguousarray(np.delete(names, i, axis=0))
        codes, _, _ = taken_of(checkable.build(order, without), fewer, finish=shrunk.kind in (DEADLOCK, WRONG_BITS))
        found = judge(checkable.build(order, without), np.array(codes, np.int64))
        if found is not None and signature(found) == signature(shrunk) and len(found.actions) < len(shrunk.actions):
            droppable.append(i)
    return droppable


@pytest.mark.parametrize(
    ("rounds", "order", "without"),
    [(2, "sc", []), (2, "relaxed", []), (3, "fifo", []), (1, "relaxed", ["data before flag"])],
)
def test_shrunk_schedules_fail_alike_and_nothing_can_be_dropped(rounds: int, order: str, without: list[str]) -> None:
    """The result replays to the same kind of violation, is shorter, and each single action in it matters."""
    checkable = relay(rounds)
    violation = some_violation(checkable, order, without)
    trial = checkable.build(order, without)
    before = trial.pod.snapshot()
    shrunk = shrink(trial, violation, judge)
    found = judge(checkable.build(order, without), shrunk.actions)
    assert found is not None
    assert signature(found) == signature(shrunk) == signature(violation)
    assert len(shrunk.actions) < len(violation.actions)
    assert still_fails(checkable, order, without, shrunk) == []
    assert np.array_equal(trial.pod.memory, before.memory)
    assert np.array_equal(trial.pod.state, before.state)
    trial.pod.check_runnable()


@pytest.mark.parametrize("sync", ["ack", "tail"])
def test_deadlocks_of_a_real_protocol_shrink(sync: str) -> None:
    """A deadlock stays one to the end: nothing is enabled behind its last action."""
    checkable = make("sendrecv", slots=2, chunks=3, granules=2)
    found = some_violation(checkable, "relaxed", [sync])
    shrunk = shrink(checkable.build("relaxed", [sync]), found, judge)
    again = judge(checkable.build("relaxed", [sync]), shrunk.actions)
    assert again.kind == found.kind
    assert len(shrunk.actions) < 0.9 * len(found.actions)


def test_shrinking_is_repeatable_and_keeps_who_found_it() -> None:
    """Twice the same violation gives twice the same schedule, and it is still told how it was found."""
    violation = some_violation(relay(2), "relaxed")
    found = Violation(violation.kind, violation.message, violation.actions, "random, seed 4", 17)
    one, other = (shrink(relay(2).build("relaxed"), found, judge) for _ in range(2))
    assert np.array_equal(one.actions, other.actions)
    assert (one.found_by, one.found_after) == ("random, seed 4", 17)


def test_no_time_no_shrinking() -> None:
    """Without time the violation comes back as it was; with progress asked for, it is told."""
    violation = some_violation(relay(2), "relaxed")
    told: list[tuple[int, int]] = []
    same = shrink(relay(2).build("relaxed"), violation, judge, seconds=0, progress=lambda *so_far: told.append(so_far))
    assert np.array_equal(same.actions, violation.actions)
    assert told == [(len(violation.actions), 1)]


def test_what_the_judge_does_not_see_is_left_alone() -> None:
    """A schedule that the judge finds nothing wrong with comes back as it was."""
    violation = some_violation(relay(2), "relaxed")
    assert shrink(relay(2).build("relaxed"), violation, lambda trial, actions: None) is violation


def test_a_schedule_that_the_judge_refuses_shows_nothing() -> None:
    """A candidate that does not replay to its end is passed by, and what is found stays a schedule that does."""
    violation, asked = some_violation(relay(2), "relaxed"), 0

    def refuses_every_other(trial: Trial, actions: NDArray[np.int64]) -> Violation | None:
        nonlocal asked
        asked += 1
        if asked % 2 == 0:
            raise ReplayError("action 0 is not enabled")
        return judge(trial, actions)

    shrunk = shrink(relay(2).build("relaxed"), violation, refuses_every_other)
    assert asked > 1
    assert judge(relay(2).build("relaxed"), shrunk.actions).kind == violation.kind


def test_a_violation_in_other_lines_is_another() -> None:
    """Races and the like are alike if the source lines are; what shows at the end of a run, by its kind alone."""
    actions = np.zeros(0, np.int64)
    one, other = (Violation(DATA_RACE, f"x (file.py:{n}, step 1) and y (file.py:9)", actions, "", 0) for n in (3, 4))
    assert signature(one) != signature(other)
    assert signature(one) == signature(Violation(DATA_RACE, "(file.py:9) before (file.py:3, sync 'a')", actions, "", 0))
    ends = [Violation(kind, f"(file.py:{n})", actions, "", 0) for kind, n in ((DEADLOCK, 1), (DEADLOCK, 2))]
    assert signature(ends[0]) == signature(ends[1])
    assert signature(ends[0]) != signature(Violation(AREA_VIOLATION, "(file.py:1)", actions, "", 0))
