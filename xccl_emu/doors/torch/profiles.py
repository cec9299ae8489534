"""Profilers: kernels of the pod by name, in virtual time, for scripts that ask ``torch.profiler`` for a device's."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from xccl_emu.doors.torch.client import CLOCK, ProfiledKernel


class Averages(list[Any]):
    """Kernels by name: how often, and how long."""

    def table(self, *_: Any, **__: Any) -> str:
        """Lines of name, total and mean time, and number of calls, the longest first."""
        rows = [f"{row.key:<60}  {row.device_time_total:.3f}us  {row.device_time:.3f}us  {row.count}" for row in self]
        return "\n".join([f"{'Name':<60}  total  mean  calls", *rows])


class Average:
    """A kernel of a profile; microseconds."""

    def __init__(self, key: str, took_us: list[float]) -> None:
        self.key, self.count, self.device_time_total = key, len(took_us), sum(took_us)
        self.device_time = self.cuda_time = self.device_time_total / len(took_us)
        self.cuda_time_total = self.device_time_total


class DeviceProfile:
    """A profile of what the calls took on the pod.  ``schedule`` says which steps are kept, as PyTorch's does."""

    def __init__(self, *_: Any, schedule: Any = None, on_trace_ready: Any = None, **__: Any) -> None:
        self._schedule, self._ready, self._step = schedule, on_trace_ready, 0
        self.kernels: list[ProfiledKernel] = []
        self._first = 0

    def __enter__(self) -> "DeviceProfile":
        self._first = len(CLOCK.events)
        return self

    def __exit__(self, *_: object) -> None:
        self._keep()
        if self._ready is not None:
            self._ready(self)

    def start(self) -> None:
        """Begin."""
        self.__enter__()

    def stop(self) -> None:
        """End."""
        self.__exit__()

    def step(self) -> None:
        """Go on to the next step."""
        self._keep()
        self._step += 1

    def _keep(self) -> None:
        """Keep what has run since, if the schedule would have it."""
        actions = (torch.profiler.ProfilerAction.RECORD, torch.profiler.ProfilerAction.RECORD_AND_SAVE)
        if not callable(self._schedule) or self._schedule(self._step) in actions:
            self.kernels += CLOCK.events[self._first :]
        self._first = len(CLOCK.events)

    def key_averages(self, *_: Any, **__: Any) -> Averages:
        """Kernels by name, the one that took longest first."""
        took: dict[str, list[float]] = {}
        for each in self.kernels:
            took.setdefault(each.name, []).append(each.duration_us)
        rows = [Average(name, each) for name, each in took.items()]
        return Averages(sorted(rows, key=lambda row: -row.device_time_total))

    def events(self) -> list[dict[str, Any]]:
        """Return the kernels as events of a trace."""
        return [
            {"name": each.name, "ts": each.start_us, "dur": each.duration_us, "ph": "X", "cat": "kernel", "pid": 0,
             "tid": 0}
            for each in self.kernels
        ]  # fmt: skip

    def export_chrome_trace(self, path: str | Path) -> None:
        """Write them as a trace."""
        Path(path).write_text(json.dumps({"traceEvents": self.events()}), encoding="utf-8")


def profile_of(torchs: type[Any]) -> Callable[..., Any]:
    """``torch.profiler.profile``: PyTorch's, and for activities of a device the pod's."""

    class Profile(torchs):  # type: ignore[misc]
        def __new__(cls, *args: Any, activities: Any = None, **named: Any) -> Any:
            given = activities or (args[0] if args else None) or ()
            if any(each is not torch.profiler.ProfilerActivity.CPU for each in given):
                return DeviceProfile(**named)
            return super().__new__(cls)

    Profile.__name__ = Profile.__qualname__ = "profile"
    return Profile
