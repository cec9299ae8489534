"""`xccl-emu bench`: what it prints, writes, and ends with."""

import csv
from pathlib import Path

import pytest

from tests.cli_support import as_json, printed, refusal
from xccl_emu.papers.bench import deepep, fused
from xccl_emu.papers.bench.layers import Layer, Timed
from xccl_emu.papers.bench.result import Result
from xccl_emu.papers.bench.setting import Setting
from xccl_emu.papers.cli import bench, bench_show
from xccl_emu.timing.costs import Costs


def test_buffers_come_out_exactly(tmp_path: Path) -> None:
    """All published sizes come out exactly, as a table, as JSON and as CSV."""
    file = tmp_path / "sizes.csv"
    results = as_json("bench", "buffers", "--csv", str(file))["results"]
    assert len(results) == 6
    assert all(row["published"] == row["emulated"] for row in results)
    assert [row["role"] for row in results].count("exact") == 5
    with file.open(newline="") as lines:
        assert [row["what"] for row in csv.DictReader(lines)] == [row["what"] for row in results]
    assert printed("bench", "buffers").count("exact │ exact") == 5


def test_wrong_data_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong element shows in the table, in the closing line and in the exit code."""
    rows = [Result("buffers", "something", 1.0, "us", wrong=3)]
    monkeypatch.setattr("xccl_emu.papers.bench.tables.buffers", lambda setting: rows)
    text = printed("bench", "buffers", code=1)
    assert "3 wrong" in text
    assert text.endswith("#wrong 3\n")


SMALL = ("bench", "sendrecv", "-b", "1K", "-e", "1K", "--cores", "2", "--slots", "2", "--no-data")


def test_without_data_nothing_is_called_right() -> None:
    """Where nothing was compared the table says N/A and JSON null, and JSON tells of the run."""
    assert printed(*SMALL).endswith("#wrong N/A\n")
    told = as_json(*SMALL)
    assert (told["wrong"], told["data"], told["seed"]) == (None, False, 0)


def test_claims_are_of_the_published_setting_only() -> None:
    """Figure 5's rows are not made of rings of another size; their own setting is in their configuration."""
    assert {row["role"] for row in as_json(*SMALL)["results"]} == {"emulated"}


@pytest.mark.parametrize(
    ("value", "text"), [(7680, "7,680"), (225.0, "225"), (1.96185, "1.962"), (1234.5, "1,234"), (0.6613, "0.6613")]
)
def test_numbers(value: float, text: str) -> None:
    """Whole numbers in full, others with about four figures."""
    assert bench_show.number(value) == text


SMALL_TABLE = {"EP8": 8, "EP16": 16}


