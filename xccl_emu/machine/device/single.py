"""One action of the machine, compiled once and called by its address, which stands in the state array.

Numba compiles a callee again as a part of each of its callers, and the machine is large.  So policies, searches and
replays call the action; none of them contains it.
"""

from numba import config, types
from numba.extending import intrinsic

from xccl_emu.jit.kept import compiled
from xccl_emu.machine.device import by_address
from xccl_emu.machine.device.actions import act
from xccl_emu.machine.device.layout import ACT, ERROR
from xccl_emu.machine.device.words import jit

_SIGNATURE = types.int64(
    types.Array(types.uint8, 1, "C"), types.Array(types.int64, 1, "C"), types.int64, types.int64, types.int64
)


@compiled(_nrt=False)
def _act_up_to(mem, st, actor, choice, most):
    taken = 0
    while taken < most and st[ERROR] == 0:
        if act(mem, st, actor, choice):
            taken += 1
        elif st[ERROR] != 0:
            return -taken - 1
        else:
            break
    return taken


def action() -> int:
    """What stands in `ACT`: by which number the action is called."""
    return by_address.address_of(_act_up_to, _SIGNATURE)


if config.DISABLE_JIT:

    def _call(handle, mem, st, actor, choice, most):
        return by_address.function_at(handle)(mem, st, actor, choice, most)

else:

    @intrinsic
    def _call(typingctx, handle, mem, st, actor, choice, most):
        return by_address.calling(_SIGNATURE)


@jit
def act_up_to(mem, st, actor, choice, most):
    """Take the same action up to so many times; how many were taken, or -n if the n-th was refused as an error."""
    return _call(st[ACT], mem, st, actor, choice, most)


@jit
def act_once(mem, st, actor, choice):
    """`actions.act`, by its address."""
    return _call(st[ACT], mem, st, actor, choice, 1) > 0
