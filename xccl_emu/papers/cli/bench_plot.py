"""Plots of a bench: latency over size or batch, both logarithmic, and bandwidth with the most that the path has.

What has neither is drawn as bars, row by row.
"""

import textwrap
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from xccl_emu.cli.files import save_figure
from xccl_emu.papers.bench.result import Result, payload_gb_s
from xccl_emu.papers.bench.setting import TARGETS
from xccl_emu.timing.fabric import Fabric

_COLOURS = ("#1b4f72", "#2e86c1", "#17a589", "#d68910", "#ba4a00", "#7d3c98", "#566573")
Lines = Mapping[str, list[tuple[float, float]]]
"""Points of each line, by its label."""


def draw(results: Sequence[Result], path: Path, fabric: Fabric) -> None:
    """Draw transfers by size, operators by batch or EP degree, and anything else row by row.

    Raises OutputError if the file cannot be written.
    """
    figure = _drawn([result for result in results if not result.baseline], fabric)
    save_figure(figure, path)


def _drawn(results: Sequence[Result], fabric: Fabric) -> Any:
    transfers = [result for result in results if "bytes" in result.configuration]
    batches = [result for result in results if "," in result.what and "tokens" in result.configuration]
    degrees = [r for r in results if r.unit == "us" and "ranks" in r.configuration]
    if all(result.swept for result in results) and _axis_of(results):
        return _of_cases(results)
    if len({result.bench for result in results}) > 1:
        return _of_rows([result for result in results if "bytes" not in result.configuration])
    if transfers:
        return _of_transfers(transfers, fabric)
    if _differ(batches, "tokens"):
        return _of_batches(batches)
    return _of_degrees(degrees) if _differ(degrees, "ranks") else _of_rows(results)


def _differ(results: Sequence[Result], size: str) -> bool:
    """Were several of these sizes run?  Else there is no axis to draw along."""
    return len({result.configuration[size] for result in results}) > 1


def _figure(panels: int) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6 * panels, 4.4), layout="constrained")
    axes = [figure.add_subplot(1, panels, i + 1) for i in range(panels)]
    for panel in axes:
        panel.grid(True, which="major", color="#dddddd", linewidth=0.6)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _by(results: Sequence[Result], label: Callable[[Result], str], x: str, y: Callable[[Result], float]) -> Lines:
    lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for result in results:
        lines[label(result)].append((float(result.configuration[x]), y(result)))
    return lines


def _add(panel: Any, lines: Lines) -> None:
    for (label, points), colour in zip(lines.items(), _COLOURS * len(lines), strict=False):
        panel.plot(*zip(*sorted(points), strict=True), "o-", color=colour, label=label, markersize=3, linewidth=1.4)


def _of_transfers(results: Sequence[Result], fabric: Fabric) -> Any:
    figure, (latency, bandwidth) = _figure(2)
    places = {str(result.configuration["to"]) for result in results}

    def label(result: Result) -> str:
        where = f", {result.configuration['to']}" if len(places) > 1 else ""
        return f"{result.configuration['cores']} cores{where}"

    _add(latency, _by(results, label, "bytes", lambda result: float(result.emulated or 0)))
    _add(bandwidth, _by(results, label, "bytes", payload_gb_s))
    latency.set(xscale="log", yscale="log", ylabel="latency, us", title="send and receive: latency")
    bandwidth.set(xscale="log", ylabel="payload over latency, GB/s", title="send and receive: bandwidth")
    for place in sorted(places):
        peak = fabric.paths[fabric.path_of(0, TARGETS[place])].write.gb_s
        bandwidth.axhline(peak, color="#922b21", linestyle="--", linewidth=1)
        where = f" to the {place}" if len(places) > 1 else ""
        note = f"writes{where}: {peak:g} GB/s"
        bandwidth.annotate(note, (0.02, peak), xycoords=("axes fraction", "data"), va="bottom", color="#922b21")
    bandwidth.set_ylim(0, 1.08 * bandwidth.get_ylim()[1])
    sizes = sorted({int(result.configuration["bytes"]) for result in results})
    for panel in (latency, bandwidth):
        _size_ticks(panel, sizes)
    latency.legend(frameon=False)
    return figure


