"""A layer of experts by DeepEP's low-latency calls, as its users write it, on a pod that is emulated.

python -m xccl_emu.doors.torch examples/low_latency.py --ranks 4
python -m xccl_emu.doors.torch --policy portfolio examples/low_latency.py --ranks 2 --hidden 512
python -m xccl_emu.doors.torch --without "tokens before counts" examples/low_latency.py --ranks 2 --hidden 512
"""

import argparse

import deep_ep
import torch
import torch.distributed as dist
from deep_ep.utils.envs import init_dist
from deep_ep.utils.math import calc_diff, per_token_cast_back


def layer(buffer: deep_ep.Buffer, args: argparse.Namespace, fp8: bool, hooked: bool) -> list[torch.Tensor]:
    """Return what a layer gives whose experts double each token, and what it should."""
    x = torch.randn((args.tokens, args.hidden), dtype=torch.bfloat16, device="cuda")
    topk_idx = torch.rand((args.tokens, args.experts), device="cuda").topk(args.topk).indices
    weights = torch.rand((args.tokens, args.topk), dtype=torch.float32, device="cuda")
    topk_idx[0, 0] = -1

    received, _count, handle, event, hook = buffer.low_latency_dispatch(
        x, topk_idx, args.tokens, args.experts, use_fp8=fp8, async_finish=not hooked, return_recv_hook=hooked
    )
    hook() if hooked else event.current_stream_wait()
    if fp8:
        rows = per_token_cast_back(received[0].view(-1, args.hidden), received[1].reshape(-1, args.hidden // 128))
        received = rows.view(received[0].shape)
    combined, event, hook = buffer.low_latency_combine(
        2 * received, topk_idx, weights, handle, async_finish=not hooked, return_recv_hook=hooked
    )
    hook() if hooked else event.current_stream_wait()
    chosen = weights.masked_fill(topk_idx == -1, 0).sum(1, keepdim=True)
    return [combined, 2 * x * chosen]


def work(rank: int, args: argparse.Namespace) -> None:
    """A rank."""
    rank, size, group = init_dist(rank, args.ranks)
    needed = deep_ep.Buffer.get_low_latency_rdma_size_hint(args.tokens, args.hidden, size, args.experts)
    buffer = deep_ep.Buffer(group, num_rdma_bytes=needed, low_latency_mode=True)
    torch.manual_seed(rank)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for fp8 in (False, True):
        for hooked in (False, True):
            start.record()
            got, wanted = layer(buffer, args, fp8, hooked)
            end.record()
            difference = calc_diff(got, wanted)
            assert difference < (1e-3 if fp8 else 1e-5), f"rank {rank}, {fp8=}, {hooked=}: {difference}"
            line = f"rank {rank}, {fp8=}, {hooked=}: {1e3 * start.elapsed_time(end):.1f} us\n"
            print(line, end="", flush=True)  # at once, or lines of ranks mix where output has no buffer
    buffer.destroy()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name, default in (("ranks", 4), ("tokens", 4), ("hidden", 512), ("experts", 8), ("topk", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.multiprocessing.spawn(work, args=(options,), nprocs=options.ranks)
