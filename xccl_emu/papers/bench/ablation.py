"""What each optimization of the fused operators is worth: switched off alone, its time over the whole's."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from xccl_emu.papers.bench.layers import Layer, time_layer
from xccl_emu.papers.bench.result import Result
from xccl_emu.papers.bench.setting import DEFAULT, Setting

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
