"""Where the time of an operator goes: the critical path of its run, by phase, and in each by pipe and by wait.

The path leads from the start of a core to the return of the last one.  What it has on other dies than its end's
is *send*; *wait* is the way of what was sent last, until its flag is seen; *receive* is all after it.  Before them
is the *arrival* of the rank that the path begins on.  They add up to the time from the first start to the last end.

And what each optimization of the fused operators is worth: switched off alone, its time over the whole's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import one_of
from xccl_emu.machine.stats import PIPE_NAMES
from xccl_emu.papers.bench.fused import TOKENS, FusedLayer
from xccl_emu.papers.bench.layers import Layer, time_layer
from xccl_emu.papers.bench.result import Result
from xccl_emu.papers.bench.setting import DEFAULT, Setting
from xccl_emu.timing.critical import WAITS, WORKS, PathPart, critical_path, site_name, sums
from xccl_emu.timing.run import Timing

PROTOCOLS = ("fused", "dispatch", "deepep-ll")
RANKS = (8, 16, 32, 64)
RANKS_MAX, TOKENS_MAX = 64, 8192
"""Ranks, and tokens of all of them, that the log of all actions has room for."""


def phases(
    setting: Setting = DEFAULT, protocol: str = "fused", ranks: Sequence[int] = RANKS, tokens: int = TOKENS
) -> list[Result]:
    """Microseconds of each part of the path, in order of the phases; ConfigError for sizes that no log has room for."""
    one_of("protocol", protocol, PROTOCOLS)
    results: list[Result] = []
    for degree in ranks:
        if not 2 <= degree <= RANKS_MAX or degree * tokens > TOKENS_MAX:
            must = f"must be 2 to {RANKS_MAX}, with at most {TOKENS_MAX} tokens in all"
            raise ConfigError(f"ranks={degree} of {tokens} tokens: {must}")
        layer = Layer(degree, tokens)

        def look(operator: str, timing: Timing, layer: Layer = layer) -> None:
            results.extend(rows_of(operator, timing, layer))

        FusedLayer(setting, layer, protocol, look).run(setting.costs)
    return results


def rows_of(operator: str, timing: Timing, layer: Layer) -> Iterator[Result]:
    """The rows of one operator: what takes most of a phase comes first."""
    path = [(phase, part) for phase, part in phased(critical_path(timing), timing.cores_per_die)]
    for phase in dict.fromkeys(phase for phase, _ in path):
        found = sums((_name(timing, part), part) for each, part in path if each == phase)
        for name, us in found.items():
            what = f"{operator} EP{layer.ranks}, {phase}: {name}"
            yield Result("phases", what, us, "us", configuration=layer.shape | {"routing": "balanced", "phase": phase})


def phased(path: Sequence[PathPart], cores_per_die: int) -> Iterator[tuple[str, PathPart]]:
    """Yield each part with the phase that it belongs to."""
    home = path[-1].core // cores_per_die
    away = max((i for i, part in enumerate(path) if part.core // cores_per_die != home), default=-1)
    waits = True
    for i, part in enumerate(path):
        if part.resource == "skew":
            yield "arrival", part
        elif i < away or (i == away and part.resource != "latency"):
            yield "send", part
        else:
            waits = waits and (i == away or part.resource in WAITS)
            yield "wait" if waits else "receive", part


def _name(timing: Timing, part: PathPart) -> str:
    if part.resource in WORKS:
        return f"{PIPE_NAMES[part.engine]}, {part.resource}"
    return f"{part.resource}, {site_name(timing, part)}" if part.resource in WAITS else part.resource


LAYER = Layer(ranks=64, tokens=128)

WHOLE = "all on"

SWITCHES: dict[str, dict[str, Any]] = {
    WHOLE: {},
    "SDMA in place of the cores' writes": {"path": "sdma"},
    "quantized by the receiver": {"early_quantization": False},
    "counts exchanged first": {"preallocated": False},
    "no pipeline": {"pipelined": False},
}
"""What is off, and the fields of `FusedConfig` that say so.  The double buffer saves no time within one round."""


def ablation(setting: Setting = DEFAULT, layer: Layer = LAYER) -> list[Result]:
    """Times of dispatch and combine with each optimization off, and the ratios to the whole; the pipeline on few cores.

    What the pipeline hides is time of a core.  Where all cores of a die wait for the wire it hides nothing.
    """
    pipeline = {name: SWITCHES[name] for name in (WHOLE, "no pipeline")}
    few = replace(layer, cores=max(1, layer.cores // 6))
    return [*_switched(setting, layer, SWITCHES, ""), *_switched(setting, few, pipeline, f" on {few.cores} cores")]


def _switched(setting: Setting, layer: Layer, switches: Mapping[str, dict[str, Any]], where: str) -> list[Result]:
    times = [time for name, off in switches.items() for time in _times(setting, layer, name, off, where)]
    whole = {op: float(row.emulated or 1) for op, row in zip(("dispatch", "combine"), times, strict=False)}
    ratios = [
        replace(row, what=f"{row.what}, over all on", unit="x", wrong=None,
                emulated=float(row.emulated or 0) / whole[row.what.split(",")[0]])
        for row in times[2:]
    ]  # fmt: skip
    return [*times, *ratios]


def _times(setting: Setting, layer: Layer, name: str, off: dict[str, Any], where: str) -> list[Result]:
    """Return the times of both operators with some optimizations off."""
    staged = replace(setting, stage=lambda stage: setting.stage(f"{name}{where}: {stage}"))
    return time_layer(staged, layer, "fused", **off).rows(setting, "ablation", f"{name}{where}", layer.shape | off)
