"""A script in the style of DeepEP's users: normal mode, with choices and without, from a handle, in BF16 and FP8.

Weights that combine is given are not those that came; it adds none, one and two biases.
"""

import deep_ep
import torch
import torch.distributed as dist
from deep_ep.utils.envs import init_dist
from deep_ep.utils.math import calc_diff, per_token_cast_back, per_token_cast_to_fp8

RANKS, HIDDEN, EXPERTS, TOPK = 2, 128, 4, 3


def work(rank: int) -> None:
    rank, size, group = init_dist(rank, RANKS)
    buffer, tokens = deep_ep.Buffer(group, 1 << 20), 3 - rank
    x = torch.randn((tokens, HIDDEN), dtype=torch.bfloat16, device="cuda")
    topk_idx = torch.rand((tokens, EXPERTS), device="cuda").topk(TOPK).indices
    topk_idx[0, 0] = -1
    weights = torch.rand((tokens, TOPK), dtype=torch.float32, device="cuda").masked_fill(topk_idx < 0, 0)
    per_rank, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(topk_idx, EXPERTS)
    everywhere = per_expert.clone()
    dist.all_reduce(everywhere)
    where = {"num_tokens_per_rank": per_rank, "is_token_in_rank": in_rank, "num_tokens_per_expert": per_expert}
    for data in (x, per_token_cast_to_fp8(x)):
        for chosen in ({}, {"topk_idx": topk_idx, "topk_weights": weights}):
            recv, recv_idx, recv_weights, numbers, handle, _ = buffer.dispatch(data, **where, **chosen)
            assert numbers == everywhere.view(size, -1)[rank].tolist()
            again = buffer.dispatch(data, handle=handle)[0]
            whole = buffer.dispatch(data, **where, **chosen, num_worst_tokens=6)[0]
            rows, again, whole = (per_token_cast_back(*r) if isinstance(r, tuple) else r for r in (recv, again, whole))
            assert torch.equal(rows, again)
            assert torch.equal(rows, whole[: len(rows)])
            given = recv_weights if recv_weights is None else recv_weights + rank + 1
            out, out_weights, _ = buffer.combine(rows, handle, topk_weights=given)
            sums = weights + (in_rank * torch.arange(1, size + 1)).sum(1, keepdim=True)
            assert calc_diff(out, x * in_rank.sum(1, keepdim=True)) < (1e-3 if isinstance(recv, tuple) else 5e-6)
            bias = [torch.randn((tokens, HIDDEN), dtype=torch.bfloat16, device="cuda") for _ in range(2)]
            mine = per_token_cast_back(*data) if isinstance(data, tuple) else data
            for begin in (bias[0], tuple(bias)):
                total = sum(each.float() for each in (begin if isinstance(begin, tuple) else (begin,)))
                for home in range(size):
                    total += torch.where(in_rank[:, home, None], mine, 0)
                out = buffer.combine(rows, handle, topk_weights=given, bias=begin)[0]
                assert torch.equal(out, total.bfloat16())
            assert not chosen or (recv_idx.max() == EXPERTS // RANKS - 1 and torch.allclose(out_weights, sums))
    print(f"rank {rank} passed", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(work, nprocs=RANKS)
