"""What a run did, in numbers."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xccl_emu.lang.requests import OPERATIONS, VECTOR
from xccl_emu.machine import layout as at

PIPE_NAMES = ("scalar", "mtu-in", "vector", "mtu-out", "dma")


@dataclass(frozen=True)
class RunStats:
    """What a run did."""

    seconds: float
    actions: int
    instructions: dict[str, int]
    """Granted requests by operation."""
    bytes_by_pipe: dict[str, int]
    """Bytes that went through mtu-in, mtu-out and dma, and those of scalar loads, stores and atomics (not of polls)."""
    vector_elements: int
    """Elements that the vector pipe worked on."""


def statistics(st: NDArray[np.int64], seconds: float) -> RunStats:
    """What the counters of a state array say about the run that is over."""
    counts = {name: int(st[at.COUNT_BY_OP + i]) for i, name in enumerate(OPERATIONS)}
    return RunStats(
        seconds,
        int(st[at.ACTIONS]),
        {name: count for name, count in counts.items() if count},
        {name: int(st[at.BYTES_BY_PIPE + i]) for i, name in enumerate(PIPE_NAMES) if i != VECTOR},
        int(st[at.BYTES_BY_PIPE + VECTOR]),
    )
