"""The compiled side, imported only when something runs: policies by name, kernels by handle."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from numba import config

from xccl_emu.base.errors import ConfigError, KernelArithmeticError, XcclEmuError
from xccl_emu.lang import Kernel
from xccl_emu.machine.device.actions import start as _start
from xccl_emu.machine.device.policies import replay, round_robin, uniform_random
from xccl_emu.machine.device.single import action
from xccl_emu.machine.device.words import handle_of

_POLICIES: dict[str, Callable[..., int]] = {"round-robin": round_robin, "random": uniform_random, "replay": replay}


def policy(name: str) -> Callable[..., int]:
    """The compiled policy of that name."""
    return _POLICIES[name]


__all__ = ["action", "arithmetic_of", "handles", "policy", "start"]


def start() -> Callable[..., None]:
    """The compiled function that runs launched kernels to their first request."""
    start_function: Callable[..., None] = _start
    return start_function


@contextmanager
def arithmetic_of(kernels: Sequence[Kernel]) -> Iterator[None]:
    """Raises KernelArithmeticError where a kernel's arithmetic fails (only a plain generator has more than 64 bits)."""
    try:
        yield
    except XcclEmuError:  # some are ValueErrors too
        raise
    except (ZeroDivisionError, OverflowError, ValueError) as error:
        names = ", ".join(kernel.name for kernel in kernels)
        what = "a division by zero, a bad shift count, or a value that is no 64-bit integer"
        message = f"arithmetic of a kernel failed ({error}): {what}; those that run are {names}"
        raise KernelArithmeticError(message) from error


def handles(kernels: Sequence[Kernel], generators: bool = False) -> list[int]:
    """Return the numbers by which the machine finds the kernels' step functions (`words.call_step`)."""
    if generators and not config.DISABLE_JIT:
        raise ConfigError("generators", True, "kernels run as plain generators only with NUMBA_DISABLE_JIT=1")
    return [handle_of(kernel.plain_step() if generators else kernel.entry) for kernel in kernels]
