"""One action of the machine as a compiled function of its own, called by address.

Numba compiles a callee again as a part of each of its callers, and the machine is large.  Whoever goes action by action
and cannot be a part of the machine's policies (a check, a replay that looks at every step) calls this one, which is
compiled once for all of them.
"""

import functools

from numba import config, njit, types
from numba.extending import intrinsic

from xccl_emu.machine.device import by_address
from xccl_emu.machine.device.actions import act


@njit(cache=True, error_model="numpy", _nrt=False)
def act_once(mem, st, actor, choice):
    """`act`: 1 if the action was taken, 0 if it was not enabled, and nothing changed, or is an error."""
    return 1 if act(mem, st, actor, choice) else 0


_SIGNATURE = types.int64(types.Array(types.uint8, 1, "C"), types.Array(types.int64, 1, "C"), types.int64, types.int64)


@functools.cache
def act_handle() -> int:
    """For `act_at`."""
    return by_address.address_of(act_once, _SIGNATURE)


if config.DISABLE_JIT:

    def act_at(handle, mem, st, actor, choice):
        return by_address.function_at(handle)(mem, st, actor, choice)

else:

    @intrinsic
    def act_at(typingctx, handle, mem, st, actor, choice):
        """`act_once`, by its address."""
        return by_address.calling(_SIGNATURE)
