"""A one-stage all-reduce without the barrier at its end: the next kernel overwrites what a peer still reads.

xccl-emu fuzz corpus/no_end_barrier/no_end_barrier.py:Broken
"""

from dataclasses import dataclass
from typing import ClassVar

from xccl_emu.check.verdict import DATA_RACE
from xccl_emu.corpus.parts import Both, Pair, Turn, copy, numbered
from xccl_emu.lang import kernel, load, poll_ge, put, quiet, store
from xccl_emu.protocol import Bench, size
from xccl_emu.protocol.corpus import Member
from xccl_emu.protocol.streams import Streams

MEMBER = Member(("ROCm/aiter#3514",), DATA_RACE, "two calls", tool="fuzz")


@kernel
def produce(source, input, words):
    """The kernel before the all-reduce leaves its result in the buffer that peers read."""
    yield from copy(source, input, words)


def meet(flag: Both, number):
    """A barrier of two ranks."""
    yield quiet()
    yield put(flag.peer, number)
    yield poll_ge(flag.own, number)


@kernel
def all_reduce(input: Both, out, flag: Both, words, call, mended):
    """Add up what both ranks have, read straight from their buffers."""
    yield from meet(flag, 2 * call + 1)
    for i in range(words):
        mine = yield load(input.own + 8 * i)
        theirs = yield load(input.peer + 8 * i)
        yield store(out + 8 * i, mine + theirs)
    if mended:
        yield from meet(flag, 2 * call + 2)


@dataclass(frozen=True)
class Mended(Pair):
    """A barrier before the sums, and one after them."""

    words: int = size(1, "Words of 8 bytes that a rank has.", most=3, each_call=True)
    mended: ClassVar[int] = 1
    room: ClassVar[dict[str, int]] = {"app_bytes": 4096}

    def launch(self, bench: Bench, streams: Streams, turn: Turn) -> None:
        """The kernel that makes the operands, and the all-reduce."""
        pod, me, words = turn.pod, turn.me, turn.case.words
        had = numbered(turn.number, words, words)
        made = bench.filled(me, had[me], f"made for call {turn.number}")
        out = bench.wanted(me, sum(had), f"sums of call {turn.number}", owners=f"die{me}")
        input = turn.managed()
        grants = [pod.grant(made, "r"), pod.grant_managed("rw", me)]
        args = {"source": made.address, "input": input.own, "words": words}
        pod.launch(produce, me, [0], args, grants, after=streams)
        args = {"input": input, "out": out.address, "flag": turn.meta(), "words": words}
        args |= {"call": turn.number, "mended": self.mended}
        pod.launch(all_reduce, me, [0], args, [pod.grant(out, "w"), *turn.grants(("r", "r"))[1:]], after=streams)


@dataclass(frozen=True)
class Broken(Mended):
    """A barrier before the sums only."""

    mended = 0
