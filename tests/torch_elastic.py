"""A script for DeepEP's ElasticBuffer: barriers, sessions of all-gathers, tensors around a ring, and mistakes."""

from collections.abc import Callable
from typing import Any

import deep_ep
import pytest
import torch
import torch.distributed as dist
from deep_ep.utils import refs
from deep_ep.utils.envs import init_dist
from deep_ep.utils.gate import get_unbalanced_scores
from deep_ep.utils.math import per_token_cast_to_fp8
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
    assert Elastic.get_buffer_size_hint(group, 4096, 7168, 8) == 178257920
    assert Elastic.get_buffer_size_hint(group, 4096, 7168, 8, allow_multiple_reduction=False) == 471859200
    refused("must have hidden > 0", Elastic, group, num_max_tokens_per_rank=4)


def check_barrier(buffer: Any) -> None:
    """It takes virtual time, the same each time."""
    assert buffer.get_logical_domain_size() == buffer.get_physical_domain_size() == (1, RANKS)
    took = [bench_kineto(buffer.barrier, "barrier", barrier=buffer.barrier) for _ in range(2)]
    assert 0 < took[0] < 1e-4
    assert took[0] == pytest.approx(took[1])


def check_gathers(buffer: Any) -> None:
    """Tensors come in place and not, some at once or one, and not before their handles are called."""
    refused("must have agrs_in_session", buffer.all_gather, drawn(0, 8))
    if buffer.rank:  # one that is wrong: all hear of it in this call, and are in step in the next one
        refused("rank 0: agrs_set_config: num_max_all_gathers_per_session=0", buffer.agrs_set_config, 1 << 12, 3)
    else:
        refused("must have num_max_all_gathers_per_session > 0", buffer.agrs_set_config, 1 << 12, 0)
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
        if buffer.rank:  # which is this rank's business
            refused("agrs_buffer_offset <=", buffer.agrs_get_inplace_tensor, (1 << 12,), torch.bfloat16)
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
    for source in range(RANKS):  # one after the other: a receive hears of this rank's own sends first
        target = (source + 1) % RANKS
        if buffer.rank == source:
            buffer.pp_send(drawn(0, 32), target)
        if buffer.rank == target:
            refused("all ranks must make the same call", buffer.pp_recv, torch.empty(64, dtype=torch.bfloat16), source)
        buffer.barrier()
        if buffer.rank == source:
            refused("all ranks must make the same call", buffer._collect)


def check_scores() -> None:
    """Rank 0 gets as many times the tokens of the others as was asked, precisely or on average."""
    for precise, most in ((True, 0.02), (False, 0.1)):
        for ratio in (1.0, 2.0):
            scores = get_unbalanced_scores(4000, 32, 4, 4, ratio, precise)
            ranks = scores.topk(4).indices // 8
            tokens = torch.stack([(ranks == rank).any(1).sum() for rank in range(4)]).float()
            assert abs(tokens[0] / tokens[1:].mean() / ratio - 1) < most
            assert not precise or tokens[1:].max() - tokens[1:].min() <= 1
    refused("must leave each token", get_unbalanced_scores, 8, 4, 4, 4, 4.0, True)


