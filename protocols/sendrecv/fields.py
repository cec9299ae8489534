"""What the metadata fields of a pair say: how much has passed on each of its channels ([xDeepServe] 3.1)."""

import numpy as np

from xccl_emu.kernels import sendrecv as device
from xccl_emu.machine.pod import Pod
from xccl_emu.protocols.sendrecv.rings import RingLayout

_COUNT, _WHERE = device.COUNT // 8, device.WHERE // 8


class PairFields:
    """The tail and ack fields of all channels of an ordered pair of dies: two int64 arrays [channels, 4], in place."""

    def __init__(self, pod: Pod, layout: RingLayout, source: int, target: int) -> None:
        first = np.array([layout.tail(source, target, 0), layout.ack(source, target, 0)])
        self._tails, self._acks = (
            pod.span(start, layout.fields_bytes).view(np.int64).reshape(-1, 4) for start in first.tolist()
        )
        self._rings = layout.ring(source, target, 0) + np.arange(layout.channels) * layout.channel_bytes

    def counts(self, sends: bool) -> list[int]:
        """What a side has counted on each channel: the count in the field that it writes."""
        counts: list[int] = (self._tails if sends else self._acks)[:, _COUNT].tolist()
        return counts

    def connected(self) -> bool:
        """Whether the sender knows where the slots of each channel are."""
        return np.array_equal(self._acks[:, _WHERE], self._rings)

    def at_rest(self) -> bool:
        """Whether a transfer can begin: connected, and all that was sent is acknowledged."""
        return self.connected() and self.counts(True) == self.counts(False)

    def connect(self) -> None:
        """Set all counts to zero and tell the sender where the slots are."""
        self._tails[:] = self._acks[:] = 0
        self._acks[:, _WHERE] = self._rings
