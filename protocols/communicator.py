"""What communicators have in common: arguments checked before anything changes, regions of their own, runs, an end."""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from xccl_emu.base.errors import CapacityError, ConfigError
from xccl_emu.base.options import whole
from xccl_emu.kernels.experts.counts import FIELD_BYTES
from xccl_emu.lang import Kernel
from xccl_emu.machine.launch import Launch
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.state import ClaimedRegion
from xccl_emu.machine.stats import RunStats
from xccl_emu.protocol import Bench, Case, Regions
from xccl_emu.protocol.streams import Streams

T = TypeVar("T")
K = TypeVar("K", bound=Case)


def number_in(name: str, value: Any, low: int, high: int) -> int:
    """The value as a Python integer (a NumPy one would overflow later).

    Raises ConfigError for what is no whole number from ``low`` to ``high``, and for True and False.
    """
    if not isinstance(value, bool):
        try:
            number = operator.index(value)
        except TypeError:
            number = low - 1
        if low <= number <= high:
            return number
    must = f"a whole number, {low} to {high}" if low <= high else "one of those that there are, and there are none"
    raise ConfigError(name, value, f"must be {must}")


def integer(name: str, value: Any) -> int:
    """The value as a Python integer of 64 bits; raises ConfigError as `number_in` does."""
    return number_in(name, value, -(1 << 63), (1 << 63) - 1)


def index_of(name: str, value: Any, count: int) -> int:
    """Return an index below ``count``; ConfigError for none of them, also for a negative one."""
    return number_in(name, value, 0, count - 1)


def offset_in_area(name: str, value: Any) -> int:
    """Return where in an area regions or fields begin; ConfigError for what is no place for one."""
    offset = whole(name, value)
    if offset < 0 or offset % FIELD_BYTES:
        raise ConfigError(name, offset, f"must be a multiple of {FIELD_BYTES} and not negative")
    return offset


def listed(name: str, given: Any, must: str) -> list[Any]:
    """The items of anything that can be gone through, a generator too; ConfigError, saying what it must be."""
    try:
        return list(given)
    except TypeError as error:
        raise ConfigError(name, given, f"must be {must}") from error


def one_for_each(name: str, given: Any, count: int, owners: str) -> list[Any]:
    """Return an array for each of ``count`` ``owners`` ("ranks"); ConfigError for another number, or for no list."""
    items = listed(name, given, f"{count} arrays, for {count} {owners}")
    if len(items) != count:
        raise ConfigError(f"{name}: {len(items)} arrays for {count} {owners}")
    return items


def as_array(name: str, item: Any) -> NDArray[Any]:
    """Return what is given as an array; ConfigError for what is none, such as a ragged list."""
    try:
        return np.asarray(item)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name}: is no array ({error})") from error


def shaped(name: str, item: Any, shape: Sequence[int | None], dtype: DTypeLike) -> NDArray[Any]:
    """Return an array of this shape and type without gaps, None being any number; ConfigError for anything else."""
    array, wanted = as_array(name, item), np.dtype(dtype)
    sizes = [size if of is None else of for size, of in zip(array.shape, shape, strict=False)]
    if array.ndim != len(shape) or array.dtype != wanted or list(array.shape) != sizes:
        must = f"[{', '.join('any' if of is None else str(of) for of in shape)}] {wanted}"
        raise ConfigError(f"{name}: {list(array.shape)} {array.dtype}, must be {must}")
    return np.ascontiguousarray(array)


