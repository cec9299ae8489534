"""DeepEP's low-latency calls: phases, handles, several results held, choices of combine's own, statistics."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.protocols.deepep.calls import DispatchHandle, LowLatency
from xccl_emu.protocols.deepep.session import DeepEpConfig
from xccl_emu.testing import Watched

from .ep_support import DEEPEP, Batch, Case, assert_same_bits, cases, check_outputs, check_received, oracle_of, refused

SMALL = DeepEpConfig(n_ranks=3, local_experts=2, hidden=64, top_k=3, tokens_max=4, cores=2)
CASE = Case(SMALL, "relaxed", "random", seed=4, lengths=((4, 1, 3), (0, 3, 2), (2, 2, 4)))


def calls_of(case: Case) -> LowLatency:
    """A group of a case that holds two results."""
    group: LowLatency = replace(case, lengths=case.lengths[:1] * 2).group(made=LowLatency)
    return group


def check_all(group: LowLatency, batch: Batch, received: Sequence[Any]) -> None:
    """Compare what a dispatch brought to all ranks."""
    for rank, got in enumerate(received):
        check_received(group.config, batch, rank, got)


def check_masked(group: LowLatency, batch: Batch, chosen: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Compare what combine gave from fewer choices than were sent."""
    sent = oracle_of(group.config, batch)
    for rank, got in enumerate(outputs):
        want = sent.combined_for(rank, batch.weights[rank], shared=group.config.shared, kept=chosen[rank] >= 0)
        assert_same_bits(f"output of rank {rank}", got, want)


@settings(max_examples=40)
@given(cases(DEEPEP, ranks=st.integers(2, 4), rounds=st.integers(1, 4)), st.lists(st.booleans(), min_size=8))
def test_calls_in_phases_give_what_the_oracle_gives(case: Case, in_phases: list[bool]) -> None:
    """Any small group: two results at a time, in phases or whole, combined twice, once without some choices."""
    group, batches, rng = calls_of(case), case.batches(), np.random.default_rng(case.seed)
    for pair in zip(batches, batches[::-1], strict=True):
        held = []
        for batch in pair:
            if in_phases.pop() if in_phases else True:
                handle = group.dispatch_send(batch.tokens, batch.topk)
                received = group.dispatch_recv(handle)
            else:
                handle, received = group.dispatch_whole(batch.tokens, batch.topk)
            check_all(group, batch, received)
            held.append(handle)
        for handle, batch in zip(held, pair, strict=True):
            group.run_dummy_on(handle)
            chosen = [np.where(rng.random(choices.shape) < 0.5, choices, -1) for choices in batch.topk]
            group.combine_send(handle, batch.weights, chosen)
            check_masked(group, batch, chosen, group.combine_recv(handle))
            check_outputs(group.config, batch, group.combine_whole(handle, batch.weights))


def test_what_is_written_where_the_caller_says() -> None:
    """Outputs in app data of the caller, and statistics to which each dispatch adds the rows of each expert."""
    group, batches = calls_of(replace(CASE, more_app=4096)), CASE.batches()
    stats = [group.pod.put(group.die_of(rank), np.array([7, 70], np.int32)) for rank in range(3)]
    out = [group.pod.alloc(group.die_of(rank), n * SMALL.row_bytes) for rank, n in enumerate(CASE.lengths[1])]
    group.dispatch_recv(group.dispatch_send(batches[0].tokens, batches[0].topk), stats)
    handle, _ = group.dispatch_whole(batches[1].tokens, batches[1].topk, stats)
    group.run_dummy_on(handle)
    check_outputs(SMALL, batches[1], group.combine_whole(handle, batches[1].weights, out=out))
    group.combine_send(handle, batches[1].weights)
    check_outputs(SMALL, batches[1], group.combine_recv(handle, out))
    for rank in range(3):
        rows = sum(oracle_of(SMALL, batch).received_by(rank).counts.sum(axis=1) for batch in batches[:2])
        np.testing.assert_array_equal(group.pod.view(stats[rank], np.int32), np.array([7, 70]) + rows)


