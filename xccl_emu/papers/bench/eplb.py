"""What replicas of hot experts are worth to a layer on the whole deployment ([xDeepServe] 4.5, Figure 11b).

The figure has three routings on EP288: uniform loads, skewed loads as they are, and the same with a redundant expert
on every die.  A layer is dispatch, the experts' computing and combine, one after the other on each rank.  Computing
takes as long for each row as published for a balanced batch, an input: so the hottest die keeps all others waiting in
combine.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from xccl_emu import routing
from xccl_emu.papers.bench import published
from xccl_emu.papers.bench.layers import Layer, OnPod
from xccl_emu.papers.bench.result import Result, total_wrong
from xccl_emu.papers.bench.setting import DEFAULT, Setting
from xccl_emu.routing import Placement, Redundancy, Routing
from xccl_emu.timing.arrival import Microseconds, Taken, arrivals

LAYER = Layer(ranks=288, tokens=120)
BALANCED_ROWS = 160 * 96 * 9 / 288
"""On an expert die, in the published time of its computing."""


@dataclass(frozen=True)
class Way:
    """A routing of a batch, and where experts are."""

    placement: Placement
    routed: Routing

    @classmethod
    def of(cls, layer: Layer, loads: ArrayLike, replicas: int, seed: int) -> "Way":
        """Choices are drawn by these loads, the same for every number of replicas."""
        redundancy = Redundancy(replicas, loads, slots_per_rank=1, top_k=layer.top_k) if replicas else None
        placement = routing.place_experts(layer.ranks, layer.experts, redundancy=redundancy)
        rng = np.random.default_rng((seed, 1))
        drawn = routing.draw_routing(loads, layer.ranks, layer.tokens, layer.top_k, rng, "loads")
        return cls(placement, routing.place_choices(drawn, placement))

    @property
    def rows(self) -> Microseconds:
        """[ranks] that each has to compute."""
        return self.placement.rank_loads(self.routed).astype(np.float64)

    @property
    def hottest_over_mean(self) -> float:
        """Rows of the rank that has most, over the mean."""
        return float(self.rows.max() / self.rows.mean())


def ways(layer: Layer, loads: ArrayLike, seed: int) -> dict[str, Way]:
    """Return the ways by name, as in the figure: average routing, native, balanced."""
    return {
        "average": Way.of(layer, np.ones(layer.experts), 0, seed),
        "native": Way.of(layer, loads, 0, seed),
        "balanced": Way.of(layer, loads, layer.ranks, seed),
    }


def time_way(setting: Setting, layer: Layer, way: Way, row_us: float) -> tuple[float, int | None]:
    """Mean rank's microseconds from the start of dispatch to the end of combine, and wrong elements."""
    on = OnPod(setting, layer, way.placement.local_experts)
    starts = arrivals(layer.ranks, setting.costs.skew_us, (setting.seed, 3))
    computed = on.dispatch(way.routed.topk, starts).ends_us + way.rows * row_us
    first = computed.min()
    ends = on.combine(way.routed.weights, computed - first).ends_us + first
    return Taken(starts, ends).mean_us, total_wrong(on.count_wrong(way.routed.topk, way.routed.weights))


def eplb(setting: Setting = DEFAULT, layer: Layer = LAYER, loads: ArrayLike | None = None) -> list[Result]:
    """Hottest die over the mean and latency of a layer under each routing, and what EPLB saves of the native one.

    loads: tokens of each expert, [experts]; drawn as `routing.skewed_loads` if there are none.
    """
    given = published.row("tpot", "MoE, of a microbatch and layer")
    row_us = 1000 * given.value / BALANCED_ROWS
    us, setting = dict[str, float](), setting.keeping()
    results = []
    skewed = routing.skewed_loads(layer.experts, setting.seed) if loads is None else loads
    for name, way in ways(layer, skewed, setting.seed).items():
        with setting.stage(f"EPLB, {name}"):
            us[name], wrong = time_way(setting, layer, way, row_us)
        shape = {**layer.shape, "routing": name, "replicas": way.placement.n_replicas}
        results += [
            Result("eplb", f"hottest die over mean, {name}", way.hottest_over_mean, "ratio", configuration=shape),
            Result("eplb", f"layer, {name}", us[name], "us", configuration=shape, wrong=wrong),
        ]
    (row,) = published.rows("eplb")
    saved_percent = 100 * (us["native"] - us["balanced"]) / us["native"]
    return [*results, Result.of(row, saved_percent, configuration=layer.shape)]
