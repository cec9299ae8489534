"""Results that a predicate judges, in every search and in schedules that are drawn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.refused import refuses
from xccl_emu.base.errors import ConfigError
from xccl_emu.check.certify import by_brute_force
from xccl_emu.check.check import check
from xccl_emu.check.trial import RESULTS_MAX, Expected, Judge, Trial
from xccl_emu.check.verdict import UNFINISHED, VERIFIED, VIOLATION, WRONG_BITS
from xccl_emu.guards.campaign.generate import draw
from xccl_emu.guards.campaign.judge import SEARCHES, JudgeBudget, Scene, searched
from xccl_emu.guards.campaign.programs import ORDERS
from xccl_emu.lang import atomic_add, choose, kernel, load, poll_ge, store
from xccl_emu.machine import small_pod
from xccl_emu.machine.pod import Buffer
from xccl_emu.protocol import Bench, protocol


@kernel
def vote(mask, bit, done):
    """Take part, or not."""
    stays_out = yield choose(2)
    if stays_out == 0:
        yield atomic_add(mask, bit)
    yield atomic_add(done, 1)


@kernel
def decide(mask, done, out):
    """Count on those that take part."""
    yield poll_ge(done, 2, sync="all have voted")
    seen = yield load(mask)
    yield store(out, 3 * seen + 1)


@protocol
def voting(bench: Bench, never: int = -1, owners: str = "die2") -> None:
    """Who takes part decides the result; one mask may be called wrong."""
    pod = bench.pod(small_pod(3, app_bytes=64, meta_bytes=64, managed_bytes=0, ub_bytes=32), draw_answers=True)
    mask, done, out = pod.meta(2), pod.meta(2, 32), pod.alloc(2, 8)

    def right(mask: np.ndarray, out: np.ndarray) -> bool | str:
        who, told = int(mask.view(np.int64)[0]), int(out.view(np.int64)[0])
        return told == 3 * who + 1 if who != never else f"{who} took part"

    bench.judged_by(right, Buffer(2, mask, 8), out, name="result", owners=owners)
    for die in range(2):
        pod.launch(vote, die, [0], {"mask": mask, "bit": 1 << die, "done": done}, [pod.grant_meta("rw", 2)])
    grants = [pod.grant_meta("rw", 2), pod.grant(out, "rw")]
    pod.launch(decide, 2, [0], {"mask": mask, "done": done, "out": out.address}, grants)


@pytest.mark.parametrize("owners", ["die2", "drained"])
@pytest.mark.parametrize(
    "options",
    [
        {}, {"reduction": "less"}, {"reduction": "merged"}, {"breadth_first": True}, {"order": "sc"},
        {"policy": "portfolio", "schedules": 200}, {"fault": "stop:die0", "policy": "exhaustive"},
    ],
)  # fmt: skip
def test_who_took_part_decides_the_result(options: dict, owners: str) -> None:
    """Four results are right; one of them is called wrong, and its schedule is found."""
    assert check(voting(owners=owners), **options).ok
    found = check(voting(never=2, owners=owners), **options)
    assert (found.verdict, found.violation.kind) == (VIOLATION, WRONG_BITS)
    assert "result: 2 took part" in found.violation.message


def test_brute_force_asks_it_too() -> None:
    """A certificate judges each end by the predicate, and contradicts what is not right."""
    verdict = check(voting())
    for never, said in ((-1, ""), (2, "brute force: at the end of a run result: 2 took part")):
        certificate = by_brute_force(voting(never=never), verdict, 60.0, 10_000)
        assert (certificate.complete, certificate.disagreement) == (True, said)


@kernel
def keep(word):
    """Return early, and leave one's own word as it is."""
    yield load(word)


@kernel
def write_one(word):
    """Write the other word."""
    yield store(word, 1)


@protocol
def apart(bench: Bench) -> None:
    """Two results of dies that share nothing; what nobody has written yet fails the predicate of one."""
    pod = bench.pod(small_pod(2, app_bytes=32, meta_bytes=32, managed_bytes=0, ub_bytes=32))
    for die, one in enumerate((keep, write_one)):
        pod.launch(one, die, [0], {"word": pod.meta(die)}, [pod.grant_meta("rw", die)])
    bench.judged_by(lambda word: True, Buffer(0, pod.meta(0), 8), name="kept", owners="die0")
    bench.judged_by(lambda word: 1 // int(word[0]) == 1, Buffer(1, pod.meta(1), 8), name="written", owners="drained")
    bench.recovers(0)


@pytest.mark.parametrize("options", [{}, {"fault": "stop:die0", "policy": "exhaustive"}])
def test_what_no_run_leaves_is_not_asked_of(options: dict) -> None:
    """Who uses what is learnt behind a content that nobody knew, so that no part ends without who writes its bytes."""
    assert check(apart(), **options).verdict == VERIFIED


def counting(bench: Bench, most: int) -> None:
    """More results than are kept, if there are more than 256."""
    pod = bench.pod(small_pod(1, app_bytes=32, meta_bytes=32, managed_bytes=0), draw_answers=True)
    bench.judged_by(lambda count: True, Buffer(0, pod.meta(0), 8), name="count")
    pod.launch(answered, 0, [0], {"out": pod.meta(0), "most": most}, [pod.grant_meta("rw", 0)])


@kernel
def answered(out, most):
    """Write what the environment answers."""
    tens = yield choose(most)
    ones = yield choose(17)
    yield store(out, 17 * tens + ones)


def test_too_many_results_leave_it_unfinished() -> None:
    """Which results are right is kept, up to a number of them."""
    assert check(protocol(counting)(most=2)).verdict == VERIFIED
    found = check(protocol(counting)(most=1 + RESULTS_MAX // 17))
    assert (found.verdict, found.reason) == (UNFINISHED, "count has more than 256 different contents that are right")


def test_a_predicate_answers_yes_or_no() -> None:
    """One that fails, or says something else, is a mistake of the case."""
    assert Judge("it", ((0, 1), (8, 2)), lambda one, two: (len(one), len(two)) == (1, 2)).wrong(b"abc") == ""
    for answer, said in ((lambda one: 1 // 0, "raises ZeroDivisionError"), (lambda one: 3, "returns 3: must be True")):
        with pytest.raises(ConfigError, match=f"it: its predicate {said}"):
            Judge("it", ((0, 1),), answer).wrong(b"a")


@refuses(lambda **sizes: Bench("sc", ()).judged_by(bool, *sizes.values(), name="it"), ({}, "it: 0 bytes are judged"))
def test_bad_buffers_are_refused() -> None:
    """There is something to judge."""


@settings(max_examples=40, deadline=None)
@given(number=st.integers(0, 1 << 20), order=st.sampled_from(ORDERS), search=st.sampled_from(SEARCHES))
def test_a_search_meets_each_content_that_runs_leave(number: int, order: str, search: str) -> None:
    """Where a program is verified whatever it leaves, the contents that were asked of are those of brute force."""
    small = draw(11, number).small
    scene = Scene(small, order, None, JudgeBudget(states=5_000, brute=1_000))
    if not scene.naive.complete:
        return
    judge = Judge("all", tuple(small.observed(scene.pod)), lambda *_: True)
    expected = (Expected("all", judge.ranges[0][0], b"", judge=judge),)
    trial = Trial(scene.pod, expected, scene.trial.filled, gives_up=scene.trial.gives_up)
    found = searched(trial, search, scene.budget)
    if found.complete:
        n = small.n_words()
        ends = {np.array(words[:n], np.int64).tobytes() for words in scene.naive.outcomes}
        assert set(judge.accepted) == ends
