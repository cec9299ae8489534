"""The page on which synchronizations are needed."""

from collections.abc import Callable
from types import ModuleType

import pytest

from xccl_emu.protocol.registry import names

QUICK = {"sendrecv", "sendrecv-dma", "sendrecv-zero-copy"}


@pytest.fixture
def tool(load_tool: Callable[[str], ModuleType]) -> ModuleType:
    """The script that writes the page."""
    return load_tool("synchronizations")


def parts(page: str) -> dict[str, str]:
    """The page's tables by the protocol that they are about."""
    return {part.splitlines()[0]: "## " + part.strip() for part in page.split("\n## ")[1:]}


@pytest.mark.parametrize("name", sorted(QUICK))
def test_the_page_says_what_checks_say(tool, name: str) -> None:
    """Each line of the page on send/recv is what a check without that synchronization finds today."""
    assert parts(tool.PAGE.read_text(encoding="utf-8"))[name] == tool.section(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*names()} - QUICK))
def test_the_page_says_what_slower_checks_say(tool, name: str) -> None:
    """The same for the protocols whose checks take longer."""
    assert parts(tool.PAGE.read_text(encoding="utf-8"))[name] == tool.section(name)


def test_the_page_has_every_shipped_protocol(tool) -> None:
    """No protocol that ships is missing from the page."""
    assert set(parts(tool.PAGE.read_text(encoding="utf-8"))) == set(names())
