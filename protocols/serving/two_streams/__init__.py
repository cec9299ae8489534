"""Attention and experts as two streams on each die, which hand microbatches to each other, as a case."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu import protocol
from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels.serving import two_streams as device


@dataclass(frozen=True)
class TwoStreams(protocol.Case):
    """Each die has cores for attention and cores for experts; microbatches go from these to those and back."""

    papers = protocol.read_papers("serving.two_streams")
    presets: ClassVar[tuple[protocol.Preset, ...]] = (
        protocol.Preset("two-streams", "Microbatches between two streams of a die (CloudMatrix384 4.2.3)"),
    )

    ranks: int = protocol.size(1, "Dies; tokens go to experts on all of them.", most=768)
    layers: int = protocol.size(2, "Layers.", most=1 << 10)
    microbatches: int = protocol.size(2, "Microbatches that take turns.", most=5)
    attention: int = protocol.size(1, "Cores of a die for attention; 32 in the paper.", most=47)
    moe: int = protocol.size(1, "Cores of a die for experts; 16 in the paper.", most=47)
    tokens: int = protocol.size(1, "Tokens of a microbatch on a die, at least one for each core of a stream.")
    granules: int = protocol.size(1, "Granules of 32 bytes of a token.")
    seed: int = protocol.size(0, "Of the tokens.", least=0, most=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tokens < max(self.attention, self.moe):
            raise ConfigError(
                "tokens",
                self.tokens,
                f"must be at least attention={self.attention} and moe={self.moe}, so that each core has one",
            )

    def given(self) -> NDArray[np.int64]:
        """Tokens, [ranks, microbatches, tokens, words]."""
        shape = (self.ranks, self.microbatches, self.tokens, 4 * self.granules)
        return np.random.default_rng(self.seed).integers(1, 1 << 60, shape)

    def computed(self) -> NDArray[np.int64]:
        """Tokens after all layers; the first word of each granule goes through attention and expert."""
        tokens = self.given()
        rank, token = np.ogrid[: self.ranks, : self.tokens]
        for turn in range(self.layers * self.microbatches):
            words = tokens[:, turn % self.microbatches, :, ::4]
            expert = (rank + token + turn) % self.ranks
            words[:] = (words * 3 + turn + 1) * 5 + expert[..., None]
        return tokens

    def lay_out(self, bench: protocol.Bench) -> None:
        """Buffers and counts of the streams, and slots of tokens and results, on each die."""
        nbytes, tokens = 32 * self.granules, self.tokens
        regions = protocol.Regions(self.ranks)
        ready, back = (regions.managed(name, nbytes, 2 * tokens) for name in ("ready", "back"))
        inbox, results = (
            regions.managed(name, nbytes, count) for name, count in (("inbox", self.ranks * tokens), ("result", tokens))
        )
        handed, taken, returned, read = (
            regions.meta(name, device.FIELD_BYTES, 2) for name in ("handed", "taken", "returned", "read")
        )
        sent = regions.meta("sent", device.FIELD_BYTES, self.ranks * tokens)
        answered = regions.meta("answered", device.FIELD_BYTES, tokens)
        fewest = min(self.attention, self.moe)
        app_bytes, ub_bytes = 2 * self.microbatches * tokens * nbytes, (-(-tokens // fewest) + 1) * nbytes
        cores_per_die = self.attention + self.moe
        pod = regions.pod(bench, app_bytes=app_bytes, ub_bytes=ub_bytes, cores=cores_per_die)
        pitch = ready.at(1) - ready.at(0) if self.ranks > 1 else 0
        ranks = range(self.ranks)
        for rank, (given, computed) in enumerate(zip(self.given(), self.computed(), strict=True)):
            known = device.StreamPlaces(
                0, rank, ready.at(rank), back.at(rank), handed.at(rank), taken.at(rank), returned.at(rank),
                read.at(rank), inbox.at(0).shared(ranks), sent.at(0).shared(ranks), results.at(0), answered.at(0),
                pitch, self.ranks, self.layers, self.microbatches, tokens, nbytes, self.attention, self.moe,
            )  # fmt: skip
            cores = [f"die{rank}.core{core}" for core in range(self.attention)]
            own = bench.filled(rank, given, "own")
            out = bench.wanted(rank, computed, "out", owners=cores)
            for core in range(self.attention):
                args = {"own": own.address, "out": out.address, "s": known._replace(core=core)}
                pod.launch(device.attention, rank, [core], args)
            for core in range(self.moe):
                pod.launch(device.moe, rank, [self.attention + core], {"s": known._replace(core=core)})
        bench.tolerates("stop", *(("cut", "stall") if self.ranks > 1 else ()))

    proof_rows: ClassVar = {
        "one die": {},
        "three layers": dict(layers=3),
        "three microbatches": dict(microbatches=3),
        "five microbatches": dict(microbatches=5),
        "two cores for attention": dict(attention=2, tokens=2),
        "two cores for experts": dict(moe=2, tokens=2),
        "two dies, one layer": dict(ranks=2, layers=1),
        "two dies, one microbatch": dict(ranks=2, layers=3, microbatches=1),
    }
