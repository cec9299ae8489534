"""Batches per rank, and experts placed on ranks."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.refused import itself, refuses
from xccl_emu.routing import (
    RecordedChoices,
    Routing,
    deal_routing,
    draw_routing,
    place_choices,
    place_experts,
    skewed_loads,
)


def drawn(n_ranks: int, tokens_per_rank: int, n_experts: int, k: int) -> Routing:
    loads = skewed_loads(n_experts, 0)
    return draw_routing(loads, n_ranks, tokens_per_rank, k, np.random.default_rng(0), "drawn")


def test_the_deployment_of_288_ranks() -> None:
    """256 experts on 288 ranks: one a rank on the first 256, the shared expert on the 32 others in turn."""
    placement = place_experts(288, 256)
    assert (placement.local_experts, placement.routed_ranks, placement.shared_ranks) == (1, 256, 32)
    assert placement.slots.tolist() == list(range(256))
    assert placement.n_slots == 288
    assert [placement.shared_slot(rank) for rank in (0, 31, 32, 287)] == [256, 287, 256, 287]


def test_experts_share_ranks_when_there_are_few() -> None:
    """Five experts on two routed ranks take three and two slots; the third rank holds the shared expert."""
    placement = place_experts(3, 5)
    assert (placement.local_experts, placement.routed_ranks, placement.shared_ranks) == (3, 2, 1)
    assert placement.slots.tolist() == [0, 1, 2, 3, 4]
    assert placement.shared_slot(2) == 6
    spread = place_experts(4, 7)
    assert spread.slots.tolist() == [0, 1, 2, 3, 4, 6, 7]


@given(n_ranks=st.integers(2, 768), n_experts=st.integers(1, 512), shared=st.booleans())
def test_every_expert_has_a_slot_of_its_own(n_ranks: int, n_experts: int, shared: bool) -> None:
    """Slots differ, lie in order on routed ranks, load ranks evenly, and never meet the shared expert's."""
    placement = place_experts(n_ranks, n_experts, shared)
    assert placement.routed_ranks + placement.shared_ranks == n_ranks
    assert (placement.shared_ranks > 0) == shared
    assert placement.routed_ranks >= 1
    assert len(placement.slots) == n_experts
    assert (np.diff(placement.slots) > 0).all()
    per_rank = np.bincount(placement.slots // placement.local_experts, minlength=n_ranks)
    assert not per_rank[placement.routed_ranks :].any()
    routed = per_rank[: placement.routed_ranks]
    assert routed.max() == placement.local_experts
    assert routed.max() - routed.min() <= 1
    if shared:
        homes = {placement.shared_slot(rank) // placement.local_experts for rank in range(n_ranks)}
        assert homes == set(range(placement.routed_ranks, n_ranks))


def test_placing_adds_the_shared_expert() -> None:
    """Choices become slots, masked ones stay, and the shared expert is each token's last choice with weight 1."""
    topk = tuple(np.array([[4, 0], [-1, 3]], np.int32) for _ in range(3))
    weights = tuple(np.full((2, 2), 0.5, np.float32) for _ in range(3))
    placed = place_choices(Routing(topk, weights, 5, "by hand"), place_experts(3, 5))
    assert placed.n_experts == 9
    assert placed.source == "by hand"
    for ids, gates in zip(placed.topk, placed.weights, strict=True):
        assert ids.tolist() == [[4, 0, 6], [-1, 3, 6]]
        assert gates.tolist() == [[0.5, 0.5, 1.0]] * 2
        assert (ids.dtype, gates.dtype) == (np.int32, np.float32)


def test_placing_without_a_shared_expert() -> None:
    """Only the ids change; weights and the number of choices stay."""
    routing = drawn(4, 5, 7, 2)
    placed = place_choices(routing, place_experts(4, 7, shared=False))
    slots = place_experts(4, 7, shared=False).slots
    assert placed.k == 2
    for before, after in zip(routing.topk, placed.topk, strict=True):
        assert np.array_equal(after, slots[before])
    assert placed.weights == routing.weights


@given(n_ranks=st.integers(2, 40), tokens=st.integers(0, 8), n_experts=st.integers(4, 64), k=st.integers(1, 4))
def test_placing_keeps_every_choice(n_ranks: int, tokens: int, n_experts: int, k: int) -> None:
    """Loads of slots are the loads of their experts, shared slots get one choice a token, empty slots none."""
    routing = drawn(n_ranks, tokens, n_experts, k)
    placement = place_experts(n_ranks, n_experts)
    loads = place_choices(routing, placement).loads()
    assert np.array_equal(loads[placement.slots], routing.loads())
    shared = sorted({placement.shared_slot(rank) for rank in range(n_ranks)})
    assert loads[shared].sum() == n_ranks * tokens
    assert loads.sum() == n_ranks * tokens * (k + 1)


def test_drawn_routing_is_per_rank() -> None:
    """Each rank gets its own tokens, typed, with the experts and the label that were asked for."""
    routing = drawn(6, 10, 16, 4)
    assert (routing.n_ranks, routing.k, routing.n_experts, routing.source) == (6, 4, 16, "drawn")
    assert {ids.shape for ids in routing.topk} == {(10, 4)}
    assert len({ids.tobytes() for ids in routing.topk}) == 6
    assert routing.loads().sum() == 6 * 10 * 4


def test_dealing_is_in_order_and_starts_over() -> None:
    """Ranks take consecutive blocks; after the last recorded token comes the first."""
    choices = RecordedChoices(
        np.arange(5, dtype=np.int32)[:, None], np.linspace(1, 2, 5, dtype=np.float32)[:, None], 5, "recorded"
    )
    routing = deal_routing(choices, 2, 3, first_token=1)
    assert [ids.ravel().tolist() for ids in routing.topk] == [[1, 2, 3], [4, 0, 1]]
    assert routing.weights[1].ravel().tolist() == [2, 1, 1.25]


@refuses(
    place_experts,
    ((1, 4, True), "n_ranks=1: must be 2 to 768"),
    ((0, 4, False), "n_ranks=0: must be 1 to 768"),
    ((769, 4, True), "n_ranks=769: "),
    ((2, 0, True), "n_experts is 0"),
)
def test_impossible_placements_are_refused() -> None:
    """Too few or too many ranks and no experts are refused by name."""


CHOICES = RecordedChoices(np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32), 1, "")


@refuses(
    itself,
    (lambda: place_choices(drawn(2, 1, 8, 1), place_experts(2, 7)), "routing has 8 experts; the placement has 7"),
    (lambda: place_experts(2, 7, shared=False).shared_slot(0), "shared_ranks 0"),
    (lambda: draw_routing(np.ones(2), 0, 1, 1, np.random.default_rng(0), ""), "n_ranks is 0"),
    (lambda: deal_routing(CHOICES, 1, -1), "tokens_per_rank -1"),
    (lambda: deal_routing(CHOICES, 1, 1, first_token=-1), "first_token is -1"),
)
def test_other_misfits_are_refused() -> None:
    """More experts than placed, a shared slot that is not there, and impossible batches are refused."""


IDS = np.zeros((2, 2), np.int32)
GATES = np.ones((2, 2), np.float32)


@refuses(
    lambda topk, weights: Routing(topk, weights, 3, ""),
    (((), ()), "topk has 0 ranks"),
    (((IDS,), ()), "topk has 1 ranks and weights 0"),
    (((IDS.astype(np.int64),), (GATES,)), r"topk\[0\] is int64"),
    (((IDS, IDS[:, :1]), (GATES, GATES)), r"topk\[1\] is int32 \(2, 1\)"),
    (((IDS,), (GATES[:1],)), r"weights\[0\] is float32 \(1, 2\)"),
    (((IDS,), (GATES.astype(float),)), r"weights\[0\] is float64"),
    (((IDS + np.int32(3),), (GATES,)), r"topk\[0\] has ids in 3\.\.3; they must be in -1\.\.2"),
    (((IDS - np.int32(2),), (GATES,)), r"topk\[0\] has ids in -2\.\.-2"),
)
def test_routing_that_does_not_fit_is_refused() -> None:
    """Arrays of other types, shapes and ids than the dataclass says are refused by name."""
