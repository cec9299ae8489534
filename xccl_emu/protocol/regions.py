"""What lies where on the dies of a pod, said once: addresses, labels, leave to touch it, and a pod that it just fits.

    regions = Regions(dies)
    inbox = regions.managed("inbox", slot_bytes, count=slots)
    tail = regions.meta("tail")
    pod = bench.pod(regions.tight_pod(app_bytes=..., ub_bytes=...))
    regions.place(bench, pod)
    ... inbox.at(die, slot), tail.grant(right, "w")
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from xccl_emu.errors import ConfigError
from xccl_emu.kernels.group import align
from xccl_emu.machine.device.layout import GRANULE_BYTES
from xccl_emu.machine.launch import Grant
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import PodSpec, small_pod
from xccl_emu.protocol.bench import Bench, Corner


@dataclass(eq=False)
class Region:
    """The same range on every die: ``count`` elements of ``nbytes`` bytes, each on granules of its own."""

    name: str
    area: str
    """``"meta"`` or ``"managed"``."""
    nbytes: int
    count: int
    offset: int
    """From the beginning of the area."""
    _pod: Pod | None = field(default=None, repr=False)
    _corner: Corner = field(default_factory=Corner, repr=False)

    @property
    def step(self) -> int:
        """Bytes from one element to the next."""
        return align(self.nbytes)

    @property
    def end(self) -> int:
        """Behind the last element."""
        return self.offset + self.count * self.step

    def at(self, die: int, i: int = 0) -> int:
        """Global address of an element; ConfigError for one that is not there."""
        if not 0 <= i < self.count:
            raise ConfigError(f"{self.name}[{i}]: there are elements 0 to {self.count - 1}")
        return self._start(die) + i * self.step

    def grant(self, die: int, rights: str, i: int | None = None) -> Grant:
        """Leave for a core to touch an element, or all of the region, of a die: ``"r"``, ``"w"`` or ``"rw"``."""
        first, last = (0, self.count) if i is None else (i, i + 1)
        start = self._start(die) % self._placed().spec.die_bytes
        return Grant(die, start + first * self.step, start + last * self.step, rights)

    def labels(self, die: int) -> Iterator[tuple[str, int, int]]:
        """Name, address and bytes of each element."""
        for i in range(self.count):
            yield f"die{die}.{self.name}{f'[{i}]' if self.count > 1 else ''}", self.at(die, i), self.step

    def _start(self, die: int) -> int:
        pod = self._placed()
        if self.area == "meta":
            return pod.meta(die, self._corner.meta + self.offset)
        return pod.managed(die, self._corner.managed + self.offset)

    def _placed(self) -> Pod:
        if self._pod is None:
            raise ConfigError(f"region {self.name!r}: has no addresses yet; call regions.place(bench, pod) first")
        return self._pod


class Regions:
    """All regions of a protocol, one behind the other in their areas."""

    def __init__(self, dies: int) -> None:
        self._dies = dies
        self._all: list[Region] = []

    def meta(self, name: str, nbytes: int = 8, count: int = 1) -> Region:
        """Fields in the metadata area of each die, which holds zeros when a run begins."""
        return self._add(name, "meta", nbytes, count)

    def managed(self, name: str, nbytes: int, count: int = 1) -> Region:
        """Slots in the managed data area of each die, which nobody has written when a run begins."""
        return self._add(name, "managed", nbytes, count)

    def bytes_of(self, area: str) -> int:
        """That the regions of an area take on each die."""
        return max((region.end for region in self._all if region.area == area), default=0)

    def tight_pod(self, *, app_bytes: int, ub_bytes: int, cores: int = 1) -> PodSpec:
        """A pod with no more room than these regions need; app data and data buffer as given, in bytes."""
        meta, managed = (max(GRANULE_BYTES, self.bytes_of(area)) for area in ("meta", "managed"))
        room = {"app_bytes": align(app_bytes), "meta_bytes": meta, "managed_bytes": managed}
        return small_pod(self._dies, cores, **room, ub_bytes=align(ub_bytes))

    def place(self, bench: Bench, pod: Pod) -> None:
        """Give the regions their addresses on a pod, and name them in reports."""
        for region in self._all:
            region._pod, region._corner = pod, bench.corner
            for die in range(self._dies):
                for label in region.labels(die):
                    bench.label(*label)

    def _add(self, name: str, area: str, nbytes: int, count: int) -> Region:
        if nbytes < 1 or count < 1:
            raise ConfigError(f"region {name!r}: {count} elements of {nbytes} bytes: must be at least one of each")
        self._all.append(Region(name, area, nbytes, count, self.bytes_of(area)))
        return self._all[-1]
