"""[DeepEP]'s normal mode for users: a token goes once to each rank, and the rows that ranks return are added.

group = NormalMode(pod, NormalConfig(n_ranks=4, local_experts=2, top_k=2, hidden=128, cores=4))
arrived = group.dispatch_rows(tokens, topk, weights)
...                                      # experts: write into group.expert_output(rank)
outputs = group.combine_rows()
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels.deepep.normal_combine import normal_combine, whole_combine
from xccl_emu.kernels.deepep.normal_dispatch import CALL_ROWS, normal_dispatch
from xccl_emu.kernels.deepep.parameters import Rings, Sums
from xccl_emu.kernels.experts.counts import FIELD_BYTES, INDEX_BYTES
from xccl_emu.kernels.experts.sums import sum_bytes
from xccl_emu.kernels.group import align
from xccl_emu.machine.pod import Pod
from xccl_emu.protocols.communicator import Progress, allocate_on
from xccl_emu.protocols.deepep.session import DeepEpConfig
from xccl_emu.protocols.experts.group import COMBINED, DISPATCHED, Args, ExpertGroup, Phase, PhaseOfRound
from xccl_emu.protocols.experts.layout import COMBINE, DISPATCH, GroupLayout


@dataclass(frozen=True)
class NormalConfig(DeepEpConfig):
    """A group in DeepEP's normal mode: a channel for each two of its ``cores``.

    ConfigError for what this mode has not: it quantizes nothing; what is quantized already goes as ``opaque_bytes``.
    """

    RANGES: ClassVar[Mapping[str, tuple[int, int]]] = {
        **DeepEpConfig.RANGES, "n_ranks": (2, 32), "places": (1, 1 << 10), "chunk": (1, 1 << 10),
        "tokens_max": (1, CALL_ROWS - 1), "biases": (0, 16),
    }  # fmt: skip
    _: KW_ONLY
    quantized: bool = False
    cores: int = 2
    places: int = 4
    """Rows that the ring of a source and channel has room for."""
    chunk: int = 2
    """Rows that are announced, and whose places are given back, at once."""
    weighed: bool = False
    """Whether there is room for weights that come back with the rows."""
    biases: int = 0
    """Rows for each token that there is room for, to be added to what comes back."""
    by_choice: bool = False
    """Whether what comes back is added in order of the last choice of each rank, and not of the ranks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.quantized or self.shared:
            raise ConfigError("quantized", True, "normal mode sends rows as they are, and knows no shared expert")
        if self.cores % 2:
            raise ConfigError("cores", self.cores, "must be even, since one sends and one receives")
        if self.chunk > self.places:
            raise ConfigError("chunk", self.chunk, f"must be at most places={self.places}")

    @property
    def channels(self) -> int:
        """Pairs of cores."""
        return self.cores // 2

    @property
    def rows_max(self) -> int:
        """Most rows that a rank can receive."""
        return self.n_ranks * self.tokens_max

    @property
    def counts_bytes(self) -> int:
        """Their counts, by source and channel."""
        return align(4 * self.n_ranks * self.channels)

    @property
    def route_bytes(self) -> int:
        """Bytes after a row: its token, and for each choice an expert and a weight."""
        return align(4 + 8 * self.top_k)

    @property
    def slot_bytes(self) -> int:
        """A place of a ring."""
        return max(self.payload_bytes + self.route_bytes, self.part_bytes)

    @property
    def part_bytes(self) -> int:
        """Bytes that come back for a token from a rank."""
        return self.row_bytes + self.weighed * self.route_bytes


class BufferPlaces(NamedTuple):
    """Where a core's data buffer holds what."""

    choices: int
    marks: int
    counts: int
    work: int

    @classmethod
    def of(cls, c: NormalConfig) -> "BufferPlaces":
        """Lay them out one after the other."""
        marks = c.tokens_max * INDEX_BYTES
        counts = marks + align(4 * c.tokens_max)
        return cls(0, marks, counts, counts + c.counts_bytes)


