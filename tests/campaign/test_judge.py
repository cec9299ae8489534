"""What contradicts what: searches that say what is not so."""

from dataclasses import replace

import numpy as np
import pytest

from tests.machine.support import small
from xccl_emu.check import verdict as kinds
from xccl_emu.check.sampling import sample
from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.exhaustive import Found
from xccl_emu.guards.campaign import judge as judging
from xccl_emu.guards.campaign.generate import AN_END, ANY_END, SPOILED, ProgramCase
from xccl_emu.guards.campaign.judge import BRUTE_FORCE, SAMPLING, JudgeBudget, judge

RIGHT = ProgramCase(small("store 1.0 5; quiet; store 1.4 1 | ge 1.4 1; load 1.0"), AN_END)
LOCKED = ProgramCase(small("store 1.4 1 | eq 1.4 2"))

CROWDED = "out 0.0 0 3; out 0.0 0 3; out 1.0 0 3; put_one 0.0; put 0.0 | ge 0.0; in 1.0"


def kinds_of(case: ProgramCase, *orders: str) -> list[str]:
    """Kinds of the contradictions on a program."""
    return [wrong.kind for judged in judge(case, orders) for wrong in judged.contradictions]


def test_nobody_contradicts_on_what_is_right_or_plainly_wrong() -> None:
    """Data behind a quiet is verified by all, a poll that waits for ever refuted by all, and so is a spoiled end."""
    (right,) = judge(RIGHT, ["relaxed"])
    assert set(right.verdicts.values()) == {kinds.VERIFIED, kinds.NO_VIOLATION}
    assert right.schedules == JudgeBudget().schedules
    (locked,) = judge(LOCKED, ["relaxed"])
    assert set(locked.verdicts.values()) == {kinds.DEADLOCK}
    (spoiled,) = judge(ProgramCase(RIGHT.small, SPOILED, 3), ["sc"])
    assert spoiled.verdicts[BRUTE_FORCE] == "another end"
    assert not right.contradictions + locked.contradictions + spoiled.contradictions


LOOSE = ProgramCase(replace(RIGHT.small, asks={"poll_ge0": "no-acquire"}), AN_END)


def test_what_does_not_acquire_is_no_contradiction() -> None:
    """A search has every read acquire, and so have the schedules beside it; races of others contradict nobody."""
    (judged,) = judge(LOOSE, ["relaxed"])
    assert set(judged.verdicts.values()) == {kinds.VERIFIED, kinds.NO_VIOLATION}
    assert judged.schedules > JudgeBudget().schedules
    assert not judged.contradictions


