"""Closed forms of MixServe's fused algorithms against timed runs of the kernels."""

from collections.abc import Callable
from types import ModuleType

import pytest

from xccl_emu.papers.bench.mixserve import ALGORITHMS, DEGREES, compared, of_cluster
from xccl_emu.papers.bench.setting import Setting
from xccl_emu.timing.topologies import ATLAS_800T_A2

SETTING = Setting(fabric=ATLAS_800T_A2, data=False)


@pytest.mark.parametrize("tokens", [8, *(pytest.param(tokens, marks=pytest.mark.slow) for tokens in (64, 512))])
@pytest.mark.parametrize("degrees", DEGREES)
@pytest.mark.parametrize("part", ALGORITHMS)
def test_runs_are_where_the_forms_say(part: str, degrees: str, tokens: int) -> None:
    """Without overlap a run takes no less than the busiest link or a core's flags, and no more than (13) or (12) adds
    up; with overlap the form is within -10% and +20% of the run, but for EP, of which (12) says nothing."""
    found = compared(of_cluster(ATLAS_800T_A2, part, tokens, degrees), SETTING)
    assert found.form.least_us <= found.run_us <= found.form.sum_us
    assert sum(found.form.parts.values()) == pytest.approx(found.form.sum_us)
    if degrees != "EP":
        assert found.overlapped_us == pytest.approx(found.overlapped_run_us * 1.05, rel=0.15 / 1.05)
        assert found.overlapped_us < found.form.sum_us


@pytest.mark.slow
def test_the_page_has_these_runs(load_tool: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    """Made anew, the lines of 8 tokens are those of docs/records/mixserve.md."""
    tool = load_tool("mixserve")
    monkeypatch.setattr(tool, "TOKENS", (8,))
    page = tool.PAGE.read_text("utf-8")
    for part in ALGORITHMS:
        lines = [line for line in tool.timed(part, ATLAS_800T_A2).splitlines() if line.startswith("| 8")]
        assert len(lines) == len(DEGREES)
        assert all(line in page for line in lines)
