"""An all-gather on a ring, its kernel in Ascend C; `examples/ring_all_gather.py` is the same in Python.

xccl-emu check examples/ascendc/ring.py:Ring --each-sync
xccl-emu trace examples/ascendc/ring.py:Ring
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xccl_emu.doors import ascendc
from xccl_emu.protocol import Bench, Case, Regions, size

SOURCE = Path(__file__).with_name("ring.cpp")


@dataclass(frozen=True)
class Ring(Case):
    """Each die gets the chunks of all, through an inbox that its left neighbour fills."""

    dies: int = size(3, "Dies of the ring.", least=2)
    slots: int = size(1, "Slots of an inbox.")
    blocks: int = size(1, "Blocks of 8 elements of a chunk.")

    @property
    def payload_bytes(self) -> int:
        """Bytes that each die gets from the others."""
        return 32 * self.blocks * (self.dies - 1)

    def lay_out(self, bench: Bench) -> None:
        """Inboxes and two counters on each die."""
        kernel, elements = ascendc.ascend_kernel(SOURCE, "all_gather"), 8 * self.blocks
        chunks = np.arange(1, self.dies * elements + 1, dtype=np.float32).reshape(self.dies, -1)
        regions = Regions(self.dies)
        inbox = regions.managed("inbox", 4 * elements, self.slots)
        tail, ack = regions.meta("tail"), regions.meta("ack")
        pod = bench.pod(regions.tight_pod(app_bytes=chunks.nbytes + 4 * elements + 64, ub_bytes=4 * elements))
        regions.place(bench, pod)
        for me in range(self.dies):
            left, right = (me - 1) % self.dies, (me + 1) % self.dies
            own, out = bench.filled(me, chunks[me], "chunk"), bench.wanted(me, chunks, "gathered", owners=f"die{me}")
            tiling = {"me": me, "dies": self.dies, "slots": self.slots, "chunkElements": elements}
            here = {"inbox": inbox.at(me), "tail": tail.at(me), "ack": ack.at(me)}
            there = {"rightInbox": inbox.at(right), "rightTail": tail.at(right), "leftAck": ack.at(left)}
            grants = [
                pod.grant(own, "r"), pod.grant(out, "w"), inbox.grant(me, "r"), tail.grant(me, "r"), ack.grant(me, "r"),
                inbox.grant(right, "w"), tail.grant(right, "w"), ack.grant(left, "w"),
            ]  # fmt: skip
            ascendc.launch(
                bench, pod, kernel, me, [0], {"own": own.address, "out": out.address, **here, **there}, grants,
                ascendc.Tiling("RingTiling", tiling),
            )  # fmt: skip
