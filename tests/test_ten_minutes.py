"""Ascend C in ten minutes: the page's source and case are judged as it says, before and after the mend."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli_support import invoke
from tests.foreign_support import has_compiler
from xccl_emu.cli import ending

pytestmark = pytest.mark.skipif(not has_compiler(False), reason="no C++ compiler: Ascend C is not tested here")


def test_the_page_is_so(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It races at lines of the source; with a barrier by one reading; with a `dsb` never; then as each part says."""
    monkeypatch.chdir(tmp_path)
    text = (repository / "docs" / "bring-your-own.md").read_text("utf-8")
    page = text.partition("\n## Ascend C in ten minutes\n")[2].partition("\n## ")[0]
    source, case = (re.search(rf"```{kind}\n(.*?)```", page, re.DOTALL)[1] for kind in ("cpp", "python"))
    barrier, dsb = re.findall(r"```diff\n(.*?)```", page, re.DOTALL)
    broken, by_one, mended, weak, bench, trace = (
        shlex.split(line) for line in re.findall(r"^    xccl-emu (.*)$", page, re.MULTILINE)
    )
    Path("handover.cpp").write_text(source)
    Path("handover.py").write_text(case)
    code, out, _ = invoke(*broken)
    assert (code, "data race" in out, "handover.cpp:" in out) == (ending.WRONG, True, True)

    source = mended_by(barrier, source)
    code, out, _ = invoke(*by_one)
    (line,) = re.findall(r"\*(verified if [^*]*)\*", page)
    assert (code, line in out) == (ending.WRONG, True)
    mended_by(dsb, source)
    code, out, _ = invoke(*mended)
    assert (code, "verified if they only drain" in out) == (0, True)
    judged = re.findall(r"^(\w+), line \d+ +(needed|redundant)", out, re.MULTILINE)
    assert [finding for _, finding in judged].count("needed") == 3
    assert [name for name, finding in judged if finding == "redundant"] == ["PipeBarrier"]
    for command in (weak, bench, trace):
        assert invoke(*command)[0] == 0, command


def mended_by(diff: str, source: str) -> str:
    """The source with the lines of a diff, which is written to its file."""
    before = "".join(f"{line[1:]}\n" for line in diff.splitlines() if line[0] != "+")
    assert source.count(before) == 1
    mended = source.replace(before, "".join(f"{line[1:]}\n" for line in diff.splitlines()))
    Path("handover.cpp").write_text(mended)
    return mended
