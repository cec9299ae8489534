"""Sweeps: which points, on processes and on a Dask cluster, and what is refused."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.cli_support import as_json, invoke
from tests.refused import refuses
from xccl_emu.base.errors import CapacityError, ConfigError, UnfinishedError
from xccl_emu.base.jobs import LOCAL, Job, collect, run_jobs
from xccl_emu.cli.main import app
from xccl_emu.papers.bench.result import FAILED, Result
from xccl_emu.papers.bench.setting import DEFAULT, Setting
from xccl_emu.papers.bench.sweep import SweepPoint, in_order, jobs, parse_axes, points, run_point
from xccl_emu.papers.cli import bench

NO_DATA = Setting(data=False)


def test_ranges_double_and_have_their_end() -> None:
    """A range is its beginning, doubled, and its end; values with commas are as they are."""
    axes = parse_axes(["ep=8:48", "batch=60,1"])
    assert axes == {"ep": [8, 16, 32, 48], "batch": [1, 60]}


@refuses(
    parse_axes,
    (["dies=8"], "--sweep dies=8: must be ep=FROM:TO and batch=FROM:TO, each once"),
    (["ep=8", "ep=16"], "--sweep ep=16: must be ep=FROM:TO and batch=FROM:TO, each once"),
    (["ep=8:x"], "--sweep ep=8:x: must be FROM:TO, or values with commas"),
    (["batch=0"], "--sweep batch=0: must be FROM:TO, or values with commas"),
    (["ep=16:8"], "--sweep ep=16:8: ends before it begins"),
    (["ep"], "--sweep ep: must be FROM:TO"),
)
def test_what_is_no_grid() -> None:
    """Unknown and repeated axes, and values that are no range, are refused by their word."""


def test_points_are_all_pairs() -> None:
    """Every EP degree with every batch, the largest first; one that the pod has no dies for is refused."""
    made = points("fused", {"ep": [8, 16], "batch": [1, 4]}, 48, NO_DATA)
    assert [(point.ranks, point.tokens) for point in made] == [(16, 4), (8, 4), (16, 1), (8, 1)]
    with pytest.raises(ConfigError, match="--sweep ep=8:800: must be 2 to 768"):
        points("fused", {"ep": [8, 800]}, 48, NO_DATA)


def test_a_point_that_does_not_fit_is_timed_without_payload() -> None:
    """Its times are there, and a row that says why nothing was compared; where nothing fits it is refused."""
    large = SweepPoint("fused", 8, 4, cores=2)
    free = large.layer.bytes_needed(data=True) - 1
    point = replace(large, setting=replace(DEFAULT, free_bytes=free, left_out=[]))
    rows = bench.rows_of_jobs(
        "sweep", jobs([point]), True, lambda done: in_order(done.values()), str, workers=1, free_bytes=free
    )
    assert [row.what for row in rows] == [
        "dispatch, EP8, batch 4", "combine, EP8, batch 4", "8 ranks, 4 tokens, payload",
    ]  # fmt: skip
    assert [row.wrong for row in rows] == [None] * 3
    assert (rows[-1].role, "GB may be used" in rows[-1].note) == (FAILED, True)
    with pytest.raises(CapacityError, match=r"8 ranks, 4 tokens: needs about .* GB may be used; take less"):
        run_point(replace(point, setting=replace(NO_DATA, free_bytes=1000)))


def test_results_come_in_order() -> None:
    """Whoever is done first, results are by EP degree and batch, and the same in any process."""
    small = [SweepPoint("dispatch", 2, tokens, cores=2, setting=NO_DATA) for tokens in (2, 1)]
    rows = in_order([run_point(point) for point in small])
    assert [row.what for row in rows] == [f"{op}, EP2, batch {n}" for n in (1, 2) for op in ("dispatch", "combine")]


@pytest.mark.slow
def test_the_command_sweeps_on_processes() -> None:
    """Both axes behind one `--sweep`, all four operators of two points, with data and none of it wrong."""
    rows = as_json("bench", "dispatch", "--cores", "2", "--sweep", "ep=2", "batch=1:2")["results"]
    assert [row["configuration"]["tokens"] for row in rows] == [1, 1, 2, 2]
    assert all(row["emulated"] > 0 and not row["wrong"] for row in rows)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # what Dask's own threads do while they end is not ours
def test_a_dask_cluster_gives_the_same() -> None:
    """A local cluster gives what this process does, to the last digit."""
    pytest.importorskip("distributed")
    small = [SweepPoint("dispatch", 2, 1, cores=2)]
    assert in_order(one.result for one in run_jobs(jobs(small), dask=LOCAL)) == run_point(small[0])


def here(monkeypatch: pytest.MonkeyPatch, second: BaseException, first: BaseException | None = None) -> None:
    """Have the command run its points in this process; the first gives a row or an error, the second an error."""

    def point(number: int) -> list[Result]:
        if error := (first, second)[number]:
            raise error
        shape = SweepPoint("dispatch", 2, 1).layer.shape
        return [Result("dispatch", "dispatch, EP2, batch 1", 3.0, "us", configuration=shape)]

    def run(made: list[Job[list[Result]]], note: Any, **_: object) -> object:
        return collect([Job(job.name, partial(point, number)) for number, job in enumerate(made)], note, workers=1)

    monkeypatch.setattr(bench, "collect", run)


def test_what_is_done_is_kept_when_a_point_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The finished points are shown as JSON and in the file; each that failed is a row with its reason, which the
    message says as well, and the exit code is 3."""
    here(monkeypatch, UnfinishedError("cannot be"))
    words = ["bench", "dispatch", "--json", "--csv", str(tmp_path / "t.csv"), "--sweep", "ep=2,4", "batch=1"]
    code, out, err = invoke(*words)
    told = json.loads(out)
    assert (code, [row["role"] for row in told["results"]]) == (3, ["emulated", "failed"])
    assert {name: told["results"][1][name] for name in ("bench", "what", "emulated", "note")} == {
        "bench": "dispatch", "what": "--sweep, EP2, batch 1", "emulated": None, "note": "cannot be",
    }  # fmt: skip
    assert told["stopped"] == "1 of 2 failed:\n  --sweep, EP2, batch 1: cannot be"
    assert "EP2, batch 1: cannot be" in err
    assert (tmp_path / "t.csv").read_text().count("\n") == 3


