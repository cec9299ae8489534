"""One counter of arrivals for several chunks under way: a later chunk is taken for an earlier one.

    xccl-emu check corpus/counter_of_chunks/counter_of_chunks.py:Broken
"""

from dataclasses import dataclass
from typing import ClassVar

from xccl_emu.check.verdict import DATA_RACE
from xccl_emu.corpus.parts import read
from xccl_emu.lang import add, fence, kernel, mtu_out, poll_ge, quiet
from xccl_emu.protocol import Bench, Case, Regions, payload, size
from xccl_emu.protocol.corpus import Member

MEMBER = Member(("NVIDIA/nvshmem#84",), DATA_RACE, "two chunks under way; the second arrives first")


@kernel
def send(chunk, slot, arrived, nbytes):
    """Send one chunk to its slot, and count it where its arrivals are counted."""
    yield from read(chunk, nbytes)
    yield mtu_out(0, slot, nbytes)
    yield fence()
    yield add(arrived, 1)
    yield quiet()


@kernel
def receive(out, slots, arrived, chunks, nbytes, step, mended):
    """Take the chunks in their order; ``step`` is from one field or slot to the next."""
    for i in range(chunks):
        if mended:
            yield poll_ge(arrived + i * 32, 1)
        else:
            yield poll_ge(arrived, i + 1)
        yield from read(slots + i * step, nbytes)
        yield mtu_out(0, out + i * nbytes, nbytes)
        yield quiet()


@dataclass(frozen=True)
class Mended(Case):
    """Each chunk has a counter of its own."""

    chunks: int = size(2, "Chunks under way, each sent by a core of its own.", least=2, most=8)
    nbytes: int = size(32, "Of a chunk.", least=32)
    mended: ClassVar[int] = 1

    def lay_out(self, bench: Bench) -> None:
        """The cores of die 0 send a chunk each to die 1: one step of a ring, without the sum."""
        data, regions = payload(self.chunks * self.nbytes, 0), Regions(2)
        slots, arrived = regions.managed("slot", self.nbytes, self.chunks), regions.meta("arrived", 8, self.chunks)
        pod = bench.pod(regions.tight_pod(app_bytes=data.nbytes, ub_bytes=self.nbytes, cores=self.chunks))
        regions.place(bench, pod)
        own, out = bench.filled(0, data, "chunks"), bench.wanted(1, data, "received", owners="die1")
        for i in range(self.chunks):
            counter = arrived.at(1, i if self.mended else 0)
            args = {"chunk": own.address + i * self.nbytes, "slot": slots.at(1, i), "arrived": counter}
            grants = [pod.grant(own, "r"), slots.grant(1, "w", i), arrived.grant(1, "w")]
            pod.launch(send, 0, [i], {**args, "nbytes": self.nbytes}, grants)
        args = {"out": out.address, "slots": slots.at(1), "arrived": arrived.at(1), "chunks": self.chunks}
        grants = [pod.grant(out, "w"), slots.grant(1, "r"), arrived.grant(1, "r")]
        sizes = {"nbytes": self.nbytes, "step": slots.step, "mended": self.mended}
        pod.launch(receive, 1, [0], {**args, **sizes}, grants)


@dataclass(frozen=True)
class Broken(Mended):
    """All chunks are counted by one counter, and chunk i is taken when it has come to i + 1."""

    mended = 0
