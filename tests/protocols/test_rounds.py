"""Several rounds in one run, where a fast rank may be a round ahead of a slow one."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.base.errors import CapacityError
from xccl_emu.lang.in_turn import in_turn
from xccl_emu.machine.pod import ORDERS, POLICIES, Pod
from xccl_emu.machine.spec import small_pod
from xccl_emu.protocols.experts.case import in_parts
from xccl_emu.protocols.experts.layout import LAYER

from .ep_support import (
    DEEPEP,
    EITHER,
    EITHER_WAY,
    FUSED,
    KINDS,
    PULL,
    Case,
    Kind,
    assert_same_bits,
    cases,
    check_outputs,
    check_round,
    check_rounds,
    columns,
    follow_in_one_run,
    refused,
)

CASES = {
    kind: Case(
        kind.config(n_ranks=3, local_experts=2, hidden=32, top_k=3, tokens_max=3, cores=2), "relaxed", "random", seed=1,
        lengths=((3, 0, 1), (0, 2, 3), (1, 3, 0)),
    )
    for kind in KINDS.values()
}  # fmt: skip
CASE, CONFIG = CASES[PULL], CASES[PULL].config


@EITHER
@given(st.data())
def test_rounds_in_one_run_give_what_the_oracle_gives(kind: Kind, data: st.DataObject) -> None:
    """All that dispatch and combine give in each round, for any small group, order and policy."""
    follow_in_one_run(data.draw(cases(kind, ranks=st.integers(2, 4), rounds=st.integers(1, 4))))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n_ranks", [2, 3, 4])
@EITHER_WAY
def test_many_schedules(kind: Kind, switches: dict[str, Any], n_ranks: int, order: str) -> None:
    """Three rounds, ranks without tokens, four seeds of the random policy for each order and switch."""
    lengths = tuple(tuple((2 * i + rank) % 3 for rank in range(n_ranks)) for i in range(3))
    config = replace(CASES[kind].config, n_ranks=n_ranks, **switches)
    for seed in range(4):
        follow_in_one_run(Case(config, order, "random", seed, lengths))


@settings(max_examples=10)
@given(cases(FUSED, ranks=st.integers(2, 4), rounds=st.just(1)), st.integers(1, 4))
def test_a_batch_goes_through_smaller_buffers_in_parts(case: Case, at_once: int) -> None:
    """In one run, a round for each part: put together, the outputs are those of the whole batch."""
    (batch,) = case.batches()
    smaller = replace(case, config=replace(case.config, tokens_max=at_once), lengths=((0,),) * 6)
    parts = (in_parts(each, at_once) for each in (batch.tokens, batch.topk, batch.weights))
    outputs = smaller.group().run_rounds(*parts)
    check_outputs(case.config, batch, [np.concatenate(each) for each in zip(*outputs, strict=True)])


@pytest.mark.boundscheck
@pytest.mark.parametrize("policy", POLICIES)
@EITHER
def test_single_calls_and_rounds_in_one_run_mix(kind: Kind, policy: str) -> None:
    """The counts of rounds carry over from calls to runs of rounds and back."""
    case = replace(CASES[kind], policy=policy)
    group, batches = case.group(), case.batches()
    for some in (batches, batches[::-1]):
        check_round(group, some[0])
        for outputs, batch in zip(group.run_rounds(*columns(some)), some, strict=True):
            check_outputs(case.config, batch, outputs)
    check_round(group, batches[1])
    assert group.stats["rounds"].actions > 0


FUSED_WAYS = [(FUSED, switches) for switches in ({}, *FUSED.switches, {"counting": "scalar"})]


@pytest.mark.nojit
@pytest.mark.parametrize(("kind", "switches"), [*FUSED_WAYS, (PULL, {"quantized": False}), (DEEPEP, {})])
def test_two_rounds_without_the_jit(kind: Kind, switches: dict[str, Any]) -> None:
    """The same kernels in plain Python give what the oracle gives."""
    config = kind.config(n_ranks=2, hidden=32, top_k=2, tokens_max=2, **switches)
    follow_in_one_run(Case(config, "relaxed", "random", seed=5, lengths=((2, 1), (1, 2))))


def test_memory_is_the_same_under_every_order_and_policy() -> None:
    """One digest of all memory after three rounds in one run."""
    digests = set()
    for order in ORDERS:
        for policy in POLICIES:
            group = CASE.group_in(order, policy, 5)
            group.run_rounds(*columns(CASE.batches()))
            digests.add(group.pod.digest())
    assert len(digests) == 1


@pytest.mark.parametrize("order", ORDERS)
def test_parts_can_be_run_apart(order: str) -> None:
    """All dispatches in one run, then all experts, then all combines: acknowledgements keep their blocks apart."""
    batches = CASE.batches()
    group = CASE.group_in(order, "random", 2)
    for part in LAYER:
        group.run_rounds(*columns(batches), parts=[part])
    check_rounds(group, batches)
    check_round(group, batches[0])


def test_the_expert_of_a_round_is_that_of_the_single_call() -> None:
    """The expert's outputs are the same bits as after `run_dummy`."""
    batches = CASE.batches()
    rounds, group = CASE.group(), CASE.group()
    rounds.run_rounds(*columns(batches))
    for i, batch in enumerate(batches):
        check_round(group, batch)
        for rank in range(CONFIG.n_ranks):
            assert_same_bits("expert output", rounds.expert_output(rank, i), group.expert_output(rank))


