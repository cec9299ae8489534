"""docs/large-enough.md, taken step by step."""

import os
from pathlib import Path

import pytest

from .tutorial import Tutorial


def test_the_page_runs_and_prints_what_it_says(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ring is verified with as many chunks as slots, nobody waiting for a slot, and refuted with one more."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    page = Tutorial((repository / "docs" / "large-enough.md").read_text(), tmp_path, dict(os.environ), [])
    page.run()
    assert not page.differences, "\n".join(page.differences)
    assert page.examples > 8
