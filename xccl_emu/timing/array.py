"""The array of times of a run, made from a pod, a fabric and costs; see `device/layout.py` for what is where."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import CapacityError, ConfigError
from xccl_emu.lang import operations as ops
from xccl_emu.lang.requests import OPERATIONS
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.state import map_bytes
from xccl_emu.timing.costs import PASSES, Costs
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.fabric import SAME_DIE, SAME_NODE, WITHIN, Fabric

if TYPE_CHECKING:
    from xccl_emu.machine.pod import Pod

PS_PER_US, PS_PER_NS, FS_PER_NS = 1_000_000, 1_000, 1_000_000
LIMIT_NS = 50
"""How far a core may get ahead of the others before it takes a queue that they share."""

Route = tuple[int, int, int]
"""Address, bytes, and the number of the network over which they are reached."""

_LOG_RECORDS = 1 << 25
_SMALL_CORES, _FEW_GRANULES, _MANY_GRANULES = 64, 17, 22
_GRANULES_A_CORE = 12
"""Room for words that are polled, in powers of two: a table of 2^22 takes as long to clear as a short run."""
_LINE_WORDS = 8
_NOTHING = np.zeros(0, np.int64)
_NO_TIMERS: Mapping[str, float] = {}


class Times:
    """The arrays that the policy works on: `tm`, `who` and the log of `records`.

    The last two are empty without a log, `who` where that is of chosen ``sites``, too.
    """

    def __init__(
        self,
        pod: "Pod",
        fabric: Fabric,
        costs: Costs,
        start_us: Mapping[int, float],
        log: bool | Collection[int],
        routes: Sequence[Route] = (),
        sites: Collection[str] = (),
        timers_us: Mapping[str, float] = _NO_TIMERS,
    ) -> None:
        self._pod = pod
        self._networks = fabric.networks
        self._nodes = 1 + int(fabric.nodes_of(np.arange(pod.spec.n_homes), pod.spec.n_dies).max())
        kept = log is True or (log is not False and len(log) > 0)
        words = self._place(pod)
        self.tm = map_bytes(8 * words, "array of times", dense=True).view(np.int64)
        caused = kept and not sites
        self.who = map_bytes(8 * words, "array of causes", dense=True).view(np.int64) if caused else _NOTHING
        log_bytes = 8 * _LOG_RECORDS * tl.RECORD_WORDS
        self.records = map_bytes(log_bytes, "log", dense=True).view(np.int64) if kept else _NOTHING
        self._write_header(pod, fabric, costs)
        self._write_fabric(fabric, routes)
        self._begin(pod, start_us)
        self._choose(pod, log)
        self._mark_sites(pod, sites)
        self._set_timers(pod, timers_us)

    def _place(self, pod: "Pod") -> int:
        spec = pod.spec
        self._granules = _n_granules(len(pod.active_cores()), spec.n_cores)
        self._versions = self._granules // 2
        self._heap_slots = 4 * len(pod.active_cores())
        sizes = {
            tl.HEAP_BASE: _LINE_WORDS + 2 * (self._heap_slots + len(pod.active_cores()) + 1),
            tl.CORE_BASE: spec.n_cores * tl.CORE_WORDS,
            tl.DIE_BASE: spec.n_homes * tl.DIE_WORDS,
            tl.GROUP_BASE: spec.n_cores * tl.GROUP_WORDS,
            tl.SITE_BASE: ms.MAX_KERNELS * ms.MAX_SITES,
            tl.GRANULE_BASE: self._granules * tl.GRANULE_WORDS,
            tl.VERSION_BASE: self._versions * tl.GRANULE_WORDS,
        }
        for number in range(len(self._networks)):
            network = tl.NETWORKS + number * tl.NETWORK_WORDS
            sizes[network + tl.PORTS] = spec.n_homes * tl.PORT_WORDS
            sizes[network + tl.SWITCHES] = self._nodes * tl.SWITCH_WORDS
        self._starts, end = {}, tl.HEADER_WORDS
        for region, size in sizes.items():
            self._starts[region] = end
            end += -(-size // _LINE_WORDS) * _LINE_WORDS
        return end

    def _write_header(self, pod: "Pod", fabric: Fabric, costs: Costs) -> None:
        tm = self.tm
        for region, start in self._starts.items():
            tm[region] = start
        tm[tl.HEAP_BASE] += _LINE_WORDS - 2  # the first entry ends a line; each four that follow are one
        tm[tl.GRANULE_SLOTS], tm[tl.HEAP_SLOTS] = self._granules, self._heap_slots
        tm[tl.VERSIONS] = tm[tl.VERSIONS_LEFT] = self._versions
        tm[tl.GRANULES_A_DIE] = pod.spec.die_bytes >> 5
        tm[tl.RECORD_CAPACITY] = len(self.records) // tl.RECORD_WORDS if len(self.records) else 1 << 62
        tm[tl.LIMIT], tm[tl.SOME_OFF] = LIMIT_NS * PS_PER_NS, bool(pod.without)
        times = {
            tl.C_ISSUE: costs.issue_cycles * costs.clock_ns, tl.C_LOAD: costs.load_ns, tl.C_POLL: costs.poll_ns,
            tl.C_QUIET: costs.quiet_ns, tl.C_FENCE: costs.fence_ns, tl.C_EVENT: costs.event_ns,
            tl.C_BARRIER: 1000 * costs.barrier_us(fabric.paths[SAME_DIE].write.latency_us),
            tl.C_MTU_START: costs.mtu_start_ns, tl.C_VECTOR_START: costs.vector_start_ns,
            tl.C_DMA_START: costs.dma_start_us * 1000, tl.C_DMA_ISSUE: costs.dma_issue_ns,
            tl.C_DMA_LESS: costs.dma_less_us * 1000,
        }  # fmt: skip
        for where, nanoseconds in times.items():
            tm[where] = round(nanoseconds * PS_PER_NS)
        tm[tl.C_DMA_ENGINES], tm[tl.C_DMA_IN_FLIGHT] = round(costs.dma_engines), round(costs.dma_in_flight)
        tm[tl.C_ACK], tm[tl.ORDERED] = round(1000 * costs.ack_share), fabric.ordered
        rates = {tl.C_CORE: costs.core_gb_s, tl.C_VECTOR: costs.vector_gelem_s, tl.C_DMA: costs.dma_gb_s}
        for where, rate in rates.items():
            tm[where] = _femtoseconds(rate)
        for number, name in enumerate(OPERATIONS):
            tm[tl.PASSES + number] = round(16 * PASSES.get(name, 0))

    def _write_fabric(self, fabric: Fabric, routes: Sequence[Route]) -> None:
        """Write where the dies are, the networks between them, and what is reached over another one than the first."""
        tm, spec = self.tm, self._pod.spec
        tm[tl.C_MEMORY] = _femtoseconds(fabric.paths[SAME_DIE].read.gb_s)
        if fabric.cpus is not None:
            tm[tl.C_DRAM], tm[tl.C_CPU] = _femtoseconds(fabric.cpus.dram_gb_s), _femtoseconds(fabric.cpus.gb_s)
        first = self._starts[tl.DIE_BASE]
        blocks = tm[first : first + spec.n_homes * tl.DIE_WORDS].reshape(spec.n_homes, tl.DIE_WORDS)
        dies, homes = spec.n_dies, np.arange(spec.n_homes)
        blocks[:, tl.NODE], blocks[dies:, tl.IS_CPU] = fabric.nodes_of(homes, dies), 1
        blocks[:, tl.CHIP] = np.where(homes < dies, homes // fabric.dies_per_chip, homes)
        for number, network in enumerate(self._networks):
            self._write_network(number, network)
        for number, (address, nbytes, over) in enumerate(routes):
            route = tl.ROUTES + number * tl.ROUTE_WORDS
            tm[route : route + tl.ROUTE_WORDS] = address, address + nbytes, over
        tm[tl.N_ROUTES] = len(routes)

    def _write_network(self, number: int, network: Fabric) -> None:
        tm, first = self.tm, tl.NETWORKS + number * tl.NETWORK_WORDS
        tm[first + tl.PLANES], tm[first + tl.STRIPE_SHIFT] = network.planes, network.stripe_bytes.bit_length() - 1
        tm[first + tl.BY_ADDRESS], tm[first + tl.UPLINKS] = network.by_address, network.uplinks
        if network.uplink_gb_s:
            tm[first + tl.UPLINK_RATE] = _femtoseconds(network.uplink_gb_s)
            all_links = network.uplink_gb_s * network.uplinks * network.planes
            tm[first + tl.UPLINK_SHARE] = round(1000 * FS_PER_NS / all_links)
        for kind, path in enumerate(network.paths):
            words = tl.PATHS + (number * tl.CLASSES + kind) * tl.PATH_WORDS
            tm[words + tl.READ_LATENCY] = round(path.read.latency_us * PS_PER_US)
            tm[words + tl.WRITE_LATENCY] = round(path.write.latency_us * PS_PER_US)
            tm[words + tl.READ_RATE], tm[words + tl.WRITE_RATE] = map(_femtoseconds, (path.read.gb_s, path.write.gb_s))
            tm[words + tl.WITHIN] = WITHIN.index(network.within) if kind == SAME_NODE else tl.AT_PORTS

    def _begin(self, pod: "Pod", start_us: Mapping[int, float]) -> None:
        """Every core into the heap, sorted, which a heap is."""
        unknown = sorted(set(start_us) - set(pod.active_cores()))
        if unknown:
            raise ConfigError(f"start_us: core {unknown[0]} does not take part in this run")
        cores = np.array(pod.active_cores(), np.int64)
        starts = np.rint([start_us.get(core, 0.0) * PS_PER_US for core in cores.tolist()]).astype(np.int64)
        order = np.argsort(starts, kind="stable")
        first, listed = self.tm[tl.HEAP_BASE], np.column_stack([starts[order], cores[order]])
        self.tm[first : first + listed.size] = listed.ravel()
        rows = self.row(cores)
        self.tm[rows + tl.SCALAR_AT], self.tm[rows + tl.HEAP_AT] = starts, starts + 1
        self.tm[rows + tl.CORE_DIE] = cores // pod.spec.cores_per_die
        self.tm[tl.HEAP_COUNT] = len(cores)

    def _choose(self, pod: "Pod", log: bool | Collection[int]) -> None:
        """Say of each die whether its actions are written down."""
        dies = range(pod.spec.n_homes) if isinstance(log, bool) else sorted(log)
        unknown = [die for die in dies if not 0 <= die < pod.spec.n_homes]
        if unknown:
            raise ConfigError(f"log: die {unknown[0]}: the pod has dies 0 to {pod.spec.n_dies - 1}")
        for die in dies:
            self.tm[self._starts[tl.DIE_BASE] + die * tl.DIE_WORDS + tl.LOGGED] = log is not False

    def _mark_sites(self, pod: "Pod", chosen: Collection[str]) -> None:
        """Say of each site whether other cores have to do with it, and whether it was chosen, by its name."""
        unknown = sorted(set(chosen) - {site.sync for kernel in pod.kernels for site in kernel.sites})
        if unknown:
            raise ConfigError("sites", unknown[0], "no kernel of the run has a synchronization of that name")
        first = {kernel: self._starts[tl.SITE_BASE] + n * ms.MAX_SITES for n, kernel in enumerate(pod.kernels)}
        for kernel, begin in first.items():
            for n, site in enumerate(kernel.sites):  # a flag says something to other cores, or looks for it
                named = bool(site.sync) and site.operation in ops.names(ops.LOADS | ops.STORES)
                flag = named or site.operation == "atomic_add"
                self.tm[begin + n] = tl.RELEASES * flag + tl.CHOSEN * (site.sync in chosen)
        begins = {core: first[launch.kernel] for core in pod.active_cores() if (launch := pod.launch_of(core))}
        self.tm[self.row(np.array([*begins], np.int64)) + tl.CORE_SITES] = [*begins.values()]

    def _set_timers(self, pod: "Pod", timers_us: Mapping[str, float]) -> None:
        """Say of each `choose` whose name is a timer's which one it asks, and how long that runs."""
        asking = {site.sync for kernel in pod.kernels for site in kernel.sites if site.operation == "choose"}
        for name, after_us in timers_us.items():
            if name not in asking:
                raise ConfigError("timers_us", name, "no kernel of the run has a choose of that name")
            if not after_us > 0 or not math.isfinite(after_us):
                raise ConfigError("timers_us", name, f"{after_us} must be a time above 0, in microseconds")
        for n, kernel in enumerate(pod.kernels):
            sites = [k for k, site in enumerate(kernel.sites) if site.operation == "choose" and site.sync in timers_us]
            if len(sites) > tl.TIMERS_MOST:
                raise ConfigError(f"timers_us: kernel {kernel.name} asks {len(sites)}; a kernel has {tl.TIMERS_MOST}")
            for number, k in enumerate(sites):
                after = round(timers_us[kernel.sites[k].sync] * PS_PER_US)
                word = number << tl.TIMER_NUMBER | after << tl.TIMER_SHIFT
                self.tm[self._starts[tl.SITE_BASE] + n * ms.MAX_SITES + k] |= word

    def row(self, cores: NDArray[np.int64]) -> NDArray[np.int64]:
        """Indexes of cores' first words."""
        return self._starts[tl.CORE_BASE] + cores * tl.CORE_WORDS

    def check_room(self, ended: int) -> None:
        """CapacityError for a run that ended because the log, or the table of polled words, is full."""
        if ended == ms.ENDED_LOG_FULL:
            raise CapacityError(f"timing: more than {_LOG_RECORDS:,} actions in the log: log fewer dies")
        if ended == tl.ENDED_GRANULES_FULL:
            most = f"{self._granules // 2} words are polled or written by themselves, or {self._versions} such writes"
            raise CapacityError(f"timing: more than {most} are on their way")

    def finished_us(self) -> dict[int, float]:
        """Return when each core returned."""
        cores = self._pod.active_cores()
        times = self.tm[self.row(np.array(cores, np.int64)) + tl.FINISHED] / PS_PER_US
        return dict(zip(cores, times.tolist(), strict=True))

    def log(self) -> NDArray[np.int64]:
        """[actions, RECORD_WORDS]."""
        n = int(self.tm[tl.N_RECORDS])
        return self.records[: n * tl.RECORD_WORDS].reshape(n, tl.RECORD_WORDS)


def _n_granules(active: int, cores: int) -> int:
    """Places of the table of granules: by the cores that run, on a small pod always the fewest."""
    if cores <= _SMALL_CORES:
        return 1 << _FEW_GRANULES
    wanted = _GRANULES_A_CORE + (active - 1).bit_length()
    return 1 << min(max(wanted, _FEW_GRANULES), _MANY_GRANULES)


def _femtoseconds(per_nanosecond: float) -> int:
    """Convert a rate of bytes or elements per nanosecond (10^9 a second) into the femtoseconds of one."""
    return round(FS_PER_NS / per_nanosecond)
