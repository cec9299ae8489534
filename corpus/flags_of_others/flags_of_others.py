"""Dispatch and combine run at once, and each cleans the flags of both.

xccl-emu fuzz corpus/flags_of_others/flags_of_others.py:Broken
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xccl_emu.check.verdict import DEADLOCK
from xccl_emu.lang import kernel, load, poll_ge, put, quiet, store
from xccl_emu.machine import Pod, small_pod
from xccl_emu.protocol import Bench, Call, choice
from xccl_emu.protocol.corpus import Member
from xccl_emu.protocol.streams import StreamCase, Streams

MEMBER = Member(("deepseek-ai/DeepEP#513",), DEADLOCK, "two calls at once", tool="fuzz")

STREAMS = ("dispatch", "combine")


@kernel
def exchange(own, out, inbox, peer_inbox, flag, peer_flag, first, last):
    """Write a word to the peer's inbox, say so, take what has come, and clean flags ``first`` to ``last``."""
    value = yield load(own)
    yield store(peer_inbox, value)
    yield quiet()
    yield put(peer_flag, 1)
    yield poll_ge(flag, 1)
    value = yield load(inbox)
    yield store(out, value)
    for i in range(first, last):
        yield put(flag + 64 * i, 0)
    yield quiet()


@dataclass(frozen=True)
class Mended(StreamCase):
    """Each cleans its own flag."""

    stream: str = choice("dispatch", "Which of the two is called.", of=STREAMS, each_call=True)
    mended: ClassVar[int] = 1

    def lay_out_calls(self, bench: Bench, calls: Sequence[Call]) -> None:
        """Two ranks with a core for each stream; each stream has two inboxes and flags, in turn."""
        pod = bench.pod(small_pod(2, 2, app_bytes=2048, meta_bytes=128, managed_bytes=128, ub_bytes=32))
        streams, counted = Streams(bench, pod), [0, 0]
        for number, call in enumerate(calls):
            core = STREAMS.index(call.case.stream)
            for me in range(2):
                self._launch(bench, pod, streams, number, (core, counted[core] % 2), me)
            counted[core] += 1
        streams.put()

    def _launch(self, bench: Bench, pod: Pod, streams: Streams, number: int, place: tuple[int, int], me: int) -> None:
        (core, turn), peer, sent = place, 1 - me, 100 * number + np.arange(1, 3)
        own = bench.filled(me, sent[me : me + 1], f"own of call {number}")
        out = bench.wanted(me, sent[peer : peer + 1], f"received in call {number}", owners=f"die{me}.core{core}")
        at = 64 * core + 32 * turn
        args = {
            "own": own.address, "out": out.address, "inbox": pod.managed(me, at), "peer_inbox": pod.managed(peer, at),
            "flag": pod.meta(me, at), "peer_flag": pod.meta(peer, at),
            "first": 0 if self.mended else -core, "last": 1 if self.mended else 2 - core,
        }  # fmt: skip
        grants = [
            pod.grant(own, "r"), pod.grant(out, "w"), pod.grant_managed("r", me), pod.grant_managed("w", peer),
            pod.grant_meta("rw", me), pod.grant_meta("w", peer),
        ]  # fmt: skip
        streams.launch(exchange, me, args, grants, core)


@dataclass(frozen=True)
class Broken(Mended):
    """Each cleans the flags of both."""

    mended = 0
