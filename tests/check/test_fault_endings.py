"""How runs end in which something broke: right, in a declared error, blocked; and protocols that may not block."""

from pathlib import Path

import numpy as np
import pytest

from xccl_emu.check import verdict
from xccl_emu.check.check import check
from xccl_emu.check.witness.replay_file import Witness
from xccl_emu.lang import atomic_add, choose, kernel, load, poll_eq, put, quiet
from xccl_emu.machine import small_pod
from xccl_emu.testing import Bench, Case, protocol

from .small import wait, waiting
from .witness_support import shows_again


@pytest.mark.parametrize(("how", "end"), [("wait", "blocked"), ("look", "blocked"), ("fail", "declared error")])
def test_a_verdict_says_how_runs_ended(how: str, end: str) -> None:
    """A die that stops at once: each run in which it came to that ended in the one way that is left."""
    found = check(waiting(how), fault="stop:die0@0", schedules=24)
    assert found.verdict == verdict.NO_VIOLATION
    ends = ("right", "declared error", "blocked", "refused by the machine", "given up at the link")
    assert found.ended == dict.fromkeys(ends, 0) | {end: 24}
    assert found.to_json()["ended"] == found.ended
    assert found.declared == ({"9 (gave up)": 24} if how == "fail" else {})
    assert "it came to the fault in 24 of 24 schedules: 0 ended right" in found.reason


def test_all_ends_of_a_fault_add_up() -> None:
    """At a drawn moment some runs end right and some wait; their numbers are those in which it came to the fault."""
    found = check(waiting(), fault="stop:die0", schedules=60)
    assert found.ended["right"] > 0
    assert found.ended["blocked"] > 0
    assert f"it came to the fault in {sum(found.ended.values())} of 60" in found.reason
    stalled = check(waiting(), fault="stall:0-1", schedules=12)
    assert stalled.reason.startswith("of 12 schedules: 12 ended right, 0 in a declared error, 0 blocked; ")


@pytest.mark.parametrize(("how", "kind"), [("wait", verdict.DEADLOCK), ("look", verdict.LIVELOCK)])
def test_a_protocol_may_rule_out_to_block(how: str, kind: str, tmp_path: Path) -> None:
    """Then who waits for ever after a fault is a violation, with a witness that replays."""
    case = waiting(how, 0)
    found = check(case, fault="stop:die0", schedules=60)
    assert found.violation.kind == kind
    assert "and no core waits for ever" in found.reason
    Witness.of(case, found.violation, found.order, (), found.fault).save(tmp_path / "w.json")
    witness = Witness.load(tmp_path / "w.json")
    assert shows_again(witness.trial(case), found.violation, witness.actions)
    assert any(code < 0 for code in witness.actions.tolist())


def test_who_gives_up_does_not_block() -> None:
    """A declared error is an end."""
    assert check(waiting("fail", 0), fault="cut:0-1", schedules=60).verdict == verdict.NO_VIOLATION


@kernel
def tell(word, counter, back, how):
    """Write over a link, then return, or come past a quiet, or wait for an atomic over it, or for an answer."""
    yield put(word, 1)
    if how == 1:
        yield quiet()
    if how == 2:
        yield atomic_add(counter, 1)
    if how == 3:
        yield poll_eq(back, 1)


@kernel
def hear(word, back):
    """Ask whether the time is up until the word is there or it is, and answer."""
    late = 0
    seen = yield load(word, sync="seen")
    while seen == 0 and late == 0:
        late = yield choose(2, sync="time-out")
        seen = yield load(word, sync="seen")
    yield put(back, 1)


@protocol
def telling(bench: Bench, how: int = 0) -> None:
    """Die 0 writes to die 1, which may take it for cut off; no core may wait for ever."""
    pod = bench.pod(small_pod(2, app_bytes=32, meta_bytes=96, managed_bytes=0), draw_answers=True)
    bench.tolerates("cut", may_block=False)
    args = {"word": pod.meta(1), "counter": pod.meta(1, 32), "back": pod.meta(0), "how": how}
    pod.launch(tell, 0, [0], args, [pod.grant_meta("rw")])
    pod.launch(hear, 1, [0], {"word": pod.meta(1), "back": pod.meta(0)}, [pod.grant_meta("rw")])


@pytest.mark.parametrize("order", ["fifo", "relaxed", "unordered"])
@pytest.mark.parametrize("how", range(4))
def test_writes_over_a_link_that_is_cut_are_given_up(how: int, order: str) -> None:
    """A return, a quiet and an atomic end in an error, which is an end; whoever waits for an answer waits for it."""
    told = check(telling(how), fault="cut:0-1", policy="exhaustive", order=order)
    assert (told.verdict, told.recovery is None) == (verdict.VERIFIED, False), told.reason
    assert "0 blocked" in told.reason
    assert " given up at the link" in told.reason
    drawn = check(telling(how), fault="cut:0-1@0", schedules=24, order=order)
    assert (drawn.ok, drawn.ended["given up at the link"]) == (True, 24)
    waits = check(telling(3), fault="cut:1-0", policy="exhaustive", order=order)
    assert waits.violation.kind == verdict.DEADLOCK
    assert "polls" in waits.violation.message


@protocol
def counting_on(bench: Bench) -> None:
    """A core waits for what its metadata hold from the start."""
    pod = bench.pod(small_pod(1, app_bytes=64, meta_bytes=64, managed_bytes=0))
    flag = bench.set_meta(0, 32, np.array([1]), "flag")
    pod.launch(wait, 0, [0], {"flag": flag}, [pod.grant_meta("r")])


def test_metadata_may_hold_values_at_the_start() -> None:
    """In every run, sampled or searched, and in every build."""
    case: Case = counting_on()
    for policy in ("portfolio", "exhaustive"):
        assert check(case, policy=policy, schedules=12).ok
    trial = case.build("sc")
    assert trial.pod.memory[trial.pod.meta(0, 32)] == 1
    assert [label.name for label in trial.labels] == ["die0.flag"]
