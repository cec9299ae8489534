"""Collectives as cases: reduce-scatter, all-gather, all-reduce, all-to-all, a barrier.

The collectives are from [MixServe] II, table I; the barrier is from [Dissemination].
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels.collectives import barrier, exchange, gather_by_cores, ring, sum_by_reads
from xccl_emu.kernels.collectives.slices import Work
from xccl_emu.kernels.group import align
from xccl_emu.lang import Kernel
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.oracle.collectives import by_rank, by_ring
from xccl_emu.protocol import Bench, Call, Case, Collective, Preset, Regions, choice, size, switch
from xccl_emu.protocol.case import BATCH, RANKS, Twins
from xccl_emu.protocol.streams import StreamCase, Streams, of_call, seed_of
from xccl_emu.protocols.collectives.layout import (
    BarrierLayout,
    ByCoresLayout,
    ExchangeLayout,
    NeighbourLayout,
    ReadLayout,
    SenseLayout,
)
from xccl_emu.protocols.experts.config import DTYPES

MOST = 1 << 28
BYTES_MAX = 1 << 32
"""Most bytes of all operands: more is a mistake, and would take the memory of this machine."""

_BITS = {"bf16": (0x81FF, 0x3E00, 0x4B80), "fp16": (0x8FFF, 0x0400, 0x6000)}
"""Bits of a small number that are drawn, and such as are set; and the bits of a large one but for its sign."""


def no_numbers(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """An array of zeros that takes no memory: for runs that move no payload."""
    return np.broadcast_to(np.zeros((), DTYPES[dtype][1]), shape)


def numbers(shape: tuple[int, ...], dtype: str, seed: int | Sequence[int]) -> NDArray[Any]:
    """Random numbers, none of them zero, half of them so large that FP32 rounds what is added to them.

    Large ones cancel each other, so a sum in another order has other bits.
    """
    drawn, always, large = map(np.uint16, _BITS[dtype])
    bits = np.random.default_rng(seed).integers(0, 1 << 16, shape, np.uint16)
    is_large = (bits & 0x4000).astype(bool)
    return np.where(is_large, bits & 0x8000 | large, bits & drawn | always).view(DTYPES[dtype][1])


@dataclass(frozen=True)
class Algorithm:
    """How a collective is made."""

    about: str
    kernel: str
    layout: type[ExchangeLayout]
    scatter: int = 0
    """Has each rank a share for each other one, or the same for all?"""
    reduce: int = 0
    gather: int = 0
    """Does it get something of each other one?"""
    reads: int = 0
    """Does it read that where the others have it?"""


ALGORITHMS = {
    "all-reduce-ring": Algorithm(
        "Sums for all: reduce-scatter and all-gather on a ring", "ring", NeighbourLayout, 1, 1, 1
    ),
    "all-reduce-one-shot": Algorithm("Sums for all: each rank adds up all", "exchange", ExchangeLayout, 0, 1, 0),
    "all-reduce-two-shot": Algorithm(
        "Sums for all: each adds up a share, and sends it", "exchange", ExchangeLayout, 1, 1, 1
    ),
    "reduce-scatter-ring": Algorithm("A share of the sums for each, on a ring", "ring", NeighbourLayout, 1, 1, 0),
    "reduce-scatter": Algorithm("A share of the sums for each, who adds them up", "exchange", ExchangeLayout, 1, 1, 0),
    "reduce-scatter-by-reads": Algorithm(
        "A share of the sums for each, who reads and adds them up", "sum_by_reads", ReadLayout, 1, 1, 0, 1
    ),
    "all-gather-ring": Algorithm("What each has for all, on a ring", "ring", NeighbourLayout, 0, 0, 1),
    "all-gather": Algorithm("What each has for all, written to all", "exchange", ExchangeLayout, 0, 0, 1),
    "all-gather-by-cores": Algorithm(
        "What each has for all, read by cores that share the others", "gather_by_cores", ByCoresLayout, 0, 0, 1, 1
    ),
    "all-to-all-ring": Algorithm("From each a share for each, on a ring", "ring_all_to_all", NeighbourLayout, 1, 0, 1),
    "all-to-all": Algorithm("From each a share for each, pairwise", "exchange", ExchangeLayout, 1, 0, 1),
    "barrier": Algorithm("All read what all wrote before a dissemination barrier", "meet", BarrierLayout, 0, 0, 1),
    "barrier-sense": Algorithm(
        "All read what all wrote before a barrier whose sense turns", "meet_by_sense", SenseLayout, 0, 0, 1
    ),
}


@dataclass(frozen=True)
class CollectiveCase(StreamCase, Collective):
    """A collective of ``calls`` calls back to back, each of ``ranks`` shares of ``elements`` elements.

    What is reduced is the sum over all ranks; in place, results lie where the operands were.
    """

    side_by_side = hosts_wait = True
    presets: ClassVar[tuple[Preset, ...]] = tuple(
        Preset(name, each.about, {"collective": name}) for name, each in ALGORITHMS.items()
    )

    collective: str = choice("all-reduce-ring", "Which, and by what algorithm.", of=ALGORITHMS)
    ranks: int = size(3, "Ranks, one a die.", least=2, most=768)
    cores: int = size(1, "Cores of each rank; each moves a part of every share.", most=1 << 10)
    elements: int = size(
        16, "Elements of a share; a rank has, or gets, one for each rank.", most=MOST, examples=(1, 40), each_call=True
    )
    slot: int = size(16384, "Elements that move at once.", most=24576, examples=(16, 32))
    calls: int = size(3, "Calls back to back, in one kernel.", examples=(1, 2), each_call=True)
    dtype: str = choice("bf16", "Type of the elements; sums are in FP32.", of=DTYPES)
    in_place: int = switch(0, "Results where the operands were.", each_call=True)
    seed: int = size(0, "Of the values.", least=0, most=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        nbytes = 2 * self.calls * self.ranks * self.shares_had * self._share
        if nbytes > BYTES_MAX:
            raise ConfigError("elements", self.elements, f"operands take {nbytes} bytes, must be at most {BYTES_MAX}")

    # ---- what goes in and comes out

    def values(self, launch: int = 0) -> NDArray[Any]:
        """The ranks' operands, [calls, ranks, shares, elements of a share]; other values in each launch."""
        shape = (self.calls, self.ranks, self.shares_had, self._share)
        return numbers(shape, self.dtype, seed_of(self.seed, launch))

    def results(self, values: NDArray[Any]) -> NDArray[Any]:
        """The expected results, [calls, ranks, shares, elements of a share]."""
        of = self._of
        if of.reduce:
            add_up = by_ring if of.kernel == "ring" else by_rank
            sums = np.stack([add_up(call) for call in values])[:, None]
            return sums.repeat(self.ranks, 1) if of.gather or not of.scatter else sums.swapaxes(1, 2)
        shape = (self.calls, self.ranks, self.ranks, self._share)
        return values.swapaxes(1, 2) if of.scatter else np.broadcast_to(values.swapaxes(1, 2), shape)

    @property
    def claims(self) -> tuple[str, ...]:
        """All ranks get the same, and where a column is does not matter: of sums, though not of each algorithm's."""
        return (RANKS,) * (not self._of.scatter or self._reduces_all) + (BATCH,) * self._of.reduce

    def _added_twice(self, values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return results, and what they are if ranks are added in another order."""
        results = self.results(values)
        return results, self.results(np.roll(values, 1, axis=1)) if self.reduces else results

    def reordered(self) -> tuple[int, int]:
        """Return how many sums have other bits where ranks are added in another order, and how many there are."""
        results, others = self._added_twice(self.values())
        return int(np.count_nonzero(results.view(np.uint16) != others.view(np.uint16))), results.size

    def twins(self, draw: int) -> Twins:
        """Return what each rank gets; or results, and what columns come to that changed places, put back."""
        values = replace(self, seed=self.seed + draw).values()
        results, others = self._added_twice(values)
        if self.pod_sizes["invariant"] == RANKS:
            return Twins([*results.swapaxes(0, 1)], others[:, 0])
        turned = values.reshape(*values.shape[:2], -1)[..., ::-1].reshape(values.shape)
        flat = (len(values), self.ranks, -1) if self._of.gather or not self._of.scatter else (len(values), -1)
        back = self.results(turned).reshape(flat)[..., ::-1]
        return Twins([results.reshape(flat), back], others.reshape(flat))

    def lay_out_calls(self, bench: Bench, calls: Sequence[Call]) -> None:
        """Inboxes in the managed area, flags in the metadata area, cores that have nothing in common; a launch a
        call."""
        cases = [call.case for call in calls if isinstance(call.case, CollectiveCase)]
        regions, room = Regions(self.ranks), max(align(case._slice_bytes) for case in cases)
        layout = self.inboxes(regions, room)
        app = sum(case.app_bytes for case in cases) + self.cores * Streams.table_bytes(len(cases), self.kernel)
        pod = regions.pod(bench, app_bytes=app, ub_bytes=4 * room, cores=self.cores)
        if self.reads:
            pod.level_app(range(self.ranks))
        streams, done = Streams(bench, pod, calls), [0] * self.cores
        for number, case in enumerate(cases):
            case.lay_out_call(bench, pod, streams, layout, number, done)
        streams.put()
        bench.tolerates("stop", "cut", "stall")

    def inboxes(self, regions: Regions, room: int) -> ExchangeLayout:
        """Make the inboxes and fields, with slots for slices of ``room`` bytes."""
        blocks = self.ranks - 1 if self._of.kernel == "ring_all_to_all" else 1
        return self._of.layout(regions, self.ranks, self.cores, room, blocks)

    def lay_out_call(
        self, bench: Bench, pod: Pod, streams: Streams, layout: ExchangeLayout, number: int, done: list[int]
    ) -> list[tuple[Buffer, Buffer]]:
        """Launch a call; returns operands and results of each rank.

        ``done`` is what the launches before it have counted on each core.
        """
        had, got = ((self.calls, self.ranks, shares, self._share) for shares in (self.shares_had, self._got))
        values = self.values(number) if bench.payload else no_numbers(had, self.dtype)
        results = self.results(values) if bench.payload else no_numbers(got, self.dtype)
        placed = [self._buffers(bench, pod, me, number, values[:, me], results[:, me]) for me in range(self.ranks)]
        for me, buffers in enumerate(placed):
            for core in range(self.cores):
                work = self._work(core, me, buffers, done[core])
                places = layout.given(pod, me, core, self._of.scatter, self._of.reduce, self._of.gather)
                args = dict(zip(self.kernel.params, (work, *places), strict=True))
                pod.launch(self.kernel, me, [core], args, after=streams)
        for core in range(self.cores):
            done[core] += self.calls * self._slices(core) * self._counted
        return placed

    def _buffers(
        self, bench: Bench, pod: Pod, me: int, number: int, had: NDArray[Any], got: NDArray[Any]
    ) -> tuple[Buffer, Buffer]:
        """Operands and results of a rank; twice the same in place, where one may be a share of the other."""
        call = of_call(number)
        if not self.in_place:
            own = bench.filled(me, had, f"own{call}", travels=True)
            return own, bench.wanted(me, got, f"out{call}", owners=f"die{me}")
        shape = (self.calls, max(had.shape[1], got.shape[1]), self._share)
        both = pod.alloc(me, 2 * math.prod(shape))
        bench.label_buffer(both, f"both{call}")
        bench.already_filled(both)
        if not bench.payload:
            return both, both
        before = pod.view(both, had.dtype, shape)
        before[:, self._shares(me, had.shape[1])] = had
        after = before.copy()
        after[:, self._shares(me, got.shape[1])] = got
        bench.expect(both.address, after, f"results{call} of rank {me}", owners=f"die{me}")
        return both, both

    def _work(self, core: int, me: int, buffers: tuple[Buffer, Buffer], done: int) -> Work:
        own, out = buffers
        begin = self._begin(core)
        return Work(
            own.address + 2 * (begin + self._first(me, self.shares_had)),
            out.address + 2 * (begin + self._first(me, self._got)),
            2 * self._share, self._nbytes(core), self._slices(core), self._slice_bytes, self.calls,
            own.nbytes // self.calls, out.nbytes // self.calls, DTYPES[self.dtype][0], done,
        )  # fmt: skip

    # ---- sizes

    @property
    def _of(self) -> Algorithm:
        return ALGORITHMS[self.collective]

    @property
    def kernel(self) -> Kernel:
        """Return what its cores run."""
        kernels = (
            ring.ring, ring.ring_all_to_all, exchange.exchange, gather_by_cores.gather_by_cores, barrier.meet,
            barrier.meet_by_sense, sum_by_reads.sum_by_reads,
        )  # fmt: skip
        return {kernel.name: kernel for kernel in kernels}[self._of.kernel]

    @property
    def reduces(self) -> bool:
        """Does it add up?"""
        return bool(self._of.reduce)

    @property
    def reads(self) -> bool:
        """Do ranks read what the others have, at the same offsets?"""
        return bool(self._of.reads)

    @property
    def shares_had(self) -> int:
        """Shares that a rank has."""
        return self.ranks if self._of.scatter else 1

    @property
    def _got(self) -> int:
        """Shares that it gets."""
        return self.ranks if self._of.gather else 1

    @property
    def _share(self) -> int:
        """Elements of a share; all is one, where each rank has the whole and gets it."""
        return self.elements * (1 if self._of.scatter or self._of.gather else self.ranks)

    @property
    def _part(self) -> int:
        """Elements of a share that a core moves, in whole granules; the last cores may have fewer, or none."""
        return align(2 * -(-self._share // (1 if self._whole else self.cores))) // 2

    @property
    def _whole(self) -> bool:
        """Do cores move whole shares?"""
        return self._of.layout is ByCoresLayout

    def _nbytes(self, core: int) -> int:
        """Return the bytes of a share that a core moves."""
        return 2 * min(self._part, self._share - self._begin(core))

    def _begin(self, core: int) -> int:
        """Return the elements of a share before those that a core moves."""
        return 0 if self._whole else min(core * self._part, self._share)

    def _slices(self, core: int) -> int:
        """Return the number of slices of a core's part of a share; what is copied where it is read is one."""
        is_one = self._of.reads and not self._of.reduce
        return min(1, self._nbytes(core)) if is_one else -(-self._nbytes(core) // self._slice_bytes)

    @property
    def _counted(self) -> int:
        """Return how much a kernel counts in each of its turns."""
        of = self._of
        each = {"exchange": 1 + of.reduce * of.gather, "ring": (of.reduce + of.gather) * (self.ranks - 1)}
        return each.get(of.kernel, self.ranks - 1 if of.kernel == "ring_all_to_all" else 1)

    @property
    def _slice_bytes(self) -> int:
        return 2 * min(self.slot, self._part)

    @property
    def app_bytes(self) -> int:
        """App data of a rank, without tables of launches."""
        sides = [max(self.shares_had, self._got)] if self.in_place else [self.shares_had, self._got]
        return sum(align(2 * self.calls * shares * self._share) for shares in sides)

    def _shares(self, me: int, count: int) -> Any:
        """Return which shares of a buffer for operands and results a rank has, or gets."""
        return slice(None) if count == max(self.shares_had, self._got) else slice(me, me + 1)

    def _first(self, me: int, count: int) -> int:
        """Elements before the first of them."""
        return 0 if count == max(self.shares_had, self._got) or not self.in_place else me * self._share

    # ---- what commands ask

    @property
    def payload_bytes(self) -> int:
        """Payload of a call in bytes, as nccl-tests count it: the payload of all shares."""
        return 2 * self.ranks * self.elements

    @property
    def count(self) -> int:
        """Elements of a share; of all of them, where each rank gets the sums of all."""
        return self.elements * (self.ranks if self._reduces_all else 1)

    @property
    def redop(self) -> str:
        """The sum, or none."""
        return "sum" if self._of.reduce else "none"

    def of_bytes(self, nbytes: int) -> Self:
        """Return the case with shares of ``nbytes`` bytes in all; ConfigError for less than an element each."""
        return replace(self, elements=nbytes // (2 * self.ranks))

    @property
    def bus_factor(self) -> float:
        """The bus-bandwidth factor of nccl-tests: what a link has to carry, as a multiple of the payload."""
        return (2 if self._reduces_all else 1) * (self.ranks - 1) / self.ranks

    @property
    def _reduces_all(self) -> bool:
        return bool(self._of.reduce and self._of.gather >= self._of.scatter)

    @classmethod
    def proofs(cls) -> Mapping[str, Case]:
        """Each collective with two and three ranks, three calls."""
        usual = {name: cls(collective=name) for name in ALGORITHMS}
        more: dict[str, Case] = {}
        for name, case in usual.items():
            more |= {
                f"{name}, three ranks": case,
                f"{name}, two ranks": replace(case, ranks=2),
                f"{name}, two ranks, in place, slices": replace(case, ranks=2, in_place=1, elements=40, slot=32),
                f"{name}, two ranks, two cores": replace(case, ranks=2, cores=2, elements=24, dtype="fp16"),
            }
        return more