def normal_buffer_bytes(config: NormalConfig) -> int:
    """Return the least size of a core's data buffer that the kernels need."""
    c = config
    return BufferPlaces.of(c).work + max(2 * c.slot_bytes, sum_bytes(c.hidden))


class NormalLayout(GroupLayout[NormalConfig]):
    """Rings and fields by source and channel."""

    ub_bytes = staticmethod(normal_buffer_bytes)

    def _add_all(self) -> None:
        c = self.config
        blocks = c.n_ranks * c.channels
        self.rings = self.managed("ring", c.slot_bytes, blocks * c.places)
        self.parts = self.managed("parts", c.part_bytes, c.tokens_max * c.n_ranks)
        self.fields = [self.meta(f"counts{i}", FIELD_BYTES, blocks) for i in range(2)]
        self.tails, self.heads = (self.meta(name, FIELD_BYTES, blocks) for name in ("tails", "heads"))


@dataclass(frozen=True, eq=False)
class Arrived:
    """What dispatch brought to one rank, by source and then token; views, valid until the next dispatch."""

    x: NDArray[Any]
    """[rows, hidden] of the group's type, or [rows, bytes] uint8."""
    token: NDArray[np.int32]
    """[rows] index of the token in the batch of its source."""
    experts: NDArray[np.int32]
    """[rows, top_k] experts here, from 0 on; -1 for a choice on another rank, or a masked one."""
    weights: NDArray[np.float32]
    """[rows, top_k] and their weights; 0."""
    counts: NDArray[np.int32]
    """[n_ranks, channels] rows by source and channel."""


