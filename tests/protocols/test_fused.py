"""FusedDispatch, dummy expert and FusedCombine on small pods, bit for bit against the oracle."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.kernels.counts import INDEX_BYTES
from xccl_emu.machine.pod import POLICIES
from xccl_emu.protocols.fused import run_fused_rounds
from xccl_emu.protocols.fused_layout import FusedConfig, fused_buffer_bytes
from xccl_emu.protocols.rounds import in_parts

from .ep_support import WAYS, Batch, check_outputs, check_received, check_round, digests_of, run_round
from .fused_support import SWITCHES, FusedCase, FusedTouched, fused_cases, fused_rounds_of

SMALL = FusedConfig(n_ranks=3, local_experts=2, hidden=64, top_k=3, tokens_max=4, cores=2)
CASE = FusedCase(SMALL, "relaxed", "random", seed=4, lengths=((4, 1, 3), (0, 3, 2), (2, 2, 4)))


def follow(case: FusedCase) -> None:
    """Run all rounds of a case on one group; compare each with the oracle, and what none may touch with the poison."""
    group = case.group()
    touched = FusedTouched(group)
    for batch in case.batches():
        touched.add(batch)
        check_round(group, batch)
    touched.check()


def follow_in_one_launch(case: FusedCase) -> None:
    """The same in one launch."""
    batches = case.batches()
    rounds = fused_rounds_of(case.group(), batches)
    rounds.run()
    for i, batch in enumerate(batches):
        for rank in range(case.config.n_ranks):
            check_received(case.config, batch, rank, rounds.received(i, rank))
        check_outputs(case.config, batch, [rounds.output(i, rank) for rank in range(case.config.n_ranks)])


@settings(max_examples=80)
@given(fused_cases(ranks=st.integers(2, 6), rounds=st.integers(1, 3)))
def test_rounds_give_what_the_oracle_gives_and_touch_nothing_else(case: FusedCase) -> None:
    """Any small group with any of the optimizations, batch sizes that change from round to round, no reset."""
    follow(case)


@settings(max_examples=80)
@given(fused_cases(ranks=st.integers(2, 4), rounds=st.integers(1, 4)))
def test_rounds_in_one_launch_give_what_the_oracle_gives(case: FusedCase) -> None:
    """The same where a fast rank may be ahead of a slow one."""
    follow_in_one_launch(case)


@pytest.mark.boundscheck
@settings(max_examples=15)
@given(fused_cases(ranks=st.integers(2, 4), rounds=st.integers(1, 2)))
def test_rounds_stay_in_bounds(case: FusedCase) -> None:
    """No index of the machine's arrays leaves them (the run with bounds checks is what can fail here)."""
    follow(case)


@pytest.mark.nojit
@pytest.mark.parametrize("switches", [{}, *SWITCHES, {"counting": "scalar"}])
def test_two_rounds_without_the_jit(switches: dict[str, Any]) -> None:
    """The same kernels and machine in plain Python give what the oracle gives."""
    config = FusedConfig(n_ranks=2, hidden=32, top_k=2, tokens_max=2, **switches)
    follow_in_one_launch(FusedCase(config, "relaxed", "random", seed=5, lengths=((2, 1), (1, 2))))


@pytest.mark.parametrize(("order", "policy"), WAYS)
@pytest.mark.parametrize("switches", [{}, *SWITCHES])
def test_every_way_of_running(order: str, policy: str, switches: dict[str, Any]) -> None:
    """Each order, policy and switch is run at least once, whatever Hypothesis draws."""
    config = FusedConfig(
        n_ranks=4, local_experts=2, hidden=96, top_k=4, tokens_max=5, cores=3, shared=True, **switches
    )
    case = FusedCase(config, order, policy, seed=11, lengths=((5, 0, 2, 3), (1, 4, 0, 0)), spare_ub=2048)
    follow(case)
    follow_in_one_launch(case)


