"""docs/records/caches.md: which shipped protocols are right where scalar units have a data cache."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from xccl_emu.protocol.registry import names


@pytest.mark.slow
@pytest.mark.parametrize("name", [*names(), "sendrecv, zero-copy, sendrecv"])
def test_the_page_has_what_a_search_finds(
    name: str, load_tool: Callable[[str], ModuleType], repository: Path
) -> None:
    """The verdict of each protocol, and which of its dcci it needs, stand in the table."""
    page = (repository / "docs" / "records" / "caches.md").read_text(encoding="utf-8").splitlines()
    assert f"| {' | '.join(load_tool('caches').row(name))} |" in page
