"""A barrier that sets 1 and waits for at least 1 holds nobody the second time.

xccl-emu fuzz corpus/barrier_of_once/barrier_of_once.py:Broken
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xccl_emu.check.verdict import UNWRITTEN_READ
from xccl_emu.corpus.parts import copy, swapped
from xccl_emu.lang import kernel, poll_ge, put, quiet
from xccl_emu.machine import Pod, small_pod
from xccl_emu.protocol import Bench, Call, size
from xccl_emu.protocol.corpus import Member
from xccl_emu.protocol.streams import StreamCase, Streams

MEMBER = Member(("hw-native-sys/pypto#1829", "hw-native-sys/pypto#1631"), UNWRITTEN_READ, "two calls", tool="fuzz")


@kernel
def exchange(own, out, inbox, peer_inbox, flag, peer_flag, words, colour):
    """Write to the peer's inbox, meet it, and read what it has written to the own one."""
    yield from copy(own, peer_inbox, words)
    yield quiet()
    yield put(peer_flag, colour)
    yield poll_ge(flag, colour)
    yield from copy(inbox, out, words)


@dataclass(frozen=True)
class Mended(StreamCase):
    """The barrier of each call has a number of its own."""

    words: int = size(1, "Words of 8 bytes that a rank sends.", most=3, each_call=True)
    mended: ClassVar[int] = 1

    def lay_out_calls(self, bench: Bench, calls: Sequence[Call]) -> None:
        """Two ranks, and an inbox for each call, so that nothing but the barrier says when it is full."""
        room = {"app_bytes": 2048, "meta_bytes": 32, "managed_bytes": 32 * len(calls), "ub_bytes": 32}
        pod = bench.pod(small_pod(2, **room))
        streams = Streams(bench, pod)
        for number, call in enumerate(calls):
            for me in range(2):
                self._launch(bench, pod, streams, number, call.case.words, me)
        streams.put()

    def _launch(self, bench: Bench, pod: Pod, streams: Streams, number: int, words: int, me: int) -> None:
        peer, (own, out) = 1 - me, swapped(bench, number, words, me)
        args = {
            "own": own.address, "out": out.address, "words": words, "colour": number + 1 if self.mended else 1,
            "inbox": pod.managed(me, 32 * number), "peer_inbox": pod.managed(peer, 32 * number),
            "flag": pod.meta(me), "peer_flag": pod.meta(peer),
        }  # fmt: skip
        grants = [
            pod.grant(own, "r"), pod.grant(out, "w"), pod.grant_managed("r", me), pod.grant_managed("w", peer),
            pod.grant_meta("r", me), pod.grant_meta("w", peer),
        ]  # fmt: skip
        streams.launch(exchange, me, args, grants)


@dataclass(frozen=True)
class Broken(Mended):
    """Every barrier sets 1 and waits for 1."""

    mended = 0
