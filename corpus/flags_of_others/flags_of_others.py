"""Dispatch and combine run at once, and each cleans the flags of both.

xccl-emu fuzz corpus/flags_of_others/flags_of_others.py:Broken
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xccl_emu.check.verdict import DEADLOCK
from xccl_emu.corpus.parts import Both, Pair, Turn
from xccl_emu.lang import kernel, load, poll_ge, put, quiet, store
from xccl_emu.protocol import Bench, choice
from xccl_emu.protocol.corpus import Member
from xccl_emu.protocol.streams import Streams

MEMBER = Member(("deepseek-ai/DeepEP#513",), DEADLOCK, "two calls at once", tool="fuzz")

STREAMS = ("dispatch", "combine")


@kernel
def exchange(own, out, inbox: Both, flag: Both, first, last):
    """Write a word to the peer's inbox, say so, take what has come, and clean flags ``first`` to ``last``."""
    value = yield load(own)
    yield store(inbox.peer, value)
    yield quiet()
    yield put(flag.peer, 1)
    yield poll_ge(flag.own, 1)
    value = yield load(inbox.own)
    yield store(out, value)
    for i in range(first, last):
        yield put(flag.own + 64 * i, 0)
    yield quiet()


@dataclass(frozen=True)
class Mended(Pair):
    """Each cleans its own flag."""

    stream: str = choice("dispatch", "Which of the two is called.", of=STREAMS, each_call=True)
    mended: ClassVar[int] = 1
    room: ClassVar[dict[str, int]] = {"meta_bytes": 128, "managed_bytes": 128}
    cores: ClassVar[int] = 2

    def launch(self, bench: Bench, streams: Streams, turn: Turn) -> None:
        """Launch it on the core of its stream; each stream has two inboxes and flags, in turn."""
        core = STREAMS.index(turn.case.stream)
        before = sum(call.case.stream == turn.case.stream for call in turn.calls[: turn.number])
        at = 64 * core + 32 * (before % 2)
        sent = (100 * turn.number + np.arange(1, 3))[:, None]
        _, _, args, grants = turn.swap(bench, sent, f"die{turn.me}.core{core}")
        cleaned = {"first": 0, "last": 1} if self.mended else {"first": -core, "last": 2 - core}
        args |= {"inbox": turn.managed(at), "flag": turn.meta(at), **cleaned}
        turn.pod.launch(exchange, turn.me, [core], args, [*grants, *turn.grants(meta=("rw", "w"))], after=streams)


@dataclass(frozen=True)
class Broken(Mended):
    """Each cleans the flags of both."""

    mended = 0
