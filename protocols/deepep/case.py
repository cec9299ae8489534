"""[DeepEP]'s low-latency dispatch and combine, with a dummy expert between them, as a case.

Nobody waits for all ranks between two launches, so that a fast rank may be ahead of a slow one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from xccl_emu.base.errors import ConfigError
from xccl_emu.machine.pod import Pod
from xccl_emu.protocol import Bench, Preset, read_papers, size, switch
from xccl_emu.protocol.streams import Streams
from xccl_emu.protocols.deepep.session import DeepEp, DeepEpConfig, Hooked, size_hint
from xccl_emu.protocols.experts.case import USUAL, LayerCase
from xccl_emu.protocols.experts.data import Batch
from xccl_emu.protocols.experts.group import ExpertGroup
from xccl_emu.protocols.experts.routed import PAGE


@dataclass(frozen=True)
class DeepEpCase(LayerCase):
    """A small group that runs ``rounds`` rounds of a layer, two calls each, in two buffer sets."""

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            "deepep-ll", "DeepEP's low-latency dispatch and combine", {},
            {"ranks": 2, "cores": 2, "tokens": 3, "rounds": 2},
            {"ranks": 8, "cores": 8, "tokens": 128, **USUAL, "redundant": 0},
        ),
    )  # fmt: skip
    papers = read_papers("deepep", "Low-latency dispatch", "Low-latency combine")
    group, config = DeepEp, DeepEpConfig
    written = ("recv_x", "route", "counts", "y", "out")

    granules: int = size(1, "Granules of 32 bytes of a token; 224 are the true size.")
    seed: int = size(0, "Of hidden states and weights.", least=0, most=None)
    opaque: int = size(
        0, "Granules of 32 bytes of a token that travels as it is, a hidden state and more; 0 for a hidden state.",
        least=0, advanced=True,
    )  # fmt: skip
    stats: int = switch(0, "Are the rows that each expert receives added up?", advanced=True)

    # ---- what it is made of

    def _config(self) -> DeepEpConfig:
        config = DeepEpConfig(**self._shape, opaque_bytes=32 * self.opaque)
        if self.opaque and (32 * self.opaque < config.row_bytes or self.routing):
            must = f"at least {config.row_bytes // 32}, for a hidden state, and go without a routing"
            raise ConfigError("opaque", self.opaque, f"must be {must}")
        return config

    def _group(self, pod: Pod, **more: int) -> DeepEp:
        group = self.group(pod, self._config(), **more)
        if self.stats:
            before = np.arange(1, group.config.local_experts + 1, dtype=np.int32)
            group.lent = {"stats": [pod.put(die, before) for die in group.layout.dies]}
        return group

    def _launched(self, bench: Bench, pod: Pod, batches: Sequence[Batch]) -> tuple[ExpertGroup[Any], Streams]:
        group, streams = super()._launched(bench, pod, batches)
        chosen = np.concatenate([choices[choices >= 0] for batch in batches for choices in batch.topk])
        rows = np.bincount(chosen, minlength=group.config.n_slots).reshape(group.config.n_ranks, -1)
        for rank, stats in enumerate(group.lent.get("stats", ())):
            cores = [streams.owner(stats.die, core) for core in range(self.cores)]
            after = np.arange(1, len(rows[rank]) + 1) + rows[rank]
            bench.already_filled(stats)
            bench.expect(stats.address, after.astype(np.int32), f"stats of rank {rank}", cores)
            bench.label_buffer(stats, "app.stats")
        return group, streams

    @property
    def _under_way(self) -> int:
        c = self._config()
        return c.message_bytes + min(PAGE, c.row_bytes) + c.row_bytes

    @property
    def published_bytes(self) -> Mapping[str, int]:
        """The hint of [DeepEP], see `size_hint`."""
        c = self._config()
        hint = size_hint(c.tokens_max, c.hidden, c.n_slots)
        return {"DeepEP, get_low_latency_rdma_size_hint (csrc/config.hpp)": hint}

    proof_usual: ClassVar = dict(ranks=2, tokens=2, rounds=3)
    proof_rows: ClassVar = {
        "two ranks, two tokens": {},
        "three ranks, one token": dict(ranks=3, tokens=1, rounds=2),
        "a rank with no tokens": dict(tokens="2,0"),
        "two cores a rank": dict(rounds=2, cores=2),
        "two experts a rank": dict(tokens=1, experts=2, top_k=2),
        "nothing quantized": dict(quantized=0, granules=2),
        "opaque rows": dict(tokens=1, quantized=0, granules=2, opaque=3),
        "statistics": dict(tokens=1, rounds=1, experts=2, top_k=2, cores=2, stats=1),
        "in FP8": dict(tokens=1, hidden=128, quantizer="fp8"),
        "an expert chosen twice": dict(tokens=1, top_k=2, repeats=1),
    }


@dataclass(frozen=True)
class HookedCase(DeepEpCase):
    """The same, two rounds side by side.  For the sizes see `DeepEpCase`."""

    presets = (
        Preset(
            "deepep-ll-hooks", "Two rounds side by side, by DeepEP's receive hooks", {},
            {"ranks": 2, "cores": 2, "tokens": 1, "rounds": 2},
        ),
    )  # fmt: skip
    group = Hooked

    proof_usual: ClassVar = dict(ranks=2, tokens=2, rounds=2)
    proof_rows: ClassVar = {
        "two rounds": {},
        "three rounds": dict(tokens="2,0", rounds=3),
        "two cores a rank, two rounds": dict(tokens=1, cores=2),
        "three ranks, two rounds": dict(ranks=3, tokens=1),
    }
