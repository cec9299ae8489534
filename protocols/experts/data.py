"""Inputs of small expert-parallel groups, what their app buffers must hold in the end, by the oracle, and how many
elements of what came out are something else."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu import oracle
from xccl_emu.kernels.group import align
from xccl_emu.machine.pod import Buffer
from xccl_emu.protocols.experts import layout as app
from xccl_emu.protocols.experts.config import DTYPES, ROUTE, EpConfig
from xccl_emu.protocols.experts.group import ExpertGroup
from xccl_emu.protocols.experts.layout import Received

PerRank = Sequence[NDArray[Any]] | NDArray[Any]
"""An array for each rank."""
_SAME_NAMES = ("x", "scales", "source", "token", "choice", "counts")


def draw_tokens(ranks: int, tokens: int, hidden: int, dtype: str, seed: int) -> NDArray[Any]:
    """[ranks, tokens, hidden] normally distributed hidden states of type ``"bf16"`` or ``"fp16"``."""
    rng = np.random.default_rng((seed, 0))
    states = np.empty((ranks, tokens, hidden), DTYPES[dtype][1])
    for rank in range(ranks):
        states[rank] = rng.standard_normal((tokens, hidden), dtype=np.float32)
    return states


def wrong_rows(expected: oracle.Dispatched, rank: int, got: Received) -> int:
    """Elements of what an expert rank received (rows, scales, routes, counts) that are not the oracle's."""
    want = expected.received_by(rank)
    wrong = differ(got.slot - rank * expected.local_experts, want.expert.astype(np.int32))
    return wrong + sum(differ(getattr(got, name), getattr(want, name)) for name in _SAME_NAMES)


def wrong_sums(
    expected: oracle.Dispatched,
    source: int,
    weights: NDArray[np.float32],
    got: NDArray[Any],
    shared: bool = True,
    quantizer: str | None = None,
) -> int:
    """Elements of the outputs [T, hidden] of a source rank that are not the oracle's.

    shared: whether the last choice is the shared expert.  quantizer: rule by which expert outputs travel as INT8, if
    they do.
    """
    return differ(got, expected.combined_for(source, weights, shared=shared, quantizer=quantizer))


def count_wrong(
    group: ExpertGroup[Any], tokens: PerRank, topk: Sequence[NDArray[Any]], weights: Sequence[NDArray[np.float32]]
) -> tuple[int, int]:
    """Elements of all that the group's ranks received, and of their outputs, that are not the oracle's."""
    c = group.config
    expected = oracle.dispatch(list(tokens), topk, c.n_ranks, c.local_experts, c.quantized, quantizer=c.quantizer)
    rows = sum(wrong_rows(expected, rank, group.received(rank)) for rank in range(c.n_ranks))
    back = c.quantizer if c.quantized_back else None
    sums = (wrong_sums(expected, r, weights[r], group.output(r), c.shared, back) for r in range(c.n_ranks))
    return rows, sum(sums)


def differ(got: NDArray[Any], want: NDArray[Any]) -> int:
    """Return the number of elements that differ in a bit; all of them if the shapes do."""
    if got.shape != want.shape:
        return max(got.size, want.size, 1)
    bits = {1: np.uint8, 2: np.uint16, 4: np.uint32}[got.dtype.itemsize]
    got, want = np.ascontiguousarray(got), np.ascontiguousarray(want, got.dtype)
    return int(np.count_nonzero(got.view(bits) != want.view(bits)))


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
    """[top_k] from a token's first expert slot to each choice's; with ``repeats`` two are in the same one."""
    return np.arange(config.top_k) // (1 + config.repeats)


