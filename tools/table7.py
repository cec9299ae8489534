"""Draw docs/table7.svg: published and emulated latencies of Table 7 of [CloudMatrix384], from the benchmarks page."""

import re
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pages import ROOT, command, part_of, svg_text

PAGE, PLOT = ROOT / "docs" / "records" / "benchmarks.md", ROOT / "docs" / "table7.svg"
_ROW = re.compile(
    r"\| (dispatch|combine) EP(\d+) latency \| ([\d.]+) \| ([\d.]+) \| us \| (fit|check) \|"
    r"(?:.*\| ([\d.]+) to ([\d.]+) \|\n)?"
)
_PANEL, _LEFT, _TOP, _BASE, _STEP, _BAR = 340, 40, 44, 204, 50, 26
_COLOURS = {"fit": "#8db8d9", "check": "#2e86c1"}
_TEXT, _PUBLISHED = "#6e7781", "#d1495b"


class Row(NamedTuple):
    """A latency of the table."""

    operator: str
    degree: str
    published_us: float
    emulated_us: float
    role: str
    band_us: tuple[float, float] | None
    """The 80% interval of what is emulated."""


def rows(page: str) -> list[Row]:
    """The latencies in the page's section on the fused operators."""
    return [
        Row(name, degree, float(published), float(ours), role, (float(low), float(high)) if low else None)
        for name, degree, published, ours, role, low, high in _ROW.findall(part_of(page, "fused"))
    ]


def svg(found: Sequence[Row]) -> str:
    """Two panels; a bar from zero for what is emulated, with its interval, a line across it for what was published."""
    top_us = 10 * -(-max(max(row.published_us, row.emulated_us, *(row.band_us or ())) for row in found) // 10)
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 250" font-family="sans-serif" font-size="12">',
        "<title>Table 7 of CloudMatrix384: latency by EP degree, published and emulated</title>",
        *_legend(),
    ]
    for place, operator in enumerate(dict.fromkeys(row.operator for row in found)):
        panel = [row for row in found if row.operator == operator]
        parts += _panel(_LEFT + _PANEL * place, operator, panel, (_BASE - _TOP) / top_us)
    return "\n".join([*parts, "</svg>", ""])


def _legend() -> Iterator[str]:
    x = _LEFT
    for role, words in (("check", "emulated"), ("fit", "emulated, constants were fitted to it")):
        yield f'<rect x="{x}" y="6" width="12" height="12" fill="{_COLOURS[role]}"/>'
        yield svg_text(x + 18, 16, words)
        x += 90
    yield f'<path d="M{x + 165} 12h20" stroke="{_PUBLISHED}" stroke-width="3"/>'
    yield svg_text(x + 191, 16, "published")


def _panel(left: int, operator: str, panel: Sequence[Row], per_us: float) -> Iterator[str]:
    for us in (0, 50, 100, 150):
        y = round(_BASE - us * per_us, 1)
        yield f'<path d="M{left} {y}h{_STEP * len(panel)}" stroke="{_TEXT}" stroke-opacity="0.3"/>'
        yield svg_text(left - 6, y + 4, f"{us}", "end")
    for i, row in enumerate(panel):
        x, y = left + i * _STEP + (_STEP - _BAR) // 2, round(_BASE - row.emulated_us * per_us, 1)
        height = round(_BASE - y, 1)
        yield f'<rect x="{x}" y="{y}" width="{_BAR}" height="{height}" fill="{_COLOURS[row.role]}"/>'
        if row.band_us is not None:
            low, high = (round(_BASE - us * per_us, 1) for us in row.band_us)
            yield f'<path d="M{x + _BAR // 2} {high}V{low}m-4 0h8m-8 {round(high - low, 1)}h8" stroke="#1b2631"/>'
        published = round(_BASE - row.published_us * per_us, 1)
        yield f'<path d="M{x - 4} {published}h{_BAR + 8}" stroke="{_PUBLISHED}" stroke-width="3"/>'
        yield svg_text(x + _BAR // 2, _BASE + 16, f"EP{row.degree}", "middle")
    yield svg_text(left + _STEP * len(panel) // 2, _BASE + 38, f"{operator}, latency in us", "middle")


if __name__ == "__main__":
    sys.exit(command(__doc__, PLOT, lambda old, check: svg(rows(PAGE.read_text("utf-8")))))
