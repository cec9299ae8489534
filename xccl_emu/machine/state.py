"""What a pod consists of: the bytes of its memory, who owns which of them, and what reports call them; the words of its
state; and which synchronizations are off.

Memory is one flat mapping, committed by the kernel page by page as it is touched.  After it come dirty bits, one for
each chunk of `layout.CHUNK_BYTES`: without one nobody has ever written there, so the chunk holds zeros.  Runs that
leave out zeros look there first, and touch no memory to find out.
"""

import contextlib
import functools
import gc
import mmap
import weakref
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import CapacityError, ConfigError
from xccl_emu.base.options import whole
from xccl_emu.lang import Kernel, Site
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REGISTERS
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.spec import PodSpec

ORDERS = ("sc", "fifo", "relaxed", "unordered")
_SMALL_CORES = 64
_MADV_POPULATE_WRITE = 23  # Linux 5.14; not in mmap
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # a name in mmap only since Python 3.13


_HUGE_FROM = 32 << 20


def map_bytes(nbytes: int, what: str, *, dense: bool = False) -> NDArray[np.uint8]:
    """A zeroed array of ``nbytes`` that takes memory only where it is touched.

    What is ``dense``, used from one end to the other, has huge pages if it is large: with small ones a run over many
    cores would wait for the translation of addresses more than for memory.

    Raises CapacityError if the operating system refuses so large a mapping.
    """
    nbytes = (nbytes + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE
    try:
        mapping = _mapping(nbytes)
    except (OSError, ValueError, OverflowError) as error:
        room = "a process has room for one pod of CloudMatrix384's size, drop others first; or take a smaller one"
        raise CapacityError(f"{what}: cannot map {nbytes} bytes of address space ({error}): {room}") from error
    if hasattr(mmap, "MADV_NOHUGEPAGE"):  # huge pages under sparse windows would commit everything
        huge = dense and nbytes >= _HUGE_FROM
        with contextlib.suppress(OSError):  # a kernel without huge pages
            mapping.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(mapping, dtype=np.uint8)


def _mapping(nbytes: int) -> mmap.mmap:
    """Map the bytes; if the system refuses, once more without the pods that nobody has any more: two may not fit."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    with contextlib.suppress(OSError):
        return mmap.mmap(-1, nbytes, flags=flags)
    gc.collect()
    return mmap.mmap(-1, nbytes, flags=flags)


class AddressSpace:
    """The bytes of a pod, and which of them may be something else than zero."""

    def __init__(self, nbytes: int, what: str) -> None:
        start = (nbytes + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE
        self.with_bits = map_bytes(start + (start >> ms.CHUNK_SHIFT + 3) + mmap.PAGESIZE, what)
        self.bytes, self._bits = self.with_bits[:start], self.with_bits[start:]
        self.bits_at = start
        """Where the dirty bits begin; `layout.ALL_DIRTY` once somebody may have written anywhere."""

    def hand_out(self) -> NDArray[np.uint8]:
        """All bytes, to somebody who may write anywhere at any time."""
        self.bits_at = ms.ALL_DIRTY
        return self.bytes

    def span(self, start: int, nbytes: int) -> NDArray[np.uint8]:
        """A range of bytes, to somebody who may write there at any time."""
        if nbytes > 0:
            first, last = start >> ms.CHUNK_SHIFT, start + nbytes - 1 >> ms.CHUNK_SHIFT
            self._bits[first >> 3] |= 0xFF << (first & 7) & 0xFF
            self._bits[(first >> 3) + 1 : (last >> 3) + 1] = 0xFF  # some chunks after it too
        return self.bytes[start : start + nbytes]


def commit(array: NDArray[np.uint8], start: int, nbytes: int) -> None:
    """Make the kernel commit a range of a mapping now: one call and huge pages are far cheaper than many faults.

    Only a hint: where the kernel cannot, pages are committed when they are touched.
    """
    mapping = getattr(array.base, "obj", None)  # NumPy holds the mapping through a memoryview
    first = start // mmap.PAGESIZE * mmap.PAGESIZE
    if not isinstance(mapping, mmap.mmap) or nbytes <= 0:
        return
    with contextlib.suppress(OSError, ValueError):
        if hasattr(mmap, "MADV_HUGEPAGE"):
            mapping.madvise(mmap.MADV_HUGEPAGE, first, start + nbytes - first)  # all of it will be used
        mapping.madvise(_MADV_POPULATE_WRITE, first, start + nbytes - first)


# ---- who owns which part of the areas


@dataclass(frozen=True)
class ClaimedRegion:
    """Bytes of the metadata and of the managed data area, the same on a range of dies; ends are exclusive."""

    dies: tuple[int, int]
    meta: tuple[int, int]
    managed: tuple[int, int]

    def overlaps(self, other: "ClaimedRegion") -> bool:
        """Do the two share a byte on some die?"""
        areas = ((self.meta, other.meta), (self.managed, other.managed))
        return _meet(self.dies, other.dies) and any(_meet(mine, theirs) for mine, theirs in areas)


def _meet(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return max(one[0], other[0]) < min(one[1], other[1])


class Claims:
    """The book of a pod.  Who comes later takes over, so that a communicator may simply be made again."""

    def __init__(self) -> None:
        self._held: list[tuple[weakref.ref[object], ClaimedRegion]] = []

    def take(self, owner: object, region: ClaimedRegion) -> None:
        """Claim a region; earlier claims of a part of it end."""
        self._held = [(who, held) for who, held in self._held if not held.overlaps(region)]
        self._held.append((weakref.ref(owner), region))

    def check(self, owner: object) -> None:
        """Raises ConfigError if a later owner has taken a part of this one's region."""
        if not any(who() is owner for who, _ in self._held):
            raise ConfigError(
                f"{type(owner).__name__}: a communicator made later has taken its part of the metadata or managed "
                "area; give each a managed_offset and a field_offset of its own"
            )


# ---- what reports call them


class Labels:
    """Named ranges of global addresses; of several that hold an address, the one that begins last names it."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int, str]] = []
        self._longest = 0

    def add(self, ranges: Iterable[tuple[str, int, int]]) -> None:
        """Add ranges, each as name, first address, bytes; one that is there already is not added again."""
        added = {(address, address + nbytes, name) for name, address, nbytes in ranges}
        self._ranges = sorted(added.union(self._ranges))
        self._longest = max((end - start for start, end, _ in self._ranges), default=0)

    def ranges(self) -> Iterator[tuple[int, int, str]]:
        """Iterate over all of them: first address, the address after the last, name."""
        return iter(self._ranges)

    def name(self, address: int) -> str:
        """The name of the byte at an address with its offset; empty if no range holds it."""
        for i in range(bisect_right(self._ranges, (address, 1 << 62, "")) - 1, -1, -1):
            start, end, name = self._ranges[i]
            if address < end:
                return name + (f"+{address - start:#x}" if address > start else "")
            if start + self._longest <= address:
                break
        return ""


# ---- the words of its state


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
            ms.LAUNCHED: spec.n_cores * spec.registers,
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

    @property
    def launched(self) -> NDArray[np.int64]:
        """[n_cores, registers] as the last launch of each core wrote them."""
        return self.words[self.start[ms.LAUNCHED] : self.n_words].reshape(-1, self.core_words - REGISTERS)

    @property
    def core_blocks(self) -> NDArray[np.int64]:
        """[n_cores, words] of all cores."""
        first, end = self.start[ms.CORE_BASE], self.start[ms.DIE_BASE]
        return self.words[first:end].reshape(-1, self.core_words)

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
        st[ms.LOST_START : ms.LOST_END + 1] = st[ms.REVIVED] = 0
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
        self.core_blocks[np.array([*cores], np.int64)] = 0
        st[ms.ERROR : ms.ERROR_B + 1] = 0
        st[ms.N_ACTIVE] = st[ms.N_ACTIVE_DIES] = st[ms.N_LIVE] = 0


# ---- what is not as kernels have it


FENCE = "fence"
_ASKED = (0, 1, 0, 2)
"""What `REQUEST_ORDERS` says of requests that ask for nothing, no order, a relaxed and a strong one."""


class SiteWords(NamedTuple):
    """What the machine is to know of a kernel's sites."""

    words: NDArray[np.int64]
    """A word for each."""
    asked: int
    """The most that one of them asks for, as `REQUEST_ORDERS` says it."""
    signals: bool
    is_loose: bool
    """Does one read flags, and not acquire?"""


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
        known = (FENCE, rq.NO_ACQUIRE) if operation == "quiet" else ops.orders_of(operation)
        if len(known) == 1 or not isinstance(to, str) or to not in known:
            raise ConfigError("to", to, f"{operation} can be one of {', '.join(known) or 'nothing else'}")
        self.weaker[kernel, site] = to

    def words(self, number: int, kernel: Kernel) -> SiteWords:
        """Return what the machine is to know of the sites of a kernel."""
        weaker = frozenset((site, to) for (of, site), to in self.weaker.items() if of == number)
        return _site_words(kernel, self.without, weaker)


def _names(kernel: Kernel) -> set[str]:
    return {site.sync for site in kernel.sites if site.sync}


@functools.lru_cache(maxsize=256)
def _site_words(kernel: Kernel, without: frozenset[str], weaker: frozenset[tuple[int, str]]) -> SiteWords:
    """Kept, as many runs are alike."""
    changed = dict(weaker)
    words = [_site_word(site, changed.get(number, site.order), without) for number, site in enumerate(kernel.sites)]
    most = max((_ASKED[word >> ms.SITE_ORDER & 3] for word in words), default=0)
    loose = [site for word, site in zip(words, kernel.sites, strict=True) if word & ms.SITE_NO_ACQUIRE]
    on = [site.operation for word, site in zip(words, kernel.sites, strict=True) if not word & ms.SITE_OFF]
    is_loose = any(site.operation != "quiet" for site in loose)
    return SiteWords(np.array(words, np.int64), most, "put_signal" in on, is_loose)


def _site_word(site: Site, order: str, without: frozenset[str]) -> int:
    off = int(bool(site.sync) and site.sync in without)
    words = {FENCE: ms.SITE_FENCE, rq.NO_ACQUIRE: ms.SITE_NO_ACQUIRE}
    return off | (words[order] if order in words else rq.ORDERS.index(order) << ms.SITE_ORDER)
