"""The flags of a barrier are bytes of one word, which is cleared for the next time: a flag of that is lost.

    xccl-emu check corpus/flags_in_one_word/flags_in_one_word.py:Broken
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from xccl_emu.check.verdict import DEADLOCK
from xccl_emu.corpus.parts import read
from xccl_emu.lang import MTU_OUT, SCALAR, kernel, mtu_out, poll_eq, poll_ge, quiet, set_flag, store, wait_flag
from xccl_emu.protocol import Bench, Case, Regions, payload, size
from xccl_emu.protocol.corpus import Member

MEMBER = Member(
    ("vllm-project/vllm#2760", "vllm-project/vllm#8558", "vllm-project/vllm#57059", "vllm-project/vllm#57182",
     "ROCm/aiter#2890"), DEADLOCK, "two calls; a flag of the second that comes before the first is cleared",
)  # fmt: skip


class Group(NamedTuple):
    """The ranks, and where they have their flags: on rank r ``r * pitch`` further on."""

    ranks: int
    me: int
    flags: int
    pitch: int


def meet_in_bytes(g: Group):
    """Set byte ``me`` of the word of all others, wait for all bytes of the own word, and clear it."""
    others = 0
    for i in range(1, g.ranks):
        rank = (g.me + i) % g.ranks
        others |= 1 << 8 * rank
        yield store(g.flags + rank * g.pitch + g.me, 1, 1)
    yield poll_eq(g.flags + g.me * g.pitch, others, mask=others)
    yield store(g.flags + g.me * g.pitch, 0)


def meet_in_words(call, g: Group):
    """Count calls in a word for each of the others, in two sets by turns, and wait until all have come as far."""
    set_of = g.flags + call % 2 * g.ranks * 32
    for i in range(1, g.ranks):
        yield store(set_of + (g.me + i) % g.ranks * g.pitch + g.me * 32, call + 1)
    for i in range(1, g.ranks):
        yield poll_ge(set_of + g.me * g.pitch + (g.me + i) % g.ranks * 32, call + 1)


@kernel
def gather(own, out, slots, calls, nbytes, mended, g: Group):
    """Call by call write the own message to the others, meet, and read theirs; a slot is used once."""
    for call in range(calls):
        yield from read(own + call * nbytes, nbytes)
        for i in range(1, g.ranks):
            yield mtu_out(0, slots + (g.me + i) % g.ranks * g.pitch + (call * g.ranks + g.me) * nbytes, nbytes)
        yield quiet()
        if mended:
            yield from meet_in_words(call, g)
        else:
            yield from meet_in_bytes(g)
        for i in range(1, g.ranks):
            at = (call * g.ranks + (g.me + i) % g.ranks) * nbytes
            yield from read(slots + g.me * g.pitch + at, nbytes)
            yield mtu_out(0, out + at, nbytes)
            yield set_flag(MTU_OUT, SCALAR, 1)
            yield wait_flag(MTU_OUT, SCALAR, 1)
        yield quiet()


@dataclass(frozen=True)
class Mended(Case):
    """A word for each peer, which counts, and two sets of them by turns."""

    ranks: int = size(2, "Ranks, one a die.", least=2, most=8)
    calls: int = size(2, "Calls back to back.", least=2, most=100)
    mended: ClassVar[int] = 1

    def lay_out(self, bench: Bench) -> None:
        """A slot for each call and rank, and the words or bytes of the barrier."""
        regions, nbytes = Regions(self.ranks), 32
        slots = regions.managed("slot", nbytes, self.calls * self.ranks)
        flags = regions.meta("flag", 8, 2 * self.ranks)
        data = payload(self.ranks * self.calls * nbytes, 0).reshape(self.ranks, self.calls, nbytes)
        pod = bench.pod(regions.tight_pod(app_bytes=(1 + self.ranks) * self.calls * nbytes, ub_bytes=nbytes))
        regions.place(bench, pod)
        shared = {"slots": slots.at(0), "calls": self.calls, "nbytes": nbytes, "mended": self.mended}
        for me in range(self.ranks):
            got = data.swapaxes(0, 1).copy()
            got[:, me] = 0  # nobody sends to itself
            own, out = bench.filled(me, data[me], "own"), bench.wanted(me, np.ascontiguousarray(got), "gathered")
            group = Group(self.ranks, me, flags.at(0), pod.spec.die_bytes)
            args = {"own": own.address, "out": out.address, "g": group, **shared}
            each = [region.grant(die, "rw") for region in (slots, flags) for die in range(self.ranks)]
            pod.launch(gather, me, [0], args, [pod.grant(own, "r"), pod.grant(out, "w"), *each])


@dataclass(frozen=True)
class Broken(Mended):
    """A byte for each peer, all in one word, which is cleared when all are set."""

    mended = 0
