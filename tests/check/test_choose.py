"""Answers of the environment (`choose`): each is searched, drawn, recorded, shrunk and replayed as an action is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.machine.support import small
from xccl_emu.base.errors import AccessError
from xccl_emu.check.check import check
from xccl_emu.check.sampling.sample import replay
from xccl_emu.check.verdict import BAD_INSTRUCTION, DEADLOCK, LIVELOCK, VERIFIED, VIOLATION, WRONG_BITS, Violation
from xccl_emu.check.witness.shrink_schedule import shrink
from xccl_emu.check.witness.tracer import Stepper
from xccl_emu.guards.campaign import judge
from xccl_emu.guards.campaign.programs import ORDERS, Small
from xccl_emu.lang import Kernel, choose, kernel, load, quiet, store
from xccl_emu.lang.requests import ANSWERS_MOST, OP_CHOOSE
from xccl_emu.machine import Pod, small_pod
from xccl_emu.machine.device import layout as ms
from xccl_emu.testing import Bench, protocol, witness_text

from .small import wait
from .witness_support import judge as judged

SPEC = small_pod(2, app_bytes=64, meta_bytes=64, managed_bytes=0)
SAMPLED = ("random", "weights", "pct", "eager", "late", "lifo", "skew")


@kernel
def ask_thrice(n):
    """Three answers, as the digits of a number."""
    one = yield choose(n)
    two = yield choose(n, 1)
    three = yield choose(n, of=2, sync="third")
    return one * 10000 + two * 100 + three


@kernel
def say_unless(flag, n, wrong):
    """Set a flag, but for one of the answers."""
    answer = yield choose(n, sync="silent")
    if answer != wrong:
        yield store(flag, 1)
        yield quiet()


@kernel
def wait_or_give_up(flag, out):
    """Wait for it until the time is up, and say which it was."""
    seen = 0
    while seen == 0:
        seen = yield load(flag, sync="flag")
        if seen == 0:
            gone = yield choose(2, sync="time-out")
            if gone == 1:
                seen = 2
    yield store(out, seen)
    yield quiet()


@kernel
def ask_for_ever(n):
    """No answer ends it."""
    answer = 0
    while answer < n:
        answer = yield choose(n)


@protocol
def silent(bench: Bench, n: int = 3, wrong: int = 2) -> None:
    """Die 0 says something, if it is not told otherwise; die 1 waits."""
    _launch(bench, say_unless, {"n": n, "wrong": wrong}, wait, {})


@protocol
def impatient(bench: Bench) -> None:
    """Die 1 may give up, and is expected not to."""
    pod = _launch(bench, say_unless, {"n": 1, "wrong": 1}, wait_or_give_up, {"out": 32})
    bench.expect(pod.meta(1, 32), np.array([1]), "what it has seen", owners="die1")


@protocol
def endless(bench: Bench) -> None:
    """A kernel that asks again and again."""
    pod = bench.pod(SPEC)
    pod.launch(ask_for_ever, 0, [0], {"n": 2}, [])


def _launch(bench: Bench, one: Kernel, first: dict[str, int], other: Kernel, second: dict[str, int]) -> Pod:
    pod = bench.pod(SPEC)
    addresses = {name: pod.meta(1, offset) for name, offset in second.items()}
    for die, each, more in ((0, one, first), (1, other, addresses)):
        pod.launch(each, die, [0], {"flag": pod.meta(1), **more}, [pod.grant_meta("rw", 1)])
    return pod


def _answers(actions: np.ndarray, pod: Pod) -> list[int]:
    """The answers among the actions of a run, which is taken once more."""
    trace = Stepper(pod).run(actions.tolist())
    return [int(step.value.removeprefix("answer ")) for step in trace.steps if step.operation == "choose"]


@pytest.mark.nojit
def test_a_random_run_draws_answers_and_its_schedule_has_them() -> None:
    """Every answer is drawn by some seed; round-robin answers 0; a replay gives the same answers again."""
    seen = set()
    for seed in range(24):
        pod = Pod(SPEC, policy="random", seed=seed, record=True)
        launch = pod.launch(ask_thrice, 0, [0], {"n": 3}, [])
        pod.run()
        results, schedule = launch.results[:], pod.schedule
        seen |= {results[0] // 10000, results[0] % 100}
        again = Pod(SPEC)
        launch = again.launch(ask_thrice, 0, [0], {"n": 3}, [])
        again.replay(schedule)
        assert launch.results == results
    assert seen == {0, 1, 2}
    pod = Pod(SPEC)
    launch = pod.launch(ask_thrice, 0, [0], {"n": 3}, [])
    pod.run()
    assert launch.results == [0]


def test_a_name_that_is_switched_off_answers_0() -> None:
    """The question whose name is switched off has one answer, the others have many."""
    for seed in range(6):
        pod = Pod(SPEC, policy="random", seed=seed, without=["third"])
        launch = pod.launch(ask_thrice, 0, [0], {"n": ANSWERS_MOST}, [])
        pod.run()
        assert launch.results[0] % 100 == 0


@pytest.mark.nojit
@pytest.mark.parametrize("n", [0, -1, ANSWERS_MOST + 1, 1 << 40])
@pytest.mark.parametrize("policy", ["round-robin", "random"])
def test_how_many_answers_there_may_be(n: int, policy: str) -> None:
    """A number of answers out of range ends the run with an error that says where, what, and what would be right."""
    pod = Pod(SPEC, policy=policy)
    pod.launch(ask_thrice, 0, [0], {"n": n}, [])
    with pytest.raises(AccessError, match=rf"test_choose.py:\d+.*choose: n={n}: must be 1 to {ANSWERS_MOST} answers"):
        pod.run()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("options", [{}, {"reduction": "less"}, {"reduction": "merged"}, {"breadth_first": True}])
def test_every_answer_is_searched(order: str, options: dict) -> None:
    """One answer of three leads to a deadlock: found by each search, in each order; without it there is none."""
    for wrong in range(3):
        found = check(silent(wrong=wrong), order=order, **options)
        assert (found.verdict, found.violation.kind) == (VIOLATION, DEADLOCK)
        assert _answers(found.violation.actions, silent(wrong=wrong).build(order).pod) == [wrong]
    right = check(silent(wrong=3), order=order, certify=1.0, **options)
    assert (right.verdict, right.certificate.disagreement) == (VERIFIED, "")
    assert check(silent(wrong=2), order=order, without="silent", **options).verdict == VERIFIED


@pytest.mark.parametrize("policy", SAMPLED)
def test_every_policy_draws_answers(policy: str) -> None:
    """Each sampling policy meets the answer that leads to a deadlock; by the same seed the same schedule."""
    found, again = (check(silent(), policy=policy, schedules=60, seed=5) for _ in range(2))
    assert found.violation.kind == DEADLOCK
    assert found.violation.actions.tolist() == again.violation.actions.tolist()


@pytest.mark.parametrize("order", ORDERS)
def test_who_gives_up_may_do_so_early(order: str) -> None:
    """The flag is on its way, but the time may be up: only by answer 1, which the witness shows."""
    found = check(impatient(), order=order)
    assert found.violation.kind == WRONG_BITS
    assert 1 in _answers(found.violation.actions, impatient().build(order).pod)
    assert "choose 2" in (text := witness_text(impatient(), found))
    assert "answer 1" in text
    assert check(impatient(), order=order, without="time-out").verdict == VERIFIED


@pytest.mark.parametrize("order", ORDERS)
def test_shrinking_keeps_the_answers_that_matter_and_makes_the_others_0(order: str) -> None:
    """A drawn run that gives up after some questions has one left, beside that of die 0, which has one answer."""
    found = check(impatient(), order=order, policy="late", schedules=200).violation
    shrunk = shrink(impatient().build(order), found, judged)
    assert shrunk.kind == WRONG_BITS
    assert sorted(_answers(shrunk.actions, impatient().build(order).pod)) == [0, 1]
    trial = impatient().build(order)
    assert replay(trial, shrunk.actions).kind == WRONG_BITS


def test_shrinking_prefers_small_answers() -> None:
    """Where any answer but 0 does harm, 1 is shown."""
    small_one = small("choose 0 0 1; skip_if 0 0 1; ge 0.0 9")
    found = Violation(DEADLOCK, "", np.array([2]), "", 0)  # core 0's scalar unit is answered 2, and waits for ever
    shrunk = shrink(small_one.trial("sc", None), found, judged)
    assert _answers(shrunk.actions, small_one.pod("sc")) == [1]


def test_asking_for_ever_is_a_livelock_and_a_loop_with_a_way_out_is_none() -> None:
    """If no answer ends a loop no run ends; one that some answer ends is right, though that answer may be late."""
    assert check(endless()).violation.kind == LIVELOCK
    assert check(endless(), breadth_first=True).violation.kind == LIVELOCK


def test_a_bad_number_of_answers_is_a_violation() -> None:
    """Search and schedules that are drawn tell of it as of any bad instruction."""
    for policy in ("exhaustive", "random"):
        found = check(silent(n=0), policy=policy, schedules=4)
        assert found.violation.kind == BAD_INSTRUCTION
        assert f"n=0: must be 1 to {ANSWERS_MOST} answers" in found.violation.message


ASKING = st.sampled_from([
    "choose; skip_unless 0 1 1; store 1.0 1", "choose 0 0 1; skip_unless 0 2 1; ge 1.4 1", "load_named 1.4; choose",
    "store 1.4 1", "put 1.0 1", "choose; skip_unless 0 0 1; quiet", "load 1.0", "add 1.4 1", "put 0.4 1; fence",
    "choose; skip_if 0 1 1; eq 0.4 1", "in 1.0 0; set 1 0 1; wait 1 0 1", "store m0.1 3", "ge 1.4 1",
])  # fmt: skip
PROGRAMS = st.lists(st.lists(ASKING, min_size=1, max_size=3).map("; ".join), min_size=1, max_size=3)


@settings(max_examples=25)
@given(programs=PROGRAMS, order=st.sampled_from(ORDERS), cache=st.sampled_from([0, 0, 2]))
def test_all_judges_agree_on_programs_that_ask(programs: list[str], order: str, cache: int) -> None:
    """Searches, brute force, schedules that are drawn and replays of witnesses never contradict each other."""
    one: Small = small(" | ".join(programs), dies=2, scalar_cache=cache)
    scene = judge.Scene(one, order, None, judge.BUDGET)
    assert judge.judge_scene(scene).contradictions == []


def test_an_answer_is_no_line_of_a_cache() -> None:
    """Answers are numbered below the lines that a cache may evict, so that no action is both."""
    assert ANSWERS_MOST <= ms.CHOICE_EVICT
    assert Pod(SPEC).state[ms.COUNT_BY_OP + OP_CHOOSE] == 0
