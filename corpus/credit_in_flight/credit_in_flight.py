"""A credit that is in flight when counters are cleaned counts for the round that comes next.

    xccl-emu check corpus/credit_in_flight/credit_in_flight.py:Broken
"""

from dataclasses import dataclass
from typing import ClassVar

from xccl_emu.check.verdict import DATA_RACE
from xccl_emu.corpus.parts import read
from xccl_emu.lang import add, fence, kernel, mtu_out, poll_ge, put, quiet
from xccl_emu.protocol import Bench, Case, Regions, payload, size
from xccl_emu.protocol.corpus import Member

MEMBER = Member(("deepseek-ai/DeepEP#310", "deepseek-ai/DeepEP@b65b22e"), DATA_RACE, "two rounds; a late add")


@kernel
def send(own, slot, tail, credit, done, rounds, chunks, nbytes):
    """Send ``rounds`` times ``chunks`` through one slot; after each round the count of credits is cleaned."""
    for i in range(rounds * chunks):
        yield from read(own + i * nbytes, nbytes)
        yield poll_ge(credit, i % chunks)
        yield mtu_out(0, slot, nbytes)
        yield fence()
        yield put(tail, i + 1)
        yield quiet()
        if i % chunks == chunks - 1:
            yield poll_ge(done, i // chunks + 1)
            yield put(credit, 0)
            yield quiet()


@kernel
def receive(out, slot, tail, credit, done, rounds, chunks, nbytes, mended):
    """Read each chunk, give a credit for it, and say at the end of a round that it is over."""
    for i in range(rounds * chunks):
        yield poll_ge(tail, i + 1)
        yield from read(slot, nbytes)
        yield add(credit, 1)
        yield mtu_out(0, out + i * nbytes, nbytes)
        if i % chunks == chunks - 1:
            if mended:
                yield quiet(sync="credits before the end of the round")
            yield put(done, i // chunks + 1)
        yield quiet()


@dataclass(frozen=True)
class Mended(Case):
    """The receiver waits until all its credits have arrived before it says that the round is over."""

    rounds: int = size(2, "Rounds; credits are cleaned between them.")
    chunks: int = size(2, "Chunks of a round.")
    nbytes: int = size(32, "Of a chunk.", least=32)
    mended: ClassVar[int] = 1

    def lay_out(self, bench: Bench) -> None:
        """Die 0 sends to die 1, whose slot holds a chunk; credits come back to die 0."""
        chunks, regions = payload(self.rounds * self.chunks * self.nbytes, 0), Regions(2)
        slot = regions.managed("slot", self.nbytes)
        tail, credit, done = (regions.meta(name) for name in ("tail", "credit", "done"))
        pod = bench.pod(regions.tight_pod(app_bytes=chunks.nbytes, ub_bytes=self.nbytes))
        regions.place(bench, pod)
        own = bench.filled(0, chunks, "chunks")
        out = bench.wanted(1, chunks, "received", owners="die1")
        sizes = {"rounds": self.rounds, "chunks": self.chunks, "nbytes": self.nbytes}
        fields = {"slot": slot.at(1), "tail": tail.at(1), "credit": credit.at(0), "done": done.at(0)}
        grants = [
            slot.grant(1, "w"), tail.grant(1, "w"), credit.grant(0, "rw"), done.grant(0, "r"), pod.grant(own, "r"),
        ]
        pod.launch(send, 0, [0], {"own": own.address, **fields, **sizes}, grants)
        grants = [
            slot.grant(1, "r"), tail.grant(1, "r"), credit.grant(0, "w"), done.grant(0, "w"), pod.grant(out, "w"),
        ]
        pod.launch(receive, 1, [0], {"out": out.address, **fields, **sizes, "mended": self.mended}, grants)


@dataclass(frozen=True)
class Broken(Mended):
    """The receiver says that the round is over while a credit may still be in flight."""

    mended = 0
