"""Where dispatch and combine keep what: regions in the areas of each die, the same on every rank, and app buffers."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu.kernels.experts.counts import FIELD_BYTES, INDEX_BYTES
from xccl_emu.kernels.group import align
from xccl_emu.lang import FP8_BLOCK, Kernel
from xccl_emu.machine.launch import Address
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.protocol import Region, Regions
from xccl_emu.protocol.regions import Parts
from xccl_emu.protocols.communicator import allocate_on, as_array
from xccl_emu.protocols.experts.config import ROUTE, EpConfig, TokenConfig, buffer_bytes, check_pod

COLUMNS = INDEX_BYTES // 4
"""Entries of a row of a table with one for each choice."""


def as_arrays(name: str, given: Sequence[Any]) -> list[NDArray[Any]]:
    """Return each item as an array; ConfigError for one that is none, such as a ragged list."""
    return [as_array(f"{name} of rank {rank}", item) for rank, item in enumerate(given)]


def whole_rows(choices: NDArray[Any]) -> NDArray[np.int32]:
    """[T, columns] rows of a table of choices [T, top_k]: -1, as for a masked choice, after the choices."""
    rows = np.full((len(choices), COLUMNS), -1, np.int32)
    rows[:, : choices.shape[1]] = choices
    return rows


Buffered = dict[str, Buffer]
"""The app buffers of a rank or die, named as the kernels' parameters.  And ``batches``, with a 4-byte number for each
batch, how many tokens it has; for a round of a group with a second one, which results there are."""

OF_TOKENS = ("batches", "x", "topk", "pos", "weights", "out")
"""Buffers of a rank or attention die that has batches of tokens."""
OF_ROWS = ("recv_x", "route", "counts", "y")
"""Buffers of a rank or expert die that receives rows."""


def touched_by(kernel: Kernel) -> tuple[str, ...]:
    """Return the names of the app buffers that a kernel touches: fields of ``b``, and parameters."""
    return tuple(field or name for name, field in kernel.touches if name == "b" or field is None)


def table(c: TokenConfig) -> dict[str, tuple[int, int]]:
    """Bytes of a row, and rows of a batch, of every app buffer, by its name, in the order in which they lie."""
    tokens, rows = c.tokens_max, c.rows_max
    return {
        "batches": (c.batch_bytes, 1), "x": (c.token_bytes, tokens), "topk": (INDEX_BYTES, tokens),
        "pos": (c.position_bytes, tokens), "weights": (INDEX_BYTES, tokens), "recv_x": (c.payload_bytes, rows),
        "route": (c.route_bytes, rows), "counts": (c.counts_bytes, 1), "y": (c.row_bytes, rows),
        "out": (c.row_bytes, tokens),
    }  # fmt: skip


def allocate(pod: Pod, c: TokenConfig, dies: Sequence[int], batches: Mapping[str, int]) -> list[Buffered]:
    """The named buffers of each die, with room for consecutive batches, as many as ``batches`` says.

    Raises CapacityError if they do not fit; then none of them is allocated.
    """
    sizes = {name: batches[name] * row * rows for name, (row, rows) in table(c).items() if name in batches}
    return allocate_on(pod, dies, sizes)


def part_of(own: Buffered, i: int, rounds: int) -> Buffered:
    """The buffers of the i-th round."""
    sizes = {name: buffer.nbytes // rounds for name, buffer in own.items()}
    return {name: Buffer(each.die, each.address + i * sizes[name], sizes[name]) for name, each in own.items()}


def row_of(c: TokenConfig, own: Buffered, name: str, i: int, row: int, nbytes: int) -> Buffer:
    """The first bytes of a row of the i-th batch."""
    stride, rows = table(c)[name]
    return Buffer(own[name].die, own[name].address + (i * rows + row) * stride, nbytes)


def fill(
    pod: Pod, c: TokenConfig, own: Buffered, i: int, x: NDArray[Any], choices: NDArray[Any],
    weights: NDArray[Any] | None = None,
) -> None:  # fmt: skip
    """Put the i-th batch of a rank or attention die into its buffers, after those before it."""
    first = i * c.tokens_max
    pod.view(own["batches"], np.int32)[i] = len(x)
    shape = -1, c.opaque_bytes or c.hidden
    pod.fill_payload(pod.payload(own["x"], c.token_dtype(), shape)[first : first + len(x)], x)
    pod.view(own["topk"], np.int32, (-1, COLUMNS))[first : first + len(x)] = whole_rows(choices)
    if weights is not None:
        fill_weights(pod, c, own, i, weights)


def fill_weights(pod: Pod, c: TokenConfig, own: Buffered, i: int, weights: NDArray[Any]) -> None:
    """Put the gate weights of the i-th batch there."""
    rows = slice(i * c.tokens_max, i * c.tokens_max + len(weights))
    pod.view(own["weights"], np.float32, (-1, COLUMNS))[rows, : c.top_k] = weights


def filled(c: TokenConfig, own: Buffered, i: int, n: int) -> Iterator[Buffer]:
    """Yield what `fill` writes for the i-th batch, of n tokens, and its weights: rows without what fills them up."""
    yield row_of(c, own, "batches", i, 0, 4)
    for name, nbytes in (("x", c.token_bytes), ("topk", INDEX_BYTES), ("weights", 4 * c.top_k)):
        yield from (row_of(c, own, name, i, t, nbytes) for t in range(n))


def image_of(c: TokenConfig, name: str, batches: int, placed: Iterable[tuple[int, NDArray[Any]]]) -> NDArray[np.uint8]:
    """[batches, rows, stride] bytes of a buffer with rows of these batches, the later ones over the earlier ones.

    Zero where nothing is written.
    """
    stride, n_rows = table(c)[name]
    image = np.zeros((batches, n_rows, stride), np.uint8)
    for i, rows in placed:
        raw = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), rows[:1].nbytes)
        image[i, : len(rows), : raw.shape[1]] = raw
    return image


@dataclass(frozen=True, eq=False, repr=False)
class Received:
    """What dispatch brought to one rank; views into its app data area, valid until the next dispatch.

    Rows are grouped by local expert, then source rank, then token, as `npu_moe_distribute_dispatch` (expand_x,
    dynamic_scales, expert_token_nums, ep_recv_counts) and DeepEP's low-latency mode give them.
    """

    x: NDArray[Any]
    """[rows, hidden] int8 or float8_e4m3fn if quantized, else the input's type; [rows, bytes] uint8 if it is opaque."""
    scales: NDArray[np.float32]
    """[rows] FP32 to multiply INT8 by; 0 if not quantized; [rows, hidden / 128] for FP8."""
    source: NDArray[np.int32]
    """[rows] rank that the token came from."""
    token: NDArray[np.int32]
    """[rows] index of the token in that rank's batch."""
    choice: NDArray[np.int32]
    """[rows] which of the token's choices this is (key offset)."""
    slot: NDArray[np.int32]
    """[rows] expert slot that it goes to."""
    counts: NDArray[np.int32]
    """[local_experts, n_ranks] rows by expert and source."""

    @classmethod
    def of(
        cls, pod: Pod, c: TokenConfig, buffers: Mapping[str, Buffer], counts: NDArray[np.int32], first: int = 0
    ) -> Self:
        """Return what is in the buffers from row ``first`` on, by the counts."""
        rows = slice(first, first + int(counts.sum()))
        x = pod.payload(buffers["recv_x"], np.uint8, (-1, c.payload_bytes))[rows]
        route = pod.view(buffers["route"], ROUTE)[rows]
        scales = route["scale"]
        if c.in_fp8:
            scales = x[:, c.hidden : c.hidden + 4 * c.hidden // FP8_BLOCK].view(np.float32)
            x = x[:, : c.hidden]
        x, which = x.view(c.received_dtype()), (route["source"], route["token"], route["choice"], route["slot"])
        return cls(x, scales, *which, counts)

    def __repr__(self) -> str:
        rows, hidden = self.x.shape
        return f"<Received: {rows} rows of {hidden} {self.x.dtype}, by expert {self.expert_counts.tolist()}>"

    @property
    def expert_counts(self) -> NDArray[np.int64]:
        """[local_experts] rows of each expert."""
        return np.asarray(self.counts.sum(axis=1, dtype=np.int64))


C = TypeVar("C", bound=EpConfig)

DISPATCH, EXPERT, COMBINE = "dispatch", "expert", "combine"
LAYER = (DISPATCH, EXPERT, COMBINE)
"""The parts of a layer."""
_REMEDY = "take fewer ranks, experts or tokens, or a larger pod"


class GroupLayout(Regions, ABC, Generic[C]):
    """The regions of an expert-parallel group, after what other communicators use; offsets are bytes in the areas.

    Raises ConfigError if the pod has too few dies or cores, CapacityError if an area or the data buffer is too small.
    """

    supervised: ClassVar[bool] = False
    """Has the die after the ranks' the regions too, for a supervisor?"""
    tallies: Region | None = None
    """Counts of the cores of a rank, where they exchange them: a row of 4-byte counts by slot for each core,
    and one of their sums."""

    def __init__(self, config: C, pod: Pod, managed_offset: int = 0, field_offset: int = 0) -> None:
        offsets = check_pod(config, pod, managed_offset, field_offset)
        super().__init__(config.n_ranks, config.first_die)
        self.config: C = config
        self._firsts: dict[tuple[tuple[Region | None, ...], int], int] = {}
        self._add_all()
        self.fit(pod.spec, *offsets, _REMEDY, self.ub_bytes(config))

    @abstractmethod
    def _add_all(self) -> None:
        """Say what there is."""

    @staticmethod
    @abstractmethod
    def ub_bytes(config: Any) -> int:
        """Return the least size of a core's data buffer that the kernels need."""

    def labels(self) -> Iterator[tuple[str, int, int]]:
        """Name, address and bytes of each part, on the supervisor's die too."""
        yield from super().labels()
        for region in self._all if self.supervised else ():
            yield from region.labels(self.dies.stop, len(self.dies))

    def first(self, *regions: Region | None, tables: int = 1) -> int:
        """Address of a region, or of some, on the die of rank 0, as kernels take it, or 0 if there is none.

        tables: how many it consists of; each rank has an equal share of each of them on every die, and of none all.
        """
        if (regions, tables) not in self._firsts:
            self._firsts[regions, tables] = self._first_of([region for region in regions if region], tables)
        return self._firsts[regions, tables]

    def _first_of(self, found: list[Region], tables: int) -> int:
        """Return the same of regions that there are; it stays as it is once the layout is fitted."""
        die = self.config.first_die
        if not found:
            return 0
        starts = [int(region.at(die)) for region in found]
        sizes = [region.size if region.count > 1 else region.nbytes for region in found]
        address = Address.of(starts[0], die, *(range(at, at + size) for at, size in zip(starts, sizes, strict=True)))
        each = sizes[0] // max(tables, 1)
        parts = [at - starts[0] + i * each for at in starts for i in range(tables)]
        return address.only(*(range(at, at + each) for at in parts)).shared(self.dies) if tables else address

    def _add_tallies(self) -> None:
        c = self.config
        row, names = align(4 * c.n_slots), [*(f".core{core}" for core in range(c.cores)), ".sums"]
        if c.streams:
            self.tallies = self.managed("tallies", row, len(names), lambda _: ((name, row) for name in names))

    def _sources(self, rank: int) -> Iterator[tuple[str, int]]:
        """Names of fields that each rank has on the die of one."""
        return ((f"[{source}→{rank}]", FIELD_BYTES) for source in range(self.config.n_ranks))

    def _by_expert(self, rank: int, nbytes: int = FIELD_BYTES) -> Iterator[tuple[str, int]]:
        """Names of what each rank has there for each expert."""
        experts = range(self.config.local_experts)
        return ((f"{source}.expert{e}", nbytes) for source, _ in self._sources(rank) for e in experts)


class EpLayout(GroupLayout[EpConfig]):
    """Layout of a group that pulls: on any die what is for or from a rank, on its own more."""

    ub_bytes = staticmethod(buffer_bytes)

    def _add_all(self) -> None:
        c, n = self.config, self.config.n_ranks
        self.dispatch_blocks, self.combine_blocks = (
            self.managed(name, c.rows_per_block * nbytes, n, self._rows(nbytes))
            for name, nbytes in (("dispatch_block", c.message_bytes), ("combine_block", c.returned_bytes))
        )
        cores = [(f".core{core}", 2 * c.row_bytes) for core in range(c.cores)]
        self.staging = self.managed("staging", 2 * c.row_bytes, c.cores, lambda _: cores)
        self._add_tallies()
        self.dispatch_fields = self.meta("meta.counts", FIELD_BYTES, c.n_slots, self._counts)
        self.dispatch_done, self.combine_fields, self.combine_done = (
            self.meta(f"meta.{name}", FIELD_BYTES, n, self._sources) for name in ("dispatch_ack", "rows", "combine_ack")
        )

    def _rows(self, nbytes: int) -> Parts:
        """Names of what a rank has for each other one, row by row."""
        rows, n = self.config.rows_per_block, self.config.n_ranks
        return lambda rank: ((f"[{rank}→{i // rows}].row{i % rows}", nbytes) for i in range(n * rows))

    def _counts(self, rank: int) -> Iterator[tuple[str, int]]:
        return self._by_expert(rank) if self.config.local_experts > 1 else self._sources(rank)
