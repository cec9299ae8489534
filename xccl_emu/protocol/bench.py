"""What a case builds on: it makes the pod and keeps what a check must know about it."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import whole
from xccl_emu.check.faults import KINDS
from xccl_emu.check.trial import JUDGED_BYTES_MAX, Expected, Judge, Label, Trial
from xccl_emu.machine.launch import Launch
from xccl_emu.machine.pod import Buffer, Pod, bytes_of
from xccl_emu.machine.spec import PodSpec, small_pod
from xccl_emu.protocol.owners import DRAINED, RETURNED, Owners, owners_of

BOTH = "both"
"""A run follows the weaker reading, and the command ``check`` judges by the stronger as well."""

READINGS: Mapping[str, tuple[str, ...]] = {
    "barrier": (BOTH, "visible", "empty"), "sync_all": (BOTH, "drains", "arrives"),
    "hazards": ("resolved", "resolved", "open"), "owners": (RETURNED, DRAINED, RETURNED),
    "scopes": (BOTH, "wide", "narrow"), "vectors": (BOTH, "whole", "parts"),
    "reads": (BOTH, "acquire", "relaxed"), "boundary": (BOTH, "publishes", "local"),
}  # fmt: skip
"""What is read in one of two ways, since documents or a case leave it open: what it is where nobody chooses, the
stronger reading and the weaker one."""

OTHER = "beside"
"""In names, and with a stage of calls: another communicator at the same time."""
_GIVES_UP_MAX = 8


def of_spec(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return what else is chosen of any case and is a size of its pod."""
    return {name: value for name, value in chosen.items() if name == "scalar_cache"}


class Corner(NamedTuple):
    """Where a communicator begins on each die, if it is not alone on the pod."""

    core: int = 0
    meta: int = 0
    """Bytes from the start of the metadata area."""
    managed: int = 0
    dies: int = 0
    """Dies of the pod, if it has more than the communicator."""


