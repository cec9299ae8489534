"""Dies that stop, links that are cut or stalled, writes that come twice or wrong: what a protocol then still keeps."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xccl_emu.base.errors import ConfigError, ReplayError
from xccl_emu.check import verdict
from xccl_emu.check.check import check
from xccl_emu.check.device import fault_codes as faults
from xccl_emu.check.faults import Fault, decode, encode, is_fault, parse
from xccl_emu.check.sampling.sample import replay, sample
from xccl_emu.check.trial import Checkable
from xccl_emu.check.witness.exported import mermaid, perfetto
from xccl_emu.check.witness.replay_file import Witness
from xccl_emu.lang import kernel, load, poll_eq, put, quiet, store
from xccl_emu.machine import small_pod
from xccl_emu.machine.device.layout import ACTORS_PER_CORE
from xccl_emu.protocol.registry import make
from xccl_emu.protocols.pull.case import DispatchCase
from xccl_emu.protocols.sendrecv.case import AsyncCase, SendRecvCase
from xccl_emu.testing import Bench, protocol

from .small import waiting
from .witness_support import printed, shows_again

SENDRECV = SendRecvCase(slots=2, chunks=4, granules=2)
DISPATCH = DispatchCase(ranks=2, tokens=1, granules=2, rounds=2)
BOTH = pytest.mark.parametrize("scenario", [SENDRECV, DISPATCH], ids=["sendrecv", "dispatch"])
HARMLESS = ("stop:die0", "stop:die1", "cut:0-1", "cut:1-0", "stall:0-1", "stall:1-0")


# ---- small protocols


@kernel
def answer(target, request, n, apart):
    """Answer each request with the next chunk, its word and a flag in one granule: the same each time, or ``apart``."""
    for i in range(n):
        yield poll_eq(request, i + 1)
        yield put(target + apart * i, 1, 100 + i, 0, 0)
        yield quiet()


@kernel
def ask(slot, request, out, n, apart):
    """Ask for chunk after chunk; in one slot whatever has a flag is taken, so also an old answer that comes again."""
    for i in range(n):
        yield store(request, i + 1)
        yield poll_eq(slot + apart * i, 1)
        word = yield load(slot + apart * i + 8)
        yield store(out + 8 * i, word)
        if apart == 0:
            yield store(slot, 0)
            yield quiet()
    yield quiet()


@protocol
def asking(bench: Bench, apart: int = 0) -> None:
    """Die 1 asks die 0 for two chunks."""
    pod = bench.pod(small_pod(2, app_bytes=64, meta_bytes=256, managed_bytes=0))
    out = bench.wanted(1, np.array([100, 101]), "words", owners="die1")
    both = {"request": pod.meta(0), "n": 2, "apart": 32 * apart}
    grants = [pod.grant_meta("rw"), pod.grant(out, "w")]
    pod.launch(answer, 0, [0], {"target": pod.meta(1), **both}, grants)
    pod.launch(ask, 1, [0], {"slot": pod.meta(1), "out": out.address, **both}, grants)


ONE_SLOT, TWO_SLOTS = asking(), asking(1)


# ---- the grammar, and codes


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("stop:die1", Fault("stop", 1)),
        ("stop:die12@0", Fault("stop", 12, at=0)),
        ("cut:0-1", Fault("cut", 0, 1)),
        ("cut:3-1@120", Fault("cut", 3, 1, 120)),
        ("stall:0-1", Fault("stall", 0, 1)),
        ("duplicate:1-0@1", Fault("duplicate", 1, 0, 1)),
        (" corrupt:0-2 ", Fault("corrupt", 0, 2)),
    ],
)
def test_a_fault_is_named_by_a_text(text: str, fault: Fault) -> None:
    """Kind, dies and moment are read from the text."""
    assert parse(text) == fault


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "must be stop:dieN"),
        ("melt:die1", "must be stop:dieN"),
        ("stop", "must be stop:dieN"),
        ("stop:1", "as in stop:die1"),
        ("stop:die-1", "as in stop:die1"),
        ("cut:die0-die1", "as in cut:0-1"),
        ("cut:0", "as in cut:0-1"),
        ("cut:1-1", "two different dies"),
        ("stall:0-1@5", "takes no @n"),
        ("stop:die0@x", "0 to 999999999"),
        ("stop:die0@-1", "0 to 999999999"),
        ("corrupt:0-1@0", "1 to 999999999"),
        ("duplicate:0-1@", "1 to 999999999"),
    ],
)
def test_what_is_no_fault_is_refused(text: str, told: str) -> None:
    """The error names the text and what would be right."""
    with pytest.raises(ConfigError, match=f"fault={text!r}.*{told}"):
        parse(text)


@given(st.integers(1, 5), st.integers(0, 767), st.integers(0, (1 << 16) - 1), st.integers(0, 1023))
def test_codes_are_negative_and_come_back(kind: int, die: int, other: int, bit: int) -> None:
    """No code of a fault is one of an action; all that is in it is read from it again."""
    code = encode(kind, die, other, bit)
    assert code < 0
    assert decode(code) == (kind, die, other, bit)
    assert is_fault(code)
    assert not is_fault(encode(faults.STOP, die), die)
    assert not is_fault(-1)
    assert not is_fault(~code)


def test_a_die_that_the_pod_does_not_have_is_refused() -> None:
    """Before anything runs."""
    with pytest.raises(ConfigError, match=r"cut:0-2@3': die2 is out of range 0\.\.1"):
        check(SENDRECV, fault="cut:0-2@3")


# ---- what shipped protocols keep


@pytest.mark.parametrize("fault", HARMLESS)
@pytest.mark.parametrize("order", ["fifo", "relaxed"])
@BOTH
def test_never_wrong_bits_when_something_stops(scenario: Checkable, order: str, fault: str) -> None:
    """A die that stops, a link that is cut or late: no schedule of the portfolio ends in wrong bits, and it says so."""
    found = check(scenario, order=order, fault=fault, schedules=120)
    assert (found.verdict, found.schedules, found.policy) == (verdict.NO_VIOLATION, 120, "portfolio")
    assert "takes no wrong bits for right" in found.reason
    if "stall" not in fault:
        came = re.match(r"it came to the fault in (\d+) of 120", found.reason)
        assert int(came[1]) > 60


@pytest.mark.parametrize("fault", HARMLESS)
def test_cores_that_look_again_and_again(fault: str) -> None:
    """Passes of isend and irecv never wait: a run that something has broken is given up, a late link is waited for."""
    scenario = AsyncCase(slots=2, chunks=2, granules=1)
    assert check(scenario, fault=fault, schedules=60).verdict == verdict.NO_VIOLATION


@BOTH
def test_under_sc_a_die_can_stop_but_no_link_can_be_cut(scenario: Checkable) -> None:
    """There are no writes in flight: the verdict is `unsupported` and says why."""
    assert check(scenario, order="sc", fault="stop:die1", schedules=60).verdict == verdict.NO_VIOLATION
    for kind in ("cut", "stall", "duplicate", "corrupt"):
        found = check(scenario, order="sc", fault=f"{kind}:0-1", schedules=60)
        assert found.verdict == verdict.UNSUPPORTED
        assert "under sc a write is visible at once" in found.reason


@pytest.mark.parametrize("die", [0, 1])
@pytest.mark.parametrize(
    "scenario", [SendRecvCase(slots=1, chunks=2, granules=1), DispatchCase(ranks=2, tokens=1, granules=1, rounds=1)],
    ids=["sendrecv", "dispatch"],
)  # fmt: skip
def test_a_die_may_stop_after_each_of_its_actions(scenario: Checkable, die: int) -> None:
    """From before the first to behind the last, a few schedules of every policy each: never wrong bits."""
    trial = scenario.build("relaxed")
    n, came = 0, 1
    while came:
        result = sample(trial, schedules=6, fault=Fault("stop", die, at=n))
        assert result.violation is None, (n, result.violation)
        came, n = result.faults, n + 1
    assert n > 20


@BOTH
def test_a_flipped_bit_is_taken_for_right(scenario: Checkable) -> None:
    """Nothing checks payloads, nor says so: the verdict is a violation, and that none is tolerated."""
    found = check(scenario, fault="corrupt:0-1", schedules=1000)
    assert found.violation.kind == verdict.WRONG_BITS
    assert "does not tolerate corrupt" in found.reason


def test_a_late_duplicate_spoils_a_slot_that_is_used_again() -> None:
    """An old granule of a ring's slot comes again after the next chunk, and passes for it."""
    found = check(SENDRECV, fault="duplicate:0-1", schedules=1200)
    assert found.violation.kind == verdict.WRONG_BITS
    assert "does not tolerate duplicate" in found.reason