def configured(kind: type[T], given: Any, sizes: Mapping[str, Any], fixed: Sequence[str] = ()) -> T:
    """The configuration that is given, or one of these sizes, but for those that are ``fixed``.

    ConfigError for both, for another kind of thing, and for a size that there is not or that is missing.
    """
    if given is not None:
        if sizes or not isinstance(given, kind):
            must = f"must be a {kind.__name__}" if not isinstance(given, kind) else "sizes come with no configuration"
            raise ConfigError("config", given, must)
        return given
    known = [each.name for each in fields(kind) if each.name not in fixed]  # type: ignore[arg-type]
    for name in sizes:
        if name not in known:
            raise ConfigError(name, sizes[name], f"must be a size of {kind.__name__}: one of {', '.join(known)}")
    usual = {each.name for each in fields(kind) if each.default is not MISSING}  # type: ignore[arg-type]
    if missing := [name for name in known if name not in usual.union(sizes)]:
        raise ConfigError(f"{', '.join(missing)}: must be given, as sizes of {kind.__name__}")
    try:
        return kind(**sizes)
    except TypeError as error:
        raise ConfigError(f"{kind.__name__}: {error}") from error


Progress = Callable[[int], None]


class Communicator(ABC):
    """Dies of a pod with a protocol between them.

    It owns the parts of the managed and metadata areas from ``managed_offset`` and ``field_offset`` on, both in bytes,
    to ``layout.managed_end`` and ``layout.meta_end``, on all its dies; another communicator on the same pod goes after
    them.  After a failed run (RunError) call `reset`.
    """

    layout: Regions

    def __init__(self, pod: Pod) -> None:
        """Call last: ``self.layout`` is set, and all arguments are checked."""
        self.pod, layout = pod, self.layout
        self.stats: dict[str, RunStats] = {}
        """Statistics of the last run of each protocol."""
        self._broken = False
        dies = layout.dies.start, layout.dies.stop
        meta, managed = (layout.meta_start, layout.meta_end), (layout.managed_start, layout.managed_end)
        self._claimed = ClaimedRegion(dies, meta, managed)
        pod.claims.take(self, self._claimed)

    @abstractmethod
    def _cores_on(self, die: int) -> int:
        """Return the number of cores of a die that take part, the first ones."""

    def run_as(self, name: str, progress: Progress | None = None, *, ends: bool = True) -> None:
        """Run what is launched, as ``stats[name]``; if it fails `reset` is needed.

        If a call ``ends`` with it, nobody counts on anything in the managed areas afterwards.

        Raises ConfigError, and none is needed, if something is switched off that no kernel has.
        """
        self.pod.check_runnable()
        self._broken = True  # until the run is over
        self.stats[name] = self.pod.run(progress)
        self._broken = False
        if ends:
            self._spoil()

    def _spoil(self) -> None:
        """Spoil the managed areas."""
        start, end = self._claimed.managed
        for die in range(*self._claimed.dies):
            self.pod.spoil(self.pod.managed(die, start), end - start)

    def check_ready(self, *kernels: Kernel) -> None:
        """Raises ConfigError, before anything is launched, after a failed run, or if a core is taken.

        ``kernels`` are to be launched and run at once: ConfigError too if the pod cannot run them.
        """
        self._check_whole()
        self.pod.claims.check(self)
        if kernels:
            self.pod.check_runnable(kernels)
        self.pod.check_ready()
        for die, launches in self.on_cores():
            if any(launches):
                raise ConfigError("cores", len(launches), f"on die {die} one of them is taken by another launch")

    def _check_whole(self) -> None:
        if self._broken:
            raise ConfigError("the group's last run failed or was interrupted: call reset() first")

    def on_cores(self) -> Iterator[tuple[int, list[Launch | None]]]:
        """Yield each die, and what is launched on each of its cores that takes part."""
        for die in self.layout.dies:
            first = die * self.pod.spec.cores_per_die
            yield die, [self.pod.launch_of(first + core) for core in range(self._cores_on(die))]

    def reset(self) -> None:
        """Recover from a failed run: stop all cores of the pod, zero the metadata fields, count calls from the start.

        What others have launched on the pod and not run is dropped too.
        """
        self.pod.claims.check(self)
        self.pod.clear()
        self.zero_fields()
        self._broken = False

    def zero_fields(self) -> None:
        """Nothing has been called yet: what an earlier group left there would be taken for this one's.

        Allowed while no kernel of the group runs and nothing is in flight.
        """
        start, end = self.layout.meta_start, self.layout.meta_end
        for die in self.layout.dies:
            self.pod.span(self.pod.meta(die, start), end - start)[:] = 0


