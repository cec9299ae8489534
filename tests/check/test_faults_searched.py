"""Faults in the exhaustive search: one at any moment, every schedule; and brute force, with the fault as an action."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from xccl_emu.check import verdict
from xccl_emu.check.check import check
from xccl_emu.check.faults import is_fault, parse
from xccl_emu.check.search import every_fault
from xccl_emu.check.search.every_fault import FaultySearch
from xccl_emu.check.search.exhaustive import Search
from xccl_emu.check.search.setup import Setup
from xccl_emu.check.trial import Checkable
from xccl_emu.guards.campaign.generate import draw
from xccl_emu.guards.campaign.judge import BUDGET, Scene, outcome_of, verdict_of
from xccl_emu.lang import kernel, poll_eq, quiet, store
from xccl_emu.machine import small_pod
from xccl_emu.protocol import Bench, protocol
from xccl_emu.protocol.case import Case
from xccl_emu.protocol.registry import names, proofs_of
from xccl_emu.protocols.pull.case import DispatchCase
from xccl_emu.protocols.sendrecv.case import SendRecvCase

from .small import waiting
from .test_faults import HARMLESS, ONE_SLOT, TWO_SLOTS
from .traps import OK, Trap
from .witness_support import shows_again

SENDRECV = SendRecvCase(slots=1, chunks=2, granules=1)
DISPATCH = DispatchCase(ranks=2, tokens=1, granules=1, rounds=1)
PAGE = Path(__file__).parents[2] / "docs" / "records" / "proofs.md"


def smallest(name: str) -> Case:
    """The proof of a protocol that has the fewest states, as the page of proofs says."""
    rows = re.findall(rf"^\| {name}: (.*?) \| verified \| ([\d,]+)", PAGE.read_text("utf-8"), re.MULTILINE)
    return proofs_of(name)[min(rows, key=lambda row: int(row[1].replace(",", "")))[0]]


def searched(case: Checkable, fault: str, order: str = "relaxed") -> verdict.Verdict:
    """The verdict of the exhaustive method."""
    return check(case, order=order, fault=fault, policy="exhaustive", seconds=60)


# ---- what protocols declare


@pytest.mark.parametrize("fault", HARMLESS)
@pytest.mark.parametrize("order", ["sc", "fifo", "relaxed"])
@pytest.mark.parametrize("case", [SENDRECV, DISPATCH], ids=["sendrecv", "dispatch"])
def test_tolerated_faults_are_proved(case: Checkable, order: str, fault: str) -> None:
    """A die that stops, a link that is cut or late: every schedule, the fault at any moment, under each order."""
    found = searched(case, fault, order)
    if order == "sc" and "stop" not in fault:
        assert found.verdict == verdict.UNSUPPORTED
        return
    assert (found.verdict, found.policy, found.fault) == (verdict.VERIFIED, "exhaustive", fault)
    assert f"a run under {fault.partition(':')[0]} is" in found.reason


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_each_tolerated_fault_is_proved_of_the_smallest_configuration(name: str) -> None:
    """Every fault that a shipped protocol declares to tolerate, of the first die, its block that may be lost, or the
    link between the first two."""
    case = smallest(name)
    trial = case.build("relaxed")
    assert trial.tolerated
    where = {"stop": "die0", "revive": "die0", "lose": ":".join(["die0", *(name for name, *_ in trial.pod.losses[:1])])}
    for kind in trial.tolerated:
        found = searched(case, f"{kind}:{where.get(kind, '0-1')}")
        assert found.verdict == verdict.VERIFIED, (kind, found.reason)


def test_what_is_wrong_without_a_fault_is_wrong_with_it() -> None:
    """The violation is that of the search, and it is said that no fault is needed."""
    found = check(SENDRECV, fault="stop:die0", policy="exhaustive", without="data before tail")
    assert (found.violation.kind, found.reason) == (verdict.DATA_RACE, "without the fault")


# ---- what the fault adds, by brute force


def test_a_duplicate_where_answers_look_alike_and_where_they_do_not() -> None:
    """An answer that comes twice: proved harmless where each has its place, and else shown by a schedule."""
    harmless = searched(TWO_SLOTS, "duplicate:0-1")
    assert (harmless.verdict, "brute force, the fault at every moment" in harmless.reason) == (verdict.VERIFIED, True)
    found = searched(ONE_SLOT, "duplicate:0-1")
    assert found.violation.kind == verdict.WRONG_BITS
    assert shows_again(ONE_SLOT.build("relaxed"), found.violation, found.violation.actions)
    assert any(code < 0 for code in found.violation.actions.tolist())


def test_a_flipped_bit_is_found() -> None:
    """One bit of one write of 256: brute force tries each, and the schedule replays."""
    found = searched(TWO_SLOTS, "corrupt:0-1")
    assert found.violation.kind == verdict.WRONG_BITS
    assert shows_again(TWO_SLOTS.build("relaxed"), found.violation, found.violation.actions)


def test_a_flipped_bit_is_found_anywhere_in_a_write_of_two_granules() -> None:
    """The last of 512 bits that become visible at once are flipped too, and the schedule is kept and replays."""
    programs = "ub_store 1 0; out 1.0 0 4 | | ge 1.0 1"  # the last word of what is written is to stay 0
    wide = Trap("a write of two granules", programs, OK, {0o17: 0}, owners=(2,), cores=2, atomic_bytes=64)
    found = searched(wide, "corrupt:0-1")
    assert found.violation.kind == verdict.WRONG_BITS
    assert shows_again(wide.build("relaxed"), found.violation, found.violation.actions)
    assert all(is_fault(code) for code in found.violation.actions.tolist() if code < 0)


@pytest.mark.parametrize("fault", ["stop:die0", "cut:0-1"])
@pytest.mark.parametrize(("how", "kind"), [("wait", verdict.DEADLOCK), ("look", verdict.LIVELOCK)])
def test_who_may_not_block_is_shown_to_block(how: str, kind: str, fault: str) -> None:
    """Where no core may wait for ever the fault is searched, and the schedule that blocks replays."""
    assert searched(waiting(how), fault).verdict == verdict.VERIFIED
    found = searched(waiting(how, 0), fault)
    assert found.violation.kind == kind
    assert any(code < 0 for code in found.violation.actions.tolist())


def test_who_waits_for_nobody_does_not_block() -> None:
    """A core of another die goes on to its end: proved by brute force, since a blocked run would be a violation."""
    found = searched(waiting("wait", 0), "stop:die1")
    assert found.verdict == verdict.VERIFIED
    assert found.recovery == verdict.Recovery(0, verdict.SHARED)
    assert searched(waiting("wait", 0), "cut:1-0").recovery == verdict.Recovery(6, verdict.ALL)


def test_a_moment_is_for_drawn_schedules() -> None:
    """A search by brute force takes every moment, and says so where one is asked for."""
    found = searched(TWO_SLOTS, "duplicate:0-1@1")
    assert (found.verdict, "leave out the @1" in found.reason) == (verdict.UNSUPPORTED, True)


def test_a_search_under_a_fault_that_meets_its_limit_is_unfinished() -> None:
    """What was visited proves nothing."""
    found = check(TWO_SLOTS, fault="duplicate:0-1", policy="exhaustive", max_states=40)
    assert (found.verdict, "verified without the fault" in found.reason) == (verdict.UNFINISHED, True)


# ---- the argument, attacked


@kernel
def returns_early(out):
    """Own a word that another core writes."""
    yield store(out, 0)
    yield quiet()


@kernel
def writes_twice(out, flag):
    """Write it behind its owner's return, first wrong, then right."""
    yield poll_eq(flag, 0)
    yield store(out, 1)
    yield quiet()
    yield store(out, 0)
    yield quiet()


