"""Plots: what can be drawn is drawn, and what cannot is refused before anything runs."""

import re
from pathlib import Path

import pytest

from xccl_emu.base.errors import ConfigError
from xccl_emu.cli.files import check_plot
from xccl_emu.papers.bench.result import Result
from xccl_emu.papers.cli.bench_plot import draw
from xccl_emu.papers.cli.bench_show import write_csv
from xccl_emu.timing.topologies import CLOUDMATRIX384

TRANSFERS = [
    Result("sendrecv", f"{n} on 2 cores", 8.0 + n / 1e5, "us", configuration={"bytes": n, "cores": 2, "to": "pod"})
    for n in (1024, 65536, 1 << 20)
]
LAYERS = [
    Result("dispatch", f"{op}, batch {n}", 30.0 + n, "us", configuration={"ranks": 8, "tokens": n, "cores": 48})
    for op in ("dispatch", "combine") for n in (1, 8, 64)
]  # fmt: skip
DEGREES = [
    Result("fused", f"{op} EP{n} latency", 110.0 + n, "us", 120.0 + n, configuration={"ranks": n, "tokens": 128})
    for op in ("dispatch", "combine") for n in (8, 64, 256)
]  # fmt: skip


@pytest.mark.parametrize("results", [TRANSFERS, LAYERS, DEGREES], ids=["by size", "by batch", "by EP degree"])
def test_a_plot_is_written(results: list[Result], tmp_path: Path) -> None:
    """As a PNG with something in it."""
    pytest.importorskip("matplotlib")
    file = tmp_path / "plot.png"
    check_plot(file)
    draw(results, file, CLOUDMATRIX384)
    assert file.read_bytes().startswith(b"\x89PNG")
    assert file.stat().st_size > 10_000


ONE_SIZE = [
    Result("iteration", f"{what}, x", 30.0, unit, configuration={"ranks": 288, "tokens": 120, "cores": 48})
    for what, unit in (("both", "%"), ("layer", "us"), ("layer again", "us"))
]
ROWS = [Result("links", "latency", 1.0, "us", 1.1), Result("links", "bandwidth", 300.0, "GB/s"),
        Result("links", "nothing", None, "us")]  # fmt: skip


MIXED = [*ROWS, *DEGREES, *TRANSFERS]


@pytest.mark.parametrize("results", [ROWS, ONE_SIZE, MIXED], ids=["one bench", "one size", "several"])
def test_rows_without_sizes_are_bars(results: list[Result], tmp_path: Path) -> None:
    """Every bench can be drawn, all of them at once too."""
    pytest.importorskip("matplotlib")
    draw(results, tmp_path / "plot.svg", CLOUDMATRIX384)
    text = (tmp_path / "plot.svg").read_text()
    assert text.rstrip().endswith("</svg>")
    assert len(text) > 10_000
    units = {result.unit for result in results if "bytes" not in result.configuration}
    assert len(re.findall('id="axes_', text)) == len(units)


def test_every_bench_takes_a_plot() -> None:
    """By its help."""
    from typer.testing import CliRunner

    from xccl_emu.papers.cli import bench

    for command in bench.app.registered_commands:
        name = command.name or command.callback.__name__
        assert "--plot" in CliRunner().invoke(bench.app, [name, "--help"]).stdout, name


def test_an_unknown_format_is_refused() -> None:
    """By the name of the file, before anything runs."""
    with pytest.raises(ConfigError, match=r"--plot a.gif: must end with .png, .svg, .pdf"):
        check_plot(Path("a.gif"))


def test_parquet(tmp_path: Path) -> None:
    """The name of the file asks for Parquet; its rows are those of the CSV."""
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "rows.parquet"
    write_csv(TRANSFERS, file)
    rows = parquet.read_table(file).to_pylist()
    assert [row["emulated"] for row in rows] == [result.emulated for result in TRANSFERS]
    assert rows[0]["configuration"] == "bytes=1024 cores=2 to=pod"
