"""What each optimization of the fused operators is worth: switched off alone, its time over that of the whole."""

from dataclasses import replace
from functools import partial
from typing import Any

from xccl_emu.bench.layers import Layer, time_layer
from xccl_emu.bench.result import Result
from xccl_emu.bench.setting import DEFAULT, Setting
from xccl_emu.machine.pod import Pod
from xccl_emu.protocols.expert_group import ExpertGroup
from xccl_emu.protocols.fused import FusedExpertParallel
from xccl_emu.protocols.fused_layout import FusedConfig

LAYER = Layer(ranks=64, tokens=128)

SWITCHES: dict[str, dict[str, Any]] = {
    "all on": {},
    "SDMA in place of the cores' writes": {"path": "sdma"},
    "quantized by the receiver": {"early_quantization": False},
    "counts exchanged first": {"preallocated": False},
    "no pipeline": {"pipelined": False},
}
"""What is off, and the fields of `FusedConfig` that say so.  The double buffer saves no time within one round."""


def fused_with(pod: Pod, shape: dict[str, Any], *, switches: dict[str, Any]) -> ExpertGroup[Any]:
    """A fused group with some optimizations off."""
    return FusedExpertParallel(pod, FusedConfig(**shape, **switches))


def ablation(setting: Setting = DEFAULT, layer: Layer = LAYER) -> list[Result]:
    """Times of dispatch and combine with each optimization off, then the ratios to the whole."""
    times: list[Result] = []
    for name, switches in SWITCHES.items():
        shape = layer.shape | switches
        told = replace(setting, stage=lambda stage, name=name: setting.stage(f"{name}: {stage}"))  # type: ignore[misc]
        timed = time_layer(told, layer, partial(fused_with, switches=switches))
        for op, timing, wrong in timed.operators:
            us = setting.operator_us(timing)
            times.append(Result("ablation", f"{op}, {name}", us, "us", configuration=shape, wrong=wrong))
    whole = {op: float(row.emulated or 1) for op, row in zip(("dispatch", "combine"), times, strict=False)}
    ratios = [
        replace(row, what=f"{row.what}, over all on", unit="x", wrong=None,
                emulated=float(row.emulated or 0) / whole[row.what.split(",")[0]])
        for row in times[2:]
    ]  # fmt: skip
    return [*times, *ratios]