@pytest.mark.parametrize("n_ranks", [2, 3, 4])
def test_many_schedules(n_ranks: int) -> None:
    """Three rounds in one launch, ranks without tokens among them, ten seeds of the random policy for each switch."""
    lengths = tuple(tuple((2 * i + rank) % 3 for rank in range(n_ranks)) for i in range(3))
    config = FusedConfig(n_ranks=n_ranks, local_experts=2, hidden=32, top_k=3, tokens_max=3, cores=2)
    for switches in ({}, *SWITCHES):
        for seed in range(10):
            follow_in_one_launch(FusedCase(replace(config, **switches), "relaxed", "random", seed, lengths))


@settings(max_examples=8)
@given(case=fused_cases(ranks=st.integers(2, 4), rounds=st.integers(1, 2)))
def test_memory_is_the_same_in_every_order_under_every_policy(case: FusedCase) -> None:
    """One digest of all memory for all orders, policies and two seeds."""
    assert len(digests_of(case, WAYS)) == 1


@pytest.mark.parametrize("routing", ["one expert", "own rank"])
@pytest.mark.parametrize("cores", [1, 4])
@pytest.mark.parametrize("preallocated", [True, False])
def test_buffers_hold_the_worst_case(routing: str, cores: int, preallocated: bool) -> None:
    """Full batches that all go to one expert, or to all experts of one rank, fit the buffers of Eq. (1)."""
    config = FusedConfig(
        n_ranks=3, local_experts=3, hidden=32, top_k=3, tokens_max=6, cores=cores, preallocated=preallocated
    )
    case = FusedCase(config, "relaxed", "random", seed=3, lengths=((6, 6, 6),) * 2, masked=0.0, routing=routing)
    group = case.group()
    for batch in case.batches():
        check_round(group, batch)
    assert max(len(group.received(rank).x) for rank in range(3)) >= 18


@pytest.mark.parametrize("switches", [{}, *SWITCHES])
def test_an_expert_that_takes_every_choice_gets_a_message_for_each(switches: dict[str, Any]) -> None:
    """Made for repeats, a region holds a full batch whose choices are all one expert, each weighed by itself."""
    config = FusedConfig(n_ranks=3, hidden=32, top_k=5, tokens_max=4, cores=2, shared=True, repeats=True, **switches)
    case = FusedCase(config, "relaxed", "random", seed=5, lengths=((4, 4, 0),), masked=0.0)
    (batch,), group = case.batches(), case.group()
    for choices in batch.topk:
        choices[:] = 1
    check_round(group, batch)
    assert len(group.received(1).x) == 40


@pytest.mark.parametrize("switches", [{}, *SWITCHES])
@pytest.mark.parametrize("cores", [1, 3])
def test_a_large_batch_streams_its_choices(cores: int, switches: dict[str, Any]) -> None:
    """Choices of 300 tokens go through a data buffer with room for those of 17, in many parts, and no bit differs."""
    config = FusedConfig(
        n_ranks=2, local_experts=2, hidden=32, top_k=3, tokens_max=300, cores=cores, counting="scalar", **switches
    )  # fmt: skip
    assert fused_buffer_bytes(config) < 300 * INDEX_BYTES / 2
    follow(FusedCase(config, "relaxed", "random", seed=8, lengths=((300, 41), (7, 290))))


@settings(max_examples=10)
@given(fused_cases(ranks=st.integers(2, 4), rounds=st.just(1)), st.integers(1, 4))
def test_a_batch_goes_through_smaller_buffers_in_parts(case: FusedCase, at_once: int) -> None:
    """In one launch, a round for each part: put together, the outputs are those of the whole batch."""
    (batch,) = case.batches()
    smaller = replace(case, config=replace(case.config, tokens_max=at_once), lengths=((0,),) * 6)
    columns = (in_parts(each, at_once) for each in (batch.tokens, batch.topk, batch.weights))
    outputs = run_fused_rounds(smaller.group(), *columns)
    check_outputs(case.config, batch, [np.concatenate(parts) for parts in zip(*outputs, strict=True)])


