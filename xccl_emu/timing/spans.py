"""Which kernel a core runs when: a span for each launch, and within it one for each step of the paper.

Pipes show actions; these show which parts of a protocol overlap, as a swap of weights does with the layers that run.
"""

import functools
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xccl_emu.lang import Kernel
from xccl_emu.lang.foreign import CKernel
from xccl_emu.lang.requests import SCALAR
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.run import Timing


class Span(NamedTuple):
    """A time that a core spends in a launch, or in a step of it."""

    core: int
    """Global number."""
    kind: str
    """"kernel" or "step"."""
    name: str
    begin: int
    """In picoseconds, as ``end``; what the scalar unit waited for first is part of it."""
    end: int


def launched(timing: Timing, record: NDArray[np.int64]) -> str:
    """Return the name of the kernel of a launch that a record is of; "" between two launches of a stream."""
    kernel, site = timing.kernels[int(record[tl.RECORD_CORE])], timing.site(record)
    lines = _first_lines(kernel)
    if not lines:
        return kernel.name
    return lines[site.callers[0][1]] if site and site.callers else ""


@functools.cache
def _first_lines(kernel: Kernel) -> dict[int, str]:
    """The kernels of a stream, by the line that runs each, in their order; empty for a single one, and in C."""
    if isinstance(kernel, CKernel) or not kernel.in_turn:
        return {}
    found = sorted({site.callers[0][1] for site in kernel.sites if site.callers})
    return dict(zip(found, (each.name for each in kernel.in_turn), strict=True)) if found else {}


def spans(timing: Timing, rows: NDArray[np.int64]) -> Iterator[Span]:
    """Yield the spans of some records, given in the order in which they begin: each launch, then its steps.

    A request that is of no step belongs to the step before it.
    """
    records = timing.records[rows]
    records = records[records[:, tl.RECORD_ENGINE] == SCALAR]
    for core in np.unique(records[:, tl.RECORD_CORE]).tolist():
        free = 0
        for name, launch in groupby(records[records[:, tl.RECORD_CORE] == core], lambda row: launched(timing, row)):
            begin, steps = free, list[Span]()
            for number, part in groupby(launch, _Steps(timing).of):
                since, free = free, max(int(row[tl.RECORD_END]) for row in part)
                steps += [Span(core, "step", f"step {number}", since, free)] * (number > 0)
            if name:
                yield from (Span(core, "kernel", name, begin, free), *steps)


class _Steps:
    """Says of each record of a launch which step it belongs to."""

    def __init__(self, timing: Timing) -> None:
        self._timing, self._step = timing, 0

    def of(self, record: NDArray[np.int64]) -> int:
        """Return its own step, or the one before."""
        site = self._timing.site(record)
        self._step = site.step if site and site.step else self._step
        return self._step
