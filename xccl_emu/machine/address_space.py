"""The bytes of a pod: one flat mapping, committed by the kernel page by page as it is touched; who owns which part of
them, and what reports call it.

After them come dirty bits, one for each chunk of `layout.CHUNK_BYTES`: without one nobody has ever written there, so
the chunk holds zeros.  Runs that leave out zeros look there first, and touch no memory to find out.
"""

import contextlib
import gc
import mmap
import weakref
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import CapacityError, ConfigError
from xccl_emu.machine.device.layout import ALL_DIRTY, CHUNK_SHIFT

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
        self.with_bits = map_bytes(start + (start >> CHUNK_SHIFT + 3) + mmap.PAGESIZE, what)
        self.bytes, self._bits = self.with_bits[:start], self.with_bits[start:]
        self.bits_at = start
        """Where the dirty bits begin; `layout.ALL_DIRTY` once somebody may have written anywhere."""

    def hand_out(self) -> NDArray[np.uint8]:
        """All bytes, to somebody who may write anywhere at any time."""
        self.bits_at = ALL_DIRTY
        return self.bytes

    def span(self, start: int, nbytes: int) -> NDArray[np.uint8]:
        """A range of bytes, to somebody who may write there at any time."""
        if nbytes > 0:
            first, last = start >> CHUNK_SHIFT, start + nbytes - 1 >> CHUNK_SHIFT
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
