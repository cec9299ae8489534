"""``deep_ep.utils``: what DeepEP's scripts use of it to start ranks, compare tensors and take times."""

import contextlib
import functools
import operator
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from xccl_emu.doors.torch.client import CLOCK
from xccl_emu.doors.torch.faces.common import EventOverlap

__all__ = [
    "EventOverlap", "align", "bench", "bench_kineto", "calc_diff", "ceil_div", "count_bytes", "create_grouped_scores",
    "dist_print", "get_global_seed", "get_local_seed", "get_nvlink_gbs", "get_rdma_gbs", "hash_tensor", "hash_tensors",
    "init_dist", "init_seed", "inplace_unique", "per_token_cast_back", "per_token_cast_to_fp8", "safe_div",
    "suppress_stdout_stderr",
]  # fmt: skip
_BLOCK = 128
_E4M3_MOST = 448.0
_CALLS = 5
"""Calls that are measured: in virtual time one takes as long as the other."""
_seeds = {"global": 0, "local": 0}


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
    _seeds.update({"global": global_seed, "local": global_seed + dist.get_rank()})
    torch.manual_seed(_seeds["local"])
    random.seed(_seeds["local"])


def get_global_seed() -> int:
    """Return the seed that `init_seed` was given."""
    return _seeds["global"]


def get_local_seed() -> int:
    """Return this rank's own."""
    return _seeds["local"]


def dist_print(s: str = "", once_in_node: bool = False) -> None:
    """Print from all ranks, or from the first one of each node; collective."""
    if not once_in_node or torch.cuda.current_device() == 0:
        print(s, flush=True)
    dist.barrier()


def get_nvlink_gbs(factor: float = 0.9) -> float:
    """Return what upstream does where it finds no link."""
    return 0.0


def get_rdma_gbs(nic_name: str = "") -> float:
    """Return 50, of a NIC with 400 Gb/s, by which scripts choose how long they sleep."""
    return 50.0


def ceil_div(x: int, y: int) -> int:
    """Divide, and round up."""
    return -(-x // y)


def align(x: int, y: int) -> int:
    """Return the least multiple of y from x on."""
    return ceil_div(x, y) * y


def safe_div(a: float, b: float) -> float:
    """Divide; 0 by 0 is 0."""
    return 0 if a == b == 0 else a / b


def calc_diff(x: torch.Tensor, y: torch.Tensor) -> float:
    """Return how far two tensors point apart, 0 for equal ones: 1 - 2xy / (xx + yy), each raised by 1."""
    x, y = x.double() + 1, y.double() + 1
    return float(1 - 2 * (x * y).sum() / (x * x + y * y).sum())


def hash_tensor(tensor: torch.Tensor) -> int:
    """The sum of its words of 4 bytes."""
    return int(tensor.view(torch.int32).sum())


def _flat(tensors: Any) -> Iterator[torch.Tensor]:
    """All tensors of nested tuples and lists; None is left out."""
    for each in tensors:
        if isinstance(each, (tuple, list)):
            yield from _flat(each)
        elif each is not None:
            yield each


def hash_tensors(*tensors: Any) -> int:
    """The sums of all of them, by exclusive or."""
    return functools.reduce(operator.xor, map(hash_tensor, _flat(tensors)), 0)


def count_bytes(*tensors: Any) -> int:
    """The bytes of all of them."""
    return sum(each.numel() * each.element_size() for each in _flat(tensors))


def create_grouped_scores(scores: torch.Tensor, group_idx: torch.Tensor, num_groups: int) -> torch.Tensor:
    """[tokens, experts] scores in the groups of a token, [tokens, n] of ``num_groups``, and 0 in all others."""
    chosen = torch.zeros(len(scores), num_groups, dtype=torch.bool).scatter_(1, group_idx, True)
    return scores * chosen.repeat_interleave(scores.size(1) // num_groups, 1)


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
        by_launch = took.reshape(-1, num_kernels_per_period).mean(0) if len(took) else np.full(1, np.nan)
        means.append(by_launch.tolist() if num_kernels_per_period > 1 else float(by_launch[0]))
    return means[0] if isinstance(kernel_names, str) else means


suppress_stdout_stderr = contextlib.nullcontext
