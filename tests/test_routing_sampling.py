"""Drawing choices: the right inclusion probabilities, no expert twice, independent tokens."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.refused import itself, refuses
from xccl_emu.routing import draw_gate_weights, draw_topk, inclusion_probabilities, skewed_loads
from xccl_emu.routing.sampling import _ONE, _fixed_point

SIGMAS = 5.0
"""Allowed deviation of a frequency; with fixed seeds a test gives the same result every time."""


def frequencies(chosen: np.ndarray, n_experts: int) -> np.ndarray:
    return np.bincount(chosen.ravel(), minlength=n_experts) / len(chosen)


def bound(probabilities: np.ndarray, n_tokens: int) -> np.ndarray:
    return SIGMAS * np.sqrt(probabilities * (1 - probabilities) / n_tokens) + 1e-9


@st.composite
def loads_and_k(draw: st.DrawFn) -> tuple[list[float], int]:
    """Loads from zero to far apart, subnormals included, with at least one positive."""
    load = st.one_of(st.just(0.0), st.integers(1, 20).map(float), st.floats(0, 1e308))
    loads = draw(st.lists(load, min_size=1, max_size=12).filter(any))
    return loads, draw(st.integers(1, sum(value > 0 for value in loads)))


@given(drawn=loads_and_k())
def test_probabilities_are_capped_shares(drawn: tuple[list[float], int]) -> None:
    """They sum to k within 0..1, are 0 for no load, and below 1 are in the ratio of the loads."""
    loads, k = drawn
    p = inclusion_probabilities(loads, k)
    assert p.sum() == pytest.approx(k)
    assert ((p >= 0) & (p <= 1)).all()
    assert (p[np.array(loads) == 0] == 0).all()
    scaled = np.array(loads) / max(loads)
    free = (p < 1) & (scaled > 1e-290)
    if free.sum() > 1:
        first, rest = np.flatnonzero(free)[0], np.flatnonzero(free)[1:]
        assert p[rest] * scaled[first] == pytest.approx(p[first] * scaled[rest])


def test_a_load_too_large_for_its_share_is_capped() -> None:
    """Eight of ten parts with two choices: the hot expert is always chosen, the others share the second choice."""
    assert inclusion_probabilities([8, 1, 1], 2).tolist() == [1, 0.5, 0.5]
    assert inclusion_probabilities([100, 10, 1, 1], 3).tolist() == [1, 1, 0.5, 0.5]
    assert inclusion_probabilities([3, 2, 0, 1], 3).tolist() == [1, 1, 0, 1]


@given(drawn=loads_and_k())
def test_fixed_point_probabilities_fill_the_line(drawn: tuple[list[float], int]) -> None:
    """In integer units they sum to exactly k, none exceeds 1, and each is within a few units of what was asked."""
    loads, k = drawn
    p = inclusion_probabilities(loads, k)
    units = _fixed_point(p, k)
    assert units.sum() == k * _ONE
    assert ((units >= 0) & (units <= _ONE)).all()
    assert (np.abs(units - p * _ONE) <= len(loads) + 1).all()


@given(drawn=loads_and_k(), n_tokens=st.integers(0, 30), seed=st.integers(0, 2**32 - 1))
def test_no_expert_twice_and_none_without_load(drawn: tuple[list[float], int], n_tokens: int, seed: int) -> None:
    """Every token gets k different experts, all of them with a load, and every certain one."""
    loads, k = drawn
    chosen = draw_topk(loads, n_tokens, k, np.random.default_rng(seed))
    assert chosen.shape == (n_tokens, k)
    assert chosen.dtype == np.int32
    certain = set(np.flatnonzero(inclusion_probabilities(loads, k) == 1).tolist())
    for token in chosen.tolist():
        assert len(set(token)) == k
        assert all(loads[expert] > 0 for expert in token)
        assert certain <= set(token)


@pytest.mark.parametrize("k", [1, 4, 8])
def test_frequencies_match_the_shares(k: int) -> None:
    """Over 30,000 tokens each of 256 skewed experts is chosen as often as its share says."""
    n_tokens = 30_000
    loads = skewed_loads(256, seed=3)
    p = inclusion_probabilities(loads, k)
    measured = frequencies(draw_topk(loads, n_tokens, k, np.random.default_rng(1)), 256)
    assert (np.abs(measured - p) <= bound(p, n_tokens)).all()


def test_the_bound_notices_weighted_draws() -> None:
    """NumPy's weighted draws without replacement miss the same shares by far more than the bound allows."""
    n_tokens, loads = 4_000, np.array([9.0, 5, 2, 2, 1, 1])
    rng = np.random.default_rng(2)
    p = inclusion_probabilities(loads, 2)
    right = draw_topk(loads, n_tokens, 2, rng)
    wrong = np.array([rng.choice(6, 2, replace=False, p=loads / loads.sum()) for _ in range(n_tokens)])
    assert (np.abs(frequencies(right, 6) - p) <= bound(p, n_tokens)).all()
    assert (np.abs(frequencies(wrong, 6) - p) > bound(p, n_tokens)).any()


