"""What expert-parallel groups have in common, however their data travels: buffers, checks, calls and results."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from xccl_emu.errors import ConfigError
from xccl_emu.kernels import expert as expert_kernel
from xccl_emu.kernels.counts import INDEX_BYTES
from xccl_emu.kernels.dispatch import ROUTE_BYTES
from xccl_emu.kernels.group import align
from xccl_emu.kernels.parameters import Buffers, Group
from xccl_emu.lang import Kernel
from xccl_emu.machine.launch import Grant
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.protocols.arguments import index_of, one_for_each
from xccl_emu.protocols.communicator import Communicator, Progress, allocate_on
from xccl_emu.protocols.group_layout import C, GroupLayout
from xccl_emu.protocols.layout import ROUTE, EpConfig, TokenConfig, check_finite, check_tokens, check_weights

Args = Mapping[str, int | Sequence[int]]
"""What a launch gives a kernel; a record is a sequence of integers, too."""
_INDEX_COLUMNS = INDEX_BYTES // 4


def as_arrays(name: str, given: Sequence[Any]) -> list[NDArray[Any]]:
    """Each item as an array; ConfigError for one that is none, such as a ragged list."""
    arrays = []
    for rank, item in enumerate(given):
        try:
            arrays.append(np.asarray(item))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{name} of rank {rank}: is no array ({error})") from error
    return arrays


def whole_rows(choices: NDArray[Any]) -> NDArray[np.int32]:
    """[T, columns] rows of a table of choices [T, top_k]: -1, as for a masked choice, behind those that there are."""
    rows = np.full((len(choices), _INDEX_COLUMNS), -1, np.int32)
    rows[:, : choices.shape[1]] = choices
    return rows


def fill(
    pod: Pod, c: TokenConfig, buffers: Mapping[str, Buffer], i: int, x: NDArray[Any], choices: NDArray[Any],
    weights: NDArray[Any] | None = None,
) -> None:  # fmt: skip
    """Put the i-th batch of a rank or attention die into its buffers, behind those before it."""
    rows, tables = slice(i * c.tokens_max, i * c.tokens_max + len(x)), (-1, INDEX_BYTES // 4)
    pod.view(buffers["batches"], np.int32)[i] = len(x)
    pod.fill_payload(pod.payload(buffers["x"], c.numpy_dtype(), (-1, c.hidden))[rows], x)
    pod.view(buffers["topk"], np.int32, tables)[rows] = whole_rows(choices)
    if weights is not None:
        pod.view(buffers["weights"], np.float32, tables)[rows, : c.top_k] = weights


@dataclass(frozen=True, eq=False)
class Received:
    """What dispatch brought to one rank; views into its app data area, valid until the next dispatch.

    Rows are grouped by local expert, then source rank, then token, as `npu_moe_distribute_dispatch` (expand_x,
    dynamic_scales, expert_token_nums, ep_recv_counts) and DeepEP's low-latency mode give them.
    """

    x: NDArray[Any]
    """[rows, hidden] int8 if quantized, else the input's type."""
    scales: NDArray[np.float32]
    """[rows] FP32 to multiply INT8 by; 0 if not quantized."""
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
        """What is in the buffers from row ``first`` on, by the counts."""
        rows = slice(first, first + int(counts.sum()))
        x = pod.payload(buffers["recv_x"], np.int8 if c.quantized else c.numpy_dtype(), (-1, c.hidden))[rows]
        route = pod.view(buffers["route"], ROUTE)[rows]
        return cls(x, route["scale"], route["source"], route["token"], route["choice"], route["slot"], counts)

    @property
    def expert_counts(self) -> NDArray[np.int64]:
        """[local_experts] rows of each expert."""
        return np.asarray(self.counts.sum(axis=1, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class RankBuffers:
    """The app buffers of one rank, named as the kernels' parameters."""

    batches: Buffer
    """4-byte numbers of tokens: of each round; or of the last dispatch, and behind it which results there are."""
    x: Buffer
    topk: Buffer
    pos: Buffer
    weights: Buffer
    recv_x: Buffer
    route: Buffer
    counts: Buffer
    y: Buffer
    out: Buffer


def allocate(pod: Pod, config: EpConfig, rounds: int = 1) -> list[RankBuffers]:
    """The app buffers of every rank, for so many rounds one behind the other.

    Raises CapacityError if they do not fit; then none of them is allocated.
    """
    table, states = config.tokens_max * INDEX_BYTES, config.tokens_max * config.row_bytes
    rows = config.rows_max
    sizes = {
        "batches": 8, "x": states, "topk": table, "pos": config.tokens_max * config.position_bytes, "weights": table,
        "recv_x": rows * config.payload_bytes, "route": rows * ROUTE_BYTES, "counts": align(4 * config.n_slots),
        "y": rows * config.row_bytes, "out": states,
    }  # fmt: skip
    dies = range(config.first_die, config.first_die + config.n_ranks)
    per_rank = allocate_on(pod, dies, {name: rounds * size for name, size in sizes.items()})
    return [RankBuffers(**buffers) for buffers in per_rank]


class Phase(NamedTuple):
    """A kernel of a group, and what it may do with the app buffers of its rank."""

    kernel: Kernel
    rights: Mapping[str, str]


EXPERT = Phase(expert_kernel.dummy_expert, {"recv_x": "r", "route": "r", "y": "w"})


_NOTHING, _DISPATCHED, _COMBINED = range(3)
"""Which results a group has."""

class ExpertGroup(Communicator, Generic[C]):
    """An expert-parallel group: dispatch, a dummy expert, combine.

    Rounds may follow each other without reset.

    All that it knows from round to round stands in the pod's memory, so it goes along with snapshots.
    """

    dispatches: ClassVar[Phase]
    combines: ClassVar[Phase]
    """What `dispatch` and `combine` launch."""

    lays_out: ClassVar[type[GroupLayout[Any]]]
    """What says where everything is."""

    def __init__(self, pod: Pod, config: C, *, managed_offset: int = 0, field_offset: int = 0) -> None:
        self.config: C = config
        """The group's size and the shape of what it moves."""
        self.layout: GroupLayout[C] = self.lays_out(config, pod, managed_offset, field_offset)
        self._ranks = allocate(pod, config)
        self._rows_committed = [0] * config.n_ranks
        super().__init__(pod)
        self.zero_fields()

    def _cores_on(self, die: int) -> int:
        return self.config.cores

    @abstractmethod
    def next_dispatch(self) -> int:
        """Event ID of the next dispatch, from 1 on."""

    @abstractmethod
    def _dispatch_args(self) -> Args:
        """What dispatch is told beside rank, core, tokens, shape and buffers."""

    @abstractmethod
    def _combine_args(self) -> Args:
        """The same of combine."""

    def die_of(self, rank: int) -> int:
        """The die that a rank is on; here and below ConfigError for a rank that there is not."""
        return self.config.first_die + self._check_rank(rank)

    def n_tokens(self, rank: int) -> int:
        """Tokens of a rank in the last dispatch."""
        return int(self.pod.view(self._ranks[self._check_rank(rank)].batches, np.int32)[0])

    # ---- dispatch

    def dispatch(
        self, tokens: Sequence[NDArray[Any]], topk: Sequence[NDArray[Any]], progress: Progress | None = None
    ) -> list[Received]:
        """Send every token to the ranks of its experts.

        tokens: for each rank [T, hidden] of the group's type, T up to tokens_max and different from rank to rank.
        topk: for each rank [T, top_k] integers, expert slots or -1 for a masked choice, none twice in a row
        unless the group takes ``repeats``: then each is a message of its own, in order of the choices.

        Raises ConfigError, before anything moves, for wrong shapes, types, slots, or (quantized) a NaN or infinity.
        """
        self.check_ready(self.dispatches.kernel)
        tokens, topk = self._per_rank("tokens", tokens), self._per_rank("topk", topk)
        for rank, (x, choices) in enumerate(zip(tokens, topk, strict=True)):
            check_tokens(self.config, rank, x, choices)
        self._stage[0] = _NOTHING  # until the run is over
        for rank, (x, choices) in enumerate(zip(tokens, topk, strict=True)):
            fill(self.pod, self.config, vars(self._ranks[rank]), 0, x, choices)
        self._commit_rows(topk)
        for rank in range(self.config.n_ranks):
            args = {**self._core_args(rank), **self._dispatch_args()}
            self._launch(self.dispatches, rank, args, self.layout.dispatch_grants(rank))
        self.run_as("dispatch", progress)
        self._stage[0] = _DISPATCHED
        return [self.received(rank) for rank in range(self.config.n_ranks)]

    def _commit_rows(self, topk: Sequence[NDArray[Any]]) -> None:
        """Commit what the rows of this round will fill; the buffers are sized for the worst case."""
        slots = np.concatenate([choices[choices >= 0].astype(np.int64) for choices in topk])
        rows = np.bincount(slots // self.config.local_experts, minlength=self.config.n_ranks)
        for rank, n in enumerate(rows.tolist()):
            if n > self._rows_committed[rank]:
                self.pod.commit(self._ranks[rank].recv_x, n * self.config.payload_bytes)
                self.pod.commit(self._ranks[rank].y, n * self.config.row_bytes)
                self._rows_committed[rank] = n

    def _table(self, buffer: Buffer, dtype: Any) -> NDArray[Any]:
        """[tokens_max, top_k] view of a table with one entry for each choice."""
        return self.pod.view(buffer, dtype, (-1, _INDEX_COLUMNS))[:, : self.config.top_k]

    def shape(self) -> Group:
        """What the kernels are told about the group."""
        c = self.config
        return c.group(c.n_ranks, c.cores, self.pod.spec.die_bytes, self.layout.first(self.layout.tallies))

    def _parts(self, n: int) -> dict[str, int | Sequence[int]]:
        """Contiguous parts of ``n`` tokens or rows, one for each core."""
        cores = self.config.cores
        return {
            "first": [n * i // cores for i in range(cores)],
            "last": [n * (i + 1) // cores for i in range(cores)],
        }

    def received(self, rank: int) -> Received:
        """What the last dispatch brought to a rank; ConfigError if nothing was dispatched."""
        c, buffers = self.config, self._ranks[self._check_rank(rank)]
        self._check_stage("received", _DISPATCHED)
        counts = self.pod.view(buffers.counts, np.int32)[: c.n_slots].reshape(c.local_experts, c.n_ranks)
        return Received.of(self.pod, c, vars(buffers), counts)

    # ---- experts

    def run_dummy(self, progress: Progress | None = None) -> None:
        """Compute, on each rank, the dummy expert on what was received (`kernels/expert.py`).

        Raises ConfigError, before anything moves, if nothing was dispatched.
        """
        self.check_ready(EXPERT.kernel)
        self._check_stage("run_dummy", _DISPATCHED)
        c = self.config
        for rank in range(c.n_ranks):
            rows = len(self.received(rank).x)
            if rows == 0:
                continue
            self._launch(EXPERT, rank, self._parts(rows), [])
        self.run_as("expert", progress)

    def expert_output(self, rank: int) -> NDArray[Any]:
        """[rows, hidden] view to write a rank's expert outputs into, in the order of the received rows.

        Read-only where the pod's policy moves no data.

        Raises ConfigError if nothing was dispatched.
        """
        self._check_stage("expert_output", _DISPATCHED)
        buffer = self._ranks[self._check_rank(rank)].y
        flat = self.pod.payload(buffer, self.config.numpy_dtype(), (-1, self.config.hidden))
        return flat[: len(self.received(rank).x)]

    # ---- combine

    def combine(self, weights: Sequence[NDArray[np.float32]], progress: Progress | None = None) -> list[NDArray[Any]]:
        """Bring the experts' outputs back and sum them for each token of the last dispatch.

        weights: for each rank [T, top_k] float32 gate weights; that of the shared expert is not used.
        Returns for each rank [T, hidden] of the group's type: views, valid until the next combine.

        Raises ConfigError, before anything moves, for wrong shapes or types, if nothing was dispatched, or (quantized
        on the way back) for a NaN or infinity among the experts' outputs.
        """
        self.check_ready(self.combines.kernel)
        self._check_stage("combine", _DISPATCHED)
        weights = self._per_rank("weights", weights)
        for rank, table in enumerate(weights):
            check_weights(self.config, f"weights of rank {rank}", table, self.n_tokens(rank))
            if self.config.quantized_back:
                check_finite(self.config, f"expert_output of rank {rank}, row", self.expert_output(rank))
        self._stage[0] = _DISPATCHED  # until the run is over
        for rank, table in enumerate(weights):
            self._table(self._ranks[rank].weights, np.float32)[: len(table)] = table
        for rank in range(self.config.n_ranks):
            args = {**self._core_args(rank), **self._combine_args()}
            self._launch(self.combines, rank, args, self.layout.combine_grants(rank))
        self.run_as("combine", progress)
        self._stage[0] = _COMBINED
        return [self.output(rank) for rank in range(self.config.n_ranks)]

    def output(self, rank: int) -> NDArray[Any]:
        """What combine gave a rank: [T, hidden]; ConfigError if nothing was combined since the last dispatch."""
        n_tokens = self.n_tokens(rank)
        self._check_stage("output", _COMBINED)
        flat = self.pod.payload(self._ranks[rank].out, self.config.numpy_dtype(), (-1, self.config.hidden))
        return flat[:n_tokens]

    # ---- both

    def _core_args(self, rank: int) -> Args:
        """Who each core of a rank is, and how many tokens the rank has."""
        return {"rank": rank, "core": range(self.config.cores), "tokens": self.n_tokens(rank)}

    def _launch(self, phase: Phase, rank: int, args: Args, shared: Sequence[Grant]) -> None:
        """Launch a kernel on a rank's cores with those of its buffers that it may touch."""
        buffers = {name: getattr(self._ranks[rank], name) for name in phase.rights}
        grants = [*shared, *(self.pod.grant(buffer, phase.rights[name]) for name, buffer in buffers.items())]
        addresses = Buffers(**{name: buffer.address for name, buffer in buffers.items()})
        more = {"c": self.shape(), "b": addresses}
        self.pod.launch(phase.kernel, self.die_of(rank), range(self.config.cores), {**args, **more}, grants)

    @property
    def _stage(self) -> NDArray[np.int32]:
        """[1] view of which results there are: a word in the pod's memory, so that it goes along with snapshots."""
        return self.pod.view(self._ranks[0].batches, np.int32)[1:]

    def _check_stage(self, what: str, least: int) -> None:
        """Raises ConfigError for what needs results that there are not, or not yet, or no more."""
        if self._stage[0] < least:
            self._check_whole()
            raise ConfigError(f"{what}: nothing was {'dispatched' if self._stage[0] == _NOTHING else 'combined'}")

    def _check_rank(self, rank: int) -> int:
        return index_of("rank", rank, self.config.n_ranks)

    def _per_rank(self, name: str, given: Sequence[Any]) -> list[NDArray[Any]]:
        """An array for each rank; ConfigError for anything else."""
        return as_arrays(name, one_for_each(name, given, self.config.n_ranks, "ranks"))

    def zero_fields(self) -> None:
        """As of any communicator; and there are no results."""
        self._stage[0] = _NOTHING
        super().zero_fields()
