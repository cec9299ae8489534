"""A flag is cleaned after a call, without a barrier: the peer's flag of the next call may be there already.

xccl-emu fuzz corpus/wiped_flag/wiped_flag.py:Broken
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from xccl_emu.check.verdict import DEADLOCK
from xccl_emu.corpus.parts import Both, Swap, Turn, copy
from xccl_emu.lang import Kernel, kernel, poll_ge, put, quiet
from xccl_emu.machine.launch import Grant
from xccl_emu.protocol.corpus import Member

MEMBER = Member(("uccl-project/uccl#993",), DEADLOCK, "two calls, the peer ahead", tool="fuzz")


@kernel
def exchange(own, out, inbox: Both, flag: Both, words):
    """Write to the peer's inbox, say so, take what has come, and clean the own flag for a later call."""
    yield from copy(own, inbox.peer, words)
    yield quiet()
    yield put(flag.peer, 1)
    yield poll_ge(flag.own, 1)
    yield from copy(inbox.own, out, words)
    yield put(flag.own, 0)
    yield quiet()


@dataclass(frozen=True)
class Mended(Swap):
    """Two flags in turn: the peer sets one again only when it has seen the other, which is set after the cleaning."""

    flags: ClassVar[int] = 2
    room: ClassVar[dict[str, int]] = {"meta_bytes": 64, "managed_bytes": 64}

    def called(self, turn: Turn) -> tuple[Kernel, dict[str, Any], list[Grant]]:
        """Use two inboxes, in turn."""
        inbox, flag = turn.managed(turn.number % 2 * 32), turn.meta(turn.number % self.flags * 32)
        return exchange, {"inbox": inbox, "flag": flag}, turn.grants(meta=("rw", "w"))


@dataclass(frozen=True)
class Broken(Mended):
    """One flag."""

    flags = 1
