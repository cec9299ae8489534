"""``check --rank N:SIZE=VALUE``: one rank calls with another size than the others."""

from pathlib import Path

import pytest
from cli_support import as_json, invoke, printed, refusal

from xccl_emu.base.errors import ConfigError
from xccl_emu.check.verdict import AREA_VIOLATION, ASSERTION, DATA_RACE, DEADLOCK, UNWRITTEN_READ, VERIFIED
from xccl_emu.protocol.registry import known, make
from xccl_emu.protocol.sequence import Sequence, Stage

ONE_SHOT = ("check", "all-reduce-one-shot", "--ranks", "2", "--calls", "1")


def test_a_rank_that_launches_another_grid_hangs() -> None:
    """Two cores of rank 1 wait for cores of rank 0 that it does not launch; the sizes of the verdict say so."""
    told = as_json(*ONE_SHOT, "--elements", "32", "--slot", "16", "--rank", "1:cores=2", code=1)
    assert told["configuration"]["rank"] == "1:cores=2"
    assert told["violation"]["kind"] == DEADLOCK


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("dispatch --tokens 2 --rounds 1 --rank 1:tokens=3", AREA_VIOLATION),
        ("all-reduce-lamport --ranks 2 --calls 2 --rank 1:lines=2", DEADLOCK),
        ("all-reduce-one-shot --ranks 2 --calls 2 --rank 1:calls=1", DEADLOCK),
        ("all-reduce-two-shot --ranks 2 --calls 1 --elements 32 --rank 1:slot=16", DATA_RACE),
        ("all-reduce-ring --ranks 2 --calls 1 --rank 1:elements=8", UNWRITTEN_READ),
        ("sendrecv --slots 2 --chunks 3 --rank 0:chunks=2", ASSERTION),
    ],
)
def test_a_rank_that_has_counted_otherwise_is_found_by_a_name(words: str, kind: str) -> None:
    """More tokens, longer or fewer calls, slices of another size: it overwrites, blocks or misreads."""
    assert as_json("check", *words.split(), code=1)["violation"]["kind"] == kind


def test_outputs_that_nobody_can_name_are_not_judged() -> None:
    """Operands of another seed are other sums by either size: there is a proof of all else, and a line that says so."""
    said = printed(*ONE_SHOT, "--rank", "1:seed=3")
    assert ("verified" in said, "rank: outputs are not judged, because the two sizes" in said) == (True, True)
    assert as_json(*ONE_SHOT, "--rank", "1:seed=3")["unjudged"] == "the two sizes give different outputs"
    assert as_json(*ONE_SHOT, "--rank", "1:slot=32")["unjudged"] == ""
    assert "not judged" not in printed(*ONE_SHOT, "--rank", "1:slot=32")


@pytest.mark.parametrize("asked", ["--each-sync", "--weakest"])
def test_no_synchronization_is_redundant_because_nothing_is_judged(asked: str) -> None:
    """Where outputs are not judged, advice would take for redundant what they need."""
    assert "needs outputs that are judged" in refusal(*ONE_SHOT, "--rank", "1:seed=3", asked)


def test_what_no_peer_has_to_know_may_differ() -> None:
    """How a rank counts where its messages go is nobody else's business."""
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
        ("2:ranks=3", "out of range 0..1"),
        ("1:ranks=3", "is of a pod with 3 dies, this one has 2"),
    ],
)
def test_what_no_rank_can_call_with_is_refused(said: str, why: str) -> None:
    """By name and value, before anything is searched."""
    assert why in refusal(*ONE_SHOT, "--rank", said)


def test_help_has_the_option_and_a_replay_refuses_it() -> None:
    """The help of check says what a rank may be given; a file says itself who differs."""
    code, out, _ = invoke("check", "--help")
    assert (code, "--rank" in out, "N:SIZE=VALUE" in out) == (0, True, True)
    why = refusal("check", "--replay", "x.json", "--rank", "1:cores=2")
    assert "--rank 1:cores=2: cannot be combined with --replay" in why


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


def test_a_run_on_the_whole_pod_has_no_such_rank() -> None:
    """It would make all calls as if nobody differed, so it is refused."""
    assert "--rank 1:tokens=3: is nothing of a run" in refusal("run", "dispatch", "--rank", "1:tokens=3")


@pytest.mark.parametrize("said", [("--rank", "1:seed=3"), ("--invariant", "ranks")])
@pytest.mark.parametrize("words", [("run",), ("sizes",), ("trace",), ("run", "--on", "native")])
def test_what_only_a_check_judges_is_refused_elsewhere(words: tuple[str, ...], said: tuple[str, str]) -> None:
    """A run of a small pod, on real memory and in virtual time too, and the sizes of a case would say nothing of it."""
    command, *more = words
    why = refusal(command, "all-reduce-one-shot", "--ranks", "2", *said, *more)
    assert f"{' '.join(said)}: is nothing of a run; xccl-emu check has it" in why


def test_sequences_of_calls_have_no_such_rank() -> None:
    """They are made on one communicator after the other, so it is refused."""
    sequence = Sequence(known("dispatch"), (Stage({"rank": "1:tokens=3"}),))
    with pytest.raises(ConfigError, match="is of a single call"):
        sequence.build("relaxed")


def test_outputs_that_a_predicate_judges_are_not_judged() -> None:
    """Nobody can say whether the predicates of two sizes are the same, and the bytes that they judge have no data."""
    case = make("kv-retry", timed=1, mortal=0)
    assert case.build("relaxed").expected
    assert case.with_pod_options(rank="0:seed=3").build("relaxed").expected == ()
