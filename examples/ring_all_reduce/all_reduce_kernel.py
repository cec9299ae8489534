"""The kernel of a ring all-reduce: reduce-scatter, then all-gather, over an inbox of a few slots on each die."""

from typing import NamedTuple

from xccl_emu.lang import (
    MTU_IN,
    SCALAR,
    VECTOR,
    kernel,
    mtu_in,
    mtu_out,
    poll_ge,
    put,
    quiet,
    set_flag,
    v_add,
    v_narrow,
    v_widen,
    wait_flag,
)


def read(source, ub, nbytes):
    """Copy a chunk from memory into the data buffer, and wait until it is there."""
    yield mtu_in(source, ub, nbytes)
    yield set_flag(MTU_IN, SCALAR, 0, sync="chunk in buffer")
    yield wait_flag(MTU_IN, SCALAR, 0, sync="chunk in buffer")


def add_own(partial, own, step, nbytes, dtype):
    """Load a partial sum and this die's own chunk, and leave their rounded sum at 0 of the data buffer."""
    yield mtu_in(partial, step, nbytes)
    yield mtu_in(own, 2 * step, nbytes)
    yield set_flag(MTU_IN, VECTOR, 1, sync="both in buffer")
    yield wait_flag(MTU_IN, VECTOR, 1, sync="both in buffer")
    yield v_widen(2 * step, 3 * step, nbytes // 2, dtype)
    yield v_add(step, 3 * step, nbytes // 2, dtype)
    yield v_narrow(3 * step, 0, nbytes // 2, dtype)
    yield set_flag(VECTOR, SCALAR, 2, sync="sum in buffer")
    yield wait_flag(VECTOR, SCALAR, 2, sync="sum in buffer")


class Ring(NamedTuple):
    """Of one die: addresses of its regions and of those of its neighbours, and the sizes of what goes round."""

    inbox: int
    tail: int
    ack: int
    right_inbox: int
    right_tail: int
    left_ack: int
    me: int
    dies: int
    nbytes: int
    """Of a chunk."""
    step: int
    """Of a chunk in whole pieces."""
    slots: int
    dtype: int


@kernel
def ring_all_reduce(own, out, r: Ring):
    """Leave at ``out`` the sum of the ``own`` [dies, nbytes] of all dies.

    In hop i of 2 (dies - 1) the die passes on what is at 0 of its data buffer: first sums that still grow, then those
    that are complete.
    """
    yield from read(own + r.me * r.nbytes, 0, r.nbytes)
    for i in range(2 * (r.dies - 1)):
        slot = i % r.slots * r.step
        chunk = (r.me + 2 * r.dies - 1 - i) % r.dies * r.nbytes
        yield poll_ge(r.ack, i + 1 - r.slots, sync="slot free")
        yield mtu_out(0, r.right_inbox + slot, r.nbytes)
        yield quiet(sync="chunk before tail")
        yield put(r.right_tail, i + 1, sync="tail")
        yield poll_ge(r.tail, i + 1, sync="chunk arrived")
        if i < r.dies - 1:
            yield from add_own(r.inbox + slot, own + chunk, r.step, r.nbytes, r.dtype)
        else:
            yield from read(r.inbox + slot, 0, r.nbytes)
        yield put(r.left_ack, i + 1, sync="ack")
        if i >= r.dies - 2:
            yield mtu_out(0, out + chunk, r.nbytes)
