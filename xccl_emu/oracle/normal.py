"""DeepEP's normal mode: a token goes once to each rank that it has experts on, and what comes back is added up."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xccl_emu.oracle.numerics import round_to

Arrays = Sequence[NDArray[Any]]
"""For each rank an array with a row for each of its tokens."""


class NormalRows(NamedTuple):
    """What a rank has received, in order of the sources and their tokens."""

    x: NDArray[Any]
    source: NDArray[np.int32]
    token: NDArray[np.int32]
    experts: NDArray[np.int32]
    """[rows, choices] experts on this rank, by their number there; -1 for those on others."""
    weights: NDArray[np.float32]
    """[rows, choices] 0 for those."""


def rows_of(tokens: Arrays, topk: Arrays, weights: Arrays, rank: int, local_experts: int) -> NormalRows:
    """The rows of a rank: `tokens` [T, any], `topk` [T, choices] expert slots or -1, `weights` [T, choices] FP32."""
    rows = []
    for source, batch in enumerate(tokens):
        for token in range(len(batch)):
            slots, given = topk[source][token], weights[source][token]
            here = [slot >= 0 and slot // local_experts == rank for slot in slots]
            if any(here):
                experts = [slot % local_experts if mine else -1 for slot, mine in zip(slots, here, strict=True)]
                kept = [weight if mine else 0.0 for weight, mine in zip(given, here, strict=True)]
                rows.append((batch[token], source, token, experts, kept))
    k = topk[0].shape[1]
    return NormalRows(
        np.array([row[0] for row in rows], tokens[0].dtype).reshape(-1, tokens[0].shape[1]),
        np.array([row[1] for row in rows], np.int32),
        np.array([row[2] for row in rows], np.int32),
        np.array([row[3] for row in rows], np.int32).reshape(-1, k),
        np.array([row[4] for row in rows], np.float32).reshape(-1, k),
    )


def sums_of(
    received: Sequence[NormalRows], returned: Arrays, source: int, n_tokens: int, biases: Arrays = (),
    by_choice: bool = False,
) -> NDArray[Any]:  # fmt: skip
    """[T, hidden] what a source has in the end: for each token its biases [T, hidden] and then the rows that ranks
    return, in order of the ranks or of the last choice of each, added in FP32 from +0 on and rounded once; FP32, such
    as weights, is not."""
    acc = np.zeros((n_tokens, returned[0].shape[1]), np.float32)
    places = [
        (int(np.flatnonzero(rows.experts[i] >= 0)[-1]) if by_choice else rank, rank, i)
        for rank, rows in enumerate(received)
        for i in np.flatnonzero(rows.source == source)
    ]
    with np.errstate(over="ignore", invalid="ignore"):
        for each in biases:
            acc += each.astype(np.float32)
        for _, rank, i in sorted(places):
            acc[received[rank].token[i]] += returned[rank][i].astype(np.float32)
    return acc if returned[0].dtype == np.float32 else round_to(acc, returned[0].dtype)
