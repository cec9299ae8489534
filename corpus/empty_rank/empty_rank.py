"""A rank with nothing to send returns early, and its peer waits for a notification that never comes.

xccl-emu fuzz corpus/empty_rank/empty_rank.py:Broken
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xccl_emu.check.verdict import WRONG_BITS
from xccl_emu.corpus.parts import copy
from xccl_emu.lang import kernel, poll_ge, put, quiet
from xccl_emu.machine import Pod, small_pod
from xccl_emu.protocol import Bench, Call, size
from xccl_emu.protocol.corpus import Member
from xccl_emu.protocol.streams import StreamCase, Streams

MEMBER = Member(("uccl-project/uccl#993",), WRONG_BITS, "a rank with nothing to send", tool="fuzz")


@kernel
def exchange(own, out, inbox, peer_inbox, flag, peer_flag, sent, received, call, mended):
    """Write ``sent`` words to the peer's inbox, notify it, and take ``received`` from the own inbox when notified."""
    if sent > 0 or mended:
        yield from copy(own, peer_inbox, sent)
        yield quiet()
        yield put(peer_flag, call)
        yield poll_ge(flag, call)
        yield from copy(inbox, out, received)


@dataclass(frozen=True)
class Mended(StreamCase):
    """A rank with nothing to send notifies all the same."""

    first: int = size(1, "Words of 8 bytes that rank 0 sends.", least=0, most=2, each_call=True)
    second: int = size(1, "Words that rank 1 sends.", least=0, most=2, each_call=True)
    mended: ClassVar[int] = 1

    def lay_out_calls(self, bench: Bench, calls: Sequence[Call]) -> None:
        """Two ranks with two inboxes each, in turn."""
        pod = bench.pod(small_pod(2, app_bytes=2048, meta_bytes=32, managed_bytes=64, ub_bytes=32))
        streams = Streams(bench, pod)
        for number, call in enumerate(calls):
            sizes = call.case.first, call.case.second
            sent = [100 * number + 10 * me + np.arange(1, words + 1) for me, words in enumerate(sizes)]
            for me in range(2):
                self._launch(bench, pod, streams, number, (sent[me], sent[1 - me]), me)
        streams.put()

    def _launch(
        self, bench: Bench, pod: Pod, streams: Streams, number: int, data: Sequence[np.ndarray], me: int
    ) -> None:
        (sent, received), peer, inbox = data, 1 - me, number % 2 * 32
        own = bench.filled(me, sent, f"own of call {number}")
        out = bench.wanted(me, received, f"received in call {number}", owners=f"die{me}")
        args = {
            "own": own.address, "out": out.address, "sent": sent.size, "received": received.size, "call": number + 1,
            "inbox": pod.managed(me, inbox), "peer_inbox": pod.managed(peer, inbox),
            "flag": pod.meta(me), "peer_flag": pod.meta(peer), "mended": self.mended,
        }  # fmt: skip
        grants = [
            pod.grant(own, "r"), pod.grant(out, "w"), pod.grant_managed("r", me), pod.grant_managed("w", peer),
            pod.grant_meta("r", me), pod.grant_meta("w", peer),
        ]  # fmt: skip
        streams.launch(exchange, me, args, grants)


@dataclass(frozen=True)
class Broken(Mended):
    """A rank with nothing to send returns at once."""

    mended = 0
