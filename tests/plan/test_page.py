"""docs/records/mixserve.md: its tables are what the analyzer says, and so are the numbers around them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from tests.cli_support import as_json
from xccl_emu.papers.bench import published
from xccl_emu.papers.plan.observed import Computed, load_observed
from xccl_emu.papers.plan.published import MORE_EP, compared


@pytest.fixture(scope="module")
def tool(load_tool: Callable[[str], ModuleType]) -> ModuleType:
    """tools/mixserve.py."""
    return load_tool("mixserve")


def test_the_tables_are_what_the_analyzer_says(tool: ModuleType) -> None:
    """Made anew, the page is the same."""
    page = tool.PAGE.read_text("utf-8")
    assert tool.with_tables(page) == page


def test_the_files_of_the_page_can_be_used(tool: ModuleType, tmp_path: Path) -> None:
    """A model, a cluster and observations, as they stand there."""
    texts = [part.partition("```")[0] for part in tool.PAGE.read_text("utf-8").split("```toml\n")[1:]]
    model, cluster, observed = (tmp_path / f"{i}.toml" for i in range(3))
    for file, text in zip((model, cluster, observed), texts, strict=True):
        file.write_text(text)
    told = as_json("plan", "--model", str(model), "--cluster", str(cluster))
    assert (told["model"], told["cluster"]) == ("mine", "two nodes")
    assert told["ranked"]
    assert [*load_observed(str(observed)).computing] == [Computed("TP=8 + DP=4, TP=8 + EP=4", 16, 256, 2100.0)]


def test_numbers_of_the_text(tool: ModuleType) -> None:
    """Tokens of a request at the measured throughput; that of Figure 11 on the H20 is a sixteenth of Figure 10's."""
    throughput = published.row("mixserve DeepSeek-R1 on 910B", "throughput").value
    assert [round(throughput / rate) for rate in (2, 8)] == [61, 15]
    assert published.row("mixserve Qwen3-235B-A22B on H20", "throughput").value / 16 == pytest.approx(40, rel=0.03)
    assert tool.of_cases(tool.LITERAL) == "d_DP > d_EP; d_DP > d_EP"
    assert tool.of_cases(tool.CORRECTED).endswith(MORE_EP)
    for form, dropping, holding in ((tool.LITERAL, False, 4), (tool.CORRECTED, False, 16), (tool.CORRECTED, True, 18)):
        of = replace(tool.PAPER, form=form, dropping=dropping)
        claims = [row.met for row in compared(of, tool.WORKLOAD) if row.relation != "="]
        assert (claims.count(True), len(claims)) == (holding, 18)
