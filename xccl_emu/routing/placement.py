"""Where experts live: routed experts on the first ranks, the shared expert on the rest ([xDeepServe] 7.1).

Every rank has the same number of expert slots, numbered over the pod: slot ``s`` is on rank ``s // local_experts``.
A routed expert has one slot, or several if it has replicas; its tokens take them in turn, by their positions in their
batches ([xDeepServe] 4.5, step 4). Slots that no expert is placed in stay empty and receive no tokens.

Experts with the most load get replicas (4.5, step 2).  Loads are tokens of each expert in each of some slices of time;
all copies of an expert carry the same share of them.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.routing.batches import Routing


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
    replicas: Sequence[int],
    shares: NDArray[np.float64],
    homes: Sequence[int],
    rank_loads: ArrayLike,
    free: ArrayLike,
    apart: bool = False,
) -> list[int]:
    """The rank of each of `replicas` (experts), in their order.

    `shares` [experts] is the load of one copy, `homes` the rank of each expert's first copy, `rank_loads` what the
    ranks carry so far, `free` how many replicas they have room for. The replica with the highest load comes first, and
    goes to the rank with the least load that has room ([xDeepServe] 4.5, step 2); with `apart`, which is no rule of
    the paper's, first to one that has no other copy of it.

    Raises ConfigError if there is too little room.
    """
    carried, room = np.array(rank_loads, np.float64), np.array(free, np.int64)
    if room.sum() < len(replicas):
        raise ConfigError(f"{len(replicas)} replicas: there is room for {room.sum()}")
    holders = {expert: {homes[expert]} if apart else set() for expert in set(replicas)}
    ranks = [-1] * len(replicas)
    for i in sorted(range(len(replicas)), key=lambda i: -shares[replicas[i]]):
        expert = replicas[i]
        best = min(np.flatnonzero(room).tolist(), key=lambda rank: (rank in holders[expert], carried[rank], rank))
        ranks[i] = best
        if apart:
            holders[expert].add(best)
        carried[best] += shares[expert]
        room[best] -= 1
    return ranks


MAX_RANKS = 768
"""Dies of the largest pod."""

EXPERTS_PER_SHARED_RANK = 8
"""The deployment whose proportion is kept: of 288 ranks 256 serve routed experts, 32 the shared expert."""

_NUMBER_MAX = 1 << 16
"""Most replicas, or slots on a rank: a larger number is a mistake, and its tables would take all memory."""


def _number(name: str, value: Any, least: int) -> int:
    """The value as a Python integer; ConfigError if it is none, or out of range."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if least <= number <= _NUMBER_MAX:
        return number
    raise ConfigError(f"{name} is {value}; it must be {least} to {_NUMBER_MAX}")


@dataclass(frozen=True, eq=False)
class Redundancy:
    """How many replicas of routed experts there are, and by which loads they are chosen."""

    n_replicas: int
    loads: ArrayLike
    """Tokens of each expert: [experts], or [slices of time, experts]."""
    slots_per_rank: int = 0
    """Slots that every rank, the shared expert's too, has for replicas alone; 0: replicas are spread after the
    experts, over the ranks of routed experts, on ranks of their own where experts have one each."""
    top_k: int = 8
    """Routed experts of a token: this many choices there are for one of the shared expert."""
    apart: bool = False
    """Replicas go first to ranks that have no copy of their expert; the paper looks at loads alone."""

    def __post_init__(self) -> None:
        for name, least in (("n_replicas", 0), ("slots_per_rank", 0), ("top_k", 1)):
            object.__setattr__(self, name, _number(name, getattr(self, name), least))


