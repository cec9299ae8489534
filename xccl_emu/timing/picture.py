"""A timed run drawn as SVG, and as a page: a lane for each pipe of a core, time to the right.

A box is an action that took time, in the colour of its pipe; a pale one is what the scalar unit waited for.  A dashed
arrow leads from a write to who saw it on another core.  The critical path, in red, goes along the lower edges of the
boxes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log10

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.pages.drawing import Drawing
from xccl_emu.base.pages.page import Page, PageLine
from xccl_emu.lang import requests as rq
from xccl_emu.machine.stats import PIPE_NAMES
from xccl_emu.timing.array import PS_PER_US
from xccl_emu.timing.critical import PathPart, breakdown, critical_path
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.run import Timing
from xccl_emu.timing.trace import NOTHING, details_of, name_of, seen_writes

LEGEND = (
    'Boxes: actions that took time, pale: the scalar unit waits. <span class="seen">Green, dashed: a write, to who saw'
    ' it.</span> <span class="path">Red: the critical path.</span>'
)
_LANE, _HEAD, _LETTER, _NARROWEST, _WIDEST = 26, 28, 7.3, 1000, 16_000
_TITLE = "When each pipe does what, and the critical path"
_COLOURS = dict(zip(PIPE_NAMES, ("#cfd8dc", "#a9cce3", "#f5cba7", "#a2d9ce", "#d2b4de"), strict=True))
_STYLE = (
    " ".join(f".{name} {{ fill: {colour}; stroke: #fff; }}" for name, colour in _COLOURS.items())
    + """
