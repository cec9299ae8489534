"""A script in the style of Ascend's users: tokens to experts and back by `npu_moe_distribute_*`, in both versions."""

import os
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch_npu

from xccl_emu.base.errors import ConfigError

RANKS, HIDDEN, EXPERTS, TOPK, TOKENS = 2, 128, 4, 3, 4


def work(rank: int) -> None:
    dist.init_process_group("hccl", init_method="env://", world_size=RANKS, rank=rank)
    torch.manual_seed(rank)
    name = dist.group.WORLD._get_backend(torch.device("npu")).get_hccl_comm_name(rank)
    own = {"group_ep": name, "ep_world_size": RANKS, "ep_rank_id": rank, "moe_expert_num": EXPERTS}
    x = torch.randn((TOKENS, HIDDEN), device="npu").to(torch.bfloat16)
    expert_ids = torch.rand((TOKENS, EXPERTS), device="npu").topk(TOPK).indices.int()
    weights = torch.rand((TOKENS, TOPK), dtype=torch.float32, device="npu")
    everyone = torch.empty((RANKS, TOKENS, TOPK), dtype=torch.int32, device="npu")
    dist.all_gather_into_tensor(everyone, expert_ids)
    all_x = torch.empty((RANKS, TOKENS, HIDDEN), dtype=torch.bfloat16, device="npu")
    dist.all_gather_into_tensor(all_x, x)
    for dispatch, combine in (
        (torch_npu.npu_moe_distribute_dispatch, torch_npu.npu_moe_distribute_combine),
        (torch_npu.npu_moe_distribute_dispatch_v2, torch_npu.npu_moe_distribute_combine_v2),
    ):
        for quant_mode in (0, 2):
            recv, scales, assist, numbers, counts, *_ = dispatch(x, expert_ids, **own, quant_mode=quant_mode)
            mine = range(rank * EXPERTS // RANKS, (rank + 1) * EXPERTS // RANKS)
            assert numbers.tolist() == [int((everyone == expert).sum()) for expert in mine]
            n = int(numbers.sum())
            assert counts[-1] == n
            rows = recv[:n].float() * scales[:n, None] if quant_mode else recv[:n].float()
            sent = torch.cat([all_x[s][(everyone[s] == expert).any(1)] for expert in mine for s in range(RANKS)])
            assert torch.allclose(rows, sent.float(), atol=0.03 if quant_mode else 0)
            recv = torch.zeros_like(recv, dtype=torch.bfloat16)
            recv[:n] = rows.to(torch.bfloat16)
            out = combine(recv, expert_ids, assist, counts, weights, **own)
            assert torch.allclose(out.float(), x.float() * weights.sum(1, keepdim=True), atol=0.1, rtol=0.02)
    check_masked(own, x, expert_ids, weights)
    for wrong in ({"scales": x}, {"shared_expert_rank_num": 1}, {"tp_world_size": 2}, {"quant_mode": 1}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            torch_npu.npu_moe_distribute_dispatch_v2(x, expert_ids, **own, **wrong)
    print(f"rank {rank} passed", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def check_masked(own: dict[str, Any], x: torch.Tensor, expert_ids: torch.Tensor, weights: torch.Tensor) -> None:
    """Tokens or choices that are off go nowhere, whatever expert they name, and what comes back for none is poison."""
    mask = torch.arange(TOKENS) <= own["ep_rank_id"]  # one token of rank 0, two of rank 1
    ids = expert_ids.masked_fill(~mask[:, None], 1 << 20)
    recv, _, assist, numbers, counts, *_ = torch_npu.npu_moe_distribute_dispatch_v2(x, ids, **own, x_active_mask=mask)
    everywhere = numbers.sum()
    dist.all_reduce(everywhere)
    assert everywhere == TOPK * (1 + 2)
    out = torch_npu.npu_moe_distribute_combine_v2(recv, ids, assist, counts, weights, **own, x_active_mask=mask)
    assert torch.allclose(out[mask].float(), (x.float() * weights.sum(1, keepdim=True))[mask], atol=0.1, rtol=0.02)
    assert out[~mask].isnan().all()
    chosen = torch.rand((TOKENS, TOPK)) < 0.5
    chosen[0], chosen[1] = False, True
    ids = expert_ids.masked_fill(~chosen, 1 << 20)
    mask_of = {"x_active_mask": chosen}
    recv, _, assist, numbers, counts, *_ = torch_npu.npu_moe_distribute_dispatch_v2(x, ids, **own, **mask_of)
    everywhere = torch.stack([numbers.sum(), -chosen.sum()]).sum()
    dist.all_reduce(everywhere)
    assert everywhere == 0
    out = torch_npu.npu_moe_distribute_combine_v2(recv, ids, assist, counts, weights, **own, **mask_of)
    sums = x.float() * weights.masked_fill(~chosen, 0).sum(1, keepdim=True)
    assert torch.allclose(out.float()[chosen.any(1)], sums[chosen.any(1)], atol=0.1, rtol=0.02)
    assert out[~chosen.any(1)].isnan().all()
    for wrong, said in (
        (mask.int(), r"x_active_mask is \[4\] int32; it must be \[tokens=4\] bool"),
        (mask.tolist(), r"x_active_mask is list"),
        (mask[:2], r"x_active_mask is \[2\] bool"),
        (chosen[:, :2], r"x_active_mask of choices is \[4, 2\] bool; it must be \[tokens=4, top_k=3\]"),
        (chosen[..., None], r"x_active_mask is \[4, 3, 1\] bool"),
        (~mask, r"last_active=3, first_off=0: must have last_active < first_off"),
    ):
        with pytest.raises(ConfigError, match=said):
            torch_npu.npu_moe_distribute_dispatch_v2(x, ids, **own, x_active_mask=wrong)
        with pytest.raises(ConfigError, match=said):
            torch_npu.npu_moe_distribute_combine_v2(recv, ids, assist, counts, weights, **own, x_active_mask=wrong)


if __name__ == "__main__":
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    torch.multiprocessing.spawn(work, nprocs=RANKS)
