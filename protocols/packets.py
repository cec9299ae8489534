"""NCCL's protocols LL and LL128 as cases: transfers in lines that carry their own flags ([NCCL])."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu.kernels.group import align
from xccl_emu.kernels.packets import ll, ll128
from xccl_emu.kernels.packets.ll import Slots
from xccl_emu.lang import Kernel
from xccl_emu.machine.device.layout import ATOMIC_BYTES
from xccl_emu.machine.pod import Pod
from xccl_emu.protocol import Bench, Call, Preset, Regions, choice, size
from xccl_emu.protocol.streams import StreamCase, Streams, of_call, seed_of


@dataclass(frozen=True)
class Packets(StreamCase):
    """Rank 0 sends ``steps`` slots of ``lines`` lines to rank 1; a line is of 16 bytes (LL) or of 128 (LL128)."""

    side_by_side = True
    presets: ClassVar[tuple[Preset, ...]] = (
        Preset("ll", "Send and receive in lines of 16 bytes, half of it flags, as NCCL's LL", {"line": 16}),
        Preset("ll128", "Send and receive in lines of 128 bytes with a flag, as NCCL's LL128",
               {"line": 128, "atomic_bytes": 128}),
    )  # fmt: skip

    line: int = choice(16, "Bytes of a line.", of=(16, 128))
    steps: int = size(3, "Slots that are sent.", most=1 << 20, examples=(1, 2, 5), each_call=True)
    lines: int = size(
        2, "Lines of a slot, each with 8 or 120 bytes of data.", most=256, examples=(1, 3), each_call=True
    )
    slots: int = size(2, "Slots that may be on their way; NCCL has 8.", most=64)
    atomic_bytes: int = choice(8, "Bytes that become visible at once: LL needs 8, LL128 needs 128.", of=ATOMIC_BYTES,
                              examples=(8, 16, 32))  # fmt: skip
    seed: int = size(0, "Of the payload.", least=0, most=None)

    def payload(self, launch: int = 0) -> NDArray[np.uint8]:
        """The data of rank 0 that rank 1 gets, [steps, lines, bytes of data of a line]; other data in each launch."""
        shape = (self.steps, self.lines, self._data)
        return np.random.default_rng(seed_of(self.seed, launch)).integers(1, 256, shape, np.uint8)

    @property
    def _data(self) -> int:
        return ll.DATA_BYTES if self.line == ll.LINE_BYTES else ll128.DATA_BYTES

    def _kernels(self) -> tuple[Kernel, Kernel]:
        short = self.line == ll.LINE_BYTES
        return (ll.send_ll, ll.receive_ll) if short else (ll128.send_ll128, ll128.receive_ll128)

    def lay_out_calls(self, bench: Bench, calls: Sequence[Call]) -> None:
        """Slots with room for the most lines on rank 1's die, the credit on rank 0's; a launch each call."""
        cases = [call.case for call in calls if isinstance(call.case, Packets)]
        lines, payloads = max(case.lines for case in cases), [case.payload(i) for i, case in enumerate(cases)]
        regions = Regions(2)
        slots = regions.managed("slot", lines * self.line, self.slots)
        credit = regions.meta("credit", 128)  # so that the slots after it are on lines of their own
        app = sum(align(each.nbytes) for each in payloads) + Streams.table_bytes(len(cases), *self._kernels())
        app += -app % 128
        spec = regions.tight_pod(app_bytes=app, ub_bytes=lines * (self.line + self._data))
        areas = app + spec.meta_bytes + spec.managed_bytes
        pod = bench.pod(spec.with_(atomic_bytes=self.atomic_bytes, die_bytes=1 << areas.bit_length()))
        regions.place(bench, pod)
        pod.span(slots.at(1), self.slots * slots.step)[:] = 0  # flags of another communicator would be taken for these
        streams, done = Streams(bench, pod), 0
        for number, (case, payload) in enumerate(zip(cases, payloads, strict=True)):
            params = Slots(slots.at(1), credit.at(0), self.slots, slots.step, case.lines, case.steps, done)
            case._launch(bench, pod, streams, of_call(number), payload, params)
            done += case.steps
        streams.put()
        bench.tolerates("stop", "cut", "stall")

    def _launch(
        self, bench: Bench, pod: Pod, streams: Streams, call: str, payload: NDArray[np.uint8], params: Slots
    ) -> None:
        """Both sides of a call."""
        send, receive = self._kernels()
        own = bench.filled(0, payload, f"own{call}")
        out = bench.wanted(1, payload, f"out{call}", owners="die1")
        pod.launch(send, 0, [0], {"own": own.address, "s": params}, after=streams)
        pod.launch(receive, 1, [0], {"out": out.address, "s": params}, after=streams)

    @property
    def payload_bytes(self) -> int:
        """Payload of all steps in bytes."""
        return self.steps * self.lines * self._data

    proof_rows: ClassVar = {
        "two lines a slot": {},
        "one slot": dict(slots=1),
        "five steps": dict(steps=5),
        "a line at once": dict(atomic_bytes=16),
        "two lines a slot of 128 bytes": dict(line=128, atomic_bytes=128),
        "one slot of 128 bytes": dict(line=128, atomic_bytes=128, slots=1),
    }
