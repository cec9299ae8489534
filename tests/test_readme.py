"""README.md and docs/commands.md: what they print and list is so."""

import os
import re
from pathlib import Path

import pytest

from tests.testing.tutorial import Tutorial
from xccl_emu.cli import ending
from xccl_emu.cli.main import ORDER

UPDATE = "XCCL_EMU_UPDATE_README"
"""Set to write the outputs into README anew."""


@pytest.mark.nojit
def test_tour_of_the_readme_runs_and_prints_what_it_says(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every Python session in the README runs as a reader would run it, and its output is the one printed there."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    page = repository / "README.md"
    readme = Tutorial(page.read_text("utf-8"), tmp_path, {}, [])
    text = readme.run()
    if os.environ.get(UPDATE):
        page.write_text(text, "utf-8")
    assert not readme.differences, "\n".join([f"set {UPDATE}=1 to write these into README", *readme.differences])
    assert readme.examples > 20


def test_the_map_of_the_readme_is_complete(repository: Path) -> None:
    """README links every page of docs/, and no page that does not exist."""
    linked = set(re.findall(r"\]\(docs/([\w-]+\.md)\)", (repository / "README.md").read_text("utf-8")))
    assert linked == {path.name for path in (repository / "docs").glob("*.md")}


def test_every_command_and_exit_code_is_on_the_page(repository: Path) -> None:
    """docs/commands.md shows each command at work, and has a row for each exit code."""
    page = (repository / "docs/commands.md").read_text("utf-8")
    assert {*re.findall(r"^    xccl-emu (\w+)", page, re.MULTILINE)} == {*ORDER}
    codes = {0, ending.WRONG, ending.USAGE, ending.UNFINISHED, ending.BUG, ending.NOT_WRITTEN, ending.INTERRUPTED,
             ending.READER_GONE, ending.TERMINATED}  # fmt: skip
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)} == codes
