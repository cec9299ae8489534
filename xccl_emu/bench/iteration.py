"""Iterations of decode on the whole deployment (xDeepServe, Figure 20): DP288, EP288, batch 60 a die.

The least latencies are those of a timed run in which all dies start together, with uniform choices.  Averages and
maxima are mostly waiting for dies that are late; they come from the model of `timing.skew`, whose parameters are
assumptions, over iterations in which each operator ends on all dies its timed latency after the last one has come.
"""

from xccl_emu.bench import published
from xccl_emu.bench.layers import Layer, time_layer
from xccl_emu.bench.result import Result
from xccl_emu.bench.setting import DEFAULT, Setting
from xccl_emu.timing.skew import COMBINE, DISPATCH, SkewModel, iterations, synchronized

LAYER = Layer(ranks=288, tokens=60)
ITERATIONS = 20
"""Of 58 layers each."""

SKEWED = "with the assumed skew of `timing.skew`"


def iteration(setting: Setting = DEFAULT, layer: Layer = LAYER, model: SkewModel = SkewModel()) -> list[Result]:  # noqa: B008
    """Minimum, mean and maximum of dispatch and combine over iterations, layers and dies."""
    timed = time_layer(setting, layer)
    latency = {DISPATCH: setting.operator_us(timed.dispatch), COMBINE: setting.operator_us(timed.combine)}
    placement, routed = layer.placed(setting.seed)
    with setting.stage(f"{ITERATIONS} iterations"):
        drawn = iterations(synchronized(latency), model, ITERATIONS, setting.seed, rows=placement.rank_loads(routed))
    emulated = {f"{name} min": us for name, us in latency.items()}
    for name in (DISPATCH, COMBINE):
        _, emulated[f"{name} avg"], emulated[f"{name} max"] = drawn.of(name)
    wrong = {f"{DISPATCH} min": timed.wrong}
    return [
        Result.of(row, emulated[row.what], configuration=layer.shape, wrong=wrong.get(row.what, 0),
                  note="" if row.what.endswith("min") else SKEWED)
        for row in published.rows("iteration")
    ]  # fmt: skip
