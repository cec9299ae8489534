"""Small protocols of forms that the shipped ones lack, right as they stand here, to plant bugs in.

Push dispatch with a double buffer, with counted flags and with flags that reset; a combine that counts arrivals; a
counter barrier; a payload that two cores write and one announces; a ring whose fields are cleared between calls.
"""

from xccl_emu.kernels.group import barrier
from xccl_emu.lang import (
    MTU_IN,
    MTU_OUT,
    SCALAR,
    atomic_add,
    kernel,
    load,
    mtu_in,
    mtu_out,
    poll_eq,
    poll_ge,
    put,
    quiet,
    set_flag,
    store,
    wait_flag,
)


def through_buffer(source, target, ub, nbytes, event):
    """Copy by way of the data buffer; the writes are issued, not visible, when it returns."""
    yield mtu_in(source, ub, nbytes)
    yield set_flag(MTU_IN, MTU_OUT, event)
    yield wait_flag(MTU_IN, MTU_OUT, event)
    yield mtu_out(ub, target, nbytes)


@kernel
def push_counted(x, nbytes, inbox, outbox, flag, peer_flag, out, rounds):
    """Push a token a round into the peer's double buffer; a flag a half, which holds the number of the round.

    That a rank has the peer's flag of a round says that the peer has read what came two rounds before.
    """
    for r in range(rounds):
        half = r % 2
        yield from through_buffer(x + r * nbytes, outbox + half * nbytes, 0, nbytes, 0)
        yield quiet(sync="token visible")
        yield put(peer_flag + half * 32, r + 1, sync="flag")
        yield poll_eq(flag + half * 32, r + 1, sync="flag in")
        yield from through_buffer(inbox + half * nbytes, out + r * nbytes, nbytes, nbytes, 1)
    return rounds


@kernel
def push_boolean(x, nbytes, inbox, outbox, flag, peer_flag, out, rounds):
    """The same with flags that are 0 or 1, which the receiver clears before it sends its next token."""
    for r in range(rounds):
        half = r % 2
        yield from through_buffer(x + r * nbytes, outbox + half * nbytes, 0, nbytes, 0)
        yield quiet(sync="token visible, flag cleared")
        yield put(peer_flag + half * 32, 1, sync="flag")
        yield poll_eq(flag + half * 32, 1, sync="flag in")
        yield put(flag + half * 32, 0, sync="clear flag")
        yield from through_buffer(inbox + half * nbytes, out + r * nbytes, nbytes, nbytes, 1)
    return rounds


@kernel
def contribute(x, nbytes, slot, counter):
    """An expert's side: its row into its slot, then one more arrival."""
    yield from through_buffer(x, slot, 0, nbytes, 0)
    yield quiet(sync="row visible")
    yield atomic_add(counter, 1, sync="arrival")


@kernel
def collect(slots, nbytes, n, counter, out):
    """The token's side: wait for all rows, and copy them out."""
    yield poll_ge(counter, n, sync="all arrived")
    yield from through_buffer(slots, out, 0, n * nbytes, 0)


@kernel
def meet(mine, theirs, counter, n, value, out):
    """Write a word, pass a barrier made of a counter, read what the neighbour wrote."""
    yield store(mine, value)
    yield quiet(sync="word visible")
    yield atomic_add(counter, 1, sync="arrive")
    yield poll_ge(counter, n, sync="all are here")
    seen = yield load(theirs)
    yield store(out, seen)


@kernel
def send_together(core, x, nbytes, slot, tail):
    """Every core writes its part of the payload, core 0 tells that all is there."""
    yield from through_buffer(x + core * nbytes, slot + core * nbytes, 0, nbytes, 0)
    yield quiet(sync="part visible")
    yield from barrier(0, "all parts written")
    if core == 0:
        yield put(tail, 1, sync="tail")


@kernel
def receive_together(slot, nbytes, tail, out):
    """Wait for the payload and copy it out."""
    yield poll_eq(tail, 1, sync="tail in")
    yield from through_buffer(slot, out, 0, nbytes, 0)


@kernel
def send_cleared(x, nbytes, slot, tail, ack, rounds):
    """Two slots, one a call in turn; the sender clears its ack field between calls, so that it begins at 0 again."""
    for r in range(rounds):
        yield from through_buffer(x + r * nbytes, slot + r % 2 * nbytes, 0, nbytes, 0)
        yield quiet(sync="data before tail")
        yield put(tail, r + 1, sync="tail")
        yield poll_eq(ack, 1, sync="acknowledged")
        yield put(ack, 0, sync="clear ack")
        yield quiet(sync="ack cleared")


@kernel
def receive_cleared(slot, nbytes, tail, ack, out, rounds):
    """The other side: read the slot, then acknowledge it."""
    for r in range(rounds):
        yield poll_eq(tail, r + 1, sync="tail in")
        yield mtu_in(slot + r % 2 * nbytes, r % 2 * nbytes, nbytes)
        yield set_flag(MTU_IN, SCALAR, 0, sync="slot read")
        yield wait_flag(MTU_IN, SCALAR, 0, sync="slot read")
        yield put(ack, 1, sync="ack")
        yield mtu_out(r % 2 * nbytes, out + r * nbytes, nbytes)
        yield quiet(sync="payload out")