@pytest.fixture
def small_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Table 7 with two EP degrees and two tokens a rank."""
    rows = [row for row in fused.LATENCIES if row.what.split()[1] in SMALL_TABLE]
    monkeypatch.setattr(fused, "LATENCIES", rows)
    monkeypatch.setattr(fused, "TOKENS", 2)


@pytest.mark.usefixtures("small_table")
def test_a_row_that_finds_no_room_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """EP8 moves its payload; EP16 is timed without it and says why; where even that finds no room EP8 is shown: 3."""
    need = [Layer(ranks, 2).bytes_needed for ranks in (8, 16)]
    bare = as_json("bench", "fused", "--no-data")["results"]
    every = {row["what"]: row["emulated"] for row in bare if row["bench"] == "fused"}
    for limit, compared, timed in ((need[1](False), 8, 16), (need[0](False), 0, 8)):
        monkeypatch.setattr("xccl_emu.base.free_memory.available_bytes", lambda limit=limit: limit)
        told = as_json("bench", "fused", code=3)
        rows = {row["what"]: row for row in told["results"] if row["bench"] == "fused"}
        for ranks in (8, 16):
            row = rows.get(f"dispatch EP{ranks} latency")
            assert (row and row["emulated"]) == (every[f"dispatch EP{ranks} latency"] if ranks <= timed else None)
            assert (row and row["wrong"]) == (0 if ranks <= compared else None)
        left = [row for row in rows.values() if row["role"] == "failed"]
        assert any(row["what"].startswith("16 ranks, 2 tokens") for row in left)
        assert all("GB may be used" in row["note"] for row in left)
        assert "not all of it found room in memory" in told["stopped"]
        assert told["peak_bytes"] > 1 << 24


@pytest.mark.parametrize("size", ["8", "8GB", "512MiB", "1.5G"])
def test_memory_takes_sizes(size: str) -> None:
    """As other sizes; a bench that needs nothing takes any, and what is none is refused by name."""
    assert as_json("bench", "plan", "--memory", size)["stopped"] == ""
    said = refusal("bench", "plan", "--memory", "lots")
    assert "--memory lots: must be a size such as 512, 64K, 512MiB or 8GB" in said


@pytest.mark.usefixtures("small_table")
def test_ctrl_c_keeps_the_rows_that_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are rows of EP8, with their scores, and the exit code is that of Ctrl-C."""
    run = fused.FusedLayer.run

    def until_16(layer: fused.FusedLayer, costs: Costs) -> Timed:
        if len(layer._topk) == 16:
            raise KeyboardInterrupt
        return run(layer, costs)

    monkeypatch.setattr(fused.FusedLayer, "run", until_16)
    told = as_json("bench", "fused", "--no-data", code=130)
    assert {row["what"].split()[1] for row in told["results"] if row["bench"] == "fused"} == {"EP8"}
    assert told["stopped"] == "interrupted"


def test_rows_are_said_as_they_come(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, once the command has taken a while; not before, and not with --json."""
    row = Result("fused", "dispatch EP8 latency", 115.0, "us", 116.0)
    for quiet, soon_s, said in ((False, -1.0, 2), (False, 60.0, 0), (True, -1.0, 0)):
        monkeypatch.setattr(bench, "_SOON_S", soon_s)
        say = bench._sayer(quiet)
        say(row)
        say(row)
        line = "xccl-emu: fused: dispatch EP8 latency: 115 us, published 116 us\n"
        assert capsys.readouterr().err == line * said


def test_what_one_way_of_deepeps_test_takes() -> None:
    """Each option is of one more row, and options that contradict are refused."""
    own = [one.words for one in deepep.OTHERS]
    assert own == ["48 cores", "BF16", "FP8 comes in", "once to a rank", "normal mode"]
    assert "--normal: sends BF16 once to each rank" in refusal("bench", "deepep", "--normal", "--once")
    assert "--dtype fp4: must be one of fp8, bf16, fp8-in" in refusal("bench", "deepep", "--dtype", "fp4")


@pytest.mark.parametrize("own", [deepep.Own(dtype="bf16", once=True, cores=64), deepep.Own(once=True)])
def test_other_ways_of_deepeps_test_are_right(own: deepep.Own) -> None:
    """More cores than a die of the pod has, other types, and masked choices: every element is the oracle's."""
    few = deepep.Layer(4, 4, experts=16, top_k=4, cores=own.cores)
    timed, usual = (deepep.time_test(Setting(), few, one) for one in (own, deepep.Own()))
    assert (timed.wrong_rows, timed.wrong_sums) == (0, 0)
    after_last = (one.combine.ends_us.max() - one.combine.starts_us.max() for one in (timed, usual))
    assert next(after_last) < next(after_last)


def test_normal_mode_has_a_time_for_each_operator() -> None:
    """In `bench deepep-normal` as columns, whose sum is a round's latency; and as rows of `bench deepep`."""
    (row,) = as_json("bench", "deepep-normal", "--rounds", "1", "--tokens", "4")["results"]
    assert row["beside"]["dispatch us"] + row["beside"]["combine us"] == pytest.approx(row["emulated"])
    timed = deepep.time_normal(Setting(data=False), deepep.Layer(4, 4, experts=16, top_k=4, cores=4))
    assert min(timed.dispatch.mean_us, timed.combine.mean_us) > 1
