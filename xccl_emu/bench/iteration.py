"""Iterations of decode on the whole deployment (xDeepServe, Figure 20): DP288, EP288, batch 60 a die.

The least latencies are those of a timed run in which all dies start together, with uniform choices.  Averages and
maxima are mostly waiting for dies that are late; they come from the model of `timing.skew`, whose parameters are
assumptions, over iterations in which each operator ends on all dies its timed latency after the last one has come.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from xccl_emu import routing
from xccl_emu.bench import published
from xccl_emu.bench.layers import Layer, time_layer
from xccl_emu.bench.result import Result
from xccl_emu.bench.setting import DEFAULT, Setting
from xccl_emu.timing.skew import COMBINE, DISPATCH, SkewModel, iterations, synchronized

LAYER = Layer(ranks=288, tokens=60)
ITERATIONS, LAYERS, DIFFERENT = 10, 58, 6
"""Iterations, layers of each, and how many of the layers have loads of their own."""

REPLICAS = 128
"""Of the hottest experts, where that many dies have room for one: experts are balanced, but not evenly loaded."""

SKEWED = "with the assumed skew of `timing.skew`"


def rows_of_layers(layer: Layer, seed: int) -> NDArray[np.int64]:
    """[LAYERS, ranks] rows that the experts of each die get, by Zipf-like loads with replicas of the hottest."""
    replicas, table = min(REPLICAS, layer.ranks // 2), []
    for number in range(DIFFERENT):
        loads = routing.skewed_loads(layer.experts, number)
        redundancy = routing.Redundancy(replicas, loads, slots_per_rank=1, top_k=layer.top_k)
        placement = routing.place_experts(layer.ranks, layer.experts, redundancy=redundancy)
        rng = np.random.default_rng((seed, 5, number))
        drawn = routing.draw_routing(loads, layer.ranks, layer.tokens, layer.top_k, rng, "Zipf-like")
        table.append(placement.rank_loads(routing.place_choices(drawn, placement)))
    return np.resize(np.array(table), (LAYERS, layer.ranks))


def statistics(
    latency_us: Mapping[str, float], model: SkewModel, seed: int, layer: Layer = LAYER
) -> dict[str, float]:
    """By operator ``min``, the latency itself, and ``avg`` and ``max`` of drawn iterations, in microseconds."""
    rows = rows_of_layers(layer, seed)
    drawn = iterations(synchronized(latency_us), model, ITERATIONS, seed, rows=rows, layers=LAYERS)
    emulated = {f"{name} min": us for name, us in latency_us.items()}
    for name in (DISPATCH, COMBINE):
        _, emulated[f"{name} avg"], emulated[f"{name} max"] = drawn.of(name)
    return emulated


def iteration(setting: Setting = DEFAULT, layer: Layer = LAYER, model: SkewModel = SkewModel()) -> list[Result]:  # noqa: B008
    """Minimum, mean and maximum of dispatch and combine over iterations, layers and dies."""
    timed = time_layer(setting, layer)
    latency = {DISPATCH: setting.operator_us(timed.dispatch), COMBINE: setting.operator_us(timed.combine)}
    with setting.stage(f"{ITERATIONS} iterations"):
        emulated = statistics(latency, model, setting.seed, layer)
    wrong = {f"{name} min": wrong for name, _, wrong in timed.operators}
    return [
        Result.of(row, emulated[row.what], configuration=layer.shape, wrong=wrong.get(row.what),
                  note="" if row.what.endswith("min") else SKEWED)
        for row in published.rows("iteration")
    ]  # fmt: skip