def test_a_masked_batch_sends_nothing_and_sums_to_zero() -> None:
    """With every choice masked nobody receives a row, and each token gets +0."""
    case = replace(CASE, lengths=((4, 0, 2),), masked=1.0)
    received, outputs = run_round(case.group(), case.batches()[0])
    assert [len(r.x) for r in received] == [0, 0, 0]
    assert all((out.view(np.uint16) == 0).all() for out in outputs)
    assert [len(out) for out in outputs] == [4, 0, 2]


@pytest.mark.parametrize("cores", [1, 3])
def test_no_tokens_at_all(cores: int) -> None:
    """A round in which no rank has a token ends, and the next one is right; in one launch too."""
    config = FusedConfig(n_ranks=3, hidden=32, top_k=2, tokens_max=3, cores=cores)
    case = FusedCase(config, "relaxed", "random", seed=6, lengths=((0, 0, 0), (3, 0, 1), (0, 0, 0), (0, 2, 0)))
    follow(case)
    follow_in_one_launch(case)


def test_dispatches_without_combine() -> None:
    """Dispatch may be called again without a combine in between; combine then belongs to the last one."""
    group, batches = CASE.group(), CASE.batches()
    for batch in batches:
        group.dispatch(batch.tokens, batch.topk)
    check_round(group, batches[-1])


def test_combine_twice_gives_the_same() -> None:
    """Combine may be called again with other weights for the same dispatch: arrivals are counted on."""
    group, batch = CASE.group(), CASE.batches()[0]
    _, first = run_round(group, batch)
    kept = [out.copy() for out in first]
    group.combine([2 * w for w in batch.weights])
    for one, other in zip(kept, group.combine(batch.weights), strict=True):
        np.testing.assert_array_equal(one.view(np.uint16), other.view(np.uint16))


@pytest.mark.boundscheck
@pytest.mark.parametrize("policy", POLICIES)
def test_single_calls_and_rounds_in_one_launch_mix(policy: str) -> None:
    """Event IDs and what tokens are due carry over from calls to launches of rounds and back."""
    case = replace(CASE, policy=policy)
    group, batches = case.group(), case.batches()
    for some in (batches, batches[::-1]):
        check_round(group, batches[0])
        tokens, topk, weights = ([getattr(b, name) for b in some] for name in ("tokens", "topk", "weights"))
        for outputs, batch in zip(run_fused_rounds(group, tokens, topk, weights), some, strict=True):
            check_outputs(SMALL, batch, outputs)
    check_round(group, batches[1])


def test_contributions_are_added_in_order_of_the_choices() -> None:
    """A sum whose value depends on its order: 2**24, then 1, then -2**24 in FP32 is 0, in another order 1."""
    config = FusedConfig(n_ranks=3, hidden=32, top_k=3, tokens_max=1, quantized=False)
    group = FusedCase(config, "relaxed", "random", 2, ()).group()
    none = np.zeros((0, 32), config.numpy_dtype())
    for choices in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        batch = Batch(
            [np.ones((1, 32), config.numpy_dtype()), none, none],
            [np.array([choices], np.int32), *[np.zeros((0, 3), np.int32)] * 2],
            [np.ones((1, 3), np.float32), *[np.zeros((0, 3), np.float32)] * 2],
        )
        group.dispatch(batch.tokens, batch.topk)
        for rank, value in zip(choices, (2.0**24, 1.0, -(2.0**24)), strict=True):
            group.expert_output(rank)[:] = value
        assert (group.combine(batch.weights)[0] == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("cores", [1, 2])
def test_all_dies_of_the_pod(cores: int) -> None:
    """768 ranks, one token each with eight choices."""
    config = FusedConfig(n_ranks=768, hidden=32, top_k=8, tokens_max=1, cores=cores)
    case = FusedCase(config, "sc", "round-robin", seed=1, lengths=((1,) * 768,), masked=0.0)
    group, batch = case.group(), case.batches()[0]
    received, outputs = run_round(group, batch)
    for rank in range(0, 768, 37):
        check_received(config, batch, rank, received[rank])
    assert sum(len(r.x) for r in received) == 768 * 8
    check_outputs(config, batch, outputs)
