"""Reference collectives: what every rank gets, with sums in FP32 in the order that each algorithm documents.

`values` is [ranks, shares, elements] of BF16 or FP16: what each rank has, in shares.
"""

import numpy as np
from numpy.typing import NDArray

from xccl_emu.oracle.numerics import Hidden, round_to


def by_rank(values: Hidden) -> Hidden:
    """Sums over the ranks, [ranks, elements]: from rank 0 on, in FP32, rounded once."""
    total = values[0].astype(np.float32)
    for term in values[1:]:
        total += term.astype(np.float32)
    return round_to(total, values.dtype)


def by_ring(values: Hidden) -> Hidden:
    """The same around a ring: share c from rank c + 1 on to rank c, rounded after each addition in FP32."""
    ranks, sums = len(values), []
    for c in range(ranks):
        total = values[(c + 1) % ranks, c]
        for i in range(2, ranks + 1):
            wide = total.astype(np.float32) + values[(c + i) % ranks, c].astype(np.float32)
            total = round_to(wide, values.dtype)
        sums.append(total)
    return np.stack(sums)


def by_level(values: Hidden, group: int) -> Hidden:
    """The same in two levels: over ``group`` ranks that follow each other, then over these sums."""
    return by_rank(np.stack([by_rank(values[i : i + group]) for i in range(0, len(values), group)]))


def sum_without_empty(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Sums of FP32 over the ranks, [ranks, elements]: from rank 0 on, where -0.0, which means empty, counts as +0.0."""
    there = np.where(values == 0, np.float32(0), values)
    total: NDArray[np.float32] = there[0]
    for term in there[1:]:
        total = total + term
    return total
