"""An older head overtakes a newer one on its way to the sender, and overwrites it: the sender waits for ever.

    xccl-emu check corpus/head_overtaken/head_overtaken.py:Broken --order unordered
"""

from dataclasses import dataclass
from typing import ClassVar

from xccl_emu.check.verdict import DEADLOCK
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
    quiet,
    set_flag,
    wait_flag,
)
from xccl_emu.protocol import Bench, Case, Regions, payload, size
from xccl_emu.protocol.corpus import Member

MEMBER = Member(
    ("deepseek-ai/DeepEP@458cdcb", "NVIDIA/nvshmem#36"),
    DEADLOCK,
    "the order `unordered`, in which writes to one address overtake each other",
    options={"order": "unordered"},
)


def read(source, nbytes):
    """Copy a chunk to the start of the data buffer, when what was there has left, and wait until it is there."""
    yield set_flag(MTU_OUT, MTU_IN, 0)
    yield wait_flag(MTU_OUT, MTU_IN, 0)
    yield mtu_in(source, 0, nbytes)
    yield set_flag(MTU_IN, SCALAR, 0)
    yield wait_flag(MTU_IN, SCALAR, 0)


@kernel
def send(own, ring, tail, head, chunks, slots, step, nbytes):
    """Put each chunk into a slot that the head says is free, its tail behind a fence; wait until all are read."""
    for i in range(chunks):
        yield poll_ge(head, i + 1 - slots)
        yield from read(own + i * nbytes, nbytes)
        yield mtu_out(0, ring + i % slots * step, nbytes)
        yield fence()
        yield put(tail, i + 1)
    yield poll_ge(head, chunks)


@kernel
def receive(out, ring, tail, head, chunks, slots, step, nbytes, mended):
    """Read each chunk and move the head on: to where it is now, or, mended, by one."""
    for i in range(chunks):
        yield poll_ge(tail, i + 1)
        yield from read(ring + i % slots * step, nbytes)
        if mended:
            yield add(head, 1)
        else:
            yield put(head, i + 1)
        yield mtu_out(0, out + i * nbytes, nbytes)
    yield quiet()


@dataclass(frozen=True)
class Mended(Case):
    """The receiver adds what it has read: additions may overtake each other."""

    chunks: int = size(2, "Chunks that are sent.")
    slots: int = size(2, "Chunks that the ring has room for.")
    nbytes: int = size(32, "Of a chunk.", least=32)
    mended: ClassVar[int] = 1

    def lay_out(self, bench: Bench) -> None:
        """Die 0 sends to die 1, which has the ring and its tail; the head is at die 0."""
        chunks, regions = payload(self.chunks * self.nbytes, 0), Regions(2)
        ring = regions.managed("ring", self.nbytes, self.slots)
        tail, head = regions.meta("tail"), regions.meta("head")
        pod = bench.pod(regions.tight_pod(app_bytes=chunks.nbytes, ub_bytes=self.nbytes))
        regions.place(bench, pod)
        own = bench.filled(0, chunks, "chunks")
        out = bench.wanted(1, chunks, "received", owners="die1")
        sizes = {"chunks": self.chunks, "slots": self.slots, "step": ring.step, "nbytes": self.nbytes}
        fields = {"ring": ring.at(1), "tail": tail.at(1), "head": head.at(0)}
        grants = [ring.grant(1, "w"), tail.grant(1, "w"), head.grant(0, "r"), pod.grant(own, "r")]
        pod.launch(send, 0, [0], {"own": own.address, **fields, **sizes}, grants)
        grants = [ring.grant(1, "r"), tail.grant(1, "r"), head.grant(0, "w"), pod.grant(out, "w")]
        pod.launch(receive, 1, [0], {"out": out.address, **fields, **sizes, "mended": self.mended}, grants)


@dataclass(frozen=True)
class Broken(Mended):
    """The receiver writes how far it is: an older write may land on a newer."""

    mended = 0
