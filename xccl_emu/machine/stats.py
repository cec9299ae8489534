"""What a run did, in numbers."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base import words as w
from xccl_emu.machine.device import layout as ms

PIPE_NAMES = ("scalar", "mtu-in", "vector", "mtu-out", "dma")


@dataclass(frozen=True)
class RunStats(w.Printed):
    """What a run did."""

    RECORD = "Stats"
    seconds: w.Seconds
    actions: Annotated[int, "actions of the machine"]
    instructions: Annotated[dict[str, int], "granted requests by operation"]
    bytes_by_pipe: Annotated[dict[str, int], "bytes that each pipe moved"]
    """Bytes that went through mtu-in, mtu-out and dma, and bytes of scalar loads, stores and atomics (not of polls)."""
    vector_elements: Annotated[int, "elements that the vector pipe worked on"]

    @property
    def copied_bytes(self) -> int:
        """Return the bytes that instructions copied, those that the DMA engine read and those that it wrote."""
        moved = self.bytes_by_pipe
        return moved["mtu-in"] + moved["mtu-out"] + 2 * moved["dma"]


@dataclass(frozen=True, eq=False)
class DieTraffic:
    """What the cores of each die asked of the memory of other dies in a run: INT64 [n_homes] each.

    Requests that were granted, on the die whose core made them; a DMA may be a read, a write, or both. Polls do not
    count.
    """

    writes: NDArray[np.int64]
    """By mtu-out and DMA."""
    flags: NDArray[np.int64]
    """Writes of at most a granule: put, add, scalar store, atomic add."""
    reads: NDArray[np.int64]
    """By mtu-in, DMA and scalar load."""
    write_bytes: NDArray[np.int64]
    """Bytes of writes and flags."""
    read_bytes: NDArray[np.int64]
    dies_written: NDArray[np.int64]
    """Different dies that were written to, flags included."""
    dies_read: NDArray[np.int64]


def traffic_of(counters: NDArray[np.int64]) -> DieTraffic:
    """Return what the counters say, [n_homes, words] of `layout`."""
    masks = np.ascontiguousarray(counters[:, ms.TRAFFIC_MASKS :]).view(np.uint8)
    written, read = np.split(np.unpackbits(masks, axis=1).astype(np.int64), 2, axis=1)
    return DieTraffic(
        writes=counters[:, ms.TRAFFIC_WRITES].copy(),
        flags=counters[:, ms.TRAFFIC_FLAGS].copy(),
        reads=counters[:, ms.TRAFFIC_READS].copy(),
        write_bytes=counters[:, ms.TRAFFIC_WRITE_BYTES].copy(),
        read_bytes=counters[:, ms.TRAFFIC_READ_BYTES].copy(),
        dies_written=written.sum(axis=1),
        dies_read=read.sum(axis=1),
    )
