"""Calls of few attention and expert dies, and what their app buffers must hold in the end, by the oracle."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from xccl_emu import oracle
from xccl_emu.protocols.a2e.calls import Call, Calls
from xccl_emu.protocols.a2e.config import A2EConfig
from xccl_emu.protocols.experts import layout as app
from xccl_emu.protocols.experts.data import received_rows, states, wrong_rows, wrong_sums


def make_calls(c: A2EConfig, tokens: Sequence[Sequence[int]], masked: bool, seed: int) -> list[Call]:
    """Calls with this many tokens of each attention die; tokens of neighbouring dies go to neighbouring experts, one
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
    """Calls in as many parts of at most ``tokens_max`` tokens as the largest needs, each part a call in its turn.

    Where the calls do not fill the last turns, calls without tokens are put in between.
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
    """The ``number``-th ``tokens_max`` tokens of each attention die, or the last ones, or none."""
    rows = slice(number * tokens_max, (number + 1) * tokens_max)
    return Call(*([of_die[rows] for of_die in column] for column in call))


def sent_in(c: A2EConfig, call: Call) -> oracle.Dispatched:
    """Return what the oracle has of a call."""
    return oracle.dispatch(call.tokens, call.topk, c.n_experts, c.local_experts, c.quantized, c.quantizer)


class CallsImage:
    """What the buffers hold when all calls are done: of each call at its place what no later one has overwritten."""

    def __init__(self, config: A2EConfig, calls: Sequence[Call], ends: bool) -> None:
        """``ends``: whether the expert dies get the end of the calls."""
        self._config, self._calls, self._ends = config, calls, ends
        self._sent = [sent_in(config, call) for call in calls]

    def outputs(self, domain: int, i: int) -> NDArray[np.uint8]:
        """Return the outputs of an attention die, of all its calls."""
        c = self._config
        mine = range(domain, len(self._calls), c.turns)
        sums = (self._sent[call].combined_for(i, self._calls[call].weights[i], shared=c.shared) for call in mine)
        return app.image_of(c, "out", len(mine), enumerate(sums))

    def rows(self, die: int) -> dict[str, NDArray[np.uint8]]:
        """Return the rows of an expert die, and their counts, by name of the buffer.

        After the last call comes the end, if ``ends``, with -1 for every count.
        """
        c = self._config
        received = [received_rows(sent, die) for sent in self._sent]
        if self._ends:
            received.append({"counts": np.full((1, c.local_experts * c.n_attention), -1, np.int32)})
        return {
            name: app.image_of(c, name, n, ((i % n, rows[name]) for i, rows in enumerate(received) if name in rows))
            for name, n in c.calls_kept.items()
        }


def count_wrong(calls: Calls, number: int, call: Call, rows: bool = True) -> tuple[int, int]:
    """Elements of what the expert dies got in a call, if its rows are still there, and of its outputs, that are not the
    oracle's."""
    c = calls.config
    sent = sent_in(c, call)
    got = (calls.received(number, die) for die in range(c.n_experts if rows else 0))
    outputs = (calls.output(number, i) for i in range(c.n_attention))
    return sum(wrong_rows(sent, die, each) for die, each in enumerate(got)), sum(
        wrong_sums(sent, i, call.weights[i], output, c.shared) for i, output in enumerate(outputs)
    )
