"""A dispatch and a combine, their kernels in Ascend C: two cores of each rank, one that sends and one that receives.

xccl-emu check examples/ascendc/moe.py:Dispatch --each-sync
xccl-emu check examples/ascendc/moe.py:Combine --each-sync
xccl-emu bench examples/ascendc/moe.py:Combine
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import ml_dtypes
import numpy as np

from xccl_emu.doors import ascendc
from xccl_emu.machine import Buffer, Pod
from xccl_emu.protocol import Bench, Case, Region, Regions, size

SOURCE = Path(__file__).with_name("moe.cpp")
COUNTER_BYTES = 64


@dataclass(frozen=True)
class Experts(Case):
    """What both have: ranks with an expert each, and tokens that choose experts."""

    ranks: int = size(2, "Ranks, each with one expert.", least=2, most=16)
    tokens: int = size(1, "Tokens of a rank.")
    top_k: int = size(1, "Experts that a token chooses.")
    blocks: int = size(1, "Blocks of 16 elements of a token.")
    seed: int = size(0, "Of what tokens choose.", least=0, most=None)
    places: ClassVar[tuple[tuple[str, str], tuple[str, str]]]
    """Parameters for window and counters, of what receives and of what sends."""

    @property
    def hidden(self) -> int:
        """Elements of a token."""
        return 16 * self.blocks

    @property
    def payload_bytes(self) -> int:
        """Bytes that a rank sends: two an element."""
        return 2 * self.hidden * self.tokens * self.top_k

    def chosen(self) -> np.ndarray:
        """The experts of each token, [ranks, tokens, top_k], all different."""
        draw = np.random.default_rng(self.seed)
        picked = [draw.permutation(self.ranks)[: self.top_k] for _ in range(self.ranks * self.tokens)]
        return np.array(picked, np.int32).reshape(self.ranks, self.tokens, self.top_k)

    def values(self, *shape: int) -> np.ndarray:
        """Numbers that half precision and bfloat16 have, [*shape, hidden]."""
        n = np.random.default_rng(self.seed + 1).integers(1, 128, (*shape, self.hidden))
        return n.astype(np.float32) / 8

    def lay_out(self, bench: Bench) -> None:
        """A window on each rank, and counters that say what is there."""
        regions, rows = Regions(self.ranks), self.ranks * self.tokens * self.top_k
        window = regions.managed("window", 2 * self.hidden, rows)
        counters = regions.meta("counter", COUNTER_BYTES, max(self.ranks, self.tokens * self.top_k))
        app_bytes = 8 * rows * self.hidden + 16 * rows + 512
        pod = bench.pod(regions.tight_pod(app_bytes=app_bytes, ub_bytes=16 * self.hidden, cores=2))
        regions.place(bench, pod)
        places = Places(bench, pod, window, counters)
        for me in range(self.ranks):
            self.launch(places, me)

    @abstractmethod
    def launch(self, at: "Places", me: int) -> None:
        """Both kernels of a rank."""

    def start(self, at: "Places", name: str, me: int, buffers: Mapping[str, Buffer], rows: int = 0) -> None:
        """One kernel: one that sends is on core 0 and writes on any rank, one that receives on core 1."""
        sends = "out" not in buffers
        die, rights = (None, "w") if sends else (me, "r")
        args = {key: buffer.address for key, buffer in buffers.items()}
        args |= dict(zip(self.places[sends], (at.window.at(die or 0), at.counters.at(die or 0)), strict=True))
        grants = [at.pod.grant(buffer, "w" if key == "out" else "r") for key, buffer in buffers.items()]
        grants += [at.window.grant(die, rights), at.counters.grant(die, rights)]
        sizes = {"me": me, "ranks": self.ranks, "tokens": self.tokens, "topK": self.top_k, "hidden": self.hidden}
        tiling = ascendc.Tiling("MoeTiling", {**sizes, "rows": rows, "stride": at.pod.spec.die_bytes})
        kernel = ascendc.ascend_kernel(SOURCE, name)
        ascendc.launch(at.bench, at.pod, kernel, me, [0 if sends else 1], args, grants, tiling)


@dataclass(frozen=True)
class Places:
    """Where what lies."""

    bench: Bench
    pod: Pod
    window: Region
    counters: Region


@dataclass(frozen=True)
class Dispatch(Experts):
    """Each token goes to its experts in half precision, and comes out in single precision."""

    places = ("window", "counts"), ("windows", "counts")

    def launch(self, at: Places, me: int) -> None:
        """Rows of an expert are in order of ranks and tokens."""
        chosen, tokens = self.chosen(), self.values(self.ranks, self.tokens)
        x, experts = at.bench.filled(me, tokens[me], "x"), at.bench.filled(me, chosen[me], "experts")
        received = tokens[(chosen == me).any(axis=2)]
        out = at.bench.wanted(me, received, "out", owners=f"die{me}.core1")
        self.start(at, "dispatch", me, {"x": x, "experts": experts})
        self.start(at, "receive", me, {"out": out})


@dataclass(frozen=True)
class Combine(Experts):
    """Each token is the weighted sum of what its experts give back, in bfloat16."""

    places = ("window", "flags"), ("windows", "flags")

    def launch(self, at: Places, me: int) -> None:
        """Sums are made in the order in which a token chose its experts."""
        chosen, rows = self.chosen(), self.values(self.ranks, self.tokens, self.top_k).astype(ml_dtypes.bfloat16)
        weights = np.random.default_rng(self.seed + 2).random(chosen.shape, np.float32)
        ranks, tokens, ks = np.nonzero(chosen == me)
        routes = np.stack([ranks, tokens * self.top_k + ks], axis=1).astype(np.int32)
        total = np.zeros((self.tokens, self.hidden), np.float32)
        for k in range(self.top_k):
            total += weights[me, :, k, None] * rows[me, :, k].astype(np.float32)
        own, route = at.bench.filled(me, rows[chosen == me], "rows"), at.bench.filled(me, routes, "routes")
        scales = at.bench.filled(me, weights[me], "scales")
        out = at.bench.wanted(me, total.astype(ml_dtypes.bfloat16), "out", owners=f"die{me}.core1")
        self.start(at, "give_back", me, {"rows": own, "routes": route}, rows=len(routes))
        self.start(at, "combine", me, {"out": out, "scales": scales})