@protocol
def spoiled_in_between(bench: Bench) -> None:
    """Bytes of an owner that has returned are wrong for a while, and right at the end."""
    pod = bench.pod(small_pod(2, app_bytes=32, meta_bytes=64, managed_bytes=0))
    bench.expect(pod.meta(1), np.zeros(1, np.int64), "word", owners="die1")
    pod.launch(writes_twice, 0, [0], {"out": pod.meta(1), "flag": pod.meta(0)}, [pod.grant_meta("rw")])
    pod.launch(returns_early, 1, [0], {"out": pod.meta(1)}, [pod.grant_meta("rw")])


def test_brute_force_takes_the_memory_that_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a limit of its own if nobody says one, and no other if somebody does; it says how far it is."""
    monkeypatch.setattr(every_fault, "_BYTES_USUAL", 1 << 12)
    seen = list[int]()
    usual, given = (
        check(
            TWO_SLOTS, fault="duplicate:0-1", policy="exhaustive", max_bytes=most,
            progress=lambda _, states, *more: seen.append(states),
        )
        for most in (None, 1 << 28)
    )  # fmt: skip
    assert usual.verdict == verdict.UNFINISHED
    assert "by brute force" in usual.reason
    assert (given.verdict != verdict.UNFINISHED, seen[-1]) == (True, given.states)


def test_bytes_that_are_wrong_for_a_while_behind_a_return() -> None:
    """A stop could leave them so; but a return that nobody sees may come just then, which is found without a stop."""
    found = searched(spoiled_in_between(), "stop:die0")
    assert (found.violation.kind, found.reason) == (verdict.WRONG_BITS, "without the fault")


@pytest.mark.parametrize("fault", ["stop:die0", "stop:die1", "cut:0-1", "cut:1-0"])
@pytest.mark.parametrize("order", ["fifo", "relaxed"])
def test_brute_force_agrees_on_a_shipped_protocol(order: str, fault: str) -> None:
    """With the fault as an action, nothing reduced, each state judged: nothing wrong, as the argument says."""
    found = FaultySearch(SENDRECV.build(order), parse(fault), max_states=50_000, seconds=60).run()
    assert (found.reason, found.actions) == ("", None)
    assert found.states > 500


@pytest.mark.parametrize("part", range(4))
def test_brute_force_agrees_on_random_programs(part: int) -> None:
    """Programs that are verified without a fault, of owners and no caches: no stop and no cut breaks them."""
    compared = 0
    for number in range(25 * part, 25 * part + 25):
        case = draw(15, number)
        case = replace(case, small=replace(case.small, together=False, scalar_cache=0))
        outcome = outcome_of(case, Scene(case.small, "sc", None, BUDGET))
        for order in ("sc", "fifo", "relaxed"):
            search = Search(Setup(case.small.trial(order, outcome), True), max_states=5_000, seconds=2, progress=None)
            found = search.run()
            if verdict_of(found) != verdict.VERIFIED:
                continue
            for fault in ("stop:die0", "stop:die1", "cut:0-1") if case.small.n_dies > 1 else ("stop:die0",):
                if order == "sc" and fault == "cut:0-1":
                    continue
                trial = case.small.trial(order, outcome)
                broken = FaultySearch(trial, parse(fault), max_states=2_000, seconds=2).run()
                assert broken.actions is None, (number, order, fault, case)
                compared += not broken.reason
    assert compared > 5
