"""What the benchmarks share: timing several things in turns, the yardstick `np.copyto`, and a table of targets.

Every benchmark prints what it measured next to what it should be, and ends with exit code 0 whether or not the targets
are met: a benchmark is no test.  Rates are ratios to something that is timed in the same run, in turns with it, so that
a busy machine slows both; and they are taken from CPU seconds of the one thread at work, which on an idle machine are
the wall seconds, and on a busy one leave out the turns of others.
"""

import argparse
import json
import mmap
import os
import platform
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from xccl_emu.machine.stats import RunStats

_YARDSTICK_BYTES = 1 << 28
"""From about 190 MB on the C library copies past the caches, at 12.5 GB/s instead of 6 here.  A copy of as much as a
round moves does that, so the yardstick must: smaller arrays would flatter us."""


@dataclass(frozen=True)
class Row:
    """One line of a report."""

    what: str
    measured: float
    unit: str
    target: str = ""
    """Such as ``">= 0.4"``; empty for a number that is only reported."""
    met: bool | None = None


@dataclass
class Report:
    """What a benchmark found."""

    title: str
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    load_before: float = field(default_factory=lambda: os.getloadavg()[0])

    def plain(self, what: str, measured: float, unit: str = "") -> None:
        """A number without a target."""
        self.rows.append(Row(what, measured, unit))

    def at_least(self, what: str, measured: float, bound: float, unit: str = "") -> None:
        """A number that should not be below ``bound``."""
        self.rows.append(Row(what, measured, unit, f">= {bound:g}", measured >= bound))

    def at_most(self, what: str, measured: float, bound: float, unit: str = "") -> None:
        """A number that should not be above ``bound``."""
        self.rows.append(Row(what, measured, unit, f"<= {bound:g}", measured <= bound))

    def fits(self, what: str, need: float) -> bool:
        """Return whether so much memory is free; if not, note that this is left out."""
        from xccl_emu.base.free_memory import available_bytes

        free = available_bytes()
        if need > free:
            self.notes.append(f"{what} skipped: needs {need / 1e9:.1f} GB, {free / 1e9:.1f} GB are free")
        return need <= free

    def finish(self, json_file: Path | None) -> None:
        """Print the table, and write it to ``json_file`` if one is given."""
        facts = _facts(self.load_before)
        _print(self, facts)
        if json_file is not None:
            rows = [asdict(row) for row in self.rows]
            text = json.dumps({"title": self.title, "machine": facts, "rows": rows, "notes": self.notes}, indent=1)
            json_file.write_text(text + "\n")


def parser(text: str) -> argparse.ArgumentParser:
    """A command line with ``--json FILE``."""
    made = argparse.ArgumentParser(description=text)
    made.add_argument("--json", type=Path, metavar="FILE", help="write the table to FILE as well")
    return made


def _facts(load_before: float) -> dict[str, Any]:
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": version("numba"),
        "load_before": round(load_before, 2),
        "load_after": round(os.getloadavg()[0], 2),
    }


def _print(report: Report, facts: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("what", "measured", "target", "", title=report.title, title_justify="left")
    table.columns[1].justify = table.columns[2].justify = "right"
    for row in report.rows:
        met = {None: "", True: "[green]met[/]", False: "[red]not met[/]"}[row.met]
        table.add_row(row.what, f"{_number(row.measured)} {row.unit}".rstrip(), row.target, met)
    console = Console()
    console.print(table)
    for note in [*report.notes, _about_load(facts)]:
        console.print(note, highlight=False)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _about_load(facts: dict[str, Any]) -> str:
    """Load averages; a run alone on the machine leaves about 1."""
    busy = max(facts["load_before"], facts["load_after"] - 1) > 0.5 * facts["cpus"]
    loads = f"load average {facts['load_before']} before, {facts['load_after']} after, {facts['cpus']} CPUs"
    return loads + ("; others were running: wall seconds are upper bounds" if busy else "")


# ---- time


def in_turns(repeats: int, *jobs: Callable[[], float]) -> list[float]:
    """The shortest time of each job; the jobs take turns, so that they see the same machine.

    A job returns its own CPU seconds, to leave out what it prepares.
    """
    times = [[job() for job in jobs] for _ in range(repeats)]
    return [min(column) for column in zip(*times, strict=True)]


@contextmanager
def stopwatch() -> Iterator[dict[str, float]]:
    """Fills in wall ``seconds``, ``cpu`` seconds of this thread, and minor page ``faults``."""
    taken: dict[str, float] = {}
    wall, cpu, faults = time.perf_counter(), time.thread_time(), page_faults()
    yield taken
    taken["seconds"], taken["cpu"] = time.perf_counter() - wall, time.thread_time() - cpu
    taken["faults"] = page_faults() - faults


class Yardstick:
    """`np.copyto` on one thread, between two arrays that were touched before."""

    def __init__(self, nbytes: int = _YARDSTICK_BYTES) -> None:
        self.source, self.target = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)

    @property
    def gigabytes(self) -> float:
        """Size of the two arrays."""
        return 2 * self.source.nbytes / 1e9

    def seconds(self, amount: int) -> float:
        """CPU seconds to copy ``amount`` bytes, over and over between the two arrays if they are smaller."""
        with stopwatch() as taken:
            left = amount
            while left > 0:
                some = min(left, self.source.nbytes)
                np.copyto(self.target[:some], self.source[:some])
                left -= some
        return taken["cpu"]


# ---- memory


def copied(run: RunStats) -> int:
    """Bytes that instructions copied: by mtu-in, by mtu-out and by DMA."""
    return sum(run.bytes_by_pipe[pipe] for pipe in ("mtu-in", "mtu-out", "dma"))


def page_faults() -> int:
    """Pages that this process touched for the first time."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def first_touch_us() -> float:
    """CPU microseconds to touch a page of a pod's memory for the first time."""
    from xccl_emu.machine.state import map_bytes

    pages = map_bytes(1 << 28, "benchmark")[:: mmap.PAGESIZE]
    with stopwatch() as taken:
        pages[:] = 1
    return taken["cpu"] / len(pages) * 1e6


# ---- figures


def exponent(xs: Sequence[float], ys: Sequence[float]) -> float:
    """The slope of log y over log x by least squares."""
    return float(np.polyfit(np.log(xs), np.log(ys), 1)[0])
