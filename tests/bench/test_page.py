"""docs/benchmarks.md and README's table: made by a command, and still what it says."""

from collections.abc import Callable
from types import ModuleType

import pytest

from tests.cli_support import as_json
from xccl_emu.bench import published


@pytest.fixture(scope="module")
def tool(load_tool: Callable[[str], ModuleType]) -> ModuleType:
    """tools/benchmarks.py."""
    return load_tool("benchmarks")


def rows_of(tool: ModuleType, *arguments: str) -> list[str]:
    """Lines of the page for what a bench prints as JSON."""
    return [tool.line(tool.result_of(row)) for row in as_json("bench", *arguments)["results"]]


def test_the_readme_has_the_fitted_and_checked_rows_of_the_page(tool: ModuleType) -> None:
    """README's table is the page's, and every latency of Table 7 is in it."""
    readme, page = tool.README.read_text("utf-8"), tool.PAGE.read_text("utf-8")
    assert tool.with_summary(readme, page) == readme
    for row in published.rows("fused"):
        if row.role in ("fit", "check"):
            assert f"| {row.what} | {row.value:g} |" in readme


def test_the_page_says_what_quick_benches_say(tool: ModuleType) -> None:
    """Run again, links and buffers give the very lines that the page has."""
    page = tool.PAGE.read_text("utf-8").splitlines()
    for line in [*rows_of(tool, "links"), *rows_of(tool, "buffers")]:
        assert line in page


@pytest.mark.slow
@pytest.mark.parametrize("bench", ["sendrecv", "fused", "deepep", "a2e", "iteration", "ablation"])
def test_the_page_says_what_slower_benches_say(tool: ModuleType, bench: str) -> None:
    """The same for benches that take minutes; without payload times are the same."""
    page = tool.PAGE.read_text("utf-8").splitlines()
    for line in rows_of(tool, bench, "--no-data"):
        assert line in page
