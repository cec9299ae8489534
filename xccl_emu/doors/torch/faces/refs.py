"""``deep_ep.utils.refs``: what dispatch and combine of ElasticBuffer should give, by PyTorch alone."""

import math
from typing import Any

import torch
import torch.distributed as dist

from xccl_emu.doors.torch.faces.common import to_numpy, to_torch
from xccl_emu.doors.torch.faces.utils import get_global_seed

__all__ = ["combine", "dispatch", "generate_pre_combine_data", "ordered_accumulate"]


def dispatch(
    x: Any, topk_idx: torch.Tensor, topk_weights: torch.Tensor, num_max_tokens_per_rank: int, num_experts: int
) -> tuple[Any, ...]:
    """Tokens that have experts on this rank, by rank and token: rows, choices from 0 on or -1, weights, what number
    each token has in the batches of all ranks, and how many each rank sent.  Collective."""
    parts, local = x if isinstance(x, tuple) else (x,), num_experts // dist.get_world_size()
    of_all: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(of_all, [to_numpy(each) for each in (*parts, topk_idx, topk_weights)])
    came: list[Any] = []
    for rank, arrays in enumerate(of_all):
        *each, choices, weights = map(to_torch, arrays)
        own = choices - dist.get_rank() * local
        own = torch.where((own >= 0) & (own < local), own, -1)
        here = (own >= 0).any(1).nonzero()[:, 0]
        number = (rank * num_max_tokens_per_rank + here).int()
        came.append((*(part[here] for part in each), own[here], weights[here], number))
    *rows, choices, weights, numbers = (torch.cat(column) for column in zip(*came, strict=True))
    sent = torch.tensor([len(each[-1]) for each in came], dtype=torch.int32)
    return tuple(rows) if isinstance(x, tuple) else rows[0], choices, weights, numbers, sent


def generate_pre_combine_data(
    src_token_global_idx: torch.Tensor, num_max_tokens_per_rank: int, num_topk: int, hidden: int
) -> torch.Tensor:
    """[tokens, choices, hidden] BF16 that depends on the token's number alone, and on the seed."""
    most = dist.get_world_size() * num_max_tokens_per_rank * num_topk
    number = src_token_global_idx.long()[:, None] * num_topk + torch.arange(num_topk)
    step = ((number * 131071 % most).double() + 1) / most
    columns = torch.arange(1, hidden + 1, dtype=torch.float64)
    return torch.sin(step[:, :, None] * columns + math.sin(get_global_seed())).bfloat16()


def ordered_accumulate(data: torch.Tensor, initial_value: torch.Tensor | None = None) -> torch.Tensor:
    """[tokens, hidden] the sum over choices, one after the other in FP32, rounded once."""
    shape = data.size(0), data.size(2)
    total = torch.zeros(shape, dtype=torch.float32) if initial_value is None else initial_value.clone()
    for i in range(data.size(1)):
        total += data[:, i].float()
    return total.to(data.dtype)


def combine(
    y: torch.Tensor, topk_idx: torch.Tensor, num_scaleout_ranks: int, num_scaleup_ranks: int, num_experts: int,
    bias: Any, reduce_in_local: bool, reduce_in_scaleup: bool,
) -> torch.Tensor:  # fmt: skip
    """[tokens, hidden] sums of [tokens, choices, hidden], rounded within a rank, and within a node, if that is said."""
    local = num_experts // (num_scaleout_ranks * num_scaleup_ranks)
    for wanted, experts in ((reduce_in_local, local), (reduce_in_scaleup, local * num_scaleup_ranks)):
        if wanted:
            y = _in_groups(y, topk_idx // experts)
    several = bias if isinstance(bias, tuple) else (bias,)
    return ordered_accumulate(y, None if bias is None else torch.stack([each.float() for each in several]).sum(0))


def _in_groups(y: torch.Tensor, group: torch.Tensor) -> torch.Tensor:
    """The sum of each group of choices in place of its last one, and zeros in place of the others."""
    out = torch.zeros_like(y)
    for i in range(y.size(1)):
        same = group == group[:, i : i + 1]
        total = ordered_accumulate(torch.where(same[:, :, None], y, 0)[:, : i + 1])
        out[:, i] = torch.where(same[:, i + 1 :].any(1)[:, None], 0, total)
    return out
