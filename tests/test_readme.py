"""README.md and docs/commands.md: what they print and list is so."""

import os
import re
from pathlib import Path

import pytest

from tests.cli_support import printed
from tests.testing.tutorial import Tutorial
from xccl_emu.check import verdict
from xccl_emu.cli import ending
from xccl_emu.cli.main import ORDER

UPDATE = "XCCL_EMU_UPDATE_README"
"""Set to write the outputs into README anew."""


@pytest.mark.nojit
def test_sessions_of_the_readme_print_what_it_says(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every Python session in the README runs as a reader would run it, and its output is the one printed there."""
    monkeypatch.chdir(tmp_path)
    page = repository / "README.md"
    readme = Tutorial(page.read_text("utf-8"), tmp_path, {}, [])
    text = readme.run()
    if os.environ.get(UPDATE):
        page.write_text(text, "utf-8")
    assert not readme.differences, "\n".join([f"set {UPDATE}=1 to write these into README", *readme.differences])
    assert readme.examples >= 6


def test_readme_begins_with_a_bug_and_its_run(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels on the first screen are those of the example, and its two commands find what the page shows."""
    page, example = (repository / "README.md").read_text("utf-8"), "examples/mailbox.py:mailbox"
    monkeypatch.chdir(repository)
    kernels = page.partition("# examples/mailbox.py\n")[2].partition("```")[0]
    assert kernels in (repository / "examples/mailbox.py").read_text("utf-8")
    assert "verified" in printed("check", example)
    table = page.partition("```\ndata race")[2].partition("```")[0].splitlines()
    with_file = ("--out", os.devnull)
    run = printed("check", example, "--without", "letter before flag", *with_file, code=1).partition("data race")[2]
    assert [line.rstrip() for line in run.splitlines()[: len(table)]] == table


def test_readme_is_short_and_leads_on(repository: Path) -> None:
    """It has at most 150 lines, and each of its links leads to a file."""
    page = (repository / "README.md").read_text("utf-8")
    assert len(page.splitlines()) <= 150
    links = re.findall(r"\]\(([\w./-]+)\)", page)
    assert [link for link in links if not (repository / link).exists()] == []
    assert len(links) > 10


def test_pages_are_few_and_short(repository: Path) -> None:
    """Outside of the records there are at most 14 pages and 4,000 lines; README is the first page of the site."""
    pages = {*repository.glob("*.md"), *(repository / "docs").glob("*.md")}
    pages -= {repository / "CHANGELOG.md", repository / "docs" / "index.md"}
    assert len(pages) <= 14
    assert sum(len(page.read_text("utf-8").splitlines()) for page in pages) <= 4000


def test_every_page_is_in_the_map(repository: Path) -> None:
    """The site's map has every page of docs/, and the map of records every record."""
    for folder in (repository / "docs", repository / "docs" / "records"):
        index = (folder / "index.md").read_text("utf-8")
        pages = {path.stem for path in folder.glob("*.md")} - {"index"}
        assert pages - set(re.findall(r"^(?:.*<)?([\w-]+)>?$", index, re.MULTILINE)) == set()


def test_every_kind_of_violation_is_in_the_table(repository: Path) -> None:
    """The how-to says of each kind that a check may find where to look; a kind that the code has is one of `KINDS`."""
    of_verdicts = {verdict.VERIFIED, verdict.NO_VIOLATION, verdict.VIOLATION, verdict.UNFINISHED, verdict.UNSUPPORTED}
    named = {value for name, value in vars(verdict).items() if name.isupper() and isinstance(value, str)}
    assert named - of_verdicts - {verdict.SEARCH, verdict.BRUTE_FORCE, verdict.SHARED, verdict.ALL} == {*verdict.KINDS}
    table = (repository / "docs" / "how-to.md").read_text().partition("| kind | what it says |")[2].partition("\n\n")[0]
    assert {row.split("|")[1].strip() for row in table.splitlines()[2:]} == {*verdict.KINDS}


def test_every_command_and_exit_code_is_on_the_page(repository: Path) -> None:
    """docs/commands.md shows each command at work, and has a row for each exit code."""
    page = (repository / "docs/commands.md").read_text("utf-8")
    assert {*re.findall(r"^    xccl-emu (\w+)", page, re.MULTILINE)} == {*ORDER}
    codes = {0, ending.WRONG, ending.USAGE, ending.UNFINISHED, ending.BUG, ending.NOT_WRITTEN, ending.INTERRUPTED,
             ending.READER_GONE, ending.TERMINATED}  # fmt: skip
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)} == codes