def check_experts(group: Any) -> None:
    """Rows and sums are those of the references, by rank and by expert, with handles and events, BF16 and FP8."""
    buffer = Elastic(group, num_max_tokens_per_rank=6, hidden=128, explicitly_destroy=True)
    rank, tokens = buffer.rank, 6 - buffer.rank
    topk_idx = torch.rand((tokens, 6), dtype=torch.float32).topk(3).indices
    topk_idx[0, 0] = -1
    weights = torch.rand((tokens, 3), dtype=torch.float32).masked_fill(topk_idx < 0, 0)
    common = {"num_experts": 6, "expert_alignment": 4}
    for x in (drawn(rank, tokens, 128), per_token_cast_to_fp8(drawn(rank, tokens, 128))):
        want, want_idx, want_weights, number, from_rank = refs.dispatch(x, topk_idx, weights, 6, 6)
        stats = torch.zeros(2, dtype=torch.int32)
        given = {"topk_idx": topk_idx, "topk_weights": weights, **common}
        recv, idx, came, handle, event = buffer.dispatch(
            x, **given, cumulative_local_expert_recv_stats=stats, async_with_compute_stream=True
        )
        parts = list(zip(recv, want, strict=True)) if isinstance(x, tuple) else [(recv, want)]
        assert all((got.view(torch.uint8) == 0xFF).all() for got, _ in parts)
        event.current_stream_wait()
        assert all(torch.equal(got, right) for got, right in parts)
        assert torch.equal(idx, want_idx)
        assert torch.equal(came, want_weights.masked_fill(want_idx < 0, 0))
        assert torch.equal(handle.recv_src_metadata[:, 0], number)
        assert handle.psum_num_recv_tokens_per_scaleup_rank.tolist() == from_rank.cumsum(0).tolist()
        assert stats.tolist() == [int((want_idx == expert).sum()) for expert in range(2)]
        assert handle.num_recv_tokens_per_expert_list == [-(-n // 4) * 4 for n in stats.tolist()]
        again = buffer.dispatch(x, handle=handle, num_experts=6)[0]
        assert all(torch.equal(a, b) for a, b in zip([*again], [*recv], strict=True))
        by_expert, _, theirs, other, _ = buffer.dispatch(x, **given, do_expand=True, do_zero_padding=True)
        slots = other.recv_src_metadata[:, 2:].long()
        assert torch.equal(slots >= 0, want_idx >= 0)
        assert torch.equal(theirs[slots][slots >= 0], want_weights[slots >= 0])
        rows = by_expert[0] if isinstance(x, tuple) else by_expert
        for row, places in zip(want[0] if isinstance(x, tuple) else want, slots, strict=True):
            assert all(torch.equal(rows[place], row) for place in places[places >= 0])
        assert len(rows) == sum(handle.num_recv_tokens_per_expert_list)
        assert (rows.view(torch.uint8) != 0).any(1).sum() <= (slots >= 0).sum()
        y = refs.generate_pre_combine_data(number, 6, 3, 128).masked_fill(want_idx[:, :, None] < 0, 0)
        mine = refs.generate_pre_combine_data(rank * 6 + torch.arange(tokens), 6, 3, 128)
        mine.masked_fill_(topk_idx[:, :, None] < 0, 0)
        spread = torch.zeros((len(rows), 128), dtype=torch.bfloat16)
        spread[slots[slots >= 0]] = y[slots >= 0]
        first, second = (drawn(7 + i + rank, tokens, 128) for i in range(2))
        for bias in (None, first, (first, second)):
            sums = refs.combine(mine, topk_idx, 1, RANKS, 6, bias, True, False)
            out, back, _ = buffer.combine(refs.ordered_accumulate(y), handle, topk_weights=came, bias=bias)
            assert torch.equal(out, sums)
            assert torch.equal(back, weights)
            assert torch.equal(buffer.combine(spread, other, topk_weights=theirs, bias=bias)[0], out)
        refused("bias='1 tensors': must be a tensor or two", buffer.combine, spread, other, bias=(first,))
        refused(r"bias_0 is \[1, 128\] bfloat16; it must be", buffer.combine, spread, other, bias=first[:1])
        refused("must have as_in_handle", buffer.dispatch, x, handle=handle, num_experts=12)
        refused("not do_zero_padding or do_expand", buffer.dispatch, x, **given, do_zero_padding=True)
    to_first = {"topk_idx": torch.zeros((tokens, 1), dtype=torch.int64), "num_experts": 6}
    recv, idx, _, handle, _ = buffer.dispatch(drawn(rank, tokens, 128), **to_first)  # the others get nothing
    assert recv.shape == (0 if rank else 15, 128)
    assert torch.equal(buffer.combine(recv, handle)[0], drawn(rank, tokens, 128))
    twice = torch.zeros((tokens, 2), dtype=torch.int64)
    refused("must have not an_expert_twice", buffer.dispatch, drawn(0, tokens, 128), twice, **common)
    many = drawn(0, 7, 128), topk_idx[:1].expand(7, 3).clone()
    refused("tokens <= num_max_tokens_per_rank", buffer.dispatch, *many, **common)
    buffer.destroy()


def work(rank: int) -> None:
    rank, _, group = init_dist(rank, RANKS)
    check_sizes(group)
    buffer = Elastic(group, num_bytes=2 * MIB, explicitly_destroy=True)
    check_barrier(buffer)
    check_gathers(buffer)
    check_ring(buffer)
    check_scores()
    check_experts(group)
    buffer.destroy()
    refused("explicitly_destroy=False", Elastic(group, num_bytes=2 * MIB).destroy)
    print(f"rank {rank} passed", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(work, nprocs=RANKS)
