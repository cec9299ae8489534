"""`bench` of a collective: the options and the table of nccl-tests."""

import re

import pytest
from cli_support import as_json, printed

from xccl_emu.base.errors import ConfigError
from xccl_emu.papers.cli.perf import Perf
from xccl_emu.protocol.registry import make

ROW = re.compile(r" +(\d+) +(\d+) +(bfloat16|half) +(sum|none) +-1" + r" +([\d.]+) +([\d.]+) +([\d.]+) +(\d+)" * 2)


def test_the_table_is_that_of_nccl_tests() -> None:
    """Sizes, counts, type, operation; time, algbw, busbw and #wrong out of place and in place, in these columns."""
    words = ("-b", "1K", "-e", "4K", "-f", "4", "-d", "half", "--ranks", "4")
    text = printed("bench", "all-reduce-two-shot", *words).splitlines()
    assert text[0].startswith("# all-reduce-two-shot nRanks 4 minBytes 1024 maxBytes 4096 warmup iters: 1 iters: 3")
    assert text[3].split() == ["#", "size", "count", "type", "redop", "root", *["time", "algbw", "busbw", "#wrong"] * 2]
    rows = [found.groups() for line in text if (found := ROW.fullmatch(line))]
    assert [row[:4] for row in rows] == [("1024", "512", "half", "sum"), ("4096", "2048", "half", "sum")]
    for row in rows:
        assert row[7] == row[11] == "0"
        assert float(row[5]) == pytest.approx(int(row[0]) / float(row[4]) / 1000, abs=0.006)
        assert float(row[6]) == pytest.approx(float(row[5]) * 2 * 3 / 4, abs=0.02)
    assert "# Out of bounds values : 0 OK" in text


def test_without_payload_nothing_is_said_to_be_right() -> None:
    """#wrong is N/A, as nccl-tests print it where they do not check, and no line says that all is right."""
    out = printed("bench", "all-gather", "-b", "4K", "--no-data")
    assert out.splitlines()[0].endswith("validation: 0")
    assert out.count("N/A") == 3
    assert "Out of bounds" not in out


@pytest.mark.parametrize(("name", "count"), [("all-gather-ring", 32), ("reduce-scatter", 32), ("all-to-all", 32)])
def test_counts_are_of_a_share_where_ranks_have_their_own(name: str, count: int) -> None:
    """256 bytes on four ranks are 32 elements each, as nccl-tests say."""
    assert make(name, ranks=4).of_bytes(256).count == count
    assert make("all-reduce-ring", ranks=4).of_bytes(256).count == 128


@pytest.mark.parametrize("words", [("mixserve-dispatch",), ("all-reduce-ring", "--ranks", "4")])
def test_other_pods_have_other_times(words: tuple[str, ...]) -> None:
    """``--fabric``: NVLink and InfiniBand are faster than HCCS and RoCE, and the rows say whose they are."""
    rows = {name: as_json("bench", *words, "--fabric", name)["results"][0] for name in ("atlas-800t-a2", "h20")}
    assert rows["h20"]["emulated"] < rows["atlas-800t-a2"]["emulated"]
    assert rows["h20"]["configuration"]["fabric"] == "H20, 2 nodes"
    assert "fabric" not in as_json("bench", *words)["results"][0]["configuration"]


def test_more_iterations_are_timed_behind_the_warmup() -> None:
    """A call in a row of calls takes as long whatever their number."""
    taken = {}
    for iterations, warmup in ((1, 2), (3, 2)):
        words = ("bench", "all-gather", "-b", "4K", "-n", f"{iterations}", "-w", f"{warmup}")
        taken[iterations, warmup] = as_json(*words)["results"][0]["emulated"]
    assert taken[1, 2] == pytest.approx(taken[3, 2], rel=0.2)


def test_sizes_are_multiplied() -> None:
    """-b, -e and -f give each size from the first to the last that is not beyond the end."""
    assert [*Perf("1K", "9K", 2).sizes()] == [1024, 2048, 4096, 8192]
    assert [*Perf("8").sizes()] == [8]
    assert [*Perf().sizes()] == [None]
    assert [*Perf("3mb").sizes()] == [3 << 20]
    with pytest.raises(ConfigError, match="-b 0: must be a size such as 512"):
        Perf("0").sizes()
    with pytest.raises(ConfigError, match="-e 4: must be at least -b 8"):
        Perf("8", "4").sizes()
