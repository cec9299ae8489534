"""Which expert slot a token goes to while experts have replicas that change ([xDeepServe] 4.5, steps 3 and 4).

There are as many slots as experts, in order, and a redundant one after them.  A change disables the redundant slot by a
map without it, loads other weights, and enables it by another map; so maps are numbered, and the odd ones have no
replica.  A token takes the replicas of its expert by turns, by its position in the batch.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def replicated(version: int, experts: int) -> int | None:
    """Return the expert with a replica by a version of the map, or None; 0 has the first one, then 1 and so on."""
    return None if version % 2 else version // 2 % experts


def slots_by_map(choices: NDArray[np.int32], version: int, experts: int) -> NDArray[np.int32]:
    """[T, top_k] slots for experts [T, top_k] that tokens chose, both INT32; -1 for a masked choice."""
    expert = replicated(version, experts)
    return slots_with(choices, range(experts), None if expert is None else (expert, experts))


def slots_with(
    choices: NDArray[np.int32], homes: Sequence[int], replica: tuple[int, int] | None
) -> NDArray[np.int32]:  # fmt: skip
    """Do the same where experts have these first slots, and one of them, if any, another slot: (expert, slot)."""
    slots = choices.copy()
    for position, row in enumerate(choices):
        for k, expert in enumerate(row):
            if expert >= 0:
                slots[position, k] = homes[expert]
                if replica and expert == replica[0] and position % 2 == 1:
                    slots[position, k] = replica[1]
    return slots


def tokens_of_experts(choices: NDArray[np.int32], experts: int) -> list[int]:
    """Count the tokens of each expert, of choices [T, top_k] INT32 ([xDeepServe] 4.5, step 1)."""
    return [int((choices == expert).sum()) for expert in range(experts)]


def hot_expert(counts: NDArray[np.int32]) -> int:
    """Return the expert that gets one replica, by tokens [slices, experts] ([xDeepServe] 4.5, step 2).

    A candidate is hottest in a slice; the load is the hottest expert's of each slice, added up, with the candidate's
    tokens split evenly.  The paper does not say which of equals: the one with more tokens, then the first.
    """
    loads = {}
    for candidate in {int(np.argmax(piece)) for piece in counts}:
        split = counts.astype(np.float64)
        split[:, candidate] /= 2
        loads[candidate] = split.max(axis=1).sum(), -int(counts[:, candidate].sum()), candidate
    return min(loads, key=loads.__getitem__)


def least_loaded(counts: NDArray[np.int32], expert: int, ranks: Sequence[int]) -> int:
    """Return the rank that gets an expert's replica, by tokens [slices, experts] and the rank of each expert.

    It is the one with the least load, the first of equals, when the expert's tokens are split evenly; each has a slot.
    """
    tokens = counts.sum(axis=0).astype(np.float64)
    tokens[expert] /= 2
    loads = np.bincount(ranks, weights=tokens)
    return int(np.argmin(loads))
