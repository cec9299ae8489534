"""Sweeps: which points, on processes and on a Dask cluster, and what is refused."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli_support import as_json, invoke
from tests.refused import refuses
from xccl_emu.bench.processes import LOCAL
from xccl_emu.bench.result import Result
from xccl_emu.bench.setting import Setting
from xccl_emu.bench.sweep import SweepPoint, in_order, on_cluster, on_this_machine, parse_axes, points, run_point
from xccl_emu.errors import ConfigError, UnfinishedError

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


def test_a_point_that_does_not_fit_is_refused() -> None:
    """Before anything runs; without payload it may fit."""
    large = SweepPoint("fused", 768, 128)
    assert SweepPoint("fused", 768, 128, setting=NO_DATA).bytes_needed < large.bytes_needed / 20
    with pytest.raises(ConfigError, match="take --no-data"):
        list(on_this_machine([large], 8 << 30))


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
    assert in_order(on_cluster(small, LOCAL)) == run_point(small[0])


def test_without_dask_or_without_a_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing extra is named with what installs it."""
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"--dask tcp://nowhere:1: needs Dask; install xccl_emu\[dask\]"):
        list(on_cluster([], "tcp://nowhere:1"))


def test_what_is_done_is_kept_when_a_point_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The finished points are shown as JSON and in the file; the message names the others, and the exit code is 3."""

    def some(made: list[SweepPoint], free_bytes: int) -> Iterator[list[Result]]:
        yield [Result("dispatch", "dispatch, EP2, batch 1", 3.0, "us", configuration=made[-1].layer.shape)]
        raise UnfinishedError("1 of 2 failed:\n  EP4, batch 1: killed")

    monkeypatch.setattr("xccl_emu.cli.bench_sweep.on_this_machine", some)
    words = ["bench", "dispatch", "--json", "--csv", str(tmp_path / "t.csv"), "--sweep", "ep=2,4", "batch=1"]
    code, out, err = invoke(*words)
    told = json.loads(out)
    assert (code, len(told["results"])) == (3, 1)
    assert "EP4, batch 1: killed" in told["stopped"]
    assert "EP4, batch 1: killed" in err
    assert (tmp_path / "t.csv").read_text().count("\n") == 2


@pytest.mark.parametrize(
    ("signal", "code", "says"), [(KeyboardInterrupt(), 130, "interrupted"), (SystemExit(143), 143, "terminated")]
)
def test_what_is_done_is_kept_on_a_signal(
    signal: BaseException, code: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finished points are shown, with what has stopped the others; the exit code is the signal's."""

    def some(made: list[SweepPoint], free_bytes: int) -> Iterator[list[Result]]:
        yield [Result("dispatch", "dispatch, EP2, batch 1", 3.0, "us", configuration=made[-1].layer.shape)]
        raise signal

    monkeypatch.setattr("xccl_emu.cli.bench_sweep.on_this_machine", some)
    ended, out, _ = invoke("bench", "dispatch", "--json", "--sweep", "ep=2,4", "batch=1")
    told = json.loads(out)
    assert (ended, len(told["results"]), told["stopped"]) == (code, 1, says)


def test_nothing_done_is_an_error_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No table without a row: only the message, and the same code."""

    def none(made: list[SweepPoint], free_bytes: int) -> Iterator[list[Result]]:
        raise UnfinishedError("2 of 2 failed")
        yield

    monkeypatch.setattr("xccl_emu.cli.bench_sweep.on_this_machine", none)
    assert invoke("bench", "dispatch", "--json", "--sweep", "ep=2,4", "batch=1")[:2] == (3, "")
