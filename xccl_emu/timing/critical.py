"""The critical path of a timed run: which waits and works, one after the other, its latency is made of.

For authors of protocols, `measure` says how long a protocol takes in the model of time, and on what.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.check.trial import Checkable
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.machine.stats import PIPE_NAMES
from xccl_emu.timing.array import PS_PER_US
from xccl_emu.timing.costs import Costs
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.fabric import Fabric
from xccl_emu.timing.run import Timing, VirtualTime
from xccl_emu.timing.topologies import topology

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


def by_sync(timing: Timing) -> dict[str, float]:
    """Microseconds of the critical path at requests that have a name (`sync=`), the most first; these are no prices."""
    sites = ((timing.site(timing.records[part.record]), part) for part in critical_path(timing))
    return sums((site.sync, part) for site, part in sites if site is not None and site.sync)


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


WAITS = ("polling", "quiet", "barrier", "contention")
"""What of `timing.critical.RESOURCES` is waiting."""
WORKS = ("issue", "vector", "wire")
"""What of them a pipe does."""


@dataclass(frozen=True)
class Measured:
    """One run of a case in virtual time."""

    latency_us: float
    """From the start until the last core has returned."""
    wrong_bytes: int
    """Bytes that are not what the case expects."""
    payload_bytes: int | None
    """What the case says that it moves."""
    bus_factor: float
    timing: Timing
    """With the log of all actions, for `xccl_emu.timing.trace.save_trace`."""

    @property
    def algbw_gb_s(self) -> float | None:
        """Payload over latency, as nccl-tests define it; None for a case without a payload."""
        return None if self.payload_bytes is None else self.payload_bytes / self.latency_us / 1000

    @property
    def busbw_gb_s(self) -> float | None:
        """Return the bandwidth times the factor of the case."""
        return None if self.algbw_gb_s is None else self.algbw_gb_s * self.bus_factor

    @property
    def path(self) -> list[PathPart]:
        """Return what the latency is made of: works and waits, one after the other, without gaps."""
        return critical_path(self.timing)

    @property
    def by_resource_us(self) -> dict[str, float]:
        """Microseconds of the path by what they are spent on (`timing.critical.RESOURCES`), the most first."""
        return sums((part.resource, part) for part in self.path)

    @property
    def by_pipe_us(self) -> dict[str, float]:
        """Return the time by pipe, without waits and what the fabric takes."""
        return sums((PIPE_NAMES[part.engine], part) for part in self.path if part.resource in WORKS)

    @property
    def by_wait_us(self) -> dict[str, float]:
        """Waits of the path by the name (`sync=`) or the line of the request that waits."""
        return sums((site_name(self.timing, part), part) for part in self.path if part.resource in WAITS)


def site_name(timing: Timing, part: PathPart) -> str:
    """The name (`sync=`) or the line of the request of a part, and its kernel."""
    kernel = timing.kernels[part.core]
    site = kernel.sites[part.site]
    return f"{site.sync or f'line {site.line}'} ({kernel.name})"


def sums(named: Iterable[tuple[str, PathPart]]) -> dict[str, float]:
    """Microseconds by name, the most first."""
    total: dict[str, float] = defaultdict(float)
    for name, part in named:
        total[name] += part.end_us - part.start_us
    return dict(sorted(total.items(), key=lambda one: -one[1]))


def measure(case: Checkable, *, fabric: str | Fabric = "cloudmatrix384", costs: Costs | None = None) -> Measured:
    """Run a case once in virtual time, every action logged.

    fabric: a name (`cloudmatrix384`, `atlas-800t-a2`, `h20`) or one of your own. costs: of what is on the die.

    Raises ConfigError for an unknown fabric, RunError and its kinds for a run that fails.
    """
    trial = case.build("sc")
    policy = VirtualTime(topology(fabric) if isinstance(fabric, str) else fabric, costs, log=True)
    trial.pod.policy = policy
    trial.pod.run()
    return Measured(
        policy.timing.latency_us, sum(trial.wrong_bytes().values()), getattr(case, "payload_bytes", None),
        getattr(case, "bus_factor", 1.0), policy.timing,
    )  # fmt: skip
