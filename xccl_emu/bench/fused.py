"""Table 7 of CloudMatrix384: FusedDispatch and FusedCombine with 128 tokens a rank, EP8 to EP256.

What the paper does not say is assumed as follows, and the same for every row.  Routing is balanced: each rank spreads
its tokens evenly over all experts, and the shared expert has a copy on each rank, which tokens take in turn; so every
rank receives as much as it sends.  Ranks arrive apart at dispatch, which waits for the last of them; combine follows
back to back (4.2.1), and finds them as dispatch left them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from xccl_emu.bench import published
from xccl_emu.bench.layers import Layer, Shape, count_wrong, group_on
from xccl_emu.bench.published import Published
from xccl_emu.bench.result import Result
from xccl_emu.bench.setting import Setting
from xccl_emu.machine.spec import CLOUDMATRIX384
from xccl_emu.timing.arrival import Taken, arrivals, on_cores
from xccl_emu.timing.costs import Costs

TOKENS = 128
"""Of each rank."""

MESSAGE_BYTES = {"dispatch": 7680, "combine": 14336}
"""By operator, as bandwidth counts them: nine messages a token."""

_GIB = 1 << 30


def balanced_choices(ranks: int, tokens: int, experts: int, top_k: int, seed: int) -> list[NDArray[np.int32]]:
    """For each rank [tokens, top_k + 1] expert slots: all experts equally often, the shared one last.

    A rank has ``experts / ranks`` routed experts (or one, on some ranks) and behind them a copy of the shared one.
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


@dataclass(frozen=True)
class Operators:
    """Microseconds of both operators."""

    dispatch_us: float
    combine_us: float


