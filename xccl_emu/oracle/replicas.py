"""Which expert slot a token goes to while experts have replicas that change ([xDeepServe] 4.5, steps 3 and 4).

There are as many slots as experts, in order, and a redundant one after them.  A change disables the redundant slot by a
map without it, loads other weights, and enables it by another map; so maps are numbered, and the odd ones have no
replica.  A token takes the replicas of its expert by turns, by its position in the batch.
"""

import numpy as np
from numpy.typing import NDArray


def replicated(version: int, experts: int) -> int | None:
    """Return the expert with a replica by a version of the map, or None; 0 has the first one, then 1 and so on."""
    return None if version % 2 else version // 2 % experts


def slots_by_map(choices: NDArray[np.int32], version: int, experts: int) -> NDArray[np.int32]:
    """[T, top_k] slots for experts [T, top_k] that tokens chose, both INT32; -1 for a masked choice."""
    slots = choices.copy()
    for position, row in enumerate(choices):
        for k, expert in enumerate(row):
            if expert >= 0 and expert == replicated(version, experts) and position % 2 == 1:
                slots[position, k] = experts
    return slots
