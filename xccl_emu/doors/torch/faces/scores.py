"""``deep_ep.utils.gate``: scores of experts by which rank 0 gets more tokens than the others do."""

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
    low, high = 1.0, 100.0 if ratio > 1 else 1.0
    for _ in range(_HALVINGS if ratio > 1 else 0):
        middle = (low + high) / 2
        chosen = _drawn(num_tokens, num_experts, num_ranks, middle).topk(num_topk).indices // (num_experts // num_ranks)
        tokens = torch.stack([(chosen == rank).any(1).sum() for rank in range(num_ranks)]).float()
        low, high = (low, middle) if tokens[0] > ratio * tokens[1:].mean() else (middle, high)
    return _drawn(num_tokens, num_experts, num_ranks, low)


def _drawn(tokens: int, experts: int, ranks: int, factor: float) -> torch.Tensor:
    """Scores up to 1, and of rank 0 up to ``factor``."""
    scores = torch.rand(tokens, experts, dtype=torch.float32)
    scores[:, : experts // ranks] *= factor
    return scores


def _precise(tokens: int, experts: int, ranks: int, top_k: int, ratio: float) -> torch.Tensor:
    """Scores that are high for as many ranks of a token as by chance, all others than rank 0 taking turns."""
    local, others = experts // ranks, ranks - 1
    drawn = torch.rand(tokens, experts, dtype=torch.float32).topk(top_k).indices // local
    met = torch.stack([(drawn == rank).any(1) for rank in range(ranks)], 1).sum(1).clamp(max=int(others / ratio) + 1)
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
    drawn_again = torch.rand(tokens, ranks, local, dtype=torch.float32)
    chosen = (drawn_again.argsort(2).argsort(2) < each[:, :, None]).view(tokens, experts)
    scores = torch.rand(tokens, experts, dtype=torch.float32)
    return torch.where(chosen, _HIGH + 1e-6 + (1 - _HIGH) * scores, _HIGH * scores)
