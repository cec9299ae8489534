"""Expert balance as a loop: counts, what is chosen and where it goes, and what ranks receive meanwhile."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu import oracle
from xccl_emu.base.errors import ConfigError
from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED
from xccl_emu.machine.state import ORDERS
from xccl_emu.protocols.serving.eplb import EplbLoop
from xccl_emu.routing.placement import assign_replicas, choose_replicas

COUNTS = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3)).flatmap(
    lambda n: st.lists(
        st.lists(st.integers(0, 9), min_size=n[1] * n[2], max_size=n[1] * n[2]), min_size=n[0], max_size=n[0]
    ).map(lambda rows: (np.array(rows, np.int32), n[1]))
)
"""Tokens [slices, experts], and the experts of a rank."""


@given(COUNTS)
def test_two_ways_to_choose_agree(drawn: tuple[np.ndarray, int]) -> None:
    """The oracle's choice for one replica is that of the library that places experts on a pod, for drawn counts."""
    counts, each = drawn
    ranks = [expert // each for expert in range(counts.shape[1])]
    expert = oracle.hot_expert(counts)
    assert [expert] == choose_replicas(counts, 1, 2).tolist()
    shares = counts.sum(axis=0) / (1 + (np.arange(counts.shape[1]) == expert))
    carried = np.bincount(ranks, weights=shares)
    assert [oracle.least_loaded(counts, expert, ranks)] == assign_replicas(
        [expert], shares, ranks, carried, [1] * len(carried)
    )


def test_what_is_chosen_by_hand() -> None:
    """Expert 2 split saves 6 of 17 tokens, expert 0 saves 1: so it is 2, and then the first of the ranks with 6."""
    counts = np.array([[5, 4, 0], [1, 4, 12]], np.int32)
    assert oracle.hot_expert(counts) == 2
    assert oracle.least_loaded(counts, 2, [0, 1, 2]) == 0
    assert oracle.least_loaded(counts, 2, [0, 0, 1]) == 1


SIZES = {
    "ranks": st.integers(2, 3), "cores": st.integers(1, 2), "granules": st.just(2), "experts": st.integers(2, 3),
    "swaps": st.integers(1, 2), "slices": st.integers(1, 2), "quantized": st.integers(0, 1),
    "top_k": st.integers(1, 2), "seed": st.integers(0, 99), "more": st.integers(0, 1),
    "tokens": st.lists(st.integers(0, 3), min_size=2, max_size=3).filter(any),
}  # fmt: skip
"""All that a rank receives in these is few enough bytes to be judged."""


@settings(max_examples=8, deadline=None)
@given(st.fixed_dictionaries(SIZES), st.sampled_from(ORDERS))
def test_counts_choices_and_rows_are_the_oracles(drawn: dict[str, int | Sequence[int]], order: str) -> None:
    """For drawn sizes and orders, on some drawn schedules; ranks with no tokens report too."""
    rounds = drawn["swaps"] * drawn["slices"] + drawn.pop("more")
    tokens = ",".join(str(n) for n in (drawn["tokens"] * 2)[: drawn["ranks"]])
    if set(tokens) <= {"0", ","}:
        tokens = f"1{tokens[1:]}"
    case = EplbLoop(**drawn | {"rounds": rounds, "tokens": tokens})
    assert check(case, policy="random", schedules=2, order=order).violation is None


def test_a_replica_moves_to_another_rank() -> None:
    """In two periods the expert and the rank that are chosen are not always the same."""
    case = EplbLoop(granules=1, tokens="4,1", experts=3, swaps=2, rounds=3)
    first, second = case.decided(case._batches())
    assert first != second


@pytest.mark.parametrize("wrong", [{"rounds": 1, "swaps": 2}, {"slices": 3}, {"experts": 1}, {"top_k": 3}])
def test_what_makes_no_loop_is_refused(wrong: dict[str, int]) -> None:
    """Too few iterations for the periods, and too few experts for a choice, are errors that say what is right."""
    with pytest.raises(ConfigError, match="must be"):
        EplbLoop(**wrong)


@pytest.mark.slow
def test_the_loop_is_proved() -> None:
    """Verified: in every schedule ranks receive rows by the maps they use, before, while and after a slot changes."""
    assert check(EplbLoop(granules=1, tokens="0,3", rounds=3), seconds=180).verdict == VERIFIED
