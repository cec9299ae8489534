"""Shards of weights: what devices make of theirs adds up to what one device makes of all, element by element."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.plan.support import cluster
from xccl_emu.base.errors import ConfigError
from xccl_emu.papers.plan.costs import PlanSetting
from xccl_emu.papers.plan.grammar import Cut, DeviceShare, LayerStrategy, StrategyBlock, part, strategies
from xccl_emu.papers.plan.model import DecoderModel, Experts, Grouped, Latent
from xccl_emu.papers.plan.strategies import memory

Matrices = Mapping[str, NDArray[np.int64]]
HIDDEN, TOKENS = 5, 6
GROUPED, LATENT = Grouped(8, 4, 3), Latent(8, 3, 4, 2, 3, 2)

models = st.builds(
    lambda attention, shared, dense: DecoderModel(
        "small", attention, Experts(8, shared, 2, 8), HIDDEN, 4, 1, 1, dense_layers=dense, dense_intermediate=12 * dense
    ),
    st.sampled_from([GROUPED, LATENT, Grouped(8, 8, 2), Grouped(8, 1, 2)]), st.integers(0, 1), st.integers(0, 1),
)  # fmt: skip
chosen = st.sampled_from([s for s in strategies(8, 4) if s.stages <= 4])


def drawn(rng: np.random.Generator, shapes: Mapping[str, tuple[int, int]]) -> Matrices:
    """Whole numbers, so that sums are the same in any order."""
    return {name: rng.integers(-3, 4, shape) for name, shape in shapes.items()}


def attention_shapes(of: Grouped | Latent) -> dict[str, tuple[int, int]]:
    """Rows and columns of each matrix of one layer."""
    if isinstance(of, Grouped):
        own, kv = of.heads * of.head_dim, of.kv_heads * of.head_dim
        return {"query": (HIDDEN, own), "key": (HIDDEN, kv), "value": (HIDDEN, kv), "output": (own, HIDDEN)}
    return {
        "query_down": (HIDDEN, of.query_rank), "query_up": (of.query_rank, of.heads * (of.nope_dim + of.rope_dim)),
        "cache_down": (HIDDEN, of.kv_rank + of.rope_dim), "key_up": (of.kv_rank, of.heads * of.nope_dim),
        "value_up": (of.kv_rank, of.heads * of.value_dim), "output": (of.heads * of.value_dim, HIDDEN),
    }  # fmt: skip


def attention(of: Grouped | Latent, w: Matrices, x: NDArray[Any]) -> NDArray[Any]:
    """Heads whose weights there are, without softmax: the scores of each, in whole numbers, times its values."""
    if isinstance(of, Grouped):
        query, key, value = (np.split(x @ w[name], w[name].shape[1] // of.head_dim, axis=1)
                             for name in ("query", "key", "value"))  # fmt: skip
        together = len(query) // len(key)
        return np.hstack([q @ key[h // together].T @ value[h // together] for h, q in enumerate(query)]) @ w["output"]
    latent = x @ w["cache_down"]
    heads = w["output"].shape[0] // of.value_dim
    kept = latent[:, : of.kv_rank]
    each = x @ w["query_down"] @ w["query_up"], kept @ w["key_up"], kept @ w["value_up"]
    parts = (np.split(matrix, heads, axis=1) for matrix in each)
    position = latent[:, of.kv_rank :]
    made = [q @ np.hstack([k, position]).T @ v for q, k, v in zip(*parts, strict=True)]
    return np.hstack(made) @ w["output"]


def feed_forward(w: Matrices, x: NDArray[Any]) -> NDArray[Any]:
    """Gate and up, multiplied element by element, and down."""
    return np.maximum(x @ w["gate"], 0) * (x @ w["up"]) @ w["down"]


def cut(w: Matrices, cuts: Mapping[str, Cut]) -> Matrices:
    """The shards."""
    assert w.keys() == cuts.keys()
    return {name: matrix[cuts[name]] for name, matrix in w.items()}


def parts_of(strategy: LayerStrategy, model: DecoderModel) -> list[DeviceShare]:
    """The part of each device."""
    return [part(strategy, model, device) for device in range(strategy.devices)]


@given(models, chosen, st.integers(0, 99))
def test_parts_of_attention_add_up(model: DecoderModel, strategy: LayerStrategy, seed: int) -> None:
    """Over the tensor group of each DP rank and stage, whatever the heads are grouped by."""
    rng = np.random.default_rng(seed)
    weights, x = drawn(rng, attention_shapes(model.attention)), rng.integers(-3, 4, (TOKENS, HIDDEN))
    found: dict[tuple[int, range], NDArray[Any]] = {}
    for each in parts_of(strategy, model):
        made = attention(model.attention, cut(weights, each.attention), x)
        key = each.requests, each.layers
        found[key] = found[key] + made if key in found else made
    assert len(found) == strategy.attention.spread * strategy.stages
    for total in found.values():
        np.testing.assert_array_equal(total, attention(model.attention, weights, x))


@given(models, chosen, st.integers(0, 99))
def test_parts_of_experts_add_up(model: DecoderModel, strategy: LayerStrategy, seed: int) -> None:
    """Over all devices of a stage, each with the experts of its group and its inner elements of these."""
    rng = np.random.default_rng(seed)
    shapes = {"gate": (HIDDEN, 8), "up": (HIDDEN, 8), "down": (8, HIDDEN)}
    weights = [drawn(rng, shapes) for _ in range(model.experts.routed)]
    gates, x = rng.integers(0, 3, (model.experts.routed, TOKENS, 1)), rng.integers(-3, 4, (TOKENS, HIDDEN))
    want = sum(gate * feed_forward(w, x) for gate, w in zip(gates, weights, strict=True))
    parts = parts_of(strategy, model)
    for layers in {each.layers for each in parts}:
        total = sum(gates[e] * feed_forward(cut(weights[e], each.expert), x)
                    for each in parts if each.layers == layers for e in each.experts)  # fmt: skip
        np.testing.assert_array_equal(total, want)


@given(models, chosen)
def test_every_layer_has_one_stage_and_dense_layers_add_up(model: DecoderModel, strategy: LayerStrategy) -> None:
    """Stages follow each other, and the inner elements of a dense layer are each with one rank of a tensor group."""
    parts = parts_of(strategy, model)
    stages = sorted({(each.layers.start, each.layers.stop) for each in parts})
    assert [layer for start, stop in stages for layer in range(start, stop)] == [*range(model.layers)]
    inner = [i for each in parts for i in range(model.dense_intermediate)[each.dense["up"][1]]]
    assert sorted(inner) == sorted([*range(model.dense_intermediate)] * (len(parts) // strategy.experts.tensor))


@given(chosen)
def test_weights_are_what_eq_8_counts(strategy: LayerStrategy) -> None:
    """Elements of the shards, where heads of keys divide by TP and no expert is shared; MLA keeps more, in full."""
    model = DecoderModel("small", Grouped(8, 8, 2), Experts(8, 0, 2, 8), HIDDEN, 8, 1, 1)
    want = memory(strategy, PlanSetting(model, cluster()), 1)
    shapes = attention_shapes(model.attention)
    for each in parts_of(strategy, model):
        elements = sum(np.empty(shapes[name])[by].size for name, by in each.attention.items())
        assert elements * len(each.layers) == want.attention
        own = np.empty((HIDDEN, 8))[each.expert["gate"]].size
        assert 3 * own * len(each.experts) * len(each.layers) == want.experts


def test_figure_7() -> None:
    """Two nodes of four: TP within nodes for both blocks, DP and EP between them."""
    model = DecoderModel("figure 7", GROUPED, Experts(4, 0, 1, 8), HIDDEN, 2, 1, 1)
    strategy = LayerStrategy(StrategyBlock(4, 2), StrategyBlock(4, 2))
    last = part(strategy, model, 7)
    assert (last.requests, last.experts, last.layers) == (1, range(2, 4), range(2))
    assert last.expert["down"] == (slice(6, 8), slice(None))
    assert last.attention["query"] == (slice(None), slice(18, 24))
    assert part(strategy, model, 3).expert == last.expert


def test_a_device_that_there_is_not() -> None:
    """It is refused with the devices that there are."""
    for device in (-1, 8):
        with pytest.raises(ConfigError, match=f"device={device}: must be 0 to 7"):
            part(
                LayerStrategy(StrategyBlock(4, 2), StrategyBlock(4, 2)),
                DecoderModel("m", GROUPED, Experts(4, 0, 1, 8), 8, 2, 1, 1),
                device,
            )
