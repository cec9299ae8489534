"""A script for the Buffer of Mooncake EP: rows come back as they were, also after a rank has made its Buffer again."""

import os

import mooncake.pg
import pytest
import torch
import torch.distributed as dist
from mooncake.mooncake_ep_buffer import Buffer

from xccl_emu.base.errors import ConfigError

TOKENS, HIDDEN, TOPK, EXPERTS = 4, 512, 2, 4


def check(buffer: Buffer, rank: int) -> None:
    """A layer of experts that change nothing, in each way; and a call without a rank, which no rank makes."""
    draws = torch.Generator().manual_seed(rank)
    x = torch.randint(-8, 8, (TOKENS, HIDDEN), generator=draws).bfloat16()  # exact in e4m3, scaled by powers of two
    x[:, ::128] = 448.0
    topk = torch.rand((TOKENS, EXPERTS), generator=draws, dtype=torch.float32).topk(TOPK).indices
    active, weights = mooncake.pg.get_active_ranks(buffer.group), torch.full((TOKENS, TOPK), 0.5, dtype=torch.float32)
    for use_fp8, hooked, zero_copy in ((False, False, True), (True, True, False)):
        recv, count, handle, event, hook = buffer.dispatch(
            x, topk, active, TOKENS, EXPERTS, -1, use_fp8=use_fp8, async_finish=not hooked, return_recv_hook=hooked
        )
        hook() if hooked else event.current_stream_wait()
        rows = recv[0].bfloat16() * recv[1].bfloat16().repeat_interleave(128, 2) if use_fp8 else recv
        assert len(count) == EXPERTS // 2
        if zero_copy:
            buffer.get_next_combine_buffer(handle)[:] = rows
        out, event, hook = buffer.combine(
            rows, topk, weights, active, -1, handle, zero_copy=zero_copy, async_finish=not hooked,
            return_recv_hook=hooked,
        )  # fmt: skip
        hook() if hooked else event.current_stream_wait()
        assert torch.equal(out, x)
    with pytest.raises(ConfigError, match="active_ranks"):
        buffer.dispatch(x, topk, torch.tensor([1, 0], dtype=torch.int32), TOKENS, EXPERTS, 1000)


def main(rank: int) -> None:
    torch.cuda.set_device(rank)
    where = f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}"
    dist.init_process_group("mooncake", init_method=where, world_size=2, rank=rank)
    group = dist.new_group([0, 1])
    size = Buffer.get_ep_buffer_size_hint(TOKENS, HIDDEN, 2, EXPERTS)
    buffer = Buffer(group, num_ep_buffer_bytes=size)
    check(buffer, rank)
    if rank:
        buffer = Buffer(group, num_ep_buffer_bytes=size)
    else:
        buffer.update_ep_member()
    check(buffer, rank)
    print(f"rank {rank} passed", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(main, nprocs=2)
