"""Pull dispatch and combine by batch ([xDeepServe], Figure 6): which of the two is faster, and from where on."""

from collections.abc import Mapping, Sequence

from xccl_emu.papers.bench import published
from xccl_emu.papers.bench.layers import CORES, Layer, time_layer
from xccl_emu.papers.bench.result import Result
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
    layers = [Layer(ranks, tokens, cores=cores) for tokens in batches]
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
