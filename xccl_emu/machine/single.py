"""One action of the machine as a compiled function of its own, called by address.

Numba compiles a callee again as a part of each of its callers, and the machine is large.  Whoever goes action by action
and cannot be a part of the machine's policies (a check, a replay that looks at every step) calls this one, which is
compiled once for all of them.
"""

from numba import config, njit, types
from numba.extending import intrinsic

from xccl_emu.machine.actions import act
from xccl_emu.machine.words import jit


@njit(cache=True, error_model="numpy", _nrt=False)
def act_once(mem, st, actor, choice):
    """`act`: 1 if the action was taken, 0 if it was not enabled, and nothing changed, or is an error."""
    return 1 if act(mem, st, actor, choice) else 0


if config.DISABLE_JIT:

    def act_handle() -> int:
        """For `act_at`."""
        return 0

    def act_at(handle, mem, st, actor, choice):
        """`act_once`."""
        return act_once(mem, st, actor, choice)

else:
    _SIGNATURE = types.int64(
        types.Array(types.uint8, 1, "C"), types.Array(types.int64, 1, "C"), types.int64, types.int64
    )

    def act_handle() -> int:
        """The address of `act_once`, for `act_at`."""
        compiled = act_once.get_compile_result(_SIGNATURE)
        return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name))

    @intrinsic
    def _call(typingctx, address, mem, st, actor, choice):
        def codegen(context, builder, sig, args):
            convention = context.call_conv
            kind = convention.get_function_type(_SIGNATURE.return_type, _SIGNATURE.args)
            pointer = builder.inttoptr(args[0], kind.as_pointer())
            status, result = convention.call_function(
                builder, pointer, _SIGNATURE.return_type, _SIGNATURE.args, args[1:]
            )
            with builder.if_then(status.is_error, likely=False):  # the arithmetic of a kernel has failed
                convention.return_status_propagate(builder, status)
            return result

        return types.int64(types.int64, *_SIGNATURE.args), codegen

    @jit
    def act_at(handle, mem, st, actor, choice):
        """`act_once`, by its address."""
        return _call(handle, mem, st, actor, choice)
