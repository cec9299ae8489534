"""The colour of a flag is an argument of the host, and a captured graph replays it: the flag is there already.

xccl-emu fuzz corpus/captured_colour/captured_colour.py:Broken
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xccl_emu.check.verdict import DATA_RACE
from xccl_emu.corpus import parts
from xccl_emu.lang import kernel, load, poll_ge, put, quiet, store
from xccl_emu.machine import Buffer, Pod, small_pod
from xccl_emu.protocol import Bench, Call, size
from xccl_emu.protocol.corpus import Member
from xccl_emu.protocol.streams import StreamCase, Streams

MEMBER = Member(("ROCm/aiter#3928",), DATA_RACE, "a call replayed with its arguments frozen", tool="fuzz")


@kernel
def copy(source, target, words):
    """Operands into the buffer of the graph, or results out of it: no part of what is captured."""
    yield from parts.copy(source, target, words)


@kernel
def exchange(input, output, slots, peer_slots, flag, peer_flag, count, words, colour, mended):
    """Write to the peer's slot, say so by a flag of this call's colour, and read when the own flag has it."""
    if mended:
        colour = yield load(count)
        colour += 1
        yield store(count, colour)
    slot = colour % 2 * 32
    yield from parts.copy(input, peer_slots + slot, words)
    yield quiet()
    yield put(peer_flag, colour)
    yield poll_ge(flag, colour)
    yield from parts.copy(slots + slot, output, words)


@dataclass(frozen=True)
class Mended(StreamCase):
    """Each rank counts its calls in memory, and takes the colour from there."""

    words: int = size(1, "Words of 8 bytes that a rank sends.", most=3, each_call=True)
    mended: ClassVar[int] = 1
    replayed = True

    def lay_out_calls(self, bench: Bench, calls: Sequence[Call]) -> None:
        """Two ranks, an input and an output each, which the graph knows; the host counts calls that are no replay."""
        pod = bench.pod(small_pod(2, app_bytes=4096, meta_bytes=64, managed_bytes=64, ub_bytes=32))
        streams = Streams(bench, pod)
        static = [(pod.alloc(me, 32), pod.alloc(me, 32)) for me in range(2)]
        colours = list[int]()
        for number, call in enumerate(calls):
            colours.append(1 + len(set(colours)) if call.again is None else colours[call.again])
            for me in range(2):
                self._launch(bench, pod, streams, static[me], number, call.case.words, colours[-1], me)
        streams.put()

    def _launch(
        self,
        bench: Bench,
        pod: Pod,
        streams: Streams,
        static: tuple[Buffer, Buffer],
        number: int,
        words: int,
        colour: int,
        me: int,
    ) -> None:
        (input, output), peer = static, 1 - me
        own, out = parts.swapped(bench, number, words, me)
        grants = [
            pod.grant(own, "r"), pod.grant(out, "w"), pod.grant(input, "rw"), pod.grant(output, "rw"),
            pod.grant_managed("r", me), pod.grant_managed("w", peer), pod.grant_meta("rw", me),
            pod.grant_meta("w", peer),
        ]  # fmt: skip
        captured = {
            "input": input.address, "output": output.address, "slots": pod.managed(me),
            "peer_slots": pod.managed(peer), "flag": pod.meta(me), "peer_flag": pod.meta(peer),
            "count": pod.meta(me, 32), "words": words, "colour": colour, "mended": self.mended,
        }  # fmt: skip
        streams.launch(copy, me, {"source": own.address, "target": input.address, "words": words}, grants)
        streams.launch(exchange, me, captured, grants)
        streams.launch(copy, me, {"source": output.address, "target": out.address, "words": words}, grants)


@dataclass(frozen=True)
class Broken(Mended):
    """The host counts, and the colour is an argument."""

    mended = 0
