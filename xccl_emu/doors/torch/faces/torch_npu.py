"""``torch_npu``: its profiler, with what the calls on the pod took."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from xccl_emu.doors.torch.client import CLOCK
from xccl_emu.doors.torch.faces.distribute import (
    npu_moe_distribute_combine,
    npu_moe_distribute_combine_v2,
    npu_moe_distribute_dispatch,
    npu_moe_distribute_dispatch_v2,
)

__all__ = [
    "npu", "npu_moe_distribute_combine", "npu_moe_distribute_combine_v2", "npu_moe_distribute_dispatch",
    "npu_moe_distribute_dispatch_v2", "profiler",
]  # fmt: skip

npu = getattr(torch, "npu", None)
__version__ = "xccl_emu"


class _Profile:
    def __init__(self, *_: Any, **__: Any) -> None:
        self._first = 0

    def __enter__(self) -> "_Profile":
        self._first = len(CLOCK.events)
        return self

    def __exit__(self, *_: object) -> None:
        pass

    start, stop = __enter__, __exit__

    def step(self) -> None:
        """Go on: all steps are kept."""

    def export_chrome_trace(self, path: str | Path) -> None:
        """Write the kernels since the beginning."""
        events = [
            {"name": each.name, "ts": each.start_us, "dur": each.duration_us, "ph": "X"}
            for each in CLOCK.events[self._first :]
        ]
        Path(path).write_text(json.dumps(events), encoding="utf-8")


profiler = SimpleNamespace(
    profile=_Profile, schedule=lambda **_: None, ProfilerActivity=SimpleNamespace(NPU=0, CPU=1),
)  # fmt: skip
