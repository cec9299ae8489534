"""The kernel of prefix sums on a chain of dies: each adds its own chunk to the sum that comes from the left."""

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


class Chain(NamedTuple):
    """What one die knows: addresses of its regions and of its neighbours', and the sizes of what goes along."""

    inbox: int
    tail: int
    ack: int
    right_inbox: int
    right_tail: int
    left_ack: int
    is_first: int
    is_last: int
    chunks: int
    nbytes: int
    """Bytes of a chunk."""
    step: int
    """Bytes of a chunk in whole granules."""
    slots: int
    dtype: int


@kernel
def prefix_sum(own, out, c: Chain):
    """Leave at ``out`` the sum of the ``own`` [chunks, nbytes] of this die and all to its left."""
    for i in range(c.chunks):
        chunk, slot = i * c.nbytes, i % c.slots * c.step
        if c.is_first:
            yield from read(own + chunk, 0, c.nbytes)
        else:
            yield poll_ge(c.tail, i + 1, sync="chunk arrived")
            yield from add_own(c.inbox + slot, own + chunk, c.step, c.nbytes, c.dtype)
            yield put(c.left_ack, i + 1, sync="ack")
        yield mtu_out(0, out + chunk, c.nbytes)
        if not c.is_last:
            yield poll_ge(c.ack, i + 1 - c.slots, sync="slot free")
            yield mtu_out(0, c.right_inbox + slot, c.nbytes)
        yield quiet(sync="chunk before tail")  # it also frees the data buffer
        if not c.is_last:
            yield put(c.right_tail, i + 1, sync="tail")