@dataclass(frozen=True, eq=False)
class Placement:
    """Slots of all experts on `n_ranks` ranks.

    Ranks 0 .. routed_ranks - 1 serve routed experts; the `shared_ranks` after them serve the shared expert, one copy
    each in their first slot. `copies`: for each routed expert its slots, the first one before its replicas'.
    """

    n_ranks: int
    n_experts: int
    local_experts: int
    routed_ranks: int
    shared_ranks: int
    copies: tuple[tuple[int, ...], ...]

    @property
    def n_slots(self) -> int:
        """Slots of all ranks."""
        return self.n_ranks * self.local_experts

    @property
    def n_replicas(self) -> int:
        """Copies of routed experts beyond the first."""
        return sum(map(len, self.copies)) - self.n_experts

    @cached_property
    def slots(self) -> NDArray[np.int32]:
        """The first slot of each routed expert: INT32 [n_experts]."""
        return np.array([slots[0] for slots in self.copies], np.int32)

    @cached_property
    def held(self) -> NDArray[np.int32]:
        """The routed expert of each slot, -1 where none is: INT32 [n_slots]."""
        experts = np.full(self.n_slots, -1, np.int32)
        for expert, slots in enumerate(self.copies):
            experts[list(slots)] = expert
        return experts

    def expert_map(self, positions: int) -> NDArray[np.int32]:
        """From logical to physical experts: the slot of each routed expert, INT32 [positions, n_experts].

        A row for each position of a token in its batch; down the rows, an expert's copies take turns.
        """
        table = np.tile(self.slots, (positions, 1))
        for expert, slots in enumerate(self.copies):
            if len(slots) > 1:
                table[:, expert] = np.resize(np.array(slots, np.int32), positions)
        return table

    def without(self, rank: int) -> Self:
        """The placement on the ranks that are left when one is lost: each expert keeps at least one copy.

        Where it had them on that rank alone, it gets the last slot of the expert that has most copies left, the first
        of equals: an excess replica is removed ([xDeepServe] 6.2, stage 2).  Copies are in order of their slots.
        Raises ConfigError if too few slots are left.
        """
        copies = [sorted(slot for slot in slots if slot // self.local_experts != rank) for slots in self.copies]
        for own in copies:
            if not own:
                most = max(copies, key=len)
                if len(most) < 2:
                    raise ConfigError(f"rank {rank}: without it there are fewer slots than {self.n_experts} experts")
                own.append(most.pop())
        return replace(self, copies=tuple(map(tuple, copies)))

    def shared_slot(self, rank: int) -> int:
        """Slot of the copy of the shared expert that serves the tokens of source `rank`.

        Copies take ranks in turn. Raises ConfigError if the shared expert is not placed or `rank` is negative.
        """
        if self.shared_ranks == 0 or rank < 0:
            raise ConfigError(f"rank is {rank} and shared_ranks {self.shared_ranks}; they must be at least 0 and 1")
        return (self.routed_ranks + rank % self.shared_ranks) * self.local_experts

    def rank_loads(self, placed: Routing) -> NDArray[np.int64]:
        """Choices that fall on each rank: INT64 [n_ranks], of a routing that `place_choices` has made."""
        return np.asarray(placed.loads().reshape(self.n_ranks, self.local_experts).sum(axis=1), np.int64)


def place_experts(n_ranks: int, n_experts: int, shared: bool = True, redundancy: Redundancy | None = None) -> Placement:
    """Place `n_experts` routed experts, their replicas, and with `shared` the shared expert, on `n_ranks` ranks.

    With `shared`, there is a rank for the shared expert for every eight ranks' worth of routed experts: with E experts
    and R replicas floor(n_ranks * (E + R) / (E + R + E / 8)) ranks serve routed ones. Experts are spread in order:
    ranks that serve any differ by at most one, and with no more experts than ranks, expert e is on rank e. 256 experts
    on 288 ranks: one a rank, 32 copies of the shared expert; with 32 replicas the same on 320 ranks (CloudMatrix384
    5.1). Replicas are chosen and placed by `choose_replicas` and `assign_replicas`.

    Raises ConfigError if `n_ranks` is not in 1..768 (2..768 with `shared`), there are no experts, or the redundancy
    does not fit: loads for other experts, replicas that have no room or no use.
    """
    least = 2 if shared else 1
    if not least <= n_ranks <= MAX_RANKS:
        raise ConfigError("n_ranks", n_ranks, f"must be {least} to {MAX_RANKS}")
    if n_experts < 1:
        raise ConfigError(f"n_experts is {n_experts}; it must be at least 1")
    reserved = redundancy.slots_per_rank if redundancy else 0
    spread = n_experts + (redundancy.n_replicas if redundancy and not reserved else 0)
    routed_ranks = _routed_ranks(n_ranks, n_experts, spread) if shared else n_ranks
    local_experts = -(-spread // routed_ranks) + reserved
    copies = [
        [rank * local_experts + local]
        for rank, experts in enumerate(np.array_split(np.arange(n_experts), routed_ranks))
        for local in range(len(experts))
    ]
    empty = Placement(n_ranks, n_experts, local_experts, routed_ranks, n_ranks - routed_ranks, ())
    if redundancy:
        _place_replicas(empty, copies, redundancy)
    return Placement(n_ranks, n_experts, local_experts, routed_ranks, empty.shared_ranks, tuple(map(tuple, copies)))


def _routed_ranks(n_ranks: int, n_experts: int, spread: int) -> int:
    share = EXPERTS_PER_SHARED_RANK * spread
    return n_ranks * share // (share + n_experts)


def _place_replicas(empty: Placement, copies: list[list[int]], redundancy: Redundancy) -> None:
    """Append to each expert's slots its replicas'."""
    slices = load_slices(redundancy.loads)
    if slices.shape[1] != empty.n_experts:
        raise ConfigError(f"loads has {slices.shape[1]} experts; there are {empty.n_experts}")
    local, ranks_open = empty.local_experts, empty.n_ranks if redundancy.slots_per_rank else empty.routed_ranks
    replicas = choose_replicas(slices, redundancy.n_replicas, ranks_open).tolist()
    shares = slices.sum(axis=0) / (1 + np.bincount(replicas, minlength=empty.n_experts))
    homes = [slots[0] // local for slots in copies]
    carried = np.bincount(homes, weights=shares, minlength=empty.n_ranks)
    if empty.shared_ranks:
        carried[empty.routed_ranks :] += slices.sum() / redundancy.top_k / empty.shared_ranks
    used = np.bincount(homes, minlength=empty.n_ranks)
    used[empty.routed_ranks :] = 1  # the shared expert
    room = local - used
    if redundancy.slots_per_rank:
        room = np.minimum(room, redundancy.slots_per_rank)
    else:
        room[empty.routed_ranks :] = 0
    next_slot = np.arange(empty.n_ranks) * local + used
    for expert, rank in zip(
        replicas, assign_replicas(replicas, shares, homes, carried, room, redundancy.apart), strict=True
    ):
        copies[expert].append(int(next_slot[rank]))
        next_slot[rank] += 1


def place_choices(routing: Routing, placement: Placement) -> Routing:
    """The same routing with expert slots instead of expert ids, and the shared expert as one more choice.

    A token's position in its rank's batch decides which copy of an expert it takes (`Placement.expert_map`). Masked
    choices stay -1. Where the shared expert is placed, each token gets it as its last choice with weight 1. The
    result's `n_experts` is the number of slots. Raises ConfigError if the routing has more experts than are placed.
    """
    if routing.n_experts > placement.n_experts:
        raise ConfigError(
            f"routing has {routing.n_experts} experts; the placement has {placement.n_experts} and must have as many"
        )
    masked = np.full((max(len(ids) for ids in routing.topk), 1), -1, np.int32)
    table = np.hstack((placement.expert_map(len(masked)), masked))  # -1 is the last column
    topk = [np.take_along_axis(table[: len(ids)], ids, axis=1) for ids in routing.topk]
    weights = list(routing.weights)
    if placement.shared_ranks:
        for rank, ids in enumerate(topk):
            slot = np.full((len(ids), 1), placement.shared_slot(rank), np.int32)
            topk[rank] = np.hstack((ids, slot))
            weights[rank] = np.hstack((weights[rank], np.ones((len(ids), 1), np.float32)))
    return Routing(tuple(topk), tuple(weights), placement.n_slots, routing.source)
