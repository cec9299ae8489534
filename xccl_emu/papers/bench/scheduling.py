"""Which group gets which request: pure functions of what a scheduler knows ([xDeepServe] 4.3)."""

import heapq

import numpy as np
from numpy.typing import ArrayLike, NDArray

FULL = -1


def least_used(kv_tokens: NDArray[np.int64], running: NDArray[np.int64], batch: int, capacity: int, need: int) -> int:
    """The group of decode that gets a request: of those with room, the one whose KV cache is least used.

    kv_tokens: [groups] tokens of the cache in use or reserved.  running: [groups] requests.
    batch, capacity: most requests of a group, and tokens of its cache.  need: tokens that the request may come to.
    Returns the number of the group, or FULL if none has room.
    """
    room = (running < batch) & (kv_tokens + need <= capacity)
    return int(np.where(room, kv_tokens, np.iinfo(np.int64).max).argmin()) if room.any() else FULL


def longest_first(costs: ArrayLike, groups: int) -> NDArray[np.int64]:
    """The group of prefill of each request: the most costly first, each to the group that has least so far.

    costs: [requests] what each takes, less what of its prompt is cached.  Returns [requests] groups.
    """
    given = np.asarray(costs, np.float64)
    chosen = np.zeros(len(given), np.int64)
    loads = [(0.0, group) for group in range(groups)]
    for request in np.argsort(-given, kind="stable"):
        load, group = heapq.heappop(loads)
        chosen[request] = group
        heapq.heappush(loads, (load + float(given[request]), group))
    return chosen
