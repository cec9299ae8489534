"""Drawing top-k choices whose loads are those that were asked for.

Weighted draws without replacement flatten the loads of the hottest experts. Systematic sampling does not: with the
experts in a random order, lay their inclusion probabilities end to end on [0, k) and take the experts under the k
points u, u + 1, ..., u + k - 1 with one uniform u. No interval is longer than 1, so no expert is taken twice.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xccl_emu.base.errors import ConfigError

ZIPF_EXPONENT = 0.44
"""Exponent of `skewed_loads`: of 256 experts the hottest has 6.6 times the mean load, the median over the 116 measured
layers of DeepSeek-V3, which span 2.6 to 13.4."""

# Probabilities are integers in units of 2^-40, so that k intervals fill [0, k) exactly and the k points hit k experts.
_ONE = 1 << 40
_TOKENS_PER_CHUNK = 2048


def skewed_loads(n_experts: int, seed: int) -> NDArray[np.float64]:
    """Generated loads [n_experts], positive, mean 1: the i-th hottest is proportional to i ** -ZIPF_EXPONENT.

    `seed` decides which expert is how hot. Raises ConfigError if there is no expert.
    """
    if n_experts < 1:
        raise ConfigError(f"n_experts is {n_experts}; it must be at least 1")
    loads = np.arange(1, n_experts + 1, dtype=np.float64) ** -ZIPF_EXPONENT
    return np.random.default_rng(seed).permutation(loads / loads.mean())


def inclusion_probabilities(loads: ArrayLike, k: int) -> NDArray[np.float64]:
    """Probability [experts] that a token's k choices contain each expert: k times its share of `loads`.

    An expert that would exceed 1 is in every token's choices; what it has too much goes to the other experts in
    proportion to their loads, repeated until none exceeds 1. Sums to k. `loads` are counts or any non-negative
    weights [experts]. Raises ConfigError if they are not, or if fewer than k of them are positive.
    """
    weights = np.asarray(loads, np.float64)
    if weights.ndim != 1 or not np.isfinite(weights).all() or (weights < 0).any():
        raise ConfigError(f"loads has shape {weights.shape}; it must be one finite, non-negative number per expert")
    n_positive = int((weights > 0).sum())
    if not 1 <= k <= n_positive:
        raise ConfigError(f"k is {k}; it must be in 1..{n_positive}, the number of experts with a load")
    # The sum of raw loads may overflow; a load too small compared with the largest must still count as positive.
    weights = np.where(weights > 0, np.maximum(weights / weights.max(), np.finfo(np.float64).tiny), 0.0)
    certain = np.zeros(weights.shape, bool)
    while True:
        free = np.where(certain, 0.0, weights)
        rest = k - int(certain.sum())
        probabilities: NDArray[np.float64] = np.where(certain, 1.0, free / free.sum() * rest if rest else 0.0)
        over = (probabilities >= 1) & ~certain
        if not over.any():
            return probabilities
        certain |= over


def draw_topk(loads: ArrayLike, n_tokens: int, k: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Draw k different experts for each token: INT32 [n_tokens, k].

    Each expert is included with the probability of `inclusion_probabilities` (to 2^-40), tokens are independent, and
    the order within a token is random. Raises ConfigError as `inclusion_probabilities` does, or if `n_tokens` is
    negative.
    """
    if n_tokens < 0:
        raise ConfigError(f"n_tokens is {n_tokens}; it must not be negative")
    units = _fixed_point(inclusion_probabilities(loads, k), k)
    chosen = np.empty((n_tokens, k), np.int32)
    for first in range(0, n_tokens, _TOKENS_PER_CHUNK):
        part = chosen[first : first + _TOKENS_PER_CHUNK]
        part[:] = _systematic(units, len(part), k, rng)
    return chosen


def draw_gate_weights(n_tokens: int, k: int, rng: np.random.Generator, scaling: float = 1.0) -> NDArray[np.float32]:
    """Gate weights FP32 [n_tokens, k], positive and falling along each row: a softmax of normal logits.

    Each row sums to 1 within FP32 rounding, times `scaling`. Raises ConfigError if `k` or `scaling` is not positive.
    """
    if k < 1 or n_tokens < 0:
        raise ConfigError(f"n_tokens is {n_tokens} and k is {k}; they must be at least 0 and 1")
    if not (0 < scaling < np.inf):
        raise ConfigError(f"scaling is {scaling}; it must be positive and finite")
    odds = np.exp(rng.standard_normal((n_tokens, k), dtype=np.float32))
    odds = -np.sort(-odds, axis=1)
    weights: NDArray[np.float32] = odds / odds.sum(axis=1, keepdims=True) * np.float32(scaling)
    return weights


def _fixed_point(probabilities: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    """Probabilities in units of 2^-40, none above 1, summing to exactly k: rounded down, then largest fractions up."""
    scaled = probabilities * _ONE
    units = np.minimum(np.floor(scaled), _ONE).astype(np.int64)
    missing = k * _ONE - int(units.sum())
    # Rounding of the probabilities themselves may leave a few units per expert over or missing.
    by_need = np.argsort(-(scaled - units), kind="stable")
    while missing:
        step = 1 if missing > 0 else -1
        able = by_need[(units[by_need] < _ONE) & (units[by_need] > 0)]
        taken = able[: abs(missing)]
        units[taken] += step
        missing -= step * len(taken)
    return units


def _systematic(units: NDArray[np.int64], n_tokens: int, k: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """One systematic sample per token, each over its own order of the experts: [n_tokens, k]."""
    order = rng.permuted(np.broadcast_to(np.arange(len(units)), (n_tokens, len(units))), axis=1)
    ends = np.cumsum(units[order], axis=1)
    start = rng.integers(0, _ONE, size=(n_tokens, 1))
    # Points start + j * _ONE below `end`: the expert at which this count grows lies under one of them.
    points_below = (ends - start + _ONE - 1) // _ONE
    hit = np.diff(points_below, axis=1, prepend=0) == 1
    # Along the line a long interval tends to be neither first nor last, although the order of the experts is random.
    return rng.permuted(order[hit].reshape(n_tokens, k), axis=1)
