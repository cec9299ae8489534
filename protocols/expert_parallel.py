"""Dispatch and combine for users: an expert-parallel group on a pod.

group = ExpertParallel(pod, EpConfig(n_ranks=4, top_k=2, hidden=128))
received = group.dispatch(tokens, topk)
...                                      # experts: group.run_stand_in(), or write into group.expert_output(rank)
outputs = group.combine(weights)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.errors import ConfigError
from xccl_emu.kernels import combine as combine_kernel
from xccl_emu.kernels import dispatch as dispatch_kernel
from xccl_emu.kernels import expert as expert_kernel
from xccl_emu.kernels.dispatch import INDEX_BYTES, ROUTE_BYTES, work_at
from xccl_emu.lang import Kernel
from xccl_emu.machine.launch import Grant
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.stats import RunStats
from xccl_emu.protocols.layout import DTYPES, ROUTE, EpConfig, check_tokens, lay_out

Progress = Callable[[int], None]
Args = Mapping[str, int | Sequence[int]]
_INDEX_COLUMNS = INDEX_BYTES // 4


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

    @property
    def expert_counts(self) -> NDArray[np.int64]:
        """[local_experts] rows of each expert."""
        return np.asarray(self.counts.sum(axis=1, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class _Rank:
    """The app buffers of one rank."""

    x: Buffer
    topk: Buffer
    position: Buffer
    weights: Buffer
    received: Buffer
    route: Buffer
    counts: Buffer
    expert_output: Buffer
    output: Buffer


class ExpertParallel:
    """An expert-parallel group: pull dispatch, a stand-in expert, pull combine (xDeepServe 3.2).

    It owns the parts of the managed and metadata areas from ``managed_offset`` and ``field_offset`` (in fields) on.
    Rounds may follow each other without reset.  After a failed run (RunError) call `reset`.
    """

    def __init__(self, pod: Pod, config: EpConfig, *, managed_offset: int = 0, field_offset: int = 0) -> None:
        self.pod, self.config = pod, config
        self.layout = lay_out(config, pod, managed_offset, field_offset)
        self._ranks = [self._allocate(rank) for rank in range(config.n_ranks)]
        self._tokens = [0] * config.n_ranks
        self._rows_committed = [0] * config.n_ranks
        self._dispatches = self._combines = 0
        self.stats: dict[str, RunStats] = {}

    def _die(self, rank: int) -> int:
        return self.config.first_die + rank

    def _allocate(self, rank: int) -> _Rank:
        c, die = self.config, self._die(rank)
        table, rows = c.tokens_max * INDEX_BYTES, c.tokens_max * c.row_bytes
        sizes = (
            rows, table, table, table, c.rows_max * c.payload_bytes, c.rows_max * ROUTE_BYTES, 4 * c.n_slots,
            c.rows_max * c.row_bytes, rows,
        )  # fmt: skip
        return _Rank(*(self.pod.alloc(die, size) for size in sizes))

    # ---- dispatch

    def dispatch(
        self, tokens: Sequence[NDArray[Any]], topk: Sequence[NDArray[Any]], progress: Progress | None = None
    ) -> list[Received]:
        """Send every token to the ranks of its experts.

        tokens: for each rank [T, hidden] of the group's type, T up to tokens_max and different from rank to rank.
        topk: for each rank [T, top_k] integers, expert slots or -1 for a masked choice, none twice in a row.

        Raises ConfigError, before anything moves, for wrong shapes, types, slots, or (quantized) a NaN or infinity.
        """
        self.pod.check_ready()
        self._check_per_rank("tokens", tokens)
        self._check_per_rank("topk", topk)
        tokens, topk = [np.asarray(x) for x in tokens], [np.asarray(choices) for choices in topk]
        for rank, (x, choices) in enumerate(zip(tokens, topk, strict=True)):
            check_tokens(self.config, rank, x, choices)
        for rank, (x, choices) in enumerate(zip(tokens, topk, strict=True)):
            self._load(rank, x, choices)
        self._commit_rows(topk)
        self._dispatches += 1
        for rank in range(self.config.n_ranks):
            self._launch(dispatch_kernel.dispatch, rank, self._dispatch_args(rank), self._dispatch_grants(rank))
        self.stats["dispatch"] = self.pod.run(progress)
        return [self.received(rank) for rank in range(self.config.n_ranks)]

    def _load(self, rank: int, x: NDArray[Any], choices: NDArray[Any]) -> None:
        buffers = self._ranks[rank]
        self._tokens[rank] = len(x)
        self.pod.view(buffers.x, self.config.numpy_dtype(), (-1, self.config.hidden))[: len(x)] = x
        self._table(buffers.topk, np.int32)[: len(x)] = choices

    def _commit_rows(self, topk: Sequence[NDArray[Any]]) -> None:
        """Commit what the rows of this round will fill; the buffers are sized for the worst case."""
        slots = np.concatenate([choices[choices >= 0] for choices in topk])
        rows = np.bincount(slots // self.config.local_experts, minlength=self.config.n_ranks)
        for rank, n in enumerate(rows.tolist()):
            if n > self._rows_committed[rank]:
                self.pod.commit(self._ranks[rank].received, n * self.config.payload_bytes)
                self.pod.commit(self._ranks[rank].expert_output, n * self.config.row_bytes)
                self._rows_committed[rank] = n

    def _table(self, buffer: Buffer, dtype: Any) -> NDArray[Any]:
        """[tokens_max, top_k] view of a table with one entry for each choice."""
        return self.pod.view(buffer, dtype, (-1, _INDEX_COLUMNS))[:, : self.config.top_k]

    def _common_args(self, rank: int) -> dict[str, int | Sequence[int]]:
        c, cores, n = self.config, self.config.cores, self._tokens[rank]
        return {
            "rank": rank,
            "core": list(range(cores)),
            "cores": cores,
            "first": [n * i // cores for i in range(cores)],
            "last": [n * (i + 1) // cores for i in range(cores)],
            "n_ranks": c.n_ranks,
            "n_local": c.local_experts,
            "top_k": c.top_k,
            "hidden": c.hidden,
            "dtype": DTYPES[c.dtype][0],
            "by_dma": int(c.path == "dma"),
            "die_bytes": self.pod.spec.die_bytes,
            "topk": self._ranks[rank].topk.address,
            "pos": self._ranks[rank].position.address,
            "counts": self._ranks[rank].counts.address,
        }

    def _room(self, row_bytes: int) -> int:
        """How many rows fit a half of what the tables leave of the data buffer."""
        return max(1, (self.pod.spec.ub_bytes - work_at(self.config.n_slots)) // 2 // row_bytes)

    def _dispatch_args(self, rank: int) -> dict[str, int | Sequence[int]]:
        buffers, layout, first = self._ranks[rank], self.layout, self.config.first_die
        return self._common_args(rank) | {
            "event": self._dispatches,
            "x": buffers.x.address,
            "recv_x": buffers.received.address,
            "route": buffers.route.address,
            "payload": self.config.payload_bytes,
            "quantized": int(self.config.quantized),
            "scratch": self.pod.managed(self._die(rank), layout.scratch),
            "blocks": self.pod.managed(first, layout.dispatch_blocks),
            "block_bytes": layout.dispatch_block_bytes,
            "fields": self.pod.meta(first, layout.dispatch_fields),
            "done": self.pod.meta(first, layout.dispatch_done),
            "room": self._room(self.config.message_bytes),
        }

    def _dispatch_grants(self, rank: int) -> list[Grant]:
        b, grant = self._ranks[rank], self.pod.grant
        app = [(b.received, "w"), (b.route, "w"), (b.x, "r"), (b.topk, "r"), (b.position, "w"), (b.counts, "w")]
        return [*self._shared_grants(rank), *(grant(buffer, rights) for buffer, rights in app)]

    def _shared_grants(self, rank: int) -> list[Grant]:
        """Any managed area may be read and any metadata area written; the own ones both."""
        pod, die = self.pod, self._die(rank)
        return [pod.grant_managed("r"), pod.grant_managed("rw", die), pod.grant_meta("w"), pod.grant_meta("rw", die)]

    def received(self, rank: int) -> Received:
        """What the last dispatch brought to a rank."""
        c, buffers = self.config, self._ranks[rank]
        counts = self.pod.view(buffers.counts, np.int32, (c.local_experts, c.n_ranks))
        rows = int(counts.sum())
        dtype = np.int8 if c.quantized else c.numpy_dtype()
        x = self.pod.view(buffers.received, dtype, (-1, c.hidden))[:rows]
        route = self.pod.view(buffers.route, ROUTE)[:rows]
        return Received(x, route["scale"], route["source"], route["token"], route["choice"], route["slot"], counts)

    # ---- experts

    def run_stand_in(self, progress: Progress | None = None) -> None:
        """Compute, on each rank, the stand-in expert on what was received (`kernels/expert.py`)."""
        c = self.config
        for rank in range(c.n_ranks):
            buffers, rows = self._ranks[rank], len(self.received(rank).x)
            if rows == 0:
                continue
            args: dict[str, int | Sequence[int]] = {
                "first": [rows * i // c.cores for i in range(c.cores)],
                "last": [rows * (i + 1) // c.cores for i in range(c.cores)],
                "recv_x": buffers.received.address,
                "route": buffers.route.address,
                "y": buffers.expert_output.address,
                "hidden": c.hidden,
                "payload": c.payload_bytes,
                "dtype": DTYPES[c.dtype][0],
                "quantized": int(c.quantized),
            }
            app = [(buffers.received, "r"), (buffers.route, "r"), (buffers.expert_output, "w")]
            self._launch(expert_kernel.stand_in_expert, rank, args, [self.pod.grant(b, r) for b, r in app])
        self.stats["expert"] = self.pod.run(progress)

    def expert_output(self, rank: int) -> NDArray[Any]:
        """[rows, hidden] view to write a rank's expert outputs into, in the order of the received rows."""
        flat = self.pod.view(self._ranks[rank].expert_output, self.config.numpy_dtype(), (-1, self.config.hidden))
        return flat[: len(self.received(rank).x)]

    # ---- combine

    def combine(self, weights: Sequence[NDArray[np.float32]], progress: Progress | None = None) -> list[NDArray[Any]]:
        """Bring the experts' outputs back and sum them for each token of the last dispatch.

        weights: for each rank [T, top_k] float32 gate weights; that of the shared expert is not used.
        Returns for each rank [T, hidden] of the group's type: views, valid until the next combine.

        Raises ConfigError, before anything moves, for wrong shapes or types, or if nothing was dispatched.
        """
        if self._dispatches == 0:
            raise ConfigError("combine: nothing was dispatched")
        self.pod.check_ready()
        self._check_per_rank("weights", weights)
        weights = [np.asarray(table) for table in weights]
        for rank, table in enumerate(weights):
            shape = (self._tokens[rank], self.config.top_k)
            if table.shape != shape or table.dtype != np.float32:
                must = f"{list(shape)} float32"
                raise ConfigError(f"weights of rank {rank}: {list(table.shape)} {table.dtype}, must be {must}")
        for rank, table in enumerate(weights):
            self._table(self._ranks[rank].weights, np.float32)[: len(table)] = table
        self._combines += 1
        for rank in range(self.config.n_ranks):
            self._launch(combine_kernel.combine, rank, self._combine_args(rank), self._combine_grants(rank))
        self.stats["combine"] = self.pod.run(progress)
        return [self.output(rank) for rank in range(self.config.n_ranks)]

    def _combine_args(self, rank: int) -> dict[str, int | Sequence[int]]:
        buffers, layout, first = self._ranks[rank], self.layout, self.config.first_die
        staging = [layout.staging + i * 2 * self.config.row_bytes for i in range(self.config.cores)]
        return self._common_args(rank) | {
            "event": self._combines,
            "y": buffers.expert_output.address,
            "weights": buffers.weights.address,
            "out": buffers.output.address,
            "shared": int(self.config.shared),
            "staging": [self.pod.managed(self._die(rank), offset) for offset in staging],
            "blocks": self.pod.managed(first, layout.combine_blocks),
            "block_bytes": layout.combine_block_bytes,
            "fields": self.pod.meta(first, layout.combine_fields),
            "done": self.pod.meta(first, layout.combine_done),
            "room": self._room(self.config.row_bytes),
        }

    def _combine_grants(self, rank: int) -> list[Grant]:
        b, grant = self._ranks[rank], self.pod.grant
        tables = [(b.topk, "r"), (b.position, "r"), (b.weights, "r"), (b.counts, "r")]
        app = [(b.expert_output, "r"), (b.output, "w"), *tables]
        return [*self._shared_grants(rank), *(grant(buffer, rights) for buffer, rights in app)]

    def output(self, rank: int) -> NDArray[Any]:
        """What the last combine gave a rank: [T, hidden]."""
        flat = self.pod.view(self._ranks[rank].output, self.config.numpy_dtype(), (-1, self.config.hidden))
        return flat[: self._tokens[rank]]

    # ---- both

    def _launch(self, kernel: Kernel, rank: int, args: Args, grants: Sequence[Grant]) -> None:
        self.pod.launch(kernel, self._die(rank), range(self.config.cores), args, grants)

    def _check_per_rank(self, name: str, arrays: Sequence[object]) -> None:
        if len(arrays) != self.config.n_ranks:
            raise ConfigError(f"{name}: {len(arrays)} arrays for {self.config.n_ranks} ranks")

    def reset(self) -> None:
        """After a failed run: stop all cores, zero the group's metadata fields, and count rounds from the start."""
        self.pod.clear()
        start, end = self.layout.dispatch_fields, self.layout.meta_end
        for rank in range(self.config.n_ranks):
            first = self.pod.meta(self._die(rank), start)
            self.pod.memory[first : first + end - start] = 0
        self._dispatches = self._combines = 0
