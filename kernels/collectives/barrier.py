"""Barriers, and kernels in which all ranks read what was written before a barrier.

By dissemination: in step i each rank signals the rank 2^i to its right, and waits for the one to its left.  With a
sense that turns: ranks count themselves at rank 0; the last one resets the count and turns the sense of all.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.collectives.slices import FIELD_BYTES, Barrier, Work, copy, leave_buffer, slice_at, slice_size


def barrier(count, b: Barrier):
    """Return when all ranks have come to their barrier number ``count``, from 1 on, and what they wrote is visible."""
    yield xl.quiet(sync="writes before barrier")
    step = 0
    distance = 1
    while distance < b.ranks:
        field = b.fields + step * FIELD_BYTES
        yield xl.put(field + (b.me + distance) % b.ranks * b.pitch, count, sync="barrier field")
        yield xl.poll_ge(field + b.me * b.pitch, count, sync="barrier field in")
        step += 1
        distance *= 2


def sense_barrier(count, b: Barrier):
    """Do the same by counting: a rank's first field is its sense, 1 or 0, and rank 0's second one counts."""
    yield xl.quiet(sync="writes before barrier")
    came = yield xl.atomic_add(b.fields + FIELD_BYTES, 1, sync="counted")
    if came == b.ranks - 1:
        yield xl.put(b.fields + FIELD_BYTES, 0, sync="count again")
        yield xl.quiet(sync="count before sense")
        for i in range(b.ranks):
            yield xl.put(b.fields + i * b.pitch, count % 2, sync="sense")
    yield xl.poll_eq(b.fields + b.me * b.pitch, count % 2, sync="sense in")


def write_to_all(turn, size, w: Work, b: Barrier):
    """Write a slice into the slot for it on every rank."""
    own = slice_at(turn, w.slices, w.slice_bytes, w.own, w.own_bytes)
    for i in range(b.ranks):
        slot = b.inbox + (b.me + i) % b.ranks * b.pitch + ((w.done + turn) % 2 * b.ranks + b.me) * b.room
        yield from copy(i, b.ranks, own, slot, size, b.room)


def read_from_all(turn, size, w: Work, b: Barrier):
    """Leave what all ranks wrote."""
    out = slice_at(turn, w.slices, w.slice_bytes, w.out, w.out_bytes)
    for i in range(b.ranks):
        slot = b.inbox + b.me * b.pitch + ((w.done + turn) % 2 * b.ranks + i) * b.room
        yield from copy(i, b.ranks, slot, out + i * w.share, size, b.room)
    yield from leave_buffer()


@xl.kernel
def meet(w: Work, b: Barrier):
    """Write to all ranks, meet, and read what all wrote: what came before one barrier is read before the next."""
    for turn in range(w.calls * w.slices):
        size = slice_size(turn, w.slices, w.slice_bytes, w.nbytes)
        yield from write_to_all(turn, size, w, b)
        yield from barrier(w.done + turn + 1, b)
        yield from read_from_all(turn, size, w, b)


class _Turns(Barrier):
    fields: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes] | xl.Updates


@xl.kernel
def meet_by_sense(w: Work, b: _Turns):
    """Meet as in `meet`, with the other barrier."""
    for turn in range(w.calls * w.slices):
        size = slice_size(turn, w.slices, w.slice_bytes, w.nbytes)
        yield from write_to_all(turn, size, w, b)
        yield from sense_barrier(w.done + turn + 1, b)
        yield from read_from_all(turn, size, w, b)
