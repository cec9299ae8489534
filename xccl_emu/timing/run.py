"""Virtual time as a policy of a pod: `Pod(spec, policy=VirtualTime(fabric, costs))`, then run as always.

After a run, `VirtualTime.timing` says when each core returned; with ``log=True`` it has every action with its times.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.lang import Kernel
from xccl_emu.lang.kernel import Site
from xccl_emu.lang.requests import OP_RETURN, OPERATIONS, SCALAR
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.spec import PodSpec
from xccl_emu.machine.state import Labels
from xccl_emu.timing.array import Route, Times
from xccl_emu.timing.costs import Costs
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.fabric import PATHS, Fabric
from xccl_emu.timing.topologies import CLOUDMATRIX384

if TYPE_CHECKING:
    from xccl_emu.machine.pod import Buffer, Pod

Progress = Callable[[int], None]
_SLICE_ACTIONS = 1 << 18


@dataclass(frozen=True, eq=False)
class Timing:
    """When the cores of a run began and returned."""

    finished_us: Mapping[int, float]
    """By global number of the core, from the start of the run."""
    records: NDArray[np.int64]
    """[actions, RECORD_WORDS] of the log, times in picoseconds; empty without one."""
    kernels: Mapping[int, Kernel]
    """What ran on each core."""
    spec: PodSpec
    """Spec of the pod that ran."""
    fabric: Fabric
    labels: Labels
    """Names of ranges of memory."""
    routes: Sequence[Route]
    """What was reached over another network than the first."""
    logged: frozenset[int]
    """Dies whose actions are all in the log."""

    @property
    def cores_per_die(self) -> int:
        """Cores per die of the pod."""
        return self.spec.cores_per_die

    @property
    def complete(self) -> bool:
        """Has the log the actions of all dies?"""
        return len(self.logged) == self.spec.n_homes

    def networks_of(self, addresses: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the network over which each address was reached: its place in `Fabric.networks`, 0 for the first."""
        numbers = np.zeros(len(addresses), np.int64)
        for address, nbytes, network in reversed(self.routes):
            numbers[(addresses >= address) & (addresses < address + nbytes)] = network
        return numbers

    def site(self, record: NDArray[np.int64]) -> Site | None:
        """The place in its kernel of a record; a return has none."""
        if record[tl.RECORD_OP] == OP_RETURN and record[tl.RECORD_ENGINE] == SCALAR:
            return None
        return self.kernels[int(record[tl.RECORD_CORE])].sites[int(record[tl.RECORD_SITE])]

    @property
    def latency_us(self) -> float:
        """Until the last core has returned."""
        return max(self.finished_us.values(), default=0.0)

    @property
    def by_die_us(self) -> dict[int, float]:
        """Return, for each die that took part, the time until the last of its cores has returned."""
        last: dict[int, float] = {}
        for core, finished in self.finished_us.items():
            die = core // self.cores_per_die
            last[die] = max(finished, last.get(die, 0.0))
        return last


