"""A flag is cleaned behind a call, without a barrier: the peer's flag of the next call may be there already.

xccl-emu fuzz corpus/wiped_flag/wiped_flag.py:Broken
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from xccl_emu.check.verdict import DEADLOCK
from xccl_emu.corpus.parts import Swap, Turn, copy
from xccl_emu.lang import Kernel, kernel, poll_ge, put, quiet
from xccl_emu.machine.launch import Grant
from xccl_emu.protocol.corpus import Member

MEMBER = Member(("uccl-project/uccl#993",), DEADLOCK, "two calls, the peer ahead", tool="fuzz")


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
class Mended(Swap):
    """Two flags in turn: the peer sets one again only when it has seen the other, which is set behind the cleaning."""

    flags: ClassVar[int] = 2
    room: ClassVar[dict[str, int]] = {"meta_bytes": 64, "managed_bytes": 64}

    def called(self, turn: Turn) -> tuple[Kernel, dict[str, Any], list[Grant]]:
        """With two inboxes, in turn."""
        inbox = turn.managed("inbox", turn.number % 2 * 32)
        return exchange, {**inbox, **turn.meta("flag", turn.number % self.flags * 32)}, turn.grants(meta=("rw", "w"))


@dataclass(frozen=True)
class Broken(Mended):
    """One flag."""

    flags = 1
