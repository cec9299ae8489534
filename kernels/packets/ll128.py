"""NCCL's protocol LL128: lines of 128 bytes, 120 of data and 8 of a flag, which have to become visible whole.

As in LL nothing is ordered, and a line is read until its flag, the number of the step, is in.  One flag in 16 words in
place of one in two leaves more room for data, but it says of all the others that they are in: so a line must not become
visible in parts.  NCCL #740 is what happened on an interconnect where it did.
"""

from xccl_emu.kernels.group import hand_over
from xccl_emu.kernels.packets.ll import Slots
from xccl_emu.lang import (
    MTU_IN,
    MTU_OUT,
    SCALAR,
    VECTOR,
    dcci,
    kernel,
    mtu_in,
    mtu_out,
    poll_ge,
    poll_line_eq,
    store,
    ub_store,
    v_copy,
)

LINE_BYTES, DATA_BYTES = 128, 120
"""Bytes of a line, and of the data in it."""
FLAG = 0b11 << 30
"""Which of the words of a line are its flag: the last 8 bytes."""


@kernel
def send_ll128(own, s: Slots):
    """Send ``own`` [n_steps, n_lines, 120 bytes]."""
    data = s.n_lines * LINE_BYTES
    for step in range(s.done, s.done + s.n_steps):
        yield mtu_in(own, data, s.n_lines * DATA_BYTES)
        yield from hand_over(MTU_IN, VECTOR, 0, "data in buffer")
        for line in range(s.n_lines):
            yield v_copy(data + DATA_BYTES * line, LINE_BYTES * line, DATA_BYTES)
            yield ub_store(LINE_BYTES * line + DATA_BYTES, step + 1, 8)
        yield from hand_over(VECTOR, MTU_OUT, 1, "lines in buffer")
        yield poll_ge(s.credit, step + 1 - s.slots, sync="slot free")
        yield mtu_out(0, s.lines + step % s.slots * s.step, s.n_lines * LINE_BYTES)
        yield from hand_over(MTU_OUT, SCALAR, 2, "buffer written")
        own += s.n_lines * DATA_BYTES


@kernel
def receive_ll128(out, s: Slots):
    """Leave at ``out`` what the other rank sends."""
    data = s.n_lines * LINE_BYTES
    for step in range(s.done, s.done + s.n_steps):
        slot = s.lines + step % s.slots * s.step
        for line in range(s.n_lines):
            at = LINE_BYTES * line
            yield poll_line_eq(slot + at, at, LINE_BYTES, FLAG, step + 1, sync="line in")
            yield v_copy(at, data + DATA_BYTES * line, DATA_BYTES)
        yield store(s.credit, step + 1)
        yield dcci(s.credit, sync="credit line")
        yield from hand_over(VECTOR, MTU_OUT, 1, "data in buffer")
        yield mtu_out(data, out, s.n_lines * DATA_BYTES)
        yield from hand_over(MTU_OUT, SCALAR, 2, "buffer written")
        out += s.n_lines * DATA_BYTES
