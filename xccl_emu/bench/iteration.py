"""One iteration of decode on the whole deployment (xDeepServe, Figure 20): DP288, EP288, batch 60 a die."""

from xccl_emu.bench import published
from xccl_emu.bench.layers import Layer, time_layer
from xccl_emu.bench.result import Result
from xccl_emu.bench.setting import DEFAULT, Setting

LAYER = Layer(ranks=288, tokens=60)


def iteration(setting: Setting = DEFAULT, layer: Layer = LAYER) -> list[Result]:
    """The least latency of dispatch and combine: all dies start at once, and choices are uniform."""
    timed = time_layer(setting, layer)
    wrong = {"dispatch": timed.wrong, "combine": 0}
    emulated = {
        f"{name} min": setting.operator_us(timing)
        for name, timing in (("dispatch", timed.dispatch), ("combine", timed.combine))
    }
    return [
        Result.of(row, emulated.get(row.what), configuration=layer.shape, wrong=wrong.pop(row.what.split()[0], 0),
                  note="" if row.what in emulated else "needs a model of how late dies start")
        for row in published.rows("iteration")
    ]  # fmt: skip
