"""Chunks through a ring of slots, each announced by a write with notify, or by a put after a fence.

    xccl-emu check examples/notify.py:Notify --each-sync
    xccl-emu check examples/notify.py:Notify --weakest
    xccl-emu run examples/notify.py:Notify --by fence

Each slot has a tail, which says the number of the chunk that is there: signals of two requests come in either order, so
one that counts chunks would not say which of them have come.  The sender's head counts what the receiver has read.
"""

from dataclasses import dataclass

from xccl_emu.lang import (
    MTU_IN,
    MTU_OUT,
    SCALAR,
    add,
    fence,
    kernel,
    mtu_in,
    mtu_out,
    poll_ge,
    put,
    put_signal,
    set_flag,
    wait_flag,
)
from xccl_emu.protocol import Bench, Case, Regions, choice, payload, size

FIELD_BYTES = 32
"""Bytes of a tail, and of the head."""


def fetched(source, nbytes):
    """Bring a chunk into the data buffer."""
    yield mtu_in(source, 0, nbytes)
    yield set_flag(MTU_IN, MTU_OUT, 0, sync="chunk in buffer")
    yield wait_flag(MTU_IN, MTU_OUT, 0, sync="chunk in buffer")


def written():
    """Wait until mtu-out has read the data buffer."""
    yield set_flag(MTU_OUT, SCALAR, 1, sync="buffer free")
    yield wait_flag(MTU_OUT, SCALAR, 1, sync="buffer free")


@kernel
def send_by_signal(data, nbytes, chunks, ring, slots, tails, head):
    """Each chunk and its tail are one request."""
    for i in range(chunks):
        yield from fetched(data + i * nbytes, nbytes)
        yield poll_ge(head, i + 1 - slots, sync="slot free")
        tail = tails + i % slots * FIELD_BYTES
        yield put_signal(0, ring + i % slots * nbytes, nbytes, tail, i + 1, sync="chunk and tail")
        yield from written()


@kernel
def send_by_fence(data, nbytes, chunks, ring, slots, tails, head):
    """A fence keeps each tail after its chunk, and after all chunks before."""
    for i in range(chunks):
        yield from fetched(data + i * nbytes, nbytes)
        yield poll_ge(head, i + 1 - slots, sync="slot free")
        yield mtu_out(0, ring + i % slots * nbytes, nbytes)
        yield fence(sync="chunk before tail")
        yield put(tails + i % slots * FIELD_BYTES, i + 1, sync="tail")
        yield from written()


@kernel
def receive(out, nbytes, chunks, ring, slots, tails, head):
    """Copy each chunk out, and say that its slot is free."""
    for i in range(chunks):
        yield poll_ge(tails + i % slots * FIELD_BYTES, i + 1, sync="chunk arrived")
        yield mtu_in(ring + i % slots * nbytes, 0, nbytes)
        yield set_flag(MTU_IN, SCALAR, 0, sync="chunk in buffer")
        yield wait_flag(MTU_IN, SCALAR, 0, sync="chunk in buffer")
        yield add(head, 1, sync="head")
        yield mtu_out(0, out + i * nbytes, nbytes)
        yield from written()


SENDERS = {"signal": send_by_signal, "fence": send_by_fence}


@dataclass(frozen=True)
class Notify(Case):
    """Die 0 sends ``chunks`` to die 1, through a ring of ``slots``."""

    chunks: int = size(3, "Chunks that are sent.")
    slots: int = size(2, "Slots of the ring.")
    granules: int = size(2, "Granules of 32 bytes of a chunk.")
    by: str = choice("signal", "What keeps a tail after its chunk.", of=SENDERS)

    @property
    def payload_bytes(self) -> int:
        """Bytes of all chunks."""
        return 32 * self.granules * self.chunks

    def lay_out(self, bench: Bench) -> None:
        """Ring and tails on die 1, head on die 0."""
        nbytes, data, regions = 32 * self.granules, payload(self.payload_bytes, 0), Regions(2)
        ring = regions.managed("slot", nbytes, self.slots)
        tails, head = regions.meta("tail", FIELD_BYTES, self.slots), regions.meta("head", FIELD_BYTES)
        pod = regions.pod(bench, app_bytes=data.nbytes, ub_bytes=nbytes)
        own, out = bench.filled(0, data, "data"), bench.wanted(1, data, "out", owners="die1")
        both = {
            "nbytes": nbytes, "chunks": self.chunks, "ring": ring.at(1), "slots": self.slots, "tails": tails.at(1),
            "head": head.at(0),
        }  # fmt: skip
        grants = [pod.grant(own, "r"), ring.grant(1, "w"), tails.grant(1, "w"), head.grant(0, "r")]
        pod.launch(SENDERS[self.by], 0, [0], {**both, "data": own.address}, grants)
        grants = [pod.grant(out, "w"), ring.grant(1, "r"), tails.grant(1, "r"), head.grant(0, "w")]
        pod.launch(receive, 1, [0], {**both, "out": out.address}, grants)
        bench.tolerates("stop", "cut", "stall")