@pytest.mark.parametrize("opaque_bytes", [32, 96, 160])
def test_opaque_rows_arrive_as_they_are(opaque_bytes: int) -> None:
    """Any bytes, fewer or more than those of a hidden state; experts return hidden states of their own."""
    config = replace(SMALL, quantized=False, opaque_bytes=opaque_bytes)
    group, batch, rng = calls_of(replace(CASE, config=config)), CASE.batches()[0], np.random.default_rng(1)
    tokens = [rng.integers(0, 256, (len(x), opaque_bytes)).astype(np.uint8) for x in batch.tokens]
    handle, received = group.dispatch_whole(tokens, batch.topk)
    made = [rng.standard_normal((len(got.x), SMALL.hidden)).astype(SMALL.numpy_dtype()) for got in received]
    for rank, got in enumerate(received):
        want = oracle_of(SMALL, batch).received_by(rank)
        rows = [tokens[source][token] for source, token in zip(want.source, want.token, strict=True)]
        assert_same_bits(f"rank {rank}", got.x, np.array(rows, np.uint8).reshape(-1, opaque_bytes))
        group.expert_output(rank, handle.place)[:] = made[rank]
    for rank, got in enumerate(group.combine_whole(handle, batch.weights)):
        fetch = lambda ranks, rows: np.array([made[r][i] for r, i in zip(ranks, rows, strict=True)])  # noqa: E731
        assert_same_bits("output", got, oracle_of(SMALL, batch).combined_for(rank, batch.weights[rank], fetch))
    if opaque_bytes < config.row_bytes:
        refused(group.pod, partial(group.run_dummy_on, handle), f"opaque_bytes={opaque_bytes}: must be 128 or more")


def test_what_calls_refuse() -> None:
    """A call between two phases, replaced results, choices that were not sent: refused, and nothing has moved."""
    group, (batch, other, _) = calls_of(CASE), CASE.batches()
    first = group.dispatch_send(batch.tokens, batch.topk)
    sending = partial(group.dispatch_send, other.tokens, other.topk)
    refused(group.pod, sending, "dispatch 1: its call was sent and not received yet")
    refused(group.pod, partial(group.combine_recv, first), "its combine was not sent, or is received")
    group.dispatch_recv(first)
    refused(group.pod, partial(group.dispatch_recv, first), "its dispatch was not sent, or is received")
    second, third = (group.dispatch_whole(other.tokens, other.topk)[0] for _ in range(2))
    refused(group.pod, partial(group.combine_send, first, batch.weights), "dispatch 3 has replaced its result")
    refused(group.pod, partial(group.run_dummy_on, DispatchHandle(5, 1)), "must be one that a dispatch gave")
    wrong = [choices + 1 for choices in other.topk]
    refused(group.pod, partial(group.combine_send, second, other.weights, wrong), "as dispatched, or -1")
    refused(group.pod, partial(group.combine_whole, third, other.weights, None, [1, 2, 3]), "out of rank 0: 1 must be")
    group.run_dummy_on(third)
    group.combine_send(third, other.weights)
    refused(group.pod, partial(group.combine, other.weights), "dispatch 3: its call was sent and not received yet")
    group.run_dummy_on(second)  # beside it
    check_outputs(SMALL, other, group.combine_recv(third))
    refused(group.pod, partial(group.dispatch_recv, third), "its dispatch was not sent, or is received")


def test_phases_under_watch(tmp_path: Path) -> None:
    """On a poisoned pod what is sent stays until it is received, and no schedule goes wrong."""
    case = replace(CASE, policy=Watched(schedules=3, witnesses=tmp_path))  # type: ignore[arg-type]
    group, batch = calls_of(case), case.batches()[0]
    for _ in range(2):
        handle = group.dispatch_send(batch.tokens, batch.topk)
        check_all(group, batch, group.dispatch_recv(handle))
        group.run_dummy_on(handle)
        group.combine_send(handle, batch.weights)
        check_outputs(SMALL, batch, group.combine_recv(handle))
