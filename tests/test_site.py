"""The site: its pages run, and it is what a reader sees."""

import os
from pathlib import Path
from typing import Any

import nbclient
import nbformat
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


UPDATE = "XCCL_EMU_UPDATE_NOTEBOOKS"
"""Set to keep the outputs in the notebooks."""


def texts(notebook: Any) -> list[str]:
    """What the cells print and return as text."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return [output.get("text") or output["data"]["text/plain"] for output in outputs]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ring_buffer", "measure"])
def test_notebooks_run_and_show_what_they_say(repository: Path, name: str) -> None:
    """Executed from a fresh kernel, each cell prints what is kept in the file; pictures are drawn, and not compared."""
    path = repository / "docs" / "notebooks" / f"{name}.ipynb"
    kept, fresh = nbformat.read(path, 4), nbformat.read(path, 4)
    client = nbclient.NotebookClient(fresh, timeout=300, record_timing=False, coalesce_streams=True)
    client.execute()
    if os.environ.get(UPDATE):
        nbformat.write(fresh, path)
    assert texts(fresh) == texts(kept), f"set {UPDATE}=1 to keep what came"
    assert len(texts(kept)) >= 5
