"""One staging slot, stored before the peer is awaited: the next call overwrites what the peer still reads.

xccl-emu fuzz corpus/one_slot/one_slot.py:Broken
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from xccl_emu.check.verdict import DATA_RACE
from xccl_emu.corpus.parts import Both, Swap, Turn, copy
from xccl_emu.lang import Kernel, kernel, poll_ge, put, quiet
from xccl_emu.machine.launch import Grant
from xccl_emu.protocol.corpus import Member

MEMBER = Member(("lightseekorg/tokenspeed#1356",), DATA_RACE, "two calls", tool="fuzz")


@kernel
def exchange(own, out, slot: Both, flag: Both, words, call):
    """Stage the own words, say so, and read the peer's when it has said so."""
    yield from copy(own, slot.own, words)
    yield quiet()
    yield put(flag.peer, call)
    yield poll_ge(flag.own, call)
    yield from copy(slot.peer, out, words)


@dataclass(frozen=True)
class Mended(Swap):
    """Two slots in turn: who stages call i + 2 has seen the flag of call i + 1, so its peer is through with call i."""

    slots: ClassVar[int] = 2
    room: ClassVar[dict[str, int]] = {"managed_bytes": 64}

    def called(self, turn: Turn) -> tuple[Kernel, dict[str, Any], list[Grant]]:
        """Use the slot of its turn."""
        slot = turn.managed(turn.number % self.slots * 32)
        return exchange, {"slot": slot, "flag": turn.meta(), "call": turn.number + 1}, turn.grants(managed=("w", "r"))


@dataclass(frozen=True)
class Broken(Mended):
    """One slot."""

    slots = 1
