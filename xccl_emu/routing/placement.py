"""Where experts live: routed experts on the first ranks, the shared expert on the rest (xDeepServe 7.1).

Every rank has the same number of expert slots, numbered over the pod: slot ``s`` is on rank ``s // local_experts``.
Slots that no expert is placed in stay empty and receive no tokens.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xccl_emu.errors import ConfigError
from xccl_emu.routing.batches import Routing

MAX_RANKS = 768
"""Dies of the largest pod."""

ROUTED_RANKS, DEPLOYED_RANKS = 256, 288
"""The deployment whose proportion is kept: of 288 ranks 256 serve routed experts, 32 the shared expert."""


@dataclass(frozen=True, eq=False)
class Placement:
    """Slots of all experts on `n_ranks` ranks.

    Ranks 0 .. routed_ranks - 1 serve routed experts; the `shared_ranks` after them serve the shared expert, one copy
    each in their first slot. `slots` is INT32 [n_experts]: the slot of each routed expert.
    """

    n_ranks: int
    n_experts: int
    local_experts: int
    routed_ranks: int
    shared_ranks: int
    slots: NDArray[np.int32]

    @property
    def n_slots(self) -> int:
        """Slots of all ranks."""
        return self.n_ranks * self.local_experts

    def shared_slot(self, rank: int) -> int:
        """Slot of the copy of the shared expert that serves the tokens of source `rank`.

        Copies take ranks in turn. Raises ConfigError if the shared expert is not placed or `rank` is negative.
        """
        if self.shared_ranks == 0 or rank < 0:
            raise ConfigError(f"rank is {rank} and shared_ranks {self.shared_ranks}; they must be at least 0 and 1")
        return (self.routed_ranks + rank % self.shared_ranks) * self.local_experts


def place_experts(n_ranks: int, n_experts: int, shared: bool = True) -> Placement:
    """Place `n_experts` routed experts, and with `shared` the shared expert, on `n_ranks` ranks.

    With `shared`, floor(n_ranks * 256 / 288) ranks serve routed experts. Experts are spread in order: ranks that serve
    any differ by at most one, and with no more experts than ranks, expert e is on rank e. 256 experts on 288 ranks:
    one a rank, 32 copies of the shared expert. Raises ConfigError if `n_ranks` is not in 1..768 (2..768 with
    `shared`) or there are no experts.
    """
    least = 2 if shared else 1
    if not least <= n_ranks <= MAX_RANKS:
        raise ConfigError(f"n_ranks is {n_ranks}; it must be in {least}..{MAX_RANKS}")
    if n_experts < 1:
        raise ConfigError(f"n_experts is {n_experts}; it must be at least 1")
    routed_ranks = n_ranks * ROUTED_RANKS // DEPLOYED_RANKS if shared else n_ranks
    local_experts = -(-n_experts // routed_ranks)
    slots = [
        rank * local_experts + local
        for rank, experts in enumerate(np.array_split(np.arange(n_experts), routed_ranks))
        for local in range(len(experts))
    ]
    return Placement(n_ranks, n_experts, local_experts, routed_ranks, n_ranks - routed_ranks, np.array(slots, np.int32))


def place_choices(routing: Routing, placement: Placement) -> Routing:
    """The same routing with expert slots instead of expert ids, and the shared expert as one more choice.

    Masked choices stay -1. Where the shared expert is placed, each token gets it as its last choice with weight 1.
    The result's `n_experts` is the number of slots. Raises ConfigError if the routing has more experts than are
    placed.
    """
    if routing.n_experts > placement.n_experts:
        raise ConfigError(
            f"routing has {routing.n_experts} experts; the placement has {placement.n_experts} and must have as many"
        )
    slot_or_none = np.append(placement.slots, np.int32(-1))
    topk = [slot_or_none[ids] for ids in routing.topk]
    weights = list(routing.weights)
    if placement.shared_ranks:
        for rank, ids in enumerate(topk):
            slot = np.full((len(ids), 1), placement.shared_slot(rank), np.int32)
            topk[rank] = np.hstack((ids, slot))
            weights[rank] = np.hstack((weights[rank], np.ones((len(ids), 1), np.float32)))
    return Routing(tuple(topk), tuple(weights), placement.n_slots, routing.source)
