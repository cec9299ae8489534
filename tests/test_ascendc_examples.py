"""The ring, the dispatch and the combine of examples/ascendc: bits, twins, and each synchronization cut."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import ascendc_twins
from tests.cli_support import printed
from tests.foreign_support import ROOT, has_compiler
from xccl_emu.check import check, verdict
from xccl_emu.protocol import registry
from xccl_emu.timing.run import VirtualTime

pytestmark = pytest.mark.skipif(not has_compiler(False), reason="no C++ compiler: Ascend C is not tested here")


def case_of(name: str, **sizes: Any) -> Any:
    """A case of a file of the examples."""
    return registry.make(f"{ROOT}/examples/ascendc/{name}", **sizes)


RING, DISPATCH, COMBINE = "ring.py:Ring", "moe.py:Dispatch", "moe.py:Combine"


EVERY = [
    pytest.param(name, sizes, barrier, order, marks=[] if order == "relaxed" else pytest.mark.slow)
    for name, sizes in [(RING, {}), (DISPATCH, {"tokens": 3, "top_k": 2}), (COMBINE, {"tokens": 2})]
    for barrier in ("visible", "empty")
    for order in ("sc", "fifo", "relaxed", "unordered")
]


@pytest.mark.parametrize(("name", "sizes", "barrier", "order"), EVERY)
def test_a_search_sees_the_states_of_the_twins(
    name: str, sizes: dict[str, Any], barrier: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels in Python that make the same requests get the same verdict, by as many states and transitions.

    One search is too large, of a dispatch by `fifo` with empty barriers: both go equally far.
    """
    found = check.check(case_of(name, barrier=barrier, **sizes), order=order, policy="exhaustive", max_states=1_000_000)
    ascendc_twins.instead(monkeypatch, f"{barrier}, dsb")
    twin = check.check(case_of(name, barrier=barrier, **sizes), order=order, policy="exhaustive", max_states=1_000_000)
    assert found.verdict == twin.verdict
    assert (found.violation and found.violation.kind) == (twin.violation and twin.violation.kind)
    assert (found.states, found.transitions, found.actions) == (twin.states, twin.transitions, twin.actions)
    if order == "relaxed":
        assert found.verdict == verdict.VERIFIED


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("sendrecv.py:Message", {"chunks": 4}), (RING, {}), (DISPATCH, {"tokens": 3}), (COMBINE, {"tokens": 2})],
)
def test_no_example_rests_on_resolved_hazards(name: str, sizes: dict[str, int]) -> None:
    """Where a core resolves no hazards they are verified too: each has its events, or barriers of the vector pipe."""
    assert check.check(case_of(name, hazards="open", **sizes)).verdict == verdict.VERIFIED


@pytest.mark.parametrize("name", [RING, DISPATCH, COMBINE])
def test_virtual_time_is_that_of_the_twins(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same requests take the same time, and a run in virtual time leaves the right bits."""

    def latency_us() -> float:
        clock = VirtualTime()
        trial = case_of(name).build("sc")
        trial.pod.policy = clock
        trial.pod.run()
        for each in trial.expected:
            assert trial.pod.span(each.address, len(each.data)).tobytes() == each.data
        return clock.timing.latency_us

    found = latency_us()
    ascendc_twins.instead(monkeypatch, "empty, dsb")
    assert found == latency_us() > 0


def test_bench_and_trace_take_them(tmp_path: Path) -> None:
    """The commands time a ring and trace a dispatch; the name of a case is no emoji."""
    out = printed("bench", f"{ROOT}/examples/ascendc/ring.py:Ring")
    assert ("ring.py:Ring:" in out, "#wrong 0" in out) == (True, True)
    traced = printed("trace", f"{ROOT}/examples/ascendc/{DISPATCH}", "--out", str(tmp_path / "t.json"))
    assert "bytes: as they must be" in traced


def _page_rows(page: str) -> list[list[str]]:
    part = page.partition("<!-- cuts: ")[2].partition("<!-- cuts end -->")[0]
    return [line[2:-2].split(" | ") for line in part.splitlines() if line.startswith("| ")][2:]


def test_the_page_has_a_cut_of_each_buffer_and_barrier(repository: Path) -> None:
    """All are found but two that clean a line that nobody waits for, and barriers in front of a `dsb`."""
    rows = _page_rows((repository / "docs" / "records" / "ascendc.md").read_text("utf-8"))
    redundant = [(row[0], row[1]) for row in rows if row[3] == "redundant" and "PipeBarrier" not in row[1]]
    assert redundant == [("Message", f"DataCacheCleanAndInvalid, line {line}") for line in (14, 30)]
    assert [row[3] for row in rows if "dsb" in row[1]] == ["data race"] * 4
    for case, queues in (("Message", ("in", "out")), ("Dispatch", ("in", "out")), ("Combine", ("in", "done"))):
        wanted = {f"{queue} {what}" for queue in queues for what in ("filled", "freed")}
        assert wanted <= {row[1] for row in rows if row[0] == case}
    assert len(rows) >= 25


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sendrecv.py:Message", RING, DISPATCH, COMBINE])
def test_the_table_of_cuts_is_what_is_found(
    name: str, load_tool: Callable[[str], ModuleType], repository: Path
) -> None:
    """Each synchronization is cut again, in the same configurations."""
    found = [[*row] for row in load_tool("ascendc_cuts").rows(name)]
    rows = _page_rows((repository / "docs" / "records" / "ascendc.md").read_text("utf-8"))
    assert found == [row for row in rows if row[0] == name.partition(":")[2]]
