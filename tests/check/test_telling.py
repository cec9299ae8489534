"""What is told of a check that has found something: the most telling violation in front, the others in a line each."""

import io
import re
from collections.abc import Collection
from itertools import islice

import numpy as np
import pytest
from rich.console import Console

from xccl_emu.base.errors import KernelError
from xccl_emu.check import shrink
from xccl_emu.check import verdict as kinds
from xccl_emu.check.certify import certify
from xccl_emu.check.check import check
from xccl_emu.check.sampling import sample as sampling
from xccl_emu.check.sampling.sample import PORTFOLIO, further, replay
from xccl_emu.check.sampling.watch import Monitor
from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.exhaustive import Found
from xccl_emu.check.shrink import cause, place, ranked, shown
from xccl_emu.check.trial import Trial
from xccl_emu.check.verdict import Verdict, Violation
from xccl_emu.check.witness.render import in_a_line, print_others
from xccl_emu.lang import kernel, load, put
from xccl_emu.machine import small_pod
from xccl_emu.protocols.sendrecv.case import SendRecvCase
from xccl_emu.testing import Bench, protocol

from .witness_support import printed

SCENARIO = SendRecvCase(slots=2, chunks=3, granules=1)
FENCE = "data before tail"
BOTH = (FENCE, "half sent")
"""Without these a tail overtakes its data, and a half of the data buffer is used again too early."""


def violation(kind: str, message: str = "", number: int = 0) -> Violation:
    """One that nobody has found, by so many actions."""
    return Violation(kind, message, np.zeros(number, np.int64), "by hand", number)


def without(names: Collection[str], **options: str) -> Verdict:
    """The verdict on the scenario without some synchronizations."""
    return check(SCENARIO, without=names, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["exhaustive", "portfolio"])
def test_the_tail_that_overtakes_its_data_comes_first(policy: str) -> None:
    """Whatever else goes wrong in the core's data buffer, what is shown is the race for the ring's slot."""
    verdict = without(BOTH, policy=policy)
    for one in (verdict, without([FENCE], policy=policy)):
        assert one.violation.kind == kinds.DATA_RACE
        assert "die1.ring[0→1].slot" in one.violation.message.splitlines()[0]
    found = [(other.kind, other.message.splitlines()[0]) for other in verdict.others]
    assert found[0] == (kinds.DATA_RACE, "nothing orders two accesses at die0.core0.ub+0x0:")
    assert found[-1][0] == kinds.BAD_INSTRUCTION
    assert "is set again, and nothing orders that" in found[-1][1]


def test_all_that_is_told_replays_and_differs() -> None:
    """Each schedule shows on the machine what is said of it, and no two tell of the same kind and place."""
    verdict = without(BOTH)
    assert verdict.violation is not None
    every = (verdict.violation, *verdict.others)
    trial = SCENARIO.build("relaxed", BOTH)
    for one in every:
        again = replay(trial, one.actions)
        assert (again.kind, again.message, len(again.actions)) == (one.kind, one.message, len(one.actions))
    assert len({place(one) for one in every}) == len(every) > 2


def test_what_is_told_is_the_same_each_time() -> None:
    """The others do not depend on how fast the machine is, and the search's own numbers are those of its first find."""
    one, other = without(BOTH), without(BOTH)
    assert (one.states, one.transitions) == (other.states, other.transitions) == (1, 1)
    assert [each.to_json() for each in one.others] == [each.to_json() for each in other.others]
    assert all(np.array_equal(a.actions, b.actions) for a, b in zip(one.others, other.others, strict=True))


def test_what_is_verified_has_no_others() -> None:
    """Nothing is drawn, and nothing said, where the search finds nothing."""
    verdict = without([])
    assert (verdict.verdict, verdict.violation, verdict.others, verdict.schedules) == (kinds.VERIFIED, None, (), 0)
    assert verdict.to_json()["others"] == []


def test_nothing_else_is_looked_for_where_the_hardware_fails() -> None:
    """What a fault does is told alone: without it, the schedules that are drawn would be of another question."""
    verdict = check(SCENARIO, fault="corrupt:0-1", schedules=200)
    assert verdict.violation is not None
    assert verdict.others == ()


def test_a_certificate_is_of_the_violation_in_front() -> None:
    """Its schedule is the one that is replayed, and the others stay."""
    verdict = without(BOTH)
    certified = certify(SCENARIO, verdict, seconds=1.0)
    assert certified.others == verdict.others
    assert certified.certificate.replayed


