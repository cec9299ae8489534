"""REFERENCES.md: what is cited is there, and what is there is cited."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("xccl_emu", "kernels", "protocols", "tests", "tools", "benchmarks", "examples", "corpus")
ENTRY = re.compile(r"^- \*\*\[(\w+)\]\*\* ", re.MULTILINE)
CITED = re.compile(r"(?<![\w\])])\[([A-Z]\w+|x\w*[A-Z]\w*)\](?!\()")
"""A key in a docstring: a word with a capital in brackets that is no index."""
LINKED = re.compile(r"\[([^\]]+)\]\((?:\.\./)*REFERENCES\.md\)")


def keys(root: Path) -> list[str]:
    """The keys of the page, in its order."""
    return ENTRY.findall((root / "REFERENCES.md").read_text(encoding="utf-8"))


def cited(root: Path) -> Iterator[tuple[str, Path]]:
    """Each key that a module docstring or a page cites, with the file."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            yield from ((key, path.relative_to(root)) for key in CITED.findall(text))
    for path in (root / "ARCHITECTURE.md", *sorted((root / "docs").rglob("*.md"))):
        yield from ((key, path.relative_to(root)) for key in LINKED.findall(path.read_text(encoding="utf-8")))


def test_keys_are_one_to_one(repository: Path) -> None:
    """No key stands for two sources."""
    names = keys(repository)
    assert len(names) == len(set(names)) > 10


def test_what_is_cited_is_there_and_what_is_there_is_cited(repository: Path) -> None:
    """Each key of a docstring or page has an entry, and no entry is left that nothing rests on."""
    found = dict(cited(repository))
    assert {key: path for key, path in found.items() if key not in keys(repository)} == {}
    assert set(keys(repository)) - found.keys() == set()


def test_each_entry_says_where_to_find_it(repository: Path) -> None:
    """An arXiv number, a DOI, a link, or the name and place of a document."""
    text = (repository / "REFERENCES.md").read_text(encoding="utf-8")
    entries = re.split(r"^- (?=\*\*\[)", text, flags=re.MULTILINE)[1:]
    where = re.compile(r"arxiv\.org/abs/\d{4}\.\d{5}\b|doi\.org/10\.\d{4}/|\]\(https?://|`[\w./-]+/[^`]+`|LNCS \d+")
    assert [entry.splitlines()[0] for entry in entries if not where.search(entry)] == []


def test_each_page_that_a_file_names_is_there(repository: Path) -> None:
    """A docstring or comment that sends its reader to a page of docs/ names one that there is."""
    named = re.compile(r"(?<![\w/])docs/[\w/-]+\.(?:md|svg|toml)")
    files = (path for folder in FOLDERS for path in (repository / folder).rglob("*.*"))
    texts = [path for path in files if path.suffix in {".py", ".h", ".c", ".cpp"}]
    texts.append(repository / "ARCHITECTURE.md")
    pages = {page for path in texts for page in named.findall(path.read_text("utf-8"))}
    assert {page for page in pages if not (repository / page).exists()} == set()
    assert len(pages) > 20
