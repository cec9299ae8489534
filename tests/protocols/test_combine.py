"""Combine by itself: outputs written by the host, the order of the sum, the shared expert."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.machine.pod import ORDERS
from xccl_emu.protocols.layout import EpConfig

from .ep_support import EITHER, PULL, Batch, Case, Kind, assert_same_bits, cases, oracle_of, rule_back


@settings(max_examples=40)
@given(cases(PULL, ranks=st.integers(2, 5), rounds=st.integers(1, 2)))
def test_outputs_written_by_the_host_come_back_weighted(case: Case) -> None:
    """Any bits written into expert_output are fetched and summed as the oracle sums them."""
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


def _one_token(config: EpConfig, choices: list[int], weights: list[float]) -> Batch:
    none = np.zeros((0, config.hidden), config.numpy_dtype())
    empty = config.n_ranks - 1
    return Batch(
        [np.ones((1, config.hidden), config.numpy_dtype()), *[none] * empty],
        [np.array([choices], np.int32), *[np.zeros((0, config.top_k), np.int32)] * empty],
        [np.array([weights], np.float32), *[np.zeros((0, config.top_k), np.float32)] * empty],
    )


@pytest.mark.parametrize("order", ORDERS)
@EITHER
def test_contributions_are_added_in_order_of_the_choices(kind: Kind, order: str) -> None:
    """A sum whose value depends on its order: 2**24, then 1, then -2**24 in FP32 is 0, in another order 1."""
    config = kind.config(n_ranks=3, hidden=32, top_k=3, tokens_max=1, quantized=False)
    group = Case(config, order, "random", 2, ()).group()
    for choices in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        batch = _one_token(config, choices, [1.0, 1.0, 1.0])
        group.dispatch(batch.tokens, batch.topk)
        for rank, value in zip(choices, (2.0**24, 1.0, -(2.0**24)), strict=True):
            group.expert_output(rank)[:] = value
        assert (group.combine(batch.weights)[0] == 0).all()


def test_the_shared_expert_is_added_unweighted() -> None:
    """With ``shared`` the weight of the last choice is not used; without it is."""
    for shared, want in ((True, 5.0), (False, 302.0)):
        config = EpConfig(n_ranks=2, hidden=32, top_k=2, tokens_max=1, shared=shared)
        group = Case(config, "sc", "round-robin", 0, ()).group()
        batch = _one_token(config, [0, 1], [2.0, 100.0])
        group.dispatch(batch.tokens, batch.topk)
        group.expert_output(0)[:] = 1.0
        group.expert_output(1)[:] = 3.0
        assert (group.combine(batch.weights)[0] == want).all()


def test_the_shared_expert_may_be_masked() -> None:
    """A masked last choice adds nothing, and the last choice that is left is weighted."""
    config = EpConfig(n_ranks=2, hidden=32, top_k=2, tokens_max=1, shared=True)
    group = Case(config, "sc", "round-robin", 0, ()).group()
    batch = _one_token(config, [1, -1], [0.5, 9.0])
    group.dispatch(batch.tokens, batch.topk)
    group.expert_output(1)[:] = 3.0
    assert (group.combine(batch.weights)[0] == 1.5).all()
