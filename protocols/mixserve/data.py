"""Tokens of all groups of a cluster that runs MixServe, the tables that say where their rows go, and what must come."""

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xccl_emu.oracle.mixserve import combined, dispatched, partials, rows_for
from xccl_emu.oracle.numerics import Hidden
from xccl_emu.protocols.collectives.case import no_numbers, numbers
from xccl_emu.protocols.mixserve.layout import Degrees, MovedSizes

Chosen = NDArray[np.int64]


@dataclass(frozen=True)
class Data:
    """Drawn by a seed; [rounds, dp, tokens, ...]."""

    of: Degrees
    shape: MovedSizes
    rounds: int
    dtype: str
    seed: int
    dummy: bool
    """True if the dummy experts make the outputs.  If not they are drawn, and the order of sums is in the bits."""
    payload: bool = True
    """If not, hidden states and outputs are zeros that take no memory; choices are as they are."""

    @functools.cached_property
    def x(self) -> Hidden:
        """Hidden states, [rounds, dp, tokens, hidden]."""
        shape = (self.rounds, self.of.dp, self.shape.tokens, self.shape.hidden)
        return numbers(shape, self.dtype, self.seed) if self.payload else no_numbers(shape, self.dtype)

    @functools.cached_property
    def choices(self) -> Chosen:
        """Experts of each token, none twice, [rounds, dp, tokens, top_k]."""
        rng = np.random.default_rng([self.seed, 1])
        order = rng.random((self.rounds, self.of.dp, self.shape.tokens, self.of.ep * self.shape.experts)).argsort(-1)
        return order[..., : self.shape.top_k]

    @functools.cached_property
    def weights(self) -> NDArray[np.float32]:
        """Weights of the choices, above 0 and at most 1."""
        return np.float32(1) - np.random.default_rng([self.seed, 2]).random(self.choices.shape, np.float32)

    # ---- the tables of a rank

    def tables(self, node: int, local: int, core: int) -> dict[str, NDArray[np.generic]]:
        """Tables of a core's tokens: rows of each node and expert, their choices, and where each row is, by rounds."""
        of, capacity = self.of, self.shape.capacity
        choices = self._of_core(core)[:, of.tokens_of(node, of.group(local))].reshape(self.rounds, -1)
        rows = np.full((self.rounds, of.nodes, capacity), -1, np.int32)
        places = np.full(choices.shape, -1, np.int32)
        counts = np.zeros((self.rounds, of.nodes, self.shape.experts), np.int64)
        for r, other in np.ndindex(self.rounds, of.nodes):
            expert = choices[r] - of.experts_of(other, of.group(local)) * self.shape.experts
            mine = np.flatnonzero((expert >= 0) & (expert < self.shape.experts))
            mine = mine[np.lexsort((mine, expert[mine]))]
            rows[r, other, : len(mine)] = mine
            places[r, mine] = other * capacity + np.arange(len(mine))
            counts[r, other] = np.bincount(expert[mine], minlength=self.shape.experts)
        return {"rows": rows, "places": places, "counts": counts, "totals": counts.sum(2)}

    def arrived(self, node: int, local: int, core: int) -> Chosen:
        """Rows of a core that a rank's experts get from each group of each node, [rounds, nodes, groups]."""
        experts = self._experts(self.of.experts_of(node, self.of.group(local)))
        counts = [[len(rows_for(chosen, experts)) for chosen in choices] for choices in self._of_core(core)]
        return np.array(counts).reshape(self.rounds, self.of.nodes, self.of.dp_groups)

    def _of_core(self, core: int) -> Chosen:
        """Choices of a core's tokens."""
        return self.choices[:, :, self.shape.tokens_of(core)]

    # ---- what must come out

    def rows(self, r: int, tokens: int, node: int, local: int, core: int) -> Hidden:
        """The rows of a group's tokens that a rank's experts get and a core moves."""
        experts = self._experts(self.of.experts_of(node, self.of.group(local)))
        return dispatched(self.x[r, tokens][self.shape.tokens_of(core)], self._of_core(core)[r, tokens], experts)

    def partials(self, node: int, local: int, core: int) -> Hidden:
        """The experts' outputs, this rank's part of the sum, [rounds, nodes, groups, capacity, hidden]."""
        of, shape, dealt = self.of, self.shape, self.shape.tokens_of(core)
        blocks = (self.rounds, of.nodes, of.dp_groups, shape.capacity, shape.hidden)
        if not self.payload:
            return no_numbers(blocks, self.dtype)
        made = np.zeros((self.rounds, of.dp, shape.capacity, shape.hidden), self.x.dtype)
        for r, tokens in np.ndindex(self.rounds, of.dp):
            e = of.experts_of(node, of.group(local))
            outputs = self._outputs(r, tokens, e)[local - of.same_experts(local).start]
            token = rows_for(self.choices[r, tokens], self._experts(e)) // shape.top_k
            rows = outputs[(token >= dealt.start) & (token < dealt.stop)]
            made[r, tokens, : len(rows)] = rows
        return made.reshape(blocks)

    @functools.cached_property
    def results(self) -> Hidden:
        """The tokens' results, [rounds, dp, tokens, hidden]."""
        if not self.payload:
            return self.x
        apart = [range(group, self.of.ep, self.of.ep_groups) for group in range(self.of.ep_groups)]
        experts = [[self._experts(e) for e in served] for served in apart]
        made = np.empty_like(self.x)
        for r, tokens in np.ndindex(self.rounds, self.of.dp):
            outputs = [self._outputs(r, tokens, e) for served in apart for e in served]
            made[r, tokens] = combined(self.choices[r, tokens], self.weights[r, tokens], experts, outputs)
        return made

    def _experts(self, e: int) -> range:
        return range(e * self.shape.experts, (e + 1) * self.shape.experts)

    def _outputs(self, r: int, tokens: int, e: int) -> Hidden:
        """Parts of the outputs of a group's experts for some tokens, [ranks, rows, hidden]; made once."""
        if (r, tokens, e) not in self._made:
            self._made[r, tokens, e] = self._make(r, tokens, e)
        return self._made[r, tokens, e]

    @functools.cached_property
    def _made(self) -> dict[tuple[int, int, int], Hidden]:
        return {}

    def _make(self, r: int, tokens: int, e: int) -> Hidden:
        chosen, ranks = self.choices[r, tokens], self.of.shards * self.of.dp_groups
        mine = rows_for(chosen, self._experts(e))
        if not self.dummy:
            return numbers((ranks, len(mine), self.shape.hidden), self.dtype, [self.seed, 3, r, tokens, e])
        rows = dispatched(self.x[r, tokens], chosen, self._experts(e))
        return partials(rows, chosen.ravel()[mine], ranks)
