"""What members of the corpus share: how kernels copy, and two ranks that send each other words in each call."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from xccl_emu.lang import MTU_IN, SCALAR, Kernel, load, mtu_in, set_flag, store, wait_flag
from xccl_emu.machine import Buffer, Pod, small_pod
from xccl_emu.machine.launch import Grant
from xccl_emu.protocol import Bench, Call, size
from xccl_emu.protocol.streams import StreamCase, Streams


def read(source, nbytes):
    """Copy so many bytes to the start of the data buffer, and wait until they are there."""
    yield mtu_in(source, 0, nbytes)
    yield set_flag(MTU_IN, SCALAR, 0)
    yield wait_flag(MTU_IN, SCALAR, 0)


def copy(source, target, words):
    """Copy so many words, one by one."""
    for i in range(words):
        value = yield load(source + 8 * i)
        yield store(target + 8 * i, value)


def swapped(bench: Bench, number: int, words: int, me: int) -> tuple[Buffer, Buffer]:
    """What a rank sends in a call, and where what its peer sends must be in the end."""
    sent = 100 * number + 10 * np.arange(2)[:, None] + np.arange(1, words + 1)
    own = bench.filled(me, sent[me], f"own of call {number}")
    return own, bench.wanted(me, sent[1 - me], f"received in call {number}", owners=f"die{me}")


@dataclass(frozen=True)
class Pair(StreamCase):
    """Two ranks, each with a launch for every call."""

    words: int = size(1, "Words of 8 bytes that a rank sends.", most=3, each_call=True)
    room: ClassVar[dict[str, int]] = {}
    """Areas of the pod that are not of these sizes: 2 KiB of app data and 32 bytes of each other one."""

    def lay_out_calls(self, bench: Bench, calls: Sequence[Call]) -> None:
        """On a pod with this room."""
        room = {"app_bytes": 2048, "meta_bytes": 32, "managed_bytes": 32, "ub_bytes": 32} | self.room
        pod = bench.pod(small_pod(2, **room))
        streams = Streams(bench, pod)
        for number, call in enumerate(calls):
            for me in range(2):
                self.launch(bench, pod, streams, number, call.case.words, me)
        streams.put()

    def launch(self, bench: Bench, pod: Pod, streams: Streams, number: int, words: int, me: int) -> None:
        """The launch of one rank for a call: its own words go out, its peer's come in."""
        own, out = swapped(bench, number, words, me)
        kernel, args, grants = self.called(pod, number, me, 1 - me)
        args |= {"own": own.address, "out": out.address, "words": words}
        streams.launch(kernel, me, args, [pod.grant(own, "r"), pod.grant(out, "w"), *grants])

    def called(self, pod: Pod, number: int, me: int, peer: int) -> tuple[Kernel, dict[str, Any], list[Grant]]:
        """The kernel, its arguments beside the words, and what else it may touch."""
        raise NotImplementedError(f"{type(self).__name__}.called")
