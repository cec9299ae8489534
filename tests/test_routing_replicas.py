"""Replicas of hot experts: which experts get them, where they go, and who uses them."""

from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.refused import refuses
from xccl_emu.routing import (
    Placement,
    Redundancy,
    Routing,
    assign_replicas,
    choose_replicas,
    draw_routing,
    place_choices,
    place_experts,
    skewed_loads,
)


def test_the_hottest_expert_is_split_until_another_is_hotter() -> None:
    """Loads of 12, 5 and 4: two copies make 6 each, the third 4 each, then the 5 is hottest, then copies of 4."""
    assert choose_replicas([12, 5, 4], 4, 9).tolist() == [0, 0, 1, 0]


def test_candidates_are_weighed_by_what_they_save_over_all_slices() -> None:
    """Hot in one slice only by a little, expert 0 loses to expert 1, which is hot in the two others."""
    slices = [[10, 9, 1], [0, 20, 1], [0, 20, 1]]
    assert choose_replicas(slices, 1, 9).tolist() == [1]
    # Now slices are led by 10, 10 and 10: expert 0 brings the first to 5, expert 1 both others to 20 / 3.
    assert choose_replicas(slices, 2, 9).tolist() == [1, 1]


def test_an_expert_has_no_more_copies_than_there_are_places() -> None:
    """With two copies at most, the third replica goes to the next expert, however hot the first still is."""
    assert choose_replicas([100, 3, 2], 3, 2).tolist() == [0, 1, 2]


loads_ = st.lists(st.integers(0, 50), min_size=1, max_size=8)


@given(st.lists(loads_, min_size=1, max_size=3), st.integers(0, 12))
def test_each_replica_is_the_best_of_the_candidates(rows: list[list[int]], n: int) -> None:
    """Step by step no candidate would have made the sum of the slices' hottest loads smaller."""
    width = min(map(len, rows))
    slices = np.array([row[:width] for row in rows], float)
    copies = np.ones(width)
    for expert in choose_replicas(slices, n, n + 1):
        totals = {}
        for candidate in np.unique((slices / copies).argmax(axis=1)):
            more = copies + (np.arange(width) == candidate)
            totals[int(candidate)] = (slices / more).max(axis=1).sum()
        assert totals[int(expert)] <= min(totals.values()) * (1 + 1e-12)
        copies[expert] += 1


def test_replicas_go_to_the_least_loaded_rank_with_room() -> None:
    """The hottest replica chooses first, each choice counts for the next, and full ranks are passed over; apart, so are
    ranks that have a copy already."""
    shares = np.array([8.0, 6.0, 1.0])
    on = partial(assign_replicas, [2, 1, 0], shares, homes=[0, 1, 2], rank_loads=[8, 6, 1], free=[1, 1, 1])
    assert on() == [0, 1, 2]
    assert on(apart=True) == [1, 0, 2]
    assert assign_replicas([0, 0], shares, [0, 1, 2], [0, 5, 9], [2, 0, 0], apart=True) == [0, 0]


@given(st.lists(st.integers(0, 3), max_size=6), st.lists(st.integers(0, 50), min_size=4, max_size=4))
def test_replicas_are_placed_as_the_paper_says(replicas: list[int], loads: list[int]) -> None:
    """[xDeepServe] 4.5, step 2: in order of their load each goes to the least-loaded NPU with a free slot."""
    shares = np.array([9.0, 5.0, 4.0, 2.0])
    carried, free, wanted = [float(load) for load in loads], [2] * 4, {}
    for i in sorted(range(len(replicas)), key=lambda i: shares[replicas[i]], reverse=True):
        npu = min((npu for npu in range(4) if free[npu]), key=lambda npu: carried[npu])
        wanted[i], free[npu], carried[npu] = npu, free[npu] - 1, carried[npu] + shares[replicas[i]]
    assert assign_replicas(replicas, shares, range(4), loads, [2] * 4) == [wanted[i] for i in range(len(replicas))]


def test_320_ranks() -> None:
    """EP320: 256 experts and 32 replicas on 288 ranks, one each, and 32 ranks with the shared expert."""
    loads = skewed_loads(256, 0)
    placement = place_experts(320, 256, redundancy=Redundancy(32, loads))
    assert (placement.local_experts, placement.routed_ranks, placement.shared_ranks) == (1, 288, 32)
    assert placement.slots.tolist() == list(range(256))
    assert placement.n_replicas == 32
    assert sorted(slot for slots in placement.copies for slot in slots[1:]) == list(range(256, 288))
    assert len(placement.copies[int(loads.argmax())]) > 2


def test_288_ranks_with_a_redundant_slot_each() -> None:
    """EP288 as colocated: one expert, routed or shared, and one replica on every rank."""
    placement = place_experts(288, 256, redundancy=Redundancy(288, skewed_loads(256, 1), slots_per_rank=1))
    assert (placement.local_experts, placement.routed_ranks, placement.shared_ranks) == (2, 256, 32)
    assert placement.slots.tolist() == list(range(0, 512, 2))
    assert sorted(slot for slots in placement.copies for slot in slots[1:]) == list(range(1, 576, 2))
    assert placement.shared_slot(3) == 2 * 259


def test_the_table_rotates_copies_by_position() -> None:
    """Four positions: an expert with two copies takes them in turn, one with three does too, one alone stays."""
    placement = Placement(4, 3, 2, 4, 0, ((2, 1), (0, 5, 7), (3,)))
    assert placement.expert_map(4).tolist() == [[2, 0, 3], [1, 5, 3], [2, 7, 3], [1, 0, 3]]


