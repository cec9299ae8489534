"""Reference dispatch and combine of a mixture-of-experts layer ([xDeepServe] 3.2, [CloudMatrix384] 4.2.1).

A *choice* is one (source rank, token, key offset) with a global expert id, or -1 for none. Expert ``e`` lives on
expert rank ``e // local_experts``, there with local index ``e % local_experts``. What an expert rank has received is
ordered by local expert, then source rank, then token, then key offset.

One index over all choices is built once; rows are made per rank, so that a pod of 288 ranks is checked rank by rank.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.oracle.numerics import (
    QUANTIZERS,
    Hidden,
    Quantizer,
    dequantize_fp8,
    dequantize_int8,
    hidden_dtype,
    round_to,
)

Index = NDArray[np.int64]

Fetch = Callable[[Index, Index], Hidden]
"""``fetch(expert_ranks [n], rows [n])`` -> expert outputs [n, hidden] in the type of the hidden states."""


def expert_factors(experts: Index) -> NDArray[np.float32]:
    """Factor of the dummy expert, FP32(1 + (e % 7) / 8): neighbours differ and all seven are exact."""
    return (1 + (experts % 7) / 8).astype(np.float32)


def dummy_expert(x: NDArray[Any], scales: NDArray[np.float32], experts: Index, dtype: np.dtype[Any]) -> Hidden:
    """Return what the dummy expert makes of received rows.

    `x` is [rows, hidden], INT8 or `dtype`; `scales` FP32 [rows], used for INT8 only; `experts` global ids [rows];
    returns [rows, hidden] of `dtype` (BF16 or FP16). INT8: (FP32(q) * scale) * factor, rounded after each
    multiplication, then to `dtype`. Otherwise FP32(x) * factor, rounded, then to `dtype`.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if x.dtype == np.int8:
            wide = dequantize_int8(x, scales)
        else:
            wide = dequantize_fp8(x, scales) if scales.ndim == 2 else x.astype(np.float32)
        wide *= expert_factors(experts)[:, None]
    return round_to(wide, dtype)


@dataclass(frozen=True, eq=False)
class ReceivedRows:
    """What one expert rank holds after dispatch; N rows in the order of the module's docstring.

    `x` [N, hidden] INT8, e4m3 or the hidden states' type; `scales` [N] FP32 (0.0 where nothing was quantized), for e4m3
    [N, hidden / 128];
    `expert` (local index), `source` (rank), `token` (batch slot), `choice` (key offset), each [N];
    `counts` INT32 [local_experts, source ranks].
    """

    x: NDArray[Any]
    scales: NDArray[np.float32]
    expert: Index
    source: Index
    token: Index
    choice: Index
    counts: NDArray[np.int32]


