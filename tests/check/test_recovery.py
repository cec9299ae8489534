"""Recovery: whenever a die stops every core of the others returns; the search of that, held against brute force."""

from dataclasses import replace

import numpy as np
import pytest

from xccl_emu.base.errors import ConfigError
from xccl_emu.check import verdict
from xccl_emu.check.check import check
from xccl_emu.check.faults import parse
from xccl_emu.check.search import recovery
from xccl_emu.check.search.every_fault import FaultySearch
from xccl_emu.check.search.exhaustive import Search
from xccl_emu.check.search.setup import Setup
from xccl_emu.check.trial import Trial
from xccl_emu.guards.campaign import generate, judge
from xccl_emu.lang import CMP_EQ, choose, kernel, load, poll_any, poll_eq, poll_ge, put, quiet, store
from xccl_emu.machine import Pod, small_pod
from xccl_emu.protocol import Bench, protocol

from .small import say, wait, waiting
from .witness_support import shows_again

ORDERS = ("sc", "fifo", "relaxed", "unordered")


@kernel
def tell_both(first, second):
    """Two flags, on two dies; nothing but the program says which is first."""
    yield put(first, 1)
    yield put(second, 1)
    yield quiet()


@kernel
def pass_on(flag, on):
    """Wait for a flag, and pass it on."""
    yield poll_ge(flag, 1)
    yield store(on, 1)
    yield quiet()


@kernel
def suspect(flag, suspected):
    """Ask whether the time is up, until it is, and then say so in place of who may have stopped."""
    late = 0
    while late == 0:
        late = yield choose(2, sync="time-out")
    yield put(flag, 1)
    yield put(suspected, 1)


@kernel
def hear(before, flag, other):
    """Go on at another flag; but who has heard of the first two that are set waits for what was set before it."""
    which = yield poll_any((flag, CMP_EQ, 1), (other, CMP_EQ, 1), sync="either")
    if which == 0:
        yield poll_eq(before, 1)


def pod_of(bench: Bench, dies: int, *recovers: int) -> Pod:
    """A pod with a word of metadata that anybody may use on each die."""
    pod = bench.pod(small_pod(dies, app_bytes=64, meta_bytes=64, managed_bytes=0))
    bench.recovers(*recovers)
    return pod


@protocol
def half_told(bench: Bench, relay: int = 0) -> None:
    """Die 0 tells dies 1 and 2; with a relay die 1 passes it on to die 2 instead, which then hears of it twice."""
    pod = pod_of(bench, 3, 0)
    meta = [pod.meta(die) for die in range(3)]
    all_ = [pod.grant_meta("rw", die) for die in range(3)]
    pod.launch(tell_both, 0, [0], {"first": meta[1], "second": meta[2]}, all_)
    pod.launch(pass_on if relay else wait, 1, [0], {"flag": meta[1]} | ({"on": meta[2]} if relay else {}), all_)
    pod.launch(wait, 2, [0], {"flag": meta[2]}, all_)


@protocol
def half_heard(bench: Bench) -> None:
    """Die 0 sets two flags on die 1, which waits for the first if it has seen the second; die 2 lets it go on."""
    pod = bench.pod(small_pod(3, app_bytes=64, meta_bytes=128, managed_bytes=0))
    bench.recovers(0)
    first, second, other = (pod.meta(1, 32 * k) for k in range(3))
    there = [pod.grant_meta("rw", 1)]
    pod.launch(tell_both, 0, [0], {"first": first, "second": second}, there)
    pod.launch(hear, 1, [0], {"before": first, "flag": second, "other": other}, there)
    pod.launch(say, 2, [0], {"flag": other}, there)


@protocol
def suspected(bench: Bench, spoken: int = 1) -> None:
    """Die 1 waits for die 0, or for die 2 to suspect it, which it does some day; or only says that it does."""
    pod = pod_of(bench, 3, 0)
    meta = [pod.meta(die) for die in range(3)]
    all_ = [pod.grant_meta("rw", die) for die in range(3)]
    pod.launch(tell_both, 0, [0], {"first": meta[1], "second": meta[0]}, all_)
    pod.launch(wait, 1, [0], {"flag": meta[1]}, all_)
    pod.launch(suspect, 2, [0], {"flag": meta[1] if spoken else meta[0], "suspected": meta[0]}, all_)


def without_die(trial: Trial, die: int, most: bool = True) -> recovery.WithoutDie:
    """A search that has been run."""
    search = recovery.WithoutDie(Setup(trial, True, most), die, max_states=20_000, seconds=5, progress=None)
    search.run()
    return search


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("how", ["wait", "look"])
def test_who_waits_for_a_die_that_stops_does_not_recover(how: str, order: str) -> None:
    """Who polls is blocked, who looks for ever goes round; brute force agrees, and the schedule replays."""
    case = waiting(how, 0)
    found = check(case, order=order, fault="stop:die0", policy="exhaustive")
    assert found.violation.kind == (verdict.DEADLOCK if how == "wait" else verdict.LIVELOCK)
    assert found.violation.found_by == verdict.SEARCH
    assert shows_again(case.build(order), found.violation, found.violation.actions)
    brute = FaultySearch(case.build(order), parse("stop:die0"), max_states=9_000, seconds=20).run()
    assert brute.actions is not None
    assert found.recovery is None


@pytest.mark.parametrize("order", ORDERS)
def test_a_die_that_stops_between_two_flags(order: str) -> None:
    """It has told the one and not the other: a search that takes flags for visible early would not see it."""
    assert check(half_told()).verdict == verdict.VERIFIED
    found = check(half_told(), order=order, fault="stop:die0", policy="exhaustive")
    assert found.violation.kind == verdict.DEADLOCK


