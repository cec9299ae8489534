"""Device subroutines that belong to no protocol; kernels call them with ``yield from``.

The zero-copy path of send/recv and the benchmarks copy by them.
"""

from xccl_emu.kernels.group import hand_over
from xccl_emu.lang import MTU_IN, MTU_OUT, mtu_in, mtu_out, set_flag, wait_flag


def copy_through_buffer(source, target, nbytes, half_bytes, step):
    """Copy memory to memory through the data buffer in ping-pong, so that mtu-in and mtu-out work at once.

    ``source`` and ``target`` are global addresses, ``half_bytes`` is the size of each of the two halves at the start of
    the data buffer, ``step`` is a literal.  Uses events 0 and 1 of (MTU_IN, MTU_OUT) and (MTU_OUT, MTU_IN), and leaves
    none set.  On return the last instructions are issued, not done: put a quiet before whatever announces the copy,
    and before whatever uses the halves again, because mtu-out may still be reading them.  A second call is such a use:
    it loads its first two parts without waiting.
    """
    parts = (nbytes + half_bytes - 1) // half_bytes
    for i in range(parts):
        half = i % 2
        start = i * half_bytes
        size = min(half_bytes, nbytes - start)
        if i >= 2:
            yield wait_flag(MTU_OUT, MTU_IN, half, step=step, sync="half free")
        yield mtu_in(source + start, half * half_bytes, size, step=step)
        yield from hand_over(MTU_IN, MTU_OUT, half, "half full", step=step)
        yield mtu_out(half * half_bytes, target + start, size, step=step)
        if i + 2 < parts:
            yield set_flag(MTU_OUT, MTU_IN, half, step=step, sync="half free")
