"""Layers that go on with fewer ranks: whichever rank is lost, the others' outputs are as without it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.check.mutants import Planted
from tests.check.mutants_survivors import DEAF, KEPT, PULL
from xccl_emu.base.errors import ConfigError
from xccl_emu.check.check import check
from xccl_emu.check.verdict import DEADLOCK, VERIFIED, WRONG_BITS
from xccl_emu.kernels.fused.dispatch import fused_dispatch
from xccl_emu.kernels.pull.combine import combine
from xccl_emu.kernels.pull.dispatch import dispatch
from xccl_emu.oracle import survivors as oracle
from xccl_emu.protocols.serving.survivors import DispatchMembership, FusedMembership
from xccl_emu.routing import Redundancy, place_experts

BOTH = (DispatchMembership, FusedMembership)
SMALL = {"ranks": 2, "cores": 1, "tokens": 1, "granules": 1, "rounds": 1}
SIZES = {
    "ranks": st.integers(3, 4), "cores": st.integers(1, 2), "tokens": st.integers(1, 3), "rounds": st.integers(1, 3),
    "experts": st.integers(1, 2), "top_k": st.integers(1, 2), "lost": st.integers(0, 4), "seed": st.integers(0, 9),
    "quantized": st.integers(0, 1), "counting": st.sampled_from(["vector", "scalar"]),
}  # fmt: skip


def of(case: type, sizes: dict[str, Any]) -> Any:
    """A case with room for the replicas that it has."""
    lost, most = min(sizes["lost"], sizes["ranks"]), sizes["ranks"] * sizes["experts"] - sizes["top_k"]
    return case(**{**sizes, "lost": lost, "replicas": min(sizes["experts"], most), "granules": 2})


@pytest.mark.slow
@pytest.mark.parametrize("case", BOTH)
@settings(max_examples=6, deadline=None)
@given(st.fixed_dictionaries(SIZES))
def test_outputs_are_those_of_who_is_left(case: type, sizes: dict[str, Any]) -> None:
    """Bit for bit the oracle's, for drawn sizes, on some drawn schedules: given up alive, or stopped at a moment."""
    drawn = of(case, sizes)
    assert check(drawn, policy="random", schedules=2).violation is None
    if drawn.lost < drawn.ranks:
        assert check(drawn, policy="random", schedules=2, fault=f"stop:die{drawn.lost}").violation is None


@pytest.mark.parametrize("case", BOTH)
def test_one_of_two_dies_stops_and_the_other_finishes(case: type) -> None:
    """At every moment, in every schedule: every other core returns, with the bits of a layer without it."""
    found = check(case(**SMALL), fault="stop:die1", policy="exhaustive")
    assert (found.verdict, found.recovery is None) == (VERIFIED, False)


@pytest.mark.nightly
@pytest.mark.parametrize("case", BOTH)
def test_one_of_three_dies_stops_and_the_others_finish(case: type) -> None:
    """The same where two go on together: ten million states of dispatch, more than a million of fused."""
    found = check(case(**{**SMALL, "ranks": 3}), fault="stop:die1", policy="exhaustive", max_bytes=12 << 30)
    assert (found.verdict, found.recovery is None) == (VERIFIED, False)