class Dispatched:
    """All choices of a dispatch, indexed both ways: from an expert rank's rows, and from a token to its rows.

    Made by `dispatch`. Holds the rows as sent (INT8 when quantized) and does not change afterwards.
    """

    def __init__(
        self,
        rows: NDArray[Any],
        scales: NDArray[np.float32],
        experts: Index,
        tokens_per_source: Index,
        n_ranks: int,
        local_experts: int,
        dtype: np.dtype[Any],
    ) -> None:
        """`rows` [tokens, hidden] and `scales` [tokens] as sent, `experts` [tokens, choices] of all sources."""
        self.n_ranks = n_ranks
        self.n_sources = len(tokens_per_source)
        self.local_experts = local_experts
        self.dtype = dtype
        self.hidden: int = rows.shape[1]
        self.n_choices: int = experts.shape[1]
        self._rows = rows
        self._scales = scales
        self._first_token = np.concatenate(([0], np.cumsum(tokens_per_source)))
        self._source_of_token = np.repeat(np.arange(self.n_sources), tokens_per_source)
        self._expert_of_choice = experts.reshape(-1)
        self._index_choices()

    def _index_choices(self) -> None:
        # Choices are numbered by source, token, key offset: a stable sort by expert gives the order of reception.
        taken = np.flatnonzero(self._expert_of_choice >= 0)
        order = taken[np.argsort(self._expert_of_choice[taken], kind="stable")]
        rank_of_row = self._expert_of_choice[order] // self.local_experts
        self._first_row = np.searchsorted(rank_of_row, np.arange(self.n_ranks + 1))
        self._choice_of_row = order
        self._row_of_choice = np.full(len(self._expert_of_choice), -1, np.int64)
        self._row_of_choice[order] = np.arange(len(order)) - self._first_row[rank_of_row]

    def received_by(self, rank: int) -> ReceivedRows:
        """Return what expert rank `rank` holds after dispatch; raises ConfigError if there is no such rank."""
        self._check_rank("rank", rank, self.n_ranks)
        choice = self._choice_of_row[self._first_row[rank] : self._first_row[rank + 1]]
        sent, k = choice // self.n_choices, choice % self.n_choices
        source = self._source_of_token[sent]
        expert = self._expert_of_choice[choice] - rank * self.local_experts
        cells = np.bincount(expert * self.n_sources + source, minlength=self.local_experts * self.n_sources)
        counts = cells.astype(np.int32).reshape(self.local_experts, self.n_sources)
        token = sent - self._first_token[source]
        return ReceivedRows(self._rows[sent], self._scales[sent], expert, source, token, k, counts)

    def rows_of(self, source: int) -> tuple[Index, Index]:
        """Return where the choices of rank `source` went: expert ranks and rows, each [tokens, choices], -1 if masked.

        Raises ConfigError if there is no such source rank.
        """
        choices = self._choices_of(source)
        experts = self._expert_of_choice[choices].reshape(-1, self.n_choices)
        ranks = np.where(experts >= 0, experts // self.local_experts, -1)
        return ranks, self._row_of_choice[choices].reshape(-1, self.n_choices)

    def dummy(self, expert_ranks: Index, rows: Index) -> Hidden:
        """A `Fetch` that computes the dummy expert's outputs [n, hidden] for rows [n] of expert ranks [n]."""
        choice = self._choice_of_row[self._first_row[expert_ranks] + rows]
        sent = choice // self.n_choices
        return dummy_expert(self._rows[sent], self._scales[sent], self._expert_of_choice[choice], self.dtype)

    def combined_for(
        self,
        source: int,
        weights: NDArray[np.float32],
        fetch: Fetch | None = None,
        shared: bool = False,
        quantizer: str | None = None,
        kept: NDArray[np.bool_] | None = None,
    ) -> Hidden:
        """Return what source rank `source` holds after combine: [tokens, hidden] in the type of the hidden states.

        `weights` is FP32 [tokens, choices]; `fetch` gives expert outputs by expert rank and row (default: the
        dummy expert's). Per token an FP32 accumulator starts at +0; in key order each choice that is not masked
        adds weight * FP32(output), rounded after the product and after the sum. With `shared`, the last choice is the
        shared expert and is added as it is. One rounding at the end. A token whose choices are all masked gives zeros.

        With a `quantizer`, the name of a rule, expert outputs travel as INT8 (xDeepServe 4.7): each is quantized, and
        FP32(q) * scale, rounded, takes the place of FP32(output).  With `kept`, a bool [tokens, choices], the other
        choices are left out, as if they were masked; the experts had them.

        Raises ConfigError if there is no such source rank, or the weights or fetched rows have a wrong shape or type.
        """
        ranks, rows = self.rows_of(source)
        if weights.shape != ranks.shape or weights.dtype != np.float32:
            raise ConfigError(
                f"weights of source rank {source} are {weights.dtype.name} {weights.shape}; "
                f"they must be float32 {ranks.shape}"
            )
        acc = np.zeros((len(ranks), self.hidden), np.float32)
        for k in range(self.n_choices):
            taken = np.flatnonzero((ranks[:, k] >= 0) if kept is None else (ranks[:, k] >= 0) & kept[:, k])
            if not taken.size:
                continue
            outputs = self._fetched(fetch or self.dummy, ranks[taken, k], rows[taken, k])
            # Infinities and what follows from them are results to compare, not surprises to warn of.
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                part = dequantize_int8(*QUANTIZERS[quantizer](outputs)) if quantizer else outputs.astype(np.float32)
                if not (shared and k == self.n_choices - 1):
                    part *= weights[taken, k, None]
                acc[taken] += part
        return round_to(acc, self.dtype)

    def _fetched(self, fetch: Fetch, ranks: Index, rows: Index) -> Hidden:
        outputs = fetch(ranks, rows)
        if outputs.shape != (len(rows), self.hidden) or outputs.dtype != self.dtype:
            raise ConfigError(
                f"fetch gave {outputs.dtype.name} {outputs.shape}; "
                f"expert outputs must be {self.dtype.name} {(len(rows), self.hidden)}"
            )
        return outputs

    def _choices_of(self, source: int) -> slice:
        self._check_rank("source", source, self.n_sources)
        first, last = self._first_token[source : source + 2] * self.n_choices
        return slice(int(first), int(last))

    @staticmethod
    def _check_rank(name: str, rank: int, n: int) -> None:
        if not 0 <= rank < n:
            raise ConfigError(f"{name} is {rank}; it must be in 0..{n - 1}")


def dispatch(
    tokens: Sequence[Hidden],
    topk: Sequence[NDArray[np.integer[Any]]],
    n_ranks: int,
    local_experts: int,
    quantized: bool,
    quantizer: str = "xccl",
) -> Dispatched:
    """Send every token to the expert ranks of its choices.

    `tokens`: per source rank [T_r, hidden], all BF16 or all FP16 (T_r may differ and may be 0). `topk`: per source
    rank integers [T_r, choices], global expert ids or -1; a token may choose an expert twice. `n_ranks` expert ranks
    with `local_experts` experts each; there may be more or fewer source ranks than expert ranks. `quantizer` names a
    rule of `QUANTIZERS`, used where `quantized`.

    Rows are copied or quantized here, except that one unquantized array [ranks, T, hidden] is kept as it is.
    Raises ConfigError for arrays that do not fit, ids out of range, and NaN or infinity when quantizing.
    """
    for name, value in (("n_ranks", n_ranks), ("local_experts", local_experts)):
        if value < 1:
            raise ConfigError(f"{name} is {value}; it must be at least 1")
    if quantizer not in QUANTIZERS:
        raise ConfigError(f"quantizer is {quantizer!r}; it must be one of {', '.join(QUANTIZERS)}")
    dtype, n_choices = _checked_shapes(tokens, topk)
    for source, ids in enumerate(topk):
        _check_ids(source, ids, n_ranks * local_experts)
    experts = np.concatenate([ids.astype(np.int64) for ids in topk]).reshape(-1, n_choices)
    tokens_per_source = np.array([len(part) for part in tokens], np.int64)
    rows, scales = _quantized_rows(tokens, QUANTIZERS[quantizer]) if quantized else _plain_rows(tokens)
    return Dispatched(rows, scales, experts, tokens_per_source, n_ranks, local_experts, dtype)


def _checked_shapes(
    tokens: Sequence[Hidden], topk: Sequence[NDArray[np.integer[Any]]]
) -> tuple[np.dtype[Any], int]:
    """Common type and number of choices of all source ranks."""
    if len(tokens) == 0 or len(tokens) != len(topk):
        raise ConfigError(f"tokens has {len(tokens)} ranks and topk {len(topk)}; both need one array per source rank")
    dtype = hidden_dtype(tokens[0].dtype)
    hidden, n_choices = _columns(tokens[0]), _columns(topk[0])
    for source, (x, ids) in enumerate(zip(tokens, topk, strict=True)):
        if x.dtype != dtype or x.ndim != 2 or x.shape[1] != hidden or hidden < 1:
            raise ConfigError(
                f"tokens[{source}] is {x.dtype.name} {x.shape}; it must be {dtype.name} [tokens, {max(hidden, 1)}]"
            )
        if ids.dtype.kind not in "iu" or ids.shape != (len(x), n_choices) or n_choices < 1:
            raise ConfigError(
                f"topk[{source}] is {ids.dtype.name} {ids.shape}; "
                f"it must be integers of shape {(len(x), max(n_choices, 1))}"
            )
    return dtype, n_choices


def _columns(array: NDArray[Any]) -> int:
    return int(array.shape[1]) if array.ndim == 2 else 0


def _check_ids(source: int, ids: NDArray[np.integer[Any]], n_experts: int) -> None:
    bad = np.argwhere((ids < -1) | (ids >= n_experts))
    if bad.size:
        token, k = (int(i) for i in bad[0])
        raise ConfigError(f"topk[{source}][{token}, {k}] is {ids[token, k]}; it must be -1 or in 0..{n_experts - 1}")


def _quantized_rows(
    tokens: Sequence[Hidden], quantize: Quantizer
) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """All source ranks' rows in INT8 or FP8, quantized rank by rank to keep FP32 temporaries small."""
    made = []
    for source, part in enumerate(tokens):
        try:
            made.append(quantize(part))
        except ConfigError as error:
            raise ConfigError(f"tokens[{source}]: {error}") from error
    rows, scales = zip(*made, strict=True)
    return np.concatenate(rows), np.concatenate(scales)


def _plain_rows(tokens: Sequence[Hidden]) -> tuple[Hidden, NDArray[np.float32]]:
    # One array [ranks, T, hidden] needs no second copy of what may be a quarter of a gigabyte.
    rows = tokens.reshape(-1, tokens.shape[-1]) if isinstance(tokens, np.ndarray) else np.concatenate(tokens)
    return rows, np.zeros(len(rows), np.float32)
