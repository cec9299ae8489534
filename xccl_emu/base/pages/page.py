"""A run as one page of HTML that needs nothing else: a picture, a table to be gone through by keys, source, memory."""

import html
import json
import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from string import Template
from typing import Any

_AROUND = 6
"""Lines of source before and after the one that is shown."""


@dataclass(frozen=True)
class PageLine:
    """A line of the table."""

    cells: tuple[str, ...]
    """The first is its mark."""
    words: Sequence[str]
    """All of it in words, lines for who looks at it alone."""
    shown: str = ""
    """Its class: ``marked``, ``off`` or nothing."""
    file: str = ""
    """Its source, the number of the line there, and both in words."""
    line: int = 0
    place: str = ""
    before: int = 0
    after: int = 0
    """Places in `Page.memory`."""


@dataclass(frozen=True)
class Page:
    """What is on a page."""

    title: str
    found: Sequence[str]
    """Lines at the top."""
    legend: str
    """HTML that says what the picture's lines are."""
    head: str
    """SVG that stays where it is while the picture is scrolled."""
    picture: str
    """SVG; elements with ``data-row`` are of a line, and choose it."""
    columns: Sequence[str]
    lines: Sequence[PageLine]
    at_side: bool = True
    """The lines are at the picture's side, `row` pixels high each; else below it."""
    row: int = 24
    words: Sequence[str] = ()
    """Names of words of memory."""
    memory: Sequence[Sequence[str]] = ()
    """What they hold, [any number][words]."""

    def text(self) -> str:
        """The page."""
        sources = dict.fromkeys((line.file, line.line, line.place) for line in self.lines if line.file)
        numbers = {place: i for i, place in enumerate(sources)}
        rows = [
            {"words": [*line.words], "source": numbers.get((line.file, line.line, line.place), -1),
             "before": line.before, "after": line.after}
            for line in self.lines
        ]  # fmt: skip
        shown = {
            "rows": rows, "words": [*self.words], "memory": self.memory, "sources": [_source(*one) for one in sources]
        }  # fmt: skip
        template = Template(resources.files("xccl_emu.base.pages").joinpath("page.html").read_text("utf-8"))
        return template.substitute(
            title=html.escape(self.title), found=html.escape("\n".join(self.found)), legend=self.legend,
            layout="side" if self.at_side else "below", row=self.row, head=self.head, picture=self.picture,
            columns="".join(f'<th scope="col">{html.escape(name)}</th>' for name in self.columns),
            table="\n".join(map(_table_row, self.lines)), memory="" if self.words else "hidden",
            shown=json.dumps(shown, ensure_ascii=False).replace("<", "\\u003c"),
        )  # fmt: skip


def _table_row(line: PageLine) -> str:
    cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in line.cells)
    return f'<tr class="{line.shown}" tabindex="-1">{cells}</tr>'


def _source(file: str, line: int, place: str) -> dict[str, Any]:
    """The lines of source round a place; none of a file that is not there."""
    first = max(1, line - _AROUND)
    text = "".join(linecache.getline(file, n) for n in range(first, line + _AROUND + 1)).rstrip()
    return {"place": place, "first": first, "line": line, "text": text}
