"""A script with the mistakes that applications make: each is answered by name in all ranks; the next call is right."""

import os
from collections.abc import Callable
from typing import Any

import deep_ep
import pytest
import torch
import torch.distributed as dist
from deep_ep.utils.envs import init_dist

from xccl_emu.base.errors import ConfigError

RANKS, TOKENS, HIDDEN, TOPK, EXPERTS = 2, 4, 512, 2, 4
BYTES = deep_ep.Buffer.get_low_latency_rdma_size_hint(TOKENS, 2 * HIDDEN, RANKS, EXPERTS)


class Batch:
    """A batch of a rank, and its calls as they should be, but for what is changed."""

    def __init__(self, buffer: Any, seed: int = 0) -> None:
        draws = torch.Generator().manual_seed(10 * seed + buffer.rank)
        self.buffer, self.rank = buffer, buffer.rank
        self.x = torch.randn((TOKENS, HIDDEN), dtype=torch.float32, generator=draws).bfloat16()
        self.idx = torch.rand((TOKENS, EXPERTS), dtype=torch.float32, generator=draws).topk(TOPK).indices
        self.weights = torch.full((TOKENS, TOPK), 0.5, dtype=torch.float32)

    def dispatch(self, **changed: Any) -> Any:
        named = {"x": self.x, "topk_idx": self.idx, "num_max_dispatch_tokens_per_rank": TOKENS, "num_experts": EXPERTS}
        return self.buffer.low_latency_dispatch(**{**named, "use_fp8": False, **changed})

    def combine(self, recv: torch.Tensor, handle: Any, **changed: Any) -> Any:
        named = {"x": recv, "topk_idx": self.idx, "topk_weights": self.weights, "handle": handle}
        return self.buffer.low_latency_combine(**{**named, **changed})

    def back(self, **changed: Any) -> Any:
        recv, _, handle, *_ = self.dispatch()
        return self.combine(recv, handle, **{name: of(recv) if callable(of) else of for name, of in changed.items()})

    def rows(self) -> Any:
        per_rank, _, per_expert, in_rank, _ = self.buffer.get_dispatch_layout(self.idx, EXPERTS)
        where = {"num_tokens_per_rank": per_rank, "is_token_in_rank": in_rank, "num_tokens_per_expert": per_expert}
        recv, *_, handle, _ = self.buffer.dispatch(self.x, **where, topk_idx=self.idx, topk_weights=self.weights)
        return recv, handle


def third(batch: Batch) -> Any:
    """Combine the first of three dispatches, of which two are held."""
    recv, _, handle, *_ = batch.dispatch()
    for seed in (1, 2):
        Batch(batch.buffer, seed).dispatch()
    return batch.combine(recv, handle)


def without_hook(batch: Batch) -> Any:
    """Combine what is not received; then receive it, for those after this one."""
    recv, _, handle, _, hook = batch.dispatch(return_recv_hook=True)
    try:
        return batch.combine(recv, handle)
    finally:
        hook()


def of_another(batch: Batch) -> Any:
    """Give the rows of a dispatch back by the handle of another."""
    handle = batch.dispatch()[2]
    other = Batch(batch.buffer, 1)
    return other.combine(other.dispatch()[0], handle)


def old_rows(batch: Batch) -> Any:
    """Return rows whose dispatch was replaced."""
    recv, handle = batch.rows()
    Batch(batch.buffer, 3).rows()
    return batch.buffer.combine(recv, handle)


def rows_back(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Batch], Any]:
    def call(batch: Batch) -> Any:
        recv, handle = batch.rows()
        return batch.buffer.combine(change(recv), handle)

    return call


def of(name: str, change: Callable[[Batch], Any], **others: Any) -> Callable[[Batch], Any]:
    return lambda batch: batch.dispatch(**{name: change(batch)}, **others)


def stats(n: int) -> dict[str, torch.Tensor]:
    return {"cumulative_local_expert_recv_stats": torch.zeros(n, dtype=torch.int32)}


def wide(batch: Batch, hidden: int) -> torch.Tensor:
    return batch.x[:, :1].repeat(1, hidden)


