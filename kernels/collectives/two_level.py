"""Collectives in two levels: ranks of a group, such as the dies of a chip, and ranks of one place in their groups.

Sums are made in the group first, and gathering ends in it, so a share goes from group to group once.  Both levels are
exchanges of all with all (`exchange`), each with its own inboxes and fields, so the same argument frees their slots.  A
slot of the inner level has a block for each group.

Order of summation: in a group by rank, in FP32, rounded; then the sums of groups by group, in FP32, rounded.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.collectives.exchange import add_up, announce, await_slice, broadcast
from xccl_emu.kernels.collectives.slices import (
    Peers,
    Work,
    add_term,
    copy,
    fill_half,
    free_half,
    leave_buffer,
    read,
    round_sum,
    slice_at,
    slice_size,
)


def scatter_in_group(turn, own, size, w: Work, inner: Peers, outer: Peers):
    """Write to each other rank of the group the shares that it adds up, one for each group."""
    slot = inner.inbox + (turn % 2 * inner.ranks + inner.me) * inner.room
    copies = (inner.ranks - 1) * outer.ranks
    for i in range(copies):
        rank = (inner.me + 1 + i // outer.ranks) % inner.ranks
        group = i % outer.ranks
        block = slot + rank * inner.pitch + group * outer.room
        yield from copy(i, copies, own + (group * inner.ranks + rank) * w.share, block, size, outer.room)
    yield from announce(turn, inner)


def add_up_in_group(turn, group, own, size, w: Work, inner: Peers, outer: Peers):
    """The sum of this group's shares for one rank of another, to the beginning of the data buffer."""
    for rank in range(inner.ranks):
        came = own + (group * inner.ranks + inner.me) * w.share
        if rank != inner.me:
            slot = yield from await_slice(rank, turn, inner)
            came = slot + group * outer.room
        yield from add_term(rank, inner.ranks, came, size, outer.room, w.dtype)
    yield from round_sum(size, outer.room, w.dtype)


def reduce(turn, own, size, w: Work, inner: Peers, outer: Peers):
    """The sum of this rank's share, to the beginning of the data buffer; its group's goes through its own slot."""
    yield from scatter_in_group(turn, own, size, w, inner, outer)
    slot = outer.inbox + (turn % 2 * outer.ranks + outer.me) * outer.room
    for i in range(outer.ranks):
        group = (outer.me + 1 + i) % outer.ranks
        yield from add_up_in_group(turn, group, own, size, w, inner, outer)
        yield xl.mtu_out(0, slot + group * outer.pitch, size)
        yield from leave_buffer()
    yield from announce(turn, outer)
    yield from add_up(turn, slot + outer.me * outer.pitch, size, w, outer)


def pass_on(turn, source, group, size, inner: Peers, outer: Peers):
    """Write to all others of the group, from the data buffer, what a group has for all."""
    block = inner.inbox + (turn % 2 * inner.ranks + inner.me) * inner.room + group * outer.room
    for i in range(1, inner.ranks):
        yield xl.mtu_out(source, block + (inner.me + i) % inner.ranks * inner.pitch, size)


def gather(turn, out, size, w: Work, inner: Peers, outer: Peers):
    """Send what is at the beginning of the data buffer to the other groups, and pass on in the own what they send."""
    yield from pass_on(turn, 0, outer.me, size, inner, outer)
    yield from broadcast(turn, size, outer)
    for i in range(outer.ranks - 1):
        group = (outer.me + outer.ranks - 1 - i) % outer.ranks
        came = yield from await_slice(group, turn, outer)
        yield from fill_half(i, came, size, outer.room)
        yield xl.mtu_out(i % 2 * outer.room, out + (group * inner.ranks + inner.me) * w.share, size)
        yield from pass_on(turn, i % 2 * outer.room, group, size, inner, outer)
        yield from free_half(i, outer.ranks - 1)
    yield from announce(turn, inner)
    copies = (inner.ranks - 1) * outer.ranks
    for i in range(copies):
        rank = (inner.me + inner.ranks - 1 - i // outer.ranks) % inner.ranks
        group = i % outer.ranks
        came = yield from await_slice(rank, turn, inner)
        target = out + (group * inner.ranks + rank) * w.share
        yield from copy(i, copies, came + group * outer.room, target, size, outer.room)


@xl.kernel
def two_level(w: Work, inner: Peers, outer: Peers):
    """All-gather, reduce-scatter, or both, which is all-reduce."""
    exchanges = w.done
    for turn in range(w.calls * w.slices):
        size = slice_size(turn, w.slices, w.slice_bytes, w.nbytes)
        own = slice_at(turn, w.slices, w.slice_bytes, w.own, w.own_bytes)
        out = slice_at(turn, w.slices, w.slice_bytes, w.out, w.out_bytes)
        if outer.reduce:
            yield from reduce(exchanges, own, size, w, inner, outer)
        else:
            yield from read(own, size)
        yield xl.mtu_out(0, out + outer.gather * (outer.me * inner.ranks + inner.me) * w.share, size)
        if outer.gather:
            exchanges += outer.reduce
            yield from gather(exchanges, out, size, w, inner, outer)
        exchanges += 1
        yield from leave_buffer()
