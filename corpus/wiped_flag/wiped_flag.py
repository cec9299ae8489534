"""A flag is cleaned behind a call, without a barrier: the peer's flag of the next call may be there already.

xccl-emu fuzz corpus/wiped_flag/wiped_flag.py:Broken
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from xccl_emu.check.verdict import DEADLOCK
from xccl_emu.corpus.parts import Pair, copy
from xccl_emu.lang import Kernel, kernel, poll_ge, put, quiet
from xccl_emu.machine import Pod
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
class Mended(Pair):
    """Two flags in turn: the peer sets one again only when it has seen the other, which is set behind the cleaning."""

    flags: ClassVar[int] = 2
    room: ClassVar[dict[str, int]] = {"meta_bytes": 64, "managed_bytes": 64}

    def called(self, pod: Pod, number: int, me: int, peer: int) -> tuple[Kernel, dict[str, Any], list[Grant]]:
        """With two inboxes, in turn."""
        inbox, flag = number % 2 * 32, number % self.flags * 32
        args = {
            "inbox": pod.managed(me, inbox), "peer_inbox": pod.managed(peer, inbox),
            "flag": pod.meta(me, flag), "peer_flag": pod.meta(peer, flag),
        }  # fmt: skip
        grants = [
            pod.grant_managed("r", me), pod.grant_managed("w", peer),
            pod.grant_meta("rw", me), pod.grant_meta("w", peer),
        ]  # fmt: skip
        return exchange, args, grants


@dataclass(frozen=True)
class Broken(Mended):
    """One flag."""

    flags = 1
