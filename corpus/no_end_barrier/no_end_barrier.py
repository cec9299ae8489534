"""A one-stage all-reduce without the barrier at its end: the next kernel overwrites what a peer still reads.

xccl-emu fuzz corpus/no_end_barrier/no_end_barrier.py:Broken
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xccl_emu.check.verdict import DATA_RACE
from xccl_emu.lang import kernel, load, poll_ge, put, quiet, store
from xccl_emu.machine import Pod, small_pod
from xccl_emu.protocol import Bench, Call, size
from xccl_emu.protocol.corpus import Member
from xccl_emu.protocol.streams import StreamCase, Streams

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
class Mended(StreamCase):
    """A barrier before the sums, and one behind them."""

    words: int = size(1, "Words of 8 bytes that a rank has.", most=3, each_call=True)
    mended: ClassVar[int] = 1

    def lay_out_calls(self, bench: Bench, calls: Sequence[Call]) -> None:
        """Two ranks; a call is the kernel that makes the operands, and the all-reduce."""
        pod = bench.pod(small_pod(2, app_bytes=4096, meta_bytes=32, managed_bytes=32, ub_bytes=32))
        streams = Streams(bench, pod)
        for number, call in enumerate(calls):
            for me in range(2):
                self._launch(bench, pod, streams, number, call.case.words, me)
        streams.put()

    def _launch(self, bench: Bench, pod: Pod, streams: Streams, number: int, words: int, me: int) -> None:
        peer, had = 1 - me, 100 * number + 10 * np.arange(2)[:, None] + np.arange(1, words + 1)
        made = bench.filled(me, had[me], f"made for call {number}")
        out = bench.wanted(me, had.sum(0), f"sums of call {number}", owners=f"die{me}")
        buffer = {"input": pod.managed(me), "words": words}
        streams.launch(
            produce, me, {"source": made.address, **buffer}, [pod.grant(made, "r"), pod.grant_managed("rw", me)]
        )
        args = {"peer_input": pod.managed(peer), "out": out.address, "call": number, "mended": self.mended}
        grants = [
            pod.grant(out, "w"), pod.grant_managed("r", peer), pod.grant_meta("r", me), pod.grant_meta("w", peer),
        ]  # fmt: skip
        streams.launch(all_reduce, me, {**buffer, **args, "flag": pod.meta(me), "peer_flag": pod.meta(peer)}, grants)


@dataclass(frozen=True)
class Broken(Mended):
    """A barrier before the sums only."""

    mended = 0
