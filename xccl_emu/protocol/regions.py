"""What lies where on the dies of a pod, said once: addresses, labels, leave to touch it, and a pod that it just fits.

    regions = Regions(dies)
    inbox = regions.managed("inbox", slot_bytes, count=slots)
    tail = regions.meta("tail")
    pod = regions.pod(bench, app_bytes=..., ub_bytes=...)
    ... inbox.at(die, slot)

A communicator that users make on a pod of theirs says where its regions begin: `Regions.fit`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from xccl_emu.base.errors import CapacityError, ConfigError
from xccl_emu.base.options import whole
from xccl_emu.kernels.group import align
from xccl_emu.machine.device.layout import GRANULE_BYTES
from xccl_emu.machine.launch import Address, Grant
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import GIB, MIB, PodSpec, small_pod
from xccl_emu.protocol.bench import Bench

Parts = Callable[[int], Iterable[tuple[str, int]]]
"""What a region of the n-th die consists of, for reports: what follows its name, and bytes, one after the other."""


@dataclass(eq=False)
class Region:
    """The same range on every die: ``count`` elements of ``nbytes`` bytes, each on granules of its own."""

    name: str
    area: str
    """``"meta"`` or ``"managed"``."""
    nbytes: int
    count: int
    offset: int
    """From where the regions of its area begin."""
    parts: Parts | None = None
    """Its elements, if there is no more to say."""
    _spec: PodSpec | None = field(default=None, repr=False)
    _first: int = 0
    """Offset in a die's memory of the regions of its area."""

    @property
    def step(self) -> int:
        """Bytes from one element to the next."""
        return align(self.nbytes)

    @property
    def size(self) -> int:
        """Bytes of all elements."""
        return self.count * self.step

    @property
    def end(self) -> int:
        """Return the offset after the last element."""
        return self.offset + self.size

    @property
    def start(self) -> int:
        """Offset in a die's memory."""
        self._placed()
        return self._first + self.offset

    def at(self, die: int, i: int | None = None, count: int = 1) -> Address:
        """Global address of an element, with leave for ``count`` from it on, or of all of them.

        ConfigError for an element, and for a die, that is not there.
        """
        elements, spec = self._elements(i, count), self._placed()
        if not 0 <= die < spec.n_homes:
            raise ConfigError("die", die, f"the pod has dies 0 to {spec.n_dies - 1}")
        first = die * spec.die_bytes + self.start
        whole = Address.of(first, die, range(first, first + self.size), step=self.step)
        return whole if i is None else (whole + i * self.step).only(elements)

    def grant(self, die: int | None, rights: str, i: int | None = None, count: int = 1) -> Grant:
        """Leave for a core to touch some elements, or all of the region: ``"r"``, ``"w"`` or ``"rw"``.

        On one die, or on any for None.  ConfigError for an element that is not there.
        """
        elements = self._elements(i, count)
        return Grant(die, self.start + elements.start * self.step, self.start + elements.stop * self.step, rights)

    def _elements(self, i: int | None, count: int) -> range:
        """Numbers of some elements, or of all; what follows the last is another region's."""
        first, end = (0, self.count) if i is None else (i, i + count)
        for number in (first, max(first, end - 1)):
            if not 0 <= number < self.count:
                raise ConfigError(f"{self.name}[{number}]: there are elements 0 to {self.count - 1}")
        return range(first, end)

    def labels(self, die: int, number: int) -> Iterator[tuple[str, int, int]]:
        """Name, address and bytes of each part, on the die of that number among those that have the region."""
        names = (f"[{i}]" if self.count > 1 else "" for i in range(self.count))
        at = die * self._placed().die_bytes + self.start
        for name, nbytes in self.parts(number) if self.parts else ((name, self.step) for name in names):
            yield f"{self._placed().home(die)}.{self.name}{name}", at, nbytes
            at += nbytes

    def _placed(self) -> PodSpec:
        if self._spec is None:
            raise ConfigError(f"region {self.name!r}: has no addresses yet; call regions.place(bench, pod) first")
        return self._spec


