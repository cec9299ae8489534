"""Skew: dies that are not ready at the same time, and what that makes of operators which wait for the last one.

A decode iteration is a chain of layers: dispatch, the experts, combine, and what the dies compute for themselves until
the next dispatch.  Dispatch and combine end on every die only when all have come, so the time that one takes on a die
that was early is mostly waiting: dispatch absorbs the spread of what the dies did before it, combine that of the
experts.  `iterations` draws such a chain again and again by a seed.

No published row determines the parameters: all are assumptions, each with its reason.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xccl_emu.errors import ConfigError

DISPATCH, COMBINE = "dispatch", "combine"

Microseconds = NDArray[np.float64]
Run = Callable[[str, Microseconds], Microseconds]
"""Of an operator's name and when it starts on each die [dies]: when it ends on each, by the same clock."""


def _assumed(default: float, why: str, low: float, high: float) -> Any:
    """A field with the reason for its value and the range in which it is plausible."""
    return field(default=default, metadata={"kind": "assumed", "source": why, "range": (low, high)})


@dataclass(frozen=True)
class SkewModel:
    """How much later than others a die may be; times in microseconds."""

    launch_us: float = _assumed(
        170.0, "of 288 dies the last is 6.2 times this behind the first, about 1 ms; xDeepServe 4.4 tells of launches"
        " that were 100 ms apart before they were tamed", 10.0, 1000.0,
    )  # fmt: skip
    """Mean of the exponential delay with which each die begins an iteration."""
    compute_us: float = _assumed(
        900.0, "93 ms an iteration over some 62 layers, without dispatch, combine and experts", 300.0, 1200.0
    )
    """What a die computes between a combine and the next dispatch."""
    compute_spread: float = _assumed(
        0.012, "DP groups that are balanced by tokens: attention, a fifth of all, differs by about 5%", 0.0, 0.1
    )
    """Standard deviation of that between dies, relative; drawn anew in each layer, normal, cut off at four of them."""
    expert_us: float = _assumed(28.0, "44 MB of INT8 weights of one expert at 1,600 GB/s", 10.0, 60.0)
    """What an expert takes for no rows at all: to load its weights."""
    expert_row_us: float = _assumed(
        0.35, "88 million INT8 operations a row at two thirds of 376 TOP/s a die", 0.2, 1.0
    )
    """What each row adds."""
    stalls: float = _assumed(
        1.0, "one in an iteration somewhere: a collection of garbage, weights that are exchanged, the operating system",
        0.0, 5.0,
    )  # fmt: skip
    """Mean number of times in an iteration that an expert's die stalls."""
    stall_us: float = _assumed(2500.0, "a stall that is seen once in the maximum of Figure 20", 100.0, 20000.0)
    """How long."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not isinstance(value, int | float) or not 0 <= value < 1e9:
                raise ConfigError(f"{each.name}={value!r}: must be a number, at least 0")


NO_SKEW = SkewModel(launch_us=0.0, compute_spread=0.0, stalls=0.0)
"""All dies are ready together, but for the experts' rows."""


@dataclass(frozen=True, eq=False)
class Iterations:
    """How long dispatch and combine took on each die, and what of it they waited for others."""

    took_us: Mapping[str, Microseconds]
    """By operator: [iterations, layers, dies]."""

    def of(self, operator: str) -> tuple[float, float, float]:
        """Least, mean and most over all iterations, layers and dies; ConfigError for an unknown operator."""
        if operator not in self.took_us:
            raise ConfigError(f"operator={operator!r}: must be one of {', '.join(self.took_us)}")
        took = self.took_us[operator]
        return float(took.min()), float(took.mean()), float(took.max())

    def by_layer(self, operator: str) -> Microseconds:
        """[layers] mean over iterations and dies: the first dispatch stands out."""
        mean: Microseconds = self.took_us[operator].mean(axis=(0, 2))
        return mean


def synchronized(latency_us: Mapping[str, float]) -> Run:
    """A run in which all dies end a latency after the last one has started.

    So it is where every die waits for all others, as dispatch does for their counts and combine nearly does for their
    rows; it stands in for timed runs, of which a chain of layers would need hundreds.
    """

    def run(operator: str, starts_us: Microseconds) -> Microseconds:
        if operator not in latency_us:
            raise ConfigError(f"operator={operator!r}: there are latencies of {', '.join(latency_us)}")
        return np.full(len(starts_us), starts_us.max() + latency_us[operator])

    return run


def on_cores(starts_us: ArrayLike, cores: Sequence[int], cores_per_die: int, first_die: int = 0) -> dict[int, float]:
    """The ``start_us`` of `VirtualTime` for dies that follow each other, whose cores all start together."""
    starts = np.asarray(starts_us, np.float64)
    return {
        (first_die + die) * cores_per_die + core: float(start) for die, start in enumerate(starts) for core in cores
    }


def iterations(
    run: Run, model: SkewModel, n: int, seed: int, *, rows: ArrayLike, layers: int = 58, first_start: bool = True
) -> Iterations:
    """Draw ``n`` iterations of ``layers`` layers.

    run: ends an operator on every die, given when it starts there; it is called with starts of which the first is 0.
    rows: [dies] or [layers, dies] rows that the experts of each die receive. first_start: with False the launch of an
    iteration has no skew, as if it had been waited out.

    Raises ConfigError for impossible numbers and shapes.
    """
    if n < 1 or layers < 1:
        raise ConfigError(f"n={n}, layers={layers}: must be at least 1")
    table = _table(rows, layers)
    rng, dies = np.random.default_rng(seed), table.shape[1]
    took = {operator: np.empty((n, layers, dies)) for operator in (DISPATCH, COMBINE)}
    for i in range(n):
        ready = np.asarray(rng.exponential(model.launch_us, dies) if first_start else np.zeros(dies))
        for layer in range(layers):
            there, took[DISPATCH][i, layer] = _operator(run, DISPATCH, ready)
            computed = there + _experts(model, table[layer], layers, rng)
            done, took[COMBINE][i, layer] = _operator(run, COMBINE, computed)
            drawn = np.clip(rng.standard_normal(dies), -4, 4)
            ready = done + np.maximum(0.0, model.compute_us * (1 + model.compute_spread * drawn))
    return Iterations(took)


def _table(rows: ArrayLike, layers: int) -> NDArray[np.float64]:
    """[layers, dies] rows."""
    given = np.asarray(rows, np.float64)
    if given.ndim == 1:
        given = np.tile(given, (layers, 1))
    if given.ndim != 2 or len(given) != layers or given.shape[1] < 1 or not (given >= 0).all():
        raise ConfigError(f"rows: has shape {given.shape}; must be [dies] or [{layers}, dies], nothing below 0")
    return given


def _operator(run: Run, operator: str, starts_us: Microseconds) -> tuple[Microseconds, Microseconds]:
    """When it ends, and how long that is, on each die."""
    first = starts_us.min()
    starts = starts_us - first
    ended = np.asarray(run(operator, starts), np.float64)
    if ended.shape != starts.shape or not (ended >= starts).all():
        raise ConfigError(f"run: {operator} must end on each of {len(starts)} dies, not before it starts there")
    return ended + first, ended - starts


def _experts(model: SkewModel, rows: Microseconds, layers: int, rng: np.random.Generator) -> Microseconds:
    """What the experts of each die take, a stall now and then."""
    stalled = rng.random(len(rows)) < model.stalls / (layers * len(rows))
    took: Microseconds = model.expert_us + model.expert_row_us * rows + model.stall_us * stalled
    return took
