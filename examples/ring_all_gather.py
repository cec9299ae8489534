"""All-gather on a ring of dies: a protocol from outside of the package, as docs/tutorial.md writes it.

Each die has a chunk.  In n - 1 steps each passes on to its right neighbour what it has got last, its own chunk first;
then each has them all.  A die has an inbox of a few slots in its managed data area, filled by its left neighbour, and
two fields in its metadata area: ``tail`` counts the chunks that have been put into its inbox, ``ack`` those that its
right neighbour has read.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xccl_emu.lang import MTU_IN, SCALAR, kernel, mtu_in, mtu_out, poll_ge, put, quiet, set_flag, wait_flag
from xccl_emu.machine import Buffer, Pod, small_pod
from xccl_emu.protocol import Bench, protocol

GRANULE = 32
TAIL, ACK = 0, GRANULE
"""Offsets of the fields in a die's metadata area."""


class Places(NamedTuple):
    """Where a die has what others write: addresses."""

    inbox: int
    tail: int
    ack: int


def slot_bytes(nbytes: int) -> int:
    """A chunk takes whole granules of an inbox."""
    return (nbytes + GRANULE - 1) // GRANULE * GRANULE


def read(source, nbytes):
    """Copy a chunk from memory to the start of the data buffer, and wait until it is there."""
    yield mtu_in(source, 0, nbytes)
    yield set_flag(MTU_IN, SCALAR, 0, sync="chunk in buffer")
    yield wait_flag(MTU_IN, SCALAR, 0, sync="chunk in buffer")


@kernel
def all_gather(own, out, nbytes, slots, me, dies, here: Places, left: Places, right: Places):
    """Gather the chunks of ``nbytes`` of all dies at ``out``, in the order of the dies; ``me`` is this die."""
    yield from read(own, nbytes)
    yield mtu_out(0, out + me * nbytes, nbytes)
    for i in range(dies - 1):
        slot = i % slots * slot_bytes(nbytes)
        yield poll_ge(here.ack, i + 1 - slots, sync="slot free")
        yield mtu_out(0, right.inbox + slot, nbytes)
        yield quiet(sync="chunk before tail")
        yield put(right.tail, i + 1, sync="tail")
        yield poll_ge(here.tail, i + 1, sync="chunk arrived")
        yield from read(here.inbox + slot, nbytes)
        yield put(left.ack, i + 1, sync="ack")
        yield mtu_out(0, out + (me + dies - 1 - i) % dies * nbytes, nbytes)


def chunks_of(dies: int, nbytes: int) -> NDArray[np.uint8]:
    """The input of each die, [dies, nbytes], without a zero, so that it differs from memory nobody has written."""
    return np.random.default_rng(dies).integers(1, 256, (dies, nbytes), np.uint8)


def places(pod: Pod, die: int) -> Places:
    """Return the addresses on a die."""
    return Places(inbox=pod.managed(die), tail=pod.meta(die, TAIL), ack=pod.meta(die, ACK))


def launch_on(pod: Pod, me: int, own: Buffer, out: Buffer, nbytes: int, slots: int) -> None:
    """Launch the kernel on a die, with leave to touch what it must touch and nothing else."""
    dies = pod.spec.n_dies
    left, right = (me - 1) % dies, (me + 1) % dies
    args = {
        "own": own.address, "out": out.address, "nbytes": nbytes, "slots": slots, "me": me, "dies": dies,
        "here": places(pod, me), "left": places(pod, left), "right": places(pod, right),
    }  # fmt: skip
    grants = [
        pod.grant(own, "r"), pod.grant(out, "w"), pod.grant_meta("r", me), pod.grant_meta("w", left),
        pod.grant_meta("w", right), pod.grant_managed("r", me), pod.grant_managed("w", right),
    ]  # fmt: skip
    pod.launch(all_gather, me, [0], args, grants)


@protocol
def ring_all_gather(bench: Bench, dies: int = 3, nbytes: int = 64, slots: int = 1) -> None:
    """The all-gather on one core of each die; ``nbytes`` is the size of a chunk."""
    chunk = slot_bytes(nbytes)
    room = {"app_bytes": (dies + 2) * chunk, "meta_bytes": 2 * GRANULE, "managed_bytes": slots * chunk}
    pod = bench.pod(small_pod(dies, **room, ub_bytes=chunk))
    chunks = chunks_of(dies, nbytes)
    for me in range(dies):
        at = places(pod, me)
        bench.label(f"die{me}.tail", at.tail, GRANULE)
        bench.label(f"die{me}.ack", at.ack, GRANULE)
        bench.label(f"die{me}.inbox", at.inbox, slots * chunk)
        own = bench.filled(me, chunks[me], "chunk")
        out = bench.wanted(me, chunks.reshape(-1), "gathered", owners=f"die{me}")
        launch_on(pod, me, own, out, nbytes, slots)
