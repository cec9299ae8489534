"""Draw docs/pictures/curves.svg: published and emulated tables over a size or degree, from the benchmarks page."""

import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pages import ROOT, command, part_of, svg_text

PAGE, PLOT = ROOT / "docs" / "records" / "benchmarks.md", ROOT / "docs" / "pictures" / "curves.svg"
_LINE = re.compile(r"\| (?P<what>[^|]+?) \| (?P<published>[^|]*?) \| (?P<emulated>[\d.]+) \| (?P<unit>\S+) \| \w+ \|")
_BAND = re.compile(r"\| ([\d.]+) to ([\d.]+) \|$")
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "KB": 1000, "MB": 1_000_000, "": 1}
_WIDE, _HIGH, _LEFT, _TOP, _GAP_X, _GAP_Y = 250, 180, 52, 44, 100, 84
_COLOURS = ("#1b4f72", "#2e86c1", "#17a589", "#d68910", "#ba4a00", "#7d3c98", "#566573")
_TEXT = "#6e7781"


class Plot(NamedTuple):
    """A panel: whose rows, and how to read what they are."""

    section: str
    title: str
    axis: str
    what: str
    """Groups: ``x``, perhaps with ``unit``, and ``line``."""
    every: bool = False
    """Also rows that nothing was published for?"""


_OPERATOR = "(?P<line>dispatch|combine)"
PLOTS = (
    Plot("deepep", "DeepEP on the H800, us", "EP degree", rf"{_OPERATOR} EP(?P<x>\d+) latency"),
    Plot(
        "hccl", "HCCL's all-gather on 16 dies, us", "bytes of each rank",
        r"(?P<line>)(?P<x>[\d.]+) (?P<unit>\w+) of each rank",
    ),
    Plot(
        "hixl", "HIXL, other node, GiB/s", "bytes of a block",
        r"(?P<line>write|read) (?P<x>\d+) (?P<unit>\w+) blocks, other node",
    ),
    Plot(
        "sendrecv", "xDeepServe, Figure 5: send and receive, us", "payload",
        r"(?P<x>\d+) (?P<unit>[KM]B) on (?P<line>\d+ cores), pod", True,
    ),
    Plot("dispatch", "xDeepServe, Figure 6: EP128, us", "tokens of a die", rf"{_OPERATOR}, batch (?P<x>\d+)", True),
    Plot(
        "iteration", "CloudMatrix384, Figure 20, least, us", "operator", r"(?P<x>dispatch|combine) min(?P<line>.*)",
        True,
    ),
)  # fmt: skip
_NAMES = {"dispatch": 1.0, "combine": 2.0}


class Point(NamedTuple):
    """A row of a table."""

    x: float
    emulated: float
    published: float | None
    band: tuple[float, float] | None


def lines(page: str, plot: Plot) -> dict[str, list[Point]]:
    """The rows of a panel, by their lines, along its axis."""
    found: dict[str, list[Point]] = {}
    for text in part_of(page, plot.section).splitlines():
        row = _LINE.match(text)
        what = row and re.fullmatch(plot.what, row["what"])
        if not row or not what or not (plot.every or row["published"]):
            continue
        x = _NAMES.get(what["x"]) or float(what["x"]) * _UNITS[what.groupdict().get("unit") or ""]
        published = float(row["published"]) if re.fullmatch(r"[\d.]+", row["published"]) else None
        band = _BAND.search(text)
        point = Point(x, float(row["emulated"]), published, (float(band[1]), float(band[2])) if band else None)
        found.setdefault(what["line"].strip(), []).append(point)
    return {name: sorted(points) for name, points in found.items()}


class _Scale(NamedTuple):
    """A logarithmic axis: from where on, and pixels of each factor of e."""

    first: float
    start: float
    per: float

    def __call__(self, value: float) -> float:
        return round(self.start + self.per * math.log(value / self.first), 1)


def panel(plot: Plot, found: Mapping[str, Sequence[Point]], left: float, top: float) -> Iterator[str]:
    """Lines for what is emulated, rings for what was published, strokes for intervals."""
    points = [point for each in found.values() for point in each]
    xs = sorted({point.x for point in points})
    ys = [y for point in points for y in (point.emulated, point.published or point.emulated, *(point.band or ()))]
    low, high = min(ys) / 1.15, max(ys) * 1.15
    across = _Scale(xs[0], left, _WIDE / math.log(xs[-1] / xs[0]))
    up = _Scale(low, top + _HIGH, -_HIGH / math.log(high / low))
    yield svg_text(left, top - 10, plot.title)
    for tick in (n * 10.0**power for power in range(-1, 5) for n in (1, 2, 5)):
        if low <= tick <= high:
            yield f'<path d="M{left} {up(tick)}h{_WIDE}" stroke="{_TEXT}" stroke-opacity="0.25"/>'
            yield svg_text(left - 6, up(tick) + 4, f"{tick:g}", "end")
    right = math.inf
    for x in reversed(xs):
        if across(x) < right - 52:  # or the words would run into each other
            right = across(x)
            yield svg_text(right, top + _HIGH + 16, _x_text(plot, x), "middle")
    yield svg_text(left + _WIDE / 2, top + _HIGH + 34, plot.axis, "middle")
    starts_high = min(up(each[0].emulated) for each in found.values()) < top + _HIGH / 2
    x, y, anchor = left + 6.0, top + 12, "start"
    if starts_high:
        x, y, anchor = left + _WIDE, top + _HIGH - 13 * len(found), "end"
    for number, (name, each) in enumerate(found.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        yield from _drawn(each, across, up, colour)
        if len(found) > 1:
            yield svg_text(x, y + 13 * number, name or "as shipped", anchor, colour)


def _drawn(points: Sequence[Point], across: _Scale, up: _Scale, colour: str) -> Iterator[str]:
    curve = "L".join(f"{across(point.x)} {up(point.emulated)}" for point in points)
    yield f'<path d="M{curve}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
    for point in points:
        x = across(point.x)
        if point.band is not None:
            path = f"M{x} {up(point.band[0])}V{up(point.band[1])}"
            yield f'<path d="{path}" stroke="{colour}" stroke-width="5" stroke-opacity="0.35"/>'
        if point.published is not None:
            yield f'<circle cx="{x}" cy="{up(point.published)}" r="4" fill="none" stroke="#d1495b" stroke-width="1.8"/>'


def _x_text(plot: Plot, x: float) -> str:
    """A number of bytes in the largest unit that fits; others as they are."""
    if plot.section == "iteration":
        return next(name for name, place in _NAMES.items() if place == x)
    if not plot.axis.startswith(("bytes", "payload")):
        return f"{x:g}"
    small, large = ("KB", "MB") if plot.axis == "payload" else ("KiB", "MiB")
    unit = large if x >= _UNITS[large] else small
    return f"{x / _UNITS[unit]:g} {unit}"


def svg(page: str) -> str:
    """Draw all panels, two in a row."""
    rows = -(-len(PLOTS) // 2)
    width, height = 2 * (_WIDE + _GAP_X) + 20, rows * (_HIGH + _GAP_Y) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"',
        'font-family="sans-serif" font-size="12">',
        "<title>Tables over a size or degree, published and emulated</title>",
    ]
    for place, plot in enumerate(PLOTS):
        left, top = _LEFT + place % 2 * (_WIDE + _GAP_X), _TOP + place // 2 * (_HIGH + _GAP_Y)
        parts += panel(plot, lines(page, plot), left, top)
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    sys.exit(command(__doc__, PLOT, lambda old, check: svg(PAGE.read_text("utf-8"))))
