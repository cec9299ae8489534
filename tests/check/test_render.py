"""What people look at: the table loses no step, the sequence chart is valid Mermaid, the trace valid for Perfetto."""

import json
import re
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.machine.support import small
from xccl_emu.check.trial import Checkable
from xccl_emu.check.verdict import DATA_RACE, Violation
from xccl_emu.check.witness.exported import mermaid, perfetto
from xccl_emu.check.witness.highlight import marks
from xccl_emu.check.witness.render import excerpt, rows
from xccl_emu.check.witness.shrink_schedule import shrink
from xccl_emu.check.witness.trace import PERFORM
from xccl_emu.check.witness.tracer import drawn, steps
from xccl_emu.protocol.registry import make

from .witness_support import RUNS, Run, everything, judge, printed, relay, some_violation, stepped


@settings(max_examples=25)
@given(RUNS)
def test_the_table_has_every_step_and_every_granule(run: Run) -> None:
    """Lines follow each other without a gap, and the granules of each transfer on them are all its granules."""
    trace, _, _ = stepped(*run)
    lines = rows(trace)
    covered = sorted({n for line in lines for n in range(line.first, line.last + 1)})
    assert covered == list(range(1, len(trace.steps) + 1))
    assert all(one.last <= other.first for one, other in pairwise(lines))
    taken: Counter[tuple[int, str]] = Counter()
    shown: Counter[tuple[int, str]] = Counter()
    for step in trace.steps:
        if step.pipe != PERFORM and step.part is not None:
            taken[step.instruction, step.pipe] += step.part.last - step.part.first + 1
    for line in lines:
        if line.step.pipe != PERFORM and line.step.part is not None:
            shown[line.step.instruction, line.step.pipe] += line.step.part.last - line.step.part.first + 1
    assert shown == taken
    flags = [step for step in trace.steps if step.operation in ("set_flag", "wait_flag")]
    listed = [step for line in lines for step in (line.step, *line.also)]
    assert [step for step in listed if step.operation in ("set_flag", "wait_flag")] == flags


@pytest.mark.parametrize("order", ["sc", "relaxed"])
def test_a_line_that_makes_room_has_a_row(order: str) -> None:
    """A store that finds its core's one line changed is two rows, and the first writes that line back."""
    trial = small("store 0.0 1; store 1.0 2", dies=2, scalar_cache=1).trial(order, None)
    trace = drawn(trial, late=False, tries=60)
    said = [(line.first, line.step.action, line.step.place) for line in rows(trace) if line.step.pipe != PERFORM]
    first, other = "die0.meta+0x0", "die1.meta+0x0"
    assert said[:3] == [(1, "store", first), (2, "write back", first), (2, "store", other)]
    room = trace.steps[1].room
    assert room is not None
    assert {trace.writes[number].by.action for number in room.left} == {"write back"}


def test_long_runs_are_cut_down_to_what_passes_between_cores() -> None:
    """A long table says that lines are left out; accesses to memory, marks and what is switched off stay."""
    checkable = make("sendrecv", slots=2, chunks=12, granules=1)
    trace, _, actions = stepped(checkable, "relaxed", 1, ["data before tail"])
    lines = rows(trace, {3: "A", len(trace.steps): "B"})
    few = excerpt(trace, lines)
    for line in lines:
        step = line.step
        memory = step.left or step.landed or step.operation in ("poll", "load") or (step.pipe == "mtu-in" and step.part)
        assert (line in few) == bool(line.mark or step.switched_off or memory or step.operation in ("quiet", "return"))
    text, _ = printed(checkable.build("relaxed", ["data before tail"]), Violation("wrong bits", "told", actions, "", 0))
    assert f"({len(rows(trace)) - len(excerpt(trace, rows(trace)))} lines are left out" in text