def test_app_memory_is_given_back() -> None:
    """A run of rounds leaves as much of the app areas free as it found, and so does a group that does not fit."""
    group, batches = CASE.group(), CASE.batches()
    mark = group.pod.mark_app()
    group.run_rounds(*columns(batches))
    assert group.pod.mark_app() == mark
    with pytest.raises(CapacityError, match="do not fit the app data area"):
        PULL.group(group.pod, CONFIG, rounds=27)
    assert group.pod.mark_app() == mark
    check_round(group, batches[0])


def test_refusals_name_round_rank_and_value() -> None:
    """What does not fit is refused before anything moves."""
    group = CASE.group()
    tokens, topk, weights = columns(CASE.batches())
    fewer, short = [weights[0], weights[1][:2], weights[2]], [[w[:1] for w in per_rank] for per_rank in weights]
    beyond = [[np.full_like(t, 99) for t in per_rank] for per_rank in topk]
    for arguments, message in (
        (([], [], []), "rounds of tokens=0: must be a whole number, 1 to 3"),
        ((tokens * 2, topk, weights), "rounds of tokens=6: must be a whole number, 1 to 3"),
        ((tokens, topk[:2], weights), "topk: 2 arrays for 3 rounds"),
        ((tokens, topk, fewer), "weights of round 1: 2 arrays for 3 ranks"),
        ((tokens, topk, short), r"weights of round 0, rank 0: \[1, 3\] float32, must be \[3, 3\] float32"),
        ((tokens, beyond, weights), "topk of rank 0, token 0: 99 must be -1 or a slot below 6"),
    ):
        refused(group.pod, partial(group.run_rounds, *arguments), message)


def test_a_pod_with_few_registers_is_refused() -> None:
    """All kernels of a round in one need more registers than each by itself, and the message says how many."""
    group, batches = PULL.group(Pod(CASE.spec().with_(registers=150)), CONFIG), CASE.batches()
    check_round(group, batches[0])
    message = r"dispatch_then_dummy_expert_then_combine: \d+ registers, a core has 150"
    refused(group.pod, partial(group.run_rounds, *columns(batches[:1])), message)


@EITHER
def test_rounds_fit_the_registers_of_a_usual_pod(kind: Kind) -> None:
    """All kernels of a round in one need no more registers than a pod has unless asked for more."""
    kernels = tuple(step.phase.kernel for step in CASES[kind].group().steps(1))
    assert in_turn(kernels).n_registers <= small_pod(2).registers