# ---- small protocols under faults


def test_an_old_answer_is_taken_for_the_next_one() -> None:
    """An answer that comes twice is found out where answers look alike, not where each has a place of its own."""
    for small in (ONE_SLOT, TWO_SLOTS):
        assert check(small, schedules=200, policy="portfolio").verdict == verdict.NO_VIOLATION
    found = check(ONE_SLOT, fault="duplicate:0-1", schedules=600)
    assert found.violation.kind == verdict.WRONG_BITS
    assert check(TWO_SLOTS, fault="duplicate:0-1", schedules=600).verdict == verdict.NO_VIOLATION


def test_a_stopped_die_is_waited_for_or_reported_as_declared() -> None:
    """An error that the protocol declares is no violation when its cause has happened, and is one without."""
    for declared in (True, False):
        small = waiting("fail", declared=int(declared))
        found = check(small, fault="stop:die0@0", schedules=60)
        assert (found.violation is None) == declared
        without = check(small, fault="stop:die1@9999", policy="late", schedules=60)
        assert without.violation.kind == verdict.ASSERTION
        assert "it came to the fault in 0 of" in without.reason


def test_who_waits_for_a_cut_link_is_no_violation_and_without_a_cut_is_one() -> None:
    """A core that waits for ever is a deadlock only if nothing has broken."""
    assert check(ONE_SLOT, fault="cut:0-1@0", schedules=60).verdict == verdict.NO_VIOLATION
    found = check(waiting(silent=1), fault="cut:1-0@50", schedules=60)
    assert found.violation.kind == verdict.DEADLOCK


