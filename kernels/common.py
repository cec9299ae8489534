"""Device subroutines that belong to no protocol; kernels call them with ``yield from``.

Those that move data do it through the data buffer.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.group import drain, hand_over

ROWS = 4
"""Rows that `move_row` has in the data buffer: enough to hide the latency of a read after the writes before it."""

DMA_TURNS = 4
"""Transfers that a core has under way at most by `ring`."""


def fetch(source, at, nbytes, step, sync):
    """Bring memory to a place in the data buffer, for the scalar unit."""
    yield xl.mtu_in(source, at, nbytes, step=step)
    yield from hand_over(xl.MTU_IN, xl.SCALAR, 0, sync)


def add_words(at, n, stride, step):
    """Return the sum of ``n`` 4-byte words of the data buffer."""
    total = 0
    for i in range(n):
        word = yield xl.ub_load(at + stride * i, step=step)
        total = total + word
    return total


def move_row(source, target, nbytes, work, turn, step):
    """Copy a row, the places at ``work`` in turn: some are on their way in while others wait to leave."""
    place = turn % ROWS
    if turn >= ROWS:
        yield xl.wait_flag(xl.MTU_OUT, xl.MTU_IN, place, step=step, sync="row left")
    yield xl.mtu_in(source, work + place * nbytes, nbytes, step=step)
    yield from hand_over(xl.MTU_IN, xl.MTU_OUT, place, "row in", step=step)
    yield xl.mtu_out(work + place * nbytes, target, nbytes, step=step)
    yield xl.set_flag(xl.MTU_OUT, xl.MTU_IN, place, step=step, sync="row left")


def ring(source, target, nbytes, turn):
    """Ring the DMA engine; at most `DMA_TURNS` transfers are under way."""
    if turn >= DMA_TURNS:
        yield xl.wait_flag(xl.DMA, xl.SCALAR, turn % DMA_TURNS, sync="copied by DMA")
    yield xl.dma(source, target, nbytes, turn % DMA_TURNS)


def drain_rings(turn):
    """Wait for the transfers that are under way."""
    yield from drain(xl.DMA, xl.SCALAR, turn, DMA_TURNS, "copied by DMA")


def copy_through_buffer(source, target, nbytes, half_bytes, step):
    """Copy memory to memory in ping-pong, so that mtu-in and mtu-out work at once.

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
            yield xl.wait_flag(xl.MTU_OUT, xl.MTU_IN, half, step=step, sync="half free")
        yield xl.mtu_in(source + start, half * half_bytes, size, step=step)
        yield from hand_over(xl.MTU_IN, xl.MTU_OUT, half, "half full", step=step)
        yield xl.mtu_out(half * half_bytes, target + start, size, step=step)
        if i + 2 < parts:
            yield xl.set_flag(xl.MTU_OUT, xl.MTU_IN, half, step=step, sync="half free")
