"""CONTRIBUTING.md: its recipes, taken step by step."""

import os
from pathlib import Path

import pytest

from tests.testing.tutorial import UPDATE, Tutorial


def test_recipes_run_and_print_what_they_say(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A protocol in two files, the files that know a request, and a topology: all of it is as printed."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    path = repository / "CONTRIBUTING.md"
    page = Tutorial(path.read_text(), tmp_path, dict(os.environ), [])
    text = page.run()
    if os.environ.get(UPDATE):
        path.write_text(text)
    assert not page.differences, "\n".join([f"set {UPDATE}=1 to write these into the page", *page.differences])
    assert page.examples > 15
