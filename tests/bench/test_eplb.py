"""Replicas of hot experts, small: what is moved is right, and each routing is what its row says."""

from pathlib import Path

import numpy as np
import pytest

from xccl_emu.base.errors import ConfigError
from xccl_emu.papers.bench.eplb import LAYER, eplb, ways
from xccl_emu.papers.bench.layers import Layer
from xccl_emu.routing import load_expert_loads

SMALL = Layer(ranks=18, tokens=16, hidden=64, experts=16, top_k=2, cores=2)
LOADS = np.where(np.arange(16) == 3, 40.0, 1.0)


def test_replicas_save_what_a_hot_expert_costs() -> None:
    """One expert that every token chooses makes its die the hottest and the layer slow; with replicas neither is so,
    and no element is wrong."""
    rows = {row.what: row for row in eplb(layer=SMALL, loads=LOADS)}
    hot, us = (
        [rows[f"{what}, {way}"].emulated or 0 for way in ("average", "native", "balanced")]
        for what in ("hottest die over mean", "layer")
    )
    assert hot[1] == 6.0  # 288 choices of it, of 864 rows on 18 dies
    assert us[0] < us[2] < us[1]
    assert [row.wrong for row in rows.values() if row.what.startswith("layer")] == [0] * 3
    saved = rows["what EPLB saves of the native latency"].emulated
    assert saved == pytest.approx(100 * (us[1] - us[2]) / us[1])


def test_native_and_balanced_have_the_same_choices() -> None:
    """Replicas change where rows go, not how many choices each expert gets."""
    two = ways(SMALL, LOADS, 0)
    first, again = ([len(ids) for ids in two[name].routed.topk] for name in ("native", "balanced"))
    assert first == again
    assert two["native"].rows.sum() == two["balanced"].rows.sum()
    assert two["balanced"].placement.n_replicas == SMALL.ranks


def test_loads_for_other_experts_are_refused() -> None:
    """Before anything is run."""
    with pytest.raises(ConfigError, match="loads has 15 experts; there are 16"):
        eplb(layer=SMALL, loads=LOADS[:15])


@pytest.mark.parametrize("each", [57, pytest.param(4, marks=pytest.mark.slow)])
def test_measured_loads(each: int, data_dir: Path) -> None:
    """On measured loads of DeepSeek-V3 the hottest of 288 dies has far more than the mean, and with replicas less than
    twice the mean, in the first and the last of 58 layers, and in every fourth."""
    loads = load_expert_loads(data_dir / "deepseek_v3_decode_in2000out100.json")
    for number in loads.moe_layers[::each]:
        of = ways(LAYER, loads.layer(number), 0)
        assert of["native"].hottest_over_mean > 2.5
        assert of["balanced"].hottest_over_mean < 2