def test_a_point_with_an_error_that_nobody_foresaw_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The finished points are shown, its row has its type, and then it comes out of the command, which makes it 4."""
    here(monkeypatch, KeyError("ep"))
    result = CliRunner().invoke(app, ["bench", "dispatch", "--json", "--sweep", "ep=2,4", "batch=1"])
    assert isinstance(result.exception, KeyError)
    assert [row["note"] for row in json.loads(result.stdout)["results"]] == ["", "KeyError: 'ep'"]


@pytest.mark.parametrize(
    ("signal", "code", "says"), [(KeyboardInterrupt(), 130, "interrupted"), (SystemExit(143), 143, "terminated")]
)
def test_what_is_done_is_kept_on_a_signal(
    signal: BaseException, code: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finished points are shown, with what has stopped the others; the exit code is the signal's."""
    here(monkeypatch, signal)
    ended, out, _ = invoke("bench", "dispatch", "--json", "--sweep", "ep=2,4", "batch=1")
    told = json.loads(out)
    assert (ended, len(told["results"]), told["stopped"]) == (code, 1, says)


@pytest.mark.parametrize(("error", "code"), [(UnfinishedError("no end"), 3), (ConfigError("too large"), 2)])
def test_nothing_done_is_an_error_alone(error: Exception, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No table without a row: only the message, and the code of what all points have failed with."""
    here(monkeypatch, error, error)
    assert invoke("bench", "dispatch", "--json", "--sweep", "ep=2,4", "batch=1")[:2] == (code, "")
