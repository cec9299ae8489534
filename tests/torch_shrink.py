"""A script in the style of DeepEP's users: a rank of three is masked, then leaves; others tell what they waited."""

import deep_ep
import torch
import torch.distributed as dist
from deep_ep.utils.envs import init_dist

RANKS, HIDDEN, TOKENS = 3, 128, 4


def work(rank: int) -> None:
    rank, size, group = init_dist(rank, RANKS)
    needed = deep_ep.Buffer.get_low_latency_rdma_size_hint(TOKENS, HIDDEN, size, size)
    buffer = deep_ep.Buffer(group, num_rdma_bytes=needed, low_latency_mode=True, enable_shrink=True)
    x = torch.full((TOKENS, HIDDEN), rank + 1.0, dtype=torch.bfloat16, device="cuda")
    topk_idx = torch.arange(size, device="cuda").expand(TOKENS, size).contiguous()
    weights = torch.ones((TOKENS, size), dtype=torch.float32, device="cuda")
    status = torch.zeros(size, dtype=torch.int, device="cuda")

    def layer(hooked: bool) -> tuple[int, torch.Tensor, torch.Tensor, torch.Tensor]:
        waited, back = (torch.zeros(size, dtype=torch.int64, device="cuda") for _ in range(2))
        recv, count, handle, _, hook = buffer.low_latency_dispatch(
            x, topk_idx, TOKENS, size, use_fp8=False, return_recv_hook=hooked, dispatch_wait_recv_cost_stats=waited
        )
        hook()
        out, _, hook = buffer.low_latency_combine(
            recv, topk_idx, weights, handle, return_recv_hook=hooked, combine_wait_recv_cost_stats=back
        )
        hook()
        return int(count), out, waited, back

    assert layer(hooked=False)[0] == size * TOKENS
    if rank < 2:
        for masked in (True, False):  # afterwards nobody is, but that rank has left
            buffer.low_latency_update_mask_buffer(2, masked)
            count, out, waited, back = layer(hooked=masked)
            assert count == 2 * TOKENS
            assert torch.equal(out, 2 * x)
            assert waited.sum() > 0
            assert back.sum() > 0
            buffer.clean_low_latency_buffer(TOKENS, HIDDEN, size)
            buffer.low_latency_query_mask_buffer(status)
            assert status.tolist() == [0, 0, 1]
    buffer.destroy()
    print(f"rank {rank} passed", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(work, nprocs=RANKS)
