"""Reading measured routing: loads per expert, or the choices of each token."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.output import read_bytes

_EXPERTS_MAX = 1 << 16
"""An id beyond it is a mistake in the file, and would only cost memory."""


@dataclass(frozen=True, eq=False)
class ExpertLoads:
    """Measured loads: `counts` FP64 [layers, experts], tokens routed to each expert; all zero in a dense layer."""

    counts: NDArray[np.float64]
    source: str

    @property
    def moe_layers(self) -> list[int]:
        """Layers that route at all."""
        return [int(layer) for layer in np.flatnonzero(self.counts.sum(axis=1) > 0)]

    def layer(self, layer: int) -> NDArray[np.float64]:
        """Loads [experts] of one layer; raises ConfigError if it is dense or does not exist."""
        if not 0 <= layer < len(self.counts):
            raise ConfigError(f"layer is {layer}; {self.source} has layers 0..{len(self.counts) - 1}")
        if not self.counts[layer].any():
            raise ConfigError(f"layer is {layer}; in {self.source} that layer routes no tokens")
        loads: NDArray[np.float64] = self.counts[layer]
        return loads


@dataclass(frozen=True, eq=False)
class RecordedChoices:
    """Recorded choices in request order: `topk` INT32 [tokens, k] and `weights` FP32 [tokens, k]."""

    topk: NDArray[np.int32]
    weights: NDArray[np.float32]
    n_experts: int
    source: str


def open_routing(path: str | Path) -> ExpertLoads | RecordedChoices:
    """Read either kind of file: recorded choices if the first line is an object with `topk_ids`, else loads.

    Raises ConfigError as the two loaders do.
    """
    lines = _read(path).splitlines()
    first = next((line for line in lines if line.strip()), "")
    try:
        record = json.loads(first)
    except (ValueError, RecursionError):
        # Loads may be one object spread over many lines; their loader reports what else is wrong.
        return load_expert_loads(path)
    return load_topk_jsonl(path) if isinstance(record, dict) and "topk_ids" in record else load_expert_loads(path)


def load_expert_loads(path: str | Path) -> ExpertLoads:
    """Read a JSON object ``{"logical_count": [layers][experts]}`` with one number of tokens per layer and expert.

    Raises ConfigError, naming the file, if it cannot be read, is not such an object, the layers differ in their
    number of experts, or a count is negative or not a finite number.
    """
    text = _read(path)
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}:1: not JSON that can be read: {error}") from error
    layers = content.get("logical_count") if isinstance(content, dict) else None
    if not isinstance(layers, list) or not layers or not isinstance(layers[0], list) or not layers[0]:
        raise ConfigError(f"{path}:1: expected an object with logical_count, a list of layers of counts per expert")
    counts = np.empty((len(layers), len(layers[0])))
    for number, layer in enumerate(layers):
        if not isinstance(layer, list) or len(layer) != counts.shape[1]:
            raise ConfigError(f"{path}:1: layer {number} of logical_count must be a list of {counts.shape[1]} counts")
        counts[number] = [_number(value, path, 1, f"logical_count[{number}]") for value in layer]
        if (counts[number] < 0).any():
            raise ConfigError(f"{path}:1: layer {number} of logical_count has a negative count")
    return ExpertLoads(counts, Path(path).name)


def load_topk_jsonl(path: str | Path, n_experts: int | None = None) -> RecordedChoices:
    """Read one token a line: ``{"topk_ids": [k ids], "topk_weights": [k numbers]}``; blank lines are skipped.

    `n_experts` is one more than the largest id when not given. Raises ConfigError, naming file and line, if the file
    cannot be read, has no tokens, a line is not such an object or differs in k, an id is out of range or chosen twice,
    or a weight is not a finite FP32.
    """
    if n_experts is not None and n_experts < 1:
        raise ConfigError(f"n_experts is {n_experts}; it must be at least 1")
    ids: list[list[int]] = []
    weights: list[list[float]] = []
    for line, record in _records(path):
        token_ids, token_weights = _choices(record, path, line, n_experts)
        if ids and len(token_ids) != len(ids[0]):
            raise ConfigError(f"{path}:{line}: {len(token_ids)} choices; the tokens before have {len(ids[0])}")
        ids.append(token_ids)
        weights.append(token_weights)
    if not ids:
        raise ConfigError(f"{path}:1: no tokens; expected one object with topk_ids and topk_weights a line")
    topk = np.array(ids, np.int32)
    known = int(topk.max()) + 1 if n_experts is None else n_experts
    return RecordedChoices(topk, np.array(weights, np.float32), known, Path(path).name)


def _records(path: str | Path) -> Iterator[tuple[int, Any]]:
    """Line number and parsed content of each line that is not blank."""
    for line, text in enumerate(_read(path).split("\n"), start=1):
        if not text.strip():
            continue
        try:
            yield line, json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path}:{line}: not JSON: {error}") from error


def _choices(record: Any, path: str | Path, line: int, n_experts: int | None) -> tuple[list[int], list[float]]:
    """The checked ids and weights of one token."""
    ids = record.get("topk_ids") if isinstance(record, dict) else None
    weights = record.get("topk_weights") if isinstance(record, dict) else None
    if not isinstance(ids, list) or not isinstance(weights, list) or not ids or len(ids) != len(weights):
        raise ConfigError(f"{path}:{line}: expected an object with topk_ids and topk_weights of one length")
    limit = _EXPERTS_MAX if n_experts is None else n_experts
    for expert in ids:
        if type(expert) is not int or not 0 <= expert < limit:
            raise ConfigError(f"{path}:{line}: topk_ids has {expert!r}; an id must be an integer in 0..{limit - 1}")
    if len(set(ids)) != len(ids):
        raise ConfigError(f"{path}:{line}: topk_ids {ids} chooses an expert twice")
    return ids, [_number(weight, path, line, "topk_weights") for weight in weights]


def _number(value: Any, path: str | Path, line: int, where: str) -> float:
    """A finite number that fits an FP32; JSON as Python reads it also knows NaN, infinities and booleans."""
    if type(value) not in (int, float) or not abs(value) <= float(np.finfo(np.float32).max):
        raise ConfigError(f"{path}:{line}: {where} has {str(value)[:40]}; expected a finite number")
    return float(value)


def _read(path: str | Path) -> str:
    try:
        return read_bytes(path).decode("utf-8").replace("\r\n", "\n")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}:1: not text in UTF-8: {error.reason}") from error
