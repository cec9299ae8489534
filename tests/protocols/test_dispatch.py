"""Dispatch, dummy expert and combine on small pods, pulled, fused and by DeepEP, bit for bit against the oracle."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.kernels.experts.counts import INDEX_BYTES
from xccl_emu.machine.pod import ORDERS
from xccl_emu.machine.spec import CLOUDMATRIX384
from xccl_emu.protocols.experts.config import EpConfig, buffer_bytes

from .ep_support import (
    DEEPEP,
    EITHER,
    EITHER_WAY,
    FUSED,
    PULL,
    SPECIAL_BITS,
    WAYS,
    Case,
    Kind,
    cases,
    check_outputs,
    check_received,
    check_round,
    digests_of,
    follow,
    follow_in_one_run,
    run_round,
)


def small(kind: Kind, **options: Any) -> Case:
    """Three rounds of a small group."""
    config = kind.config(n_ranks=3, local_experts=2, hidden=64, top_k=3, tokens_max=4, cores=2)
    return Case(config, "relaxed", "random", **{"seed": 4, "lengths": ((4, 1, 3), (0, 3, 2), (2, 2, 4))} | options)


@pytest.mark.boundscheck
@EITHER
@given(st.data())
def test_rounds_give_what_the_oracle_gives_and_touch_nothing_else(kind: Kind, data: st.DataObject) -> None:
    """Any small group with any of its switches, batch sizes that change from round to round, no reset in between."""
    follow(data.draw(cases(kind, ranks=st.integers(2, 6), rounds=st.integers(1, 3))))


@settings(max_examples=8)
@given(cases(PULL, ranks=st.integers(7, 16), rounds=st.just(1)))
def test_larger_groups_give_what_the_oracle_gives(case: Case) -> None:
    """Up to 16 ranks with up to 64 experts."""
    follow(case)


@pytest.mark.nojit
@pytest.mark.parametrize(
    "switches",
    [
        {}, {"path": "dma"}, {"quantized": False}, {"path": "dma", "quantized": False}, {"quantized_back": True},
        {"quantized_back": True, "path": "dma"}, {"counting": "scalar"}, {"counting": "scalar", "quantized": False},
        {"repeats": True},
    ],
)  # fmt: skip
def test_a_small_round_without_the_jit(switches: dict[str, Any]) -> None:
    """The same kernels and machine in plain Python give what the oracle gives."""
    config = EpConfig(n_ranks=2, local_experts=1, hidden=32, top_k=2, tokens_max=2, **switches)
    follow(Case(config, "relaxed", "random", seed=5, lengths=((2, 1),)))


@EITHER
@settings(max_examples=10)
@given(st.data())
def test_memory_is_the_same_in_every_order_under_every_policy(kind: Kind, data: st.DataObject) -> None:
    """One digest of all memory, managed and metadata areas included, for all orders, policies and two seeds."""
    assert len(digests_of(data.draw(cases(kind, ranks=st.integers(2, 4), rounds=st.integers(1, 2))), WAYS)) == 1


@pytest.mark.parametrize(("order", "policy"), WAYS)
@EITHER_WAY
def test_every_way_of_running(kind: Kind, switches: dict[str, Any], order: str, policy: str) -> None:
    """Each order, policy and switch is run at least once, whatever Hypothesis draws; in calls, and in one run."""
    sizes = {"n_ranks": 4, "local_experts": 2, "hidden": 96, "top_k": 4, "tokens_max": 5, "cores": 3, "shared": True}
    config = kind.config(**sizes | switches)
    case = Case(config, order, policy, seed=11, lengths=((5, 0, 2, 3), (1, 4, 0, 0)), spare_ub=2048)
    follow(case)
    follow_in_one_run(case)


@pytest.mark.parametrize("routing", ["one expert", "own rank"])
@pytest.mark.parametrize("cores", [1, 4])
@pytest.mark.parametrize(
    ("kind", "switches"), [(PULL, {}), (FUSED, {}), (FUSED, {"preallocated": False}), (DEEPEP, {})],
    ids=["pull", "fused", "packed", "deepep"],
)  # fmt: skip
def test_buffers_hold_the_worst_case(kind: Kind, switches: dict[str, Any], routing: str, cores: int) -> None:
    """Full batches that all go to one expert, or to all experts of one rank, fit the fixed blocks, or Eq. (1)."""
    config = kind.config(n_ranks=3, local_experts=3, hidden=32, top_k=3, tokens_max=6, cores=cores, **switches)
    case = Case(config, "relaxed", "random", seed=3, lengths=((6, 6, 6),) * 2, masked=0.0, routing=routing)
    group = case.group()
    for batch in case.batches():
        check_round(group, batch)
    assert max(len(group.received(rank).x) for rank in range(3)) >= 18


@EITHER_WAY
def test_an_expert_that_takes_every_choice_gets_a_message_for_each(kind: Kind, switches: dict[str, Any]) -> None:
    """Made for repeats, there is room for a full batch whose choices are all one expert, each weighed by itself."""
    config = kind.config(n_ranks=3, hidden=32, top_k=5, tokens_max=4, cores=2, shared=True, repeats=True, **switches)
    case = Case(config, "relaxed", "random", seed=5, lengths=((4, 4, 0),), masked=0.0)
    (batch,), group = case.batches(), case.group()
    for choices in batch.topk:
        choices[:] = 1
    check_round(group, batch)
    assert len(group.received(1).x) == 40


@pytest.mark.parametrize(("tokens_max", "streams"), [(1, False), (512, False), (513, True), (16384, True)])
def test_what_streams_is_said_by_the_batch(tokens_max: int, streams: bool) -> None:
    """Up to 512 tokens the data buffer holds all choices; from then on what it takes does not grow."""
    config = EpConfig(n_ranks=64, local_experts=5, tokens_max=tokens_max, cores=48)
    assert config.streams == streams
    assert buffer_bytes(config) <= CLOUDMATRIX384.ub_bytes


@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize(("kind", "switches"), [(kind, s) for kind in (PULL, FUSED) for s in ({}, *kind.switches)])
def test_a_large_batch_streams_its_choices(kind: Kind, switches: dict[str, Any], cores: int) -> None:
    """Choices of 300 tokens go through a data buffer with room for those of 17, in many parts, and no bit differs."""
    sizes = {"n_ranks": 2, "local_experts": 2, "hidden": 32, "top_k": 3, "tokens_max": 300, "cores": cores}
    config = kind.config(**sizes, counting="scalar", **switches)
    assert kind.buffer_bytes(config) < 300 * INDEX_BYTES / 2
    follow(Case(config, "relaxed", "random", seed=8, lengths=((300, 41), (7, 290))))


@pytest.mark.parametrize("cores", [1, 3])
@EITHER
def test_no_tokens_at_all(kind: Kind, cores: int) -> None:
    """A round in which no rank has a token ends, and the next one is right; in one run too."""
    config = kind.config(n_ranks=3, hidden=32, top_k=2, tokens_max=3, cores=cores)
    case = Case(config, "relaxed", "random", seed=6, lengths=((0, 0, 0), (3, 0, 1), (0, 0, 0), (0, 2, 0)))
    follow(case)
    follow_in_one_run(case)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("quantized", [True, False])
def test_rows_at_the_edges_of_the_type(dtype: str, quantized: bool) -> None:
    """Zeros, -0, subnormals, the smallest normal and the largest value, as whole rows and as single elements; -0 comes
    back as +0, for that is what the sum starts at."""
    edges = list(SPECIAL_BITS[dtype].values())
    config = EpConfig(
        n_ranks=2, hidden=32, top_k=2, tokens_max=2 * len(edges), dtype=dtype, quantized=quantized, cores=2
    )
    case = Case(config, "relaxed", "random", seed=7, lengths=((2 * len(edges), 0),), masked=0.0)
    drawn = case.batches()[0]
    bits = drawn.tokens[0].view(np.uint16)
    for i, edge in enumerate(edges):
        bits[2 * i] = edge
        bits[2 * i + 1, 5] = edge | 0x8000
    group = case.group()
    check_round(group, drawn)
    assert (group.output(0).view(np.uint16)[2] == 0).all()


@EITHER
@settings(max_examples=10)
@given(seed=st.integers(0, 1 << 40), order=st.sampled_from(ORDERS), dispatches=st.integers(1, 3))
def test_dispatches_without_combine(kind: Kind, seed: int, order: str, dispatches: int) -> None:
    """Dispatch may be called again without a combine in between; combine then belongs to the last one."""
    case = replace(small(kind, seed=seed), order=order)
    group, batches = case.group(), case.batches()
    for batch in batches[:dispatches]:
        group.dispatch(batch.tokens, batch.topk)
    check_round(group, batches[dispatches - 1])


@EITHER
def test_combine_twice_gives_the_same(kind: Kind) -> None:
    """Combine may be called again with other weights for the same dispatch."""
    case = small(kind)
    group, batch = case.group(), case.batches()[0]
    _, first = run_round(group, batch)
    kept = [out.copy() for out in first]
    group.combine([2 * w for w in batch.weights])
    for one, other in zip(kept, group.combine(batch.weights), strict=True):
        np.testing.assert_array_equal(one.view(np.uint16), other.view(np.uint16))


@pytest.mark.slow
@pytest.mark.parametrize("cores", [1, 2])
def test_all_dies_of_the_pod(cores: int) -> None:
    """768 ranks, one token each with eight choices."""
    config = FUSED.config(n_ranks=768, hidden=32, top_k=8, tokens_max=1, cores=cores)
    case = Case(config, "sc", "round-robin", seed=1, lengths=((1,) * 768,), masked=0.0)
    group, batch = case.group(), case.batches()[0]
    received, outputs = run_round(group, batch)
    for rank in range(0, 768, 37):
        check_received(config, batch, rank, received[rank])
    assert sum(len(r.x) for r in received) == 768 * 8
    check_outputs(config, batch, outputs)
