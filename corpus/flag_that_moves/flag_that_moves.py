"""Where a flag lies depends on the size of the call, so a call finds its flag in what an earlier one has left.

xccl-emu fuzz corpus/flag_that_moves/flag_that_moves.py:Broken
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xccl_emu.check.verdict import TORN_METADATA
from xccl_emu.corpus.parts import copy
from xccl_emu.lang import kernel, poll_ge, put, quiet, store
from xccl_emu.machine import Pod, small_pod
from xccl_emu.protocol import Bench, Call, size
from xccl_emu.protocol.corpus import Member
from xccl_emu.protocol.streams import StreamCase, Streams

MEMBER = Member(("deepseek-ai/DeepEP#313",), TORN_METADATA, "two calls, the second one shorter", tool="fuzz")


@kernel
def send(own, inbox, flag, ack, words, call):
    """Write the words and then their flag to the receiver, and wait until it has read them."""
    yield from copy(own, inbox, words)
    yield quiet()
    yield store(flag, 1)
    yield poll_ge(ack, call)


@kernel
def receive(out, inbox, flag, ack, words, call):
    """Wait for the flag, take the words, clean the flag for the next call, and acknowledge."""
    yield poll_ge(flag, 1)
    yield from copy(inbox, out, words)
    yield store(flag, 0)
    yield quiet()
    yield put(ack, call)


@dataclass(frozen=True)
class Mended(StreamCase):
    """The flag lies before the words, and stays there."""

    words: int = size(1, "Words of 8 bytes of a message.", most=3, each_call=True)
    mended: ClassVar[int] = 1

    def lay_out_calls(self, bench: Bench, calls: Sequence[Call]) -> None:
        """Die 0 sends to die 1, whose inbox lies in metadata: flag and words are zero at first."""
        pod = bench.pod(small_pod(2, app_bytes=2048, meta_bytes=64, managed_bytes=32, ub_bytes=32))
        streams = Streams(bench, pod)
        for number, call in enumerate(calls):
            self._launch(bench, pod, streams, number, call.case.words)
        streams.put()

    def _launch(self, bench: Bench, pod: Pod, streams: Streams, number: int, words: int) -> None:
        data = 100 * number + np.arange(1, words + 1)
        own = bench.filled(0, data, f"own of call {number}")
        out = bench.wanted(1, data, f"received in call {number}", owners="die1")
        flag = pod.meta(1) if self.mended else pod.meta(1, 32 + 8 * words)
        shared = {"inbox": pod.meta(1, 32), "flag": flag, "ack": pod.meta(0), "words": words, "call": number + 1}
        grants = [pod.grant(own, "r"), pod.grant_meta("w", 1), pod.grant_meta("r", 0)]
        pod.launch(send, 0, [0], {"own": own.address, **shared}, grants, after=streams)
        grants = [pod.grant(out, "w"), pod.grant_meta("rw", 1), pod.grant_meta("w", 0)]
        pod.launch(receive, 1, [0], {"out": out.address, **shared}, grants, after=streams)


@dataclass(frozen=True)
class Broken(Mended):
    """The flag lies after the words."""

    mended = 0
