"""A schedule step by step: every action is told, nothing is disturbed, and every write is followed to its end."""

import numpy as np
import pytest
from hypothesis import given, settings

from xccl_emu.base.errors import ReplayError
from xccl_emu.check.witness.trace import PERFORM
from xccl_emu.check.witness.tracer import steps
from xccl_emu.machine.schedule import Schedule

from .witness_support import RUNS, Run, everything, relay, stepped


@settings(max_examples=25)
@given(RUNS)
def test_every_action_is_a_step_and_ends_as_the_run_did(run: Run) -> None:
    """The steps are the actions, one for one, and leave memory as a plain replay does."""
    trace, pod, actions = stepped(*run)
    plain = run[0].build(run[1]).pod
    plain.replay(Schedule(actions, plain.fingerprint()))
    assert [step.code for step in trace.steps] == actions.tolist()
    assert [step.number for step in trace.steps] == list(range(1, len(actions) + 1))
    assert trace.end == "done"
    assert np.array_equal(pod.memory, plain.memory)


@settings(max_examples=25)
@given(RUNS)
def test_every_write_lands_once_and_nothing_else_changes_memory(run: Run) -> None:
    """Writes leave and land in steps that say so; what they cover is all that differs at the end."""
    trace, pod, _ = stepped(*run)
    fresh = run[0].build(run[1]).pod
    dies = pod.spec.n_dies * pod.spec.die_bytes
    covered = np.zeros(dies, bool)
    for write in trace.writes:
        covered[write.address : write.address + write.nbytes] = True
        assert write.number in trace.steps[write.by.number - 1].left
        assert write.number in trace.steps[write.visible - 1].landed
        assert write.by.number <= write.visible
    assert sum(len(step.landed) for step in trace.steps) == len(trace.writes)
    assert not ((pod.memory[:dies] != fresh.memory[:dies]) & ~covered).any()


@settings(max_examples=25)
@given(RUNS)
def test_instructions_are_issued_before_their_parts(run: Run) -> None:
    """Whatever a pipe does belongs to a step that issued it on that core, and its granules are all there, once."""
    trace, _, _ = stepped(*run)
    parts: dict[int, list[int]] = {}
    for step in trace.steps:
        issued = trace.steps[step.instruction - 1]
        assert step.instruction == step.number or (issued.core == step.core and issued.number < step.number)
        assert step.pipe in ("scalar", PERFORM) or issued.issues
        if step.part is not None and step.pipe in ("mtu-in", "mtu-out"):
            parts.setdefault(step.instruction, []).extend(range(step.part.first, step.part.last + 1))
            assert step.part.count == ((issued.address or 0) % 32 + issued.nbytes + 31) // 32
    assert all(sorted(seen) == list(range(1, len(seen) + 1)) for seen in parts.values())


def test_a_step_says_what_happened_where() -> None:
    """Core, step of the paper, name, address by its label and value of a few well-known actions."""
    trace, _, _ = stepped(everything(2), "relaxed", 3)
    told = {(step.operation, step.pipe): step for step in trace.steps if step.who == "die1.core1"}
    poll = told["poll", "scalar"]
    assert (poll.words(), poll.place, poll.value) == ("poll >= 1 (flag in)", "area1", "saw 1")
    assert (poll.source.step, poll.source.sync, poll.source.kernel) == (3, "flag in", "use_everything")
    assert poll.source.file.endswith("witness_support.py")
    assert told["put", PERFORM].value == "[1, 0x10000000000, 3, 0..]"
    assert told["put", PERFORM].place == "area1+0x20"
    assert told["v_fill", "vector"].place == "ub+0x0"
    assert told["atomic_add", "scalar"].value in ("was 0", "was 5")
    assert told["mtu_in", "mtu-in"].value == "saw 07 07 07 07 .."


def test_what_is_switched_off_is_told() -> None:
    """A quiet that is switched off is a step that says so."""
    trace, _, _ = stepped(relay(), "relaxed", 0, ["data before flag"])
    assert [s.words() for s in trace.steps if s.switched_off] == ["SWITCHED OFF: quiet (data before flag)"]


def test_a_schedule_of_another_run_is_refused() -> None:
    """An action that is not enabled, of a core that is idle, or of an actor that does not exist is a ReplayError."""
    _, _, actions = stepped(relay(), "relaxed", 0)
    for bad in (1 << 16, 7 << 16, 8 << 16, 10 << 16, 11 << 16, 13 << 16, (12 << 16) - 1, 1 << 50):
        with pytest.raises(ReplayError, match="action 3 of it is not enabled"):
            steps(relay().build("relaxed"), [*actions[:2].tolist(), bad])
