"""A case whose kernels are written in Ascend C: a message from one die to the next (docs/bring-your-own.md).

xccl-emu check examples/ascendc/sendrecv.py:Message --each-sync
xccl-emu check examples/ascendc/sendrecv.py:NoBarrier
xccl-emu check examples/ascendc/sendrecv.py:NoDsb
xccl-emu bench examples/ascendc/sendrecv.py:Message
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from xccl_emu.doors import ascendc
from xccl_emu.protocol import Bench, Case, Regions, size

SOURCE = Path(__file__).with_name("sendrecv.cpp")


@dataclass(frozen=True)
class Message(Case):
    """Die 0 sends a message to die 1; each adds one to every element."""

    chunks: int = size(2, "Chunks of the message.")
    blocks: int = size(1, "Blocks of 8 elements of a chunk.")
    defines: ClassVar[Mapping[str, int]] = {}

    def kernel(self, name: str) -> ascendc.AscendKernel:
        """A kernel of the source."""
        return ascendc.ascend_kernel(SOURCE, name, defines=self.defines)

    @property
    def elements(self) -> int:
        """Elements of a chunk."""
        return 8 * self.blocks

    @property
    def payload_bytes(self) -> int:
        """Bytes of the message."""
        return 4 * self.chunks * self.elements

    def lay_out(self, bench: Bench) -> None:
        """Slots and a tail on die 1, written by die 0."""
        data = np.arange(1, self.chunks * self.elements + 1, dtype=np.float32)
        regions = Regions(2)
        slots, tail = regions.managed("slots", data.nbytes), regions.meta("tail")
        pod = bench.pod(regions.tight_pod(app_bytes=2 * data.nbytes + 64, ub_bytes=4 * 4 * self.elements))
        regions.place(bench, pod)
        own = bench.filled(0, data, "own")
        out = bench.wanted(1, data + 2, "out", owners="die1")
        tiling = ascendc.Tiling("MessageTiling", {"chunks": self.chunks, "chunkElements": self.elements})
        there = {"slots": slots.at(1), "tail": tail.at(1)}
        ascendc.launch(
            bench, pod, self.kernel("send"), 0, [0], {"own": own.address, **there},
            [pod.grant(own, "r"), slots.grant(1, "w"), tail.grant(1, "w")], tiling,
        )  # fmt: skip
        ascendc.launch(
            bench, pod, self.kernel("receive"), 1, [0], {"out": out.address, **there},
            [pod.grant(out, "w"), slots.grant(1, "r"), tail.grant(1, "r")], tiling,
        )  # fmt: skip


@dataclass(frozen=True)
class NoBarrier(Message):
    """The tail is written while the chunk may be on its way."""

    defines: ClassVar[Mapping[str, int]] = {"NO_BARRIER": 1}


@dataclass(frozen=True)
class NoDsb(Message):
    """The barrier alone is between chunk and tail: right if it waits until the chunk is visible."""

    defines: ClassVar[Mapping[str, int]] = {"NO_DSB": 1}
