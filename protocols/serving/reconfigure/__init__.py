"""Reconfiguration of a redundant expert while tokens are served, as a case ([xDeepServe] 4.5)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu import protocol
from xccl_emu.kernels.experts.dummy import STALE_MAP
from xccl_emu.kernels.group import align
from xccl_emu.kernels.serving import reconfigure as device

FIELD = device.FIELD_BYTES


@dataclass(frozen=True)
class ReconfigureCase(protocol.Case):
    """Sources send tokens to the experts of the last die, whose redundant slot gets another expert meanwhile."""

    presets: ClassVar[tuple[protocol.Preset, ...]] = (
        protocol.Preset(
            "expert-swap",
            "A redundant expert gets other weights while tokens are served",
            {},
            {"sources": 1, "swaps": 2, "rounds": 3},
        ),
    )
    papers = protocol.read_papers("serving.reconfigure")
    grace: ClassVar[int] = 1
    """Does the loader wait until all sources have adopted the map without the slot?"""

    sources: int = protocol.size(2, "Dies with tokens.", most=767)
    rounds: int = protocol.size(2, "Iterations.", most=1 << 12)
    tokens: int = protocol.size(2, "Tokens of a source in an iteration; odd ones go to a replica, if there is one.")
    experts: int = protocol.size(2, "Experts, whose weights the redundant slot gets by turns.", least=2, most=1 << 10)
    swaps: int = protocol.size(1, "Reconfigurations.", most=1 << 10)
    granules: int = protocol.size(1, "Granules of 32 bytes of an expert's weights.")
    seed: int = protocol.size(0, "Of weights, tokens and their experts.", least=0, most=None)

    def weights(self) -> NDArray[np.int64]:
        """Weights of each expert, [experts, words], none of them 0."""
        return np.random.default_rng([self.seed, 1]).integers(1, 1 << 40, (self.experts, 4 * self.granules))

    def given(self) -> NDArray[np.int64]:
        """Expert and value of each token, [sources, rounds, tokens, 2]; odd tokens are of experts with replicas."""
        shape = (self.sources, self.rounds, self.tokens)
        experts = np.broadcast_to(np.arange(self.rounds)[:, None] % self.experts, shape)
        values = np.random.default_rng([self.seed, 2]).integers(1, 1 << 40, shape)
        return np.stack([experts, values], axis=-1)

    def served(self) -> NDArray[np.int64]:
        """The sources' results, [sources, rounds, tokens]: each value and the first word of its expert's weights."""
        tokens, weights = self.given(), self.weights()
        served: NDArray[np.int64] = tokens[..., 1] + weights[tokens[..., 0], 0]
        return served

    def first_map(self) -> NDArray[np.int64]:
        """Version 0: slots of each expert's even and odd tokens, [experts, words]; expert 0 has the redundant one."""
        table = np.zeros((self.experts, FIELD // 8), np.int64)
        table[:, :2] = np.arange(self.experts)[:, None]
        table[0, 1] = self.experts
        return table

    def lay_out(self, bench: protocol.Bench) -> None:
        """Maps and results on the sources; messages, answers and weights on the expert die."""
        n, expert_die, weights = self.sources, self.sources, self.weights()
        regions = protocol.Regions(n + 1)
        maps, version = regions.meta("map", FIELD, 2 * self.experts), regions.meta("version", FIELD)
        results, messages = regions.meta("result", FIELD, self.tokens), regions.meta("message", FIELD, n * self.tokens)
        adopted, since = regions.meta("adopted", FIELD, n), regions.meta("since", FIELD, self.experts + 1)
        tokens_bytes = align(16 * self.rounds * self.tokens) + align(8 * self.rounds * self.tokens)
        app = max(tokens_bytes, 2 * weights.nbytes + weights[0].nbytes)
        pod = regions.pod(bench, app_bytes=app, ub_bytes=weights[0].nbytes, cores=2)
        slots = bench.filled(expert_die, np.concatenate([weights, weights[:1]]), "slots")
        redundant = range(weights.nbytes, slots.nbytes)
        for q in range(n):
            bench.set_meta(q, maps.at(q) - pod.meta(q), self.first_map())
        swap = device.Swap(
            0, n, version.at(1) - version.at(0), maps.at(0), version.at(0), results.at(0),
            messages.at(expert_die).shared(range(n)), adopted.at(expert_die).shared(range(n)),
            since.at(expert_die).only(self.experts), slots.only(redundant), self.experts, weights[0].nbytes,
            self.rounds, self.tokens, self.swaps, self.grace,
        )  # fmt: skip
        for q, (given, served) in enumerate(zip(self.given(), self.served(), strict=True)):
            tokens, out = bench.filled(q, given, "tokens"), bench.wanted(q, served, "out", owners=f"die{q}")
            args = {"tokens": tokens.address, "out": out.address, "s": swap._replace(me=q)}
            pod.launch(device.serve, q, [0], args)
        pod.launch(device.compute, expert_die, [0], {"s": swap})
        storage = bench.filled(expert_die, weights, "storage")
        pod.launch(device.reload, expert_die, [1], {"storage": storage.address, "s": swap})
        loaded, last = weights[self.swaps % self.experts], f"die{expert_die}.core1"
        bench.expect(slots.address + redundant.start, loaded, "redundant slot", owners=last)
        bench.stop(STALE_MAP, "a token came for a slot that has other weights since its map was published")
        bench.tolerates("stop", "cut", "stall")

    proof_rows: ClassVar = {
        "two sources, two iterations": {},
        "three iterations": dict(rounds=3),
        "two reconfigurations": dict(swaps=2, sources=1, rounds=3, experts=3),
        "three sources, one token": dict(sources=3, tokens=1),
        "weights of two granules": dict(sources=1, granules=2),
    }
