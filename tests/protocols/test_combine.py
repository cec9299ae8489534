"""Combine by itself: outputs written by the host, the order of the sum, the shared expert."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.machine.pod import ORDERS

from .ep_support import EITHER, PULL, Case, Kind, assert_same_bits, cases, oracle_of, rule_back


@settings(max_examples=40)
@given(cases(PULL, ranks=st.integers(2, 5), rounds=st.integers(1, 2)))
def test_outputs_written_by_the_host_come_back_weighted(case: Case) -> None:
    """Any bits written into expert_output are fetched and summed as the oracle sums them: by weight, but for that of a
    shared expert, which may be masked."""
    group, rng = case.group(), np.random.default_rng(case.seed)
    for batch in case.batches():
        group.dispatch(batch.tokens, batch.topk)
        for rank in range(case.config.n_ranks):
            target = group.expert_output(rank)
            target[:] = rng.standard_normal(target.shape).astype(target.dtype)

        def fetch(ranks, rows):  # type: ignore[no-untyped-def]
            return np.stack([group.expert_output(int(r))[int(i)] for r, i in zip(ranks, rows, strict=True)])

        outputs = group.combine(batch.weights)
        dispatched, rule = oracle_of(case.config, batch), rule_back(case.config)
        for rank, got in enumerate(outputs):
            want = dispatched.combined_for(rank, batch.weights[rank], fetch, case.config.shared, rule)
            assert_same_bits(f"output of rank {rank}", got, want)


@pytest.mark.parametrize("order", ORDERS)
@EITHER
def test_contributions_are_added_in_order_of_the_choices(kind: Kind, order: str) -> None:
    """A sum whose value depends on its order: 2**24, then 1, then -2**24 in FP32 is 0, in another order 1."""
    config = kind.config(n_ranks=3, hidden=32, top_k=3, tokens_max=1, quantized=False)
    case = Case(config, order, "random", 2, lengths=((1, 0, 0),))
    group, (batch,) = case.group(), case.batches()
    for choices in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        batch.topk[0][0], batch.weights[0][0] = choices, 1
        group.dispatch(batch.tokens, batch.topk)
        for rank, value in zip(choices, (2.0**24, 1.0, -(2.0**24)), strict=True):
            group.expert_output(rank)[:] = value
        assert (group.combine(batch.weights)[0] == 0).all()
