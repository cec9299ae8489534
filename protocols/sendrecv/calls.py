"""The calls of send and receive, and which of them may be open together."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from xccl_emu.base.errors import CapacityError, ConfigError
from xccl_emu.base.options import one_of
from xccl_emu.kernels import sendrecv as device
from xccl_emu.kernels.channel import Channel
from xccl_emu.lang import Kernel
from xccl_emu.machine.device.layout import GRANULE_BYTES
from xccl_emu.machine.launch import Grant, Launch
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.spec import PodSpec
from xccl_emu.protocol.streams import Streams
from xccl_emu.protocols.communicator import integer
from xccl_emu.protocols.sendrecv.rings import PATHS, RingLayout, part

RING_PATHS = PATHS[:2]
"""Paths through the ring."""
_NAMES = {"source": "source die", "target": "target die"}
"""In errors."""


@dataclass(frozen=True, eq=False)
class TransferCall:
    """One side of a transfer, as its caller asked for it."""

    sends: bool
    source: int
    """Die that sends."""
    target: int
    """Die that receives."""
    buffer: Buffer
    """The payload's bytes in this side's app data area."""
    event_id: int
    cores: int
    path: str
    waits: bool
    """Whether the kernel polls; an asynchronous one does not."""
    back: "TransferCall | None" = None
    """For a send: the receive that its cores carry out too, chunk by chunk in turn."""
    own_cores: bool = True
    """False for such a receive."""

    def __post_init__(self) -> None:
        """Make Python integers of all numbers, or raise ConfigError: NumPy's would overflow in kernels and fields."""
        for name in ("source", "target", "event_id", "cores"):
            object.__setattr__(self, name, integer(_NAMES.get(name, name), getattr(self, name)))

    @property
    def nbytes(self) -> int:
        """Size of the payload."""
        return self.buffer.nbytes

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths that it may take: zero-copy only by itself, on cores of its own, and if it may wait."""
        alone = self.waits and self.own_cores and self.back is None
        return PATHS if alone else RING_PATHS

    @property
    def key(self) -> tuple[bool, int, int]:
        """The end and the channels that the call uses."""
        return (self.sends, self.source, self.target)

    @property
    def kernel(self) -> Kernel:
        """The kernel that carries out the call, or one pass of it."""
        if self.back is not None:
            return device.exchange
        if self.path == "zero-copy":
            return device.send_zero_copy if self.sends else device.recv_zero_copy
        if not self.waits:
            return device.isend if self.sends else device.irecv
        return device.send if self.sends else device.recv

    @property
    def whole(self) -> Kernel:
        """The kernel that carries out the call to its end: an asynchronous one by as many passes as it takes."""
        if self.waits:
            return self.kernel
        return device.isend_all if self.sends else device.irecv_all

    @property
    def shape(self) -> int:
        """The number that both sides must agree on: the bytes of the payload and the number of channels."""
        return self.nbytes * device.SHAPE_UNIT + self.cores

    def __str__(self) -> str:
        what = "send" if self.sends else "receive"
        way = f"from die {self.source} to die {self.target}"
        return f"{what} of {self.nbytes} bytes {way}, event ID {self.event_id}"


class OpenCalls:
    """All calls that are queued or under way; refuses what cannot go together, before anything moves."""

    def __init__(self, spec: PodSpec, channels_max: int, paths: Collection[str]) -> None:
        self._spec, self._channels_max, self._paths = spec, channels_max, paths
        self._by_key: dict[tuple[bool, int, int], TransferCall] = {}
        self._on_die: dict[int, list[TransferCall]] = {}

    def add(self, call: TransferCall) -> None:
        """Open a call; ConfigError (or CapacityError, which is one) if it cannot be, and then nothing has changed."""
        self._check_arguments(call)
        if call.key in self._by_key:
            raise ConfigError(f"{call}: there is already a {self._by_key[call.key]}; a pair has one at a time")
        self._check_partner(call)
        self._check_overlap(call)
        self._check_cores(call)
        self._by_key[call.key] = call
        self._on_die.setdefault(call.buffer.die, []).append(call)

    def remove(self, call: TransferCall) -> None:
        """Close a call that is open."""
        del self._by_key[call.key]
        self._on_die[call.buffer.die].remove(call)

    def queued(self) -> list[TransferCall]:
        """Synchronous calls, in the order in which they were opened."""
        return [call for call in self._by_key.values() if call.waits]

    def partner(self, call: TransferCall) -> TransferCall | None:
        """The other side of a call, if it is open."""
        return self._by_key.get((not call.sends, call.source, call.target))

    def _check_arguments(self, call: TransferCall) -> None:
        spec = self._spec
        for name, die in ((_NAMES["source"], call.source), (_NAMES["target"], call.target)):
            if not 0 <= die < spec.n_dies:
                raise ConfigError(f"{name} {die}: the pod has dies 0 to {spec.n_dies - 1}")
        one_of("path", call.path, [path for path in call.paths if path in self._paths])
        if not 1 <= call.cores <= self._channels_max:
            raise CapacityError(
                "cores", call.cores, f"must be 1 to {self._channels_max} (a die has {spec.cores_per_die})"
            )
        start = call.buffer.address - call.buffer.die * spec.die_bytes
        if call.buffer.nbytes < 1 or start < 0 or start + call.buffer.nbytes > spec.app_bytes:
            raise ConfigError(f"{call.buffer}: must be at least 1 byte, inside of the app data area of its die")

    def _check_partner(self, call: TransferCall) -> None:
        partner = self.partner(call)
        if partner is None:
            return
        if (call.path == "zero-copy") != (partner.path == "zero-copy"):
            raise ConfigError("path", call.path, f"the other side has {partner.path!r}; zero-copy takes both sides")
        if call.waits != partner.waits:
            raise ConfigError(f"{call}: one side is asynchronous and the other is not; both must be, or none")

    def _check_overlap(self, call: TransferCall) -> None:
        start, end = call.buffer.address, call.buffer.address + call.buffer.nbytes
        for other in self._on_die.get(call.buffer.die, ()):
            first = other.buffer.address
            if start < first + other.buffer.nbytes and first < end and not (call.sends and other.sends):
                raise ConfigError(f"{call.buffer}: overlaps {other.buffer} of the {other}, and one of them is written")

    def _check_cores(self, call: TransferCall) -> None:
        if not call.own_cores:
            return
        others = self._on_die.get(call.buffer.die, ())
        taken = sum(other.cores for other in others if other.waits == call.waits and other.own_cores)
        free = self._spec.cores_per_die - taken
        if call.cores > free:
            left = f"only {free} of die {call.buffer.die} are left by its other calls"
            raise CapacityError("cores", call.cores, left)


def checked_buffer(name: str, buffer: Any) -> Buffer:
    """The buffer; ConfigError for what is none."""
    if not isinstance(buffer, Buffer):
        raise ConfigError(name, buffer, "must be a Buffer, as Pod.put and Pod.alloc give it")
    return buffer


# ---- how they get onto cores


Work: TypeAlias = tuple[TransferCall, list[int], list[int] | None]
"""A call, what its channels had counted before it, and what they have done of it if it is asynchronous."""


class Launcher:
    """Puts calls on cores that nothing has been launched on, each channel apart, so that it may touch its own part
    alone.

    whole: whether asynchronous calls repeat their passes until they are done.  ack_each: see `SendRecv`.  streams:
    the calls go after their launches, if any.
    """

    def __init__(
        self, pod: Pod, layout: RingLayout, calls: OpenCalls, whole: bool, ack_each: int, streams: Streams | None
    ) -> None:
        self._pod, self._layout, self._calls, self._whole = pod, layout, calls, whole
        self._ack_each, self._streams = ack_each, streams
        self._taken = set() if streams is not None else set(pod.active_cores())
        self._free: dict[int, Iterator[int]] = {}

    def put(self, work: Sequence[Work]) -> list[tuple[list[Launch], TransferCall]]:
        """Launch everything; the steps 1 and 5 of the paper begin.

        Returns each call with the launches of its channels, a receive before the send whose cores carry it out.
        """
        base_of = {call: base for call, base, _ in work}
        launched: list[tuple[list[Launch], TransferCall]] = []
        for call, base, done in work:
            if not call.own_cores:
                continue
            launches = self._launch(call, base, done, base_of.get(call.back) if call.back else None)
            if call.back is not None:
                launched.append((launches, call.back))
            launched.append((launches, call))
        return launched

    def _launch(
        self, call: TransferCall, base: list[int], done: list[int] | None, back: list[int] | None
    ) -> list[Launch]:
        die, kernel = call.buffer.die, call.whole if self._whole else call.kernel
        chosen = list(islice(self._cores(die), call.cores))
        if len(chosen) < call.cores:
            raise CapacityError("cores", call.cores, f"other launches leave only {len(chosen)} free on die {die}")
        launches = []
        for channel, core in enumerate(chosen):
            values = self._arguments(call, channel, base[channel])
            grants = self._grants(call, channel)
            if done is not None:
                values["done"] = done[channel]
            if call.back is not None and back is not None:
                other = self._arguments(call.back, channel, back[channel])
                values |= {"target": other["target"], "received": other["nbytes"], "back": other["c"]}
                grants += self._grants(call.back, channel)
            args = {name: values[name] for name in kernel.params}
            launches.append(self._pod.launch(kernel, die, [core], args, grants, after=self._streams))
        return launches

    def _cores(self, die: int) -> Iterator[int]:
        """The cores of a die that nothing has been launched on, each given once."""
        if die not in self._free:
            per_die, taken = self._pod.spec.cores_per_die, self._taken  # not self: a cycle would keep the pod alive
            self._free[die] = (core for core in range(per_die) if die * per_die + core not in taken)
        return self._free[die]

    def _arguments(self, call: TransferCall, number: int, base: int) -> dict[str, int | Channel]:
        """Return the arguments of all kernels, for a channel that had counted ``base`` before the call."""
        place, own = (call.source, call.target, number), part(call.nbytes, call.cores, number)
        layout, address = self._layout, call.buffer.address + own.start
        channel = Channel(
            layout.ack(*place), layout.tail(*place), call.event_id, call.shape, base, layout.slots, layout.slot_bytes,
            int(call.path == "dma"), self._ack_each, 0 if call.sends else layout.ring(*place),
        )  # fmt: skip
        return {
            "source": address,
            "target": address,
            "nbytes": own.nbytes,
            "sent": own.nbytes,
            "c": channel,
            "half_bytes": layout.half_bytes,
        }

    def _grants(self, call: TransferCall, number: int) -> list[Grant]:
        """The least that a channel of one side needs: its part of the own buffer, both fields, and its slots.

        By hand, since a sender reads in a field where it writes: no argument says that.
        """
        place, layout = (call.source, call.target, number), self._layout
        tail, ack = layout.tail(*place), layout.ack(*place)
        grants = [
            self._buffer(call, number, "r" if call.sends else "w"),
            self._window(ack if call.sends else tail, GRANULE_BYTES, "r"),
            self._window(tail if call.sends else ack, GRANULE_BYTES, "w"),
        ]
        partner = self._calls.partner(call)
        if call.path != "zero-copy":
            grants.append(self._window(layout.ring(*place), layout.channel_bytes, "w" if call.sends else "r"))
        elif call.sends and partner is not None and number < partner.cores:
            grants.append(self._buffer(partner, number, "w"))
        return grants

    def _buffer(self, call: TransferCall, number: int, rights: str) -> Grant:
        """A channel's part of the buffer."""
        own = part(call.nbytes, call.cores, number)
        return self._window(call.buffer.address + own.start, own.nbytes, rights)

    def _window(self, address: int, nbytes: int, rights: str) -> Grant:
        die, start = divmod(address, self._pod.spec.die_bytes)
        return Grant(die, start, start + nbytes, rights)