class Bench:
    """What a protocol function builds on: it makes the pod and keeps what a check must know about it."""

    corner = Corner()

    def __init__(
        self, order: str, without: Collection[str], pod_sizes: Mapping[str, Any] | None = None, payload: bool = True,
    ) -> None:  # fmt: skip
        chosen = dict(pod_sizes or {})
        self._order, self._without = order, without
        self._spec = of_spec(chosen)
        self._readings = {name: str(chosen.get(name, of[0])) for name, of in READINGS.items()}
        self._open = set[str]()
        self._assumed = dict[str, None]()
        self.payload = payload
        """Whether there is payload.  If not, the case is for a run that moves none (`VirtualTime`, ``data=False``)."""
        self._pod: Pod | None = None
        self._expected: list[tuple[Expected, Owners]] = []
        self._filled: list[Buffer] = []
        self._labels: list[Label] = []
        self._stops: dict[int, str] = {}
        self._gives_up: set[int] = set()
        self._tolerated: set[str] = set()
        self._may_block = True
        self._recovers: set[int] = set()
        self._roles: dict[str, tuple[int, ...]] = {}

    @classmethod
    def around(cls, pod: Pod) -> Self:
        """A bench of a pod that is there."""
        bench = cls(pod.order, pod.without)
        bench._pod = pod
        return bench

    def pod(self, spec: PodSpec, *, draw_answers: bool = False) -> Pod:
        """The pod, in the memory order of the check and without what it switches off, and as the case is to have it.

        ``draw_answers`` is as in `Pod`, for kernels that ask until the answer is not 0.  ConfigError for a second one.
        """
        if self._pod is not None:
            raise ConfigError("pod: the bench has one already; a check is of a single pod")
        spec = spec.with_(**self._spec)
        self._pod = Pod(spec, order=self._order, without=self._without, draw_answers=draw_answers)
        return self._pod

    def reading(self, name: str) -> str:
        """Return how a kernel that depends on ``name``, one of `READINGS`, is to read it."""
        if self._readings[name] == BOTH:
            self._open.add(name)
        return self.would_read(name)

    def would_read(self, name: str) -> str:
        """Return what `reading` does, where it is not known yet whether any kernel depends on it."""
        return READINGS[name][-1] if self._readings[name] == BOTH else self._readings[name]

    def assumes(self, words: str) -> None:
        """Say what a verdict without a violation rests on, where kernels come from a machine that orders less."""
        self._assumed[words] = None

    def filled(self, die: int, array: NDArray[Any], name: str = "", *, travels: bool = False) -> Buffer:
        """An app data buffer that holds ``array`` when the run begins.

        The values should have no zero bytes: memory that nobody has written is zero, so a zero that never arrived would
        go unnoticed.  What only travels, and decides nothing, stays zero where there is no payload.
        """
        left_out = travels and not self.payload
        buffer = self._built().alloc(die, array.nbytes) if left_out else self._built().put(die, array)
        self.already_filled(buffer)
        self.label_buffer(buffer, name)
        return buffer

    def already_filled(self, *buffers: Buffer) -> None:
        """Memory that holds something when the run begins, put there by other means than `filled` and `fill`."""
        self._filled += buffers

    def wanted(self, die: int, array: NDArray[Any], name: str = "", owners: Owners = ()) -> Buffer:
        """An app data buffer that nobody has written yet, and that must hold ``array`` in the end, as for `expect`."""
        nbytes = bytes_of(array).size if self.payload else array.nbytes
        buffer, spec = self._built().alloc(die, nbytes), self._built().spec
        self.label_buffer(buffer, name)
        self.expect(buffer.address, array, f"{name or 'output'} of {spec.home(die, ' ')}", owners)
        return buffer

    def expect(self, address: int, array: NDArray[Any], name: str, owners: Owners = ()) -> None:
        """Memory at a global address that must hold ``array`` when its owners have returned, whatever else goes on.

        ``owners`` are ``"die1"``, ``"die1.core0"``, a global number of a core, or several of them; if nobody is named,
        the kernels on the die where the bytes lie, and if none runs there, those that may write them (by their grants).
        With ``"drained"`` nobody is: the bytes must be right when all kernels are done and everything has drained.
        ``--owners drained`` says so of a run, for all bytes whose owners the case does not name.
        Without payload nothing is expected.
        """
        if self.payload:
            raw, dtype, shape = bytes_of(array).tobytes(), np.asarray(array).dtype, np.shape(array)
            self._expected.append((Expected(name, address, raw, dtype=dtype, shape=shape), owners))

    def judged_by(
        self, right: Callable[..., bool | str], *buffers: Buffer, name: str, owners: Owners = ()
    ) -> None:
        """Buffers whose bytes are right in the end if a predicate says so: for a result that runs may differ in.

        ``right`` takes an array of uint8 for each buffer and returns True, or False or a text that says what is wrong.
        It must depend on nothing else.  ``owners`` are as for `expect`, of all buffers together.  A search
        ends unfinished where more than 256 different contents are right.  ConfigError for no buffer, and for more than
        16 KiB in all.
        """
        nbytes = sum(buffer.nbytes for buffer in buffers)
        if not 0 < nbytes <= JUDGED_BYTES_MAX:
            raise ConfigError(f"{name}: {nbytes} bytes are judged: must be 1 to {JUDGED_BYTES_MAX}")
        if self.payload:
            judge = Judge(name, tuple((each.address, each.nbytes) for each in buffers if each.nbytes), right)
            self._expected.append((Expected(name, judge.ranges[0][0], b"", judge=judge), owners))

    def expect_whole(self, buffer: Buffer, array: NDArray[Any], name: str, owners: Owners = ()) -> None:
        """Expect ``array`` in a buffer, and after it the zeros of what nobody has written; as `expect` does."""
        raw = np.zeros(buffer.nbytes, np.uint8)
        raw[: array.nbytes] = bytes_of(array)
        rows = array.size and buffer.nbytes % (array.nbytes // len(array)) == 0
        self.expect(buffer.address, raw.view(array.dtype).reshape(-1, *array.shape[1:]) if rows else raw, name, owners)

    def set_meta(self, die: int, offset: int, array: NDArray[Any], name: str = "") -> int:
        """Let metadata of a die hold ``array`` when the run begins, in place of zeros; returns its global address."""
        pod, raw = self._built(), bytes_of(array)
        address = pod.meta(die, offset)
        if offset + raw.size > pod.spec.meta_bytes:
            raise ConfigError(
                f"array: its {raw.size} bytes at offset {offset} do not fit the metadata area of a die, which has "
                f"{pod.spec.meta_bytes}"
            )
        self.fill(address, raw, name)
        return address

    def fill(self, address: int, array: NDArray[Any], name: str = "") -> None:
        """Let memory at a global address hold ``array`` when the run begins, and count as written.

        It may be in any area: `Region.at` is such an address.  ConfigError if it is not all in the memory of one die.
        """
        pod, raw = self._built(), bytes_of(array)
        span, die = pod.span(address, raw.size), address // pod.spec.die_bytes
        if raw.size > (die + 1) * pod.spec.die_bytes - address:
            raise ConfigError(f"array: its {raw.size} bytes at {address:#x} go beyond {pod.spec.home(die, ' ')}")
        span[:] = raw
        buffer = Buffer(die, address, raw.size)
        self.already_filled(buffer)
        self.label_buffer(buffer, name)

    def label(self, name: str, address: int, nbytes: int) -> None:
        """A name for a range of memory, for reports, for example ``"die1.tail"``."""
        self._labels.append(Label(name, address, nbytes))

    def stop(self, code: int, meaning: str) -> None:
        """Declare what a code of `fail` means; under a fault it is a declared error, and no violation.

        ConfigError for a code that is no whole number.
        """
        self._stops[whole("code", code)] = meaning

    def may_give_up(self, code: int, meaning: str) -> None:
        """A code of `fail` with which a run may end at any time, as by a time-out that passes too early.

        It is no violation, with a fault or without one, and what is not due before is not judged: the result is right,
        or it is given up.  ConfigError for a code that is no whole number, and for more than 8 of them.
        """
        self.stop(code, meaning)
        self._gives_up.add(whole("code", code))
        if len(self._gives_up) > _GIVES_UP_MAX:
            raise ConfigError("code", code, f"a run may be given up with at most {_GIVES_UP_MAX} codes")

    def tolerates(self, *faults: str, may_block: bool = True) -> None:
        """Kinds of faults (``"stop"``, ``"cut"`` and so on) under which it never takes wrong bits for right.

        After a fault cores may wait without end, unless ``may_block`` is False: then each must return, or end in a
        declared error (`stop`), and a run in which one waits for ever is a violation.  What waits for nothing but
        writes over a link that is cut has ended too: the machine gives these up.  ConfigError for other kinds.
        """
        for kind in faults:
            if kind not in KINDS:
                raise ConfigError("faults", kind, f"must be of {', '.join(KINDS)}, without dies")
        if not isinstance(may_block, bool):
            raise ConfigError("may_block", may_block, "must be True or False")
        self._tolerated |= set(faults)
        self._may_block = may_block

    def recovers(self, *dies: int) -> None:
        """Whichever one of these dies stops, at any moment: every core of the others returns.

        `tolerates` ``"stop"`` is said with it; after other faults, or the stop of another die, cores may still wait.
        ConfigError for what is no die of the pod.
        """
        for die in dies:
            if whole("dies", die) not in range(self._built().spec.n_homes):
                raise ConfigError("dies", die, f"out of range 0..{self._built().spec.n_dies - 1}")
        self._tolerated.add("stop")
        self._recovers |= set(dies)

    def may_lose(self, name: str, address: int, nbytes: int, told: int = -1) -> None:
        """Declare bytes that memory may lose at any moment while it goes on without them, as `Pod.may_lose` does."""
        self._built().may_lose(name, address, nbytes, told)
        self._tolerated.add("lose")

    def role(self, name: str, dies: Iterable[int]) -> None:
        """Name what some dies do in the protocol, for statistics, for example ``"expert die"``."""
        self._roles[name] = tuple(dies)

    def trial(self) -> Trial:
        """All of it; ConfigError if there is no pod or nothing launched on it, and for owners that run no kernel."""
        pod = self._built()
        if not pod.active_cores():
            raise ConfigError("the protocol function has launched no kernel")
        unnamed = self.reading("owners")
        expected = tuple(
            replace(each, cores=owners_of(pod, owners, each.ranges, unnamed), by_default=owners == ())
            for each, owners in self._expected
        )
        return Trial(
            pod, expected, tuple(self._filled), tuple(self._labels), dict(self._stops),
            frozenset(self._gives_up), frozenset(self._tolerated), self._may_block, frozenset(self._recovers),
            self._roles, open_readings=frozenset(self._open), assumed=tuple(self._assumed),
        )  # fmt: skip

    def _built(self) -> Pod:
        if self._pod is None:
            raise ConfigError("the protocol function must make its pod first: pod = bench.pod(small_pod(...))")
        return self._pod

    def label_buffer(self, buffer: Buffer, name: str) -> None:
        """Name a buffer for reports, its die first.  An empty one, or one without a name, gets none."""
        if name and buffer.nbytes:
            self.label(f"{self._built().spec.home(buffer.die)}.{name}", buffer.address, buffer.nbytes)


class Shared(Bench):
    """A bench whose pod is there already, and has room for what is asked for."""

    def __init__(self, pod: Pod, options: Mapping[str, Any]) -> None:
        super().__init__(pod.order, pod.without, options)
        self._given = pod

    def settle(self, corner: Corner) -> None:
        """Another communicator is laid out there."""
        self._pod, self.corner = None, corner

    def label(self, name: str, address: int, nbytes: int) -> None:
        """Mark the names of a communicator other than the first."""
        super().label(name.replace(".", f".{OTHER}.", 1) if self.corner.core else name, address, nbytes)

    def expect(self, address: int, array: NDArray[Any], name: str, owners: Owners = ()) -> None:
        """Mark the names of what it expects likewise."""
        super().expect(address, array, f"{name}, {OTHER}" if self.corner.core else name, owners)

    def pod(self, spec: PodSpec, *, draw_answers: bool = False) -> Pod:
        """Return the pod that is there."""
        if self._pod is not None:
            raise ConfigError("pod: the bench has one already; a check is of a single pod")
        self._pod = self._given
        return self._pod


def room_for(specs: list[PodSpec]) -> PodSpec:
    """The least pod that has room for each of them; of one it is that one.  ConfigError for other units of memory."""

    def most(name: str) -> int:
        return max(int(getattr(spec, name)) for spec in specs)

    if len(set(specs)) == 1:
        return specs[0]
    if len(units := {spec.atomic_bytes for spec in specs}) > 1:
        raise ConfigError("atomic_bytes", max(units), f"a pod has one such unit, and it is {min(units)} for others")
    areas = ("app_bytes", "meta_bytes", "managed_bytes", "ub_bytes", "flight_granules", "atomic_bytes")
    return small_pod(most("n_dies"), most("cores_per_die"), **{name: most(name) for name in areas}).with_(
        registers=most("registers")
    )


def launches(pod: Pod) -> list[Launch]:
    """Return what is launched on a pod, in the order of the first cores."""
    return [*dict.fromkeys(each for core in pod.active_cores() if (each := pod.launch_of(core)) is not None)]


def payload(nbytes: int, seed: int) -> NDArray[np.uint8]:
    """Bytes without a zero, so that they differ from memory that was never written, and no two granules alike.

    The first two bytes of each granule count the granules; the others are random.
    """
    data = np.random.default_rng([seed, nbytes]).integers(1, 256, nbytes, dtype=np.uint8)
    numbers = np.arange(0, nbytes, 32)
    data[numbers] = 1 + (numbers // 32 + 7 * seed % 255) % 255
    full = numbers[numbers + 1 < nbytes]
    data[full + 1] = 1 + (full // 32 // 255 + seed % 255) % 255
    return data