class CaseSession(Communicator, Generic[K]):
    """A communicator of the sizes of a case, on dies from 0 on, whose calls take arrays and return arrays of their own.

    A call has app data of its own, and gives it back.  What it launches is what the case launches.
    """

    kind: ClassVar[type[Any]]
    """The class of the case."""
    drawn: ClassVar[tuple[str, ...]] = ("pod_sizes", "seed")
    """Fields of the case that have no meaning where the data are given."""
    config: K
    """Sizes, as the case has them."""
    kernels: tuple[Kernel, ...]
    """What calls launch."""
    cores: int
    """Cores of a die that take part."""

    def _configure(self, pod: Pod, config: Any, sizes: Mapping[str, Any]) -> K:
        """The case; ConfigError for what is no pod, or no such case."""
        if not isinstance(pod, Pod):
            raise ConfigError("pod", pod, "must be a Pod")
        self.config = configured(self.kind, config, sizes, self.drawn)
        return self.config

    def _place(self, pod: Pod, regions: Regions, ub_bytes: int, at: tuple[int, int]) -> None:
        """Give the regions their addresses; ConfigError or CapacityError if the pod has too little of anything."""
        managed, meta = offset_in_area("managed_offset", at[0]), offset_in_area("field_offset", at[1])
        if len(regions.dies) > pod.spec.n_dies or self.cores > pod.spec.cores_per_die:
            have = f"the pod has {pod.spec.n_dies} dies of {pod.spec.cores_per_die} cores"
            raise ConfigError(f"{len(regions.dies)} dies of {self.cores} cores: {have}")
        regions.fit(pod.spec, managed, meta, "take smaller sizes, or a larger pod", ub_bytes)
        self.layout = regions
        Communicator.__init__(self, pod)
        for kernel in self.kernels:
            pod.switches.know(kernel)
        self.zero_fields()

    def _cores_on(self, die: int) -> int:
        return self.cores

    @contextmanager
    def _call(self, app_bytes: Mapping[int, int], *, fresh: bool = True) -> Iterator[tuple[Bench, Streams]]:
        """Yield what a call is laid out on, all arguments being checked, with ``app_bytes`` of app data on each die.

        With ``fresh`` it begins with fields that are zero.  CapacityError if the bytes are not there; nothing changes.
        """
        self.check_ready(*self.kernels)
        mark = self.pod.mark_app()
        try:
            for die, nbytes in app_bytes.items():
                self.pod.alloc(die, nbytes)
            self.pod.release_app(mark)
            if fresh:
                self.zero_fields()
            bench = Bench.around(self.pod)
            bench.payload = False  # results are not known before
            yield bench, Streams(bench, self.pod)
        finally:
            self.pod.release_app(mark)

    def _fill(self, buffer: Buffer, array: NDArray[Any]) -> None:
        """Put an array into a buffer of its size, as data that only travel."""
        self.pod.fill_payload(self.pod.payload(buffer, array.dtype, array.shape), array)


@contextmanager
def all_or_none(pod: Pod) -> Iterator[None]:
    """Gives back the app data that is allocated, if there is not enough (CapacityError)."""
    mark = pod.mark_app()
    try:
        yield
    except CapacityError:
        pod.release_app(mark)
        raise


def allocate_on(pod: Pod, dies: Sequence[int], sizes: Mapping[str, int]) -> list[dict[str, Buffer]]:
    """App buffers of these names and bytes on each die; CapacityError if they do not fit, and then there is none."""
    with all_or_none(pod):
        return [{name: pod.alloc(die, size) for name, size in sizes.items()} for die in dies]