class Regions:
    """All regions of a protocol on ``dies`` dies, from ``first_die`` on, one after the other in their areas.

    They are on ``cpus`` CPU sockets too, which are numbered after the dies (`Pod.cpu`).
    """

    def __init__(self, dies: int, first_die: int = 0, cpus: int = 0) -> None:
        self.dies, self.cpus = range(first_die, first_die + dies), cpus
        self._all: list[Region] = []
        self.managed_start = self.meta_start = 0
        """Offsets in the areas from which on they are placed."""

    @property
    def managed_end(self) -> int:
        """Offset in the managed area after the last slot."""
        return self.managed_start + self.bytes_of("managed")

    @property
    def meta_end(self) -> int:
        """Offset in the metadata area after the last field."""
        return self.meta_start + self.bytes_of("meta")

    def meta(self, name: str, nbytes: int = 8, count: int = 1, parts: Parts | None = None) -> Region:
        """Fields in the metadata area of each die, which holds zeros when a run begins."""
        return self._add(name, "meta", nbytes, count, parts)

    def managed(
        self, name: str, nbytes: int, count: int = 1, parts: Parts | None = None, over: Region | None = None
    ) -> Region:
        """Slots in the managed data area of each die, which nobody has written when a run begins.

        With ``over`` they are where another region is, with which they take turns.
        """
        return self._add(name, "managed", nbytes, count, parts, over)

    def bytes_of(self, area: str) -> int:
        """Return the bytes that the regions of an area take on each die."""
        return max((region.end for region in self._all if region.area == area), default=0)

    def tight_pod(self, *, app_bytes: int, ub_bytes: int, cores: int = 1) -> PodSpec:
        """A pod with no more room than these regions need; app data and data buffer as given, in bytes."""
        meta, managed = (max(GRANULE_BYTES, self.bytes_of(area)) for area in ("meta", "managed"))
        room = {"app_bytes": align(app_bytes), "meta_bytes": meta, "managed_bytes": managed}
        dies = small_pod(len(self.dies), cores, **room, ub_bytes=align(ub_bytes))
        return dies.with_(nodes=1, chips_per_node=dies.nodes, cpus_per_node=self.cpus) if self.cpus else dies

    def pod(
        self, bench: Bench, *, app_bytes: int, ub_bytes: int, cores: int = 1, draw_answers: bool = False, **others: Any
    ) -> Pod:
        """Make a bench's pod, with no more room than these regions need, and place them; ``others``: of `PodSpec`."""
        spec = self.tight_pod(app_bytes=app_bytes, ub_bytes=ub_bytes, cores=cores)
        pod = bench.pod(spec.with_(**others), draw_answers=draw_answers)
        self.place(bench, pod)
        return pod

    def fit(self, spec: PodSpec, managed: int, meta: int, remedy: str, ub_bytes: int = 0) -> None:
        """Give the regions their addresses, from these offsets of the areas on.

        Raises CapacityError, with the remedy, if an area is too small, or a data buffer has less than ``ub_bytes``.
        """
        self.managed_start, self.meta_start = managed, meta
        for what, need, have in (
            ("managed data area", self.managed_end, spec.managed_bytes),
            ("metadata area", self.meta_end, spec.meta_bytes),
            ("data buffer (ub_bytes)", ub_bytes, spec.ub_bytes),
        ):
            if need > have:
                raise CapacityError(f"{what}: needs {need} bytes, has {have}; {remedy}")
        starts = {"managed": managed + spec.managed_start, "meta": meta + spec.meta_start}
        for region in self._all:
            region._spec, region._first = spec, starts[region.area]

    def place(self, bench: Bench, pod: Pod) -> None:
        """Give the regions their addresses on a pod, and name them in reports."""
        self.fit(pod.spec, bench.corner.managed, bench.corner.meta, "take a larger pod")
        self.label(bench)

    def label(self, bench: Bench) -> None:
        """Name the regions in reports."""
        for label in self.labels():
            bench.label(*label)

    def labels(self) -> Iterator[tuple[str, int, int]]:
        """Name, address and bytes of each part of each region on each die."""
        for region in self._all:
            for number, die in enumerate((*self.dies, *range(self.dies.stop, self.dies.stop + self.cpus))):
                yield from region.labels(die, number)

    def _add(
        self, name: str, area: str, nbytes: int, count: int, parts: Parts | None, over: Region | None = None
    ) -> Region:
        if whole("nbytes", nbytes) < 1 or whole("count", count) < 1:
            raise ConfigError(f"region {name!r}: {count} elements of {nbytes} bytes: must be at least one of each")
        if any(region.name == name for region in self._all):
            raise ConfigError(f"region {name!r}: there is one already; reports know a region by its name")
        offset = over.offset if over else self.bytes_of(area)
        self._all.append(Region(name, area, nbytes, count, offset, parts))
        return self._all[-1]


def tight_pod(dies: int, cores: int, ub_bytes: int, lay_out: Callable[[Pod], Regions]) -> PodSpec:
    """A pod as large as everything is that ``lay_out`` puts on a large one.

    It returns the regions of the metadata and managed areas; what is in use of app data the pod knows.
    """
    try:
        roomy, regions = _laid_out(dies, cores, GIB, lay_out)
    except CapacityError:
        roomy, regions = _laid_out(dies, cores, 24 * GIB, lay_out)
    app = max(roomy.mark_app().values())
    room = {"app_bytes": app, "meta_bytes": regions.meta_end, "managed_bytes": align(regions.managed_end)}
    return small_pod(dies, cores, **room, ub_bytes=align(ub_bytes))


def _laid_out(dies: int, cores: int, room: int, lay_out: Callable[[Pod], Regions]) -> tuple[Pod, Regions]:
    pod = Pod(small_pod(dies, cores, app_bytes=room, meta_bytes=4 * MIB, managed_bytes=room, ub_bytes=MIB))
    return pod, lay_out(pod)
