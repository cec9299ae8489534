"""Calls of few attention and expert dies, and what their app buffers must hold in the end, by the oracle."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from xccl_emu import oracle
from xccl_emu.protocols.a2e.calls import Call
from xccl_emu.protocols.a2e.config import A2EConfig
from xccl_emu.protocols.experts.config import ROUTE
from xccl_emu.protocols.experts.data import received_rows, states


def make_calls(c: A2EConfig, tokens: Sequence[Sequence[int]], masked: bool, seed: int) -> list[Call]:
    """Calls with so many tokens of each attention die; those of neighbouring dies go to neighbouring experts, one
    further in every call."""
    rng = np.random.default_rng(seed)
    calls = []
    for call, lengths in enumerate(tokens):
        first = [i + call + np.arange(n)[:, None] for i, n in enumerate(lengths)]
        topk = [((slots + np.arange(c.top_k)) % c.n_slots).astype(np.int32) for slots in first]
        if masked:
            next(choices for choices in topk if len(choices))[0, 0] = -1
        weights = [rng.uniform(0.5, 2, (n, c.top_k)).astype(np.float32) for n in lengths]
        calls.append(Call([states(rng, n, c.hidden, c.dtype) for n in lengths], topk, weights))
    return calls


def in_turns(calls: Sequence[Call], tokens_max: int, turns: int) -> list[Call]:
    """Calls in so many parts of at most ``tokens_max`` tokens as the largest needs, each part a call in its turn.

    Where the calls do not fill the last turns, calls without tokens stand in between.
    """
    parts = max((-(-len(x) // tokens_max) for call in calls for x in call.tokens), default=1)
    if parts <= 1:
        return list(calls)
    out: list[Call] = []
    for cycle in (calls[i : i + turns] for i in range(0, len(calls), turns)):
        for part in range(parts):
            out += [_part(call, part, tokens_max) for call in cycle]
            if part < parts - 1:
                out += [_part(cycle[0], parts, tokens_max)] * (turns - len(cycle))
    return out


def _part(call: Call, number: int, tokens_max: int) -> Call:
    """So many tokens of each attention die, or the last ones, or none."""
    rows = slice(number * tokens_max, (number + 1) * tokens_max)
    return Call(*([of_die[rows] for of_die in column] for column in call))


class Image:
    """What the buffers hold when all calls are done: of each call at its place what no later one has overwritten."""

    def __init__(self, config: A2EConfig, calls: Sequence[Call], ends: bool) -> None:
        """``ends``: whether the expert dies are told of the end."""
        self._config, self._calls, self._ends = config, calls, ends
        self._sent = [
            oracle.dispatch(
                call.tokens, call.topk, config.n_experts, config.local_experts, config.quantized, config.quantizer
            )
            for call in calls
        ]

    def outputs(self, domain: int, i: int) -> NDArray[np.uint8]:
        """Return the outputs of an attention die, of all its calls."""
        c = self._config
        mine = range(domain, len(self._calls), c.turns)
        out = np.zeros((len(mine), c.tokens_max, c.row_bytes), np.uint8)
        for r, call in enumerate(mine):
            summed = self._sent[call].combined_for(i, self._calls[call].weights[i], shared=c.shared)
            out[r, : len(summed)] = summed.view(np.uint8)
        return out

    def rows(self, die: int) -> dict[str, NDArray[np.uint8]]:
        """Return the rows of an expert die, by name of the buffer."""
        c = self._config
        images = {
            "recv_x": np.zeros((c.depth, c.rows_max, c.payload_bytes), np.uint8),
            "route": np.zeros((c.depth, c.rows_max, ROUTE.itemsize), np.uint8),
            "y": np.zeros((c.depth, c.rows_max, c.row_bytes), np.uint8),
        }
        for call, sent in enumerate(self._sent):
            for name, rows in received_rows(sent, die).items():
                image = images[name][call % c.depth]
                image[: len(rows)] = rows.view(np.uint8).reshape(len(rows), image.shape[1])
        return images | {"counts": self._counts(die)}

    def _counts(self, die: int) -> NDArray[np.uint8]:
        """Behind the last call comes the end, if it is told, with -1 for every count."""
        c = self._config
        image = np.zeros((c.depth + 1, c.counts_bytes // 4), np.int32)
        for call, sent in enumerate(self._sent):
            image[call % (c.depth + 1), : c.local_experts * c.n_attention] = sent.received_by(die).counts.reshape(-1)
        if self._ends:
            image[len(self._calls) % (c.depth + 1), : c.local_experts * c.n_attention] = -1
        return image.view(np.uint8)