def test_a_deadlock_is_printed_with_who_waits_for_what() -> None:
    """The kind, the steps with labels and steps of the paper, and the blocked cores with address and last writer."""
    checkable = make("sendrecv", slots=2, chunks=3, granules=2)
    violation = some_violation(checkable, "relaxed", ["slot ack"])
    shrunk = shrink(checkable.build("relaxed", ["slot ack"]), violation, judge)
    text, _ = printed(checkable.build("relaxed", ["slot ack"]), shrunk)
    assert text.startswith(f"deadlock under relaxed, without slot ack, in {len(shrunk.actions)} steps:")
    assert re.search(r"die1\.core0\.scalar +7 +SWITCHED OFF: add 1 \(slot ack\) +die0\.meta\.ack\[0→1\]\+0x10 ", text)
    assert re.search(r"die0\.core0\.perform +3 +visible: put +die1\.meta\.tail\[0→1\] +\[7, 0, 1", text)
    assert re.search(r"die1\.core0\.scalar +5 +poll >= 1 \(tail in\) +die1\.meta\.tail\[0→1\]\+0x10 +saw", text)
    assert "polls die0.meta.ack[0→1]+0x10" in re.sub(r"\s+", " ", text)
    assert max(map(len, text.splitlines())) <= 120
    assert len(text.splitlines()) < 90


@settings(max_examples=25)
@given(st.integers(0, 1 << 20))
def test_a_race_is_marked_at_both_accesses(seed: int) -> None:
    """A write over what was read is marked with the latest read of it; a poll never meets the put of its flag."""
    checkable = relay(2)
    trace, _, actions = stepped(checkable, "sc", seed)
    reads = [step for step in trace.steps if (step.pipe, step.operation) == ("mtu-in", "mtu_in")]
    over = [step for step in trace.steps if (step.who, step.operation) == ("die0.core0", "mtu_out") and step.left]
    for write in over:
        same = [step.number for step in reads if step.number < write.number and step.place == write.place]
        marked = marks_up_to(write.number, checkable, actions)
        assert marked.pop(write.number) == "B"
        assert marked == ({same[-1]: "A"} if same else marked)
    text, _ = printed(checkable.build("sc"), Violation(DATA_RACE, "told", actions[: over[0].number], "", 0))
    raced = rf"^B  step {over[0].number}: die0\.core0\.mtu-out mtu_out 64 B.* ub\+0x0 \(die1\.data"
    assert re.search(raced, text, re.MULTILINE)
    poll = next(step for step in trace.steps if step.operation == "poll")
    assert marks_up_to(poll.number, checkable, actions) == {poll.number: "B"}


def test_a_race_in_a_data_buffer_is_shown_there() -> None:
    """The row of a transfer has the place in the data buffer where it races, and its other end in brackets."""
    checkable, off = relay(2), ["data before flag"]
    trace, _, actions = stepped(checkable, "sc", 0, off)
    second = [step for step in trace.steps if (step.pipe, step.operation) == ("vector", "v_fill")][1]
    run = steps(checkable.build("sc", off), actions[: second.number].tolist())
    marked = marks(run, Violation(DATA_RACE, "", actions[: second.number], "", 0))
    shown = [line.step.place for line in rows(run, marked) if line.mark]
    assert shown == ["ub+0x20 (die1.data+0x20)", "ub+0x0"]


def marks_up_to(number: int, checkable: Checkable, actions: NDArray[np.int64]) -> dict[int, str]:
    """Marks of the schedule cut behind a step that is said to be the second access of a race."""
    violation = Violation(DATA_RACE, "", actions[:number], "", 0)
    return marks(steps(checkable.build("sc"), actions[:number].tolist()), violation)


@pytest.mark.parametrize("width", [100, 120])
@pytest.mark.parametrize(
    ("checkable", "without", "action"),
    [(everything(), ["filled in"], "return"), (relay(1, forbidden=True), [], "mtu_out 64 B")],
)
def test_a_failing_action_is_marked(checkable: Checkable, without: list[str], action: str, width: int) -> None:
    """The action that ends the run in an error is marked, and is the last; the headline says what is wrong with it."""
    violation = some_violation(checkable, "relaxed", without)
    text, _ = printed(checkable.build("relaxed", without), violation, width)
    number = len(violation.actions)
    assert re.search(rf"^ *✗ +{number} +die\d\.core\d\.scalar .*{action}", text, re.MULTILINE)
    assert re.search("is still set, nothing has waited|is not permitted", re.sub(r"\s+", " ", text))
    assert max(map(len, text.splitlines())) <= width


# ---- sequence chart

