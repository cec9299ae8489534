"""A Lamport buffer cleaned by the size of this call, and not of the one that has filled it: stale words stay.

xccl-emu fuzz corpus/stale_lamport/stale_lamport.py:Broken
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xccl_emu.check.verdict import WRONG_BITS
from xccl_emu.corpus.parts import swapped
from xccl_emu.lang import kernel, load, poll_ne, quiet, store
from xccl_emu.machine import Pod, small_pod
from xccl_emu.protocol import Bench, Call, size
from xccl_emu.protocol.corpus import Member
from xccl_emu.protocol.streams import StreamCase, Streams

MEMBER = Member(("NVIDIA/TensorRT-LLM#6237",), WRONG_BITS, "four calls, the second shorter", tool="fuzz")

EMPTY = 0
"""Stands for nothing has come; no payload has it."""


@kernel
def exchange(own, out, buffers, peer_buffers, words, cleaned, call):
    """Write to the peer's buffer of this call, take each word as soon as it is there, and clean the buffer of the call
    before, which is that of the call after the next."""
    now, before = call % 3 * 32, (call + 2) % 3 * 32
    for i in range(words):
        value = yield load(own + 8 * i)
        yield store(peer_buffers + now + 8 * i, value)
    for i in range(words):
        value = yield poll_ne(buffers + now + 8 * i, EMPTY)
        yield store(out + 8 * i, value)
    for i in range(cleaned):
        yield store(buffers + before + 8 * i, EMPTY)
    yield quiet()


@dataclass(frozen=True)
class Mended(StreamCase):
    """As many words are cleaned as the call before has filled."""

    words: int = size(1, "Words of 8 bytes that a rank sends.", most=3, each_call=True)
    mended: ClassVar[int] = 1

    def lay_out_calls(self, bench: Bench, calls: Sequence[Call]) -> None:
        """Two ranks, three buffers each, in turn; they lie in metadata, which is empty at first."""
        pod = bench.pod(small_pod(2, app_bytes=2048, meta_bytes=96, managed_bytes=32, ub_bytes=32))
        streams, sizes = Streams(bench, pod), [call.case.words for call in calls]
        for number, words in enumerate(sizes):
            before = sizes[number - 1] if number else 0
            for me in range(2):
                self._launch(bench, pod, streams, number, words, before if self.mended else words, me)
        streams.put()

    def _launch(self, bench: Bench, pod: Pod, streams: Streams, number: int, words: int, cleaned: int, me: int) -> None:
        peer, (own, out) = 1 - me, swapped(bench, number, words, me)
        args = {
            "own": own.address, "out": out.address, "words": words, "cleaned": cleaned, "call": number,
            "buffers": pod.meta(me), "peer_buffers": pod.meta(peer),
        }  # fmt: skip
        grants = [pod.grant(own, "r"), pod.grant(out, "w"), pod.grant_meta("rw", me), pod.grant_meta("w", peer)]
        streams.launch(exchange, me, args, grants)


@dataclass(frozen=True)
class Broken(Mended):
    """As many words are cleaned as this call has."""

    mended = 0
