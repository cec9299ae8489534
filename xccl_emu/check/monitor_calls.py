"""Calls by address between the parts of the monitor.

Each part is compiled once and by itself; called by name, Numba would compile all that it calls into it again.
"""

from collections.abc import Callable
from typing import Any

from numba import config, int64, njit, typeof
from numba.core import types
from numba.core.typing import signature
from numba.extending import intrinsic

part = njit(cache=True, error_model="numpy", _nrt=False)
"""For a part: ``part(space, a, b)``, with the arrays of the monitor and two whole numbers; returns a whole number."""

if config.DISABLE_JIT:
    _PART_OF_HANDLE: dict[int, Callable[..., int]] = {}

    def handle_of(function: Any, space: Any) -> int:
        """A number by which `call` finds a part."""
        _PART_OF_HANDLE[id(function)] = function
        return id(function)

    def call(handle, space, a, b):
        return _PART_OF_HANDLE[int(handle)](space, a, b)

else:

    def handle_of(function: Any, space: Any) -> int:
        """The address of a part, compiled for these arrays."""
        compiled = function.get_compile_result(signature(int64, typeof(space), int64, int64))
        return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name))

    @intrinsic
    def call(typingctx, handle, space, a, b):
        """Call a part by its handle."""
        arguments = (space, types.int64, types.int64)

        def codegen(context, builder, sig, args):
            convention = context.call_conv
            kind = convention.get_function_type(types.int64, arguments)
            pointer = builder.inttoptr(args[0], kind.as_pointer())
            status, result = convention.call_function(builder, pointer, types.int64, arguments, args[1:])
            with builder.if_then(status.is_error, likely=False):
                convention.return_status_propagate(builder, status)
            return result

        return types.int64(types.int64, *arguments), codegen
