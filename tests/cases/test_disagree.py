"""``check --rank N:SIZE=VALUE``: one rank calls with another size than the others."""

from pathlib import Path

import pytest
from cli_support import as_json, invoke, refusal

from xccl_emu.check.verdict import DEADLOCK, VERIFIED
from xccl_emu.protocol.registry import make

ONE_SHOT = ("check", "all-reduce-one-shot", "--ranks", "2", "--calls", "1")


def test_a_rank_that_launches_another_grid_hangs() -> None:
    """Two cores of rank 1 wait for cores of rank 0 that it does not launch; the sizes of the verdict say so."""
    told = as_json(*ONE_SHOT, "--elements", "32", "--slot", "16", "--rank", "1:cores=2", code=1)
    assert told["configuration"]["rank"] == "1:cores=2"
    assert told["violation"]["kind"] == DEADLOCK


def test_a_rank_with_fewer_elements_is_found() -> None:
    """It sends less than the others add up, or has its slots elsewhere: a violation of some kind, never a proof."""
    assert as_json(*ONE_SHOT, "--elements", "32", "--rank", "1:elements=16", code=1)["violation"]["kind"]


def test_a_ring_of_other_slots_is_found() -> None:
    """A sender that counts four slots where the receiver has two."""
    assert as_json("check", "sendrecv", "--slots", "2", "--chunks", "3", "--rank", "0:slots=4", code=1)["violation"]


def test_what_no_peer_has_to_know_may_differ() -> None:
    """Each rank may have tokens of a seed of its own count of loops: who counts how is nobody else's business."""
    told = as_json("check", "dispatch", "--tokens", "1", "--rounds", "1", "--rank", "1:counting=scalar")
    assert told["verdict"] == VERIFIED


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("1", "must be N:SIZE=VALUE"),
        ("1:elements", "must be N:SIZE=VALUE"),
        ("x:elements=8", "must be N:SIZE=VALUE"),
        ("1:colour=8", "has no such size"),
        ("1:elements=16", "is what all ranks call with"),
        ("1:elements=0", "must be at least 1"),
        ("7:elements=8", "out of range 0..1"),
    ],
)
def test_what_no_rank_can_call_with_is_refused(said: str, why: str) -> None:
    """By name and value, before anything is searched."""
    assert why in refusal(*ONE_SHOT, "--rank", said)


def test_a_witness_says_who_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of a finding has the size of that rank, and shows it again."""
    monkeypatch.chdir(tmp_path)
    words = (*ONE_SHOT, "--elements", "32", "--slot", "16", "--rank", "1:cores=2", "--out", "found.json")
    assert invoke(*words)[0] == 1
    code, out, _ = invoke("check", "--replay", "found.json")
    assert (code, "1:cores=2" in out, DEADLOCK in out) == (1, True, True)


def test_all_else_is_as_without() -> None:
    """On a case of which no rank differs nothing is said, and the pod is built as ever."""
    plain = make("all-reduce-one-shot", ranks=2)
    assert make("all-reduce-one-shot", ranks=2, rank="").configuration == plain.configuration
