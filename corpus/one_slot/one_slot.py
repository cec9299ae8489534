"""One staging slot, stored before the peer is awaited: the next call overwrites what the peer still reads.

xccl-emu fuzz corpus/one_slot/one_slot.py:Broken
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from xccl_emu.check.verdict import DATA_RACE
from xccl_emu.corpus.parts import Pair, copy
from xccl_emu.lang import Kernel, kernel, poll_ge, put, quiet
from xccl_emu.machine import Pod
from xccl_emu.machine.launch import Grant
from xccl_emu.protocol.corpus import Member

MEMBER = Member(("lightseekorg/tokenspeed#1356",), DATA_RACE, "two calls", tool="fuzz")


@kernel
def exchange(own, out, slot, peer_slot, flag, peer_flag, words, call):
    """Stage the own words, say so, and read those of the peer when it has said so."""
    yield from copy(own, slot, words)
    yield quiet()
    yield put(peer_flag, call)
    yield poll_ge(flag, call)
    yield from copy(peer_slot, out, words)


@dataclass(frozen=True)
class Mended(Pair):
    """Two slots in turn: who stages call i + 2 has seen the flag of call i + 1, so its peer is through with call i."""

    slots: ClassVar[int] = 2
    room: ClassVar[dict[str, int]] = {"managed_bytes": 64}

    def called(self, pod: Pod, number: int, me: int, peer: int) -> tuple[Kernel, dict[str, Any], list[Grant]]:
        """With the slot of its turn."""
        offset = number % self.slots * 32
        args = {
            "slot": pod.managed(me, offset), "peer_slot": pod.managed(peer, offset),
            "flag": pod.meta(me), "peer_flag": pod.meta(peer), "call": number + 1,
        }  # fmt: skip
        grants = [
            pod.grant_managed("w", me), pod.grant_managed("r", peer),
            pod.grant_meta("r", me), pod.grant_meta("w", peer),
        ]  # fmt: skip
        return exchange, args, grants


@dataclass(frozen=True)
class Broken(Mended):
    """One slot."""

    slots = 1
