"""One layer of experts on ranks that hold numbers: what each sends so that every rank ends with the right outputs.

Written from III-B3, III-C and III-D of MixServe, for degrees of which TP is inside; it knows nothing of the equations.
Every step moves real elements between ranks and counts them, so that a term which is missing would leave outputs wrong.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np

Copies = dict[tuple[int, int], np.ndarray]
"""Hidden states of (token, expert); parts of them stand at their place, with zeros around."""


@dataclass
class Layer:
    """``tensor_a`` × ``dp`` ranks for attention are ``tensor_e`` × ``ep`` for experts; loads are balanced."""

    tensor_a: int
    dp: int
    tensor_e: int
    ep: int
    tokens: int
    """Tokens of all DP ranks together."""
    experts: int
    top_k: int
    hidden: int
    sent: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """Elements that each rank sends to others, by step."""

    def __post_init__(self) -> None:
        rng = np.random.default_rng(0)
        self.ranks = self.tensor_a * self.dp
        self.x = rng.integers(-9, 10, (self.tokens, self.hidden)).astype(float)
        self.w = rng.integers(-9, 10, (self.experts, self.tensor_e, self.hidden)).astype(float)
        """Weights of each expert and TP rank; an expert multiplies by their sum over TP ranks, so each makes a term."""
        self.chosen = {(t, (t * self.top_k + j) % self.experts) for t in range(self.tokens) for j in range(self.top_k)}

    def wanted(self) -> np.ndarray:
        """Outputs of all tokens."""
        out = np.zeros_like(self.x)
        for t, e in self.chosen:
            out[t] += self.x[t] * self.w[e].sum(axis=0)
        return out

    def owner(self, token: int) -> int:
        """Its DP rank."""
        return token // (self.tokens // self.dp)

    def group(self, expert: int) -> int:
        """Its EP group."""
        return expert // (self.experts // self.ep)

    def way(self, token: int, expert: int) -> list[tuple[int, int, slice]]:
        """Who sends which part of the hidden state to whom, for the token's copy to come to the expert's group."""
        dp, ep = self.owner(token), self.group(expert)
        if self.dp <= self.ep:  # the DP rank feeds several groups: those ranks send that stand where the group's do
            fed = self.ep // self.dp
            parts, first, last = self.tensor_e, dp * self.tensor_a + ep % fed * self.tensor_e, ep * self.tensor_e
        else:  # the group has several DP ranks: the part stands with the ranks where the sender stands in its group
            several = self.dp // self.ep
            parts, first = self.tensor_a, dp * self.tensor_a
            last = ep * self.tensor_e + dp % several * self.tensor_a
        width = self.hidden // parts
        return [(first + i, last + i, slice(i * width, (i + 1) * width)) for i in range(parts)]

    def run(self) -> np.ndarray:
        """Outputs as each rank has them at the end: (ranks, tokens of its DP rank, hidden)."""
        there = self._dispatch()
        full = self._gather(there)
        parts = self._reduce(full)
        return self._restore(self._combine(parts))

    def _send(self, step: str, source: int, target: int, elements: int) -> None:
        if source != target:
            self.sent[step][source] += elements

    def _dispatch(self) -> dict[tuple[int, int, int], tuple[int, slice]]:
        """Which part of each copy each rank has after A2A."""
        there = {}
        for t, e in self.chosen:
            for source, target, part in self.way(t, e):
                self._send("A2A dispatch", source, target, part.stop - part.start)
                there[t, e, target] = (source, part)
        return there

    def _gather(self, there: dict[tuple[int, int, int], tuple[int, slice]]) -> dict[int, Copies]:
        """All ranks of a group of experts get whole copies, from those that have parts; who has it all needs none."""
        full: dict[int, Copies] = defaultdict(dict)
        for (t, e, holder), (_, part) in there.items():
            base = self.group(e) * self.tensor_e
            for rank in range(base, base + self.tensor_e):
                whole = full[rank].setdefault((t, e), np.zeros(self.hidden))
                whole[part] = self.x[t][part]
                has_all = rank // self.tensor_a == self.owner(t) and self.dp <= self.ep
                if not has_all:
                    self._send("expert AG", holder, rank, part.stop - part.start)
        return full

    def _reduce(self, full: dict[int, Copies]) -> dict[int, Copies]:
        """Each rank multiplies by its part of the weights; who sent a part of the token gets that part of the sum."""
        sums: dict[int, Copies] = defaultdict(dict)
        for rank, copies in full.items():
            for (t, e), x in copies.items():
                made = x * self.w[e][rank % self.tensor_e]
                for _, holder, part in self.way(t, e):
                    self._send("expert RS", rank, holder, part.stop - part.start)
                    sums[holder].setdefault((t, e), np.zeros(self.hidden))[part] += made[part]
        return sums

    def _combine(self, sums: dict[int, Copies]) -> np.ndarray:
        """Parts go back the way they came, and those of one token are added: (ranks, tokens, hidden)."""
        out = np.zeros((self.ranks, self.tokens, self.hidden))
        for holder, copies in sums.items():
            for (t, e), value in copies.items():
                for source, target, part in self.way(t, e):
                    if target == holder:
                        self._send("A2A combine", holder, source, part.stop - part.start)
                        out[source, t, part] += value[part]
        return out

    def _restore(self, out: np.ndarray) -> np.ndarray:
        """What several ranks have parts of the sum of is added up, a share each, and every rank gets all shares."""
        fed = max(1, self.ep // self.dp)
        width, per_dp = self.hidden // self.tensor_a, self.tokens // self.dp
        final = np.zeros((self.ranks, per_dp, self.hidden))
        for dp in range(self.dp):
            own, base = slice(dp * per_dp, (dp + 1) * per_dp), dp * self.tensor_a
            for share in range(self.tensor_a):
                part = slice(share * width, (share + 1) * width)
                place = share * self.tensor_e // self.tensor_a if fed > 1 else share
                holders = [base + i * self.tensor_e + place for i in range(fed)] if fed > 1 else [base + share]
                home = holders[share % fed] if fed > 1 else base + share
                total = sum(out[holder, own, part] for holder in holders)
                for holder in holders:
                    self._send("output RS", holder, home, per_dp * width)
                for rank in range(base, base + self.tensor_a):
                    self._send("output AG", home, rank, per_dp * width)
                    final[rank, :, part] = total
        return final
