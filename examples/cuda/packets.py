"""Two all-reduces in CUDA C++ whose data say by themselves that they are there (docs/records/cuda.md).

xccl-emu check examples/cuda/packets.py:Packets
xccl-emu check examples/cuda/packets.py:Poisoned
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from xccl_emu.doors import cuda
from xccl_emu.protocol import Bench, Case, Regions, size

RANKS_MOST, SLOTS, PACKET_BYTES = 8, 2, 16
RANKS = np.dtype([("packets", "u8", RANKS_MOST)])


@dataclass(frozen=True)
class Packets(Case):
    """Each rank gets the sum of all ranks' words, by packets with two flags."""

    ranks: int = size(2, "Ranks, each a GPU.", least=2, most=RANKS_MOST)
    threads: int = size(1, "Threads of the block of each rank.")
    packets: int = size(1, "Packets of a rank in each call.")
    calls: int = size(2, "Calls, one after the other.")
    source: ClassVar[Path] = Path(__file__).with_name("packets.cu")
    name: ClassVar[str] = "all_reduce"
    words: ClassVar[int] = 2
    """Words of 4 bytes of data in a packet."""
    fresh: ClassVar[int] = 0
    """What each word of a packet holds when the run begins."""

    def lay_out(self, bench: Bench) -> None:
        """Packets are in managed memory, which ranks have written before the first call."""
        shape = (self.ranks, self.calls, self.packets, self.words)
        data = np.arange(1, 1 + np.prod(shape), dtype=np.uint32).reshape(shape)
        nbytes = SLOTS * self.ranks * self.packets * PACKET_BYTES
        regions = Regions(self.ranks)
        packets = regions.managed("packets", nbytes)
        gpus = cuda.gpus(bench, regions, 1, self.threads, app_bytes=2 * data[0].nbytes + 64)
        each = np.zeros((), RANKS)
        for rank in range(self.ranks):
            bench.fill(packets.at(rank), np.full(nbytes // 4, self.fresh, np.uint32))
            each["packets"][rank] = packets.at(rank)
        kernel = cuda.cuda_kernel(self.source, self.name, template=str(self.ranks))
        for rank in range(self.ranks):
            own, out = bench.filled(rank, data[rank], "in"), bench.wanted(rank, data.sum(0, np.uint32), "out")
            grants = [gpus.pod.grant(own, "r"), gpus.pod.grant(out, "w"), packets.grant(None, "rw")]
            args = {
                "in": own.address, "out": out.address, "ranks": each, "rank": rank, "calls": self.calls,
                "packets": self.packets,
            }  # fmt: skip
            gpus.launch(kernel, rank, args, grants, block=self.threads)


@dataclass(frozen=True)
class Poisoned(Packets):
    """The same by a value that no data have, which each rank puts back for the next call."""

    name: ClassVar[str] = "poisoned"
    words: ClassVar[int] = 4
    fresh: ClassVar[int] = 0x80000000
