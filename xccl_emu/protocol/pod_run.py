"""Where a case runs at full size: a pod, its calls one after the other, and what came of them."""

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

from xccl_emu.base import words as w
from xccl_emu.base.errors import CapacityError
from xccl_emu.base.stage import Progress, Stage
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import GIB
from xccl_emu.machine.stats import RunStats

INTERPRETER_BYTES = 700 << 20
"""Python, compiled code and what the oracle has at a time."""


@dataclass
class PodRun:
    """A pod for a case, and what the case has found there."""

    pod: Pod
    stages: Stage
    free_bytes: int
    """Memory that may be planned with."""
    wrong: int = 0
    """Elements that are not the oracle's."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What else there is to say, by name."""
    rounds: list[dict[str, RunStats]] = field(default_factory=list)
    """Measurements of each round, or of each protocol in it."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall seconds of each stage."""

    @contextmanager
    def stage(self, name: str) -> Iterator[Progress]:
        """Name and time what is done inside; gives the stage's function for progress."""
        started = time.perf_counter()
        with self.stages(name) as progress:
            yield progress
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started

    def fits(self, need: int, what: str, remedy: str) -> None:
        """Raise CapacityError if ``need`` bytes are not free."""
        if need > self.free_bytes:
            free = f"{self.free_bytes / GIB:.1f} GiB are free"
            raise CapacityError(f"{what} about {need / GIB:.1f} GiB, {free}; {remedy}")


def resident_gb() -> float:
    """The most memory that this process had, in 10^9 bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


@dataclass(frozen=True)
class CaseRun(w.Printed):
    """What a run of a case did, once or on the whole pod, how long it took, and how much memory."""

    protocol: w.Protocol
    configuration: w.Configuration
    """Sizes that were asked for, or taken where none were."""
    order: w.Order
    policy: w.Policy
    wrong: Annotated[int, w.WRONG]
    wrong_bytes: w.WrongBytes
    rounds: Annotated[list[dict[str, RunStats]], "what each round did, by kernel or call"]
    facts: Annotated[dict[str, Any], "what else the protocol says of the run; each has words of its own"]
    stage_seconds: Annotated[dict[str, float], "wall time of each stage"]
    seconds: w.Seconds
    resident_gb: Annotated[float, "most memory of the process, 10^9 bytes"]
    on_pod: bool = False
    """Whether it ran on the whole pod."""
