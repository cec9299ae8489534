"""A barrier that sets 1 and waits for at least 1 holds nobody the second time.

xccl-emu fuzz corpus/barrier_of_once/barrier_of_once.py:Broken
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from xccl_emu.check.verdict import UNWRITTEN_READ
from xccl_emu.corpus.parts import Both, Swap, Turn, copy
from xccl_emu.lang import Kernel, kernel, poll_ge, put, quiet
from xccl_emu.machine.launch import Grant
from xccl_emu.protocol.corpus import Member

MEMBER = Member(("hw-native-sys/pypto#1829", "hw-native-sys/pypto#1631"), UNWRITTEN_READ, "two calls", tool="fuzz")


@kernel
def exchange(own, out, inbox: Both, flag: Both, words, colour):
    """Write to the peer's inbox, meet it, and read what it has written to the own one."""
    yield from copy(own, inbox.peer, words)
    yield quiet()
    yield put(flag.peer, colour)
    yield poll_ge(flag.own, colour)
    yield from copy(inbox.own, out, words)


@dataclass(frozen=True)
class Mended(Swap):
    """The barrier of each call has a number of its own."""

    mended: ClassVar[int] = 1

    def room_of(self, n_calls: int) -> dict[str, int]:
        """An inbox for each call, so that nothing but the barrier says when it is full."""
        return {"managed_bytes": 32 * n_calls}

    def called(self, turn: Turn) -> tuple[Kernel, dict[str, Any], list[Grant]]:
        """Use the inbox of the call."""
        colour = turn.number + 1 if self.mended else 1
        inbox = turn.managed(32 * turn.number)
        return exchange, {"inbox": inbox, "flag": turn.meta(), "colour": colour}, turn.grants()


@dataclass(frozen=True)
class Broken(Mended):
    """Every barrier sets 1 and waits for 1."""

    mended = 0
