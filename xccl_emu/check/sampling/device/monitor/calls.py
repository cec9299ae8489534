"""Calls by address between the parts of the monitor.

Each part is compiled once and by itself; called by name, Numba would compile all that it calls into it again.
"""

from typing import Any

from numba import config, typeof, types
from numba.extending import intrinsic

from xccl_emu.jit.kept import compiled
from xccl_emu.machine.device import words

part = compiled(_nrt=False)
"""For a part: ``part(space, a, b)``, with the arrays of the monitor and two whole numbers; returns a whole number."""


def _signature(space: Any) -> Any:
    """Return the signature of a part, by the type of the arrays."""
    return types.int64(space, types.int64, types.int64)


_HANDLES: dict[Any, int] = {}


def handle_of(function: Any, space: Any) -> int:
    """Return the number by which `call` finds a part on these arrays, whose types are the same for all monitors."""
    if function not in _HANDLES:
        _HANDLES[function] = words.address_of(function, _signature(typeof(space)))
    return _HANDLES[function]


if config.DISABLE_JIT:

    def call(handle, space, a, b):
        return words.function_at(handle)(space, a, b)

else:

    @intrinsic
    def call(typingctx, handle, space, a, b):
        """Call a part by its handle."""
        return words.calling(_signature(space))
