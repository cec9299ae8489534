"""A one-stage all-reduce without the barrier at its end: the next kernel overwrites what a peer still reads.

xccl-emu fuzz corpus/no_end_barrier/no_end_barrier.py:Broken
"""

from dataclasses import dataclass
from typing import ClassVar

from xccl_emu.check.verdict import DATA_RACE
from xccl_emu.corpus.parts import Pair, Turn, numbered
from xccl_emu.lang import kernel, load, poll_ge, put, quiet, store
from xccl_emu.protocol import Bench, size
from xccl_emu.protocol.corpus import Member
from xccl_emu.protocol.streams import Streams

MEMBER = Member(("ROCm/aiter#3514",), DATA_RACE, "two calls", tool="fuzz")


@kernel
def produce(source, input, words):
    """The kernel before the all-reduce leaves its result in the buffer that peers read."""
    for i in range(words):
        value = yield load(source + 8 * i)
        yield store(input + 8 * i, value)


def meet(flag, peer_flag, number):
    """A barrier of two ranks."""
    yield quiet()
    yield put(peer_flag, number)
    yield poll_ge(flag, number)


@kernel
def all_reduce(input, peer_input, out, flag, peer_flag, words, call, mended):
    """Add up what both ranks have, read straight from their buffers."""
    yield from meet(flag, peer_flag, 2 * call + 1)
    for i in range(words):
        mine = yield load(input + 8 * i)
        theirs = yield load(peer_input + 8 * i)
        yield store(out + 8 * i, mine + theirs)
    if mended:
        yield from meet(flag, peer_flag, 2 * call + 2)


@dataclass(frozen=True)
class Mended(Pair):
    """A barrier before the sums, and one behind them."""

    words: int = size(1, "Words of 8 bytes that a rank has.", most=3, each_call=True)
    mended: ClassVar[int] = 1
    room: ClassVar[dict[str, int]] = {"app_bytes": 4096}

    def launch(self, bench: Bench, streams: Streams, turn: Turn) -> None:
        """The kernel that makes the operands, and the all-reduce."""
        pod, me, words = turn.pod, turn.me, turn.case.words
        had = numbered(turn.number, words, words)
        made = bench.filled(me, had[me], f"made for call {turn.number}")
        out = bench.wanted(me, sum(had), f"sums of call {turn.number}", owners=f"die{me}")
        buffer = {"input": pod.managed(me), "words": words}
        grants = [pod.grant(made, "r"), pod.grant_managed("rw", me)]
        streams.launch(produce, me, {"source": made.address, **buffer}, grants)
        args = {"peer_input": pod.managed(turn.peer), "out": out.address, "call": turn.number, "mended": self.mended}
        grants = [pod.grant(out, "w"), *turn.grants(("r", "r"))[1:]]
        streams.launch(all_reduce, me, {**buffer, **args, **turn.meta("flag")}, grants)


@dataclass(frozen=True)
class Broken(Mended):
    """A barrier before the sums only."""

    mended = 0
