"""The site: its pages run, and it is what a reader sees."""

import os
from pathlib import Path

import pytest

from tests.testing.tutorial import Tutorial


@pytest.mark.parametrize("name", ["index", "how-to"])
def test_pages_run_and_print_what_they_say(
    repository: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each session of the page prints what stands there."""
    monkeypatch.chdir(tmp_path)
    page = Tutorial((repository / "docs" / f"{name}.md").read_text(), tmp_path, dict(os.environ), [])
    page.run()
    assert not page.differences, "\n".join(page.differences)
    assert page.examples > 3
