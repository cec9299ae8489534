"""A case whose kernels are written in C: chunks there and back (docs/bring-your-own.md).

xccl-emu check examples/c_ping/ping.py:Ping --each-sync
xccl-emu check examples/c_ping/ping.py:Unfenced
xccl-emu bench examples/c_ping/ping.py:Ping
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from xccl_emu.lang.foreign import c_kernel
from xccl_emu.protocol import Bench, Case, Regions, payload, size

SOURCE = Path(__file__).with_name("ping.c")


@dataclass(frozen=True)
class Ping(Case):
    """Die 0 sends ``chunks`` to die 1, which sends each back before the next one comes."""

    chunks: int = size(2, "Chunks that go there and back.")
    granules: int = size(2, "Granules of 32 bytes of a chunk.")
    fenced: ClassVar[int] = 1
    """Does a fence stand between a chunk of die 0 and its tail?"""
    kernels: ClassVar = (c_kernel(SOURCE, "ping"), c_kernel(SOURCE, "pong"))

    @property
    def payload_bytes(self) -> int:
        """Bytes that go one way."""
        return 32 * self.granules * self.chunks

    def lay_out(self, bench: Bench) -> None:
        """A slot and a tail on each die, filled by the other."""
        nbytes, data, regions = 32 * self.granules, payload(self.payload_bytes, 0), Regions(2)
        slot, tail = regions.managed("slot", nbytes), regions.meta("tail")
        pod = regions.pod(bench, app_bytes=2 * data.nbytes, ub_bytes=nbytes)
        own, back = bench.filled(0, data, "data"), bench.wanted(0, data, "back", owners="die0")
        out = bench.wanted(1, data, "out", owners="die1")
        for me, buffers, more in ((0, {"own": own, "out": back}, {"fenced": self.fenced}), (1, {"out": out}, {})):
            both = {
                "mine": slot.at(me), "my_tail": tail.at(me), "theirs": slot.at(1 - me), "their_tail": tail.at(1 - me),
                "chunks": self.chunks, "nbytes": nbytes, **more,
            }  # fmt: skip
            areas = [slot.grant(me, "r"), tail.grant(me, "r"), slot.grant(1 - me, "w"), tail.grant(1 - me, "w")]
            grants = [*areas, *(pod.grant(buffer, "rw") for buffer in buffers.values())]
            at = {name: buffer.address for name, buffer in buffers.items()}
            pod.launch(self.kernels[me], me, [0], {**both, **at}, grants)


@dataclass(frozen=True)
class Unfenced(Ping):
    """No fence separates a chunk of die 0 from its tail."""

    fenced = 0
