"""Choices judged by their ends: what a search takes by itself, and what it tries, must keep all that can come out."""

from dataclasses import replace

import numpy as np
import pytest

from tests.machine.support import ORDERS, small
from xccl_emu.campaign.ends import JUDGE, judge_by_ends, wrong_choices
from xccl_emu.campaign.judge import BUDGET, Scene
from xccl_emu.check.search.setup import Setup
from xccl_emu.check.search.watched import Choices, Watched
from xccl_emu.check.verdict import VERIFIED
from xccl_emu.machine.ends import Ends, ends

MESSAGE = small("store 0.4 1; quiet; put 0.0 1 | ge 0.0 1; load 0.4")


@pytest.fixture(scope="module")
def searched() -> tuple[Choices, Ends]:
    """What the search of a message did, and the ends of each state it has been in."""
    scene = Scene(MESSAGE, "relaxed", None, BUDGET)
    search = Watched(Setup(scene.trial, full=True), max_states=1_000, seconds=None)
    assert search.run().complete
    graph = ends(scene.pod, search.choices.rows(), MESSAGE.observed(scene.pod))
    assert graph is not None
    return search.choices, graph


def test_a_right_search_keeps_all_ends(searched: tuple[Choices, Ends]) -> None:
    """It takes steps by themselves and tries others, and none of them loses an end."""
    assert {step.alone for step in searched[0].steps} == {False, True}
    assert list(wrong_choices(*searched, whole=True)) == []


def test_an_end_that_a_step_loses_is_seen(searched: tuple[Choices, Ends]) -> None:
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
    search = Watched(Setup(scene.trial, full=True), max_states=1_000, seconds=None)
    assert search.run().complete
    graph = ends(scene.pod, search.choices.rows(), scene.small.observed(scene.pod))
    assert graph is not None
    steps = search.choices.steps
    assert list(wrong_choices(search.choices, graph, whole=True)) == []
    first = next(step for step in steps if not step.alone)
    less = Choices({step: None for step in steps if step.alone or step.who != first.who}, search.choices.states)
    assert "more can come out" in next(wrong_choices(less, graph, whole=True))[0]


@pytest.mark.parametrize("order", ORDERS)
def test_a_search_that_is_watched_says_the_same(order: str) -> None:
    """Its verdict and states are those of the search that is not."""
    judged = judge_by_ends(Scene(MESSAGE, order, None, BUDGET))
    assert judged.verdicts == {"full": VERIFIED, JUDGE: VERIFIED}
    assert judged.contradictions == []
