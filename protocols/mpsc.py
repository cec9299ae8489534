"""A ring with tickets as a case: several producers, one consumer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu.kernels.mpsc import FIELD_BYTES, Tickets, consume, produce
from xccl_emu.protocol import Bench, Call, Preset, Regions, payload, size
from xccl_emu.protocol.streams import StreamCase, Streams


@dataclass(frozen=True)
class MpscRing(StreamCase):
    """Each of ``producers`` ranks sends ``messages`` to the last rank, through one ring of ``slots``."""

    side_by_side = True
    presets: ClassVar[tuple[Preset, ...]] = (
        Preset("mpsc-ring", "Several producers, one consumer, and a ring whose slots go by tickets"),
    )

    producers: int = size(2, "Ranks that send.", most=64)
    messages: int = size(2, "Messages of each.", most=1 << 12, examples=(1, 3), each_call=True)
    slots: int = size(2, "Slots of the ring.", most=1 << 12)
    granules: int = size(1, "Granules of 32 bytes of a message.", most=128)
    seed: int = size(0, "Of the messages.", least=0, most=None)

    def sent(self, messages: int) -> NDArray[np.uint8]:
        """The messages that the producers have and the consumer gets, [producers, messages, bytes]."""
        nbytes = self.producers * messages * self._nbytes
        return payload(nbytes, self.seed).reshape(self.producers, messages, self._nbytes)

    @property
    def _nbytes(self) -> int:
        return 32 * self.granules

    @property
    def payload_bytes(self) -> int:
        """Payload of all producers in bytes."""
        return self.producers * self.messages * self._nbytes

    def lay_out_calls(self, bench: Bench, calls: Sequence[Call]) -> None:
        """Ring, tails and tickets on the consumer's die, a head on each producer's.

        The consumer takes what comes: in a call of its own it may get messages of the producers' next one.
        """
        each = [call.case.messages for call in calls if isinstance(call.case, MpscRing)]
        consumer, sent = self.producers, self.sent(sum(each))
        regions = Regions(consumer + 1)
        ring = regions.managed("slot", self._nbytes, self.slots)
        tails = regions.meta("tail", FIELD_BYTES, self.slots)
        tickets, heads = regions.meta("tickets", FIELD_BYTES), regions.meta("head", FIELD_BYTES)
        app = sent.nbytes + Streams.table_bytes(len(each), produce, consume)
        pod = regions.pod(bench, app_bytes=app, ub_bytes=self._nbytes)
        params = Tickets(
            ring.at(consumer), tails.at(consumer), tickets.at(consumer), heads.at(0).on(*range(consumer)),
            heads.at(1) - heads.at(0), self.slots, self._nbytes, self.producers, 0, 0, sum(each),
        )  # fmt: skip
        streams, out = Streams(bench, pod), bench.wanted(consumer, sent, "out", owners=f"die{consumer}")
        owns = [bench.filled(rank, sent[rank], "own") for rank in range(self.producers)]
        for number, messages in enumerate(each):
            params = params._replace(messages=messages, done=sum(each[:number]))
            for rank, own in enumerate(owns):
                args = {"own": own.address + params.done * self._nbytes, "me": rank, "r": params}
                pod.launch(produce, rank, [0], args, after=streams)
            pod.launch(consume, consumer, [0], {"out": out.address, "r": params}, after=streams)
        streams.put()
        bench.tolerates("stop", "cut", "stall")

    proof_rows: ClassVar = {
        "two producers, two slots": {},
        "one slot": dict(slots=1),
        "three producers, a message each": dict(producers=3, messages=1),
        "messages of two granules": dict(granules=2, messages=1),
    }