@pytest.mark.parametrize("path", ["shows nothing", "is not enabled"])
def test_a_violation_whose_path_shows_nothing_is_shown_by_a_drawn_schedule(path: str) -> None:
    """What drawn schedules show takes the place of a path that shows nothing, or cannot be taken."""
    actions = np.full(0 if path == "shows nothing" else 1, 12345 << 16, np.int64)
    found = Found(cs.WRONG_BITS, kind=kinds.WRONG_BITS, message="no such thing", actions=actions)
    assert shown(SCENARIO.build("relaxed", BOTH), found, 0).kind == kinds.DATA_RACE


def test_what_no_schedule_shows_is_set_aside_and_the_search_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two finds are taken to show nothing: then the third is told, and no message of the others is."""
    asked: list[Found] = []

    def third(trial: Trial, found: Found, seed: int, most: float) -> Violation | None:
        asked.append(found)
        return shown(trial, found, seed, most) if len(asked) == 3 else None

    monkeypatch.setattr(shrink, "shown", third)
    assert without([FENCE]).verdict == kinds.VIOLATION
    assert len({found.signature for found in asked}) == len(asked) == 3


def test_what_no_schedule_shows_is_no_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing that the search finds is shown by any schedule, it is unfinished, and says what to report."""
    monkeypatch.setattr(shrink, "shown", lambda *_: None)
    verdict = without([FENCE])
    assert (verdict.verdict, verdict.violation) == (kinds.UNFINISHED, None)
    assert "please report this: nothing orders these two accesses" in verdict.reason


# ---- which goes first


def test_accesses_between_cores_go_before_all_else_and_machine_faults_last() -> None:
    """Races on memory, then in a data buffer, then the wrong bits that they make, runs that do not end, refusals."""
    in_order = [
        violation(kinds.DATA_RACE, "nothing orders two accesses at die1.app+0x0:\n  (a.py:1)\n  (a.py:2)"),
        violation(kinds.UNWRITTEN_READ, "read of memory that was never written, at die0.core0.ub+0x0: (a.py:3)"),
        violation(kinds.WRONG_BITS, "target is wrong"),
        violation(kinds.DEADLOCK, "deadlock: 2 of 2 cores are blocked"),
        violation(kinds.AREA_VIOLATION, "(a.py:4)"),
        violation(kinds.BAD_INSTRUCTION, "(a.py:5): event 0 is set while it is still set"),
        violation(kinds.LEFTOVER, "(a.py:6)"),
    ]
    assert ranked(in_order) == in_order
    backwards = ranked(in_order[::-1])
    assert [each.kind for each in backwards[:3]] == [kinds.DATA_RACE, kinds.UNWRITTEN_READ, kinds.WRONG_BITS]
    assert {each.kind for each in backwards[-2:]} == {kinds.BAD_INSTRUCTION, kinds.LEFTOVER}


@kernel
def ask(reply, box):
    """Put a letter where the reply says, without waiting for it."""
    where = yield load(reply)
    yield put(box + 32 * where, 7)


@kernel
def write(word, value):
    """The reply, or another letter in the first box."""
    yield put(word, value)


@protocol
def hasty(bench: Bench) -> None:
    """Die 0 asks, die 1 replies that the second box is free, and die 2 uses the first."""
    pod = bench.pod(small_pod(3))
    reply = bench.filled(0, np.zeros(4, np.int64), "reply")
    box = bench.filled(1, np.zeros(8, np.int64), "box")
    pod.launch(ask, 0, [0], {"reply": reply.address, "box": box.address}, [pod.grant(reply, "r"), pod.grant(box, "w")])
    for die, at, value in ((1, reply, 1), (2, box, 9)):
        pod.launch(write, die, [0], {"word": at.address, "value": value}, [pod.grant(at, "w")])


@pytest.mark.parametrize("backwards", [False, True])
def test_a_cause_goes_before_what_follows_from_it(backwards: bool) -> None:
    """Two letters in one box follow from a reply that was not waited for: its race is told, whichever is found first,
    and the race for the box is among the others."""
    trial = hasty().build("relaxed")
    reply, box = sorted(ranked(further(trial)), key=lambda one: "die0.reply" not in one.message.splitlines()[0])
    assert "die1.box" in box.message.splitlines()[0]
    assert cause(trial, [box, reply] if backwards else [reply, box]) is reply
    verdict = shrink.with_violation(hasty(), Verdict(kinds.VIOLATION, "hasty", {}, "relaxed", "portfolio", 0), box)
    assert [place(one) for one in (verdict.violation, *verdict.others)] == [place(reply), place(box)]


