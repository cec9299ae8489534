"""[DeepEP]'s low-latency dispatch and combine, with a dummy expert between them, as a case.

Nobody waits for all ranks between two launches, so that a fast rank may be ahead of a slow one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from xccl_emu.protocol import Case, Preset, read_papers, size
from xccl_emu.protocols.deepep.session import DeepEp, DeepEpConfig, Hooked
from xccl_emu.protocols.experts.case import USUAL, LayerCase
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
    papers = read_papers("deepep")
    group, config = DeepEp, DeepEpConfig
    written = ("recv_x", "route", "counts", "y", "out")

    granules: int = size(1, "Granules of 32 bytes of a token; 224 are the true size.")
    seed: int = size(0, "Of hidden states and weights.", least=0, most=None)

    # ---- what it is made of

    def _config(self) -> DeepEpConfig:
        return DeepEpConfig(**self._shape)

    @property
    def _under_way(self) -> int:
        c = self._config()
        return c.message_bytes + min(PAGE, c.row_bytes) + c.row_bytes

    @property
    def published_bytes(self) -> Mapping[str, int]:
        """As `get_low_latency_rdma_size_hint` of [DeepEP] has it: two sets of what is sent, received and counted."""
        c = self._config()
        scales, messages = c.hidden // 128, c.n_slots * c.tokens_max
        dispatched, combined = 16 + max(2 * c.hidden, c.hidden + 4 * scales), 4 * scales + 2 * c.hidden
        sent = max(c.tokens_max * dispatched, messages * combined)
        received, counted = messages * max(dispatched, combined), -(-4 * c.n_slots // 128) * 128
        total = 2 * (sent + received + counted)
        return {"DeepEP, get_low_latency_rdma_size_hint (csrc/config.hpp)": (total + 128) // 128 * 128}

    @classmethod
    def proofs(cls) -> Mapping[str, Case]:
        """Two and three ranks, one with no tokens, two cores and two experts a rank."""
        usual = cls(ranks=2, tokens=2, rounds=3)
        return {
            "two ranks, two tokens": usual,
            "three ranks, one token": replace(usual, ranks=3, tokens=1, rounds=2),
            "a rank with no tokens": replace(usual, tokens="2,0"),
            "two cores a rank": replace(usual, cores=2, rounds=2),
            "two experts a rank": replace(usual, tokens=1, experts=2, top_k=2),
            "nothing quantized": replace(usual, quantized=0, granules=2),
            "in FP8": replace(usual, tokens=1, hidden=128, quantizer="fp8"),
            "an expert chosen twice": replace(usual, tokens=1, top_k=2, repeats=1),
        }


@dataclass(frozen=True)
class HookedCase(DeepEpCase):
    """The same, two rounds side by side.  Sizes as of `DeepEpCase`."""

    presets = (
        Preset(
            "deepep-ll-hooks", "Two rounds side by side, by DeepEP's receive hooks", {},
            {"ranks": 2, "cores": 2, "tokens": 1, "rounds": 2},
        ),
    )  # fmt: skip
    group = Hooked

    @classmethod
    def proofs(cls) -> Mapping[str, Case]:
        """Two rounds, and one more behind them."""
        usual = cls(ranks=2, tokens=2, rounds=2)
        return {
            "two rounds": usual,
            "three rounds": replace(usual, rounds=3, tokens="2,0"),
            "two cores a rank, two rounds": replace(usual, cores=2, tokens=1),
            "three ranks, two rounds": replace(usual, ranks=3, tokens=1),
        }
