"""The judge judged: mistakes that tools/judge.py plants in search and monitor fit their source, and some are found."""

import ast
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import ModuleType

import pytest

from tests.check.traps import NAMED
from xccl_emu.check.sampling.device.monitor import layout as ml
from xccl_emu.check.search.device import checker_state as cs

NAMES = ("no-fence", "uses-alone", "fence-over-dies")
OF_MONITOR = ("quiet-takes-nothing", "seen-is-acquired", "release-acquires")


@pytest.fixture
def tool(load_tool: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """tools/judge.py."""
    return load_tool("judge")


def test_each_mistake_fits(tool: ModuleType, tmp_path: Path) -> None:
    """The text that each replaces stands just once in its file, and with all of them every file is still Python."""
    tool.planted(tmp_path)
    for file, _ in groupby(sorted(mistake.file for mistake in tool.MISTAKES)):
        ast.parse((tmp_path / "xccl_emu" / "check" / file).read_text("utf-8"))
    assert tool.SWITCH in (tmp_path / "xccl_emu" / "check" / "search" / "setup.py").read_text("utf-8")
    assert len({mistake.name for mistake in tool.MISTAKES}) == len(tool.MISTAKES) >= 10


def test_the_word_that_says_which_is_free(tool: ModuleType, tmp_path: Path) -> None:
    """The copy's headers have a word more than the package's, and the number of the mistake stands there."""
    tool.planted(tmp_path)
    folder = tmp_path / "xccl_emu" / "check"
    states = (folder / "search" / "device" / "checker_state.py").read_text("utf-8")
    assert f"\n{tool._HEADER[:-1]} + 1\n" in states
    layout = (folder / "sampling" / "device" / "monitor" / "layout.py").read_text("utf-8")
    assert f"\nHEADER = {ml.HEADER + 1}\n" in layout
    assert f"m[{ml.HEADER}] = int(" in (folder / "sampling" / "watch.py").read_text("utf-8")
    assert cs.GIVES_UP + 1 + cs.GIVES_UP_MAX == cs.HEADER == tool.WORD


def test_text_that_is_not_there_is_refused(tool: ModuleType, tmp_path: Path) -> None:
    """So a mistake that fits no more is no mistake that is never found."""
    mistake = tool.Mistake("none", "nothing", "search/setup.py", "no such text", "")
    tool.planted(tmp_path)
    with pytest.raises(ValueError, match=r"none: search/setup\.py has its text 0 times, not once"):
        mistake.plant(tmp_path, 1)


def test_every_mistake_has_a_line(tool: ModuleType) -> None:
    """docs/records/campaign.md says of each after how many programs it was found, of ten at least that it was."""
    page = tool.PAGE.read_text("utf-8")
    rows = [f"| `{mistake.name}` | {mistake.what} | " for mistake in tool.MISTAKES]
    assert all(row in page for row in rows)
    assert sum(f"{row}not in " not in page for row in rows) >= 10


def test_the_table_of_what_finds_each_is_of_the_others(tool: ModuleType) -> None:
    """It has what both tables say, and names traps that there are; ends or a trap find ten at least."""
    page = tool.PAGE.read_text("utf-8")
    assert tool.together(page) == page
    traps = [mistake.trap for mistake in tool.MISTAKES if mistake.trap]
    assert set(traps) <= set(NAMED)
    assert len(traps) + len(tool.lines_of(page, "judge-ends")) >= 10


def test_the_first_program_of_all_processes_counts(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes share the programs, and where two find a mistake the smaller number is kept."""
    script = tmp_path / "hunts.py"
    script.write_text("import sys\nprint(9 - int(sys.argv[3]), 1, 'sc', 'kind', sep='\\t')")
    monkeypatch.setattr(tool, "__file__", str(script))
    assert tool.found(tmp_path, 0, range(0, 10, 2), [1]) == {1: ("9", "sc", "kind")}


@pytest.mark.nightly
def test_a_mistake_is_found(tool: ModuleType, tmp_path: Path) -> None:
    """A campaign on a copy with the mistake contradicts itself on a program on which all judges agree without it; of
    mistakes in the monitor the model finds those too in which reads acquire too much."""
    tool.planted(tmp_path)
    numbers = [n for n, mistake in enumerate(tool.MISTAKES, 1) if mistake.name in (*NAMES, OF_MONITOR[0])]
    assert set(tool.found(tmp_path, 0, range(0, 500, 2), numbers)) == set(numbers)
    watching = [n for n, mistake in enumerate(tool.MISTAKES, 1) if mistake.name in OF_MONITOR]
    assert set(tool.found(tmp_path, 0, range(0, 100, 2), watching, tool.BY_MODEL)) == set(watching)
