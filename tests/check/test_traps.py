"""The programs of `traps`: every search, brute force and sampled schedules give the verdict that each deserves."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from xccl_emu.check import verdict as kinds
from xccl_emu.check.check import REDUCTIONS, check
from xccl_emu.check.sampling.sample import PORTFOLIO, replay, sample
from xccl_emu.check.search.exhaustive import Found
from xccl_emu.check.trial import Trial
from xccl_emu.guards.campaign.judge import (
    BRUTE_FORCE,
    SEARCHES,
    JudgeBudget,
    Scene,
    judge_scene,
    replayed,
    searched,
    verdict_of,
)
from xccl_emu.guards.campaign.programs import ORDERS

from .traps import NAMED, OK, TRAPS, Trap
from .witness_support import shows_again

BUDGET = JudgeBudget(states=1_000_000, brute=200_000, seconds=60)


def shown(trap: Trap, order: str, found: Found) -> bool:
    """Does what was found happen again on the machine, and can each of its actions be taken?"""
    if replayed(trap.build(order), found) == "not enabled":
        return False
    return replay(trap.build(order), found.actions, found.loop) is not None


def wrong_of(trap: Trap, orders: tuple[str, ...] = ORDERS) -> list[str]:
    """What the searches say of a trap that they should not, and what they find that does not replay."""
    wrong = []
    for order in orders:
        for name in SEARCHES:
            found = searched(trap.build(order), name, BUDGET)
            if verdict_of(found) not in trap.allows(order):
                wrong.append(f"{order}, {name}: {verdict_of(found)} {found.message}")
            elif found.violation and not shown(trap, order, found):
                wrong.append(f"{order}, {name}: no replay of {found.message}")
    return wrong


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_every_search_judges_rightly(trap: Trap) -> None:
    """Full, merged and breadth-first searches say what is right under each order, and what they find replays."""
    assert not wrong_of(trap), trap.small()


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_sampled_schedules_say_the_same(trap: Trap) -> None:
    """Under the monitor the portfolio finds nothing where a program is right, and something where it is wrong."""
    for order in ORDERS:
        found = sample(trap.build(order), schedules=60 * len(PORTFOLIO)).violation
        if trap.allows(order) == OK:
            assert found is None, (order, found.message if found else "")
        else:
            assert trap.rare or (found is not None and found.kind in trap.allows(order)), order


@pytest.mark.slow
@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_the_naive_search_agrees(trap: Trap) -> None:
    """Searches say what the naive one says, in each order and whichever end is the expected one."""
    small, wrong = trap.small(), []
    for order in ORDERS:
        outcomes = small.naive(order, BUDGET.brute).outcomes
        for outcome in sorted({words[: small.n_words()] for words in outcomes})[:4] or [None]:
            scene = Scene(small, order, outcome, BUDGET)
            wrong += judge_scene(scene, judges=("full", "merged", BRUTE_FORCE)).contradictions
    assert not wrong, small


@pytest.mark.nojit
@pytest.mark.parametrize("name", ["data behind a quiet", "data without a quiet", "a pulse is missed"])
def test_the_search_runs_as_plain_python(name: str) -> None:
    """The verdicts are the same with compiled functions and without."""
    assert not wrong_of(NAMED[name], ("relaxed",))


# ---- what the front door makes of them


@pytest.mark.parametrize(("order", "breadth_first"), [*((order, False) for order in ORDERS), ("unordered", True)])
def test_a_livelock_is_told_with_its_loop(order: str, breadth_first: bool) -> None:
    """The last actions of its witness lead from a state back to it, and its replay says the same."""
    trap = NAMED["a loop of loads need not end"]
    violation = check(trap, order=order, breadth_first=breadth_first).violation
    assert violation.kind == kinds.LIVELOCK
    assert 1 == violation.loop < len(violation.actions)
    assert violation.message.startswith("livelock: this step leads back to the same state")
    assert shows_again(trap.build(order), violation)


@pytest.mark.parametrize("order", ["sc", "fifo"])
@pytest.mark.parametrize(
    ("name", "told"),
    [("a loop of loads ends", ""), ("data without a quiet", ""), ("data behind a quiet", "verified under relaxed")],
)
def test_an_order_is_searched_by_itself_where_relaxed_says_nothing_of_it(name: str, told: str, order: str) -> None:
    """A verdict under relaxed is handed on, and says so, if there is one, and no state can be reached from itself."""
    verdict = check(NAMED[name], order=order)
    assert (verdict.verdict, verdict.order) == (kinds.VERIFIED, order)
    assert verdict.reason.startswith(told) if told else verdict.reason == ""


@dataclass(frozen=True)
class ByOrder:
    """A case that launches other programs under one order."""

    name: ClassVar[str] = "by order"
    configuration: ClassVar[Mapping[str, int | str]] = {}
    order: str
    there: Trap
    elsewhere: Trap

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        """Launched, on a fresh pod."""
        return (self.there if order == self.order else self.elsewhere).build(order, without)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("order", ["sc", "fifo"])
@pytest.mark.parametrize("changed", [
    {"programs": "store 1.0 5; quiet; store 1.4 1 | load 1.0"}, {"expected": {0o14: 2}}, {"memory": {0o14: 1}},
])  # fmt: skip
def test_no_verdict_is_handed_on_to_another_program(changed: dict[str, object], order: str, reduction: str) -> None:
    """Where a case builds something else under an order, be it kernels, memory or what is expected, that is judged."""
    elsewhere = NAMED["data behind a quiet"]
    there = replace(elsewhere, **changed)
    verdict = check(ByOrder(order, there, elsewhere), order=order, reduction=reduction)
    itself = check(there, order=order, reduction=reduction)
    assert "relaxed" not in verdict.reason
    assert (verdict.verdict, verdict.order, verdict.states) == (itself.verdict, order, itself.states)
    assert verdict.verdict == kinds.VIOLATION


def test_what_is_verified_under_relaxed_need_not_be_right_under_unordered() -> None:
    """A verdict is handed to stronger orders only: an older head over a newer one is found where it can be."""
    trap = NAMED["an older head over a newer"]
    assert check(trap, order="relaxed").verdict == kinds.VERIFIED
    found = check(trap, order="unordered")
    assert (found.verdict, found.violation.kind) == (kinds.VIOLATION, kinds.DEADLOCK)
    assert replay(trap.build("unordered"), found.violation.actions).kind == kinds.DEADLOCK


@pytest.mark.parametrize("order", ["sc", "fifo"])
def test_what_is_wrong_under_every_order_has_a_witness_of_the_order_asked_for(order: str) -> None:
    """The schedule of a violation is one of the machine under that order, and replays there."""
    trap = NAMED["a pulse is missed"]
    verdict = check(trap, order=order)
    assert (verdict.verdict, verdict.order) == (kinds.VIOLATION, order)
    assert replay(trap.build(order), verdict.violation.actions).kind == verdict.violation.kind == kinds.DEADLOCK
