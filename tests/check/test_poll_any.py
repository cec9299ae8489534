"""Polls of several words (`poll_any`): which one they return, what they order, and what is told of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.machine.support import small
from xccl_emu.base.errors import AccessError, DeadlockError, KernelError
from xccl_emu.check.check import check
from xccl_emu.check.verdict import BAD_INSTRUCTION, DATA_RACE, DEADLOCK, UNWRITTEN_READ, VERIFIED, VIOLATION, WRONG_BITS
from xccl_emu.guards.campaign import judge
from xccl_emu.guards.campaign.programs import ORDERS
from xccl_emu.lang import CMP_EQ, CMP_GE, CMP_NE, kernel, load, poll_any, quiet, store
from xccl_emu.lang.abi import LONGEST_REQUEST_WORDS, REQUEST, REQUEST_WORDS
from xccl_emu.machine import Pod, small_pod
from xccl_emu.machine.pod import POLICIES
from xccl_emu.testing import Bench, protocol, witness_text
from xccl_emu.timing.run import VirtualTime

SPEC = small_pod(3, app_bytes=64, meta_bytes=128, managed_bytes=64)


@kernel
def first_of_four(word):
    """Which of four words side by side is as it should be."""
    which = yield poll_any(
        (word, CMP_EQ, 3), (word + 8, CMP_NE, 0), (word + 16, CMP_GE, -5), (word + 24, CMP_EQ, 7), sync="any"
    )
    return which


@kernel
def first_of_one(word, how):
    """A poll of one word, compared somehow."""
    which = yield poll_any((word, how, 1))
    return which


@kernel
def tell(data, flag, late):
    """Write data, then the flag that says so; or the other way round."""
    if late == 0:
        yield store(data, 5)
        yield quiet(sync="data before flag")
    yield store(flag, 1)
    if late == 1:
        yield store(data, 5)
    yield quiet()


@kernel
def take(ready, abort, data, out):
    """Wait for data or for an end; say which."""
    seen = yield poll_any((abort, CMP_GE, 1), (ready, CMP_GE, 1), sync="which")
    value = 9
    if seen == 1:
        value = yield load(data)
    yield store(out, value)
    yield quiet()


@kernel
def both(one, other):
    """Wait for two words, in whatever order they come; the order in which they were seen."""
    first = yield poll_any((one, CMP_GE, 1), (other, CMP_GE, 1))
    if first == 0:
        yield poll_any((other, CMP_GE, 1))
    else:
        yield poll_any((one, CMP_GE, 1))
    return first


@protocol
def told(bench: Bench, aborts: int = 1, late: int = 0, says: int = 1) -> None:
    """Die 0 tells die 1 of data; die 2 may end it before."""
    pod = bench.pod(SPEC)
    ready, abort, out = pod.meta(1), pod.meta(1, 32), pod.meta(1, 64)
    filled = bench.filled(1, np.zeros(1, np.int64), "data")
    data, grants = filled.address, [pod.grant_meta("rw"), pod.grant_managed("rw"), pod.grant(filled, "rw")]
    if says:
        pod.launch(tell, 0, [0], {"data": data, "flag": ready, "late": late}, grants)
    if aborts:
        pod.launch(tell, 2, [0], {"data": pod.managed(2), "flag": abort, "late": 0}, grants)
    pod.launch(take, 1, [0], {"ready": ready, "abort": abort, "data": data, "out": out}, grants)
    if not aborts:
        bench.expect(out, np.array([5]), "what was taken", owners="die1")


@protocol
def waiting(bench: Bench) -> None:
    """A core waits for two words that nobody writes."""
    pod = bench.pod(SPEC)
    pod.launch(both, 1, [0], {"one": pod.meta(0), "other": pod.meta(2, 64)}, [pod.grant_meta("r")])


def seen(policy: object, order: str, *words: int) -> tuple[int, Pod]:
    """What `first_of_four` returns of words that stand there from the start."""
    pod = Pod(SPEC, order=order, policy=policy)
    pod.span(pod.meta(1), 32).view(np.int64)[:] = words
    launch = pod.launch(first_of_four, 0, [0], {"word": pod.meta(1)}, [pod.grant_meta("r")])
    pod.run()
    return launch.results[0], pod


@pytest.mark.nojit
@pytest.mark.parametrize("policy", [*POLICIES, VirtualTime()], ids=[*POLICIES, "virtual"])
@pytest.mark.parametrize(
    ("words", "which"),
    [((3, 0, -9, 0), {0}), ((3, 1, 0, 7), {0, 1, 2, 3}), ((2, 1, -9, 7), {1, 3}), ((0, 0, -6, 7), {3})],
)
def test_one_that_holds_is_returned(policy: object, words: tuple[int, ...], which: set[int]) -> None:
    """Where several hold it may be any, and the lowest number in virtual time, under every policy and order."""
    for order in ORDERS if isinstance(policy, str) else ("sc",):
        assert seen(policy, order, *words)[0] in (which if isinstance(policy, str) else {min(which)})


@kernel
def choose_any(one, other, out):
    """Which of two words has come."""
    which = yield poll_any((one, CMP_GE, 1), (other, CMP_GE, 1))
    yield store(out, which)
    yield quiet()


@protocol
def answered(bench: Bench, which: int = 0) -> None:
    """Die 0 writes one word and, behind a quiet, the other; die 1 is to see the one of number ``which``."""
    pod = bench.pod(SPEC)
    grants = [pod.grant_meta("rw"), pod.grant_managed("rw")]
    pod.launch(tell, 0, [0], {"data": pod.meta(1), "flag": pod.meta(1, 32), "late": 0}, grants)
    out = pod.meta(1, 64)
    pod.launch(choose_any, 1, [0], {"one": pod.meta(1), "other": pod.meta(1, 32), "out": out}, grants)
    bench.expect(out, np.array([which]), "which word was seen", owners="die1")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("which", [0, 1])
def test_what_comes_later_may_be_seen_first(order: str, which: int) -> None:
    """A loop of loads may miss the word that is written first and see the second: neither answer is certain."""
    case = answered(which=which)
    for found in (check(case, order=order), check(case, order=order, policy="random")):
        assert found.violation.kind == WRONG_BITS


def test_what_stands_behind_the_site_is_forgotten() -> None:
    """While the kernel is at another request the words of the conditions are 0, so that equal states are equal."""
    pod = seen("round-robin", "sc", 0, 0, 0, 7)[1]
    words = pod.state[pod.core_base(0) + REQUEST :][:LONGEST_REQUEST_WORDS]
    assert not words[REQUEST_WORDS:].any()


@pytest.mark.parametrize("policy", [*POLICIES, VirtualTime()], ids=[*POLICIES, "virtual"])
def test_a_deadlock_names_all_words(policy: object) -> None:
    """Who waits for one of several words is reported with each of them, what it holds, and what it should hold."""
    with pytest.raises(DeadlockError) as error:
        seen(policy, "sc", 0, 0, -6, 6)
    for text in ("polls die1.meta+0x0", "wants == 3", "saw 0, wants != 0", "saw -6, wants >= -5", "saw 6, wants == 7"):
        assert text in str(error.value)


@pytest.mark.parametrize(("how", "text"), [(3, "comparison 3 must be"), (-1, "comparison -1 must be")])
def test_a_comparison_that_is_none(how: int, text: str) -> None:
    """An unknown comparison ends the run where it stands; so do a word that is not granted and one not aligned."""
    pod = Pod(SPEC)
    pod.launch(first_of_one, 0, [0], {"word": pod.meta(1), "how": how}, [pod.grant_meta("r")])
    with pytest.raises(AccessError, match=rf"test_poll_any.py:\d+.*condition 0: {text}"):
        pod.run()


@kernel
def first_of_three(word, how):
    """Three words, of which the second is compared somehow."""
    which = yield poll_any((word, CMP_GE, 1), (word + 8, how, 1), (word + 16, CMP_GE, 1))
    return which


@pytest.mark.parametrize("how", [3, -1])
@pytest.mark.parametrize("policy", [*POLICIES, VirtualTime()], ids=[*POLICIES, "virtual"])
def test_a_comparison_that_is_none_hides_no_other(policy: object, how: int) -> None:
    """A comparison that a kernel computes wrongly is refused, and does not end the list of conditions."""
    pod = Pod(SPEC, policy=policy)
    pod.launch(first_of_three, 0, [0], {"word": pod.meta(1), "how": how}, [pod.grant_meta("r")])
    with pytest.raises(AccessError, match=f"condition 1: comparison {how} must be"):
        pod.run()


@pytest.mark.parametrize(("offset", "text"), [(4, "must be a multiple of 8"), (-64, "is not permitted")])
@pytest.mark.parametrize("policy", [*POLICIES, VirtualTime()], ids=[*POLICIES, "virtual"])
def test_a_word_that_cannot_be_polled(policy: object, offset: int, text: str) -> None:
    """A word that is not aligned, or not granted, is refused before anything is read; a check says so, too."""
    pod = Pod(SPEC, policy=policy)
    pod.launch(first_of_one, 0, [0], {"word": pod.meta(1) + offset, "how": CMP_GE}, [pod.grant_meta("r")])
    with pytest.raises(AccessError, match=text):
        pod.run()


def test_conditions_are_written_where_they_are_used() -> None:
    """A condition that is computed elsewhere is refused, with its line."""

    def bad(word):  # type: ignore[no-untyped-def]
        one = (word, CMP_EQ, 1)
        yield poll_any(one)

    with pytest.raises(KernelError, match="first must be written as"):
        kernel(bad).sites  # noqa: B018


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("options", [{}, {"reduction": "less"}, {"reduction": "merged"}, {"breadth_first": True}])
def test_it_acquires_what_it_sees(order: str, options: dict) -> None:
    """Data behind a flag that a poll of two words returns are ordered; without the quiet, or behind the flag, not."""
    assert check(told(), order=order, **options).verdict == VERIFIED
    assert check(told(aborts=0), order=order, certify=0.5, **options).verdict == VERIFIED
    late = check(told(late=1), order=order, **options)
    assert late.violation.kind in (DATA_RACE, UNWRITTEN_READ)
    loose = check(told(aborts=0), order=order, without="data before flag", **options)
    assert loose.verdict == (VERIFIED if order in ("sc", "fifo") else VIOLATION)


def test_sampled_schedules_find_the_same() -> None:
    """Drawn schedules see the race, and none in what is right; a witness names the words and says which one held."""
    assert check(told(), policy="portfolio", schedules=200).violation is None
    found = check(told(late=1), policy="portfolio", schedules=200)
    assert found.violation.kind in (DATA_RACE, UNWRITTEN_READ)
    text = witness_text(told(late=1), found)
    assert "poll_any" in text
    assert "condition 1 holds" in text


def test_a_deadlock_is_found() -> None:
    """Nobody writes either word: searches, and drawn schedules, say so."""
    for policy in ("exhaustive", "random"):
        found = check(waiting(), policy=policy, schedules=2) if policy != "exhaustive" else check(waiting())
        assert found.violation.kind == DEADLOCK
        assert "die0.meta+0x0" in found.violation.message
        assert "die2.meta+0x40" in found.violation.message


@pytest.mark.parametrize("order", ORDERS)
def test_both_ways_are_searched(order: str) -> None:
    """Two words that two dies write may be seen in either order."""
    one = small("any 0.0 0.4 15; skip_if 0 0 1; store 1.0 1 | store 0.0 2 | store 0.4 2", dies=3)
    ends = {words[8] for words in one.naive(order).outcomes}
    assert ends == {0, 1}


def test_a_bad_comparison_is_a_violation() -> None:
    """The checks tell of it as of any bad instruction."""

    @protocol
    def wrong(bench: Bench) -> None:
        pod = bench.pod(SPEC)
        pod.launch(first_of_one, 0, [0], {"word": pod.meta(1), "how": 9}, [pod.grant_meta("r")])

    for policy in ("exhaustive", "random"):
        assert check(wrong(), policy=policy).violation.kind == BAD_INSTRUCTION


@pytest.mark.parametrize(("first_us", "second_us", "which"), [(2.0, 9.0, 0), (9.0, 2.0, 1)])
def test_in_time_it_goes_on_when_the_first_word_comes(first_us: float, second_us: float, which: int) -> None:
    """In virtual time the word that is visible first ends the wait, and the wait ends when it is visible."""
    clock = VirtualTime(start_us={0: first_us, 2: second_us})
    pod = Pod(SPEC, policy=clock)
    grants, words = [pod.grant_meta("rw"), pod.grant_managed("rw")], (pod.meta(1), pod.meta(1, 64))
    for die, flag in zip((0, 2), words, strict=True):
        pod.launch(tell, die, [0], {"data": pod.managed(die), "flag": flag, "late": 0}, grants)
    one = pod.launch(both, 1, [0], {"one": words[0], "other": words[1]}, grants)
    pod.run()
    assert one.results == [which]
    assert 9.0 < clock.timing.by_die_us[1] < 15.0


WORDS = st.sampled_from(["0.0", "0.4", "1.0", "1.4"])
LINES = st.one_of(
    st.builds("{} {} {}".format, st.sampled_from(["store", "put", "add", "ge"]), WORDS, st.integers(0, 2)),
    st.builds("any {} {} {}".format, WORDS, WORDS, st.integers(0, 15)),
    st.builds("any {} {} {}; skip_if 0 0 1; load m0.0".format, WORDS, WORDS, st.integers(0, 15)),
    st.sampled_from(["quiet", "fence", "store m0.0 2", "in 1.0 0; set 1 0 1; wait 1 0 1", "dma 0.0 1.4; wait 4 0 0"]),
)  # fmt: skip
PROGRAMS = st.lists(st.lists(LINES, min_size=1, max_size=3).map("; ".join), min_size=1, max_size=3)


@settings(max_examples=40)
@given(programs=PROGRAMS, order=st.sampled_from(ORDERS), cache=st.sampled_from([0, 0, 0, 2]))
def test_all_judges_agree(programs: list[str], order: str, cache: int) -> None:
    """Searches, brute force, schedules that are drawn and replays of witnesses never contradict each other."""
    one = small(" | ".join(programs), dies=2, scalar_cache=cache)
    assert judge.judge_scene(judge.Scene(one, order, None, judge.BUDGET)).contradictions == []