def test_tokens_are_independent() -> None:
    """Two tokens next to each other both contain an expert as often as chance says."""
    n_pairs, loads = 20_000, np.arange(1.0, 9)
    chosen = draw_topk(loads, 2 * n_pairs, 3, np.random.default_rng(3))
    member = (chosen[:, :, None] == np.arange(8)).any(axis=1)
    both = (member[0::2] & member[1::2]).mean(axis=0)
    p = inclusion_probabilities(loads, 3)
    assert (np.abs(both - p**2) <= bound(p**2, n_pairs)).all()


def test_the_order_within_a_token_is_random() -> None:
    """A hot and a cold expert are each found in every position equally often."""
    n_tokens = 20_000
    # Along the line, an expert of length 0.93 among short ones would mostly be the middle one of three.
    chosen = draw_topk([9, *[1] * 20], n_tokens, 3, np.random.default_rng(4))
    for expert in (0, 3):
        positions = (chosen == expert).sum(axis=0)
        spread = SIGMAS * np.sqrt(positions.sum() * 2 / 9)
        assert (np.abs(positions - positions.sum() / 3) <= spread).all()


def test_the_pair_of_experts_varies() -> None:
    """Every pair of equal experts occurs: the order laid on the line is drawn anew for each token."""
    chosen = draw_topk(np.ones(6), 600, 2, np.random.default_rng(5))
    assert len({frozenset(token) for token in chosen.tolist()}) == 15


def test_a_seed_gives_the_same_draw() -> None:
    """Equal seeds give equal choices and weights, other seeds others."""

    def draw(seed: int) -> bytes:
        rng = np.random.default_rng(seed)
        return draw_topk(np.ones(16), 10, 4, rng).tobytes() + draw_gate_weights(10, 4, rng).tobytes()

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


RNG = np.random.default_rng(0)


@refuses(
    lambda loads, k: draw_topk(loads, 1, k, RNG),
    (([1, -1], 1), "non-negative"),
    (([1, float("nan")], 1), "finite"),
    (([1, float("inf")], 1), "finite"),
    (([[1, 2]], 1), r"shape \(1, 2\)"),
    (([0, 0], 1), r"must be in 1\.\.0"),
    (([1, 0, 1], 3), r"k is 3; it must be in 1\.\.2"),
    (([1, 1], 0), "k is 0"),
)
def test_impossible_draws_are_refused() -> None:
    """Loads that are no loads, and more choices than experts with a load, are refused."""


@refuses(
    itself,
    (lambda: draw_topk([1, 1], -1, 1, RNG), "n_tokens is -1"),
    (lambda: draw_gate_weights(1, 0, RNG), "k is 0"),
    (lambda: draw_gate_weights(1, 1, RNG, scaling=0), "scaling is 0"),
    (lambda: skewed_loads(0, 1), "n_experts is 0"),
)
def test_negative_sizes_are_refused() -> None:
    """Negative numbers of tokens, no choices, no experts and scalings that are no scale are refused by name."""


def test_skewed_loads_are_as_skewed_as_measured_ones() -> None:
    """With 256 experts the hottest carries about 6.6 times the mean, within the measured 2.6 to 13.4."""
    loads = skewed_loads(256, seed=0)
    assert loads.mean() == pytest.approx(1)
    assert loads.max() == pytest.approx(6.62, abs=0.01)


def test_zipf_loads_are_those_of_figure_11a() -> None:
    """[xDeepServe] Figure 11a: the hottest of 256 experts has 30 times the mean, 20% have more than the mean.  So has a
    Zipf distribution of exponent 0.875, and so have choices drawn of it; none can have more than 32 times.
    """
    loads = np.arange(1, 257) ** -0.875
    chosen = draw_topk(loads, 20_000, 8, np.random.default_rng(0))
    for counts in (loads, np.bincount(chosen.ravel(), minlength=256)):
        shares = counts / counts.mean()
        assert shares.max() == pytest.approx(30, rel=0.02)
        assert (shares > 1).mean() == pytest.approx(0.20, abs=0.02)


def test_the_seed_says_which_expert_is_hot() -> None:
    """Two seeds give the same loads in another order."""
    one, other = skewed_loads(64, seed=1), skewed_loads(64, seed=2)
    assert sorted(one) == sorted(other)
    assert one.argmax() != other.argmax()
    assert np.array_equal(one, skewed_loads(64, seed=1))


@given(k=st.integers(1, 16), scaling=st.sampled_from([1.0, 2.5]), seed=st.integers(0, 99))
def test_gate_weights_are_a_softmax(k: int, scaling: float, seed: int) -> None:
    """They are positive FP32, fall along the row, and sum to the scaling."""
    weights = draw_gate_weights(20, k, np.random.default_rng(seed), scaling)
    assert weights.dtype == np.float32
    assert weights.shape == (20, k)
    assert (weights > 0).all()
    assert (np.diff(weights, axis=1) <= 0).all()
    assert weights.sum(axis=1) == pytest.approx(np.full(20, scaling), rel=1e-6)
