"""A case whose kernel is written in CUDA C++: a one-shot all-reduce (docs/bring-your-own.md).

xccl-emu check examples/cuda/all_reduce.py:AllReduce --each-sync
xccl-emu check examples/cuda/all_reduce.py:Relaxed
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from xccl_emu.doors import cuda
from xccl_emu.protocol import Bench, Case, Regions, size

SOURCE = Path(__file__).with_name("all_reduce.cu")
RANKS_MOST = 8
SIGNALS = np.dtype([("arrived", "u4", RANKS_MOST)])
RANKS = np.dtype([("signals", "u8", RANKS_MOST), ("buffers", "u8", RANKS_MOST)])


@dataclass(frozen=True)
class AllReduce(Case):
    """Each rank gets the sum of all ranks' elements."""

    ranks: int = size(2, "Ranks, each a GPU.", least=2, most=RANKS_MOST)
    threads: int = size(2, "Threads of the block of each rank.", least=2)
    elements: int = size(2, "Elements of a rank.")
    source: ClassVar[Path] = SOURCE
    defines: ClassVar[Mapping[str, str]] = {}

    def lay_out(self, bench: Bench) -> None:
        """Signals are flags, buffers hold what a rank has put in."""
        data = np.arange(1, 1 + self.ranks * self.elements, dtype=np.float32).reshape(self.ranks, self.elements)
        regions = Regions(self.ranks)
        signals = regions.meta("signals", SIGNALS.itemsize)
        buffers = regions.managed("buffer", data[0].nbytes)
        gpus = cuda.gpus(bench, regions, 1, self.threads, app_bytes=2 * data[0].nbytes + 64)
        each = np.zeros((), RANKS)
        for rank in range(self.ranks):
            each["signals"][rank], each["buffers"][rank] = signals.at(rank), buffers.at(rank)
        kernel = cuda.cuda_kernel(self.source, "all_reduce", template=str(self.ranks), defines=self.defines)
        total = data[0].copy()
        for row in data[1:]:
            total += row
        for rank in range(self.ranks):
            own = bench.filled(rank, data[rank], "in")
            out = bench.wanted(rank, total, "out")
            args = {
                "in": own.address, "buffer": buffers.at(rank), "out": out.address, "ranks": each, "rank": rank,
                "call": 1, "elements": self.elements,
            }  # fmt: skip
            pod = gpus.pod
            grants = [pod.grant(own, "r"), pod.grant(out, "w"), signals.grant(None, "rw"), buffers.grant(None, "rw")]
            gpus.launch(kernel, rank, args, grants, block=self.threads)


@dataclass(frozen=True)
class Relaxed(AllReduce):
    """The flag is written without a release: what the block has put in may become visible after it."""

    defines: ClassVar[Mapping[str, str]] = {"RELEASE": '"st.relaxed.sys.global.u32"'}
