"""docs/records/fidelity.md: the papers' steps beside the lines of the kernels."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.cli_support import as_json
from xccl_emu.protocol import Case
from xccl_emu.protocol.paper import PaperStep
from xccl_emu.protocol.registry import known, of_file

SUMS = "examples/prefix_sum/prefix_sum.py:PrefixSum"


@pytest.fixture(scope="module")
def tool(load_tool: Callable[[str], ModuleType]) -> ModuleType:
    """tools/fidelity.py."""
    return load_tool("fidelity")


@pytest.fixture(scope="module")
def shipped(tool: ModuleType) -> Any:
    """Papers of the shipped cases, with their names, and the kernels that they launch."""
    return tool.shipped()


def test_the_page_is_what_the_tool_writes(tool: ModuleType) -> None:
    """Made anew, the page is the same: lines of kernels have not moved, and steps say what they said."""
    page = tool.PAGE.read_text("utf-8")
    assert tool.page(page) == page


def test_every_step_has_a_row_and_every_row_a_line(tool: ModuleType, shipped: Any) -> None:
    """So it is for all shipped kernels, and deviations that are seen in a request have one."""
    assert [*tool.complaints(*shipped)] == []


def test_what_does_not_fit_is_told(tool: ModuleType, shipped: Any) -> None:
    """A step without a row, a row without a line, and a deviation whose request is gone."""
    papers, kernels = shipped
    paper = known("sendrecv").maker.papers[0]
    first, second, third, *others = paper.steps
    gone = replace(third, deviations=tuple(replace(each, seen="quiet of yesterday") for each in third.deviations[:1]))
    changed = replace(paper, steps=(second, gone, *others, PaperStep(99, "nothing")))
    told = [*tool.complaints([changed, *(papers.keys() - {paper})], kernels)]
    assert [line.partition(" of ")[0] for line in told] == [
        f"{paper.title}: step {first.number}",
        f"{paper.title}: step 3 has no request 'quiet",
        f"{paper.title}: no request has step 99",
    ]


def test_a_request_is_of_the_protocol_that_called_its_subroutine(tool: ModuleType, shipped: Any) -> None:
    """Fused dispatch prepares tokens by a subroutine of pull dispatch; its line there is that of the call."""
    papers, kernels = shipped
    (paper,) = (paper for paper in papers if paper.title == "FusedDispatch")
    places = tool.steps_of(papers, kernels)[paper, 1]
    (quantized,) = (place for place in places if place.request == "v_quantize")
    line = Path(quantized.file).read_text("utf-8").splitlines()[quantized.line - 1]
    assert Path(quantized.file).parts[-2:] == ("fused", "dispatch.py")
    assert "yield from prepare(" in line


def test_cases_need_no_paper() -> None:
    """A case of another package has none unless it says so; list tells of one that has."""
    assert Case.papers == of_file(SUMS).papers == ()
    assert as_json("list", SUMS)["papers"] == []
    assert as_json("list", "dispatch")["papers"] == ["Pull dispatch (xDeepServe 3.2)"]
