"""NCCL's low-latency protocol LL: data and flags go in one line, so nothing has to be ordered.

A line has 16 bytes, {data, flag, data, flag} of 4 each; the flag of a step is its number, from 1 on.  The sender writes
the lines of a step into the next slot and goes on; the receiver reads each line over and over until both flags are in.
That is enough where the 8 bytes of a half become visible at once, and are read at once.  A slot is written again when
the credit says that it was read; then it has the flag of an earlier step in it, which nobody waits for any more.

NCCL clears the lines before the flag wraps around.  Here a call has fewer steps than a flag has values.
"""

from typing import NamedTuple

from xccl_emu import lang as xl
from xccl_emu.kernels.common import fetch
from xccl_emu.kernels.group import hand_over

LINE_BYTES, DATA_BYTES = 16, 8
"""Bytes of a line, and of the data in it."""
FLAGS = 0b1010
"""Which of the words of a line are flags."""


class Slots(NamedTuple):
    """What a pair of ranks shares: the slots on the receiver's die, the credit on the sender's, and the sizes."""

    lines: int
    credit: int
    slots: int
    step: int
    """Bytes from one slot to the next."""
    n_lines: int
    """Lines of a slot."""
    n_steps: int
    done: int
    """Steps of the launches before, on the same slots."""


class Sends(Slots):
    """What the sender touches."""

    lines: xl.Writes
    credit: xl.Reads


class Receives(Slots):
    """What the receiver touches."""

    lines: xl.Reads
    credit: xl.Writes


@xl.kernel
def send_ll(own: xl.Reads, s: Sends):
    """Send ``own`` [n_steps, n_lines, 8 bytes]."""
    data = s.n_lines * LINE_BYTES
    for step in range(s.done, s.done + s.n_steps):
        yield from fetch(own, data, s.n_lines * DATA_BYTES, 0, "data in buffer")
        for half in range(2 * s.n_lines):
            word = yield xl.ub_load(data + 4 * half)
            yield xl.ub_store(8 * half, word)
            yield xl.ub_store(8 * half + 4, step + 1)
        yield xl.poll_ge(s.credit, step + 1 - s.slots, sync="slot free")
        yield xl.mtu_out(0, s.lines + step % s.slots * s.step, s.n_lines * LINE_BYTES)
        yield from hand_over(xl.MTU_OUT, xl.SCALAR, 1, "buffer written")
        own += s.n_lines * DATA_BYTES


@xl.kernel
def receive_ll(out: xl.Writes, s: Receives):
    """Leave at ``out`` what the other rank sends."""
    data = s.n_lines * LINE_BYTES
    for step in range(s.done, s.done + s.n_steps):
        slot = s.lines + step % s.slots * s.step
        for line in range(s.n_lines):
            yield xl.poll_line_eq(slot + LINE_BYTES * line, 0, LINE_BYTES, FLAGS, step + 1 << 32, sync="line in")
            low = yield xl.ub_load(0)
            high = yield xl.ub_load(8)
            yield xl.ub_store(data + DATA_BYTES * line, low)
            yield xl.ub_store(data + DATA_BYTES * line + 4, high)
        yield xl.store(s.credit, step + 1)
        yield xl.dcci(s.credit, sync="credit line")
        yield xl.mtu_out(data, out, s.n_lines * DATA_BYTES)
        yield from hand_over(xl.MTU_OUT, xl.SCALAR, 1, "buffer written")
        out += s.n_lines * DATA_BYTES