class FusedLayer:
    """A layer with balanced routing on a pod of its own, to be timed again and again, under other costs too."""

    def __init__(self, setting: Setting, layer: Layer, protocol: str = "fused") -> None:
        """``protocol`` is a case of layers."""
        self._name = f"{protocol} EP{layer.ranks}: "
        setting.check_memory(self._name.strip(), layer.bytes_needed(setting.data))
        per_node = CLOUDMATRIX384.chips_per_node * CLOUDMATRIX384.dies_per_chip
        spec = replace(CLOUDMATRIX384, nodes=-(-layer.ranks // per_node))  # several fit an address space then
        pod, self._policy = setting.pod(spec)
        self._setting, self._layer = setting, layer
        local = -(-layer.experts // layer.ranks) + 1
        self._group = group_on(pod, layer.config(local), protocol)
        self._tokens = setting.tokens(layer.ranks, layer.tokens, layer.hidden)
        self._topk = balanced_choices(layer.ranks, layer.tokens, layer.experts, layer.top_k, setting.seed)
        weights = np.random.default_rng((setting.seed, 4)).random((layer.tokens, layer.top_k + 1), np.float32)
        self._weights = [weights] * layer.ranks

    def run(self, costs: Costs) -> Operators:
        """Dispatch after a skewed start, the dummy expert, and combine."""
        self._policy.costs = costs
        starts = arrivals(self._layer.ranks, costs.skew_us, (self._setting.seed, 3))
        with self._setting.stage(self._name + "dispatch") as progress:
            dispatch = self._time(lambda: self._group.dispatch(list(self._tokens), self._topk, progress), starts)
        with self._setting.stage(self._name + "combine") as progress:
            if self._setting.data:
                self._time(self._group.run_dummy, 0 * starts)
            left = dispatch.ends_us - dispatch.ends_us.min()
            combine = self._time(lambda: self._group.combine(self._weights, progress), left)
        return Operators(dispatch.mean_us + costs.launch_us, combine.mean_us + costs.launch_us)

    def _time(self, run: Callable[[], object], starts: NDArray[np.float64]) -> Taken:
        self._policy.start_us = on_cores(starts, range(self._layer.cores), CLOUDMATRIX384.cores_per_die)
        run()
        return Taken.of(self._policy.timing, starts)

    def count_wrong(self) -> tuple[int | None, int | None]:
        """Elements that dispatch and combine of the last run left other than the oracle's; None without data."""
        if not self._setting.data:
            return None, None
        return count_wrong(self._group, self._tokens, self._topk, self._weights)


def degree_of(row: Published) -> int:
    """EP degree of a row of Table 7."""
    return int(row.what.split()[1].removeprefix("EP"))


def measure(setting: Setting, rows: Sequence[Published]) -> Callable[[Costs], dict[str, float]]:
    """What gives the emulated latency of each of these rows by its name; pods and routings are made once."""
    layers = {ranks: FusedLayer(setting, Layer(ranks, TOKENS)) for ranks in sorted({degree_of(row) for row in rows})}

    seen: dict[Costs, dict[int, Operators]] = {}

    def run(costs: Costs) -> dict[str, float]:
        bare = replace(costs, launch_us=0.0, dma_start_us=1.0)  # one comes on top, nothing here depends on the other
        if bare not in seen:
            seen[bare] = {ranks: layer.run(bare) for ranks, layer in layers.items()}
        times = seen[bare]
        return {row.what: costs.launch_us + getattr(times[degree_of(row)], f"{row.what.split()[0]}_us") for row in rows}

    return run


def fused(setting: Setting) -> list[Result]:
    """Table 7: latency of every row, its bandwidth as the paper counts it, and the baselines of the fit."""
    latencies = [row for row in published.rows("fused") if row.unit == "us"]
    results: list[Result] = []
    for ranks in sorted({degree_of(row) for row in latencies}):
        layer = FusedLayer(setting, Layer(ranks, TOKENS))
        times = layer.run(setting.costs)
        dispatch, combine = layer.count_wrong()
        shape = {**Layer(ranks, TOKENS).shape, "routing": "balanced"}
        for row in latencies:
            if degree_of(row) == ranks:
                combines = row.what.startswith("combine")
                emulated = times.combine_us if combines else times.dispatch_us
                results += _both(row, emulated, shape, combine if combines else dispatch)
        del layer
    return results + baselines(latencies)


def _both(row: Published, latency_us: float, shape: Shape, wrong: int | None) -> list[Result]:
    """Latency and the bandwidth that follows from it."""
    operator = row.what.split()[0]
    nbytes = TOKENS * 9 * MESSAGE_BYTES[operator]
    bandwidth = published.row("fused", row.what.replace("latency", "bandwidth"))
    gib_s = nbytes / _GIB / (latency_us * 1e-6)
    return [
        Result.of(row, latency_us, configuration=shape, wrong=wrong),
        Result.of(bandwidth, gib_s, configuration=shape),
    ]


# ---- what needs no emulator


def baselines(latencies: Sequence[Published]) -> list[Result]:
    """What a line through the fit rows gives: alpha-beta over the bytes that leave a die, and between EP degrees."""
    results = []
    for operator in MESSAGE_BYTES:
        rows = [row for row in latencies if row.what.startswith(operator)]
        fit = [row for row in rows if row.role == "fit"]
        slope, start = np.polyfit([_leaving(row) for row in fit], [row.value for row in fit], 1)
        degrees, values = [np.log2(degree_of(row)) for row in fit], [row.value for row in fit]
        for row in rows:
            line = start + slope * _leaving(row)
            between = float(np.interp(np.log2(degree_of(row)), degrees, values))
            results.append(Result.of(row, float(line), bench="fused, alpha-beta", note="baseline, not emulated"))
            results.append(Result.of(row, between, bench="fused, interpolated", note="baseline, not emulated"))
    return sorted(results, key=lambda result: result.bench)


def _leaving(row: Published) -> float:
    """Bytes that leave a die: all but what stays on it."""
    ranks = degree_of(row)
    return TOKENS * 9 * MESSAGE_BYTES[row.what.split()[0]] * (ranks - 1) / ranks
