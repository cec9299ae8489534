"""Collectives on a ring: reduce-scatter, all-gather and both, which is all-reduce; and all-to-all.

A rank writes to its right neighbour alone: what it passes on in hop i goes into slot i % 2 of the neighbour's inbox,
then ``tail`` there counts it; ``ack`` on the die of the writer counts what has been read.

Order of summation: chunk c begins at rank c + 1 and goes right; each rank adds its own chunk to the sum that comes, in
FP32, and rounds to the type of the elements, because that is what is passed on; rank c adds its own last.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.collectives.slices import (
    SLOTS,
    Ring,
    Work,
    add_term,
    copy,
    leave_buffer,
    read,
    round_sum,
    slice_at,
    slice_size,
)


def slot_free(hop, r: Ring):
    """Wait until the slot of a hop has been read."""
    yield xl.poll_ge(r.ack, hop + 1 - SLOTS, sync="slot free")
    return r.right_inbox + hop % SLOTS * r.slot


def arrived(hop, r: Ring):
    """Signal this hop to the right neighbour, and wait for the left one's; returns the address of what came."""
    yield xl.quiet(sync="data before tail")
    yield xl.put(r.right_tail, hop + 1, sync="tail")
    yield xl.poll_ge(r.tail, hop + 1, sync="tail in")
    return r.inbox + hop % SLOTS * r.slot


def pass_on(hop, size, r: Ring):
    """Pass on what is at the beginning of the data buffer; returns the address of what came from the left."""
    slot = yield from slot_free(hop, r)
    yield xl.mtu_out(0, slot, size)
    came = yield from arrived(hop, r)
    return came


def reduce_chunks(hop, own, size, w: Work, r: Ring):
    """The sum of this rank's chunk, to the beginning of the data buffer."""
    yield from read(own + (r.me + r.ranks - 1) % r.ranks * w.share, size)
    for i in range(r.ranks - 1):
        came = yield from pass_on(hop + i, size, r)
        yield from add_term(0, 2, came, size, r.room, w.dtype)
        yield from add_term(1, 2, own + (r.me + 2 * r.ranks - 2 - i) % r.ranks * w.share, size, r.room, w.dtype)
        yield from round_sum(size, r.room, w.dtype)
        yield xl.put(r.left_ack, hop + i + 1, sync="ack")


def gather_chunks(hop, out, size, w: Work, r: Ring):
    """Gather the chunks of all others; each rank has its own chunk at the beginning of its data buffer."""
    for i in range(r.ranks - 1):
        came = yield from pass_on(hop + i, size, r)
        yield from read(came, size)
        yield xl.put(r.left_ack, hop + i + 1, sync="ack")
        yield xl.mtu_out(0, out + (r.me + r.ranks - 1 - i) % r.ranks * w.share, size)


@xl.kernel
def ring(w: Work, r: Ring):
    """Reduce-scatter, all-gather, or both."""
    hop = w.done
    for turn in range(w.calls * w.slices):
        size = slice_size(turn, w.slices, w.slice_bytes, w.nbytes)
        own = slice_at(turn, w.slices, w.slice_bytes, w.own, w.own_bytes)
        out = slice_at(turn, w.slices, w.slice_bytes, w.out, w.out_bytes)
        if r.reduce:
            yield from reduce_chunks(hop, own, size, w, r)
            hop += r.ranks - 1
        else:
            yield from read(own, size)
        yield xl.mtu_out(0, out + r.gather * r.me * w.share, size)
        if r.gather:
            yield from gather_chunks(hop, out, size, w, r)
            hop += r.ranks - 1
        yield from leave_buffer()


@xl.kernel
def ring_all_to_all(w: Work, r: Ring):
    """Hop by hop each rank keeps the first of the blocks that came, and passes on the others, which are farther on."""
    hop = w.done
    for turn in range(w.calls * w.slices):
        size = slice_size(turn, w.slices, w.slice_bytes, w.nbytes)
        own = slice_at(turn, w.slices, w.slice_bytes, w.own, w.own_bytes)
        out = slice_at(turn, w.slices, w.slice_bytes, w.out, w.out_bytes)
        yield from copy(0, 1, own + r.me * w.share, out + r.me * w.share, size, r.room)
        came = 0
        for i in range(1, r.ranks):
            slot = yield from slot_free(hop, r)
            yield from leave_buffer()
            blocks = r.ranks - i
            for j in range(blocks):
                block = came + (j + 1) * r.room
                if i == 1:
                    block = own + (r.me + 1 + j) % r.ranks * w.share
                yield from copy(j, blocks, block, slot + j * r.room, size, r.room)
            came = yield from arrived(hop, r)
            if i > 1:
                yield xl.put(r.left_ack, hop, sync="ack")
            yield from copy(0, 1, came, out + (r.me + r.ranks - i) % r.ranks * w.share, size, r.room)
            hop += 1
        yield xl.quiet(sync="last block read")
        yield xl.put(r.left_ack, hop, sync="ack")
