"""A layer of experts with replicas, whole or after a rank was lost ([xDeepServe] 4.5, step 4; 6.2, stage 2).

Tokens of an expert take its replicas by turns, by their positions in their batches.  A lost rank's tokens are absent,
and so are its slots.  Each expert that is left without a replica takes the last slot of one that has most of them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.oracle.moe import Dispatched, Index, dispatch, dummy_expert
from xccl_emu.oracle.numerics import Hidden

Slots = list[int]
"""The expert in each slot, -1 for none."""


def without_rank(slots: Slots, local: int, lost: int) -> Slots:
    """Return the experts of all slots when the rank is lost; its own have none."""
    left = [-1 if slot // local == lost else expert for slot, expert in enumerate(slots)]
    for expert in sorted(set(slots) - set(left) - {-1}):
        most = max(sorted(set(left) - {-1}), key=left.count)
        last = max(slot for slot, held in enumerate(left) if held == most)
        left[last] = expert
    return left


def to_slots(choices: NDArray[np.integer[Any]], slots: Slots) -> NDArray[np.int32]:
    """Slots [T, top_k] of the experts [T, top_k] that a batch has chosen, -1 for a masked choice."""
    found = np.full(choices.shape, -1, np.int32)
    for (position, k), expert in np.ndenumerate(choices):
        if expert >= 0:
            replicas = [slot for slot, held in enumerate(slots) if held == expert]
            found[position, k] = replicas[position % len(replicas)]
    return found


def dispatched(
    tokens: Sequence[Hidden], choices: Sequence[NDArray[np.integer[Any]]], slots: Slots, local: int, lost: int | None,
    quantized: bool, quantizer: str,
) -> Dispatched:  # fmt: skip
    """Return what ranks receive; tokens and experts chosen as `moe.dispatch` takes them, ``slots`` of those left."""
    there = [0 if rank == lost else len(batch) for rank, batch in enumerate(tokens)]
    kept = [batch[:n] for batch, n in zip(tokens, there, strict=True)]
    topk = [to_slots(batch[:n], slots) for batch, n in zip(choices, there, strict=True)]
    return dispatch(kept, topk, len(kept), local, quantized, quantizer)


def combined(sent: Dispatched, rank: int, weights: NDArray[np.float32], slots: Slots, quantizer: str | None) -> Hidden:
    """Outputs [T, hidden] of a rank, by the experts that the slots have; the rest is as in `combined_for`."""

    def outputs(ranks: Index, rows: Index) -> Hidden:
        made = []
        for expert_rank, row in zip(ranks.tolist(), rows.tolist(), strict=True):
            got = sent.received_by(expert_rank)
            expert = slots[expert_rank * sent.local_experts + int(got.expert[row])]
            made.append(dummy_expert(got.x[[row]], got.scales[[row]], np.array([expert]), sent.dtype))
        return np.concatenate(made)

    return sent.combined_for(rank, weights, outputs, quantizer=quantizer)
