"""A Lamport buffer cleaned by the size of this call, and not of the one that has filled it: stale words stay.

xccl-emu fuzz corpus/stale_lamport/stale_lamport.py:Broken
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from xccl_emu.check.verdict import WRONG_BITS
from xccl_emu.corpus.parts import Both, Swap, Turn
from xccl_emu.lang import Kernel, kernel, load, poll_ne, quiet, store
from xccl_emu.machine.launch import Grant
from xccl_emu.protocol.corpus import Member

MEMBER = Member(("NVIDIA/TensorRT-LLM#6237",), WRONG_BITS, "four calls, the second shorter", tool="fuzz")

EMPTY = 0
"""The word that means that nothing has come; no payload has it."""


@kernel
def exchange(own, out, buffers: Both, words, cleaned, call):
    """Write to the peer's buffer of this call, take each word as soon as it is there, and clean the buffer of the call
    before, which the call after the next uses."""
    now, before = call % 3 * 32, (call + 2) % 3 * 32
    for i in range(words):
        value = yield load(own + 8 * i)
        yield store(buffers.peer + now + 8 * i, value)
    for i in range(words):
        value = yield poll_ne(buffers.own + now + 8 * i, EMPTY)
        yield store(out + 8 * i, value)
    for i in range(cleaned):
        yield store(buffers.own + before + 8 * i, EMPTY)
    yield quiet()


@dataclass(frozen=True)
class Mended(Swap):
    """As many words are cleaned as the call before has filled."""

    mended: ClassVar[int] = 1
    room: ClassVar[dict[str, int]] = {"meta_bytes": 96}

    def called(self, turn: Turn) -> tuple[Kernel, dict[str, Any], list[Grant]]:
        """Three buffers each, in turn; they lie in metadata, which is empty at first."""
        before = turn.calls[turn.number - 1].case.words if turn.number else 0
        cleaned = before if self.mended else turn.case.words
        grants = [turn.pod.grant_meta("rw", turn.me), turn.pod.grant_meta("w", turn.peer)]
        return exchange, {"buffers": turn.meta(), "cleaned": cleaned, "call": turn.number}, grants


@dataclass(frozen=True)
class Broken(Mended):
    """As many words are cleaned as this call has."""

    mended = 0
