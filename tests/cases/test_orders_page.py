"""docs/records/orders.md: what a search finds of the shipped protocols under each memory order."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from xccl_emu.protocol.registry import names

QUICK = {"barrier", "ll128", "mpsc-ring", "sendrecv-async", "sendrecv-dma", "sendrecv-zero-copy"}
LONG = {
    "a2e", "a2e-pull", "all-reduce-two-shot", "dispatch-swap", "eplb-loop", "fused-swap", "mixserve",
    "mixserve-combine", "prefill-streams", "two-streams",
}  # fmt: skip
"""Rows of more than ten seconds."""
OPEN = {"dispatch-swap", "eplb-loop", "fused-swap"}
"""Under `fifo` these have more states than a row of the page; `relaxed` allows all that `fifo` does."""

NAMES = [*names()]


def _marks(name: str) -> list[pytest.MarkDecorator]:
    return [] if name in QUICK else [pytest.mark.nightly] if name in LONG else [pytest.mark.slow]


@pytest.fixture
def page(repository: Path) -> list[str]:
    """Its lines."""
    return (repository / "docs" / "records" / "orders.md").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", [pytest.param(name, marks=_marks(name)) for name in NAMES])
def test_the_page_has_what_a_search_finds(name: str, page: list[str], load_tool: Callable[[str], ModuleType]) -> None:
    """Verdict and states of each protocol under each order stand in the table."""
    assert f"| {' | '.join(load_tool('orders').row(name))} |" in page


def test_every_shipped_protocol_is_verified_under_every_order(page: list[str]) -> None:
    """None is missing from the table, and none is right under some orders only."""
    rows = [line.split(" | ") for line in page if line.endswith(" |") and line.count("verified, ")]
    assert [cells[0].removeprefix("| ") for cells in rows] == NAMES
    cells = {(row[0].removeprefix("| "), number): cell for row in rows for number, cell in enumerate(row[1:])}
    assert {at for at, cell in cells.items() if not cell.startswith("verified, ")} == {(name, 1) for name in OPEN}
