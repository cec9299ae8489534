"""How runs end in which something broke: right, in a declared error, blocked; and protocols that may not block."""

from pathlib import Path

import numpy as np
import pytest

from xccl_emu.check import verdict
from xccl_emu.check.check import check
from xccl_emu.check.witness.replay_file import Witness
from xccl_emu.machine import small_pod
from xccl_emu.testing import Bench, Case, protocol

from .small import wait, waiting
from .witness_support import shows_again


@pytest.mark.parametrize(("how", "end"), [("wait", "blocked"), ("look", "blocked"), ("fail", "declared error")])
def test_a_verdict_says_how_runs_ended(how: str, end: str) -> None:
    """A die that stops at once: each run in which it came to that ended in the one way that is left."""
    found = check(waiting(how), fault="stop:die0@0", schedules=24)
    assert found.verdict == verdict.NO_VIOLATION
    assert found.ended == {"right": 0, "declared error": 0, "blocked": 0, "refused by the machine": 0} | {end: 24}
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
