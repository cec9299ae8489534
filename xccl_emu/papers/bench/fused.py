"""Table 7 of CloudMatrix384: FusedDispatch and FusedCombine with 128 tokens a rank, EP8 to EP256.

What the paper does not say is assumed as follows, and the same for every row.  Routing is balanced: each rank spreads
its tokens evenly over all experts, and the shared expert has a copy on each rank, which tokens take in turn; so every
rank receives as much as it sends.  Ranks arrive apart at dispatch, which waits for the last of them; combine follows
back to back (4.2.1), and finds them as dispatch left them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from xccl_emu.machine.spec import CLOUDMATRIX384
from xccl_emu.papers.bench import baseline, published
from xccl_emu.papers.bench.layers import Layer, Look, OnPod, Shape, Timed
from xccl_emu.papers.bench.published import Published
from xccl_emu.papers.bench.result import Result, Wire
from xccl_emu.papers.bench.setting import Setting
from xccl_emu.timing.arrival import Taken, arrivals
from xccl_emu.timing.costs import Costs

TOKENS = 128
"""Tokens on each rank."""

MESSAGE_BYTES = {"dispatch": 7680, "combine": 14336}
"""By operator, as bandwidth counts them: nine messages a token."""

_GIB = 1 << 30


def balanced_choices(ranks: int, tokens: int, experts: int, top_k: int, seed: int) -> list[NDArray[np.int32]]:
    """Return, for each rank, [tokens, top_k + 1] expert slots: all experts equally often, the shared one last.

    A rank has ``experts / ranks`` routed experts (or one, on some ranks) and after them a copy of the shared one.
    """
    rng = np.random.default_rng((seed, 2))
    local = -(-experts // ranks)
    repeats = -(-tokens * top_k // experts)
    tables = []
    for rank in range(ranks):
        drawn = np.concatenate([rng.permutation(experts) for _ in range(repeats)])
        expert = drawn[: tokens * top_k].reshape(tokens, top_k)
        shared = (rank + np.arange(tokens)) % ranks * (local + 1) + local
        tables.append(np.column_stack([expert // local * (local + 1) + expert % local, shared]).astype(np.int32))
    return tables


class FusedLayer:
    """A layer with balanced routing on a pod of its own, to be timed again and again, under other costs too."""

    def __init__(self, setting: Setting, layer: Layer, protocol: str = "fused", look: Look | None = None) -> None:
        """``protocol`` is a case of layers; ``look`` as `OnPod` has it."""
        per_node, spec = CLOUDMATRIX384.chips_per_node * CLOUDMATRIX384.dies_per_chip, CLOUDMATRIX384
        if not setting.kept:
            spec = replace(spec, nodes=-(-layer.ranks // per_node))  # several fit an address space then
        self._on = OnPod(setting, layer, -(-layer.experts // layer.ranks) + 1, protocol, spec, look)
        self._topk = balanced_choices(layer.ranks, layer.tokens, layer.experts, layer.top_k, setting.seed)
        weights = np.random.default_rng((setting.seed, 4)).random((layer.tokens, layer.top_k + 1), np.float32)
        self._weights, self._seed = [weights] * layer.ranks, setting.seed

    def run(self, costs: Costs) -> Timed:
        """Dispatch after a skewed start, and combine, which finds ranks as that left them."""
        self._on.policy.costs = costs
        dispatch = self._on.dispatch(self._topk, arrivals(len(self._topk), costs.skew_us, (self._seed, 3)))
        combine = self._on.combine(self._weights, dispatch.ends_us - dispatch.ends_us.min())
        return Timed(dispatch, combine, *self._on.count_wrong(self._topk, self._weights))


def degree_of(row: Published) -> int:
    """EP degree of a row of Table 7."""
    return int(row.what.split()[1].removeprefix("EP"))


def measure(setting: Setting, rows: Sequence[Published]) -> Callable[[Costs], dict[str, float]]:
    """Return a function that emulates the latency of each of these rows, by name; pods and routings are made once."""
    layers = {ranks: FusedLayer(setting, Layer(ranks, TOKENS)) for ranks in sorted({degree_of(row) for row in rows})}

    seen: dict[Costs, dict[int, Timed]] = {}

    def run(costs: Costs) -> dict[str, float]:
        bare = replace(costs, dma_less_us=0.0, launch_us=0.0)  # one comes on top, nothing here depends on the other
        if bare not in seen:
            seen[bare] = {ranks: layer.run(bare) for ranks, layer in layers.items()}
        times = seen[bare]
        taken: dict[str, Taken] = {row.what: getattr(times[degree_of(row)], row.what.split()[0]) for row in rows}
        return {what: costs.launch_us + each.mean_us for what, each in taken.items()}

    return run


LATENCIES = [row for row in published.rows("fused") if row.unit == "us"]


def table(setting: Setting, protocol: str) -> Iterator[tuple[Published, Shape, float, int | None]]:
    """Table 7's layer by a protocol: for each latency of the table what was run, microseconds, and wrong elements."""

    def rows(ranks: int) -> Iterator[tuple[Published, Shape, float, int | None]]:
        layer = Layer(ranks, TOKENS)
        timed = FusedLayer(setting, layer, protocol).run(setting.costs)
        for row in LATENCIES:
            for operator, taken, wrong in timed.operators:
                if row.what.startswith(f"{operator} EP{ranks} "):
                    yield row, {**layer.shape, "routing": "balanced"}, setting.operator_us(taken), wrong

    return setting.each(sorted({degree_of(row) for row in LATENCIES}), rows)


def fused(setting: Setting) -> Iterator[Result]:
    """Table 7: latency of every row, its bandwidth as the paper counts it, and what fit rows alone say."""
    for row, shape, us, wrong in table(setting, "fused"):
        yield from _both(setting, row, us, shape, wrong)
    yield from between(LATENCIES)


def _both(setting: Setting, row: Published, latency_us: float, shape: Shape, wrong: int | None) -> list[Result]:
    """Latency and the bandwidth that follows from it."""
    operator = row.what.split()[0]
    nbytes = TOKENS * 9 * MESSAGE_BYTES[operator]
    wire = Wire(operator, baseline.spread_us(setting.fabric, degree_of(row), nbytes))
    bandwidth = published.row("fused", row.what.replace("latency", "bandwidth"))
    gib_s = nbytes / _GIB / (latency_us * 1e-6)
    return [
        Result.of(row, latency_us, configuration=shape, wrong=wrong, wire=wire),
        Result.of(bandwidth, gib_s, configuration=shape),
    ]


def between(latencies: Sequence[Published]) -> list[Result]:
    """Return what the fit rows alone say of the others: interpolated between EP degrees, without an emulator."""
    results = []
    for operator in MESSAGE_BYTES:
        rows = [row for row in latencies if row.what.startswith(operator)]
        fit = [row for row in rows if row.role == "fit"]
        degrees, values = [np.log2(degree_of(row)) for row in fit], [row.value for row in fit]
        for row in rows:
            value = float(np.interp(np.log2(degree_of(row)), degrees, values))
            results.append(Result.of(row, value, bench="fused, interpolated", note="baseline, not emulated"))
    return results
