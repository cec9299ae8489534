"""Where the rings and metadata fields of send and receive are, what the fields say, and how a payload is cut into
channels ([xDeepServe] 3.1)."""

from dataclasses import dataclass

import numpy as np

from xccl_emu.base.errors import CapacityError, ConfigError
from xccl_emu.kernels import sendrecv as device
from xccl_emu.machine.device.layout import GRANULE_BYTES
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import KIB, PodSpec
from xccl_emu.protocols.communicator import integer, offset_in_area

_SLOT_BYTES_DEFAULT = 64 * KIB
_COUNT, _WHERE = device.COUNT // 8, device.WHERE // 8
PATHS = ("mtu", "dma", "zero-copy")
"""How a payload goes: the first two through the ring."""


@dataclass(frozen=True)
class PayloadPart:
    """The part of a payload that one core of each side moves: ``nbytes`` (maybe 0) from offset ``start``."""

    start: int
    nbytes: int


def split(nbytes: int, channels: int) -> list[PayloadPart]:
    """Cut a payload into one contiguous part a channel, of whole 32-byte granules but for its end, as even as they
    allow."""
    return [part(nbytes, channels, channel) for channel in range(channels)]


def part(nbytes: int, channels: int, channel: int) -> PayloadPart:
    """Return one channel's part of what `split` cuts."""
    each, more = divmod(-(-nbytes // GRANULE_BYTES), channels)
    start, end = (min((n * each + min(n, more)) * GRANULE_BYTES, nbytes) for n in (channel, channel + 1))
    return PayloadPart(start, end - start)


@dataclass(frozen=True)
class RingLayout:
    """Addresses of a communicator's rings and fields.

    On each die, from ``field_offset`` in the metadata area: the tail fields of all source dies, then the ack fields of
    all target dies, ``channels`` fields each.  From ``managed_offset`` in the managed data area: one ring for each
    source die, ``channels`` times ``slots`` slots each.
    """

    spec: PodSpec
    slots: int
    slot_bytes: int
    channels: int
    managed_offset: int
    field_offset: int

    @classmethod
    def fit(
        cls, spec: PodSpec, slots: int, slot_bytes: int | None, channels: int, managed_offset: int, field_offset: int
    ) -> "RingLayout":
        """Check the sizes against the pod; ConfigError or CapacityError (a ConfigError) if they do not fit it."""
        slots, channels = integer("slots", slots), integer("channels_max", channels)
        managed_offset = offset_in_area("managed_offset", managed_offset)
        field_offset = offset_in_area("field_offset", field_offset)
        slot_bytes = None if slot_bytes is None else integer("slot_bytes", slot_bytes)
        if slots < 1:
            raise ConfigError("slots", slots, "must be at least 1")
        if not 1 <= channels <= spec.cores_per_die:
            raise CapacityError("channels_max", channels, f"must be 1 to {spec.cores_per_die}, the cores of a die")
        rings = f"for each of {channels} channels from each of {spec.n_dies} dies"
        bytes_each = (spec.managed_bytes - managed_offset) // (spec.n_dies * channels)
        if bytes_each < slots * GRANULE_BYTES:
            most, where = max(0, bytes_each // GRANULE_BYTES), f" from {managed_offset} on" if managed_offset else ""
            raise CapacityError("slots", slots, f"the managed area has room{where} for {most}, of 32 bytes, {rings}")
        room = bytes_each // slots
        most = room // GRANULE_BYTES * GRANULE_BYTES
        default = min(room, spec.ub_bytes // 2, _SLOT_BYTES_DEFAULT) // GRANULE_BYTES * GRANULE_BYTES
        size = default if slot_bytes is None else slot_bytes
        if size < GRANULE_BYTES or size % GRANULE_BYTES or size > most:
            raise CapacityError(
                "slot_bytes", size, f"must be a multiple of {GRANULE_BYTES} up to {most}"
                f" for rings of {slots} slots {rings}"
            )
        layout = cls(spec, slots, size, channels, managed_offset, field_offset)
        if layout.meta_end > spec.meta_bytes:
            raise CapacityError(
                "channels_max", channels, f"fields end at {layout.meta_end}, the area at {spec.meta_bytes}"
            )
        return layout

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of calls: through the data buffer only if a slot fits a half of it."""
        return PATHS if self.slot_bytes <= self.half_bytes else tuple(path for path in PATHS if path != "mtu")

    @property
    def half_bytes(self) -> int:
        """Half of a core's data buffer, in whole granules."""
        return self.spec.ub_bytes // 2 // GRANULE_BYTES * GRANULE_BYTES

    @property
    def channel_bytes(self) -> int:
        """Size of one channel's slots in a ring."""
        return self.slots * self.slot_bytes

    @property
    def fields_bytes(self) -> int:
        """Size of the fields that one die keeps for one direction of one peer."""
        return self.channels * GRANULE_BYTES

    @property
    def managed_end(self) -> int:
        """Offset in the managed data area after the last ring."""
        return self.managed_offset + self.spec.n_dies * self.channels * self.channel_bytes

    @property
    def meta_end(self) -> int:
        """Offset in the metadata area after the last field."""
        return self.field_offset + 2 * self.spec.n_dies * self.fields_bytes

    def tail(self, source: int, target: int, channel: int) -> int:
        """Global address of a channel's tail field, which is on the target die."""
        return self._field(target, source, channel)

    def ack(self, source: int, target: int, channel: int) -> int:
        """Global address of a channel's ack field, which is on the source die."""
        return self._field(source, self.spec.n_dies + target, channel)

    def ring(self, source: int, target: int, channel: int) -> int:
        """Global address of a channel's first slot, which is on the target die."""
        start = self.spec.managed_start + self.managed_offset
        return target * self.spec.die_bytes + start + (source * self.channels + channel) * self.channel_bytes

    def _field(self, die: int, row: int, channel: int) -> int:
        start = self.spec.meta_start + self.field_offset
        return die * self.spec.die_bytes + start + row * self.fields_bytes + channel * GRANULE_BYTES


class PairFields:
    """The tail and ack fields of all channels of an ordered pair of dies: two int64 arrays [channels, 4], in place."""

    def __init__(self, pod: Pod, layout: RingLayout, source: int, target: int) -> None:
        first = np.array([layout.tail(source, target, 0), layout.ack(source, target, 0)])
        self._tails, self._acks = (
            pod.span(start, layout.fields_bytes).view(np.int64).reshape(-1, 4) for start in first.tolist()
        )
        self._rings = layout.ring(source, target, 0) + np.arange(layout.channels) * layout.channel_bytes

    def counts(self, sends: bool) -> list[int]:
        """Return what a side has counted on each channel: the count in the field that it writes."""
        counts: list[int] = (self._tails if sends else self._acks)[:, _COUNT].tolist()
        return counts

    def connected(self) -> bool:
        """True if the sender knows where the slots of each channel are."""
        return np.array_equal(self._acks[:, _WHERE], self._rings)

    def at_rest(self) -> bool:
        """True if a transfer can begin: connected, and all that was sent is acknowledged."""
        return self.connected() and self.counts(True) == self.counts(False)

    def connect(self) -> None:
        """Set all counts to zero and give the sender the places of the slots."""
        self._tails[:] = self._acks[:] = 0
        self._acks[:, _WHERE] = self._rings
