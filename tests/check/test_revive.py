"""A die that stopped begins again: what of it is there, in every judge; and who trusts what was said before."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from xccl_emu.base.errors import ReplayError
from xccl_emu.check import verdict as kinds
from xccl_emu.check.check import check
from xccl_emu.check.device import fault_codes
from xccl_emu.check.device.fault_actions import act_fault
from xccl_emu.check.faults import Fault, encode, parse
from xccl_emu.check.sampling.sample import replay, sample
from xccl_emu.check.search.every_fault import FaultySearch
from xccl_emu.check.trial import Expected, Judge
from xccl_emu.check.verdict import Verdict
from xccl_emu.guards.campaign import judge
from xccl_emu.guards.campaign.generate import draw
from xccl_emu.guards.campaign.programs import ORDERS, Small, program
from xccl_emu.lang import choose, dcci, kernel, load, poll_ge, put, quiet, store
from xccl_emu.machine import small_pod
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.actions import choices, nth_choice
from xccl_emu.machine.device.policies import n_actors, nth_actor
from xccl_emu.machine.device.single import act_once
from xccl_emu.machine.driver import begin
from xccl_emu.machine.explore import standing
from xccl_emu.machine.pod import Pod
from xccl_emu.testing import Bench, protocol, witness_text

from .witness_support import shows_again

OVER, KEPT = 1 << 10, 8
TRUSTS, FORGETS, ASKS_ON = 1, 2, 3
"""Bugs of who asks: it takes an answer of any life; does not keep its life; asks again when all is over."""


@kernel
def ask(own, request, slot, out, bug):
    """Ask for one of two things, in each life with a higher number; ``own`` [2]: the life, and is all over?"""
    over = 0
    yield dcci(own)
    if bug != ASKS_ON:
        over = yield load(own + KEPT)
    if over == 0:
        life = yield load(own)
        life += 1
        yield store(own, life)
        yield dcci(own, sync="life out of the cache")
        if bug != FORGETS:
            yield quiet(sync="life kept")
        thing = yield choose(2)
        yield put(request, life * 8 + thing)
        yield poll_ge(slot, 1 if bug == TRUSTS else life)
        yield dcci(slot)
        got = yield load(slot + 8)
        yield store(out, thing)
        yield store(out + 8, got)
        yield dcci(out)
        yield quiet(sync="thing kept")
        yield store(own + KEPT, 1)
        yield dcci(own)
        yield quiet(sync="end kept")
    yield put(request, OVER * 8)


@kernel
def answer(request, slot):
    """Answer each request with its life and what was asked for, in one granule."""
    last = 0
    while last < OVER:
        yield poll_ge(request, 8 * last + 8)
        yield dcci(request)
        asked = yield load(request, sync="request")
        last = asked // 8
        if last < OVER:
            yield put(slot, last, 100 + asked % 8, 0, 0)
            yield quiet(sync="answers in turn")


@protocol
def asking(bench: Bench, bug: int = 0, lines: int = 0) -> None:
    """Die 1 asks die 0; that it got what it asked for is right, and that all return."""
    spec = small_pod(2, app_bytes=64, meta_bytes=128, managed_bytes=0, ub_bytes=32, scalar_cache=lines)
    pod = bench.pod(spec)
    own = bench.filled(1, np.zeros(4, np.int64), "own")
    out = pod.alloc(1, 16)
    bench.judged_by(_is_thing, out, name="out", owners="die1")
    bench.tolerates("revive", may_block=False)
    args = {"own": own.address, "request": pod.meta(0), "slot": pod.meta(1), "out": out.address, "bug": bug}
    grants = [pod.grant_meta("rw"), pod.grant(own, "rw"), pod.grant(out, "rw")]
    pod.launch(ask, 1, [0], args, grants)
    pod.launch(answer, 0, [0], {"request": pod.meta(0), "slot": pod.meta(1)}, [pod.grant_meta("rw")])


def _is_thing(out: Any) -> bool:
    thing, got = out.view(np.int64)
    return bool(got == 100 + thing)


def revived(case: Any, policy: str = "exhaustive", order: str = "relaxed", **more: Any) -> Verdict:
    """The verdict where die 1 begins again."""
    return check(case, fault="revive:die1", policy=policy, order=order, schedules=400, seconds=60, **more)


# ---- small protocols


@pytest.mark.parametrize("order", ORDERS)
def test_who_numbers_its_lives_may_begin_again(order: str) -> None:
    """At any moment, in every schedule: it gets what it asks for, and all return."""
    found = revived(asking(), order=order)
    assert found.verdict == kinds.VERIFIED, found.reason
    assert int(re.search(r"no race in ([\d,]+) schedules", found.reason)[1].replace(",", "")) > 100
    assert revived(asking(), "portfolio", order).verdict == kinds.NO_VIOLATION


@pytest.mark.parametrize(
    ("bug", "wrong"),
    [(TRUSTS, (kinds.WRONG_BITS, kinds.TORN_METADATA)), (FORGETS, (kinds.WRONG_BITS,)), (ASKS_ON, (kinds.DEADLOCK,))],
)
def test_what_is_wrong_if_a_die_begins_again(bug: int, wrong: tuple[str, ...]) -> None:
    """Who trusts an answer from before, forgets its life, or asks a die that has gone; right where nothing breaks."""
    case = asking(bug=bug)
    assert check(case).verdict == kinds.VERIFIED
    for policy in ("exhaustive", "portfolio"):
        found = revived(case, policy)
        assert found.violation is not None, policy
        assert found.violation.kind in wrong
        assert shows_again(case.build("relaxed"), found.violation)
        assert "die1 had stopped, and begins again" in witness_text(case, found)


def test_what_is_in_a_cache_is_lost() -> None:
    """A life that is not written back is not kept; other faults go without caches."""
    case = asking(lines=4)
    assert revived(case, "portfolio").verdict == kinds.NO_VIOLATION
    found = revived(case, "portfolio", without="life out of the cache")
    assert found.violation is not None
    assert found.violation.kind == kinds.WRONG_BITS
    assert check(case, fault="stop:die1", policy="portfolio").verdict == kinds.UNSUPPORTED


def test_a_race_with_a_life_before_is_none_and_with_others_is_one() -> None:
    """A word that one die writes in each of its lives; what another die reads, it writes once more."""
    alone = Small((program("store 0.0 1; quiet"), program("quiet")), dies=2)
    heard = Small((program("store 0.0 1; quiet; store 1.4 1"), program("ge 1.4 1; load 0.0")), dies=2)
    for order in ORDERS:
        assert sample(alone.trial(order, None), schedules=200, fault=parse("revive:die0")).violation is None
        found = sample(heard.trial(order, None), schedules=400, fault=parse("revive:die0")).violation
        assert found is not None
        assert found.kind in (kinds.DATA_RACE, kinds.TORN_METADATA)


# ---- one action is enough, and of what it depends on


class Walk:
    """States of a program, one action after the other."""

    def __init__(self, small: Small, order: str) -> None:
        self.pod: Pod = small.pod(order)
        begin(self.pod)

    def act(self, code: int) -> bool:
        """Take an action, or what breaks."""
        mem, st = self.pod.memory, self.pod.state
        if code < 0:
            return bool(act_fault(mem, st, code))
        return bool(act_once(mem, st, code >> ms.CHOICE_BITS, code & ms.CHOICE_ALL))

    def all(self) -> list[int]:
        """All actions that may be possible."""
        st, found = self.pod.state, list[int]()
        for a in range(n_actors(st)):
            actor = nth_actor(st, a)
            found += [actor << ms.CHOICE_BITS | nth_choice(st, actor, n) for n in range(choices(st, actor))]
        return found

    def die(self, code: int) -> tuple[int, bool]:
        """Whose action it is, and is it a delivery?"""
        actor, spec = code >> ms.CHOICE_BITS, self.pod.spec
        core = actor // ms.ACTORS_PER_CORE
        return (core // spec.cores_per_die, False) if core < spec.n_cores else (
            actor - spec.n_cores * ms.ACTORS_PER_CORE, True)  # fmt: skip

    def after(self, codes: list[int], at: tuple[Any, Any]) -> tuple[int, int] | None:
        """Return the state after actions; None if one is not possible, or ends the run."""
        self.pod.memory[:], self.pod.state[:] = at
        with np.errstate(over="ignore"):
            taken = all([self.act(code) for code in codes])
            return standing(self.pod) if taken and not self.pod.state[ms.ERROR] else None


def walks(order: str) -> Iterator[tuple[Walk, tuple[Any, Any], list[int]]]:
    """States on the way of some drawn programs, each with actions that follow."""
    rng = np.random.default_rng(1)
    for number in range(12):
        small = draw(5, number).small
        if small.n_dies < 2 or small.cpu:
            continue
        walk = Walk(small, order)
        for _ in range(25):
            at = walk.pod.memory.copy(), walk.pod.state.copy()
            possible = [code for code in walk.all() if walk.after([code], at)]
            walk.pod.memory[:], walk.pod.state[:] = at
            if not possible:
                break
            yield walk, at, possible
            walk.pod.memory[:], walk.pod.state[:] = at
            walk.act(possible[rng.integers(len(possible))])


@pytest.mark.parametrize("order", ORDERS)
def test_a_stop_and_a_later_begin_are_one_action(order: str) -> None:
    """After the stop of a die, what others do and what becomes visible, it begins in the state that it does without."""
    compared, again, stop = 0, encode(fault_codes.REVIVE, 0), encode(fault_codes.STOP, 0)
    for walk, at, possible in walks(order):
        others = [code for code in possible if walk.die(code) != (0, False)]
        for code in others:
            one, other = walk.after([code, again], at), walk.after([stop, code, again], at)
            stopped = walk.after([stop], at)
            assert one == other or stopped is None, code
            compared += one is not None and stopped is not None
    assert compared > 50


@pytest.mark.parametrize("order", ORDERS)
def test_of_what_a_begin_depends_on(order: str) -> None:
    """Actions of other dies: both orders lead to one state.  Its own are not possible any more, or differ."""
    independent, dependent, again = 0, 0, encode(fault_codes.REVIVE, 0)
    for walk, at, possible in walks(order):
        for code in possible:
            one, other = walk.after([code, again], at), walk.after([again, code], at)
            if walk.die(code)[0] != 0:
                assert one == other, code
                independent += one is not None
            dependent += walk.die(code)[0] == 0 and one != other
    assert min(independent, dependent) > 50


# ---- texts, campaigns


@pytest.mark.parametrize(
    ("text", "fault"),
    [("revive:die1", Fault("revive", 1)), ("revive:die0@7", Fault("revive", 0, at=7))],
)
def test_as_text(text: str, fault: Fault) -> None:
    """It is read, and printed."""
    assert parse(text) == fault
    assert parse(str(fault)) == fault


def test_a_die_without_a_kernel_does_not_begin_again() -> None:
    """A schedule that says so fits nothing; nor one with a die that there is not."""
    case = asking()
    for die in (2, 9):
        with pytest.raises(ReplayError, match="action 0 of it is not enabled"):
            replay(case.build("relaxed"), np.array([encode(fault_codes.REVIVE, die)], np.int64))


@pytest.mark.parametrize(
    ("texts", "ends"),
    [
        (("add 1.4 1; quiet", "quiet"), {1, 2}),  # what is added twice
        (("load 0.0; skip_if 0 1 3; ub_store 7 0; store 0.0 1; quiet; out 1.4 0", "quiet"), {7, 0}),
    ],
)
def test_ends(texts: tuple[str, ...], ends: set[int]) -> None:
    """A word of die 1 in the end: an addition is made once or twice; memory is kept, and the data buffer is not."""
    small = Small(tuple(map(program, texts)), dies=2)
    trial = small.trial("relaxed", None)
    any_end = Judge("end", ((trial.pod.meta(1) + 32, 8),), lambda *_: True)
    trial = replace(trial, expected=(Expected("end", trial.pod.meta(1) + 32, b"", judge=any_end),))
    assert not FaultySearch(trial, parse("revive:die0"), max_states=20_000, seconds=30).run().reason
    assert {int.from_bytes(end, "little") for end in any_end.accepted} == ends


def test_the_campaign_draws_it() -> None:
    """Judges agree on some of them."""
    cases = [case for number in range(14, 300, 16) if (case := draw(7, number)).fault.startswith("revive")]
    assert len(cases) > 10
    for case in cases[:8]:
        assert not [wrong for found in judge.judge(case, ("relaxed",)) for wrong in found.contradictions], str(case)
