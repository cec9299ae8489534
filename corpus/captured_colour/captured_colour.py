"""The colour of a flag is an argument of the host, and a captured graph replays it: the flag is there already.

xccl-emu fuzz corpus/captured_colour/captured_colour.py:Broken
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xccl_emu.check.verdict import DATA_RACE
from xccl_emu.corpus import parts
from xccl_emu.lang import kernel, load, poll_ge, put, quiet, store
from xccl_emu.machine import Buffer, Pod
from xccl_emu.protocol import Bench, Call, size
from xccl_emu.protocol.corpus import Member
from xccl_emu.protocol.streams import Streams

MEMBER = Member(("ROCm/aiter#3928",), DATA_RACE, "a call replayed with its arguments frozen", tool="fuzz")


@kernel
def copy(source, target, words):
    """Operands into the buffer of the graph, or results out of it: no part of what is captured."""
    yield from parts.copy(source, target, words)


@kernel
def exchange(input, output, slots: parts.Both, flag: parts.Both, count, words, colour, mended):
    """Write to the peer's slot, say so by a flag of this call's colour, and read when the own flag has it."""
    if mended:
        colour = yield load(count)
        colour += 1
        yield store(count, colour)
    slot = colour % 2 * 32
    yield from parts.copy(input, slots.peer + slot, words)
    yield quiet()
    yield put(flag.peer, colour)
    yield poll_ge(flag.own, colour)
    yield from parts.copy(slots.own + slot, output, words)


@dataclass(frozen=True)
class Mended(parts.Pair):
    """Each rank counts its calls in memory, and takes the colour from there."""

    words: int = size(1, "Words of 8 bytes that a rank sends.", most=3, each_call=True)
    mended: ClassVar[int] = 1
    replayed = True
    room: ClassVar[dict[str, int]] = {"app_bytes": 4096, "meta_bytes": 64, "managed_bytes": 64}

    def keep(self, pod: Pod) -> list[tuple[Buffer, Buffer]]:
        """An input and an output of each rank, which the graph knows."""
        return [(pod.alloc(me, 32), pod.alloc(me, 32)) for me in range(2)]

    def launch(self, bench: Bench, streams: Streams, turn: parts.Turn) -> None:
        """The call between copies to and from what the graph knows."""
        pod, me, words = turn.pod, turn.me, turn.case.words
        input, output = turn.kept[me]
        own, out, _, grants = turn.swap(bench, parts.numbered(turn.number, words, words))
        grants += [pod.grant(input, "rw"), pod.grant(output, "rw"), *turn.grants(meta=("rw", "w"))]
        captured = {
            "slots": turn.managed(), "flag": turn.meta(), "input": input.address, "output": output.address,
            "count": pod.meta(me, 32), "words": words, "colour": colour(turn.calls, turn.number), "mended": self.mended,
        }  # fmt: skip
        into = {"source": own.address, "target": input.address, "words": words}
        pod.launch(copy, me, [0], into, grants, after=streams)
        pod.launch(exchange, me, [0], captured, grants, after=streams)
        away = {"source": output.address, "target": out.address, "words": words}
        pod.launch(copy, me, [0], away, grants, after=streams)


def colour(calls: Sequence[Call], number: int) -> int:
    """The host counts calls that are no replay; a replay has the colour of the call that it is of."""
    again = calls[number].again
    return 1 + sum(call.again is None for call in calls[:number]) if again is None else colour(calls, again)


@dataclass(frozen=True)
class Broken(Mended):
    """The host counts, and the colour is an argument."""

    mended = 0
