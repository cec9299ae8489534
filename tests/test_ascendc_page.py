"""Ascend C in docs: commands end as the page says, names are in the source, the header has what the record lists."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli_support import run_command
from tests.foreign_support import has_compiler
from xccl_emu.cli import ending
from xccl_emu.doors.ascendc.kernel import INCLUDE

needs_cxx = pytest.mark.skipif(not has_compiler(False), reason="no C++ compiler: Ascend C is not tested here")


def invoke(*words: str) -> tuple[int, str]:
    """Exit code and stdout of a command in a process of its own: kernels in C++ get a fresh one, as a user's do."""
    done = run_command(*words, XCCL_EMU_PLAIN_FIRST="0")
    return done.returncode, done.stdout


@pytest.fixture
def page(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The page, read in a folder in which its paths are right, and which takes the witnesses."""
    (tmp_path / "examples").symlink_to(repository / "examples")
    monkeypatch.chdir(tmp_path)
    text = (repository / "docs" / "bring-your-own.md").read_text("utf-8")
    return text.partition("\n## Kernels in Ascend C\n")[2].partition("\n## ")[0]


@needs_cxx
def test_the_commands_end_as_the_page_says(page: str) -> None:
    """The first and the last are verified; the others race, at `DataCopy` lines of the source."""
    commands = re.findall(r"^    xccl-emu (.*)$", page, re.MULTILINE)
    verified, *racing, settled = [invoke(*shlex.split(command)) for command in commands]
    lines = Path("examples/ascendc/sendrecv.cpp").read_text("utf-8").splitlines()
    assert (verified[0], "verified" in verified[1], len(racing)) == (0, True, 2)
    assert (settled[0], "hazards open" in settled[1]) == (0, True)
    for code, printed in racing:
        assert code == ending.WRONG
        told = re.findall(r"sendrecv\.cpp:(\d+)\) `", printed)
        assert len({*told}) == 2
        assert all("DataCopy" in lines[int(n) - 1] for n in told)


@needs_cxx
@pytest.mark.parametrize(("more", "code"), [((), 0), (("--chunks", "4"), ending.WRONG)])
def test_what_is_switched_off_is_needed_as_the_page_says(page: str, more: tuple[str, ...], code: int) -> None:
    """A `dsb` has the name that the page calls it by; `in freed` is needed for four chunks, not for two."""
    case = ("check", "examples/ascendc/sendrecv.py:Message")
    named = re.search(r'--without "(dsb, line \d+)"', page)
    assert named
    assert invoke(*case, "--without", named[1])[0] == ending.WRONG
    assert "`in freed`" in page
    assert invoke(*case, "--without", "in freed", *more)[0] == code


def test_what_the_record_lists_is_in_the_header(repository: Path) -> None:
    """Each name of the list is declared in a file of the header."""
    record = (repository / "docs" / "records" / "ascendc.md").read_text("utf-8")
    listed = record.split("## What the header has")[1].split("| `HcclOpResParam`")[0]
    header = "".join(file.read_text("utf-8") for file in sorted(INCLUDE.glob("*.h")))
    rows = [row.split("|")[1] for row in listed.splitlines() if row.startswith("| ")]
    names = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert len(names) > 30
    assert [name for name in names if not re.search(rf"\b{name}\b", header)] == []
