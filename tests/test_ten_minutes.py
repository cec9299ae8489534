"""docs/ten-minutes.md: its source and its case are judged as it says, before and after the mend."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli_support import invoke
from tests.foreign_support import has_compiler
from xccl_emu.cli import ending

pytestmark = pytest.mark.skipif(not has_compiler(False), reason="no C++ compiler: Ascend C is not tested here")


def test_the_page_is_so(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It races at lines of the source; mended it is verified and needs each synchronization; then as each part says."""
    monkeypatch.chdir(tmp_path)
    page = (repository / "docs" / "ten-minutes.md").read_text("utf-8")
    source, case, mend = (re.search(rf"```{kind}\n(.*?)```", page, re.DOTALL)[1] for kind in ("cpp", "python", "diff"))
    broken, mended, empty, weak, bench, trace = (
        shlex.split(line) for line in re.findall(r"^    xccl-emu (.*)$", page, re.MULTILINE)
    )
    Path("handover.cpp").write_text(source)
    Path("handover.py").write_text(case)
    code, out, _ = invoke(*broken)
    assert (code, "data race" in out, "handover.cpp:" in out) == (ending.WRONG, True, True)

    before = "".join(f"{line[1:]}\n" for line in mend.splitlines() if line[0] != "+")
    assert source.count(before) == 1
    Path("handover.cpp").write_text(source.replace(before, "".join(f"{line[1:]}\n" for line in mend.splitlines())))
    code, out, _ = invoke(*mended)
    assert (code, "verified" in out, "redundant" in out) == (0, True, False)
    assert out.count("needed") >= 3
    assert invoke(*empty)[0] == ending.WRONG
    for command in (weak, bench, trace):
        assert invoke(*command)[0] == 0, command