@pytest.mark.slow
@pytest.mark.parametrize("case", BOTH)
def test_any_one_of_eight_dies_stops(case: type) -> None:
    """Sampled: each in turn, with two rounds and two replicas; some runs are right, and none blocks."""
    for lost in range(8):
        eight = case(**SMALL | {"ranks": 8, "rounds": 2, "replicas": 2, "lost": lost})
        found = check(eight, fault=f"stop:die{lost}", schedules=12, seed=lost)
        assert (found.violation, found.ended["blocked"]) == (None, 0)
        assert found.ended["right"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("order", ["sc", "fifo", "unordered"])
@pytest.mark.parametrize("case", BOTH)
def test_proved_under_other_orders(case: type, order: str) -> None:
    """A loss at any moment is survived under every memory order."""
    assert check(case(**SMALL), order=order).verdict == VERIFIED


def test_a_rank_that_nobody_may_give_up_is_waited_for() -> None:
    """Without a suspicion the others wait for ever, as the case says that they may."""
    found = check(DispatchMembership(**SMALL, lost=2), fault="stop:die1", schedules=40)
    assert found.violation is None
    assert found.ended["blocked"] > 0


def test_kernels_that_nobody_leaves_poll_as_before() -> None:
    """What `run` and `bench` launch waits for its peers alone."""
    for kernel in (dispatch, combine, fused_dispatch):
        assert not {site.operation for site in kernel.sites} & {"poll_any", "choose"}


@given(st.integers(2, 6), st.integers(1, 3), st.integers(0, 5), st.data())
def test_every_expert_keeps_a_replica(ranks: int, local: int, lost: int, data: st.DataObject) -> None:
    """Drawn placements without a rank: no slot of it, one or more of each expert, as the naive rule has them."""
    n_slots, lost = ranks * local, lost % ranks
    most = n_slots // 2  # no expert then needs more copies than there are ranks
    replicas = data.draw(st.integers(local, max(local, most)))
    placed = place_experts(ranks, n_slots - replicas, False, Redundancy(replicas, np.ones(n_slots - replicas)))
    left = placed.without(lost)
    slots = [-1] * n_slots
    for expert, copies in enumerate(placed.copies):
        for slot in copies:
            slots[slot] = expert
    want = oracle.without_rank(slots, local, lost)
    assert min(map(len, left.copies)) > 0
    assert [sorted(copies) for copies in left.copies] == [
        [slot for slot, held in enumerate(want) if held == expert] for expert in range(placed.n_experts)
    ]
    assert not [slot for copies in left.copies for slot in copies if slot // local == lost]


def test_an_excess_replica_is_removed_by_hand() -> None:
    """The second of three ranks with experts 0, 1 and 0 is lost: the last slot, an excess replica, gets expert 1."""
    assert oracle.without_rank([0, 1, 0], 1, 1) == [0, -1, 1]
    assert oracle.to_slots(np.array([[0], [0], [1]]), [0, 1, 0]).tolist() == [[0], [2], [1]]


@pytest.mark.parametrize(("given", "said"), [
    ({"lost": 3}, "lost=3: must be a rank, 0 to 1, or 2 for none"),
    ({"replicas": 2}, "replicas=2: must be 1, slots of a rank, to 1"),
    ({"ranks": 129}, "ranks=129: must be at most 128"),
    ({"routing": "zipf"}, "routing='zipf': goes without ranks that are lost"),
])  # fmt: skip
def test_what_cannot_be_is_refused(given: dict[str, Any], said: str) -> None:
    """The error says what would be right."""
    with pytest.raises(ConfigError, match=said):
        DispatchMembership(**{**SMALL, **given})


def test_packed_messages_are_refused() -> None:
    """Without regions of their own what a lost rank still writes would land among the others' messages."""
    with pytest.raises(ConfigError, match="preallocated=0: must be 1"):
        FusedMembership(**SMALL, preallocated=0)


def test_too_few_slots_are_refused() -> None:
    """A placement without a replica cannot lose a rank."""
    with pytest.raises(ConfigError, match="rank 0: without it there are fewer slots than 2 experts"):
        place_experts(2, 2, False).without(0)


@pytest.mark.slow
def test_some_bugs_show_only_where_a_die_stops() -> None:
    """Who waits for an acknowledgment does not hear of a loss: right as long as the lost rank is alive to send it."""
    assert check(Planted(PULL, (DEAF,)), fault="stop:die1", policy="exhaustive").violation.kind == DEADLOCK


def test_a_slot_that_keeps_a_removed_replica_is_found() -> None:
    """The second of three ranks is lost, and the third computes tokens of its expert by the weights of another."""
    planted = Planted(DispatchMembership(**SMALL | {"ranks": 3}), (KEPT,))
    assert check(planted, policy="random", schedules=200).violation.kind == WRONG_BITS
