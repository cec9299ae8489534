"""What a die is busy with over time, as a Gantt chart: a bar for each step of the paper on each kind of path."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from xccl_emu.base.errors import ConfigError
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.machine.device.layout import GRANULE_BYTES
from xccl_emu.timing.array import PS_PER_US
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.run import Timing

Bars = Mapping[str, Sequence[tuple[float, float]]]
"""Begin and end of what is done, in us, in order and apart from each other; by name, in order of the steps."""


def gantt(timing: Timing, die: int) -> Bars:
    """Return when some core of a die writes to others, or computes; ConfigError if the run has no log of the die.

    A write of at most a granule is a flag, and left out; so are writes within the die, and latencies: a bar ends when
    the bytes have left.
    """
    if die not in timing.logged:
        raise ConfigError("die", die, "the run has no log of it")
    rows = timing.records[timing.records[:, tl.RECORD_CORE] // timing.cores_per_die == die]
    found: dict[tuple[int, str, str], list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        if what := _what(timing, die, row):
            site = timing.site(row)
            begin = int(row[tl.RECORD_START]) / PS_PER_US
            step, kernel = site.step if site else 0, timing.kernels[int(row[tl.RECORD_CORE])].name
            named = f"step {step}" if step else kernel
            found[step, named, what].append((begin, int(row[tl.RECORD_END]) / PS_PER_US))
    return {f"{named}, {what}": merged(bars) for (_, named, what), bars in sorted(found.items())}


def _what(timing: Timing, die: int, row: np.ndarray) -> str:
    """The medium of a write to another die, or what the vector pipe does; nothing for anything else."""
    engine, op, peer = (int(row[at]) for at in (tl.RECORD_ENGINE, tl.RECORD_OP, tl.RECORD_PEER))
    if ops.MARKERS >> op & 1:
        return ""
    if engine == rq.VECTOR:
        return "sums"
    if engine not in (rq.MTU_OUT, rq.DMA) or row[tl.RECORD_NBYTES] <= GRANULE_BYTES or peer == die:
        return ""
    return timing.fabric.paths[timing.fabric.path_of(die, peer)].medium


def merged(bars: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the same times, none of them in two bars."""
    together: list[tuple[float, float]] = []
    for begin, end in sorted(bars):
        if together and begin <= together[-1][1]:
            together[-1] = together[-1][0], max(end, together[-1][1])
        else:
            together.append((begin, end))
    return together


def busy_us(bars: Sequence[tuple[float, float]]) -> float:
    """Return the sum of the lengths of bars that do not overlap."""
    return sum(end - begin for begin, end in bars)


def lines(bars: Bars, until_us: float, width: int = 72) -> list[str]:
    """A line for each name: ``#`` where it is busy for half of a column's time or more, ``.`` where for less."""
    names = max(map(len, bars), default=0)
    column = until_us / width
    drawn = [f"{'us':>{names}}  0{until_us:>{width - 1}.1f}    busy us"]
    for name, each in bars.items():
        cells = [_busy(each, i * column, (i + 1) * column) / column for i in range(width)]
        bar = "".join("#" if cell >= 0.5 else "." if cell > 0 else " " for cell in cells)
        drawn.append(f"{name:>{names}}  {bar}  {busy_us(each):>9.1f}")
    return drawn


def _busy(bars: Sequence[tuple[float, float]], begin: float, end: float) -> float:
    return sum(max(0.0, min(last, end) - max(first, begin)) for first, last in bars)
