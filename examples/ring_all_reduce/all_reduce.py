"""Ring all-reduce as a case: all that the commands need to run, check, time, trace and compare it.

    xccl-emu check examples/ring_all_reduce/all_reduce.py:RingAllReduce --dies 3 --each-sync
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
from all_reduce_kernel import Ring, ring_all_reduce
from numpy.typing import NDArray

from xccl_emu.lang import BF16, FP16
from xccl_emu.machine import Buffer, Pod
from xccl_emu.protocol import Bench, Case, Regions, choice, size

DTYPES = {"bf16": (BF16, ml_dtypes.bfloat16), "fp16": (FP16, np.float16)}


@dataclass(frozen=True)
class RingAllReduce(Case):
    """Every die gets the sum of what all dies have: reduce-scatter, then all-gather, around a ring."""

    dies: int = size(3, "Dies on the ring.", least=2, most=768)
    elements: int = size(16, "Elements of a chunk; each die has as many chunks as there are dies.", least=2)
    slots: int = size(1, "Chunks that an inbox has room for.")
    dtype: str = choice("fp16", "Type of the elements; sums are rounded to it at each hop.", of=DTYPES)
    seed: int = size(0, "Of the values.", least=0)

    def values(self) -> NDArray[np.generic]:
        """What the dies have, [dies, dies, elements]."""
        drawn = np.random.default_rng(self.seed).standard_normal((self.dies, self.dies, self.elements))
        return drawn.astype(DTYPES[self.dtype][1])

    def reduced(self) -> NDArray[np.generic]:
        """What each must have in the end, [dies, elements]: chunk c is summed from die c on, around the ring."""
        values = self.values()
        sums = [values[c, c] for c in range(self.dies)]
        for c in range(self.dies):
            for hop in range(1, self.dies):
                own = values[(c + hop) % self.dies, c]
                sums[c] = (own.astype(np.float32) + sums[c].astype(np.float32)).astype(own.dtype)
        return np.stack(sums)

    def lay_out(self, bench: Bench) -> None:
        """An inbox of ``slots`` chunks on each die, filled by its left neighbour; ``tail`` and ``ack`` count."""
        chunk, regions = 2 * self.elements, Regions(self.dies)
        inbox = regions.managed("inbox", chunk, self.slots)
        tail, ack = regions.meta("tail"), regions.meta("ack")
        app = 2 * (self.dies * chunk + 32)
        pod = bench.pod(regions.tight_pod(app_bytes=app, ub_bytes=3 * inbox.step + 4 * self.elements))
        regions.place(bench, pod)
        values, reduced = self.values(), self.reduced()
        for me in range(self.dies):
            own = bench.filled(me, values[me], "own")
            out = bench.wanted(me, reduced, "sum", owners=f"die{me}")
            self._launch(pod, me, (own, out), (inbox, tail, ack))

    def _launch(self, pod: Pod, me: int, buffers: tuple[Buffer, Buffer], regions: tuple) -> None:
        (own, out), (inbox, tail, ack) = buffers, regions
        left, right = (me - 1) % self.dies, (me + 1) % self.dies
        ring = Ring(
            inbox.at(me), tail.at(me), ack.at(me), inbox.at(right), tail.at(right), ack.at(left), me, self.dies,
            nbytes=2 * self.elements, step=inbox.step, slots=self.slots, dtype=DTYPES[self.dtype][0],
        )  # fmt: skip
        grants = [
            pod.grant(own, "r"), pod.grant(out, "w"), inbox.grant(me, "r"), inbox.grant(right, "w"),
            tail.grant(me, "r"), tail.grant(right, "w"), ack.grant(me, "r"), ack.grant(left, "w"),
        ]  # fmt: skip
        pod.launch(ring_all_reduce, me, [0], {"own": own.address, "out": out.address, "r": ring}, grants)

    @property
    def payload_bytes(self) -> int:
        """What each die has, and gets."""
        return 2 * self.dies * self.elements

    @property
    def bus_factor(self) -> float:
        """2 (n - 1) / n: what a ring must move for each byte."""
        return 2 * (self.dies - 1) / self.dies

    @classmethod
    def proofs(cls) -> Mapping[str, Case]:
        """Rings of two and three dies, and an inbox of two slots."""
        usual = cls()
        return {
            "three dies": usual,
            "two dies, two slots": replace(usual, dies=2, slots=2),
            "two dies, chunks of two pieces": replace(usual, dies=2, elements=32),
        }
