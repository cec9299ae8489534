"""The kernel of a ring all-reduce: reduce-scatter, then all-gather, over an inbox of a few slots on each die."""

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


@kernel
def ring_all_reduce(
    own, out, nbytes, step, me, dies, inbox, tail, ack, right_inbox, right_tail, left_ack, slots, dtype
):
    """Leave at ``out`` the sum of the ``own`` [dies, nbytes] of all dies; ``step`` is a chunk in whole pieces.

    In hop i of 2 (dies - 1) die ``me`` passes on what is at 0 of its data buffer: first sums that still grow, then
    those that are complete.
    """
    yield from read(own + me * nbytes, 0, nbytes)
    for i in range(2 * (dies - 1)):
        slot = i % slots * step
        chunk = (me + 2 * dies - 1 - i) % dies * nbytes
        yield poll_ge(ack, i + 1 - slots, sync="slot free")
        yield mtu_out(0, right_inbox + slot, nbytes)
        yield quiet(sync="chunk before tail")
        yield put(right_tail, i + 1, sync="tail")
        yield poll_ge(tail, i + 1, sync="chunk arrived")
        if i < dies - 1:
            yield from add_own(inbox + slot, own + chunk, step, nbytes, dtype)
        else:
            yield from read(inbox + slot, 0, nbytes)
        yield put(left_ack, i + 1, sync="ack")
        if i >= dies - 2:
            yield mtu_out(0, out + chunk, nbytes)
