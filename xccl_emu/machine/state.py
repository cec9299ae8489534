"""The state array of a pod: its regions, its header, who is listed as active, and which synchronizations are off."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.lang import Kernel, Site
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REGISTERS
from xccl_emu.machine.address_space import map_bytes
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.spec import PodSpec, whole

ORDERS = ("sc", "fifo", "relaxed", "unordered")
_SMALL_CORES = 64


class StateArray:
    """One int64 array that holds everything but the bytes of memory (`layout`), and where its regions begin."""

    def __init__(self, spec: PodSpec, order: str, seed: int) -> None:
        self.core_words = REGISTERS + spec.registers
        self.flight_capacity = 0 if order == "sc" else spec.flight_granules
        self.flight_words = ms.FLIGHT_DATA + max(spec.atomic_bytes, ms.GRANULE_BYTES) // 8
        self.die_words = ms.FLIGHT_ENTRIES + self.flight_capacity * self.flight_words
        self.writer_slots = 1 << 12 if spec.n_cores <= _SMALL_CORES else 1 << 18
        self.large_slots = self.writer_slots >> 2
        self.cache_words = spec.scalar_cache * ms.CACHED_WORDS
        self.traffic_words = ms.TRAFFIC_MASKS + 2 * -(-spec.n_homes // ms.TRAFFIC_MASK_BITS)
        self.start = self._place(spec)
        self.words = map_bytes(8 * self.n_words, spec.name, dense=True).view(np.int64)
        self._write_header(spec, order, seed)

    def _place(self, spec: PodSpec) -> dict[int, int]:
        """Start of each region, by the header word that holds it."""
        sizes = {
            ms.CORE_BASE: spec.n_cores * self.core_words,
            ms.DIE_BASE: spec.n_homes * self.die_words,
            ms.GROUP_BASE: spec.n_cores * ms.GROUP_WORDS,
            ms.CACHE_BASE: spec.n_cores * self.cache_words,
            ms.SWITCH_BASE: ms.MAX_KERNELS * ms.MAX_SITES,
            ms.WRITER_BASE: self.writer_slots * ms.WRITER_WORDS,
            ms.LARGE_BASE: self.large_slots,
            ms.TRAFFIC_BASE: spec.n_homes * self.traffic_words,
            ms.ACTIVE_BASE: spec.n_cores + spec.n_homes,
        }
        starts, end = {}, ms.HEADER_WORDS
        for region, size in sizes.items():
            starts[region] = end
            end += size
        self.n_words = end
        return starts

    def _write_header(self, spec: PodSpec, order: str, seed: int) -> None:
        st = self.words
        for region, start in self.start.items():
            st[region] = start
        st[ms.N_CORES], st[ms.N_DIES], st[ms.N_HOMES] = spec.n_cores, spec.n_dies, spec.n_homes
        st[ms.DIE_SHIFT] = spec.die_bytes.bit_length() - 1
        st[ms.ATOMIC_SHIFT] = spec.atomic_bytes.bit_length() - 1
        st[ms.FLIGHT_WORDS] = self.flight_words
        st[ms.SIGNALS_START], st[ms.SIGNALS_END] = spec.meta_start, spec.managed_start
        st[ms.CACHE_LINES], st[ms.CACHE_WORDS] = spec.scalar_cache, self.cache_words
        st[ms.UB_BYTES], st[ms.ORDER] = spec.ub_bytes, ORDERS.index(order)
        st[ms.CORE_WORDS], st[ms.DIE_WORDS] = self.core_words, self.die_words
        st[ms.FLIGHT_CAPACITY] = self.flight_capacity
        st[ms.WRITER_SLOTS], st[ms.LARGE_SLOTS] = self.writer_slots, self.large_slots
        st[ms.TRAFFIC_WORDS] = self.traffic_words
        st[ms.RANDOM_1] = seed % 2147483562 + 1  # both in the range of their generator
        st[ms.RANDOM_2] = seed // 2147483562 % 2147483398 + 1

    def core(self, core: int) -> int:
        """Index of a core's first word."""
        return self.start[ms.CORE_BASE] + core * self.core_words

    def core_block(self, core: int) -> NDArray[np.int64]:
        """All words of a core."""
        return self.words[self.core(core) : self.core(core + 1)]

    def die_block(self, die: int) -> NDArray[np.int64]:
        """All words of a die: its writes in flight."""
        first = self.start[ms.DIE_BASE] + die * self.die_words
        return self.words[first : first + self.die_words]

    def group_block(self, group: int) -> NDArray[np.int64]:
        """All words of a core group."""
        first = self.start[ms.GROUP_BASE] + group * ms.GROUP_WORDS
        return self.words[first : first + ms.GROUP_WORDS]

    def traffic(self) -> NDArray[np.int64]:
        """[n_homes, words] counters of traffic."""
        first, homes = self.start[ms.TRAFFIC_BASE], int(self.words[ms.N_HOMES])
        return self.words[first : first + homes * self.traffic_words].reshape(homes, -1)

    def switches(self, kernel: int) -> NDArray[np.int64]:
        """One word for each site of a kernel: is its synchronization switched off?"""
        first = self.start[ms.SWITCH_BASE] + kernel * ms.MAX_SITES
        return self.words[first : first + ms.MAX_SITES]

    def activate(self, cores: Iterable[int], dies: Iterable[int]) -> None:
        """List the cores and dies that take part in a run, and start its counters afresh."""
        st, first = self.words, self.start[ms.ACTIVE_BASE]
        listed = [*cores]
        st[first : first + len(listed)] = listed
        st[ms.N_ACTIVE] = st[ms.N_LIVE] = len(listed)
        for n, die in enumerate(dies):
            st[first + len(listed) + n] = die
            st[ms.N_ACTIVE_DIES] = n + 1
        st[ms.CURSOR] = st[ms.LOG_COUNT] = st[ms.ACTIONS] = 0
        st[ms.COUNT_BY_OP : ms.DRAWS_ANSWERS] = 0
        st[ms.FAULT_CUT : ms.FAULT_HAPPENED + 1] = 0
        st[ms.LOST_START : ms.LOST_END + 1] = 0
        writers = self.start[ms.WRITER_BASE]
        st[writers : writers + self.writer_slots * ms.WRITER_WORDS] = 0  # of other kernels, in an earlier run
        large = self.start[ms.LARGE_BASE]
        st[large : large + self.large_slots] = 0
        self.traffic()[:] = 0

    def deactivate(self, cores: Iterable[int]) -> None:
        """Free the cores and forget the error of the run."""
        st = self.words
        cached = self.start[ms.CACHE_BASE]
        st[cached : self.start[ms.SWITCH_BASE]] = 0
        for core in cores:
            self.core_block(core)[:] = 0
        st[ms.ERROR : ms.ERROR_B + 1] = 0
        st[ms.N_ACTIVE] = st[ms.N_ACTIVE_DIES] = st[ms.N_LIVE] = 0


