"""Names of ``torch.cuda`` and ``torch.npu``: what each does here, as far as it is here; others are refused by name.

Each name has an object of its own: PyTorch's compiler keeps rules by object, and refuses one that has two names.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NoReturn

import torch

from xccl_emu.base.errors import ConfigError
from xccl_emu.doors.torch.client import CLOCK

DEVICE_NAME = "xccl_emu"
_here = {"device": 0}


class NotHereError(ConfigError, AttributeError):
    """A name of another library that is not here; for `hasattr`, one that there is not."""


class Event:
    """A moment; `elapsed_time` is in milliseconds of the pod's virtual time, if the pod runs in it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._at_us = 0.0

    def record(self, *_: Any) -> None:
        """Take the time."""
        self._at_us = CLOCK.now_us()

    def elapsed_time(self, other: "Event") -> float:
        """Milliseconds from here to another one."""
        return (other._at_us - self._at_us) * 1e-3

    def synchronize(self, *_: Any) -> None:
        """Return: what goes before it in its stream is done."""

    wait = synchronize

    def query(self) -> bool:
        """Say that it has happened."""
        return True


class Stream:
    """A stream; there is but one order, the calls'."""

    cuda_stream = npu_stream = stream_id = device_index = priority = 0
    device_type = 1

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def synchronize(self, *_: Any) -> None:
        """Return: what goes before is done."""

    wait_stream = wait_event = synchronize

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event, a new one if none is given; returns it."""
        event = event or Event()
        event.record()
        return event

    def query(self) -> bool:
        """Say that all is done."""
        return True


def _synchronize(*_: Any) -> None:
    """Wait for the device: what calls with events have brought is there."""
    from xccl_emu.doors.torch.faces.common import Due

    Due.settle()


def _set_device(device: Any) -> None:
    _here["device"] = device if isinstance(device, int) else torch.device(device).index or 0


@contextlib.contextmanager
def _device(device: Any) -> Iterator[None]:
    """Be on a device within."""
    before = _here["device"]
    _set_device(device)
    try:
        yield
    finally:
        _here["device"] = before


def _memory(*_: Any) -> tuple[int, int]:
    """Bytes that are free, and all, of this computer's memory."""
    page = os.sysconf("SC_PAGE_SIZE")
    return page * os.sysconf("SC_AVPHYS_PAGES"), page * os.sysconf("SC_PHYS_PAGES")


def _device_count(device: str) -> int:
    """Return how many devices are visible, as the environment says it to the real ones; many if it says nothing."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES" if device == "cuda" else "ASCEND_RT_VISIBLE_DEVICES")
    return len(visible.split(",")) if visible else 1 << 10


def _properties(*_: Any) -> SimpleNamespace:
    return SimpleNamespace(
        name=DEVICE_NAME, major=9, minor=0, total_memory=_memory()[1], multi_processor_count=132, cube_core_num=24,
        vector_core_num=48, L2_cache_size=0,
    )  # fmt: skip


_NOTHING = (
    "manual_seed", "manual_seed_all", "seed", "seed_all", "empty_cache", "_sleep", "_lazy_init", "init", "ipc_collect",
    "reset_peak_memory_stats", "reset_accumulated_memory_stats", "reset_max_memory_allocated", "set_stream",
    "set_per_process_memory_fraction", "set_sync_debug_mode", "set_compile_mode",
)  # fmt: skip
"""Functions that do nothing."""
_GIVES: dict[str, Any] = {
    "is_available": True, "is_initialized": False, "_is_in_bad_fork": False,
    "get_device_name": DEVICE_NAME, "get_device_capability": (9, 0), "memory_allocated": 0, "max_memory_allocated": 0,
    "memory_reserved": 0, "max_memory_reserved": 0, "memory_stats": {}, "is_current_stream_capturing": False,
    "initial_seed": 0, "is_bf16_supported": True, "can_device_access_peer": True, "get_sync_debug_mode": 0,
}  # fmt: skip
"""Functions that give always the same."""
_REFUSED = (
    "CUDAGraph", "NPUGraph", "graph", "make_graphed_callables", "graph_pool_handle", "memory_snapshot",
    "memory_summary", "utilization", "temperature", "power_draw", "clock_rate", "memory_usage", "cudart",
    "caching_allocator_alloc", "caching_allocator_delete", "MemPool", "use_mem_pool", "jiterator", "ExternalStream",
)  # fmt: skip
"""Names that are not here, and that PyTorch would refuse in words of its own."""


def _constant(name: str, value: Any) -> Callable[..., Any]:
    def give(*_: Any, **__: Any) -> Any:
        return value

    give.__name__ = give.__qualname__ = name
    return give


def refused(what: str, instead: str = "") -> type:
    """A class, or function, of this name that refuses to be called, or asked for a name; instead: what there is."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise NotHereError(f"{what}: xccl_emu.doors.torch does not have it{instead and f'; it has {instead}'}")

    class Refused(type):
        """Its names are not here either."""

        def __getattr__(cls, name: str) -> NoReturn:
            if name.startswith("__"):  # asked by Python
                raise AttributeError(name)
            refuse()

    return Refused(what.rpartition(".")[2], (), {"__new__": refuse, "__doc__": f"{what}; refused."})


def names_of(device: str) -> dict[str, Any]:
    """Return what ``torch.cuda`` or ``torch.npu`` has, by name."""
    return {
        **{name: _constant(name, None) for name in _NOTHING},
        **{name: _constant(name, value) for name, value in _GIVES.items()},
        **{name: refused(f"torch.{device}.{name}") for name in _REFUSED},
        "synchronize": _synchronize, "set_device": _set_device, "current_device": lambda: _here["device"],
        "device_count": lambda: _device_count(device), "device": _device,
        "get_device_properties": _properties, "mem_get_info": _memory, "Event": Event,
        "Stream": Stream, "stream": lambda stream: stream or Stream(), "current_stream": lambda *_: Stream(),
        "default_stream": lambda *_: Stream(), "default_generators": (torch.default_generator,) * 16,
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
        "nvtx": SimpleNamespace(range_push=lambda *_: 0, range_pop=lambda: 0, mark=lambda *_: None),
        "config": SimpleNamespace(allow_internal_format=False),
    }  # fmt: skip


def missing(module: str, has: Callable[[], list[str]]) -> Callable[[str], NoReturn]:
    """``__getattr__`` of a module, which refuses what is not there by name."""

    def refuse(name: str) -> NoReturn:
        if name.startswith("__"):  # asked by Python
            raise AttributeError(name)
        raise NotHereError(f"{module}.{name}: xccl_emu.doors.torch does not have it; it has {', '.join(has())}")

    return refuse
