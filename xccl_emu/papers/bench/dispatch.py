"""Pull dispatch and combine by batch ([xDeepServe], Figure 6): which of the two is faster, and from where on.

And both in an iteration of decode on the whole deployment (Figure 20 and 7.1).  DP288, EP288: 256 dies with an expert
and a redundant one each, 32 with the shared expert and a redundant one.  A die has 60 requests, and MTP verifies two
tokens of each: 120.  Layers have loads of their own, and ranks arrive at each operator apart.  The published profile is
of a die: its least, mean and greatest over the layers of an iteration.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from xccl_emu.papers.bench import published
from xccl_emu.papers.bench.layers import CORES, Layer, time_layer
from xccl_emu.papers.bench.result import Result, total_wrong
from xccl_emu.papers.bench.setting import DEFAULT, Setting

RANKS = 128
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
"""Tokens of a die."""

SMALL = 16
"""A batch up to which the paper's figure calls it small (an assumption: its text gives no number)."""


def dispatch(
    setting: Setting = DEFAULT, ranks: int = RANKS, batches: Sequence[int] = BATCHES, cores: int = CORES
) -> list[Result]:
    """Both claims of the figure, if it is run as published, then the latency of each operator at each batch."""
    setting, layers = setting.keeping(), [Layer(ranks, tokens, cores=cores) for tokens in batches]
    timed = [time_layer(setting, layer) for layer in layers]
    rows = [
        row
        for layer, one in zip(layers, timed, strict=True)
        for row in one.rows(setting, "dispatch", f"batch {layer.tokens}", layer.shape)
    ]
    if (ranks, tuple(batches), cores) != (RANKS, BATCHES, CORES):
        return rows
    ratio = {
        layer.tokens: setting.operator_us(one.dispatch) / setting.operator_us(one.combine)
        for layer, one in zip(layers, timed, strict=True)
    }
    return [*claims(ratio), *rows]


def claims(ratio: Mapping[int, float]) -> list[Result]:
    """Return what the figure says of dispatch over combine, given by batch."""
    small, large = published.rows("dispatch")
    below = {tokens: r for tokens, r in ratio.items() if tokens <= SMALL}
    above = {tokens: r for tokens, r in ratio.items() if tokens > 32}
    return [
        Result.of(row, of(over.values()), note=_spread(over),
                  configuration={"ranks": RANKS, "cores": CORES, "batches": _batches(over)})
        for row, over, of in ((small, below, min), (large, above, max))
    ]  # fmt: skip


def _batches(ratio: dict[int, float]) -> str:
    return f"{min(ratio)}-{max(ratio)}"


def _spread(ratio: dict[int, float]) -> str:
    """Return how far the ratio goes, since a bound says only one side of it."""
    return f"{min(ratio.values()):.2f} to {max(ratio.values()):.2f} at batches {_batches(ratio)}"


LAYER = Layer(ranks=288, tokens=120, replicas=288)
LAYERS, TIMED = 58, 3
"""Layers of experts in an iteration; and how many are run, from which a die's layers are drawn."""

OTHERS = {
    "counted in scalar loops": replace(LAYER, counting="scalar"), "on 16 cores": replace(LAYER, cores=16),
    "counted in scalar loops on 16 cores": replace(LAYER, cores=16, counting="scalar"),
}  # fmt: skip
"""What no paper says of the kernels, in other ways."""

CALLS, ITERATION_US = 61, 93_000.0
"""Calls of each operator in an iteration, MTP's included, and the time it takes: inputs (Figure 20)."""


def of_a_die(us: NDArray[np.float64], seed: int) -> dict[str, float]:
    """``min``, ``avg`` and ``max`` of a die's layers: the mean of each over dies whose layers are drawn, without
    replacement, from what all dies took in all layers that were run.

    us: [layers, dies] microseconds.
    """
    drawn = np.random.default_rng((seed, 6)).permutation(us.ravel())
    each = min(LAYERS, len(drawn))
    dies = drawn[: len(drawn) // each * each].reshape(-1, each)
    return {
        "min": float(dies.min(axis=1).mean()), "avg": float(us.mean()), "max": float(dies.max(axis=1).mean()),
    }  # fmt: skip


def iteration(setting: Setting = DEFAULT, layer: Layer = LAYER, layers: int = TIMED) -> list[Result]:
    """Least, mean and greatest of dispatch and combine, and what both take of the iteration."""
    setting = setting.keeping()
    timed = [time_layer(setting, layer, number=number) for number in range(layers)]
    emulated: dict[str, float] = {}
    wrong: dict[str, int | None] = {}
    for name in ("dispatch", "combine"):
        us = np.array([getattr(one, name).us for one in timed])
        emulated |= {f"{name} {which}": value for which, value in of_a_die(us, setting.seed).items()}
        wrong[f"{name} min"] = total_wrong(bad for one in timed for this, _, bad in one.operators if this == name)
    emulated["both, share of the iteration"] = 100 * share(emulated)
    rows = [
        Result.of(row, emulated[row.what], configuration=layer.shape, wrong=wrong.get(row.what))
        for row in published.rows("iteration")
    ]
    return [*rows, *(rows_beside(setting) if layer == LAYER else ())]


def rows_beside(setting: Setting = DEFAULT, others: Mapping[str, Layer] = OTHERS) -> list[Result]:
    """Least of dispatch and combine of one layer in other ways, without payload; nothing was published for them."""
    rows, bare = list[Result](), replace(setting, data=False).keeping()
    for name, layer in others.items():
        for what, taken, _ in time_layer(bare, layer).operators:
            least = of_a_die(taken.us[None], setting.seed)["min"]
            shape = layer.shape | {"counting": layer.counting}
            rows.append(Result("iteration", f"{what} min {name}", least, "us", configuration=shape))
    return rows


def share(emulated: Mapping[str, float]) -> float:
    """Return the share of the published iteration that the mean dispatch and combine of all layers take."""
    return CALLS * (emulated["dispatch avg"] + emulated["combine avg"]) / ITERATION_US
