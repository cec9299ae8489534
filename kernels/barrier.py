"""A dissemination barrier: in step i each rank tells the rank 2^i to its right, and waits for the one to its left."""

from xccl_emu.kernels.collectives import FIELD_BYTES, Barrier, Work, copy, leave_buffer, slice_at, slice_size
from xccl_emu.lang import kernel, poll_ge, put, quiet


def barrier(count, b: Barrier):
    """Return when all ranks have come to their barrier number ``count``, from 1 on, and what they wrote is visible."""
    yield quiet(sync="writes before barrier")
    step = 0
    distance = 1
    while distance < b.ranks:
        field = b.fields + step * FIELD_BYTES
        yield put(field + (b.me + distance) % b.ranks * b.pitch, count, sync="barrier field")
        yield poll_ge(field + b.me * b.pitch, count, sync="barrier field in")
        step += 1
        distance *= 2


@kernel
def meet(w: Work, b: Barrier):
    """Write to all ranks, meet, and read what all wrote: what came before one barrier is read before the next."""
    for turn in range(w.calls * w.slices):
        size = slice_size(turn, w.slices, w.slice_bytes, w.nbytes)
        own = slice_at(turn, w.slices, w.slice_bytes, w.own, w.own_bytes)
        out = slice_at(turn, w.slices, w.slice_bytes, w.out, w.out_bytes)
        half = turn % 2 * b.ranks
        for i in range(b.ranks):
            slot = b.inbox + (b.me + i) % b.ranks * b.pitch + (half + b.me) * b.room
            yield from copy(i, b.ranks, own, slot, size, b.room)
        yield from barrier(turn + 1, b)
        for i in range(b.ranks):
            slot = b.inbox + b.me * b.pitch + (half + i) * b.room
            yield from copy(i, b.ranks, slot, out + i * w.share, size, b.room)
        yield from leave_buffer()
