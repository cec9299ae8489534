"""A ring with tickets as a case: several producers, one consumer."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu.kernels.mpsc import FIELD_BYTES, Tickets, consume, produce
from xccl_emu.protocol import Bench, Case, Preset, Regions, payload, size


@dataclass(frozen=True)
class MpscRing(Case):
    """Each of ``producers`` ranks sends ``messages`` to the last rank, through one ring of ``slots``."""

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset("mpsc-ring", "Several producers, one consumer, and a ring whose slots go by tickets"),
    )

    producers: int = size(2, "Ranks that send.", most=64)
    messages: int = size(2, "Messages of each.", most=1 << 12)
    slots: int = size(2, "Slots of the ring.", most=1 << 12)
    granules: int = size(1, "Granules of 32 bytes of a message.", most=128)
    seed: int = size(0, "Of the messages.", least=0, most=None)

    def sent(self) -> NDArray[np.uint8]:
        """What the producers have and the consumer gets, [producers, messages, bytes]."""
        nbytes = self.producers * self.messages * self._nbytes
        return payload(nbytes, self.seed).reshape(self.producers, self.messages, self._nbytes)

    @property
    def _nbytes(self) -> int:
        return 32 * self.granules

    @property
    def payload_bytes(self) -> int:
        """What is sent."""
        return self.producers * self.messages * self._nbytes

    def lay_out(self, bench: Bench) -> None:
        """Ring, tails and tickets on the consumer's die, a head on each producer's."""
        consumer, sent = self.producers, self.sent()
        regions = Regions(consumer + 1)
        ring = regions.managed("slot", self._nbytes, self.slots)
        tails = regions.meta("tail", FIELD_BYTES, self.slots)
        tickets, heads = regions.meta("tickets", FIELD_BYTES), regions.meta("head", FIELD_BYTES)
        pod = bench.pod(regions.tight_pod(app_bytes=sent.nbytes, ub_bytes=self._nbytes))
        regions.place(bench, pod)
        told = Tickets(
            ring.at(consumer), tails.at(consumer), tickets.at(consumer), heads.at(0), heads.at(1) - heads.at(0),
            self.slots, self._nbytes, self.producers, self.messages,
        )  # fmt: skip
        out = bench.wanted(consumer, sent, "out", owners=f"die{consumer}")
        for rank in range(self.producers):
            own = bench.filled(rank, sent[rank], "own")
            shared = [ring.grant(consumer, "w"), tails.grant(consumer, "w"), tickets.grant(consumer, "rw")]
            grants = [pod.grant(own, "r"), heads.grant(rank, "r"), *shared]
            pod.launch(produce, rank, [0], {"own": own.address, "me": rank, "r": told}, grants)
        grants = [pod.grant(out, "w"), ring.grant(consumer, "r"), tails.grant(consumer, "r")]
        grants += [heads.grant(rank, "w") for rank in range(self.producers)]
        pod.launch(consume, consumer, [0], {"out": out.address, "r": told}, grants)
        bench.tolerates("stop", "cut", "stall")

    @classmethod
    def proofs(cls) -> Mapping[str, Case]:
        """Slots that are used again by the same and by another producer."""
        usual = cls()
        return {
            "two producers, two slots": usual,
            "one slot": replace(usual, slots=1),
            "three producers, a message each": replace(usual, producers=3, messages=1),
            "messages of two granules": replace(usual, granules=2, messages=1),
        }
