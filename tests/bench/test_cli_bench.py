"""`xccl-emu bench`: what it prints, writes, and ends with."""

import csv
from pathlib import Path

import pytest

from tests.cli_support import as_json, printed
from xccl_emu.papers.bench.result import Result
from xccl_emu.papers.cli import bench_show


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
