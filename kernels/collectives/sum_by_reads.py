"""A reduce-scatter in which ranks read: each adds up its share of what all have, where they have it, without an inbox.

Ranks signal each other when a rank may be read, and when it has been, as in `gather_by_reads`.  Order of summation: by
rank, from 0 on, in FP32, rounded once.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.collectives.gather_by_reads import await_read, await_there, tell_read, tell_there
from xccl_emu.kernels.collectives.slices import (
    Readers,
    WorkOfReader,
    add_term,
    leave_buffer,
    round_sum,
    slice_at,
    slice_size,
)
from xccl_emu.kernels.group import align


def add_up(call, turn, w: WorkOfReader, r: Readers):
    """The sum of a slice of this rank's share, to its place."""
    size, room = slice_size(turn, w.slices, w.slice_bytes, w.nbytes), align(w.slice_bytes)
    own = slice_at(turn, w.slices, w.slice_bytes, w.own, w.own_bytes) + r.me * w.share
    for rank in range(r.ranks):
        if rank != r.me:
            yield from await_there(rank, call, r)
        yield from add_term(rank, r.ranks, own + (rank - r.me) * r.pitch, size, room, w.dtype)
    yield from round_sum(size, room, w.dtype)
    yield xl.mtu_out(0, slice_at(turn, w.slices, w.slice_bytes, w.out, w.out_bytes), size)
    yield from leave_buffer()


@xl.kernel
def sum_by_reads(w: WorkOfReader, r: Readers):
    """Reduce-scatter of what this core moves of each share; mtu-out, which signals, has waited for all reads."""
    for turn in range(w.calls * w.slices):
        call = w.done + turn // w.slices
        if turn % w.slices == 0:
            yield from tell_there(call, r)
        yield from add_up(call, turn, w, r)
        if (turn + 1) % w.slices == 0:
            yield from tell_read(call, r)
            yield from await_read(call, r)
