"""From a violation that was found to what a person holds: shrunk, saved, loaded, replayed, printed, drawn."""

from pathlib import Path

import pytest

from xccl_emu.check.sampling.sample import replay, sample
from xccl_emu.check.verdict import BAD_INSTRUCTION, DATA_RACE, DEADLOCK, UNWRITTEN_READ
from xccl_emu.check.witness.exported import mermaid
from xccl_emu.check.witness.highlight import marks
from xccl_emu.check.witness.replay_file import Witness
from xccl_emu.check.witness.shrink_schedule import shrink, signature
from xccl_emu.protocol.registry import make

from .witness_support import printed

SIZES = {"slots": 2, "chunks": 3, "granules": 2}


@pytest.mark.parametrize(
    ("protocol", "sync", "kinds", "steps_max"),
    [
        ("sendrecv", "slot free", {DATA_RACE}, 55),
        ("sendrecv", "slot read", {UNWRITTEN_READ, DATA_RACE}, 60),
        ("sendrecv", "slot ack", {DEADLOCK}, 70),
        ("sendrecv-dma", "DMA before tail", {UNWRITTEN_READ, BAD_INSTRUCTION, DATA_RACE}, 25),
    ],
)
def test_a_violation_found_by_sampling_becomes_a_witness(
    tmp_path: Path, protocol: str, sync: str, kinds: set[str], steps_max: int
) -> None:
    """Shrunk under the monitor it stays what it was and gets short; the file replays to it; table and chart show it."""
    checkable, without = make(protocol, **SIZES), (sync,)
    found = sample(checkable.build("relaxed", without), "portfolio", schedules=200).violation
    assert found.kind in kinds
    shrunk = shrink(checkable.build("relaxed", without), found, replay)
    assert signature(shrunk) == signature(found)
    assert len(shrunk.actions) <= min(steps_max, len(found.actions))
    Witness.of(checkable, shrunk, "relaxed", without).save(tmp_path / "witness.json")
    loaded = Witness.load(tmp_path / "witness.json")
    again = replay(loaded.trial(make(protocol, **SIZES)), loaded.actions)
    assert (again.kind, again.message, len(again.actions)) == (shrunk.kind, shrunk.message, len(shrunk.actions))
    _, trace = printed(loaded.trial(checkable), again)
    marked = marks(trace, again)
    if again.kind == DATA_RACE:
        assert sorted(marked.values()) == ["A", "B"]
    assert marked or again.kind == DEADLOCK
    assert mermaid(trace, marked).count("    rect ") >= len(marked)  # one for each write that a step makes visible
