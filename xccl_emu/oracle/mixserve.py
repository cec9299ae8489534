"""Reference for [MixServe]: plain all-to-all, all-reduce within each expert's group, plain all-to-all back.

Nothing is fused, split or overlapped. Sums are in FP32: over the ranks that share an expert, from the first on,
rounded; over a token's choices in their order, each product rounded, then rounded to the type; and where the choices of
a token are served by several groups (d_DP < d_EP), such a sum for each group, then over the groups, rounded.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from xccl_emu.oracle.collectives import by_rank
from xccl_emu.oracle.moe import expert_factors
from xccl_emu.oracle.numerics import Hidden, round_to

Chosen = NDArray[np.int64]


def rows_for(choices: Chosen, experts: range) -> Chosen:
    """Return which choices [tokens, k] are for these experts: flat numbers, by expert, then token, then choice."""
    flat = choices.ravel()
    mine = np.flatnonzero((flat >= experts.start) & (flat < experts.stop))
    return mine[np.argsort(flat[mine], kind="stable")]


def dispatched(x: Hidden, choices: Chosen, experts: range) -> Hidden:
    """Rows of one group's tokens [tokens, hidden] for these experts."""
    rows: Hidden = x[rows_for(choices, experts) // choices.shape[1]]
    return rows


def partials(rows: Hidden, experts: Chosen, ranks: int) -> Hidden:
    """Return what each of ``ranks`` ranks computes of an expert's output, [ranks, rows, hidden]: the dummy's."""
    factors = np.stack([expert_factors(experts + rank) for rank in range(ranks)])
    return round_to(rows.astype(np.float32) * factors[:, :, None], rows.dtype)


def combined(
    choices: Chosen, weights: NDArray[np.float32], experts: Sequence[Sequence[range]], outputs: Sequence[Hidden]
) -> Hidden:
    """Return what one group's tokens get back, [tokens, hidden].

    experts: for each group of ranks that serves the tokens apart from others, the ranges of its members. outputs: for
    each range, of all in turn, the partial outputs [ranks, rows, hidden] for the rows of `rows_for`.
    """
    tokens, k = choices.shape
    hidden, dtype = outputs[0].shape[-1], outputs[0].dtype
    turn, sums = iter(outputs), []
    for group in experts:
        back = np.zeros((tokens * k, hidden), dtype)
        served = np.zeros(tokens * k, bool)
        for some in group:
            mine = rows_for(choices, some)
            back[mine], served[mine] = by_rank(next(turn)), True
        total = np.zeros((tokens, hidden), np.float32)
        for choice in range(k):
            here = served.reshape(tokens, k)[:, choice]
            product = weights[here, choice, None] * back.reshape(tokens, k, hidden)[here, choice].astype(np.float32)
            total[here] += product
        sums.append(round_to(total, dtype))
    return by_rank(np.stack(sums))
