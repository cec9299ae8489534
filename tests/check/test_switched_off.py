"""A poll that is switched off waits for nothing and orders nothing, and returns the word that is there."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.foreign_support import needs_compiler, written
from tests.machine.support import small
from xccl_emu import lang as xl
from xccl_emu.check import verdict as kinds
from xccl_emu.check.check import check
from xccl_emu.check.sampling.sample import replay, sample
from xccl_emu.check.search.exhaustive import Search
from xccl_emu.check.search.setup import Setup
from xccl_emu.guards.campaign.programs import ORDERS
from xccl_emu.machine import small_pod
from xccl_emu.machine.explore import explore
from xccl_emu.protocol import Bench
from xccl_emu.testing import protocol

from .kinds import TORN
from .traps import Trap

SEARCHES = ({}, {"reduction": "less"}, {"reduction": "merged"}, {"breadth_first": True})
POLLS = ("eq", "ne", "ge")


@xl.kernel
def raise_word(word, done):
    """Make a word 1 and then 2, and say so."""
    yield xl.put(word, 1, sync="one")
    yield xl.quiet(sync="one before two")
    yield xl.put(word, 2, sync="two")
    yield xl.quiet(sync="word before done")
    yield xl.put(done, 1, sync="done")


@xl.kernel
def copy_word(word, done, out, how):
    """Note what a poll has seen."""
    yield xl.poll_ge(done, 1, sync="is done")
    if how == 0:
        seen = yield xl.poll_eq(word, 2, sync="word")
    elif how == 1:
        seen = yield xl.poll_ne(word, 1, sync="word")
    else:
        seen = yield xl.poll_ge(word, 2, sync="word")
    yield xl.store(out, seen, sync="out")


@xl.kernel
def ring(word, done):
    """Say that it is over, then ring."""
    yield xl.put(done, 1)
    yield xl.put(word, 1)


@xl.kernel
def heed(word, done, out):
    """Go on at each ring, until it is over."""
    seen, over = 0, 0
    while over == 0:
        seen = yield xl.poll_ne(word, seen, sync="word")
        over = yield xl.load(done, sync="done")
    yield xl.store(out, over)


IN_C = """XCCL_KERNEL void k(int64_t word, int64_t done, int64_t out, int64_t how) {
    int64_t seen;
    xccl_poll_ge(done, 1, 8, -1, .sync = "is done");
    if (how == 0) seen = xccl_poll_eq(word, 2, 8, -1, .sync = "word");
    else if (how == 1) seen = xccl_poll_ne(word, 1, 8, -1, .sync = "word");
    else seen = xccl_poll_ge(word, 2, 8, -1, .sync = "word");
    xccl_store(out, seen, 8, .sync = "out");
}"""


def launched(bench: Bench, kernels: tuple[Any, Any], wanted: int, **more: int) -> None:
    """Two dies, the word and the flag on the second, what is left on its app data."""
    sizes = {"app_bytes": 64, "meta_bytes": 64, "managed_bytes": 64, "ub_bytes": 64}
    pod = bench.pod(small_pod(2, 1, **sizes, flight_granules=8).with_(registers=160))
    out = bench.wanted(1, np.array([wanted], np.int64), "out")
    words, anywhere = {"word": pod.meta(1), "done": pod.meta(1, 32)}, [pod.grant_meta("rw")]
    pod.launch(kernels[0], 0, [0], words, anywhere)
    pod.launch(kernels[1], 1, [0], {**words, "out": out.address, **more}, [*anywhere, pod.grant(out, "w")])


@protocol
def copied(bench: Bench, wanted: int = 2, how: int = 0) -> None:
    """A word that is raised twice."""
    launched(bench, (raise_word, copy_word), wanted, how=how)


@protocol
def heeded(bench: Bench) -> None:
    """A bell, of which the last value that was seen is awaited to change."""
    launched(bench, (ring, heed), 1)


def ends(case: Any, order: str, without: list[str]) -> set[int]:
    """What may be left, by brute force; no run may fail."""
    trial = case.build(order, without)
    found = explore(trial.pod, [(trial.expected[0].address, 8)], 100_000, 60)
    assert found.complete
    assert not found.deadlocks
    assert not found.errors
    return {outcome[0] for outcome in found.outcomes}


def judged(case: Any, order: str, without: list[str]) -> set[str]:
    """What all searches and drawn schedules say; what they find replays."""
    said = set()
    for more in SEARCHES:
        verdict = check(case, order=order, without=without, **more)
        said.add(verdict.violation.kind if verdict.violation else verdict.verdict)
        if verdict.violation is not None:
            assert replay(case.build(order, without), verdict.violation.actions) is not None
    drawn = sample(case.build(order, without), schedules=400).violation
    assert drawn is None or drawn.kind in said
    return said


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("how", range(3), ids=POLLS)
def test_the_word_that_is_there_is_what_a_kernel_goes_on_with(order: str, how: int) -> None:
    """Every judge knows each value that a poll may see that does not wait, and the one that it sees behind a wait."""
    both, one = ["is done", "word"], ["word"]
    assert ends(copied(how=how), order, both) == {0, 1, 2}
    assert ends(copied(how=how), order, one) == {2}
    assert judged(copied(how=how), order, one) == {kinds.VERIFIED}
    assert judged(copied(wanted=how, how=how), order, both) == {kinds.WRONG_BITS}


@pytest.mark.parametrize("order", ORDERS)
def test_a_poll_whose_result_is_its_next_condition_has_an_end(order: str) -> None:
    """Switched off it leaves as many states as the word has values, and not one more for each time that it is asked."""
    assert judged(heeded(), order, ["word"]) == {kinds.VERIFIED}
    assert check(heeded(), order=order, without="word").states < 50
    assert ends(heeded(), order, ["word"]) == {1}


@pytest.mark.nojit
@pytest.mark.parametrize("order", ORDERS)
def test_what_its_value_decides_is_not_verified(order: str) -> None:
    """A core that goes by the word, and then reads what it announces, has a race that no state of a search shows."""
    text = "store m1.0 5; quiet; store 1.4 1 | part_ge 1.4 1 3; skip_unless 0 1 1; load m1.0"
    for reduced in ({"full": True}, {"full": True, "most": False}, {"full": False}):
        trial = small(text, dies=2, memory={0o50: 1}, without=("part",)).trial(order, None)
        found = Search(Setup(trial, **reduced), max_states=1000, seconds=None, progress=None).run()
        assert not found.violation
        assert "what a switched-off poll has returned" in found.reason
    drawn = sample(small(text, dies=2, memory={0o50: 1}, without=("part",)).trial(order, None), schedules=60)
    assert drawn.violation is not None


@needs_compiler
@pytest.mark.parametrize("how", range(3), ids=POLLS)
def test_a_kernel_in_c_goes_on_with_the_same_word(how: int, tmp_path: Path) -> None:
    """Its polls return what those of its twin in Python do, in every judge."""
    kernel = written(tmp_path, IN_C)

    @protocol
    def in_c(bench: Bench, wanted: int = 2) -> None:
        """The twin of `copied`."""
        launched(bench, (raise_word, kernel), wanted, how=how)

    for off in (["word"], ["is done", "word"]):
        assert ends(in_c(), "relaxed", off) == ends(copied(how=how), "relaxed", off)
        for wanted in (2, how):
            assert judged(in_c(wanted=wanted), "relaxed", off) == judged(copied(wanted, how), "relaxed", off)


@pytest.mark.parametrize("order", ORDERS)
def test_the_run_of_a_race_with_a_copy_goes_up_to_the_poll(order: str) -> None:
    """What a search writes down shows its violation by itself, without a drawn schedule to help."""
    case = Trap("copied over", "part_ne 1.0 1 3 | dma 0.4 1.0; wait 4 0 4", TORN)
    found = Search(Setup(case.build(order, ["part"]), True), max_states=1000, seconds=60, progress=None).run()
    assert found.kind == kinds.TORN_METADATA
    assert replay(case.build(order, ["part"]), found.actions).kind == kinds.TORN_METADATA
