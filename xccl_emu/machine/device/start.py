"""The compiled entry points that the host side calls besides the policies."""

from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.flight import block_of_core, go_on
from xccl_emu.machine.device.words import jit, put


@jit
def start(st):
    """Run every newly launched kernel up to its first request."""
    for i in range(st[ms.N_ACTIVE]):
        base = block_of_core(st, st[st[ms.ACTIVE_BASE] + i])
        if st[base + ms.STATUS] == ms.STATUS_IDLE:
            put(st, base + ms.STATUS, ms.STATUS_RUNNING)
            go_on(st, base)
