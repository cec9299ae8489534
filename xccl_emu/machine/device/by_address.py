"""Calls of compiled functions by their address, so that a caller does not contain, and recompile, what it calls.

A function is compiled for one signature; `address_of` says where it is, and an intrinsic made by `calling` goes there.
With the JIT off the addresses are numbers by which `function_at` finds the function.
"""

from collections.abc import Callable
from typing import Any

from numba import config, types

from xccl_emu.jit.bare import bare

if config.DISABLE_JIT:
    _FUNCTIONS: dict[int, Callable[..., int]] = {}

    def address_of(function: Any, signature: Any) -> int:
        """A number by which `function_at` finds the function."""
        _FUNCTIONS[id(function)] = function
        return id(function)

    def function_at(address: int) -> Callable[..., int]:
        """The function with that number."""
        return _FUNCTIONS[int(address)]

else:

    def address_of(function: Any, signature: Any) -> int:
        """Return where the function is, compiled for these arguments."""
        compiled = function.get_compile_result(_with_bare_arrays(signature))
        return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name))

    def _with_bare_arrays(signature: Any) -> Any:
        return signature.return_type(*map(bare, signature.args))

    def calling(signature: Any) -> tuple[Any, Callable[..., Any]]:
        """Return what an intrinsic returns whose arguments are an address and what the function there takes.

        What the function raises (the arithmetic of a kernel that fails) is handed on.
        """

        signature = _with_bare_arrays(signature)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            convention = context.call_conv
            kind = convention.get_function_type(signature.return_type, signature.args)
            pointer = builder.inttoptr(args[0], kind.as_pointer())
            status, result = convention.call_function(builder, pointer, signature.return_type, signature.args, args[1:])
            with builder.if_then(status.is_error, likely=False):
                convention.return_status_propagate(builder, status)
            return result

        return signature.return_type(types.int64, *signature.args), codegen
