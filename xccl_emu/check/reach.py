"""What a verdict did not reach: where no run had to wait, what no run came to, and memory that was hardly used."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base import words as w
from xccl_emu.lang import NOTHING, VECTOR_BARRIER, Site
from xccl_emu.machine.device.layout import CAME, MAX_SITES, MAY_WAIT
from xccl_emu.machine.pod import Pod

WAITS = ("poll_", "await_group", "wait_flag")
"""How operations begin at which a core waits for others or for its pipes.  A quiet waits for what it has written."""


@dataclass(frozen=True)
class SyncPlace(w.Printed):
    """A site of a kernel that is a synchronization, and what runs show of it."""

    FIRST = ("sync", "operation", "file", "line", "callers")
    kernel: w.Kernel
    site: Annotated[Site, w.INLINE]
    dies: Annotated[tuple[int, ...], "dies on which the kernel runs"]
    reached: bool
    """Does some run come to it?"""
    may_wait: bool
    """May a core find it not granted when it comes to it?  True, too, of what nobody waits at."""

    def words(self) -> str:
        """Name, operation, line and kernel, for example ``slot free (poll_ge ring.py:31, kernel send)``."""
        at = f"{self.site.file.rpartition('/')[2]}:{self.site.line}"
        called = "".join(f" < {line}" for _, line in self.site.callers[::-1])
        return f"{self.site.sync or 'no name'} ({self.site.operation} {at}{called}, kernel {self.kernel})"


@dataclass(frozen=True)
class MemoryUse:
    """What memory some drawn runs used, by the names of labels; other runs may do more."""

    used_once: tuple[str, ...] = ()
    """What several requests wrote to, and no word of it two: no slot was used twice.  No metadata, and no results."""
    far_from_wrap: tuple[str, ...] = ()
    """What has counters of 4 bytes that came near neither 2^31 nor 2^32."""


@dataclass(frozen=True)
class Reach(w.Printed):
    """Synchronizations of a configuration: of all its runs, if a search has gone through them, else of drawn ones."""

    places: tuple[SyncPlace, ...]
    """Places with a name, and places at which a core may wait; without what is switched off."""
    look: Callable[[], MemoryUse] = field(default=MemoryUse, compare=False, repr=False)
    """Draws runs, and says what memory they used (`check.drawn`)."""

    @cached_property
    def _memory(self) -> MemoryUse:
        return self.look()

    @property
    def never_waited(self) -> Annotated[tuple[SyncPlace, ...], "granted at once in every run"]:
        """Places that runs reach, and that were granted at once whenever they did."""
        return tuple(place for place in self.places if place.reached and not place.may_wait)

    @property
    def never_reached(self) -> Annotated[tuple[SyncPlace, ...], "no run comes to it"]:
        """Places that no run reaches."""
        return tuple(place for place in self.places if not place.reached)

    @property
    def used_once(self) -> Annotated[
        tuple[str, ...], "in runs drawn of a proof: labels of slots that were never used twice"
    ]:  # fmt: skip
        """`MemoryUse.used_once` of a proof; the runs are drawn when one of these two is first asked for."""
        return self._memory.used_once

    @property
    def far_from_wrap(self) -> Annotated[
        tuple[str, ...], "in these runs: labels of 4-byte counters near neither 2^31 nor 2^32"
    ]:  # fmt: skip
        """`MemoryUse.far_from_wrap` of a proof."""
        return self._memory.far_from_wrap

    def idle(self, sync: str) -> bool:
        """Did nobody have to wait at a synchronization, at any place at which one waits?"""
        places = [p for p in self.places if p.site.sync == sync and p.reached and p.site.operation.startswith(WAITS)]
        return bool(places) and not any(place.may_wait for place in places)

    def reached(self) -> frozenset[str]:
        """The names that some run comes to, at one place at least."""
        return frozenset(place.site.sync for place in self.places if place.reached)

    def unreached(self) -> tuple[str, ...]:
        """The other names, of kernels that run."""
        return tuple(dict.fromkeys(p.site.sync for p in self.never_reached if p.site.sync not in self.reached()))


def _is_asked(pod: Pod, site: Site) -> bool:
    """Does a run that comes to the site make a request there?  Cleaning a cache is none where there is no cache."""
    return site.operation not in (NOTHING, VECTOR_BARRIER) and (site.operation != "dcci" or pod.spec.scalar_cache > 0)


def without_requests(pod: Pod) -> dict[str, bool]:
    """Names at whose sites no run on this pod makes a request: may it matter all the same that one is switched off?"""
    sites = [site for kernel in pod.kernels for site in kernel.sites if site.sync]
    asked = {site.sync for site in sites if _is_asked(pod, site)}
    matters = {site.sync for site in sites if site.operation == VECTOR_BARRIER}
    return {site.sync: site.sync in matters for site in sites if site.sync not in asked}


def reach_of(pod: Pod, words: NDArray[np.int64]) -> Reach:
    """Return what the words of its sites say, [kernels * `layout.MAX_SITES`] int64."""
    return Reach(tuple(_places(pod, words)))


def _places(pod: Pod, words: NDArray[np.int64]) -> Iterator[SyncPlace]:
    launches = [launch for core in pod.active_cores() if (launch := pod.launch_of(core)) is not None]
    without = pod.without
    for number, kernel in enumerate(pod.kernels):
        dies = tuple(sorted({launch.die for launch in launches if launch.kernel is kernel}))
        for n, site in enumerate(kernel.sites):
            waits = site.operation.startswith(WAITS)
            if (waits or site.sync) and site.sync not in without and _is_asked(pod, site):
                word = int(words[number * MAX_SITES + n])
                yield SyncPlace(kernel.name, site, dies, word & CAME != 0, not waits or word & MAY_WAIT != 0)
