"""All-gather on a ring of dies: a protocol from outside of the package, as docs/tutorial.md writes it.

Each die has a chunk.  In n - 1 steps each passes on to its right neighbour what it has got last, its own chunk first;
then each has them all.  A die has an inbox of a few slots in its managed data area, filled by its left neighbour, and
two fields in its metadata area: ``tail`` counts the chunks that have been put into its inbox, ``ack`` those that its
right neighbour has read.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xccl_emu.lang import (
    MTU_IN,
    SCALAR,
    Reads,
    Requests,
    Writes,
    kernel,
    mtu_in,
    mtu_out,
    poll_ge,
    put,
    quiet,
    set_flag,
    wait_flag,
)
from xccl_emu.protocol import Bench, Regions, protocol


class Ring(NamedTuple):
    """What a die knows of the ring: addresses of its own and of its neighbours', and the slots of an inbox."""

    inbox: Reads
    tail: Reads
    ack: Reads
    right_inbox: Writes
    right_tail: Writes
    left_ack: Writes
    slots: int
    step: int
    """Bytes from one slot to the next."""


def read(source: int, nbytes: int) -> Requests:
    """Copy a chunk from memory to the start of the data buffer, and wait until it is there."""
    yield mtu_in(source, 0, nbytes)
    yield set_flag(MTU_IN, SCALAR, 0, sync="chunk in buffer")
    yield wait_flag(MTU_IN, SCALAR, 0, sync="chunk in buffer")


@kernel
def all_gather(own: Reads, out: Writes, nbytes: int, me: int, dies: int, ring: Ring) -> Requests:
    """Gather the chunks of ``nbytes`` of all dies at ``out``, in the order of the dies; ``me`` is this die."""
    yield from read(own, nbytes)
    yield mtu_out(0, out + me * nbytes, nbytes)
    for i in range(dies - 1):
        slot = i % ring.slots * ring.step
        yield poll_ge(ring.ack, i + 1 - ring.slots, sync="slot free")
        yield mtu_out(0, ring.right_inbox + slot, nbytes)
        yield quiet(sync="chunk before tail")
        yield put(ring.right_tail, i + 1, sync="tail")
        yield poll_ge(ring.tail, i + 1, sync="chunk arrived")
        yield from read(ring.inbox + slot, nbytes)
        yield put(ring.left_ack, i + 1, sync="ack")
        yield mtu_out(0, out + (me + dies - 1 - i) % dies * nbytes, nbytes)


def chunks_of(dies: int, nbytes: int) -> NDArray[np.uint8]:
    """The input of each die, [dies, nbytes], without a zero, so that it differs from memory nobody has written."""
    return np.random.default_rng(dies).integers(1, 256, (dies, nbytes), np.uint8)


@protocol
def ring_all_gather(bench: Bench, dies: int = 3, nbytes: int = 64, slots: int = 1) -> None:
    """The all-gather on one core of each die; ``nbytes`` is the size of a chunk."""
    regions = Regions(dies)
    inbox = regions.managed("inbox", nbytes, count=slots)
    tail, ack = regions.meta("tail"), regions.meta("ack")
    pod = bench.pod(regions.tight_pod(app_bytes=(dies + 1) * inbox.step, ub_bytes=nbytes))
    regions.place(bench, pod)
    chunks = chunks_of(dies, nbytes)
    for me in range(dies):
        left, right = (me - 1) % dies, (me + 1) % dies
        own = bench.filled(me, chunks[me], "chunk")
        out = bench.wanted(me, chunks.reshape(-1), "gathered", owners=f"die{me}")
        ring = Ring(
            inbox=inbox.at(me), tail=tail.at(me), ack=ack.at(me), right_inbox=inbox.at(right),
            right_tail=tail.at(right), left_ack=ack.at(left), slots=slots, step=inbox.step,
        )  # fmt: skip
        args = {"own": own.address, "out": out.address, "nbytes": nbytes, "me": me, "dies": dies, "ring": ring}
        pod.launch(all_gather, me, [0], args)
