"""Experts that change while layers run: tokens are computed by the experts that they chose, whatever the map."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.base.errors import ConfigError
from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED, VIOLATION
from xccl_emu.machine.state import ORDERS
from xccl_emu.oracle.replicas import slots_by_map
from xccl_emu.protocols.experts.group import PhaseOfRound
from xccl_emu.protocols.serving import swap
from xccl_emu.protocols.serving.swap import DispatchSwap, FusedSwap, SwapCase
from xccl_emu.protocols.serving.swap.group import SwapGroup, SwappedExperts, SwappedFused

CASES = pytest.mark.parametrize("kind", [DispatchSwap, FusedSwap])


@settings(max_examples=12, deadline=None)
@CASES
@given(
    sizes=st.fixed_dictionaries({
        "ranks": st.integers(2, 4), "cores": st.integers(1, 2), "tokens": st.integers(1, 4), "granules": st.just(2),
        "top_k": st.integers(1, 2), "rounds": st.integers(1, 4), "experts": st.integers(2, 3),
        "quantized": st.integers(0, 1), "swaps": st.integers(1, 3), "seed": st.integers(0, 99),
    }),
    order=st.sampled_from(ORDERS),
)  # fmt: skip
def test_what_is_received_is_by_the_map_that_was_used(kind: type[SwapCase], sizes: dict[str, int], order: str) -> None:
    """Rows, routes with versions, counts and outputs are the oracle's, for drawn sizes and orders, some schedules."""
    assert check(kind(**sizes), policy="random", schedules=2, order=order).violation is None


def naive(choices: np.ndarray, version: int) -> np.ndarray:
    """Slots of three experts' tokens by the paper alone, for one swap: 0 has the replica, nobody, then 1."""
    owner = {0: 0, 1: -1, 2: 1}[version]
    return np.array([[3 if e == owner and t % 2 else e for e in row] for t, row in enumerate(choices)])


def test_the_oracle_takes_replicas_by_turns() -> None:
    """By hand: odd tokens of the expert with a replica go to the slot after the experts'; masked choices stay so."""
    choices = np.array([[0, 1], [0, 1], [1, -1], [1, 0]], np.int32)
    for version in range(3):
        assert np.array_equal(slots_by_map(choices, version, 3), naive(choices, version))


@pytest.mark.slow
@CASES
def test_ranks_of_one_run_use_different_maps(kind: type[SwapCase]) -> None:
    """Verified, and in the runs of the search each of two ranks is ahead of the other by a version, in either round."""
    used, received_by = set[tuple[tuple[int, ...], ...]](), swap.received_by

    def noted(case: SwapCase, versions: np.ndarray, *more: Any) -> list[list[np.ndarray]]:
        used.add(tuple(map(tuple, versions.T.tolist())))
        return received_by(case, versions, *more)

    with mock.patch.object(swap, "received_by", noted):
        assert check(kind(granules=1, tokens="2,0"), seconds=180).verdict == VERIFIED
    each = [{pairs[i] for pairs in used} for i in range(2)]
    assert each == [{(0, 0), (0, 1), (1, 0), (1, 1)}, {(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 1), (2, 2)}]


def steps_of(group: type[SwapGroup], moved: float) -> type[SwapGroup]:
    """A group that begins iterations that many launches sooner, or chooses slots again so many later."""

    def steps(self: SwapGroup, rounds: int) -> Iterator[PhaseOfRound]:
        given = [*super(changed, self).steps(rounds)]
        begins = [i for i, step in enumerate(given) if step.phase.kernel.name == "begin"]
        at = {i: i + moved if moved > 0 or i else i for i in range(len(given)) if i in begins}
        again = [(place, given[i]) for i, place in at.items()]
        kept = [(i, step) for i, step in enumerate(given) if moved > 0 or i not in begins]
        return iter([step for _, step in sorted(kept + again, key=lambda each: each[0])])

    changed = type("Changed", (group,), {"steps": steps})
    return changed


@dataclass(frozen=True)
class Early(DispatchSwap):
    """A rank adopts a map when its dispatch is over: its rows are pulled and acknowledged, and not yet computed."""

    group = steps_of(SwappedExperts, -2.5)


@dataclass(frozen=True)
class FusedEarly(FusedSwap):
    """The same by FusedDispatch."""

    group = steps_of(SwappedFused, -2.5)


@dataclass(frozen=True)
class Again(DispatchSwap):
    """Combine finds rows by the map as it is when they are computed."""

    group = steps_of(SwappedExperts, 2.5)


@pytest.mark.parametrize("case", [Early(granules=1), FusedEarly(granules=1), Again(granules=1)], ids=repr)
def test_a_map_that_changes_within_an_iteration_is_refuted(case: SwapCase) -> None:
    """The acknowledgment of dispatch is no grace period, and combine must not look at a map."""
    assert check(case, seconds=60).verdict == VIOLATION


@pytest.mark.parametrize("sizes", [{"experts": 1}, {"top_k": 4}])
def test_too_few_experts_are_refused(sizes: dict[str, int]) -> None:
    """One slot is redundant, and at least two experts take turns there."""
    with pytest.raises(ConfigError, match="redundant"):
        DispatchSwap(**sizes)
