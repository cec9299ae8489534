"""Which experts get replicas, and on which ranks ([xDeepServe] 4.5, step 2).

Loads are tokens of each expert in each of some slices of time; all copies of an expert carry the same share of them.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xccl_emu.base.errors import ConfigError


def load_slices(loads: ArrayLike) -> NDArray[np.float64]:
    """Loads as FP64 [slices, experts], of [experts] or [slices, experts]; ConfigError if they are no such numbers."""
    slices = np.atleast_2d(np.asarray(loads, np.float64))
    if slices.ndim != 2 or slices.size == 0 or not np.isfinite(slices).all() or (slices < 0).any():
        raise ConfigError(f"loads has shape {np.shape(loads)}; it must be finite, non-negative, [slices, experts]")
    return slices


def choose_replicas(loads: ArrayLike, n_replicas: int, copies_max: int) -> NDArray[np.int64]:
    """The expert that each replica is one of: INT64 [n_replicas], in the order in which they were chosen.

    `loads`: [experts] or [slices, experts]. The load to bring down is the hottest expert's, summed over the
    slices. Candidates are the experts that are hottest in some slice; one replica of each is tried, with the load split
    evenly, and the one that brings it down most is kept (of equals the one with more load, then the first). An expert
    with `copies_max` copies, its first one included, is no candidate.

    Raises ConfigError for loads that are none, or more replicas than all experts together may have.
    """
    slices = load_slices(loads)
    n_experts = slices.shape[1]
    if not 0 <= n_replicas <= n_experts * (copies_max - 1):
        raise ConfigError(
            f"n_replicas is {n_replicas}; it must be in 0..{n_experts * (copies_max - 1)}: "
            f"{n_experts} experts with up to {copies_max} copies"
        )
    copies = np.ones(n_experts, np.int64)
    chosen = np.empty(n_replicas, np.int64)
    for i in range(n_replicas):
        chosen[i] = _next_replica(slices, copies, copies_max)
        copies[chosen[i]] += 1
    return chosen


def _next_replica(slices: NDArray[np.float64], copies: NDArray[np.int64], copies_max: int) -> int:
    shares = slices / copies
    open_ = copies < copies_max
    hottest = np.unique(np.where(open_, shares, -1.0).argmax(axis=1))

    def load_with(expert: int) -> float:
        split = shares.copy()
        split[:, expert] = slices[:, expert] / (copies[expert] + 1)
        return float(split.max(axis=1).sum())

    return int(min(hottest, key=lambda e: (load_with(int(e)), -shares[:, e].sum(), e)))


def assign_replicas(
    replicas: Sequence[int], shares: NDArray[np.float64], homes: Sequence[int], rank_loads: ArrayLike, free: ArrayLike
) -> list[int]:
    """The rank of each of `replicas` (experts), in their order.

    `shares` [experts] is the load of one copy, `homes` the rank of each expert's first copy, `rank_loads` what the
    ranks carry so far, `free` how many replicas they have room for. The replica with the highest load comes first, and
    goes to the rank with the least load that has room, if possible to one that has no other copy of it.

    Raises ConfigError if there is too little room.
    """
    carried, room = np.array(rank_loads, np.float64), np.array(free, np.int64)
    if room.sum() < len(replicas):
        raise ConfigError(f"{len(replicas)} replicas: there is room for {room.sum()}")
    holders = {expert: {homes[expert]} for expert in set(replicas)}
    ranks = [-1] * len(replicas)
    for i in sorted(range(len(replicas)), key=lambda i: -shares[replicas[i]]):
        expert = replicas[i]
        best = _least_loaded(np.flatnonzero(room).tolist(), carried, holders[expert])
        ranks[i] = best
        holders[expert].add(best)
        carried[best] += shares[expert]
        room[best] -= 1
    return ranks


def _least_loaded(ranks: list[int], carried: NDArray[np.float64], holders: set[int]) -> int:
    return min(ranks, key=lambda rank: (rank in holders, carried[rank], rank))