def _size_ticks(panel: Any, sizes: Sequence[int]) -> None:
    """Sizes in powers of 1024, at most about eight of them."""
    from xccl_emu.base.sizes import size_text

    shown = sizes[:: max(1, -(-len(sizes) // 9))]
    panel.set_xlabel("payload")
    panel.set_xticks(shown, [size_text(size) for size in shown])
    panel.minorticks_off()


def _of_batches(results: Sequence[Result]) -> Any:
    figure, (panel,) = _figure(1)
    degrees = {int(result.configuration["ranks"]) for result in results}

    def label(result: Result) -> str:
        operator = result.what.split(",")[0]
        return operator if len(degrees) == 1 else f"{operator}, EP{result.configuration['ranks']}"

    batches = sorted({int(result.configuration["tokens"]) for result in results})
    _add(panel, _by(results, label, "tokens", lambda result: float(result.emulated or 0)))
    ranks = f": EP{degrees.pop()}" if len(degrees) == 1 else ""
    title = f"{results[0].bench}{ranks}, {results[0].configuration['cores']} cores a die"
    panel.set(xscale="log", yscale="log", xlabel="tokens of a die", ylabel="latency, us", title=title)
    panel.set_xticks(batches, [str(batch) for batch in batches])
    low, high = panel.get_ylim()
    ticks = [tick for power in range(7) for tick in (10**power, 2 * 10**power, 5 * 10**power) if low <= tick <= high]
    if len(ticks) > 2:
        panel.set_yticks(ticks, [str(tick) for tick in ticks])
        panel.minorticks_off()
    panel.legend(frameon=False, fontsize="small")
    return figure


def _axis_of(results: Sequence[Result]) -> str:
    """The size with the most values, which are numbers, along which a sweep of a case is drawn; none without one."""
    values = {name: {result.size(name) for result in results} for name in results[0].swept or ()}
    numbers = [name for name, several in values.items() if all(isinstance(value, int) for value in several)]
    return max(numbers, key=lambda name: len(values[name]), default="")


def _of_cases(results: Sequence[Result]) -> Any:
    """Curves over one size, one for each of the others; where there is a payload, bandwidths in more panels."""
    swept, axis = results[0].swept or (), _axis_of(results)
    drawn = {tuple(result.extra[name] for result in results): name for name in reversed([*results[0].extra])}
    more = [name for name in results[0].extra if name in drawn.values()]  # without the same numbers once more
    figure, panels = _figure(1 + len(more))

    def add(panel: Any, name: str) -> None:
        lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for result in results:
            of = ", ".join(f"{each} {result.size(each)}" for each in swept if each != axis)
            lines[of].append((float(result.size(axis)), result.extra.get(name, result.emulated or 0.0)))
        _add(panel, lines)
        values = sorted({int(result.size(axis)) for result in results})
        panel.set(xscale="log", xlabel=axis, ylabel=", ".join(name.rsplit(" ", 1)))
        panel.set_xticks(values, [str(value) for value in values])

    for panel, name in zip(panels, ("latency us", *more), strict=True):
        add(panel, name)
    panels[0].set_yscale("log")
    low, high = panels[0].get_ylim()
    ticks = [tick for power in range(-3, 7) for n in (1, 1.5, 2, 3, 5, 7) if low <= (tick := n * 10.0**power) <= high]
    panels[0].set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    for panel in panels:
        panel.minorticks_off()
    fixed = (f"{name} {results[0].size(name)}" for name in results[0].configuration if name not in swept)
    title = textwrap.fill(f"{results[0].bench}: {', '.join(fixed)}".removesuffix(": "), 80 * len(panels))
    figure.suptitle(title, fontsize="small")
    if len(swept) > 1:
        panels[0].legend(frameon=False, fontsize="small")
    return figure


def _of_degrees(results: Sequence[Result]) -> Any:
    """Emulated latencies as lines, published ones as crosses of the same colour."""
    figure, (panel,) = _figure(1)
    emulated = _by(results, _operator, "ranks", lambda result: float(result.emulated or 0))
    _add(panel, emulated)
    known = [result for result in results if result.published is not None]
    published = _by(known, _operator, "ranks", lambda result: float(result.published or 0))
    for (operator, points), colour in zip(published.items(), _COLOURS, strict=False):
        panel.plot(*zip(*sorted(points), strict=True), "x", color=colour, markersize=7, label=f"{operator}, published")
    degrees = sorted({int(result.configuration["ranks"]) for result in results})
    title = f"{results[0].bench}: {results[0].configuration['tokens']} tokens a die"
    panel.set(xscale="log", xlabel="ranks", ylabel="latency, us", title=title)
    panel.set_xticks(degrees, [str(degree) for degree in degrees])
    panel.minorticks_off()
    panel.set_ylim(0, 1.08 * panel.get_ylim()[1])
    panel.legend(frameon=False, fontsize="small", loc="lower right")
    return figure


def _of_rows(results: Sequence[Result]) -> Any:
    """A panel for each unit: a bar for what was emulated, a cross for what was published."""
    from matplotlib.figure import Figure

    units = list(dict.fromkeys(result.unit for result in results))
    figure = Figure(figsize=(9.0, 1.2 * len(units) + 0.26 * len(results)), layout="constrained")
    heights = [1 + sum(result.unit == unit for result in results) for unit in units]
    panels = figure.subplots(len(units), 1, squeeze=False, height_ratios=heights)[:, 0]
    several = len({result.bench for result in results}) > 1
    for panel, unit in zip(panels, units, strict=True):
        rows = [result for result in results if result.unit == unit]
        names = [f"{result.bench}: {result.what}" if several else result.what for result in rows]
        places = range(len(rows), 0, -1)
        panel.barh(places, [result.emulated or 0 for result in rows], color=_COLOURS[1], label="emulated")
        known = [(r.published, y) for r, y in zip(rows, places, strict=True) if r.published is not None]
        if known:
            panel.plot(*zip(*known, strict=True), "x", color=_COLOURS[4], markersize=7, label="published")
        panel.set_yticks(places, names, fontsize="small")
        panel.set_xlabel(unit or "ratio")
        values = [abs(value) for r in rows for value in (r.emulated, r.published) if value]
        if values and max(values) > 100 * min(values) and min(r.emulated or 0 for r in rows) >= 0:
            panel.set_xscale("log")
    panels[0].set_title(results[0].bench if not several else "all benches")
    panels[0].legend(fontsize="small", loc="best")
    return figure


def _operator(result: Result) -> str:
    return result.what.split()[0].rstrip(",")
