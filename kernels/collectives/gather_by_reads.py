"""An all-gather in two levels in which ranks read: DMA copies what others have to where it belongs, without an inbox.

A rank reads what ranks of its place in other groups have, then what the others of its group have read; with one group
it is one level.  It gets a signal when that is there, and sends one when it has read, so the buffers of a call may be
overwritten when the call is over.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.collectives.slices import FIELD_BYTES, Readers, Work, WorkOfReader
from xccl_emu.kernels.common import drain_rings, ring


def tell_there(call, r: Readers):
    """Signal to the others that they may read."""
    for i in range(1, r.ranks):
        yield xl.put(r.there + (r.me + i) % r.ranks * r.pitch + r.me * FIELD_BYTES, call + 1, sync="there")


def tell_read(call, r: Readers):
    """Signal to the others that what they have has been read."""
    for i in range(1, r.ranks):
        yield from tell_one((r.me + i) % r.ranks, call, r)


def tell_one(rank, call, r: Readers):
    """Signal it to one of them."""
    yield xl.put(r.read + rank * r.pitch + r.me * FIELD_BYTES, call + 1, sync="read")


def await_there(rank, call, r: Readers):
    """Wait until a rank may be read."""
    yield xl.poll_ge(r.there + r.me * r.pitch + rank * FIELD_BYTES, call + 1, sync="there in")


def await_read(call, r: Readers):
    """Wait until all others have read."""
    for i in range(1, r.ranks):
        yield xl.poll_ge(r.read + r.me * r.pitch + (r.me + i) % r.ranks * FIELD_BYTES, call + 1, sync="read in")


def read_groups(call, own, out, w: Work, inner: Readers, outer: Readers):
    """Copy the own share to its place, then the shares of this rank's place in the other groups to theirs."""
    mine = out + (outer.me * inner.ranks + inner.me) * w.share
    if own != mine:  # not in place
        yield from ring(own, mine, w.nbytes, 0)
        yield from drain_rings(1)
    yield from tell_there(call, outer)
    for i in range(1, outer.ranks):
        group = (outer.me + i) % outer.ranks
        yield from await_there(group, call, outer)
        target = out + (group * inner.ranks + inner.me) * w.share
        yield from ring(target + (group - outer.me) * outer.pitch, target, w.nbytes, i - 1)
    yield from drain_rings(outer.ranks - 1)


def read_group(call, out, w: Work, inner: Readers, outer: Readers):
    """Copy what the others of the group have read, a share of each group from each of them."""
    yield from tell_there(call, inner)
    turn = 0
    for i in range(1, inner.ranks):
        rank = (inner.me + i) % inner.ranks
        yield from await_there(rank, call, inner)
        for group in range(outer.ranks):
            target = out + (group * inner.ranks + rank) * w.share
            yield from ring(target + (rank - inner.me) * inner.pitch, target, w.nbytes, turn)
            turn += 1
    yield from drain_rings(turn)


@xl.kernel
def gather_by_reads(w: WorkOfReader, inner: Readers, outer: Readers):
    """All-gather of what this core moves of each share."""
    for turn in range(w.calls * w.slices):
        call = w.done + turn
        own, out = w.own + turn * w.own_bytes, w.out + turn * w.out_bytes
        yield from read_groups(call, own, out, w, inner, outer)
        yield from tell_read(call, outer)
        yield from read_group(call, out, w, inner, outer)
        yield from tell_read(call, inner)
        yield from await_read(call, outer)
        yield from await_read(call, inner)
