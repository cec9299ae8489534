"""NCCL's protocol LL128: lines of 128 bytes, 120 of data and 8 of a flag, which have to become visible whole.

As in LL nothing is ordered, and a line is read until its flag, the number of the step, is in.  One flag in 16 words in
place of one in two leaves more room for data, but it says of all the others that they are in: so a line must not become
visible in parts.  NCCL #740 is what happened on an interconnect where it did.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.group import hand_over
from xccl_emu.kernels.packets.ll import Receives, Sends

LINE_BYTES, DATA_BYTES = 128, 120
"""Bytes of a line, and of the data in it."""
FLAG = 0b11 << 30
"""Which of the words of a line are its flag: the last 8 bytes."""


@xl.kernel
def send_ll128(own: xl.Reads, s: Sends):
    """Send ``own`` [n_steps, n_lines, 120 bytes]."""
    data = s.n_lines * LINE_BYTES
    for step in range(s.done, s.done + s.n_steps):
        yield xl.mtu_in(own, data, s.n_lines * DATA_BYTES)
        yield from hand_over(xl.MTU_IN, xl.VECTOR, 0, "data in buffer")
        for line in range(s.n_lines):
            yield xl.v_copy(data + DATA_BYTES * line, LINE_BYTES * line, DATA_BYTES)
            yield xl.ub_store(LINE_BYTES * line + DATA_BYTES, step + 1, 8)
        yield from hand_over(xl.VECTOR, xl.MTU_OUT, 1, "lines in buffer")
        yield xl.poll_ge(s.credit, step + 1 - s.slots, sync="slot free")
        yield xl.mtu_out(0, s.lines + step % s.slots * s.step, s.n_lines * LINE_BYTES)
        yield from hand_over(xl.MTU_OUT, xl.SCALAR, 2, "buffer written")
        own += s.n_lines * DATA_BYTES


@xl.kernel
def receive_ll128(out: xl.Writes, s: Receives):
    """Leave at ``out`` what the other rank sends."""
    data = s.n_lines * LINE_BYTES
    for step in range(s.done, s.done + s.n_steps):
        slot = s.lines + step % s.slots * s.step
        for line in range(s.n_lines):
            at = LINE_BYTES * line
            yield xl.poll_line_eq(slot + at, at, LINE_BYTES, FLAG, step + 1, sync="line in")
            yield xl.v_copy(at, data + DATA_BYTES * line, DATA_BYTES)
        yield xl.store(s.credit, step + 1)
        yield xl.dcci(s.credit, sync="credit line")
        yield from hand_over(xl.VECTOR, xl.MTU_OUT, 1, "data in buffer")
        yield xl.mtu_out(data, out, s.n_lines * DATA_BYTES)
        yield from hand_over(xl.MTU_OUT, xl.SCALAR, 2, "buffer written")
        out += s.n_lines * DATA_BYTES
