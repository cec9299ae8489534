"""One staging slot, stored before the peer is awaited: the next call overwrites what the peer still reads.

xccl-emu fuzz corpus/one_slot/one_slot.py:Broken
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

MEMBER = Member(("lightseekorg/tokenspeed#1356",), DATA_RACE, "two calls", tool="fuzz")


def copy(source, target, words):
    """Copy so many words, one by one."""
    for i in range(words):
        value = yield load(source + 8 * i)
        yield store(target + 8 * i, value)


@kernel
def exchange(own, out, slot, peer_slot, flag, peer_flag, words, call):
    """Stage the own words, say so, and read those of the peer when it has said so."""
    yield from copy(own, slot, words)
    yield quiet()
    yield put(peer_flag, call)
    yield poll_ge(flag, call)
    yield from copy(peer_slot, out, words)


@dataclass(frozen=True)
class Mended(StreamCase):
    """Two slots in turn: who stages call i + 2 has seen the flag of call i + 1, so its peer is through with call i."""

    words: int = size(1, "Words of 8 bytes that a rank has.", most=3, each_call=True)
    slots: ClassVar[int] = 2

    def lay_out_calls(self, bench: Bench, calls: Sequence[Call]) -> None:
        """Two ranks."""
        pod = bench.pod(small_pod(2, app_bytes=2048, meta_bytes=32, managed_bytes=64, ub_bytes=32))
        streams = Streams(bench, pod)
        for number, call in enumerate(calls):
            for me in range(2):
                self._launch(bench, pod, streams, number, call.case.words, me)
        streams.put()

    def _launch(self, bench: Bench, pod: Pod, streams: Streams, number: int, words: int, me: int) -> None:
        peer, sent = 1 - me, 100 * number + 10 * np.arange(2)[:, None] + np.arange(1, words + 1)
        own = bench.filled(me, sent[me], f"own of call {number}")
        out = bench.wanted(me, sent[peer], f"received in call {number}", owners=f"die{me}")
        offset = number % self.slots * 32
        args = {
            "own": own.address, "out": out.address, "words": words, "call": number + 1,
            "slot": pod.managed(me, offset), "peer_slot": pod.managed(peer, offset),
            "flag": pod.meta(me), "peer_flag": pod.meta(peer),
        }  # fmt: skip
        grants = [
            pod.grant(own, "r"), pod.grant(out, "w"), pod.grant_managed("w", me), pod.grant_managed("r", peer),
            pod.grant_meta("r", me), pod.grant_meta("w", peer),
        ]  # fmt: skip
        streams.launch(exchange, me, args, grants)


@dataclass(frozen=True)
class Broken(Mended):
    """One slot."""

    slots = 1
