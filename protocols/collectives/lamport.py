"""Lamport's one-shot all-reduce as a case."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu.kernels.collectives.lamport import BUFFERS, LINE_BYTES, LamportRank, lamport
from xccl_emu.kernels.group import align
from xccl_emu.machine.device.layout import ATOMIC_BYTES
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.oracle.collectives import sum_without_empty
from xccl_emu.protocol import Bench, Call, Preset, Region, Regions, choice, size
from xccl_emu.protocol.streams import StreamCase, Streams, of_call, seed_of


@dataclass(frozen=True)
class Lamport(StreamCase):
    """All ranks add up what they have, ``calls`` times, and the data themselves say that they are in."""

    side_by_side = True
    presets = (
        Preset("all-reduce-lamport", "Sums for all, of data that are their own flags: three buffers in turn",
               each_sync={"ranks": 2, "calls": 4}),
    )  # fmt: skip

    ranks: int = size(3, "LamportRank, one a die.", least=2, most=64)
    lines: int = size(
        1, "Lines of 16 bytes, with four FP32 elements each, of an operand.", most=1024, examples=(2, 3), each_call=True
    )
    odd_lines: int = size(1, "The same of the calls 1, 3 and so on.", most=1024, examples=(2, 3), each_call=True)
    calls: int = size(3, "Calls back to back, in one kernel.", most=1 << 16, examples=(1, 2, 4), each_call=True)
    atomic_bytes: int = choice(16, "Bytes that become visible at once; 4, an element, are enough.", of=ATOMIC_BYTES)
    seed: int = size(0, "Of the values.", least=0, most=None)
    emptied: ClassVar[int] = 2
    """Number of the buffer to empty, counted from the buffer of the call on."""

    def values(self, launch: int = 0) -> list[NDArray[np.float32]]:
        """The ranks' operands, for each call [ranks, elements]; some are -0.0, and some zero on all ranks.

        Other values in each launch.
        """
        rng, calls = np.random.default_rng(seed_of(self.seed, launch)), []
        for call in range(self.calls):
            drawn = rng.standard_normal((self.ranks, 4 * self._lines(call))).astype(np.float32)
            drawn[call % self.ranks, call % 4] = -0.0
            drawn[:, -1] = -0.0 if call % 2 else drawn[:, -1]
            calls.append(drawn)
        return calls

    def _lines(self, call: int) -> int:
        return self.odd_lines if call % 2 else self.lines

    def lay_out_calls(self, bench: Bench, calls: Sequence[Call]) -> None:
        """Three buffers on each die, with a place for each rank and the longest operand, all empty; a launch each
        call."""
        cases = [call.case for call in calls if isinstance(call.case, Lamport)]
        room = align(LINE_BYTES * max(max(case.lines, case.odd_lines) for case in cases))
        regions = Regions(self.ranks)
        buffers = regions.managed("buffer", room, BUFFERS * self.ranks)
        app = sum(2 * align(case.payload_bytes) for case in cases) + Streams.table_bytes(len(cases), lamport)
        pod = regions.pod(bench, app_bytes=app, ub_bytes=(3 + self.ranks) * room, atomic_bytes=self.atomic_bytes)
        for me in range(self.ranks):
            self._fill(bench, pod, me, buffers.at(me), room)
        streams, done, before = Streams(bench, pod), 0, 0
        for number, case in enumerate(cases):
            ranks = LamportRank(
                0, self.ranks, buffers.at(0), pod.spec.die_bytes, room, LINE_BYTES * case.lines,
                LINE_BYTES * case.odd_lines, case.calls, self.emptied, done, before,
            )  # fmt: skip
            case._launch(bench, pod, streams, buffers, number, ranks)
            done, before = done + case.calls, LINE_BYTES * case._lines(case.calls - 1)
        streams.put()
        bench.tolerates("stop", "cut", "stall")

    def _launch(
        self, bench: Bench, pod: Pod, streams: Streams, buffers: Region, number: int, ranks: LamportRank
    ) -> None:
        """Every rank's launch of a call."""
        values, call = self.values(number), of_call(number)
        sums = np.concatenate([sum_without_empty(operands) for operands in values])
        for me in range(self.ranks):
            own = bench.filled(me, np.concatenate([operands[me] for operands in values]), f"own{call}")
            out = bench.wanted(me, sums, f"sum{call}", owners=f"die{me}")
            others = buffers.at(0).on(*(rank for rank in range(self.ranks) if rank != me))
            args = {"own": own.address, "out": out.address, "p": ranks._replace(me=me, buffers=others)}
            pod.launch(lamport, me, [0], args, after=streams)

    def _fill(self, bench: Bench, pod: Pod, me: int, address: int, room: int) -> None:
        """All places of a die are empty at first."""
        buffer = Buffer(me, address, BUFFERS * self.ranks * room)
        pod.span(address, buffer.nbytes).view(np.float32)[:] = -0.0
        bench.already_filled(buffer)

    @property
    def payload_bytes(self) -> int:
        """Payload of each rank in bytes."""
        return LINE_BYTES * sum(self._lines(call) for call in range(self.calls))

    proof_rows: ClassVar = {
        "three ranks, three calls": {},
        "two ranks, four calls": dict(ranks=2, calls=4),
        "an operand that grows and shrinks": dict(ranks=2, calls=4, odd_lines=2),
        "half a line at once": dict(ranks=2, calls=2, atomic_bytes=8),
    }
