"""PyTorch whose accelerator is this computer: devices mean the CPU, backends gloo, and events report the pod's time."""

import functools
import inspect
import math
import mmap
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

from xccl_emu.base.errors import ConfigError
from xccl_emu.doors.torch import names
from xccl_emu.doors.torch.client import hold_on
from xccl_emu.doors.torch.profiles import profile_of

_NAMES = ("npu", "cuda", "privateuseone")
_LARGE = 1 << 26
"""Elements from which on random matrices are not made: scripts multiply them to pass time on a device; and bytes from
which on zeros take no memory before they are written."""
_NO_RESERVE = 0x4000
"""Linux's MAP_NORESERVE, which Python knows since 3.13."""


def on_cpu(device: Any) -> Any:
    """The CPU for what names the accelerator; anything else as it is."""
    if isinstance(device, torch.device):
        return torch.device("cpu") if device.type in _NAMES else device
    if isinstance(device, int) or (isinstance(device, str) and device.split(":")[0] in _NAMES):
        return torch.device("cpu")
    return device


class NotMade:
    """A large random matrix, or a product of such, that only passes time; ConfigError for any use of its values."""

    def __matmul__(self, other: "NotMade") -> "NotMade":
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        what = f"{name} of a random matrix of at least {_LARGE} elements"
        raise ConfigError(f"{what}: xccl_emu.doors.torch does not make such")


class _ToCpu(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is not None:
            kwargs["device"] = on_cpu(kwargs["device"])
        kwargs.pop("pin_memory", None)
        if func is torch.Tensor.pin_memory:
            return args[0]
        if func is torch.Tensor.to:
            args = tuple(on_cpu(a) if isinstance(a, (str, torch.device)) or type(a) is int else a for a in args)
        size = args[0] if args and isinstance(args[0], (tuple, list)) else args
        if func is torch.randn and len(size) == 2 and size[0] * size[1] >= _LARGE:
            return NotMade()
        if func is torch.zeros and kwargs.keys() <= {"device", "dtype"}:
            dtype = kwargs.get("dtype") or torch.get_default_dtype()
            if (nbytes := math.prod(size) * dtype.itemsize) >= _LARGE:
                return _zeros(nbytes, dtype).view(size)
        return func(*args, **kwargs)


def _zeros(nbytes: int, dtype: torch.dtype) -> torch.Tensor:
    """Zeros that take memory when they are written: scripts make gigabytes of them to empty the cache of a device."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    return torch.frombuffer(mmap.mmap(-1, nbytes, flags), dtype=dtype)


class _Autocast(torch.autocast):
    """PyTorch's, on the CPU for any device."""

    def __init__(self, device_type: str, *args: Any, **named: Any) -> None:
        super().__init__(str(on_cpu(device_type)), *args, **named)


def _loads(load: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.load`` that puts what was on a device onto the CPU."""

    @functools.wraps(load)
    def loaded(f: Any, map_location: Any = None, *args: Any, **named: Any) -> Any:
        return load(f, on_cpu(map_location), *args, **named)

    return loaded


class _OfDevice(type(torch.Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch._C.Generator)


class _Generator(torch.Generator, metaclass=_OfDevice):
    """A generator of random numbers, the CPU's for any device."""

    def __new__(cls, device: Any = "cpu") -> "_Generator":
        made: _Generator = super().__new__(cls, on_cpu(device))
        return made


def install(name: str) -> None:
    """Put a device of this name into PyTorch; in each process, once, when PyTorch has been imported."""
    module = torch.cuda
    if name == "npu":
        torch.utils.rename_privateuse1_backend("npu")
        module = types.ModuleType("torch.npu")
        torch._register_device_module("npu", module)
        torch.npu = module
        torch.nn.Module.npu = lambda self, *_: self
        torch.Tensor.is_npu = property(lambda self: True)
        torch.autocast = _Autocast
        vars(module)["__getattr__"] = names.missing("torch.npu", lambda: sorted(names.names_of("npu")))
    for each, value in names.names_of(name).items():
        setattr(module, each, value)
    setattr(torch.Tensor, name, lambda self, *_, **__: self)
    torch.set_default_device = lambda device: None
    torch.Generator = _Generator
    torch.profiler.profile = profile_of(torch.profiler.profile)
    torch.load = _loads(torch.load)
    torch.compile = _not_compiled
    torch.set_num_threads(1)  # ranks share the cores of this computer
    _gloo()
    if name == "cuda":
        from xccl_emu.doors.torch.faces import pplx

        pplx.install()
    _ToCpu().__enter__()
    hold_on()


def _not_compiled(function: Any = None, **_: Any) -> Any:
    """A function as it is, in place of ``torch.compile``, which would need a compiler on this computer."""
    return (lambda each: each) if function is None else function


def _gloo() -> None:
    """Have any backend be gloo, which is stricter than accelerators' backends."""
    made, new = dist.init_process_group, dist.new_group
    gathered = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)  # its name since PyTorch 2.13

    @functools.wraps(made)
    def init_process_group(backend: Any = None, *args: Any, device_id: Any = None, **kwargs: Any) -> Any:
        return made("gloo", *args, **kwargs)

    @functools.wraps(new)
    def new_group(ranks: Any = None, *args: Any, backend: Any = None, device_id: Any = None, **kwargs: Any) -> Any:
        return new(ranks, *args, backend="gloo", **kwargs)

    def all_gather_into_tensor(output: Any, given: Any, group: Any = None, async_op: bool = False) -> Any:
        return gathered(output.view(-1), given.contiguous().view(-1), group=group, async_op=async_op)

    def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> None:
        (group or dist.group.WORLD).barrier().wait()

    class Hccl:
        """What an HCCL group is asked: its name."""

        def __init__(self, group: Any) -> None:
            self._group = group

        def get_hccl_comm_name(self, rank: int) -> str:
            return str(self._group.group_name)

    def get_backend(group: Any, device: torch.device) -> Any:
        return Hccl(group) if device.type in _NAMES else backend_of(group, device)

    backend_of = dist.ProcessGroup._get_backend
    dist.ProcessGroup._get_backend = get_backend
    changed: dict[str, Callable[..., Any]] = {
        "init_process_group": init_process_group, "new_group": new_group, "barrier": barrier,
        "all_gather_into_tensor": all_gather_into_tensor,
    }  # fmt: skip
    for each, value in changed.items():
        setattr(dist, each, value)
    init_process_group.__signature__ = inspect.signature(made)  # type: ignore[attr-defined]
