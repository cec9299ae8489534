"""One-shot all-reduce as TensorRT-LLM and vLLM have it, after Lamport: the data are their own flags.

Each rank writes its operand to all others, and reads theirs over and over until no word of it is empty; -0.0 means
empty, and a sender turns it into +0.0.  Three buffers take turns, by the number of the call.  While a call fills buffer
``call % 3`` a rank empties the one of the call before, ``(call + 2) % 3``, by the size that this one had: it has read
that, and nobody writes there before call + 2, for which all need its operand of call + 1.  The next one,
``(call + 1) % 3``, may be in use already.

Emptying has to be visible before the operand of the next call is: the end of a kernel sees to that, here a quiet.

Order of summation: by rank, from 0 on, in FP32.
"""

from typing import NamedTuple

from xccl_emu import lang as xl
from xccl_emu.kernels.common import fetch
from xccl_emu.kernels.group import hand_over

LINE_BYTES, WORDS = 16, 0b1111
"""Bytes that are read at once, and that all words of them are flags."""
EMPTY = -0x80000000
"""-0.0, as a signed integer of 4 bytes."""
EMPTY_TWICE = -0x7FFFFFFF80000000
"""In both halves of a word of 8."""
BUFFERS = 3


class LamportRank(NamedTuple):
    """What one rank knows: where buffers are on die 0, the same on each die, and the sizes."""

    me: int
    ranks: int
    buffers: xl.Own[xl.Updates] | xl.Writes
    pitch: int
    """From a die to the next."""
    room: int
    """Bytes of an operand, in a buffer and in the data buffer; in whole granules."""
    nbytes: int
    """Bytes of an operand in the calls 0, 2, ..."""
    odd_nbytes: int
    """And of the others."""
    calls: int
    emptied: int
    """Number of the buffer to empty, counted from the buffer of the call on."""
    done: int
    """Calls of the launches before."""
    before: int
    """Bytes of an operand of the last of these; 0 if there is none."""


def size_of(i, nbytes, odd_nbytes):
    """Bytes of an operand of call ``i`` of a launch."""
    return odd_nbytes if i % 2 else nbytes


def place(buffers, call, ranks, rank, room):
    """Return where among a die's buffers a rank's operand of a call goes."""
    return buffers + (call % BUFFERS * ranks + rank) * room


def load_operand(own, size):
    """Bring in the own operand, to the beginning of the data buffer; what would mean empty becomes +0.0."""
    yield from fetch(own, 0, size, 0, "operand in buffer")
    for word in range(size // 4):
        bits = yield xl.ub_load(4 * word)
        if bits == EMPTY:
            yield xl.ub_store(4 * word, 0)


def add_up(call, size, p: LamportRank):
    """Sum the operands of all, into the second place of the data buffer; the terms of others go after it."""
    for rank in range(p.ranks):
        term = 0
        if rank != p.me:
            term = (2 + rank) * p.room
            for line in range(size // LINE_BYTES):
                at = LINE_BYTES * line
                came = place(p.buffers + p.me * p.pitch, call, p.ranks, rank, p.room) + at
                yield xl.poll_line_ne(came, term + at, LINE_BYTES, WORDS, EMPTY_TWICE, sync="operand in")
        if rank == 0:
            yield xl.v_copy(term, p.room, size)
        else:
            yield xl.v_add(term, p.room, size // 4, xl.FP32)


@xl.kernel
def lamport(own: xl.Reads, out: xl.Writes, p: LamportRank):
    """Leave at ``out`` the sums of what the ranks have at ``own``, call by call."""
    empty = (2 + p.ranks) * p.room
    for word in range(p.room // 4):
        yield xl.ub_store(empty + 4 * word, EMPTY)
    before = p.before
    for i in range(p.calls):
        call = p.done + i
        size = size_of(i, p.nbytes, p.odd_nbytes)
        yield from load_operand(own, size)
        for j in range(1, p.ranks):
            there = p.buffers + (p.me + j) % p.ranks * p.pitch
            yield xl.mtu_out(0, place(there, call, p.ranks, p.me, p.room), size)
        if before > 0:
            for j in range(1, p.ranks):
                rank = (p.me + j) % p.ranks
                at = place(p.buffers + p.me * p.pitch, call + p.emptied, p.ranks, rank, p.room)
                yield xl.mtu_out(empty, at, before)
        yield from add_up(call, size, p)
        yield from hand_over(xl.VECTOR, xl.MTU_OUT, 1, "sum in buffer")
        yield xl.mtu_out(p.room, out, size)
        yield xl.quiet(sync="call over")
        own += size
        out += size
        before = size
