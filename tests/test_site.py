"""The site: its pages run, and it is what a reader sees."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

from tests.browser_support import browser, complaints, narrow  # noqa: F401  a fixture
from tests.testing.tutorial import Tutorial


@pytest.mark.parametrize("part", ["tasks", pytest.param("questions", marks=pytest.mark.slow)])
def test_the_how_to_prints_what_it_says(
    repository: Path, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each session of the page prints what is written there; its questions take longer than its tasks."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    text = (repository / "docs" / "how-to.md").read_text("utf-8")
    tasks, _, questions = text.partition("\n## Questions that users ask\n")
    page = Tutorial(tasks if part == "tasks" else questions, tmp_path, dict(os.environ), [])
    page.run()
    assert not page.differences, "\n".join(page.differences)
    assert page.examples > (20 if part == "tasks" else 8)


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


@pytest.fixture(scope="module")
def site(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without a warning."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--conf-dir", "docs", ".", str(folder)]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


@pytest.mark.slow
def test_site_needs_no_network(site: Path) -> None:
    """No page takes a script, style, font or picture from elsewhere; each link to a line of source has its place."""
    pages = {path: path.read_text("utf-8") for path in site.rglob("*.html")}
    assert len(pages) > 60
    loaded = re.compile(r"<(?:script|img|iframe|source)[^>]+src=\"(https?:)?//|<link[^>]+href=\"(https?:)?//|@import")
    assert [path.name for path, text in pages.items() if loaded.search(text)] == []
    styles = [path.read_text("utf-8") for path in site.rglob("*.css")]
    assert not any(re.search(r"url\([\"']?(https?:)?//", text) for text in styles)
    link = re.compile(r'href="([^"]+\.html)#(L-\d+)"')
    lines = {
        ((path.parent / page).resolve(), line) for path, text in pages.items() for page, line in link.findall(text)
    }
    assert len(lines) > 100
    missing = {(page.name, line) for page, line in lines if f'id="{line}"' not in pages[page]}
    assert missing == set()


@pytest.mark.slow
def test_landing_page_is_accessible(site: Path, browser: Any) -> None:  # noqa: F811  the fixture
    """As a file in a browser, wide and narrow: axe has no complaint, and nothing is wider than the window."""
    browser.get((site / "docs" / "index.html").as_uri())
    assert complaints(browser) == []
    narrow(browser)
    assert complaints(browser) == []
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow
def test_tour_is_followed(site: Path, browser: Any) -> None:  # noqa: F811  the fixture
    """From the landing page by what each page says comes next: every page that one begins with, and axe has nothing
    against any of them."""
    browser.get((site / "docs" / "index.html").as_uri())
    seen = []
    while seen[-1:] != ["Bring your own"]:
        browser.execute_script("document.querySelector('a.next-page').click()")
        seen.append(browser.find_element("css selector", "h1").text.removesuffix("#"))
        assert (seen[-1], complaints(browser)) == (seen[-1], [])
        assert browser.execute_script("return [...document.images].every(image => image.naturalWidth > 0)")
    assert [title.partition(":")[0] for title in seen[:2]] == ["Tutorial", "Prove and break a ring buffer"]
    assert seen[3:5] == ["How to", "The machine"]
    assert len(seen) == 7