class NormalMode(ExpertGroup[NormalConfig]):
    """An expert-parallel group in DeepEP's normal mode."""

    dispatches = Phase(DISPATCH, normal_dispatch)
    combines = Phase(COMBINE, normal_combine)
    kind = NormalConfig
    lays_out = NormalLayout
    whole_combines = Phase(COMBINE, whole_combine)
    layout: NormalLayout

    def __init__(self, pod: Pod, config: NormalConfig | None = None, **more: Any) -> None:
        super().__init__(pod, config, **more)
        c = self.config
        room = {"bias": c.biases * c.tokens_max * c.row_bytes} if c.biases else {}
        for own, bias in zip(self.buffers, allocate_on(pod, self.layout.dies, room), strict=True):
            own |= bias
        self._sums = [self._begun_with(rank, c.biases, 0) for rank in range(c.n_ranks)]
        """[rank] What combines that are launched add up; in `run_rounds` all biases that there is room for."""

    def steps(self, rounds: int) -> Iterator[PhaseOfRound]:
        """Dispatch and combine; the rows that go back are there, and biases, the same in all rounds."""
        combines = self.whole_combines if self.config.biases or self.config.by_choice else self.combines
        for i in range(rounds):
            yield from (PhaseOfRound(self.dispatches, i, 2 * i), PhaseOfRound(combines, i, 2 * i + 1))

    def dispatch_rows(
        self, tokens: Sequence[NDArray[Any]], topk: Sequence[NDArray[Any]], weights: Sequence[NDArray[np.float32]],
        progress: Progress | None = None,
    ) -> list[Arrived]:  # fmt: skip
        """Send every token to each rank that it has experts on, with the weights of these.

        tokens: for each rank [T, hidden] of the group's type, or [T, opaque_bytes] uint8.  topk: [T, top_k] integers,
        expert slots or -1.  weights: [T, top_k] float32.

        Raises ConfigError, before anything moves, for wrong shapes, types or slots.
        """
        self.check_ready(self.dispatches.kernel)
        self.fill_rounds([tokens], [topk], [weights])
        self._run(PhaseOfRound(self.dispatches, 0), DISPATCHED, progress)
        return [self.arrived(rank) for rank in range(self.config.n_ranks)]

    def combine_rows(
        self, weights: Sequence[NDArray[np.float32]] | None = None, bias: Sequence[NDArray[Any]] | None = None,
        progress: Progress | None = None,
    ) -> list[NDArray[Any]]:  # fmt: skip
        """Bring back the rows in `expert_output`, and add them up for each token of the last dispatch.

        weights: for each rank [rows, top_k] float32 that are brought back and added up too, see `weights`.
        bias: for each rank [biases, T, hidden] of the group's type, which the sums of its tokens begin with, or none.

        Returns for each rank [T, hidden] of the group's type: views, valid until the next combine.
        Raises ConfigError, before anything moves, if nothing was dispatched, for weights or biases of another shape or
        type, for weights where the group is not ``weighed``, or more ``biases`` than it has room for.
        """
        c = self.config
        biases = self._per_rank("bias", [()] * c.n_ranks if bias is None else bias)
        whole = c.by_choice or weights is not None or any(map(len, biases))
        phase = self.whole_combines if whole else self.combines
        self.check_ready(phase.kernel)
        self._check_stage("combine_rows", DISPATCHED)
        self._check_biases(biases)
        if weights is not None:
            self._fill_returned(self._per_rank("weights", weights))
        back = 0 if weights is None else c.route_bytes
        for rank, given in enumerate(biases):
            if len(given):
                self.fill_biases(rank, given)
            self._sums[rank] = self._begun_with(rank, len(given), back)
        self._run(PhaseOfRound(phase, 0), COMBINED, progress)
        return [self.output(rank) for rank in range(c.n_ranks)]

    def _check_biases(self, biases: Sequence[NDArray[Any]]) -> None:
        """Raises ConfigError for biases of another shape or type, or more than there is room for."""
        c = self.config
        for rank, given in enumerate(biases):
            shape = self.n_tokens(rank), c.hidden
            fits = given.shape[1:] == shape and given.dtype == c.numpy_dtype() and len(given) <= c.biases
            if len(given) and not fits:
                has = f"{list(given.shape)} {given.dtype}"
                must = f"must be up to {c.biases} of {list(shape)} {np.dtype(c.numpy_dtype()).name}"
                raise ConfigError(f"bias of rank {rank}", has, must)

    def fill_biases(self, rank: int, given: NDArray[Any]) -> None:
        """Put [biases, T, hidden] of a rank there, token by token."""
        rows = self.pod.payload(self.buffers[rank]["bias"], self.config.numpy_dtype(), (-1, self.config.hidden))
        self.pod.fill_payload(rows[: given.shape[0] * given.shape[1]], given.swapaxes(0, 1).reshape(-1, given.shape[2]))

    def _begun_with(self, rank: int, biases: int, back: int) -> Sums:
        """Return what kernels of a rank add up: this many biases, and weights in ``back`` bytes after a row."""
        bias = self.buffers[rank]["bias"].address if biases else 0
        return Sums(back, bias, biases, int(self.config.by_choice))

    def _args(self, rank: int, step: PhaseOfRound, places: Args) -> Args:
        return super()._args(rank, step, {**places, "s": self._sums[rank]})

    def arrived(self, rank: int, number: int = 0) -> Arrived:
        """Return what dispatch brought to a rank; ConfigError if nothing was dispatched."""
        self._check_stage("arrived", DISPATCHED, number)
        c, own = self.config, self._of(rank, number)
        counts = self.pod.view(own["counts"], np.int32)[: c.n_ranks * c.channels].reshape(c.n_ranks, c.channels)
        n, k = int(counts.sum()), c.top_k
        route = self.pod.view(own["route"], np.int32, (-1, c.route_bytes // 4))[:n]
        x = self.pod.payload(own["recv_x"], np.uint8, (-1, c.payload_bytes))[:n].view(c.received_dtype())
        return Arrived(x, route[:, 0], route[:, 1 : 1 + k], route[:, 1 + k : 1 + 2 * k].view(np.float32), counts)

    def expert_output(self, rank: int, number: int = 0) -> NDArray[Any]:
        """[rows, hidden] view to write what a rank returns into, in the order of the rows that arrived."""
        return self._states(rank, number, "y")[: len(self.arrived(rank, number).x)]

    def _fill_returned(self, weights: Sequence[NDArray[Any]]) -> None:
        """Check what comes back with the rows, and put it there."""
        places = [self.arrived(rank).weights for rank in range(self.config.n_ranks)]
        if not self.config.weighed:
            raise ConfigError("weighed", False, "must be True for weights in combine_rows")
        for rank, (given, place) in enumerate(zip(weights, places, strict=True)):
            if (given.shape, given.dtype) != (place.shape, place.dtype):
                has = f"{list(given.shape)} {given.dtype}"
                raise ConfigError(f"weights of rank {rank}", has, f"must be {list(place.shape)} float32")
        for given, place in zip(weights, places, strict=True):
            place[:] = given

    def weights(self, rank: int) -> NDArray[np.float32]:
        """[T, top_k] view of the sums of weights that the last combine brought back, or what dispatch was given."""
        columns = self.pod.view(self._of(rank)["weights"], np.float32, (-1, INDEX_BYTES // 4))
        return columns[: self.n_tokens(rank), : self.config.top_k]

    def next_dispatch(self) -> int:
        """Number of the next dispatch."""
        last = (self._word(self.layout.first(fields)) for fields in self.layout.fields)
        return 1 + max(last)

    def _word(self, address: int) -> int:
        return int(self.pod.span(address, 8).view(np.int64)[0])

    def _places(self, phase: Phase, ahead: int) -> Args:
        call = 1 + self._word(self.layout.first(self.layout.tails)) // CALL_ROWS
        return {"call": call + ahead, "turn": self.next_dispatch() + ahead // 2, "r": self.rings()}

    def rings(self) -> Rings:
        """Return the places of the channels."""
        c, layout, first = self.config, self.layout, self.layout.first
        return Rings(
            fields=first(*layout.fields), fields_step=first(layout.fields[1]) - first(layout.fields[0]),
            tails=first(layout.tails), heads=first(layout.heads), rings=first(layout.rings),
            parts=first(layout.parts), slots=c.places, slot_bytes=c.slot_bytes, chunk=c.chunk,
            route_bytes=c.route_bytes, **BufferPlaces.of(c)._asdict(),
        )  # fmt: skip

    # ---- what low-latency groups have and this one has not

    def _fill_dispatch(self, tokens: Any, topk: Any, number: int) -> NoReturn:
        raise ConfigError("dispatch: normal mode sends weights along: call dispatch_rows")

    def _fill_combine(self, weights: Any, number: int) -> NoReturn:
        raise ConfigError("combine: normal mode adds without weights: call combine_rows")

    def _run_dummy(self, number: int, progress: Progress | None = None) -> NoReturn:
        raise ConfigError("run_dummy: rows of normal mode are of several experts")


def layout_of(
    topk: NDArray[np.integer[Any]], n_ranks: int, local_experts: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_]]:
    """Return what `get_dispatch_layout` gives: tokens for each rank, for each expert, and [T, n_ranks] who gets one.

    topk: [T, top_k] expert slots, -1 for a masked choice; ConfigError for others.
    """
    slots = np.asarray(topk)
    if slots.ndim != 2 or (slots.size and not -1 <= slots.min() <= slots.max() < n_ranks * local_experts):
        raise ConfigError(f"topk: must be [T, top_k] slots, -1 to {n_ranks * local_experts - 1}")
    in_expert = (slots[:, :, None] == np.arange(n_ranks * local_experts)).any(axis=1)
    in_rank = in_expert.reshape(len(slots), n_ranks, local_experts).any(axis=2)
    return in_rank.sum(axis=0, dtype=np.int32), in_expert.sum(axis=0, dtype=np.int32), in_rank
