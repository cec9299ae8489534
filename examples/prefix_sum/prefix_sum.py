"""Prefix sums as a case: all that the commands need to run, check, time, trace and compare them.

    xccl-emu check examples/prefix_sum/prefix_sum.py:PrefixSum --dies 3 --each-sync
"""

from dataclasses import dataclass
from typing import ClassVar

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from prefix_sum_kernel import Chain, prefix_sum

from xccl_emu.lang import BF16, FP16
from xccl_emu.machine import Buffer, Pod
from xccl_emu.protocol import Bench, Case, Regions, choice, size

DTYPES = {"bf16": (BF16, ml_dtypes.bfloat16), "fp16": (FP16, np.float16)}


@dataclass(frozen=True)
class PrefixSum(Case):
    """Die r gets the sum of what dies 0 to r have, chunk by chunk along a chain; MPI calls it a scan."""

    dies: int = size(3, "Dies of the chain.", least=2, most=768)
    elements: int = size(16, "Elements of a chunk.", least=2)
    chunks: int = size(3, "Chunks that each die has.")
    slots: int = size(1, "Chunks that an inbox has room for.")
    dtype: str = choice("fp16", "Type of the elements; sums are rounded to it on each die.", of=DTYPES)
    seed: int = size(0, "Of the values.", least=0)

    def values(self) -> NDArray[np.generic]:
        """The dies' own numbers, [dies, chunks, elements]."""
        drawn = np.random.default_rng(self.seed).standard_normal((self.dies, self.chunks, self.elements))
        return drawn.astype(DTYPES[self.dtype][1])

    def sums(self) -> NDArray[np.generic]:
        """The sums that they must have in the end, the same shape: each adds its own to its left neighbour's."""
        values = self.values()
        sums = [values[0]]
        for own in values[1:]:
            sums.append((own.astype(np.float32) + sums[-1].astype(np.float32)).astype(own.dtype))
        return np.stack(sums)

    def lay_out(self, bench: Bench) -> None:
        """An inbox of ``slots`` chunks on each die, filled by its left neighbour; ``tail`` and ``ack`` count."""
        chunk, regions = 2 * self.elements, Regions(self.dies)
        inbox = regions.managed("inbox", chunk, self.slots)
        tail, ack = regions.meta("tail"), regions.meta("ack")
        app = 2 * (self.chunks * chunk + 32)
        pod = regions.pod(bench, app_bytes=app, ub_bytes=3 * inbox.step + 4 * self.elements)
        values, sums = self.values(), self.sums()
        for me in range(self.dies):
            own = bench.filled(me, values[me], "own")
            out = bench.wanted(me, sums[me], "sum", owners=f"die{me}")
            self._launch(pod, me, (own, out), (inbox, tail, ack))

    def _launch(self, pod: Pod, me: int, buffers: tuple[Buffer, Buffer], regions: tuple) -> None:
        (own, out), (inbox, tail, ack) = buffers, regions
        left, right = max(me - 1, 0), min(me + 1, self.dies - 1)
        chain = Chain(
            inbox.at(me), tail.at(me), ack.at(me), inbox.at(right), tail.at(right), ack.at(left), me == 0,
            me == self.dies - 1, self.chunks, nbytes=2 * self.elements, step=inbox.step, slots=self.slots,
            dtype=DTYPES[self.dtype][0],
        )  # fmt: skip
        grants = [
            pod.grant(own, "r"), pod.grant(out, "w"), inbox.grant(me, "r"), inbox.grant(right, "w"),
            tail.grant(me, "r"), tail.grant(right, "w"), ack.grant(me, "r"), ack.grant(left, "w"),
        ]  # fmt: skip
        pod.launch(prefix_sum, me, [0], {"own": own.address, "out": out.address, "c": chain}, grants)

    @property
    def payload_bytes(self) -> int:
        """Bytes that each die has, and gets."""
        return 2 * self.chunks * self.elements

    @property
    def bus_factor(self) -> float:
        """A link carries each byte once."""
        return 1.0

    proof_rows: ClassVar = {
        "three dies": {},
        "two dies, two slots": dict(dies=2, slots=2),
        "two dies, chunks of two granules": dict(dies=2, elements=32),
    }