def make_batches(config: EpConfig, rounds: Sequence[Sequence[int]], seed: int) -> list[Batch]:
    """Batches of rounds with these numbers of tokens of each rank; who has any has some for the next rank, in every
    other round all of them.

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
        batches.append(Batch([_rows(rng, n, config) for n in lengths], topk, weights))
    return batches


def _rows(rng: np.random.Generator, n: int, config: EpConfig) -> NDArray[Any]:
    """Return what n tokens send: hidden states; opaque tokens have them at their beginning."""
    given = states(rng, n, config.hidden, config.dtype)
    if not config.opaque_bytes:
        return given
    rest = rng.integers(1, 256, (n, config.opaque_bytes - config.row_bytes)).astype(np.uint8)
    return np.hstack([given.view(np.uint8), rest])


def states(rng: np.random.Generator, n: int, hidden: int, dtype: str = "bf16") -> NDArray[Any]:
    """[n, hidden] hidden states without a zero byte, also when quantized."""
    bits = rng.integers(*_BITS[dtype], (n, hidden)) | rng.integers(0, 2, (n, hidden)) << 15
    return bits.astype(np.uint16).view(DTYPES[dtype][1])


_EXACT = {"bf16": 0x3F80, "fp16": 0x3940}
"""Bits of a number so short that its products with the factors of dummy experts are not rounded."""
_LARGE = 1 << 20
"""What FP32 adds to it is rounded more than by the type of outputs."""


def places_of(rounds: Sequence[Sequence[int]]) -> list[tuple[int, int, int]]:
    """Return round, source and place of the same token, which is twice in a batch of three or more.

    Each batch has it at a different place; batches of one token have it every other time, but one always does.
    """
    there = [(i, s, n) for i, lengths in enumerate(rounds) for s, n in enumerate(lengths) if n]
    places = [(i, s, (i + s + j) % n) for i, s, n in there for j in range(min(2, n - 1) or (i + s + 1) % 2)]
    return places or [(*there[0][:2], 0)]


def plant(batches: Sequence[Any], places: Sequence[tuple[int, int, int]], dtype: str) -> list[Any]:
    """Put the same token, with its choices and weights, at these places of batches, which are `Batch` or alike.

    Of each token the contributions of the first two choices that are not masked are large and cancel in every other
    element: what a third one adds to them keeps its bits only if it is added after both.
    """
    for batch in batches:
        for x, choices, weights in zip(batch.tokens, batch.topk, batch.weights, strict=True):
            if x.dtype == DTYPES[dtype][1]:
                x.view(np.uint16)[:, ::2] = _EXACT[dtype] | x.view(np.uint16)[:, ::2] & 0x8000
            for chosen, weight in zip(choices, weights, strict=True):
                first = np.flatnonzero(chosen >= 0)[:2]
                if np.count_nonzero(chosen >= 0) > 2:
                    weight[first] = oracle.expert_factors(chosen[first[::-1]]) * np.array([_LARGE, -_LARGE], np.float32)
    i, s, t = places[0]
    token = [each[s][t].copy() for each in (batches[i].tokens, batches[i].topk, batches[i].weights)]
    for i, s, t in places:
        batches[i].tokens[s][t], batches[i].topk[s][t], batches[i].weights[s][t] = token
    return [*batches]


def turn_choices(batches: Sequence[Any], places: Iterable[tuple[int, int, int | slice]]) -> None:
    """Let tokens at these places have their choices, and so their contributions, in the opposite order."""
    for i, s, t in places:
        for rows in (batches[i].topk[s], batches[i].weights[s]):
            rows[t] = rows[t][..., ::-1].copy()


def rows_of_tokens(config: EpConfig, batch: Batch, sums: bool) -> list[NDArray[Any]]:
    """[T, bytes] of each rank: the sums of its tokens, or else what each expert gets of them."""
    rounds = [_round(config, batch, rank) for rank in range(config.n_ranks)]
    if sums:
        return [made["out"] for made in rounds]
    got: list[list[bytes]] = [[b""] * len(tokens) for tokens in batch.tokens]
    for made in rounds:
        for x, route in zip(made["recv_x"], made["route"][:, 0], strict=True):
            got[route["source"]][route["token"]] += x.tobytes() + route["scale"].tobytes() + route["slot"].tobytes()
    return [np.array([np.frombuffer(row, np.uint8) for row in rows]) for rows in got]


class PhasesImage:
    """What phases write into the buffers of one rank, by the oracle when it is asked for.

    Where there are more batches than ``rounds`` they go through the buffers of these in turn.
    """

    def __init__(self, config: EpConfig, batches: Sequence[Batch], rank: int, rounds: int = 0) -> None:
        self._config, self._batches, self._rank = config, batches, rank
        self._rounds = rounds or len(batches)

    @functools.cached_property
    def _rows(self) -> dict[str, Rows]:
        rounds = [_round(self._config, batch, self._rank) for batch in self._batches]
        return {name: [rows[name] for rows in rounds] for name in rounds[0]}

    def written(self, name: str) -> NDArray[Any]:
        """The bytes of a buffer, round after round."""
        placed = ((i % self._rounds, rows) for i, rows in enumerate(self._rows[name]))
        return app.image_of(self._config, name, self._rounds, placed)

    def parts(self, name: str, own: app.Buffered) -> Iterator[Buffer]:
        """The bytes of a buffer that hold something: each row of each round, without what fills it up."""
        for i, rows in enumerate(self._rows[name]):
            yield from (app.row_of(self._config, own, name, i, j, row.nbytes) for j, row in enumerate(rows))


def _round(config: EpConfig, batch: Batch, rank: int) -> dict[str, NDArray[Any]]:
    """The rows of each buffer of a rank in one round; ``recv_x`` and so on are in the order of the phases."""
    c = config
    given = batch.tokens
    if c.opaque_bytes:
        given = [rows[:, : c.row_bytes].view(c.numpy_dtype()) for rows in given]
    sent = oracle.dispatch(given, batch.topk, c.n_ranks, c.local_experts, c.quantized, c.quantizer)
    quantizer = c.quantizer if c.quantized_back else None
    received = received_rows(sent, rank)
    if c.opaque_bytes:
        route = received["route"].reshape(-1)
        whole = [batch.tokens[source][token] for source, token in zip(route["source"], route["token"], strict=True)]
        received["recv_x"] = np.array(whole, np.uint8).reshape(-1, c.opaque_bytes)
    return {
        **received,
        "pos": _positions(config, batch.topk[rank]),
        "out": sent.combined_for(rank, batch.weights[rank], shared=c.shared, quantizer=quantizer),
    }


def received_rows(sent: oracle.Dispatched, rank: int) -> dict[str, NDArray[Any]]:
    """Return what a rank or expert die has received, by name of the buffer: in the order of its rows, their counts,
    and what its experts make of them."""
    got = sent.received_by(rank)
    route = np.zeros(len(got.x), ROUTE)
    rows = got.x
    if got.scales.ndim == 1:
        route["scale"] = got.scales
    else:  # FP8: after the row, in whole granules
        rows = np.zeros((len(got.x), got.x.shape[1] + align(4 * got.scales.shape[1])), np.uint8)
        rows[:, : got.x.shape[1]] = got.x.view(np.uint8)
        rows[:, got.x.shape[1] :].view(np.float32)[:, : got.scales.shape[1]] = got.scales
    route["source"], route["token"], route["choice"] = got.source, got.token, got.choice
    route["slot"] = got.expert + rank * sent.local_experts
    made = sent.dummy(np.full(len(got.x), rank), np.arange(len(got.x)))
    return {"recv_x": rows, "route": route[:, None], "counts": got.counts.reshape(1, -1), "y": made}


def _positions(config: EpConfig, topk: NDArray[np.int32]) -> NDArray[np.int32]:
    """[T, top_k] places of messages in their blocks: after all of a rank's earlier experts and of earlier tokens."""
    flat, local = topk.reshape(-1), config.local_experts
    ahead = (flat // local == flat[:, None] // local) & (flat < flat[:, None])
    before = np.tril(flat == flat[:, None], -1)
    positions: NDArray[np.int32] = (ahead | before).sum(axis=1).astype(np.int32).reshape(topk.shape)
    return positions
