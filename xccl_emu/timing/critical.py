"""The critical path of a timed run: which waits and works, one after the other, its latency is made of."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.timing.array import PS_PER_US
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.run import Timing

RESOURCES = ("issue", "vector", "wire", "latency", "contention", "polling", "quiet", "barrier", "skew")
"""What a part of the path can be spent on: scalar work and flags between pipes; the vector pipe; bytes on the way; the
fixed latency of a path or of a DMA engine's start; waiting for others in a queue; seeing a flag; a quiet; a barrier;
and the late start of a core."""


@dataclass(frozen=True)
class PathPart:
    """One granule of the path."""

    resource: str
    core: int
    engine: int
    op: int
    site: int
    start_us: float
    end_us: float
    record: int
    """Its action, by number in the log."""


def critical_path(timing: Timing) -> list[PathPart]:
    """The parts of the path to the last return, in order of time and without gaps; ConfigError without a log."""
    if not timing.complete:
        raise ConfigError("log: the critical path needs the actions of all dies, log=True")
    parts = [part for part in _backwards(timing.records) if part.end_us > part.start_us]
    return parts[::-1]


def breakdown(timing: Timing) -> dict[str, float]:
    """Microseconds of the critical path by resource; they add up to the latency."""
    total = dict.fromkeys(RESOURCES, 0.0)
    for part in critical_path(timing):
        total[part.resource] += part.end_us - part.start_us
    return total


def _backwards(records: NDArray[np.int64]) -> Iterator[PathPart]:
    """Yield each one's cause, from the record that ended last down to the start of a core."""
    number = int(records[:, tl.RECORD_END].argmax())
    until = int(records[number, tl.RECORD_END])
    while number >= 0:
        row = records[number]
        yield from (_part(*part, number) for part in _own(row, until))
        until = min(until, int(row[tl.RECORD_START]))
        cause = int(row[tl.RECORD_CAUSE])
        if cause < 0:
            yield _part("skew", row, 0, until, number)
            return
        before = records[cause]
        reached = min(until, int(before[tl.RECORD_END]))
        gap = "barrier" if ops.GROUP_WAITS >> int(row[tl.RECORD_OP]) & 1 else "latency"
        yield _part(gap, before, reached, until, cause)
        number, until = cause, reached


def _own(row: NDArray[np.int64], until: int) -> Iterator[tuple[str, NDArray[np.int64], int, int]]:
    """Yield what an action itself takes, up to ``until``; of a transfer, first its wait in queues."""
    start, queued = int(row[tl.RECORD_START]), int(row[tl.RECORD_QUEUED])
    if until <= start:
        return
    middle = min(start + queued, until)
    yield _resource(row), row, middle, until
    yield "contention", row, start, middle


def _resource(row: NDArray[np.int64]) -> str:
    engine, op = int(row[tl.RECORD_ENGINE]), int(row[tl.RECORD_OP])
    if engine == rq.VECTOR and ops.VECTORS >> op & 1:
        return "vector"
    if engine == rq.DMA or ((ops.TRANSFERS & ~ops.MARKERS) >> op & 1 and engine != rq.SCALAR):
        return "wire"
    resources = {"memory": "polling", "visible": "quiet", "barrier": "barrier"}
    return resources.get(rq.TABLE[op].waits, "issue")


def _part(resource: str, row: NDArray[np.int64], start: int, end: int, number: int) -> PathPart:
    core, engine, op, site = (int(row[i]) for i in (tl.RECORD_CORE, tl.RECORD_ENGINE, tl.RECORD_OP, tl.RECORD_SITE))
    return PathPart(resource, core, engine, op, site, start / PS_PER_US, end / PS_PER_US, number)
