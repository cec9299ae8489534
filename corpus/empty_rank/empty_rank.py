"""A rank with nothing to send returns early, and its peer waits for a notification that never comes.

xccl-emu fuzz corpus/empty_rank/empty_rank.py:Broken
"""

from dataclasses import dataclass
from typing import ClassVar

from xccl_emu.check.verdict import WRONG_BITS
from xccl_emu.corpus.parts import Both, Pair, Turn, copy, numbered
from xccl_emu.lang import kernel, poll_ge, put, quiet
from xccl_emu.protocol import Bench, size
from xccl_emu.protocol.corpus import Member
from xccl_emu.protocol.streams import Streams

MEMBER = Member(("uccl-project/uccl#993",), WRONG_BITS, "a rank with nothing to send", tool="fuzz")


@kernel
def exchange(own, out, inbox: Both, flag: Both, sent, received, call, mended):
    """Write ``sent`` words to the peer's inbox, notify it, and take ``received`` from the own inbox when notified."""
    if sent > 0 or mended:
        yield from copy(own, inbox.peer, sent)
        yield quiet()
        yield put(flag.peer, call)
        yield poll_ge(flag.own, call)
        yield from copy(inbox.own, out, received)


@dataclass(frozen=True)
class Mended(Pair):
    """A rank with nothing to send notifies all the same."""

    first: int = size(1, "Words of 8 bytes that rank 0 sends.", least=0, most=2, each_call=True)
    second: int = size(1, "Words that rank 1 sends.", least=0, most=2, each_call=True)
    mended: ClassVar[int] = 1
    room: ClassVar[dict[str, int]] = {"managed_bytes": 64}

    def launch(self, bench: Bench, streams: Streams, turn: Turn) -> None:
        """Launch it with two inboxes, in turn."""
        sizes = turn.case.first, turn.case.second
        _, _, args, grants = turn.swap(bench, numbered(turn.number, *sizes))
        args |= {"inbox": turn.managed(turn.number % 2 * 32), "flag": turn.meta(), "call": turn.number + 1}
        args |= {"sent": sizes[turn.me], "received": sizes[turn.peer], "mended": self.mended}
        turn.pod.launch(exchange, turn.me, [0], args, [*grants, *turn.grants()], after=streams)


@dataclass(frozen=True)
class Broken(Mended):
    """A rank with nothing to send returns at once."""

    mended = 0
