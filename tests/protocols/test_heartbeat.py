"""Heartbeats: a master whose executor hangs is silent, no other is called so, and how long that takes to be known."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.base.errors import ConfigError
from xccl_emu.check.check import check
from xccl_emu.check.verdict import DEADLOCK, VERIFIED, VIOLATION
from xccl_emu.machine.state import ORDERS
from xccl_emu.protocol import Case
from xccl_emu.protocols.serving.heartbeat import NONE, Heartbeat
from xccl_emu.timing.run import VirtualTime

IMPATIENT, PATIENT = Heartbeat(), Heartbeat(masters=2, turns=2, patient=1)


@settings(max_examples=25, deadline=None)
@given(*(st.integers(1, most) for most in (4, 3, 4, 4)), st.integers(NONE, 3), st.booleans(), st.sampled_from(ORDERS))
def test_who_hangs_is_silent_and_no_one_else(
    masters: int, executors: int, beats: int, turns: int, hangs: int, patient: bool, order: str
) -> None:
    """For drawn sizes and orders, on some drawn schedules: no false alarm, and no answer behind a hang."""
    case = Heartbeat(masters, executors, beats, turns, min(hangs, turns - 1), int(patient))
    assert check(case, policy="random", schedules=3, order=order).violation is None


@pytest.mark.parametrize("order", ["sc", "fifo", "unordered"])
@pytest.mark.parametrize("what", Heartbeat.proofs())
def test_proved_under_other_orders(what: str, order: str) -> None:
    """Not under `relaxed` alone (`tests/cases/test_verified.py`)."""
    assert check(Heartbeat.proofs()[what], order=order, seconds=60).verdict == VERIFIED


def test_a_patient_shell_waits_for_ever() -> None:
    """If an executor stops that does not say so; with time-outs at any moment all others return (`test_detection`)."""
    blocked = replace(IMPATIENT, patient=1, hangs=NONE)
    assert check(blocked, fault="stop:die0", schedules=60).ended["blocked"] > 0


@pytest.mark.parametrize("fault", ["stop:cpu1", "stop:cpu2", "cut:cpu1-cpu0", "stall:cpu1-cpu0"])
@pytest.mark.parametrize("case", [PATIENT, replace(PATIENT, hangs=1)], ids=["hangs", "later"])
def test_masters_that_stop_mislead_nobody(case: Case, fault: str) -> None:
    """Exhaustively: whatever stops or is cut, no alarm is false, as far as time-outs are right."""
    if isinstance(case, Heartbeat) and f"cpu{case.masters + 1}" in fault:
        return
    assert check(case, fault=fault, policy="exhaustive", seconds=60).verdict == VERIFIED


@pytest.mark.parametrize("without", ["told", "seen", "answer in", "reply in", "hang before time-out"])
def test_what_it_needs_is_needed(without: str) -> None:
    """Without it a schedule shows what goes wrong."""
    assert check(PATIENT, without=[without]).verdict == VIOLATION


def test_an_impatient_shell_needs_its_time_out() -> None:
    """Else it waits for a master whose executor hangs."""
    found = check(IMPATIENT, without=["time-out"])
    assert found.violation is not None
    assert found.violation.kind in (DEADLOCK, "livelock")


@pytest.mark.parametrize("time_out_us", [20.0, 200.0])
def test_silence_is_known_when_the_time_is_up(time_out_us: float) -> None:
    """In virtual time, by a timer in the shell: the time-out and less than three microseconds."""
    trial = Heartbeat(masters=2).build("sc")
    clock = trial.pod.policy = VirtualTime(timers_us={"time-out": time_out_us})
    trial.pod.run()
    shell = trial.pod.cpu(0) * trial.pod.spec.cores_per_die
    assert time_out_us < clock.timing.finished_us[shell] < time_out_us + 3
    silent = next(each.address for each in trial.labels if each.name == "cpu0.silent")
    assert trial.pod.span(silent, 8)[0] == 1, "the first master, and no other"


def test_a_hang_after_the_last_turn_is_refused() -> None:
    """The error names both sizes."""
    with pytest.raises(ConfigError, match="hangs=2: must be less than turns=2"):
        Heartbeat(turns=2, hangs=2)
