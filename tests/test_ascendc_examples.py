"""The ring, the dispatch and the combine of examples/ascendc: bits, twins, and each synchronization cut."""

from typing import Any

import pytest

from tests import ascendc_twins
from tests.foreign_support import ROOT, has_compiler
from xccl_emu.check import check, verdict
from xccl_emu.protocol import registry

pytestmark = pytest.mark.skipif(not has_compiler(False), reason="no C++ compiler: Ascend C is not tested here")


def case_of(name: str, **sizes: Any) -> Any:
    """A case of a file of the examples."""
    return registry.of_file(f"{ROOT}/examples/ascendc/{name}")(**sizes)


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
    """Kernels in Python that make the same requests get the same verdict, by as many states and transitions."""
    found = check.check(case_of(name, barrier=barrier, **sizes), order=order)
    ascendc_twins.instead(monkeypatch, barrier)
    twin = check.check(case_of(name, barrier=barrier, **sizes), order=order)
    assert found.verdict == twin.verdict
    assert (found.violation and found.violation.kind) == (twin.violation and twin.violation.kind)
    assert (found.states, found.transitions, found.actions) == (twin.states, twin.transitions, twin.actions)
    if barrier == "visible":
        assert found.verdict == verdict.VERIFIED
