"""In what a bench runs: the fabric and costs of its pods, whether payload moves, and how it says what it is doing."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import CapacityError
from xccl_emu.base.free_memory import resident_bytes
from xccl_emu.base.stage import Stage, silent
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import CLOUDMATRIX384, PodSpec
from xccl_emu.machine.state import Labels
from xccl_emu.papers.bench.result import FAILED, Result
from xccl_emu.protocols.experts.data import draw_tokens
from xccl_emu.timing.arrival import Taken
from xccl_emu.timing.costs import Costs
from xccl_emu.timing.fabric import Fabric
from xccl_emu.timing.run import VirtualTime
from xccl_emu.timing.topologies import CLOUDMATRIX384 as UB
from xccl_emu.timing.topologies import model

if TYPE_CHECKING:
    from xccl_emu.check.trial import Trial
    from xccl_emu.protocol.case import Case

T = TypeVar("T")
R = TypeVar("R")
TARGETS = {"sibling": 1, "node": 2, "pod": 16}
"""A die that die 0 reaches on its chip, within its node, and in another node."""


class Kept:
    """The pod of the run before, for the next one: memory that was touched once is there already.

    Runs with payload, which others would touch elsewhere, and after one that failed, have pods of their own.
    """

    def __init__(self) -> None:
        self._pod: Pod | None = None
        self._free: dict[int, int] = {}

    def drop(self) -> None:
        """Give the memory of the pod back."""
        self._pod = None

    def pod(self, spec: PodSpec, policy: VirtualTime) -> Pod:
        """A pod in virtual time: what ran on it before ends, and its buffers are given back."""
        pod, self._pod = self._pod, None
        if pod is None or pod.spec != spec or policy.data or pod.active_cores():
            del pod  # before there is another: there is room for one
            pod = Pod(spec, policy=policy)
            self._free = pod.mark_app()
        pod.release_app(self._free)
        pod.policy, pod.labels = policy, Labels()
        self._pod = None if policy.data else pod
        return pod


@dataclass(frozen=True)
class Setting:
    """What all benches of a command have in common."""

    fabric: Fabric = UB
    costs: Costs = field(default_factory=Costs)
    stage: Stage = silent
    seed: int = 0
    """Seed of payloads and routings."""
    data: bool = True
    """Does payload move, to be held against the oracle?  Times are the same without."""

    free_bytes: int = 1 << 62
    """Memory that a run may plan with."""

    kept: Kept | None = field(default=None, compare=False, repr=False)
    """What keeps the pod of a run for the next one; without it each has its own."""

    granted: set[str] = field(default_factory=set, compare=False, repr=False)
    """Names of the operations that cores were granted, in all runs so far in this process."""

    left_out: list[tuple[str, str]] = field(default_factory=list, compare=False)
    """What found no room there so far, and why."""

    def scored(self, result: Result) -> Result:
        """A row as it is, if it was published of the fabric that it ran on; else what was published is shown too."""
        on = result.configuration.get("fabric", self.fabric.name)
        kept = result.role not in ("fit", "check") or on == result.machine
        return result if kept else replace(result, role="shown")

    @property
    def fabric_words(self) -> dict[str, str]:
        """Return the fabric for the configuration of a row, if it is not the usual one."""
        return {} if self.fabric == UB else {"fabric": self.fabric.name}

    def fitting(self, what: str, bytes_needed: Callable[[bool], int]) -> "Setting":
        """The setting in which a run fits the memory: this one, or the same without payload, which is noted.

        bytes_needed: memory that the run touches, with payload or without.  Raises CapacityError if neither fits.
        """
        for data in dict.fromkeys((self.data, False)):
            if bytes_needed(data) <= self.free_bytes:
                if self.kept and resident_bytes() + bytes_needed(data) > self.free_bytes:
                    self.kept.drop()
                return self if data == self.data else replace(self, data=data)
            need = f"{bytes_needed(data) / 1e9:.3g} GB, {self.free_bytes / 1e9:.3g} GB may be used"
            if data:
                self.left_out.append((f"{what}, payload", f"not moved or compared, only timed: it needs about {need}"))
        raise CapacityError(f"{what}: needs about {need}; take less, or a larger --memory")

    def each(self, items: Iterable[T], rows: Callable[[T], Iterable[R]]) -> Iterator[R]:
        """Yield the rows of each item; one that does not fit the memory is noted, and the others go on."""
        for item in items:
            try:
                yield from rows(item)
            except (CapacityError, MemoryError) as error:
                self.note(error)

    def note(self, error: BaseException) -> None:
        """Keep why something found no room."""
        what, _, why = (str(error) or "memory: not enough").partition(": ")
        self.left_out.append((what, why))

    def explained(self, bench: str, rows: Iterable[Result]) -> Iterator[Result]:
        """Yield the rows of a bench, then one for all that found no room, which says why.

        Raises CapacityError if nothing else is there.
        """
        some = False
        try:
            for row in rows:
                some = True
                yield row
        except (CapacityError, MemoryError) as error:
            if not some:
                raise
            self.note(error)
        for what, why in dict.fromkeys(self.left_out):
            yield Result(bench, what, None, "", role=FAILED, note=why)
        self.left_out.clear()

    def keeping(self) -> "Setting":
        """Return the same in which each run has the pod of the run before."""
        return self if self.kept else replace(self, kept=Kept())

    def drop_kept(self) -> None:
        """Give the memory of a pod that is kept back, if there is one: the next run has a new one."""
        if self.kept:
            self.kept.drop()

    def on(self, name: str) -> "Setting":
        """Return the same on a machine by its name, with its costs."""
        fabric, costs = model(name)
        return replace(self, fabric=fabric, costs=costs)

    def pod(
        self, spec: PodSpec = CLOUDMATRIX384, *, log: bool | Collection[int] = False, sites: Collection[str] = ()
    ) -> tuple[Pod, VirtualTime]:
        """A pod in virtual time, and its policy, which has the timing of each run."""
        policy = self.clock(log, sites)
        return (self.kept or Kept()).pod(spec, policy), policy

    def clock(self, log: bool | Collection[int] = False, sites: Collection[str] = ()) -> VirtualTime:
        """The policy of a pod in virtual time."""
        policy = VirtualTime(self.fabric, self.costs, log=log, data=self.data, sites=sites)
        policy.granted = self.granted
        return policy

    def run(
        self, case: "Case", log: bool | Collection[int] = False, sites: Collection[str] = ()
    ) -> "tuple[Trial, float]":
        """Run a case, on the pod that just fits it: the trial as it is then, and microseconds until the last core is
        done.

        Raises CapacityError if its payload does not fit the memory.
        """
        trial = case.build("sc", payload=self.data)
        if self.data and (need := trial.pod.spec.memory_bytes) > self.free_bytes:
            free = f"{self.free_bytes / 1e9:.3g} GB may be used"
            raise CapacityError(f"{case.name}: needs up to {need / 1e9:.3g} GB, {free}; take --no-data, or less")
        policy = trial.pod.policy = self.clock(log, sites)
        trial.pod.run()
        return trial, policy.timing.latency_us

    def tokens(self, ranks: int, tokens: int, hidden: int) -> NDArray[Any]:
        """[ranks, tokens, hidden] hidden states in BF16, normally distributed; zeros without data."""
        if not self.data:
            return np.zeros((ranks, tokens, hidden), ml_dtypes.bfloat16)
        return draw_tokens(ranks, tokens, hidden, "bf16", self.seed)

    def operator_us(self, taken: Taken) -> float:
        """Latency of an operator that is launched for one call: of its mean rank, and of its launch."""
        return taken.mean_us + self.costs.launch_us


DEFAULT = Setting()
"""The whole CloudMatrix384 with the costs of the release."""