def test_a_cause_is_not_looked_for_in_a_run_of_millions_of_actions() -> None:
    """A livelock that only the limit of a schedule ends is not gone through step by step; these could not even be."""
    runs = [violation(kinds.LIVELOCK, number=1 << 20), violation(kinds.LIVELOCK, number=1 << 21)]
    assert cause(hasty().build("relaxed"), runs) is runs[0]


def test_of_a_kind_and_place_the_first_is_kept() -> None:
    """Source lines make the place, and whether it is a data buffer; which core or address it was does not."""
    text = "nothing orders two accesses at die{}.{}:\n  write by die {} core 0 (a.py:1)\n  read (a.py:2)"
    messages = text.format(0, "core0.ub+0x0", 0), text.format(0, "app+0x0", 0), text.format(1, "app+0x9", 1)
    found = [violation(kinds.DATA_RACE, message, number) for number, message in enumerate(messages)]
    assert [each.found_after for each in ranked(found)] == [1, 0]


# ---- how far it is looked for more


def test_further_violations_come_in_the_order_of_the_portfolio() -> None:
    """The first schedule of each policy, then the second of each; the same seed gives the same ones."""
    trial = SCENARIO.build("relaxed", BOTH)
    first = list(islice(further(trial), 12))
    assert [each.found_by for each in first[:6]] == [f"{policy}, seed 0, schedule 0" for policy in PORTFOLIO]
    assert [each.found_after for each in first] == list(range(1, 13))
    assert [each.to_json() for each in islice(further(trial), 12)] == [each.to_json() for each in first]


def test_further_violations_end_behind_so_many_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round of the portfolio is gone through in any case, and none after that which uses the actions up."""
    trial = SCENARIO.build("relaxed", BOTH)
    most = len(list(further(trial)))
    monkeypatch.setattr(sampling, "_FURTHER_ACTIONS", 1)
    assert len(list(further(trial))) == len(PORTFOLIO) < most <= 32 * len(PORTFOLIO)


def test_arithmetic_that_fails_ends_the_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that divides by what it read too early is no reason to lose what was found before."""
    trial = SCENARIO.build("relaxed", BOTH)
    codes = iter([Monitor.runs] * 2)

    def runs(monitor: Monitor, *arguments: int, until: float) -> int:
        run = next(codes, None)
        if run is None:
            raise KernelError("division by zero")
        return run(monitor, *arguments, until=until)

    monkeypatch.setattr(Monitor, "runs", runs)
    assert [each.found_after for each in further(trial)] == [1, 2]


# ---- in a line


def test_each_other_is_told_in_a_line() -> None:
    """Kind, place, source lines and who found it; no source text."""
    race, *_, refused = without(BOTH).others
    line = in_a_line(race)
    assert line.startswith("data race: nothing orders two accesses at die0.core0.ub+0x0 (")
    assert line.count("sendrecv.py:") == 2
    assert line.endswith(f"; by {race.found_by}")
    line = in_a_line(refused)
    assert "\n" not in line
    assert "`" not in line
    assert "(kernels/sendrecv.py:" in line.replace("xccl_emu/", "")
    assert "is set again, and nothing orders that after the wait for it (" in line


def test_others_are_printed_under_a_heading_of_their_own() -> None:
    """One line for each; nothing at all if there are none."""
    out = io.StringIO()
    console = Console(file=out, width=400)
    print_others(console, [])
    print_others(console, [violation(kinds.DEADLOCK, "deadlock: 2 of 2 cores are blocked\n  die 0 core 0 ...")])
    assert out.getvalue() == "\nalso found:\n  deadlock: 2 of 2 cores are blocked; by by hand\n"


@pytest.mark.parametrize("width", [40, 60])
def test_a_narrow_terminal_gets_lines_in_place_of_columns(width: int) -> None:
    """Who, what and where stand one below the other, whole; nothing is wider than the terminal."""
    verdict = without(BOTH)
    assert verdict.violation is not None
    text, _ = printed(SCENARIO.build("relaxed", BOTH), verdict.violation, width)
    assert max(map(len, text.splitlines())) <= width
    assert "die0.core0.scalar, step 2\n  issue mtu_out 32 B\n  die1.ring[0→1].slot0\n  from ub+0x0\n" in text
    assert re.search(r"^A \d+ die0\.core0\.mtu-out, step 2\n  mtu_out 32 B$", text, re.MULTILINE)
