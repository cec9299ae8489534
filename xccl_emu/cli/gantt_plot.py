"""Plot of a Gantt chart: a bar for each step on each kind of path."""

from pathlib import Path

from xccl_emu.cli.files import save_figure
from xccl_emu.timing.gantt import Bars

_COLOURS = ("#ba4a00", "#2e86c1", "#17a589", "#d68910", "#7d3c98", "#566573", "#1b4f72")


def draw(bars: Bars, title: str, path: Path) -> None:
    """Draw it, the first step on top; raises OutputError if the file cannot be written."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 1.2 + 0.4 * len(bars)), layout="constrained")
    panel = figure.add_subplot()
    for place, (each, colour) in enumerate(zip(bars.values(), _COLOURS * len(bars), strict=False)):
        panel.broken_barh([(begin, end - begin) for begin, end in each], (place - 0.4, 0.8), color=colour)
    panel.set_yticks(range(len(bars)), list(bars), fontsize="small")
    panel.invert_yaxis()
    panel.set(xlabel="us", title=title)
    panel.set_xlim(left=0)
    panel.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path)