_LINE = re.compile(
    r" +(rect rgb\(255, 210, 210\)|end|participant (?P<name>\w+) as [\w. ]+"
    r"|(?P<one>\w+)(->>|-->>|-\))(?P<other>\w+): [^;#\n]+"
    r"|Note over (?P<over>\w+): [^;#\n]+)"
)


@settings(max_examples=25)
@given(RUNS)
def test_the_chart_is_valid_and_tells_every_write(run: Run) -> None:
    """Each line is a participant, an arrow or a note of Mermaid's grammar between declared participants."""
    trace, _, _ = stepped(*run)
    first, *lines = mermaid(trace).splitlines()
    assert first == "sequenceDiagram"
    matches = [_LINE.fullmatch(line) for line in lines]
    assert all(matches), lines[matches.index(None)] if None in matches else ""
    found = [match.groupdict() for match in matches if match]
    names = [match["name"] for match in found if match["name"]]
    assert len(names) == len(set(names))
    assert {match[k] for match in found for k in ("one", "other", "over")} - {None} <= set(names)
    visible = [line for line in lines if re.match(r" +\w+->>m", line)]
    assert len(visible) >= len({write.by.instruction for write in trace.writes})
    assert any("poll >= 1" in line and "-->>" in line for line in lines)


@pytest.mark.parametrize("mark", ["A", "B", "✗"])
def test_marked_steps_stand_out_in_the_chart(mark: str) -> None:
    """A marked step is on coloured ground, with an arrow of its own or as a note."""
    trace, _, _ = stepped(everything(2), "relaxed", 1)
    for step in trace.steps:
        text = mermaid(trace, {step.number: mark})
        assert all(_LINE.fullmatch(line) for line in text.splitlines()[1:])
        block = re.search(r"    rect rgb\(255, 210, 210\)\n((?:        .+\n)+)    end\n", text)
        assert f" {step.number} {mark} {step.words()}" in " ".join(block[1].replace(":", ": ").split())


def test_blocked_cores_stand_at_the_end_of_the_chart() -> None:
    """After a deadlock a note over each blocked core says what it waits for."""
    checkable = make("sendrecv", slots=2, chunks=3, granules=2)
    lines = mermaid(stepped(checkable, "relaxed", 1, ["slot ack"])[0]).splitlines()
    assert [line.split(":")[0].strip() for line in lines[-2:]] == ["Note over d0c0", "Note over d1c0"]
    assert all("blocked" in line and "polls" in line for line in lines[-2:])


# ---- Perfetto


@settings(max_examples=25)
@given(RUNS)
def test_the_trace_keeps_to_the_format(run: Run) -> None:
    """Every event has what its phase needs, slices of a thread nest, flights open and close once, threads are named."""
    trace, _, _ = stepped(*run)
    events = json.loads(json.dumps(perfetto(trace)))["traceEvents"]
    named = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert {e["ph"] for e in events} <= set("MXbe")
    for event in events:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "M":
            assert event["args"]["name"]
        else:
            assert event["ts"] >= 0
            assert event["cat"]
            assert (event["pid"], event["tid"]) in named
    _slices_do_not_overlap([e for e in events if e["ph"] == "X"])
    _flights_open_and_close([e for e in events if e["ph"] in "be"])
    assert sum(e["ph"] == "X" and e["cat"] != "waiting" for e in events) == len(trace.steps)


def _slices_do_not_overlap(slices: list[dict[str, int]]) -> None:
    ends: dict[tuple[int, int], int] = {}
    for event in sorted(slices, key=lambda e: e["ts"]):
        thread = event["pid"], event["tid"]
        assert event["dur"] > 0
        assert event["ts"] >= ends.get(thread, 0)
        ends[thread] = event["ts"] + event["dur"]


def _flights_open_and_close(flights: list[dict[str, int]]) -> None:
    begun = {(e["cat"], e["id"]): e for e in flights if e["ph"] == "b"}
    ended = {(e["cat"], e["id"]): e for e in flights if e["ph"] == "e"}
    assert len(flights) == 2 * len(begun)
    assert begun.keys() == ended.keys()
    for key, event in begun.items():
        assert event["ts"] < ended[key]["ts"]
        assert event["pid"] == ended[key]["pid"]
        assert event["name"] == ended[key]["name"]
