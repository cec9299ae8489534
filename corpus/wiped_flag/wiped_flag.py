"""A flag is cleaned behind a call, without a barrier: the peer's flag of the next call may be there already.

xccl-emu fuzz corpus/wiped_flag/wiped_flag.py:Broken
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xccl_emu.check.verdict import DEADLOCK
from xccl_emu.lang import kernel, load, poll_ge, put, quiet, store
from xccl_emu.machine import Pod, small_pod
from xccl_emu.protocol import Bench, Call, size
from xccl_emu.protocol.corpus import Member
from xccl_emu.protocol.streams import StreamCase, Streams

MEMBER = Member(("uccl-project/uccl#993",), DEADLOCK, "two calls, the peer ahead", tool="fuzz")


def copy(source, target, words):
    """Copy so many words, one by one."""
    for i in range(words):
        value = yield load(source + 8 * i)
        yield store(target + 8 * i, value)


@kernel
def exchange(own, out, inbox, peer_inbox, flag, peer_flag, words):
    """Write to the peer's inbox, say so, take what has come, and clean the own flag for a later call."""
    yield from copy(own, peer_inbox, words)
    yield quiet()
    yield put(peer_flag, 1)
    yield poll_ge(flag, 1)
    yield from copy(inbox, out, words)
    yield put(flag, 0)
    yield quiet()


@dataclass(frozen=True)
class Mended(StreamCase):
    """Two flags in turn: the peer sets one again only when it has seen the other, which is set behind the cleaning."""

    words: int = size(1, "Words of 8 bytes that a rank sends.", most=3, each_call=True)
    flags: ClassVar[int] = 2

    def lay_out_calls(self, bench: Bench, calls: Sequence[Call]) -> None:
        """Two ranks with two inboxes each, in turn."""
        pod = bench.pod(small_pod(2, app_bytes=2048, meta_bytes=64, managed_bytes=64, ub_bytes=32))
        streams = Streams(bench, pod)
        for number, call in enumerate(calls):
            for me in range(2):
                self._launch(bench, pod, streams, number, call.case.words, me)
        streams.put()

    def _launch(self, bench: Bench, pod: Pod, streams: Streams, number: int, words: int, me: int) -> None:
        peer, sent = 1 - me, 100 * number + 10 * np.arange(2)[:, None] + np.arange(1, words + 1)
        own = bench.filled(me, sent[me], f"own of call {number}")
        out = bench.wanted(me, sent[peer], f"received in call {number}", owners=f"die{me}")
        inbox, flag = number % 2 * 32, number % self.flags * 32
        args = {
            "own": own.address, "out": out.address, "words": words, "inbox": pod.managed(me, inbox),
            "peer_inbox": pod.managed(peer, inbox), "flag": pod.meta(me, flag), "peer_flag": pod.meta(peer, flag),
        }  # fmt: skip
        grants = [
            pod.grant(own, "r"), pod.grant(out, "w"), pod.grant_managed("r", me), pod.grant_managed("w", peer),
            pod.grant_meta("rw", me), pod.grant_meta("w", peer),
        ]  # fmt: skip
        streams.launch(exchange, me, args, grants)


@dataclass(frozen=True)
class Broken(Mended):
    """One flag."""

    flags = 1
