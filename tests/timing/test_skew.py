"""Skew: who comes late makes the others wait, at the operator behind which all are together again."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from xccl_emu import routing
from xccl_emu.errors import ConfigError
from xccl_emu.machine.pod import Pod
from xccl_emu.protocols.expert_parallel import ExpertParallel
from xccl_emu.protocols.layout import EpConfig
from xccl_emu.timing.run import VirtualTime
from xccl_emu.timing.skew import COMBINE, DISPATCH, NO_SKEW, SkewModel, iterations, on_cores, synchronized

from .support import COSTS, ROUND, SPEC

LATENCY = {DISPATCH: 185.0, COMBINE: 165.0}
"""The minima of Figure 20, microseconds."""


def rows(layers: int, different: int, ranks: int = 288, replicas: int = 128) -> NDArray[np.int64]:
    """[layers, ranks] rows of some different layers, again and again, in the deployment of Figure 20: 60 tokens a rank,
    replicas of the hottest experts."""
    table = []
    for layer in range(different):
        loads = routing.skewed_loads(256, layer)
        placement = routing.place_experts(ranks, 256, redundancy=routing.Redundancy(replicas, loads, slots_per_rank=1))
        drawn = routing.draw_routing(loads, ranks, 60, 8, np.random.default_rng(layer), "generated")
        table.append(placement.rank_loads(routing.place_choices(drawn, placement)))
    return np.resize(np.array(table), (layers, ranks))


def test_the_spread_of_figure_20_arises() -> None:
    """With the assumed parameters means and maxima come out of the size that was published, from the minima alone."""
    drawn = iterations(synchronized(LATENCY), SkewModel(), 10, 0, rows=rows(58, 6))
    least, mean, most = drawn.of(DISPATCH)
    assert least == pytest.approx(185, abs=1e-6)
    assert mean == pytest.approx(234, rel=0.15)
    assert 1231 / 1.6 < most < 1231 * 1.6
    least, mean, most = drawn.of(COMBINE)
    assert least == pytest.approx(165, abs=1e-6)
    assert mean == pytest.approx(312, rel=0.15)
    assert 2939 / 1.6 < most < 2939 * 1.6


def test_the_first_dispatch_absorbs_the_launch() -> None:
    """What dies begin an iteration apart, the first dispatch waits out: those behind it take what they do without."""
    model = SkewModel(launch_us=200.0, compute_spread=0.0, stalls=0.0)
    by_layer = iterations(synchronized(LATENCY), model, 5, 1, rows=np.full(64, 10), layers=4).by_layer(DISPATCH)
    assert by_layer[0] > 185 + 3 * 200
    assert by_layer[1:] == pytest.approx(185)


def test_combine_absorbs_the_experts() -> None:
    """A die with few rows waits at combine for the one with the most, and dispatch knows nothing of it."""
    drawn = iterations(synchronized(LATENCY), NO_SKEW, 1, 0, rows=[100, 100, 300], layers=2)
    assert drawn.took_us[DISPATCH] == pytest.approx(185)
    late = NO_SKEW.expert_row_us * 200
    assert drawn.took_us[COMBINE][0] == pytest.approx(np.array([[165 + late, 165 + late, 165]] * 2))


def test_a_seed_repeats() -> None:
    """The same seed draws the same iterations, another one others."""
    run, model = synchronized(LATENCY), SkewModel()
    first, again, other = (iterations(run, model, 2, seed, rows=[5] * 8, layers=3) for seed in (1, 1, 2))
    assert (first.took_us[DISPATCH] == again.took_us[DISPATCH]).all()
    assert first.of(DISPATCH) != other.of(DISPATCH)


def test_a_timed_run_absorbs_skew() -> None:
    """In virtual time ranks that start far apart leave dispatch nearly together, and combine no longer shows it."""
    took: dict[str, Any] = {}
    starts = [0.0, 900.0, 50.0, 300.0]
    for name, late in (("together", [0.0] * 4), ("apart", starts)):
        policy = VirtualTime(ROUND, COSTS)
        group = ExpertParallel(Pod(SPEC, policy=policy), EpConfig(4, hidden=64, top_k=2, tokens_max=5, cores=2))
        policy.start_us = on_cores(late, range(2), SPEC.cores_per_die)
        topk = np.array([[t % 4, (t + 1 + t // 4) % 4] for t in range(5)], np.int32)
        group.dispatch([np.ones((5, 64), ml_dtypes.bfloat16)] * 4, [topk] * 4)
        took[f"dispatch {name}"] = np.array([policy.timing.by_die_us[die] for die in range(4)])
        policy.start_us = {}
        group.run_stand_in()
        group.combine([np.ones((5, 2), np.float32)] * 4)
        took[f"combine {name}"] = policy.timing.latency_us
    alone, apart = took["dispatch together"], took["dispatch apart"]
    assert np.ptp(apart) < 10  # they were 900 us apart
    assert apart.max() == pytest.approx(900 + alone.max(), rel=0.05)
    assert took["combine together"] == took["combine apart"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"n": 0}, "n=0"),
        ({"layers": 0}, "layers=0"),
        ({"rows": [[1, 2]]}, r"shape \(1, 2\)"),
        ({"rows": [-1, 2]}, "nothing below 0"),
    ],
)
def test_impossible_iterations(change: dict[str, Any], said: str) -> None:
    """Numbers below 1 and rows of another shape are refused by name."""
    options: dict[str, Any] = {"n": 1, "seed": 0, "rows": [1, 2], "layers": 3, **change}
    with pytest.raises(ConfigError, match=said):
        iterations(synchronized(LATENCY), NO_SKEW, **options)


def test_impossible_models_and_runs() -> None:
    """A negative spread, an operator without a latency and a run that ends before it starts are refused."""
    with pytest.raises(ConfigError, match="stall_us=-1"):
        SkewModel(stall_us=-1)
    with pytest.raises(ConfigError, match="operator='dispatch'"):
        iterations(synchronized({COMBINE: 1.0}), NO_SKEW, 1, 0, rows=[1])
    with pytest.raises(ConfigError, match="not before it starts"):
        iterations(lambda _, starts: starts - 1, NO_SKEW, 1, 0, rows=[1])
    with pytest.raises(ConfigError, match="operator='gather'"):
        iterations(synchronized(LATENCY), NO_SKEW, 1, 0, rows=[1]).of("gather")
