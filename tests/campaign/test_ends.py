"""Choices judged by their ends: what a search takes by itself, and what it tries, must keep all that can come out."""

from dataclasses import replace

import numpy as np
import pytest

from tests.machine.support import ORDERS, small
from xccl_emu.check.search.setup import Setup
from xccl_emu.check.verdict import UNFINISHED, VERIFIED
from xccl_emu.guards.campaign.ends import JUDGE, SearchHistory, WatchedSearch, judge_by_ends, wrong_choices
from xccl_emu.guards.campaign.interpreter import ALPHABET
from xccl_emu.guards.campaign.judge import BUDGET, Scene
from xccl_emu.guards.campaign.programs import UB_BYTES
from xccl_emu.guards.campaign.run import CampaignPlan, judge_all
from xccl_emu.guards.campaign.smallest import BY_HAND, PAIRS, TOTAL, smallest
from xccl_emu.machine.ends import Ends, ends

MESSAGE = small("store 0.4 1; quiet; put 0.0 1 | ge 0.0 1; load 0.4")


@pytest.fixture(scope="module")
def searched() -> tuple[SearchHistory, Ends]:
    """What the search of a message did, and the ends of each state it has been in."""
    scene = Scene(MESSAGE, "relaxed", None, BUDGET)
    search = WatchedSearch(Setup(scene.trial, full=True), max_states=1_000, seconds=None)
    assert search.run().complete
    graph = ends(scene.pod, search.choices.rows(), MESSAGE.observed(scene.pod))
    assert graph is not None
    return search.choices, graph


def test_a_right_search_keeps_all_ends(searched: tuple[SearchHistory, Ends]) -> None:
    """It takes steps by themselves and tries others, and none of them loses an end."""
    assert {step.alone for step in searched[0].steps} == {False, True}
    assert list(wrong_choices(*searched, whole=True)) == []


def test_an_end_that_a_step_loses_is_seen(searched: tuple[SearchHistory, Ends]) -> None:
    """For each step that another state stands in for, with an end more or less, the judge names what was done."""
    choices, graph = searched
    kinds = set()
    for step in choices.steps:
        sets = graph.sets.copy()
        sets[1 + step.after] ^= np.uint64(1)
        kinds |= {kind for kind, _ in wrong_choices(choices, replace(graph, sets=sets), whole=True)}
    assert "store by itself" in kinds
    assert any("more can come out" in kind for kind in kinds)


def test_a_choice_that_is_left_out_is_seen() -> None:
    """The search tries both of two writes to a word first; without the steps of one process ends are missing."""
    scene = Scene(small("put 0.0 1 | put 0.0 2; ge 0.0 1"), "relaxed", None, BUDGET)
    search = WatchedSearch(Setup(scene.trial, full=True), max_states=1_000, seconds=None)
    assert search.run().complete
    graph = ends(scene.pod, search.choices.rows(), scene.small.observed(scene.pod))
    assert graph is not None
    steps = search.choices.steps
    assert list(wrong_choices(search.choices, graph, whole=True)) == []
    first = next(step for step in steps if not step.alone)
    less = SearchHistory({step: None for step in steps if step.alone or step.who != first.who}, search.choices.states)
    assert "more can come out" in next(wrong_choices(less, graph, whole=True))[0]


@pytest.mark.parametrize("order", ORDERS)
def test_a_search_that_is_watched_says_the_same(order: str) -> None:
    """Its verdict and states are those of the search that is not."""
    judged = judge_by_ends(Scene(MESSAGE, order, None, BUDGET))
    assert judged.verdicts == {"full": VERIFIED, JUDGE: VERIFIED}
    assert judged.contradictions == []


def test_a_program_that_is_refuted_is_not_judged() -> None:
    """A deadlock is told by the search itself."""
    judged = judge_by_ends(Scene(small("ge 0.0 1"), "relaxed", None, BUDGET))
    assert JUDGE not in judged.verdicts


def test_a_graph_that_is_too_large_is_unfinished() -> None:
    """So what was verified counts as not judged."""
    judged = judge_by_ends(Scene(MESSAGE, "relaxed", None, replace(BUDGET, ends=3)))
    assert judged.verdicts == {"full": VERIFIED, JUDGE: UNFINISHED}


# ---- the smallest programs, and drawn ones


def test_buffers_tell_where_a_copy_comes_from() -> None:
    """No two words of data buffers are equal, and no half of one is 0; the memory that is copied is not 0 either."""
    case = smallest(PAIRS - 1)
    pod = case.small.pod("sc")
    words = pod.memory[pod.spec.memory_bytes :][: 2 * UB_BYTES]
    assert len(set(words.view(np.int64).tolist())) == 2 * UB_BYTES // 8
    assert words.view(np.int32).all()
    assert len(set(case.small.memory.values())) == 5


def test_each_request_meets_each() -> None:
    """Numbers are programs: those by hand, all pairs of one core, all of two, then all of two and one, each once."""
    hand, n = len(BY_HAND), len(ALPHABET)
    texts = [str(smallest(number).small) for number in (*range(PAIRS), TOTAL - 1)]
    assert len(set(texts)) == len(texts)
    assert [len(smallest(hand + k).small.programs) for k in (0, n * n, 2 * n * n, n * n - 1)] == [1, 2, 2, 1]
    assert TOTAL == PAIRS + n**3 == hand + 2 * n * n + n**3


@pytest.mark.parametrize("chunk", range(8))
def test_choices_of_the_smallest_programs_keep_all_ends(chunk: int) -> None:
    """Whatever two requests are verified, each choice is judged, and none loses an end."""
    first, end = chunk * PAIRS // 8, (chunk + 1) * PAIRS // 8
    summary = judge_all(CampaignPlan(end - first, first=first, ends=True, enumerated=True))
    assert dict(summary.wrong) == {}
    judged, verified = summary.share
    assert judged == verified > end - first


@pytest.mark.nightly
@pytest.mark.parametrize("chunk", range(64))
def test_choices_of_two_requests_and_one_keep_all_ends(chunk: int) -> None:
    """So does what a core says to another one that has a request of its own."""
    share = (TOTAL - PAIRS) // 64
    summary = judge_all(CampaignPlan(share, first=PAIRS + chunk * share, ends=True, enumerated=True))
    assert dict(summary.wrong) == {}
    assert summary.share[0] == summary.share[1]


def test_choices_of_drawn_programs_keep_all_ends() -> None:
    """Three in ten of those that are verified are small enough to be judged, at least."""
    summary = judge_all(CampaignPlan(120, seed=9, ends=True))
    assert dict(summary.wrong) == {}
    judged, verified = summary.share
    assert judged > 0.3 * verified > 0