MISTAKES: dict[str, tuple[Callable[[Batch], Any], str]] = {
    "x in FP32": (of("x", lambda b: b.x.float()), r"low_latency_dispatch: x is \[4, 512\] float32"),
    "x not contiguous": (of("x", lambda b: wide(b, 2 * HIDDEN)[:, ::2]), "x is .* not contiguous"),
    "int32 choices": (of("topk_idx", lambda b: b.idx.int()), r"topk_idx is \[4, 2\] int32; it must be .* int64"),
    "fewer choices": (of("topk_idx", lambda b: b.idx[:2]), r"topk_idx is \[2, 2\] int64; it must be \[tokens=4"),
    "hidden 384": (of("x", lambda b: wide(b, 384), use_fp8=True), "hidden=384: must have .*hidden % 512 == 0"),
    "hidden 640": (of("x", lambda b: wide(b, 640), use_fp8=True), "hidden=640: must have .*hidden % 512 == 0"),
    "hidden 500": (of("x", lambda b: wide(b, 500)), "hidden=500: must have hidden % 128 == 0"),
    "UE8M0": (lambda b: b.dispatch(use_fp8=True, use_ue8m0=True), "round_scale=False: must have"),
    "two ways to wait": (lambda b: b.dispatch(async_finish=True, return_recv_hook=True), "must have not .async_finish"),
    "three experts": (lambda b: b.dispatch(num_experts=3), "num_experts=3, ranks=2: must have num_experts % ranks"),
    "too many tokens": (of("num_max_dispatch_tokens_per_rank", lambda _: 2), "tokens=4, num_max.*=2: must have tokens"),
    "an expert 5 times": (
        lambda b: b.dispatch(topk_idx=torch.tensor([[0, 0]] * 2 + [[0, -1]] + [[1, -1]])),
        "most_of_an_expert=5, num_max.*=4: must have most_of_an_expert",
    ),
    "statistics": (lambda b: b.dispatch(**stats(3)), r"stats is \[3\] int32; it must be \[local_experts=2\]"),
    "statistics of rank 1": (lambda b: b.dispatch(**stats(2 + b.rank)), r"stats is \[3\] int32"),
    "expert 4": (of("topk_idx", lambda b: b.idx + 3), "must be -1 or a slot below 4"),
    "half the hidden size": (lambda b: b.back(x=lambda r: r[..., :256].contiguous()), r"x is .*256\] .*hidden=512"),
    "FP32 back": (lambda b: b.back(x=lambda r: r.float()), "low_latency_combine: x is .* float32"),
    "fewer weights": (lambda b: b.back(topk_weights=b.weights[:2]), r"topk_weights is \[2, 2\]"),
    "another's choices": (lambda b: b.back(topk_idx=Batch(b.buffer, 1).idx), "as dispatched, or -1"),
    "out of another size": (lambda b: b.back(out=torch.empty((3, HIDDEN), dtype=torch.bfloat16)), r"out is \[3, 512\]"),
    "no handle": (lambda b: b.combine(b.dispatch()[0], None), "handle: must be what a dispatch gave"),
    "the first of three": (third, "replaced by one of other choices"),
    "hook not called": (without_hook, "its dispatch is not received: call its hook"),
    "another's handle": (of_another, "as dispatched, or -1"),
    "rows of half the size": (rows_back(lambda r: r[:, :256].contiguous()), r"combine: x is .* 256\]"),
    "one row": (rows_back(lambda r: r[:1]), r"combine: x is \[1, 512\]"),
    "rows that were replaced": (old_rows, "was replaced by one of other choices"),
}  # fmt: skip
"""By name the mistake, and what is said of it in each rank."""


def check_stale(buffer: Any) -> None:
    """Nothing that a hook or an event brings is right before, though every batch is the same."""
    batch, out = Batch(buffer), torch.empty((TOKENS, HIDDEN), dtype=torch.bfloat16)
    for _ in range(3):
        for how in ({"return_recv_hook": True}, {"async_finish": True}):
            recv, count, handle, event, hook = batch.dispatch(**how)
            assert recv.isnan().all()
            assert (count < 0).all()
            hook() if "return_recv_hook" in how else event.current_stream_wait()
            for more in ({}, {"out": out}):
                combined, event, hook = batch.combine(recv, handle, **how, **more)
                assert combined.isnan().all()
                hook() if "return_recv_hook" in how else event.current_stream_wait()
                assert torch.equal(combined, batch.x)


def check_repeats(buffer: Any) -> None:
    """A token that names an expert twice is two rows there, and its sum has both weights, in both modes."""
    batch = Batch(buffer)
    batch.idx[0], batch.idx[1] = batch.rank, 2
    recv, count, handle, *_ = batch.dispatch()
    assert int(count.sum()) == len(handle[0][handle[0] >= 0])
    assert torch.equal(batch.combine(recv, handle)[0], batch.x)
    rows, handle = batch.rows()
    _, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(batch.idx, EXPERTS)
    assert per_expert.sum() == TOKENS * TOPK
    assert torch.equal(buffer.combine(rows, handle)[0], batch.x * in_rank.sum(1, keepdim=True))


def check_counts(buffer: Any) -> None:
    """Statistics go on from call to call; a handle is one though its tensors are copied."""
    batch, counts = Batch(buffer), torch.zeros(EXPERTS // RANKS, dtype=torch.int32)
    for n in (1, 2):
        recv, count, handle, _, hook = batch.dispatch(
            return_recv_hook=True, cumulative_local_expert_recv_stats=counts
        )  # fmt: skip
        hook()
        assert torch.equal(counts, n * count)
    handle = tuple(each.clone() if isinstance(each, torch.Tensor) else each for each in handle)
    assert torch.equal(batch.combine(recv, handle)[0], batch.x)


def work(rank: int) -> None:
    rank, _, group = init_dist(rank, RANKS)
    buffer = deep_ep.Buffer(group, 1 << 20, BYTES, low_latency_mode=True)
    for name, (make, said) in MISTAKES.items():
        with pytest.raises(ConfigError, match=said):
            make(Batch(buffer))
        assert torch.equal(Batch(buffer).back()[0], Batch(buffer).x), name
    with pytest.raises(ConfigError, match=f"num_rdma_bytes={BYTES}: must be 0 without low_latency_mode"):
        deep_ep.Buffer(group, 1 << 20, BYTES)
    for mode, must in (((1 << 20, 0), "low_latency_mode=False"), ((0, 0, True), "num_rdma_bytes=0")):
        other = deep_ep.Buffer(group, *mode)
        with pytest.raises(ConfigError, match=must):
            Batch(other).dispatch()
        other.destroy()
    check_stale(buffer)
    check_counts(buffer)
    check_repeats(buffer)
    buffer.destroy()
    os.write(1, f"rank {rank} passed\n".encode())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(work, nprocs=RANKS)
