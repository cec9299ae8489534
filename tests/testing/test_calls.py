"""The state machine and the strategy of sequences, for protocols of one's own."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis.stateful import run_state_machine_as_test

from xccl_emu.protocol.registry import known
from xccl_emu.protocol.sequence import Sequence
from xccl_emu.testing import ProtocolViolation, assert_no_violation, calls_machine, replay, save_witness, sequences

ROOT = Path(__file__).parents[2]
ONE_SLOT = str(ROOT / "corpus" / "one_slot" / "one_slot.py")
BROKEN, MENDED = (known(f"{ONE_SLOT}:{name}").maker for name in ("Broken", "Mended"))


@pytest.mark.slow
def test_a_machine_finds_what_needs_two_calls(tmp_path: Path) -> None:
    """It fails with the violation that the assertions raise, of two calls, whose file replays."""
    kind = calls_machine(BROKEN, schedules=30, states=0)
    with pytest.raises(ProtocolViolation, match="data race") as found:
        run_state_machine_as_test(kind, settings=kind.TestCase.settings)
    sequence = found.value.checkable
    assert isinstance(sequence, Sequence)
    assert [len(stage.calls) for stage in sequence.stages] == [2]
    file = save_witness(sequence, found.value.verdict, tmp_path / "found.json")
    shown = replay(sequence, file)
    assert shown is not None
    assert shown.kind == "data race"


class TestMended(calls_machine(MENDED, schedules=30, states=1000).TestCase):  # type: ignore[misc]
    """The mended one, as a test case of its own, passes."""

    settings = settings(max_examples=5, stateful_step_count=4, deadline=None)


@settings(max_examples=5, deadline=None)
@given(sequences(MENDED, words=2))
def test_sequences_are_checked_as_a_case_is(sequence: Sequence) -> None:
    """A sequence goes where a case goes, and sizes that are given stay."""
    assert all(stage.sizes["words"] == 2 for stage in sequence.stages)
    assert_no_violation(sequence, schedules=20)