# ---- witnesses


@pytest.mark.parametrize(
    ("fault", "told"), [("duplicate:0-1", "visible a second time"), ("corrupt:0-1", "flipped: ")], ids=["again", "bit"]
)
def test_a_witness_shows_the_fault_and_replays(fault: str, told: str, tmp_path: Path) -> None:
    """What breaks is an action of the schedule: in the file, in the table, in the chart, in the trace."""
    found = check(ONE_SLOT, fault=fault, schedules=600)
    assert any(code < 0 for code in found.violation.actions.tolist())
    Witness.of(ONE_SLOT, found.violation, found.order, (), fault).save(tmp_path / "w.json")
    witness = Witness.load(tmp_path / "w.json")
    assert shows_again(witness.trial(ONE_SLOT), found.violation, witness.actions)
    text, trace = printed(ONE_SLOT.build("relaxed"), found.violation, 160)
    assert "FAULT: " in text
    assert told in text
    assert "FAULT: " in mermaid(trace)
    assert any(told in event.get("name", "") for event in perfetto(trace)["traceEvents"])


def test_what_stops_is_told_in_the_table() -> None:
    """A line says which die stops, and one that nothing becomes visible any more; the run then stands still."""
    trial = SENDRECV.build("relaxed")
    actions = np.array([encode(faults.STOP, 1), encode(faults.CUT, 0, faults.ANY_TARGET)], np.int64)
    violation = verdict.Violation(verdict.WRONG_BITS, "made up", actions, "", 0)
    assert replay(trial, actions) is None
    text, _ = printed(SENDRECV.build("relaxed"), violation, 160)
    assert "FAULT: die1 stops" in text
    assert "FAULT: from now on no write from die0 becomes visible" in text


def test_a_fault_that_cannot_be_is_refused_in_a_replay() -> None:
    """A die that is not there, a copy that was never made, a write that is not in flight."""
    trial = SENDRECV.build("relaxed")
    for code in (encode(faults.STOP, 7), encode(faults.AGAIN), encode(faults.CORRUPT, 0, 3), encode(9)):
        with pytest.raises(ReplayError, match="action 0 of it is not enabled"):
            replay(trial, np.array([code], np.int64))


@pytest.mark.parametrize("fault", ["duplicate:0-1", "corrupt:0-1"])
def test_equal_seeds_break_the_same(fault: str) -> None:
    """The moment and the place are drawn from the schedule's own numbers."""
    results = [sample(SENDRECV.build("relaxed"), seed=s, schedules=600, fault=parse(fault)) for s in (5, 5, 6)]
    one, other, third = (result.violation for result in results)
    assert np.array_equal(one.actions, other.actions)
    assert third is None or not np.array_equal(one.actions, third.actions)


@pytest.mark.parametrize("policy", ["random", "eager", "late", "lifo", "pct", "weights", "skew"])
def test_a_stalled_link_waits_until_nothing_else_can_go_on(policy: str) -> None:
    """Writes over it become visible only where no core can act and no other write is in flight."""
    scenario = make("sendrecv", slots=2, chunks=3, granules=1)
    from xccl_emu.check.sampling.device.monitor import layout as ml
    from xccl_emu.check.sampling.sample import monitor_of

    stalled, free = (monitor_of(scenario.build("relaxed")) for _ in range(2))
    runs = []
    for monitor, fault in ((stalled, parse("stall:0-1")), (free, None)):
        assert monitor.runs(ml.POLICIES.index(policy), 3, 0, 1, fault=fault) == ml.RUN_DONE
        actors = monitor.log[: int(monitor.m[ml.TAKEN])] >> 16
        first = np.flatnonzero(actors == monitor.trial.pod.spec.n_cores * ACTORS_PER_CORE)[0]
        runs.append(int(first))
    assert runs[0] >= runs[1]
    assert np.all(stalled.log[: int(stalled.m[ml.TAKEN])] >= 0)


def test_a_copy_under_way_sets_no_event_of_a_core_that_stopped() -> None:
    """Its DMA may land behind the stop, and nobody is there whose event it would set a second time."""
    found = check(make("sendrecv-dma"), policy="portfolio", fault="stop:die0", schedules=60)
    assert found.verdict == verdict.NO_VIOLATION
