"""``deep_ep.utils.gate``: scores of experts by which rank 0 gets more tokens than the others do."""

import functools

import torch

from xccl_emu.doors.torch.faces.common import refuse

__all__ = ["get_unbalanced_scores"]
_HIGH, _HALVINGS = 0.9, 20


def get_unbalanced_scores(
    num_tokens: int, num_experts: int, num_ranks: int, num_topk: int, ratio: float, precise: bool
) -> torch.Tensor:
    """[tokens, experts] FP32 scores, whose ``num_topk`` largest bring rank 0 ``ratio`` times the tokens of another.

    precise: all others get the same number, but for rounding, from choices that no gate makes; else so on average.
    ConfigError for a ratio that cannot be.
    """
    if precise:
        return _precise(num_tokens, num_experts, num_ranks, num_topk, ratio)
    scores = torch.rand(num_tokens, num_experts, dtype=torch.float32)
    scores[:, : num_experts // num_ranks] *= _factor(num_tokens, num_experts, num_ranks, num_topk, ratio)
    return scores


@functools.cache
def _factor(tokens: int, experts: int, ranks: int, top_k: int, ratio: float) -> float:
    """Return how much larger scores of rank 0 are; from scores of its own, which no seed of a script changes."""
    local, generator = experts // ranks, torch.Generator().manual_seed(0)
    first, others = torch.rand(tokens, experts, dtype=torch.float32, generator=generator).tensor_split([local], 1)
    low, high = 1.0, 100.0 if ratio > 1 else 1.0
    for _ in range(_HALVINGS if ratio > 1 else 0):
        middle = (low + high) / 2
        met = _met(torch.cat([middle * first, others], 1).topk(top_k).indices, experts, ranks).sum(0).float()
        low, high = (low, middle) if met[0] > ratio * met[1:].mean() else (middle, high)
    return low


def _met(chosen: torch.Tensor, experts: int, ranks: int) -> torch.Tensor:
    """[tokens, ranks] which ranks have experts that a token chooses, bool."""
    return torch.zeros(len(chosen), ranks, dtype=torch.bool).scatter_(1, chosen // (experts // ranks), True)


def _precise(tokens: int, experts: int, ranks: int, top_k: int, ratio: float) -> torch.Tensor:
    """Scores that are high for as many ranks of a token as by chance, all others than rank 0 taking turns."""
    local, others = experts // ranks, ranks - 1
    drawn = torch.rand(tokens, experts, dtype=torch.float32).topk(top_k).indices
    met = _met(drawn, experts, ranks).sum(1).clamp(max=int(others / ratio) + 1)
    has_first = met == ranks
    more = round(int(met.sum()) / (others + ratio) * ratio) - int(has_first.sum())
    free = (~has_first).nonzero()[:, 0]
    has_first[free[torch.randperm(len(free))[: max(0, more)]]] = True
    rest = met - has_first.int()
    turn = torch.arange(others) + (rest.cumsum(0) - rest)[:, None]
    at = torch.cat([has_first[:, None], torch.zeros(tokens, others, dtype=torch.bool)], 1)
    order = torch.randperm(others) + 1
    at.scatter_(1, order[turn % others], torch.arange(others) < rest[:, None])
    place = at.cumsum(1) - 1  # of a rank among the ranks of its token, which share the choices
    each = torch.where(at, top_k // met[:, None] + (place < top_k % met[:, None]), 0)
    refuse(ratio=(int(each.max()) > local and ratio, "must leave each token as many experts as it chooses"))
    chosen, few = torch.zeros(tokens, ranks, local, dtype=torch.bool), each[at]
    chosen[at] = torch.rand(len(few), local, dtype=torch.float32).argsort(1).argsort(1) < few[:, None]
    scores = torch.rand(tokens, experts, dtype=torch.float32)
    return torch.where(chosen.view(tokens, experts), _HIGH + 1e-6 + (1 - _HIGH) * scores, _HIGH * scores)
