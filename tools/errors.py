"""Draw docs/pictures/errors.svg: by how much each row misses what was published, from docs/records/benchmarks.md."""

import math
import re
import sys
from collections.abc import Iterator
from html import escape

from pages import ROOT, command

PAGE, PLOT = ROOT / "docs" / "records" / "benchmarks.md", ROOT / "docs" / "pictures" / "errors.svg"
_ROW = re.compile(r"\| (.+?) \|.*\| (fit|check) \| ([+-][\d.]+)% \|")
_COLOURS = {"fit": "#8db8d9", "check": "#2e86c1"}
_TEXT, _MIDDLE, _HALF, _TOP, _STEP = "#6e7781", 400, 270, 48, 22


def rows(page: str) -> dict[str, list[tuple[str, str, float]]]:
    """Name, role and error in percent of the scored rows, by section of the page; sections without rows are omitted."""
    sections = (part.partition("\n") for part in page.split("\n## ")[1:])
    found = {title: _ROW.findall(text) for title, _, text in sections}
    return {title: [(what, role, float(error)) for what, role, error in part] for title, part in found.items() if part}


def svg(found: dict[str, list[tuple[str, str, float]]]) -> str:
    """A line for each section, a dot for each row."""
    bottom = _TOP + _STEP * len(found)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 {bottom + 24}" fill="{_TEXT}" stroke="none"',
        'font-family="sans-serif" font-size="12">',
        "<title>Errors of rows that were compared with published ones, in percent, by bench</title>",
        *_scale(bottom),
        *(line for place, part in enumerate(found.items()) for line in _line(_TOP + _STEP * place, *part)),
        "</svg>\n",
    ])  # fmt: skip


def _scale(bottom: int) -> Iterator[str]:
    for role, words, x in (("check", "compared, never fitted to", 120), ("fit", "constants were fitted to it", 320)):
        yield f'<circle cx="{x}" cy="12" r="5" fill="{_COLOURS[role]}"/><text x="{x + 10}" y="16">{words}</text>'
    for percent in (-100, -50, -25, -10, -2, 0, 2, 10, 25, 50, 100):
        opacity, words = (0.3, f"{percent:+d}%") if percent else (0.9, "0")
        yield f'<path d="M{_x(percent)} {_TOP - 14}V{bottom}" stroke="{_TEXT}" stroke-opacity="{opacity}"/>'
        yield f'<text x="{_x(percent)}" y="{bottom + 16}" text-anchor="middle">{words}</text>'


def _line(y: int, title: str, scored: list[tuple[str, str, float]]) -> Iterator[str]:
    yield f'<text x="116" y="{y + 4}" text-anchor="end">{title}</text>'
    for what, role, error in scored:
        yield f'<circle cx="{_x(error)}" cy="{y}" r="5" fill="{_COLOURS[role]}" fill-opacity="0.8">'
        yield f"<title>{escape(what)}: {error:+.1f}%</title></circle>"


def _x(percent: float) -> float:
    """Roots, so that 1% can be seen next to 100%."""
    return round(_MIDDLE + math.copysign(_HALF * math.sqrt(min(abs(percent), 100) / 100), percent), 1)


if __name__ == "__main__":
    sys.exit(command(__doc__, PLOT, lambda old, check: svg(rows(PAGE.read_text("utf-8")))))
