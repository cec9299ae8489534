"""docs/records/benchmarks.md and README's five rows: made by a command, and still what it says."""

import re
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.cli_support import as_json
from xccl_emu.papers.bench import published


@pytest.fixture(scope="module")
def tool(load_tool: Callable[[str], ModuleType]) -> ModuleType:
    """tools/benchmarks.py."""
    return load_tool("benchmarks")


@pytest.fixture(scope="module")
def links() -> list[Any]:
    """What the bench of links prints as JSON."""
    rows: list[Any] = as_json("bench", "links")["results"]
    return rows


WITHOUT_BAND = re.compile(r"(?: \|)+ [\d.]+ to [\d.]+ \|$")
"""An interval at the end of a line, and what empty columns are before it."""


def lines_of(tool: ModuleType, rows: Iterable[Any]) -> list[str]:
    """Lines of the page for what a bench prints as JSON."""
    return [tool.line(tool.result_of(row)) for row in rows]


def error_percent(line: str) -> float:
    """Return the size of the error in a row of a table."""
    return abs(float(line.split("|")[6].strip().rstrip("%")))


def test_the_readme_shows_no_favourites(tool: ModuleType) -> None:
    """README's rows are five of the page's Table 7, none was fitted to, and the largest error is among them."""
    readme, page = tool.README.read_text("utf-8"), tool.PAGE.read_text("utf-8")
    assert tool.with_summary(readme, page) == readme
    shown = [line for line in readme.splitlines() if line.startswith("|") and line.endswith("% |")]
    rows = [row for row in published.rows("fused") if row.role in ("fit", "check")]
    checked = {f"| {row.what} | {row.value:g} |" for row in rows if row.role == "check"}
    assert len(shown) == 5
    assert all(any(line.startswith(start) for start in checked) for line in shown)
    table = page.partition("\n## fused\n")[2].partition("\n## ")[0].splitlines()
    every = [line for row in rows for line in table if line.startswith(f"| {row.what} | {row.value:g} |")]
    assert len(every) == len(rows)
    assert max(map(error_percent, shown)) == max(map(error_percent, every))


def test_tables_of_some_benches_are_made_again(tool: ModuleType) -> None:
    """Only theirs change: the others and the scoreboard stay as they are, and only their commands are run."""
    page = tool.PAGE.read_text("utf-8")
    assert tool.page(page, [], ["links"]) == page
    new = tool.page(page, [tool.Result("links", "a path", 1.0, "us")], ["links"])
    assert "a path" in tool.part_of(new, "links")
    assert new.partition("## buffers")[2] == page.partition("## buffers")[2]
    assert tool.part_of(new, "Scoreboard") == tool.part_of(page, "Scoreboard")
    assert tool.commands(["serve", "links"]) == [["serve"], tool.APART, tool.WHOLE, ["links", "--no-data"]]
    assert tool.commands([]) == [*tool.COMMANDS]


def test_the_plot_is_that_of_the_page(load_tool: Callable[[str], ModuleType]) -> None:
    """README's plot of Table 7 has the latencies of the page, each as it was published and as it is emulated."""
    tool = load_tool("table7")
    rows, plot = tool.rows(tool.PAGE.read_text("utf-8")), tool.PLOT.read_text("utf-8")
    known = {row.what: row for row in published.rows("fused") if row.role in ("fit", "check")}
    assert {f"{row.operator} EP{row.degree} latency": row.published_us for row in rows} == {
        what: row.value for what, row in known.items()
    }
    assert tool.svg(rows) == plot
    assert len(ElementTree.fromstring(plot).findall("{*}rect")) == len(known) + 2  # with two of the legend
    assert "docs/table7.svg" in (tool.ROOT / "README.md").read_text("utf-8")


def test_errors_are_those_of_the_page(load_tool: Callable[[str], ModuleType]) -> None:
    """The plot has a dot for each scored row with an error, and is that of the page."""
    tool = load_tool("errors")
    page, plot = tool.PAGE.read_text("utf-8"), tool.PLOT.read_text("utf-8")
    assert tool.svg(tool.rows(page)) == plot
    scored = [line for line in page.splitlines() if re.search(r"\| (fit|check) \| [+-][\d.]+% \|", line)]
    assert len(ElementTree.fromstring(plot).findall("{*}circle")) == len(scored) + 2 > 40  # with two of the legend


