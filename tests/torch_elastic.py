"""A script for DeepEP's ElasticBuffer: barriers, sessions of all-gathers, tensors around a ring, and mistakes."""

from collections.abc import Callable
from typing import Any

import deep_ep
import pytest
import torch
import torch.distributed as dist
from deep_ep.utils.envs import init_dist
from deep_ep.utils.testing import bench_kineto

from xccl_emu.base.errors import ConfigError

RANKS, MIB = 3, 1 << 20
Elastic = deep_ep.ElasticBuffer


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float32, generator=torch.Generator().manual_seed(seed)).bfloat16()


def refused(text: str, call: Callable[..., Any], *given: Any, **named: Any) -> None:
    with pytest.raises(ConfigError, match=text):
        call(*given, **named)


def check_sizes(group: Any) -> None:
    """Hints are upstream's: whole pages of 2 MiB."""
    assert Elastic.get_pp_buffer_size_hint(64, 2) == 2 * MIB
    assert Elastic.get_pp_buffer_size_hint(MIB, 3) == 12 * MIB
    assert Elastic.get_agrs_num_max_session_bytes(group, (5,), torch.bfloat16) == 32
    assert Elastic.get_agrs_num_max_session_bytes(group, [(5,), (3, 7)], torch.float32) == 64 + 256
    assert Elastic.get_agrs_buffer_size_hint(group, 2 * MIB + 1) == 4 * MIB
    refused("num_bytes % 2097152 == 0", Elastic, group, num_bytes=MIB)
    refused("num_cpu_bytes <= num_bytes", Elastic, group, num_bytes=2 * MIB, num_cpu_bytes=4 * MIB)
    refused("num_bytes=None: must be given", Elastic, group, num_max_tokens_per_rank=4, hidden=128)


def check_barrier(buffer: Any) -> None:
    """It takes virtual time, the same each time."""
    assert buffer.get_logical_domain_size() == buffer.get_physical_domain_size() == (1, RANKS)
    took = [bench_kineto(buffer.barrier, "barrier", barrier=buffer.barrier) for _ in range(2)]
    assert 0 < took[0] < 1e-4
    assert took[0] == pytest.approx(took[1])


def check_gathers(buffer: Any) -> None:
    """Tensors come in place and not, some at once or one, and not before their handles are called."""
    refused("must have agrs_in_session", buffer.all_gather, drawn(0, 8))
    buffer.agrs_set_config(1 << 12, 3)
    buffer.create_agrs_session()
    mine = [drawn(10 * buffer.rank, 3, 5), drawn(10 * buffer.rank + 1, 7)]
    placed = buffer.agrs_get_inplace_tensor([t.shape for t in mine], torch.bfloat16)
    placed[0].copy_(mine[0])
    first, second, handle = buffer.all_gather((placed[0], mine[1]))
    third, last = buffer.all_gather(torch.arange(4, dtype=torch.int32) + buffer.rank)
    wanted = [torch.stack([drawn(10 * rank + i, *t.shape) for rank in range(RANKS)]) for i, t in enumerate(mine)]
    assert torch.equal(placed[0], mine[0])
    others = [rank for rank in range(RANKS) if rank != buffer.rank]
    assert first[others].isnan().all()
    assert second.isnan().all()
    assert (third == -1).all()
    handle()
    assert torch.equal(first, wanted[0])
    assert torch.equal(second, wanted[1])
    assert (third == -1).all()
    last()
    assert third.tolist() == [[rank + i for i in range(4)] for rank in range(RANKS)]
    buffer.destroy_agrs_session()
    assert first.isnan().all()
    refused("before its session is destroyed", handle)
    with buffer.agrs_new_session():
        refused("agrs_in_session=True: must be over", buffer.create_agrs_session)
        refused("agrs_buffer_offset <= num_max_session_bytes", buffer.all_gather, drawn(0, 1 << 10))
        refused("t is .* not contiguous", buffer.all_gather, drawn(0, 4, 4).t())
        own = buffer.agrs_get_inplace_tensor((2, 16), torch.bfloat16)
        refused("must have inplace_at_its_slot", buffer.all_gather, own[1])
        for _ in range(3):
            out, handle = buffer.all_gather(drawn(buffer.rank, 16))
        refused("num_all_gathers <= num_max_all_gathers_per_session", buffer.all_gather, drawn(0, 16))
        torch.cuda.synchronize()
        assert torch.equal(out[1], drawn(1, 16))


def check_ring(buffer: Any) -> None:
    """Tensors go to both neighbours, as many as may be on their way before the first is received."""
    refused("must have num_max_tensor_bytes > 0", buffer.pp_send, drawn(0, 32), 1)
    buffer.pp_set_config(1 << 10, 2)
    sides = [(buffer.rank + step) % RANKS for step in (1, -1)]
    for turn in range(3):
        for peer in sides:
            for i in range(2):
                buffer.pp_send(drawn(100 * turn + 10 * buffer.rank + i, 4, 16 + 16 * turn), peer)
        for peer in sides:
            for i in range(2):
                got = torch.empty((4, 16 + 16 * turn), dtype=torch.bfloat16)
                buffer.pp_recv(got, peer)
                assert torch.equal(got, drawn(100 * turn + 10 * peer + i, 4, 16 + 16 * turn))
    wrong = drawn(0, 33), drawn(0, 1 << 10), drawn(0, 16, 16).t()
    for t, text in zip(wrong, ("nbytes % 32 == 0", "nbytes <= num_max_tensor_bytes", "contiguous"), strict=True):
        refused(text, buffer.pp_send, t, sides[0])
        refused(text, buffer.pp_recv, torch.empty(32, dtype=torch.bfloat16), sides[1])
    refused("peer == prev_rank_idx or peer == next_rank_idx", buffer.pp_send, drawn(0, 32), buffer.rank)
    buffer.pp_send(drawn(0, 32), sides[0])
    refused("all ranks must make the same call", buffer.pp_recv, torch.empty(64, dtype=torch.bfloat16), sides[1])
    buffer.barrier()
    refused("all ranks must make the same call", buffer._collect)


def work(rank: int) -> None:
    rank, _, group = init_dist(rank, RANKS)
    check_sizes(group)
    buffer = Elastic(group, num_bytes=2 * MIB, explicitly_destroy=True)
    check_barrier(buffer)
    check_gathers(buffer)
    check_ring(buffer)
    buffer.destroy()
    refused("explicitly_destroy=False", Elastic(group, num_bytes=2 * MIB).destroy)
    print(f"rank {rank} passed", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(work, nprocs=RANKS)
