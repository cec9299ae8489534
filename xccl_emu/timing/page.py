"""A timed run as a page: its picture, its actions one after the other, their source, and the critical path."""

from collections.abc import Sequence

from xccl_emu.pages.page import Page, PageLine
from xccl_emu.timing.critical import breakdown
from xccl_emu.timing.picture import LEGEND, ShownAction, Timeline
from xccl_emu.timing.run import Timing
from xccl_emu.timing.trace import details_of

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