def test_curves_are_those_of_the_page(load_tool: Callable[[str], ModuleType]) -> None:
    """The plot has a ring for each published number of its panels, and is that of the page."""
    tool = load_tool("curves")
    page, plot = tool.PAGE.read_text("utf-8"), tool.PLOT.read_text("utf-8")
    assert tool.svg(page) == plot
    found = [points for each in tool.PLOTS for points in tool.lines(page, each).values()]
    known = sum(point.published is not None for points in found for point in points)
    assert len(ElementTree.fromstring(plot).findall("{*}circle")) == known >= 12 + 8 + 20 + 2
    assert min(map(len, found)) >= 2
    assert {len(tool.lines(page, each)) for each in tool.PLOTS} == {1, 2, 4, 6}


def test_the_page_says_what_quick_benches_say(tool: ModuleType, links: list[Any]) -> None:
    """Run again, links and buffers give the very lines that the page has."""
    page = tool.PAGE.read_text("utf-8").splitlines()
    for line in lines_of(tool, [*links, *as_json("bench", "buffers")["results"]]):
        assert line in page


def test_links_are_near_the_inputs(links: list[Any]) -> None:
    """Measured by kernels, bandwidths are within 1% of Table 1, and latencies within what an instruction takes."""
    rows = {row["what"]: row for row in links}
    for op in ("read", "write"):
        for where in ("same node", "other node"):
            assert abs(rows[f"NPU-NPU {op} bandwidth, {where}"]["error_percent"]) < 1
            latency = rows[f"NPU-NPU {op} latency, {where}"]
            assert 0 < latency["emulated"] - latency["published"] < 0.1


def scoreboard(page: str) -> dict[str, tuple[str, str, str]]:
    """Rows, the model's error, and bounds that hold, by table of the page's scoreboard."""
    lines = page.partition("<!-- scoreboard: ")[2].partition("<!-- scoreboard end")[0].splitlines()
    cells = [[cell.strip() for cell in line.split("|")] for line in lines if line.startswith("|")]
    return {row[1]: (row[2], row[3], row[7]) for row in cells[2:]}


def scores_of(tables: Iterable[Any]) -> dict[str, tuple[str, str, str]]:
    """The same of what `bench --json` has."""
    return {
        one["table"]: (
            str(one["n_rows"] or ""), "" if one["mape_percent"] is None else f"{one['mape_percent']:.1f}%",
            f"{one['held']} of {one['n_bounds']}" if one["n_bounds"] else "",
        )
        for one in tables if one["of"] in ("emulated", "by the equations")
    }  # fmt: skip


def test_the_scoreboard_has_every_table_with_check_rows(tool: ModuleType) -> None:
    """But for those of `bench unseen`; and those of equations have the numbers that the command says."""
    board = scoreboard(tool.PAGE.read_text("utf-8"))
    rows = [row for row in published.all_rows() if not row.measurement.startswith("unseen")]
    checked = {row.measurement for row in rows if row.role == "check"}
    assert {*board} == {table.replace("deepep_h800", "deepep") for table in checked} | {"all with a line", "all"}
    quick = scores_of(as_json("bench", "plan")["tables"])
    assert {name: board[name] for name in quick if name.startswith("mixserve")} == {
        name: row for name, row in quick.items() if name.startswith("mixserve")
    }


@pytest.mark.slow
@pytest.mark.nightly
def test_the_scoreboard_is_that_of_bench_all(tool: ModuleType) -> None:
    """Every number of the page is in the JSON of `bench all`."""
    assert scores_of(as_json("bench", "all", "--no-data")["tables"]) == scoreboard(tool.PAGE.read_text("utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "bench",
    ["sendrecv", "fused", "deepep", pytest.param("a2e", marks=pytest.mark.nightly), "iteration", "ablation"],
)
def test_the_page_says_what_slower_benches_say(tool: ModuleType, bench: str) -> None:
    """The same for benches that take minutes, but for intervals; without payload times are the same."""
    page = [WITHOUT_BAND.sub(" |", line) for line in tool.PAGE.read_text("utf-8").splitlines()]
    for line in lines_of(tool, as_json("bench", bench, "--no-data")["results"]):
        assert line in page
