"""Inputs of small expert-parallel groups, and what their app buffers must hold in the end, by the oracle."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu import oracle
from xccl_emu.kernels.experts.counts import INDEX_BYTES
from xccl_emu.kernels.group import align
from xccl_emu.machine.pod import Buffer
from xccl_emu.protocols.experts.buffers import whole_rows
from xccl_emu.protocols.experts.config import DTYPES, ROUTE, EpConfig

_BITS = {"bf16": (0x3F01, 0x3F80), "fp16": (0x3801, 0x3900)}
"""Bits of numbers from 0.5 to 1, or to 0.63."""

Rows = list[NDArray[Any]]
"""An array for each round."""


@dataclass(frozen=True, eq=False)
class Batch:
    """One round: for each rank tokens [T, hidden] BF16, choices [T, top_k] INT32 and weights [T, top_k] FP32."""

    tokens: list[NDArray[Any]]
    topk: list[NDArray[np.int32]]
    weights: list[NDArray[np.float32]]


def choice_steps(config: EpConfig) -> NDArray[np.int64]:
    """[top_k] from a token's first expert slot to that of each choice; with ``repeats`` two are in the same one."""
    return np.arange(config.top_k) // (1 + config.repeats)


def make_batches(config: EpConfig, rounds: Sequence[Sequence[int]], seed: int) -> list[Batch]:
    """Batches of rounds with so many tokens of each rank; who has any has some for the next rank, in every other round
    all of them.

    Each byte of a hidden state is above 0, and so is each byte that it is quantized to (absolute values from 0.5 to 1):
    nothing looks like memory that was never written.
    """
    rng = np.random.default_rng(seed)
    batches = []
    for i, lengths in enumerate(rounds):
        apart = (i + 1) % 2
        first = [rank + 1 + i // 2 + apart * np.arange(n)[:, None] for rank, n in enumerate(lengths)]
        topk = [((slots + choice_steps(config)) % config.n_slots).astype(np.int32) for slots in first]
        weights = [rng.uniform(0.5, 2, (n, config.top_k)).astype(np.float32) for n in lengths]
        batches.append(Batch([states(rng, n, config.hidden, config.dtype) for n in lengths], topk, weights))
    return batches


def states(rng: np.random.Generator, n: int, hidden: int, dtype: str = "bf16") -> NDArray[Any]:
    """[n, hidden] hidden states without a zero byte, also when quantized."""
    bits = rng.integers(*_BITS[dtype], (n, hidden)) | rng.integers(0, 2, (n, hidden)) << 15
    return bits.astype(np.uint16).view(DTYPES[dtype][1])


class Image:
    """What the buffers of one rank hold, row by row: those that the host fills, and those that a phase writes.

    ``given`` and ``written`` map the names of buffers to their bytes, all rounds one behind the other.
    """

    def __init__(self, config: EpConfig, batches: Sequence[Batch], rank: int) -> None:
        self._config = config
        self._rows: dict[str, Rows] = {}
        for batch in batches:
            for name, rows in _round(config, batch, rank).items():
                self._rows.setdefault(name, []).append(rows)
        given = ("batches", "x", "topk", "weights")
        self.given = {name: self._table(name) for name in given}
        self.written = {name: self._table(name) for name in self._rows if name not in given}

    def parts(self, name: str, buffer: Buffer) -> Iterator[Buffer]:
        """The bytes of a buffer that hold something: each row of each round, without what fills it up."""
        stride, n_rows = self._strides()[name]
        for i, rows in enumerate(self._rows[name]):
            for j, row in enumerate(rows):
                yield Buffer(buffer.die, buffer.address + (i * n_rows + j) * stride, row.nbytes)

    def _table(self, name: str) -> NDArray[np.uint8]:
        """[rounds, rows, stride] bytes, zero where nothing is written."""
        stride, n_rows = self._strides()[name]
        table = np.zeros((len(self._rows[name]), n_rows, stride), np.uint8)
        for i, rows in enumerate(self._rows[name]):
            raw = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), rows[:1].nbytes)
            table[i, : len(rows), : raw.shape[1]] = raw
        return table

    def _strides(self) -> Mapping[str, tuple[int, int]]:
        """Bytes of a row and rows of a round, by the name of the buffer."""
        c = self._config
        return {
            "batches": (8, 1), "x": (c.row_bytes, c.tokens_max), "topk": (INDEX_BYTES, c.tokens_max),
            "weights": (INDEX_BYTES, c.tokens_max), "pos": (INDEX_BYTES, c.tokens_max),
            "recv_x": (c.payload_bytes, c.rows_max), "route": (ROUTE.itemsize, c.rows_max),
            "counts": (align(4 * c.n_slots), 1), "y": (c.row_bytes, c.rows_max), "out": (c.row_bytes, c.tokens_max),
        }  # fmt: skip


def _round(config: EpConfig, batch: Batch, rank: int) -> dict[str, NDArray[Any]]:
    """The rows of each buffer of a rank in one round; the order of ``recv_x`` and so on is that of the phases."""
    c = config
    sent = oracle.dispatch(batch.tokens, batch.topk, c.n_ranks, c.local_experts, c.quantized, c.quantizer)
    got = received_rows(sent, rank)
    return {
        "batches": np.array([[len(batch.tokens[rank])]], np.int32),
        "x": batch.tokens[rank],
        "topk": whole_rows(batch.topk[rank]),
        "weights": batch.weights[rank],
        **got,
        "route": got["route"][:, None],
        "counts": sent.received_by(rank).counts.reshape(1, -1),
        "pos": _positions(config, batch.topk[rank]),
        "out": sent.combined_for(
            rank, batch.weights[rank], shared=c.shared, quantizer=c.quantizer if c.quantized_back else None
        ),
    }


def received_rows(sent: oracle.Dispatched, rank: int) -> dict[str, NDArray[Any]]:
    """What a rank or expert die has received, in the order of its rows, and what its experts make of it."""
    got = sent.received_by(rank)
    route = np.zeros(len(got.x), ROUTE)
    route["scale"], route["source"], route["token"], route["choice"] = got.scales, got.source, got.token, got.choice
    route["slot"] = got.expert + rank * sent.local_experts
    return {"recv_x": got.x, "route": route, "y": sent.dummy(np.full(len(got.x), rank), np.arange(len(got.x)))}


def _positions(config: EpConfig, topk: NDArray[np.int32]) -> NDArray[np.int32]:
    """[T, top_k] places of messages in their blocks: behind those of a rank's earlier experts and of earlier tokens."""
    flat, local = topk.reshape(-1), config.local_experts
    ahead = (flat // local == flat[:, None] // local) & (flat < flat[:, None])
    before = np.tril(flat == flat[:, None], -1)
    positions: NDArray[np.int32] = (ahead | before).sum(axis=1).astype(np.int32).reshape(topk.shape)
    return positions