.waits { fill: #f3f3f3; stroke: #d4d4d4; } .chosen { stroke: #0b5394; stroke-width: 2; } .path { stroke-width: 3; }
.small { font-size: 10px; pointer-events: none; } .axis { fill: #555; }
"""
)


@dataclass(frozen=True)
class ShownAction:
    """An action that is shown, and what it waited for; times in microseconds."""

    record: int
    core: int
    pipe: str
    since_us: float
    """When the scalar unit was done with what it did before; for other pipes, when it begins."""
    start_us: float
    end_us: float
    name: str
    path: tuple[PathPart, ...]
    """What of the critical path it is."""

    def who(self, cores_per_die: int) -> str:
        """Return a name such as ``die0.core1.mtu-in``."""
        die, core = divmod(self.core, cores_per_die)
        return f"die{die}.core{core}.{self.pipe}"


@dataclass(frozen=True)
class Timeline:
    """A timed run with the log of all dies."""

    timing: Timing
    most: int
    """This many actions are shown: those on the critical path, and then those that take longest, or wait ten times as
    long."""

    @cached_property
    def actions(self) -> list[ShownAction]:
        """Actions that take time, that something is waited for, or that are on the critical path."""
        records, path = self.timing.records, self.path
        free: dict[int, float] = {}
        parts: dict[int, list[PathPart]] = {}
        for part in path:
            parts.setdefault(part.record, []).append(part)
        found = []
        for number in np.argsort(records[:, tl.RECORD_START], kind="stable").tolist():
            row = records[number]
            core, engine = int(row[tl.RECORD_CORE]), int(row[tl.RECORD_ENGINE])
            start, end = int(row[tl.RECORD_START]) / PS_PER_US, int(row[tl.RECORD_END]) / PS_PER_US
            since = free.get(core, 0.0) if engine == rq.SCALAR else start
            if engine == rq.SCALAR:
                free[core] = end
            if end > since or number in parts:
                name = name_of(self.timing, row)
                of = tuple(parts.get(number, ()))
                found.append(ShownAction(number, core, PIPE_NAMES[min(engine, rq.DMA)], since, start, end, name, of))
        return found

    @cached_property
    def shown(self) -> list[ShownAction]:
        """Not too many of them."""

        def worth(one: ShownAction) -> tuple[bool, float]:
            return bool(one.path), max(one.end_us - one.start_us, (one.start_us - one.since_us) / 10)

        by_worth = sorted(self.actions, key=worth, reverse=True)
        kept = {one.record for one in by_worth[: self.most]}
        return [one for one in self.actions if one.record in kept]

    @cached_property
    def path(self) -> list[PathPart]:
        """The critical path."""
        return critical_path(self.timing)

    @cached_property
    def lanes(self) -> dict[tuple[int, str], float]:
        """The middle of each lane, by core and pipe."""
        shown = {(one.core, PIPE_NAMES.index(one.pipe)) for one in self.shown}
        order = sorted(shown | {(part.core, min(part.engine, rq.DMA)) for part in self.path})
        return {(core, PIPE_NAMES[pipe]): _HEAD + (i + 0.5) * _LANE for i, (core, pipe) in enumerate(order)}

    def svg(self) -> str:
        """Draw it for papers: all on a page's width."""
        left, scale = self._names_px(), _NARROWEST / self.timing.latency_us
        drawing = Drawing((-left, 0, left + _NARROWEST + _LANE, self._height), _TITLE, _STYLE)
        self._draw_names(drawing, -left)
        self._draw_axis(drawing, scale)
        self._draw(drawing, scale)
        return drawing.svg()

    def parts(self) -> tuple[str, str]:
        """The names of the lanes, and axis and lanes next to them, as wide as half of the actions need to be seen."""
        names = Drawing((0, 0, self._names_px(), self._height), "Pipes", _STYLE)
        self._draw_names(names, 0)
        took = [one.end_us - one.start_us for one in self.shown if one.end_us > one.start_us]
        until = self.timing.latency_us
        scale = min(max(6 / float(np.median(took or [1.0])), _NARROWEST / until), _WIDEST / until)
        width = until * scale + _LANE
        axis = Drawing((0, 0, width, _HEAD), "Time", _STYLE)
        self._draw_axis(axis, scale)
        drawing = Drawing((0, _HEAD, width, self._height - _HEAD), _TITLE, _STYLE)
        self._draw(drawing, scale)
        return names.svg(), f'<div class="axis">{axis.svg()}</div>{drawing.svg()}'

    @property
    def _height(self) -> float:
        return _HEAD + len(self.lanes) * _LANE + 6

    def _names_px(self) -> float:
        return _LETTER * max((len(one.who(self.timing.cores_per_die)) for one in self.shown), default=0) + 8

    def _draw_names(self, into: Drawing, left: float) -> None:
        for (core, pipe), y in self.lanes.items():
            die, on_die = divmod(core, self.timing.cores_per_die)
            into.text(left, y + 4, f"die{die}.core{on_die}.{pipe}")

    def _draw_axis(self, into: Drawing, scale: float) -> None:
        for us in _ticks(self.timing.latency_us, self.timing.latency_us * scale / 90):
            into.text(us * scale + 2, 14, f"{us:g} us", "axis")
            into.line((us * scale, 4), (us * scale, _HEAD), "lane")

    def _draw(self, into: Drawing, scale: float) -> None:
        end = self.timing.latency_us * scale
        for us in _ticks(self.timing.latency_us, end / 90):
            into.line((us * scale, _HEAD), (us * scale, self._height), "lane")
        for y in self.lanes.values():
            into.line((0, y + _LANE / 2), (end, y + _LANE / 2), "lane")
        for row, action in enumerate(self.shown):
            self._draw_action(into, scale, row, action)
        self._draw_arrows(into, scale)
        before = None
        for part in self.path:
            lane = self.lanes[part.core, PIPE_NAMES[min(part.engine, rq.DMA)]]
            here = part.start_us * scale, lane + _LANE / 2 - 3
            if before is not None and before[1] != here[1]:
                into.line(before, here, "path")
            before = part.end_us * scale, here[1]
            into.line(here, before, "path")

    def _draw_action(self, into: Drawing, scale: float, row: int, action: ShownAction) -> None:
        top = self.lanes[action.core, action.pipe] - _LANE / 2 + 3
        for since, until, shown in (
            (action.since_us, action.start_us, "waits"),
            (action.start_us, action.end_us, action.pipe),
        ):
            if until <= since:
                continue
            x, width = since * scale, max((until - since) * scale, 1)
            box = into.add("rect", shown, row, x=f"{x:.1f}", y=f"{top:g}", width=f"{width:.1f}", height=_LANE - 8)
            into.below(box, "title").text = ("waits: " if shown == "waits" else "") + action.name
            if width > 6.2 * len(action.name) + 6:
                into.text(round(x + 3, 1), top + 13, action.name, "small")

    def _draw_arrows(self, into: Drawing, scale: float) -> None:
        numbers = np.array([action.record for action in self.shown], np.int64)
        by_record = {action.record: action for action in self.shown}
        for action, write in zip(self.shown, _seen(self.timing, numbers), strict=True):
            if write in by_record:
                of = by_record[write]
                ends = [(one.end_us * scale, self.lanes[one.core, one.pipe]) for one in (of, action)]
                into.line(ends[0], ends[1], "seen", arrow=True)


def _seen(timing: Timing, numbers: NDArray[np.int64]) -> Sequence[int]:
    return [-1 if one == NOTHING else int(one) for one in seen_writes(timing, numbers)] if len(numbers) else []


def _ticks(until: float, about: float) -> list[float]:
    """Round numbers from 0 on, about this many."""
    rough = until / max(about, 1)
    power = 10.0 ** np.floor(log10(rough)) if rough > 0 else 1.0
    step = next(float(n * power) for n in (1, 2, 5, 10) if n * power >= rough * 0.999)
    return [round(i * step, 9) for i in range(int(until / step) + 1)] if until > 0 else [0.0]


# ---- the page

_COLUMNS = ("", "from us", "takes us", "who", "action", "waited us", "on the path us")
ACTIONS_MAX = 1500
"""This many actions a browser shows at once."""


def page(timing: Timing, title: str, most: int = ACTIONS_MAX) -> str:
    """The page, as text, of this many actions at most: those on the critical path, and the longest of the others.

    Raises ConfigError for a run without the log of all dies.
    """
    line = Timeline(timing, most)
    head, picture = line.parts()
    left = len(line.actions) - len(line.shown)
    path = ", ".join(f"{what} {us:.3f}" for what, us in breakdown(timing).items() if us)
    found = [f"latency {timing.latency_us:.3f} us on {timing.fabric.name}", f"critical path, us: {path}"]
    found += [f"left out: {left:,} actions off the path, the shortest"] if left else []
    lines = [_line(timing, action) for action in line.shown]
    return Page(title, found, LEGEND, head, picture, _COLUMNS, lines, at_side=False).text()


def _line(timing: Timing, action: ShownAction) -> PageLine:
    row, who = timing.records[action.record], action.who(timing.cores_per_die)
    site = timing.site(row)
    waited, on_path = action.start_us - action.since_us, sum(part.end_us - part.start_us for part in action.path)
    details = details_of(timing, row)
    place = f"{details['source']}, kernel {details['kernel']}" if site else ""
    return PageLine(
        ("●" if action.path else "", f"{action.start_us:.3f}", _us(action.end_us - action.start_us), who, action.name,
         _us(waited), _us(on_path)),
        [f"{action.start_us:.3f} to {action.end_us:.3f} us: {who}", action.name, *_waits(action),
         *(f"{what}: {value}" for what, value in details.items() if what not in ("step", "sync", "source"))],
        "marked" if action.path else "", *("", 0) if site is None else (site.file, site.line), place,
    )  # fmt: skip


def _us(us: float) -> str:
    return f"{us:.3f}" if us else ""


def _waits(action: ShownAction) -> Sequence[str]:
    parts = [f"{part.resource} {part.end_us - part.start_us:.3f} us" for part in action.path]
    waited = [f"waited since {action.since_us:.3f} us"] if action.start_us > action.since_us else []
    return [*waited, *([f"on the critical path: {', '.join(parts)}"] if parts else [])]