# ---- what is not as kernels have it


WRITES = ops.names(ops.SCALAR_WRITES | (ops.WRITES & ops.TRANSFERS))
"""Requests that may ask for an order."""
FENCE = "fence"
_ASKED = (0, 1, 0, 2)
"""What `REQUEST_ORDERS` says of requests that ask for nothing, no order, a relaxed and a strong one."""


class Switches:
    """What of a pod's kernels is not as it is written; see `Pod.without` and `Pod.weaken`."""

    def __init__(self) -> None:
        self.without: frozenset[str] = frozenset()
        self.weaker: dict[tuple[int, int], str] = {}
        """By kernel and site, as numbers: the order that it asks for, or that a quiet is a fence."""
        self._known: set[str] = set()
        """Names in kernels that were ever launched, or that a session says it will launch."""

    def name(self, names: Iterable[str]) -> None:
        """Switch off these synchronizations and no others; ConfigError for what is no list of names."""
        listed: list[Any]
        try:
            listed = [] if isinstance(names, str) else list(names)
        except TypeError:
            listed = [names]
        if isinstance(names, str) or not all(isinstance(name, str) for name in listed):
            raise ConfigError("without", names, "must be a list of names")
        self.without = frozenset(listed)

    def know(self, kernel: Kernel) -> None:
        """From now on the names in this kernel are known."""
        self._known |= _names(kernel)

    def check(self, kernels: Sequence[Kernel], launched: bool) -> None:
        """ConfigError for a name that neither these kernels nor those launched have, where there are any."""
        known = self._known.union(*map(_names, kernels))
        unknown = sorted(self.without - known)
        if unknown and (launched or kernels):
            raise ConfigError("without", unknown, f"no kernel launched so far has it; they have {sorted(known)}")

    def weaken(self, kernels: Sequence[Kernel], kernel: int, site: int, to: str) -> None:
        """Weaken a site, as `Pod.weaken` does."""
        kernel, site = whole("kernel", kernel), whole("site", site)
        if not 0 <= kernel < len(kernels) or not 0 <= site < len(kernels[kernel].sites):
            raise ConfigError(f"kernel={kernel}, site={site}: no kernel launched so far has it")
        operation = kernels[kernel].sites[site].operation
        known = (FENCE,) if operation == "quiet" else rq.ORDERS if operation in WRITES else ()
        if not isinstance(to, str) or to not in known:
            raise ConfigError("to", to, f"{operation} can be one of {', '.join(known) or 'nothing else'}")
        self.weaker[kernel, site] = to

    def words(self, number: int, kernel: Kernel) -> tuple[NDArray[np.int64], int, bool]:
        """Return the machine's word for each site, the most that one of them asks for, and whether one signals."""
        weaker = frozenset((site, to) for (of, site), to in self.weaker.items() if of == number)
        return _site_words(kernel, self.without, weaker)


def _names(kernel: Kernel) -> set[str]:
    return {site.sync for site in kernel.sites if site.sync}


@functools.lru_cache(maxsize=256)
def _site_words(
    kernel: Kernel, without: frozenset[str], weaker: frozenset[tuple[int, str]]
) -> tuple[NDArray[np.int64], int, bool]:
    """Kept, as many runs are alike."""
    changed = dict(weaker)
    words = [_site_word(site, changed.get(number, site.order), without) for number, site in enumerate(kernel.sites)]
    most = max((_ASKED[word >> ms.SITE_ORDER & 3] for word in words), default=0)
    on = [site.operation for word, site in zip(words, kernel.sites, strict=True) if not word & ms.SITE_OFF]
    return np.array(words, np.int64), most, "put_signal" in on


def _site_word(site: Site, order: str, without: frozenset[str]) -> int:
    off = int(bool(site.sync) and site.sync in without)
    return off | (ms.SITE_FENCE if order == FENCE else rq.ORDERS.index(order) << ms.SITE_ORDER)
