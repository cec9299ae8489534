"""Collectives in which every rank writes to every other one: one-shot, two-shot, pairwise.

Each rank has an inbox with a slot for each other rank, twice, by turns; a field for each other rank counts the turns
whose slice is there.  Nothing is acknowledged: who has the slices of turn t of all others knows that they have
read the slices of turn t - 1, so the slots of turn t + 1, the same ones, are free as soon as turn t is over.

Order of summation: by rank, from 0 on, in FP32, rounded once.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.collectives.slices import (
    FIELD_BYTES,
    Peers,
    Work,
    add_term,
    copy,
    leave_buffer,
    read,
    round_sum,
    slice_at,
    slice_size,
)


def announce(turn, p: Peers):
    """Signal to all others that their slices of a turn are there."""
    yield xl.quiet(sync="data before field")
    for i in range(1, p.ranks):
        yield xl.put(p.fields + (p.me + i) % p.ranks * p.pitch + p.me * FIELD_BYTES, turn + 1, sync="field")


def await_slice(rank, turn, p: Peers):
    """Wait for the slice of a rank; returns its address."""
    yield xl.poll_ge(p.fields + p.me * p.pitch + rank * FIELD_BYTES, turn + 1, sync="field in")
    return p.inbox + p.me * p.pitch + (turn % 2 * p.ranks + rank) * p.room


def scatter(turn, own, size, w: Work, p: Peers):
    """Write to each other rank the slice of its share, to the next one first."""
    slot = p.inbox + (turn % 2 * p.ranks + p.me) * p.room
    for i in range(1, p.ranks):
        rank = (p.me + i) % p.ranks
        yield from copy(i - 1, p.ranks - 1, own + rank * w.share, slot + rank * p.pitch, size, p.room)
    yield from announce(turn, p)


def broadcast(turn, size, p: Peers):
    """Write to all others what is at the beginning of the data buffer."""
    slot = p.inbox + (turn % 2 * p.ranks + p.me) * p.room
    for i in range(1, p.ranks):
        yield xl.mtu_out(0, slot + (p.me + i) % p.ranks * p.pitch, size)
    yield from announce(turn, p)


def collect(turn, out, size, w: Work, p: Peers):
    """Put the slices of all other ranks where they belong; the rank that writes here first is served first."""
    for i in range(1, p.ranks):
        rank = (p.me + p.ranks - i) % p.ranks
        came = yield from await_slice(rank, turn, p)
        yield from copy(i - 1, p.ranks - 1, came, out + rank * w.share, size, p.room)


def add_up(turn, own, size, w: Work, p: Peers):
    """The sum of the slices of all ranks, to the beginning of the data buffer."""
    for rank in range(p.ranks):
        came = own
        if rank != p.me:
            came = yield from await_slice(rank, turn, p)
        yield from add_term(rank, p.ranks, came, size, p.room, w.dtype)
    yield from round_sum(size, p.room, w.dtype)


@xl.kernel
def exchange(w: Work, p: Peers):
    """All-to-all, all-gather, reduce-scatter; all-reduce in one turn a slice, or two."""
    exchanges = w.done
    for turn in range(w.calls * w.slices):
        size = slice_size(turn, w.slices, w.slice_bytes, w.nbytes)
        own = slice_at(turn, w.slices, w.slice_bytes, w.own, w.own_bytes)
        out = slice_at(turn, w.slices, w.slice_bytes, w.out, w.out_bytes)
        if p.scatter:
            yield from scatter(exchanges, own, size, w, p)
            own = own + p.me * w.share
        else:
            yield from read(own, size)
            yield from broadcast(exchanges, size, p)
        if p.reduce:
            yield from add_up(exchanges, own, size, w, p)
        elif p.scatter:
            yield from read(own, size)
        yield xl.mtu_out(0, out + p.gather * p.me * w.share, size)
        if p.reduce and p.gather:
            exchanges += 1
            yield from broadcast(exchanges, size, p)
        elif p.gather:
            yield from leave_buffer()
        if p.gather:
            yield from collect(exchanges, out, size, w, p)
        exchanges += 1
        yield from leave_buffer()
