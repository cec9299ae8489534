"""The Hypothesis strategies: what they draw is what the package takes."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.machine import Pod, PodSpec
from xccl_emu.testing import assert_no_violation, strategies

from .cases import telling


@given(strategies.pods(dies_max=3), strategies.orders())
def test_pods_can_be_made(spec: PodSpec, order: str) -> None:
    """A drawn pod is a small one, within the limits, in each memory order."""
    pod = Pod(spec, order=order)
    assert 2 <= spec.n_dies <= 3
    assert 1 <= spec.cores_per_die <= 2
    assert pod.memory.nbytes < 1 << 20


@given(st.integers(0, 300).flatmap(lambda n: st.tuples(st.just(n), strategies.payloads(st.just(n)))))
def test_payloads_have_their_size_and_no_zero(drawn: tuple[int, NDArray[np.uint8]]) -> None:
    """Bytes that never arrived must differ from each of them."""
    nbytes, data = drawn
    assert (data.dtype, data.shape) == (np.uint8, (nbytes,))
    assert data.all()


@given(st.data(), st.integers(1, 3), st.integers(1, 6))
def test_routings_choose_different_experts(data: st.DataObject, ranks: int, experts: int) -> None:
    """For each rank [T, top_k], each expert at most once in a row, the rest masked."""
    top_k = data.draw(st.integers(1, experts))
    chosen = data.draw(strategies.routings(ranks, st.integers(0, 4), experts, top_k))
    assert len(chosen) == ranks
    for table in chosen:
        assert table.shape[1] == top_k
        for row in table.tolist():
            experts_of_row = [expert for expert in row if expert != strategies.MASKED]
            assert len(set(experts_of_row)) == len(experts_of_row)
            assert set(experts_of_row) <= set(range(experts))


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (strategies.routings(2, 3, 2, 3), "top_k=3"),
        (strategies.routings(2, [1, 2, 3], 4, 1), "one for each of 2 ranks"),
        (strategies.payloads(-1), "nbytes=-1"),
        (strategies.faults(1), "dies=1"),
    ],
)
def test_impossible_sizes_are_refused(strategy: st.SearchStrategy[object], message: str) -> None:
    """With the name of the argument."""

    @settings(max_examples=1)
    @given(strategy)
    def draws(_: object) -> None:
        pytest.fail("something was drawn")

    with pytest.raises(ConfigError, match=message):
        draws()


@given(strategies.faults(3))
def test_faults_are_of_the_grammar(fault: str) -> None:
    """A die of the pod stops or begins again, a link between two is cut or late, or a write is doubled or damaged."""
    assert re.fullmatch(r"(stop|revive):die[012](@\d+)?|(cut|stall|duplicate|corrupt):(?!(\d)-\4)[012]-[012]", fault)


@settings(max_examples=10)
@given(strategies.policies(), strategies.seeds())
def test_policies_and_seeds_are_taken_by_a_check(policy: str, seed: int) -> None:
    """Any drawn policy with any drawn seed runs."""
    assert assert_no_violation(telling(), policy=policy, seed=seed, schedules=3).schedules == 3