@st.composite
def placements(draw: st.DrawFn) -> tuple[Placement, Redundancy]:
    """Any placement with replicas that fit."""
    n_ranks, n_experts, shared = draw(st.integers(2, 60)), draw(st.integers(1, 80)), draw(st.booleans())
    per_rank = draw(st.integers(0, 2))
    most = n_ranks * per_rank if per_rank else 2 * n_ranks
    # An expert may not have more copies than there are ranks that take replicas; half of them is always possible.
    n_replicas = draw(st.integers(0, min(most, n_experts * max(0, n_ranks // 2 - 1))))
    loads = np.random.default_rng(draw(st.integers(0, 99))).exponential(10.0, (draw(st.integers(1, 2)), n_experts)) ** 2
    redundancy = Redundancy(n_replicas, loads, per_rank)
    return place_experts(n_ranks, n_experts, shared, redundancy), redundancy


@given(placements())
def test_every_copy_has_a_slot_of_its_own(case: tuple[Placement, Redundancy]) -> None:
    """No slot holds two copies or a copy and the shared expert, all lie in the pod, all replicas are there, and the
    reserved slots of a rank are enough for its replicas."""
    placement, redundancy = case
    slots = [slot for copies in placement.copies for slot in copies]
    shared = {placement.shared_slot(rank) for rank in range(placement.n_ranks)} if placement.shared_ranks else set()
    assert len(set(slots) | shared) == len(slots) + len(shared)
    assert placement.n_replicas == redundancy.n_replicas
    assert 0 <= min(slots) <= max(slots) < placement.n_slots
    replicas = Counter(slot // placement.local_experts for copies in placement.copies for slot in copies[1:])
    if redundancy.slots_per_rank:
        assert max(replicas.values(), default=0) <= redundancy.slots_per_rank
    else:
        assert max(replicas, default=0) < placement.routed_ranks


@given(placements(), st.integers(0, 9), st.integers(1, 4), st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 99))
def test_tokens_find_a_copy_and_never_one_twice(
    case: tuple[Placement, Redundancy], tokens: int, k: int, masked: float, seed: int
) -> None:
    """Each choice becomes a slot of its expert, masked ones stay masked, and no token has a slot twice."""
    placement, rng = case[0], np.random.default_rng(seed)
    k = min(k, placement.n_experts)
    lengths = rng.integers(0, tokens + 1, placement.n_ranks)
    topk = [np.array([rng.permutation(placement.n_experts)[:k] for _ in range(n)]).reshape(n, k) for n in lengths]
    topk = [np.where(rng.random(ids.shape) < masked, -1, ids).astype(np.int32) for ids in topk]
    weights = [np.ones(ids.shape, np.float32) for ids in topk]
    placed = place_choices(Routing(tuple(topk), tuple(weights), placement.n_experts, ""), placement)
    for ids, slots in zip(topk, placed.topk, strict=True):
        for row, found in zip(ids.tolist(), slots.tolist(), strict=True):
            assert [slot < 0 for slot in found[:k]] == [e < 0 for e in row]
            assert all(slot in placement.copies[e] for e, slot in zip(row, found, strict=False) if e >= 0)
            taken = [slot for slot in found if slot >= 0]
            assert len(set(taken)) == len(taken)


@given(st.integers(2, 5), st.integers(1, 40))
def test_copies_get_even_shares(copies: int, tokens: int) -> None:
    """Copies of one expert that all tokens of a batch choose get numbers of tokens that differ by at most one."""
    placement = place_experts(copies, 1, False, Redundancy(copies - 1, [5.0]))
    ids = np.zeros((tokens, 1), np.int32)
    loads = place_choices(Routing((ids,), (np.ones((tokens, 1), np.float32),), 1, ""), placement).loads()
    assert len(loads) == copies
    assert loads.max() - loads.min() <= 1


@pytest.mark.parametrize("ranks", [64, 288, 320, 768])
def test_the_hottest_die_gets_cooler(ranks: int) -> None:
    """With 32 replicas on the same ranks, the die with the most rows has fewer than without."""
    loads = skewed_loads(256, 3)
    drawn = draw_routing(loads, ranks, 60, 8, np.random.default_rng(0), "")
    plain, better = place_experts(ranks, 256), place_experts(ranks, 256, redundancy=Redundancy(32, loads))
    hottest = [placement.rank_loads(place_choices(drawn, placement)).max() for placement in (plain, better)]
    assert hottest[1] < 0.8 * hottest[0]


@refuses(
    lambda n_replicas=1, loads=(1.0, 2.0, 3.0), **more: place_experts(
        4, 3, redundancy=Redundancy(n_replicas, loads, **more)
    ),
    ({"n_replicas": -1}, "n_replicas is -1; it must be 0 to 65536"),
    ({"slots_per_rank": -1}, "slots_per_rank is -1; it must be 0 to 65536"),
    ({"top_k": 0}, "top_k is 0; it must be 1 to 65536"),
    ({"slots_per_rank": (1 << 63) - 1}, "slots_per_rank is 9223372036854775807; it must be 0 to 65536"),
    ({"n_replicas": 1.5}, "n_replicas is 1.5; it must be"),
    ({"loads": [1.0, 2.0]}, "loads has 2 experts; there are 3"),
    ({"loads": [1.0, -2.0, 3.0]}, r"loads has shape \(3,\); it must be finite, non-negative"),
    ({"loads": [[[1.0]]]}, r"loads has shape \(1, 1, 1\)"),
    ({"n_replicas": 5, "slots_per_rank": 1}, "5 replicas: there is room for 4"),
    ({"n_replicas": 10, "slots_per_rank": 9}, r"n_replicas is 10; it must be in 0\.\.9: 3 experts with up to 4"),
)
def test_impossible_redundancy_is_refused() -> None:
    """Numbers out of range, loads of other experts, and more replicas than there is room or use for."""
