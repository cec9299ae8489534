"""The page on which synchronizations are needed."""

import sys
from pathlib import Path

import pytest

A2E = ("a2e", "a2e-urma", "a2e-pull")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch):
    """The script that writes the page."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import synchronizations

    yield synchronizations
    sys.modules.pop("synchronizations", None)


def parts(page: str) -> dict[str, str]:
    """The page's tables by the protocol that they are about."""
    return {part.splitlines()[0]: "## " + part.strip() for part in page.split("\n## ")[1:]}


@pytest.mark.parametrize("name", ["sendrecv", "sendrecv-dma", "sendrecv-zero-copy"])
def test_the_page_says_what_checks_say(tool, name: str) -> None:
    """Each line of the page on send/recv is what a check without that synchronization finds today."""
    sizes = dict(tool.CONFIGURATIONS)[name]
    assert parts(tool.PAGE.read_text(encoding="utf-8"))[name] == tool.table(name, sizes).strip()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sendrecv-async", "sendrecv-both", "dispatch", "combine", "moe", "fused", *A2E])
def test_the_page_says_what_slower_checks_say(tool, name: str) -> None:
    """The same for the protocols whose checks take longer."""
    sizes = dict(tool.CONFIGURATIONS)[name]
    assert parts(tool.PAGE.read_text(encoding="utf-8"))[name] == tool.table(name, sizes).strip()


def test_the_page_has_every_shipped_protocol(tool) -> None:
    """No protocol that ships is missing from the page."""
    from xccl_emu.protocol.registry import names

    assert {name for name, _ in tool.CONFIGURATIONS} == set(names())
    assert set(parts(tool.PAGE.read_text(encoding="utf-8"))) == set(names())
