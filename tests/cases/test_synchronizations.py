"""The page on which synchronizations are needed."""

from collections.abc import Callable
from types import ModuleType

import pytest

from xccl_emu.protocol.registry import names

QUICK = {"sendrecv", "sendrecv-zero-copy"}
"""The others run with the slow tests."""


@pytest.fixture
def tool(load_tool: Callable[[str], ModuleType]) -> ModuleType:
    """The script that writes the page."""
    return load_tool("synchronizations")


def parts(page: str) -> dict[str, str]:
    """The page's tables by the protocol that they are about."""
    tables = page.split("\n<!-- synchronizations end")[0].split("\n## ")[1:]
    return {part.splitlines()[0]: "## " + part.strip() for part in tables}


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in names()])
def test_the_page_says_what_checks_say(tool, name: str) -> None:
    """Each line of the page is what a check without that synchronization finds today."""
    assert parts(tool.PAGE.read_text(encoding="utf-8"))[name] == tool.section(name)


def test_the_page_has_every_shipped_protocol(tool) -> None:
    """No protocol that ships is missing from the page."""
    assert set(parts(tool.PAGE.read_text(encoding="utf-8"))) == set(names())