@pytest.mark.parametrize(("found", "said"), [
    ("VVVV", 0), ("----", 0), ("V---", 0), ("-V--", 1), ("--V-", 1), ("---V", 1),
])  # fmt: skip
def test_schedules_that_miss_something_where_reads_do_not_acquire(
    found: str, said: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is found if all acquire, in the second place, must be if not; with a quiet after each, in the third and
    fourth, the same must be."""
    nothing = sample.Sampled("portfolio", 0, 60, 0, 0.0, {}, None)
    race = replace(nothing, schedules=3, violation=kinds.Violation(kinds.DATA_RACE, "", np.zeros(0, np.int64), "", 0))
    results = iter([nothing, *(race if each == "V" else nothing for each in found)])
    monkeypatch.setattr(judging, "_first", lambda *_: next(results))
    (judged,) = judge(LOOSE, ["relaxed"])
    assert sum(wrong.kind.startswith(f"{SAMPLING}: ") for wrong in judged.contradictions) == said


def test_dies_that_own_their_ends_may_mix_them() -> None:
    """Where an end is left out, and each die's part of it is another end's too, nobody finds anything."""
    mixed = small("choose | choose", dies=2, together=False)
    (judged,) = judge(ProgramCase(mixed, ANY_END), ["sc"])
    assert judged.verdicts["full"] == judged.verdicts[BRUTE_FORCE] == kinds.VERIFIED
    (judged,) = judge(ProgramCase(replace(mixed, together=True), ANY_END), ["sc"])
    assert judged.verdicts["full"] == kinds.WRONG_BITS
    assert judged.verdicts[BRUTE_FORCE] == "another end"


@pytest.mark.parametrize("flight_granules", [7, 8, 9, 16])
def test_a_witness_has_room_for_what_the_search_took_to_be_visible(flight_granules: int) -> None:
    """On the machine these are in flight, beside those that are explored; the run does not break off for them."""
    crowded = small(CROWDED, dies=2, flight_granules=flight_granules, together=False)
    (judged,) = judge(ProgramCase(crowded), ["relaxed"])
    assert judged.verdicts["full"] == judged.verdicts["breadth first"] == kinds.TORN_METADATA
    assert not judged.contradictions


@pytest.mark.boundscheck
def test_a_path_that_cannot_be_followed_again_ends_unfinished() -> None:
    """Where a die has too little room for what a path takes the search says so, and reads nothing beside its arrays."""
    reads = "ge 1.4 1; tentative m0.4 4 2; quiet; validate 0 4 2; ub_load 0 4"
    crowded = replace(
        small(f"{reads} | quiet; choose 0 0 1; skip_unless 0 0 1 | signals 0.4 1"), flight_granules=2, dies=3
    )
    (judged,) = judge(ProgramCase(crowded), ["fifo"])
    assert (judged.verdicts["full"], judged.contradictions) == (kinds.UNFINISHED, [])


def test_verified_beside_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches that verify what deadlocks are contradicted by brute force and by sampled schedules."""
    monkeypatch.setattr(judging, "searched", lambda trial, name, budget: Found(complete=True))
    verified = "full, less, merged, breadth first verified"
    assert kinds_of(LOCKED, "sc") == [f"{verified}; {BRUTE_FORCE} deadlock", f"{verified}; {SAMPLING} deadlock"]


def test_unfinished_contradicts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that met a limit has said nothing."""
    monkeypatch.setattr(judging, "searched", lambda trial, name, budget: Found(reason="more than 3 states"))
    assert not kinds_of(LOCKED, "sc", "relaxed")


def test_verified_under_relaxed_beside_a_violation_under_sc(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is verified under the weakest order is right under every order."""
    search = judging.searched

    def verified_under_relaxed(trial, name, budget):
        return Found(complete=True) if trial.pod.order == "relaxed" else search(trial, name, budget)

    monkeypatch.setattr(judging, "searched", verified_under_relaxed)
    assert "full verified under relaxed; full deadlock" in kinds_of(LOCKED, "relaxed", "sc")


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (Found(cs.DEADLOCK, kind=kinds.DEADLOCK, parts=[[0, 1]]), "brute force has no deadlock"),
        (Found(cs.WRONG_BITS, kind=kinds.WRONG_BITS, parts=[[0, 1]]), "brute force has no other end"),
        (Found(cs.RACE, kind=kinds.DATA_RACE, parts=[[0, 1]]), "the monitor sees nothing"),
        (Found(cs.RACE, kind=kinds.DATA_RACE, actions=np.array([1 << 30])), "replay ends with not enabled"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.kind,
)
def test_a_false_alarm(monkeypatch: pytest.MonkeyPatch, found: Found, wrong: str) -> None:
    """A violation that brute force does not have, or whose actions do not show it, is contradicted."""
    monkeypatch.setattr(judging, "searched", lambda trial, name, budget: found)
    assert f"full {found.kind}: {wrong}" in kinds_of(RIGHT, "relaxed")


TWICE = ProgramCase(small("store 1.4 1; quiet; store 1.4 2", dies=2), AN_END, fault="duplicate:0-1")


def test_what_a_fault_spoils_is_no_contradiction(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that comes again spoils bytes: brute force finds it and proves nothing; who calls it proved is wrong."""
    assert not kinds_of(TWICE, "relaxed")
    monkeypatch.setattr(judging, "adds_nothing", lambda fault, may_block: True)
    assert "duplicate proved; brute force: wrong bits" in kinds_of(TWICE, "relaxed")
    assert "duplicate proved; sampling wrong bits" in kinds_of(TWICE, "relaxed")


@pytest.mark.parametrize("fault", ["stop:die0", "cut:0-1", "stall:0-1", "stop:die2", "cut:0-2", "corrupt:1-0"])
def test_what_a_fault_cannot_spoil(fault: str) -> None:
    """Stop, cut and stall are proved, a link that nothing goes over spoils nothing, dies that are not there neither."""
    assert not kinds_of(replace(TWICE, fault=fault), "sc", "fifo", "relaxed")


def test_who_owns_bytes_that_a_stop_leaves_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stop is an action of brute force: were a wrong end verified without it, it would be found with it."""
    late = ProgramCase(small("quiet | store 0.1 1; quiet", together=False), AN_END, fault="stop:die1")
    monkeypatch.setattr(judging, "searched", lambda trial, name, budget: Found(complete=True))
    monkeypatch.setattr(judging, "_wrong_reach", lambda scene, found: "")
    assert "stop proved; brute force: wrong bits" in kinds_of(late, "relaxed")