@pytest.mark.parametrize("order", ORDERS)
def test_what_others_do_after_a_stop_is_searched_under_the_order_asked_for(order: str) -> None:
    """What is right without the stop is handed from `relaxed` to a stronger order; what comes after it is not."""
    kept = order in ("sc", "fifo")
    assert check(half_heard(), order=order).reason.startswith("verified under relaxed" if kept else "")
    found = check(half_heard(), order=order, fault="stop:die0", policy="exhaustive")
    assert found.verdict == (verdict.VERIFIED if kept else verdict.VIOLATION), found.reason
    brute = FaultySearch(half_heard().build(order), parse("stop:die0"), max_states=50_000, seconds=60).run()
    assert (brute.actions is None, brute.reason) == (kept, "")


def test_the_facts_of_a_die_that_stops_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted reduction: its flags visible at once, both or none.  Brute force contradicts it."""
    case = half_told()
    monkeypatch.setattr(Setup, "explore_writes", lambda self, cores: setattr(self, "explored", cores))
    monkeypatch.setattr("xccl_emu.check.search.device.granules.explore_written", lambda *_: None)
    assert check(case, fault="stop:die0", policy="exhaustive").verdict == verdict.VERIFIED
    brute = FaultySearch(case.build("relaxed"), parse("stop:die0"), max_states=50_000, seconds=60).run()
    assert brute.actions is not None


def test_one_that_is_suspected_some_day_recovers() -> None:
    """Asking again and again is no livelock: the environment gives each answer some day.  But no number bounds it."""
    found = check(suspected(), fault="stop:die0", policy="exhaustive")
    assert (found.verdict, found.recovery) == (verdict.VERIFIED, verdict.Recovery(None, verdict.SHARED))
    assert "again and again" in found.recovery.words()
    assert check(suspected(0), fault="stop:die0", policy="exhaustive").violation.kind == verdict.DEADLOCK


def test_other_dies_may_be_waited_for() -> None:
    """Only those that are named need not be there for the others to return."""
    found = check(suspected(), fault="stop:die2", policy="exhaustive")
    assert (found.verdict, found.recovery) == (verdict.VERIFIED, None)
    assert "the beginning of a schedule" in found.reason


def test_drawn_schedules_may_not_block_either() -> None:
    """Sampling has the same rule for the same dies."""
    assert check(half_told(), fault="stop:die0", schedules=60).violation.kind == verdict.DEADLOCK
    assert check(half_told(), fault="stop:die1", schedules=60).ended["blocked"] == 0
    assert check(suspected(), fault="stop:die0", schedules=60).ok


def test_dies_that_are_not_there() -> None:
    """The error names the die."""

    @protocol
    def nowhere(bench: Bench) -> None:
        pod_of(bench, 2, 2)

    with pytest.raises(ConfigError, match=r"dies=2: out of range 0\.\.1"):
        nowhere().build("relaxed")


@kernel
def look_once(word):
    """Look at a word, and return."""
    yield load(word, sync="look")


@kernel
def count_on(word, n):
    """Store on and on."""
    for k in range(n):
        yield store(word, k)


@protocol
def alone(bench: Bench, n: int = 9_000) -> None:
    """Die 0 returns, and die 1, which may stop, goes on for long."""
    pod = pod_of(bench, 2, 1)
    grants = [pod.grant_meta("rw", die) for die in range(2)]
    pod.launch(look_once, 0, [0], {"word": pod.meta(0)}, grants)
    pod.launch(count_on, 1, [0], {"word": pod.meta(0), "n": n}, grants)


def test_the_way_back_has_room_for_its_ends() -> None:
    """In most of eighteen thousand states, on a few paths, the others have returned: each such end is kept."""
    search = without_die(alone().build("sc"), 1)
    assert (search.found.violation, search.found.reason, search.found.states, search.steps) == (0, "", 18_002, 1)


def test_the_longest_way() -> None:
    """By numbers of states: to an end, not beyond it; a cycle has none."""
    edges = np.array([[0, 1, 0, 0], [1, 2, 0, 0], [0, 2, 0, 0], [2, -1, -2, -1], [2, 3, 0, 0], [3, -1, -1, -1]])
    assert recovery.longest(4, edges) == 2
    assert recovery.longest(4, edges, np.array([1, 2])) == 1
    assert recovery.longest(4, np.concatenate([edges, [[1, 0, 0, 0]]])) == recovery.FOR_EVER


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_brute_force_agrees_on_random_programs(part: int) -> None:
    """Programs of campaigns: whether all others return when die 0, or 1, stops at any moment, by both."""
    compared = blocked = 0
    for number in range(60 * part, 60 * part + 60):
        case = generate.draw(15, number)
        case = replace(case, small=replace(case.small, together=False, scalar_cache=0))
        outcome = judge.outcome_of(case, judge.Scene(case.small, "sc", None, judge.BUDGET))
        for order in ORDERS:
            trial = replace(case.small.trial(order, outcome), may_block=False)
            search = Search(Setup(trial, True), max_states=5_000, seconds=2, progress=None)
            if judge.verdict_of(search.run()) != verdict.VERIFIED:
                continue
            for die in range(case.small.n_dies):
                made = [replace(case.small.trial(order, outcome), may_block=False) for _ in range(3)]
                brute = FaultySearch(made[0], parse(f"stop:die{die}"), max_states=3_000, seconds=2).run()
                if brute.reason:
                    continue
                for most, one in zip((True, False), made[1:], strict=True):
                    found = without_die(one, die, most)
                    assert not found.found.reason
                    assert bool(found.found.violation) == (brute.actions is not None), (number, order, die, most)
                compared, blocked = compared + 1, blocked + (brute.actions is not None)
    assert compared > 30
    assert 0 < blocked < compared
