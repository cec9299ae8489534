"""``deep_ep.utils``: what DeepEP's scripts use of it to start ranks, compare tensors and take times."""

import contextlib
import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from xccl_emu.doors.torch.client import CLOCK
from xccl_emu.doors.torch.faces.common import EventOverlap

__all__ = [
    "EventOverlap", "bench", "bench_kineto", "calc_diff", "hash_tensor", "init_dist", "init_seed", "inplace_unique",
    "per_token_cast_back", "per_token_cast_to_fp8", "suppress_stdout_stderr",
]  # fmt: skip
_BLOCK = 128
_E4M3_MOST = 448.0
_CALLS = 5
"""Calls that are measured: in virtual time one takes as long as the other."""


def init_dist(local_rank: int, num_local_ranks: int, seed: int = 0) -> tuple[int, int, Any]:
    """Join the process group of all ranks: own rank, how many there are, and the group."""
    nodes, node = int(os.getenv("WORLD_SIZE", "1")), int(os.getenv("RANK", "0"))
    where = f"tcp://{os.getenv('MASTER_ADDR', '127.0.0.1')}:{os.getenv('MASTER_PORT', '8361')}"
    size = nodes * num_local_ranks
    dist.init_process_group("nccl", init_method=where, world_size=size, rank=node * num_local_ranks + local_rank)
    torch.set_default_dtype(torch.bfloat16)
    torch.cuda.set_device(local_rank)
    init_seed(seed)
    return dist.get_rank(), size, dist.new_group(list(range(size)))


def init_seed(global_seed: int) -> None:
    """Seed what is drawn on this rank."""
    torch.manual_seed(global_seed + dist.get_rank())
    random.seed(global_seed + dist.get_rank())


def calc_diff(x: torch.Tensor, y: torch.Tensor) -> float:
    """Return how far two tensors point apart, 0 for equal ones: 1 - 2xy / (xx + yy), each raised by 1."""
    x, y = x.double() + 1, y.double() + 1
    return float(1 - 2 * (x * y).sum() / (x * x + y * y).sum())


def hash_tensor(tensor: torch.Tensor) -> int:
    """The sum of its words of 4 bytes."""
    return int(tensor.view(torch.int32).sum())


def per_token_cast_to_fp8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[rows, hidden] in e4m3, and [rows, hidden / 128] what to multiply it by."""
    blocks = x.float().view(x.size(0), -1, _BLOCK)
    most = blocks.abs().amax(2, keepdim=True).clamp(min=1e-4)
    return (blocks * (_E4M3_MOST / most)).to(torch.float8_e4m3fn).view(x.shape), (most / _E4M3_MOST).squeeze(2)


def per_token_cast_back(x: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """[rows, hidden] BF16 of e4m3 and its scales, FP32 or four exponents in a word."""
    if scales.dtype == torch.int32:
        scales = (scales.reshape(-1).view(torch.uint8).int() << 23).view(torch.float32)
    blocks = x.float().view(x.size(0), -1, _BLOCK)
    return (blocks * scales.reshape(x.size(0), -1, 1)).view(x.shape).to(torch.bfloat16)


def inplace_unique(x: torch.Tensor, num_slots: int) -> None:
    """Leave the different numbers of each row, the most frequent first and -1 after them."""
    for row in x:
        values, counts = torch.unique(row[row >= 0], return_counts=True)
        best = values[counts.argsort(descending=True, stable=True)][:num_slots].sort(descending=True).values
        row.fill_(-1)
        row[: len(best)] = best


def bench(fn: Callable[[], Any], num_warmups: int = 1, num_tests: int = _CALLS, post_fn: Any = None, **_: Any) -> Any:
    """Mean, least and largest seconds of a call."""
    times = []
    for i in range(min(num_warmups, 1) + min(num_tests, _CALLS)):
        start = CLOCK.now_us()
        fn()
        if i >= min(num_warmups, 1):
            times.append((CLOCK.now_us() - start) * 1e-6)
        if post_fn is not None:
            post_fn()
    return np.average(times), np.min(times), np.max(times)


def bench_kineto(
    fn: Callable[[], Any], kernel_names: str | tuple[str, ...], num_tests: int = _CALLS,
    suppress_kineto_output: bool = False, trace_path: str | None = None, barrier_comm_profiling: bool = False,
    num_kernels_per_period: int = 1, **_: Any,
) -> Any:  # fmt: skip
    """Mean seconds of each kernel in a call; of each of its launches, if there are several in a period."""
    names = (kernel_names,) if isinstance(kernel_names, str) else kernel_names
    first = len(CLOCK.events)
    for _each in range(min(num_tests, _CALLS)):
        if barrier_comm_profiling:
            dist.all_reduce(torch.ones(1, dtype=torch.float32))
        fn()
    means: list[Any] = []
    for name in names:
        took = np.array([each.duration_us * 1e-6 for each in CLOCK.events[first:] if name in each.name])
        by_launch = took.reshape(-1, num_kernels_per_period).mean(0)
        means.append(by_launch.tolist() if num_kernels_per_period > 1 else float(by_launch[0]))
    return means[0] if isinstance(kernel_names, str) else means


suppress_stdout_stderr = contextlib.nullcontext
