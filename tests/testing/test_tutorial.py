"""The tutorial, taken step by step."""

import os
from pathlib import Path

import pytest

from .support import plugin_arguments
from .tutorial import UPDATE, Tutorial


def test_tutorial_runs_and_prints_what_it_says(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its code gives the outputs that it prints, and adds up to the example that lies in the repository."""
    page = repository / "docs" / "tutorial.md"
    path = os.pathsep.join([str(repository), os.environ.get("PYTHONPATH", "")])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    tutorial = Tutorial(page.read_text(), tmp_path, {**os.environ, "PYTHONPATH": path}, plugin_arguments())
    text = tutorial.run()
    if os.environ.get(UPDATE):
        page.write_text(text)
    assert not tutorial.differences, "\n".join([f"set {UPDATE}=1 to write these into the page", *tutorial.differences])
    assert tutorial.examples > 15
    assert (tmp_path / "ring_all_gather.py").read_text() == (repository / "examples/ring_all_gather.py").read_text()
