"""Layers whose attention and experts take turns on microbatches ([CloudMatrix384] 4.2.3, 4.3.2).

Attention of a turn, a layer of a microbatch, is a factor; the gate chooses experts by rank, token and turn.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from xccl_emu.oracle.moe import dispatch
from xccl_emu.oracle.numerics import Hidden, round_to


def attended(x: Hidden, turn: int) -> Hidden:
    """[T, hidden] states after attention: FP32(x) * FP32((1 + turn % 7 / 8) / 4), rounded, then to the type of x."""
    return round_to(x.astype(np.float32) * np.float32((1 + turn % 7 / 8) / 4), x.dtype)


def gated(rank: int, tokens: int, turn: int, top_k: int, experts: int) -> NDArray[np.int32]:
    """[T, top_k] experts of a rank's tokens in a turn: neighbours choose neighbours, and others in each layer."""
    first = rank + 1 + turn + turn // 2 + np.arange(tokens)
    return ((first[:, None] + np.arange(top_k)) % experts).astype(np.int32)


def layers(
    x: Sequence[Hidden], weights: Sequence[NDArray[np.float32]], turns: Sequence[int], local: int, quantizer: str | None
) -> Iterator[tuple[list[Hidden], list[NDArray[np.int32]]]]:
    """Yield what goes into dispatch in each of the turns of a microbatch: states and choices of each rank.

    x: [T, hidden] states of each rank before all layers.  weights: FP32 [T, top_k].  turns: the number of each layer's.
    local: experts of a rank.  quantizer: rule of the INT8 for the experts, or None.
    """
    states = list(x)
    for turn in turns:
        states = [attended(each, turn) for each in states]
        choices = [gated(rank, len(w), turn, w.shape[1], len(x) * local) for rank, w in enumerate(weights)]
        yield states, choices
        sent = dispatch(states, choices, len(x), local, quantizer is not None, quantizer or "xccl")
        states = [sent.combined_for(rank, each) for rank, each in enumerate(weights)]