class VirtualTime:
    """The policy: who begins next goes next, and everything takes what the model says.

    fabric: where the dies are and what the paths between them cost. costs: of everything else.
    log: keep every timed action, for traces and the critical path; or some dies' actions, with the transfers from and
    to them, for a trace of these. sites: of those keep no more than requests with these names (`sync`), and no causes:
    far faster, but nothing can be drawn of it. data: with False payload stays zeros, and zeros are not written over
    zeros: far less memory, the same times, and results that mean nothing. start_us: when each core begins, by its
    global number (0 for those not named). over: buffers that are reached over another network than the first, by its
    name (`Fabric.networks`): what one network carries slows no other. timers_us: for names (`sync`) of `choose`,
    after how long it answers 1: counted on each core from the first time that it asks there, then from the last answer
    1, and again when it asks ``of`` something else. Any other `choose` gets 0, or is drawn (``Pod(draw_answers=)``).

    What is switched off on the pod takes no time, except that a poll still reads its word once, which takes a load.

    Raises ConfigError, when a run begins, for a pod that is not under `sc` (in time, a write is visible when it has
    arrived, and not when a schedule says so), for dies that the fabric does not have, for
    sites of a name that no kernel has, for a timer that no `choose` has, and one that is not above 0.
    """

    name = "virtual time"
    poisons = False

    def __init__(
        self,
        fabric: Fabric = CLOUDMATRIX384,
        costs: Costs | None = None,
        *,
        log: bool | Collection[int] = False,
        data: bool = True,
        start_us: Mapping[int, float] | None = None,
        over: "Mapping[str, Collection[Buffer]] | None" = None,
        sites: Collection[str] = (),
        timers_us: Mapping[str, float] | None = None,
    ) -> None:
        self.timers_us = dict(timers_us or {})
        self.over, self.sites = dict(over or {}), frozenset(sites)
        self.fabric, self.costs, self.log, self.data = fabric, costs or Costs(), log, data
        self.start_us = dict(start_us or {})
        self.granted = set[str]()
        """Names of the operations that cores were granted, in any of its runs."""
        self._timing: Timing | None = None

    @property
    def timing(self) -> Timing:
        """Timing of the last run; ConfigError if there was none."""
        if self._timing is None:
            raise ConfigError("timing: nothing was run yet")
        return self._timing

    def drive(self, pod: "Pod", progress: Progress | None) -> tuple[int, float, NDArray[np.int64]]:
        """Run what is launched; for the machine's driver: how it ended, wall seconds, and no schedule."""
        from xccl_emu.machine import driver

        self._timing = None
        driver.begin_run(pod)
        routes = self._routes(pod)
        times = Times(pod, self.fabric, self.costs, self.start_us, self.log, routes, self.sites, self.timers_us)
        started = time.perf_counter()
        memory, pod.state[ms.SPARSE] = (pod.memory, 0) if self.data else pod.sparse_memory()
        try:
            ended = _run(pod, memory, times, progress)
        finally:
            pod.state[ms.SPARSE] = 0
        self.granted |= {name for i, name in enumerate(OPERATIONS) if pod.state[ms.COUNT_BY_OP + i]}
        if ended == ms.ENDED_DONE:
            self._timing = self._result(pod, times, routes)
        return ended, time.perf_counter() - started, np.zeros(0, np.int64)

    def _routes(self, pod: "Pod") -> list[Route]:
        """Return each buffer that goes over another network; ConfigError for what cannot."""
        others = self.fabric.networks[1:]
        names = [network.name for network in others]
        routes = []
        for name, buffers in self.over.items():
            if name not in names:
                raise ConfigError("over", name, f"{self.fabric.name} also has {', '.join(names) or 'no others'}")
            number = names.index(name)
            for buffer in buffers:
                if buffer.die >= pod.spec.n_dies and len(others[number].paths) < len(PATHS):
                    raise ConfigError("over", name, f"{buffer} is of a CPU, which has no port there")
                routes.append((buffer.address, buffer.nbytes, number + 1))
        if len(routes) > tl.ROUTES_MAX:
            raise ConfigError(f"over: {len(routes)} buffers; at most {tl.ROUTES_MAX} can go over other networks")
        return routes

    def _result(self, pod: "Pod", times: Times, routes: Sequence[Route]) -> Timing:
        launches = {core: pod.launch_of(core) for core in pod.active_cores()}
        kernels = {core: launch.kernel for core, launch in launches.items() if launch is not None}
        logged = () if self.sites else range(pod.spec.n_homes) if self.log is True else self.log or ()
        finished, log = times.finished_us(), times.log()
        return Timing(finished, log, kernels, pod.spec, self.fabric, pod.labels, routes, frozenset(logged))

    def look(self, pod: "Pod") -> None:
        """ConfigError for a run that cannot be timed."""
        if pod.order != "sc":
            raise ConfigError("order", pod.order, "virtual time decides when writes are visible; it takes order='sc'")
        if pod.spec.scalar_cache:
            raise ConfigError("scalar_cache", pod.spec.scalar_cache, "must be 0; virtual time knows no caches")
        homes = [core // pod.spec.cores_per_die for core in pod.active_cores()]
        homes += [grant.die or 0 for core in pod.active_cores() for grant in pod.grants_of(core)]
        last = max((home for home in homes if home < pod.spec.n_dies), default=0)
        if self.fabric.nodes and self.fabric.node_of(last) >= self.fabric.nodes:
            dies = self.fabric.nodes * self.fabric.chips_per_node * self.fabric.dies_per_chip
            raise ConfigError(f"fabric: {self.fabric.name} has {dies} dies; die {last} takes part in this run")
        if self.fabric.cpus is None and max(homes, default=0) >= pod.spec.n_dies:
            raise ConfigError(f"fabric: {self.fabric.name} has no CPUs; this run has a core or memory of one")
        if pod.record:
            raise ConfigError("record", True, "a timed run is repeated by running it again; it has no schedule")


def _run(pod: "Pod", memory: NDArray[np.uint8], times: Times, progress: Progress | None) -> int:
    """Slice by slice; how it ended.  CapacityError if a table is full."""
    from xccl_emu.machine import driver
    from xccl_emu.timing.device.policy import virtual_time

    ended = ms.ENDED_PAUSED
    while ended == ms.ENDED_PAUSED:
        with driver.arithmetic_of(pod.kernels):
            ended = virtual_time(memory, pod.state, times.tm, times.who, times.records, _SLICE_ACTIONS)
        if progress is not None:
            progress(int(pod.state[ms.ACTIONS]))
    times.check_room(int(ended))
    return int(ended)
