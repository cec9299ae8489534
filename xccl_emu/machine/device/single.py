"""One action of the machine, compiled once and called by its address, which is in the state array.

Numba compiles a callee again as a part of each of its callers, and the machine is large.  So searches, replays and
most policies call the action.  Only round-robin contains it, at twice the steps a second: what long runs use.
"""

from numba import config, types
from numba.extending import intrinsic

from xccl_emu.jit.kept import compiled
from xccl_emu.machine.device import words
from xccl_emu.machine.device.actions import act
from xccl_emu.machine.device.layout import ACT
from xccl_emu.machine.device.words import jit

_SIGNATURE = types.int64(types.Array(types.uint8, 1, "C"), types.Array(types.int64, 1, "C"), types.int64, types.int64)


@compiled(_nrt=False)
def _act(mem, st, actor, choice):
    return 1 if act(mem, st, actor, choice) else 0


def action() -> int:
    """Return the value of `ACT`: the number by which the action is called."""
    return words.address_of(_act, _SIGNATURE)


if config.DISABLE_JIT:

    def _call(handle, mem, st, actor, choice):
        return words.function_at(handle)(mem, st, actor, choice)

else:

    @intrinsic
    def _call(typingctx, handle, mem, st, actor, choice):
        return words.calling(_SIGNATURE)


@jit
def act_once(mem, st, actor, choice):
    """`actions.act`, by its address."""
    return _call(st[ACT], mem, st, actor, choice) != 0
