"""``xccl-emu fuzz``: what is drawn, found, kept and replayed, and how it ends."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from xccl_emu.base.errors import UnfinishedError
from xccl_emu.base.jobs import LOCAL, in_parts
from xccl_emu.cli.main import app
from xccl_emu.fuzz import run
from xccl_emu.fuzz.judge import SequenceBudget
from xccl_emu.fuzz.run import FuzzPlan, FuzzSummary, fuzz, fuzz_part

PREFIX_SUM = "examples/prefix_sum/prefix_sum.py:PrefixSum"
NO_QUIET = ("--without", "chunk before tail")


def invoke(*words: str) -> tuple[int, str]:
    """Exit code and output of the command, in this process."""
    done = CliRunner().invoke(app, ["fuzz", "--workers", "1", *words])
    return done.exit_code, done.output


def test_nothing_found() -> None:
    """A protocol outside of the package, with no change, passes; small sequences are proved."""
    code, out = invoke(PREFIX_SUM, "--examples", "10", "--json")
    told = json.loads(out)
    assert (code, told["findings"], told["stopped"]) == (0, [], "")
    assert told["sequences"] >= 10
    assert 0 < told["proved"] <= told["judged"]
    assert told["calls"] > told["sequences"]


def test_one_process_whose_time_is_over_is_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parts come back at once, while another process, which has compiled, is still to say what it has found."""
    late, found = FuzzSummary("a", spent={1}), FuzzSummary("a", findings=["a finding"], spent={2})
    monkeypatch.setattr(run, "fuzz_part", lambda plan: FuzzSummary("a"))
    for parts, least in (([late, late, late, found], ["a finding"]), ([late, FuzzSummary("a", spent={2}), found], [])):
        monkeypatch.setattr(run, "in_parts", lambda *_, parts=parts: in_parts(lambda part: part, parts, 1))
        summary = fuzz(FuzzPlan("sendrecv", examples=1000), 2, seconds=15)
        assert (summary.findings, summary.stopped) == (least, "more than 15 seconds")


def test_a_finding_is_kept_and_shown_again(tmp_path: Path) -> None:
    """Without its quiet a single call is enough, and what is kept shows the same violation."""
    file = tmp_path / "found.json"
    code, out = invoke(PREFIX_SUM, *NO_QUIET, "--examples", "10", "--out", str(file))
    assert code == 1
    assert "data race" in out
    assert "communicator 1: " in out
    assert "communicator 2: " not in out
    assert f"--replay {file} {PREFIX_SUM}" in out
    code, again = invoke(PREFIX_SUM, "--replay", str(file))
    assert code == 1
    assert "data race" in again
    code, told = invoke(PREFIX_SUM, "--replay", str(file), "--json")
    assert json.loads(told)["findings"][0]["violation"]["kind"] == "data race"


def test_the_same_seed_finds_the_same() -> None:
    """What is drawn depends on the seed, and on nothing else."""
    plan = FuzzPlan(PREFIX_SUM, {}, 5, 3, SequenceBudget(without=("chunk before tail",)))
    one, other = fuzz_part(plan), fuzz_part(plan)
    assert one.findings[0].stages == other.findings[0].stages
    assert one.findings[0].verdict.violation is not None
    assert other.findings[0].verdict.violation is not None
    assert one.findings[0].verdict.violation.actions.tolist() == other.findings[0].verdict.violation.actions.tolist()


def test_given_sizes_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A size on the command line is the same in all sequences."""
    plan = FuzzPlan(PREFIX_SUM, {"dies": 4}, 3, 0, SequenceBudget(without=("chunk before tail",)))
    found = json.loads(fuzz_part(plan).findings[0].stages)
    assert [stage["sizes"]["dies"] for stage in found] == [4]


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (UnfinishedError("part 4 of 9: x"), 3)])
def test_what_ends_it_early(monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int) -> None:
    """Ctrl-C and a killed worker leave the counts of what was done, and their exit codes."""
    parts = iter([FuzzSummary("the first sequence"), FuzzSummary("prefix_sum", sequences=20)])

    def part(plan: FuzzPlan) -> FuzzSummary:
        if one := next(parts, None):
            return one
        raise error

    monkeypatch.setattr(run, "fuzz_part", part)
    ended, out = invoke(PREFIX_SUM, "--examples", "30")
    assert ended == code
    assert "20 sequences" in out


def test_seconds_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """When its time is over nothing more begins, and that is no error."""
    code, out = invoke(PREFIX_SUM, "--seconds", "2", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["stopped"] == "more than 2 seconds"
    assert told["judged"] > 0
    assert told["sequences"] < 10_000


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "PROTOCOL: must be one of"),
        (("nothing",), "protocol 'nothing': must be a name"),
        ((PREFIX_SUM, "--order", "tso"), "must be one of sc, fifo, relaxed"),
        ((PREFIX_SUM, "--seconds", "0"), "--seconds 0.0: must be positive"),
        ((PREFIX_SUM, "--legs", "4"), "has no such size, but dies"),
        ((PREFIX_SUM, "--dies", "1"), "must be at least 2"),
        ((PREFIX_SUM, "--without", "nothing"), "no such synchronization"),
        ((PREFIX_SUM, "--fault", "melt"), "--fault melt: must be stop:dieN"),
        (("--replay", "/nowhere.json"), "does not exist"),
    ],
)
def test_what_is_refused(words: tuple[str, ...], told: str) -> None:
    """Exit code 2, and what would be right."""
    code, out = invoke("--examples", "1", *words)
    assert code == 2
    assert told in out


def test_a_fault_that_is_asked_for_is_found_and_replayed(tmp_path: Path) -> None:
    """A write that comes twice is nothing that prefix sums promise to stand; on request it is drawn, and kept."""
    file = str(tmp_path / "found.json")
    words = (PREFIX_SUM, "--dies", "2", "--fault", "duplicate", "--examples", "20", "--out", file, "--json")
    code, out = invoke(*words)
    (found,) = json.loads(out)["findings"]
    assert (code, found["fault"].partition(":")[0]) == (1, "duplicate")
    code, out = invoke(PREFIX_SUM, "--replay", file, "--json")
    again = json.loads(out)["findings"][0]
    assert (code, again["violation"]["kind"]) == (1, found["violation"]["kind"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dask", [None, LOCAL])
def test_on_processes_and_on_a_cluster(dask: str | None) -> None:
    """Parts in other processes, and on a cluster, add up to the same as one after the other."""
    if dask:
        pytest.importorskip("distributed")
    plan = FuzzPlan(PREFIX_SUM, {"dies": 2}, 30)
    here, there = fuzz(plan, 1), fuzz(plan, 2, dask)
    assert {**vars(here), "seconds": 0} == {**vars(there), "seconds": 0}
