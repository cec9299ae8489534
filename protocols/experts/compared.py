"""Tokens of a mixture-of-experts layer, and how many elements of what came out are not the oracle's, bit for bit."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu import oracle
from xccl_emu.protocols.experts.buffers import Received
from xccl_emu.protocols.experts.config import DTYPES
from xccl_emu.protocols.experts.group import ExpertGroup

PerRank = Sequence[NDArray[Any]] | NDArray[Any]
"""An array for each rank."""
_SAME_NAMES = ("x", "scales", "source", "token", "choice", "counts")


def draw_tokens(ranks: int, tokens: int, hidden: int, dtype: str, seed: int) -> NDArray[Any]:
    """[ranks, tokens, hidden] normally distributed hidden states of type ``"bf16"`` or ``"fp16"``."""
    rng = np.random.default_rng((seed, 0))
    states = np.empty((ranks, tokens, hidden), DTYPES[dtype][1])
    for rank in range(ranks):
        states[rank] = rng.standard_normal((tokens, hidden), dtype=np.float32)
    return states


def wrong_rows(expected: oracle.Dispatched, rank: int, got: Received) -> int:
    """Elements of what an expert rank received (rows, scales, routes, counts) that are not the oracle's."""
    want = expected.received_by(rank)
    wrong = differ(got.slot - rank * expected.local_experts, want.expert.astype(np.int32))
    return wrong + sum(differ(getattr(got, name), getattr(want, name)) for name in _SAME_NAMES)


def wrong_sums(
    expected: oracle.Dispatched,
    source: int,
    weights: NDArray[np.float32],
    got: NDArray[Any],
    shared: bool = True,
    quantizer: str | None = None,
) -> int:
    """Elements of the outputs [T, hidden] of a source rank that are not the oracle's.

    shared: whether the last choice is the shared expert.  quantizer: rule by which expert outputs travel as INT8, if
    they do.
    """
    return differ(got, expected.combined_for(source, weights, shared=shared, quantizer=quantizer))


def count_wrong(
    group: ExpertGroup[Any], tokens: PerRank, topk: Sequence[NDArray[Any]], weights: Sequence[NDArray[np.float32]]
) -> tuple[int, int]:
    """Elements of all that the group's ranks received, and of their outputs, that are not the oracle's."""
    c = group.config
    expected = oracle.dispatch(list(tokens), topk, c.n_ranks, c.local_experts, c.quantized, quantizer=c.quantizer)
    rows = sum(wrong_rows(expected, rank, group.received(rank)) for rank in range(c.n_ranks))
    back = c.quantizer if c.quantized_back else None
    sums = (wrong_sums(expected, r, weights[r], group.output(r), c.shared, back) for r in range(c.n_ranks))
    return rows, sum(sums)


def differ(got: NDArray[Any], want: NDArray[Any]) -> int:
    """Return the number of elements that differ in a bit; all of them if the shapes do."""
    if got.shape != want.shape:
        return max(got.size, want.size, 1)
    bits = {1: np.uint8, 2: np.uint16, 4: np.uint32}[got.dtype.itemsize]
    got, want = np.ascontiguousarray(got), np.ascontiguousarray(want, got.dtype)
    return int(np.count_nonzero(got.view(bits) != want.view(bits)))
