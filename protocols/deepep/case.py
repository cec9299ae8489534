"""[DeepEP]'s low-latency dispatch and combine, with a dummy expert between them, and its normal ones, as cases.

What ranks return in normal mode is there before, and of no expert.
Nobody waits for all ranks between two launches, so that a fast rank may be ahead of a slow one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from xccl_emu.base.errors import ConfigError
from xccl_emu.machine.pod import Pod
from xccl_emu.oracle import normal as oracle
from xccl_emu.protocol import Bench, Preset, read_papers, size, switch
from xccl_emu.protocol.streams import Streams
from xccl_emu.protocols.deepep.normal import NormalConfig, NormalMode
from xccl_emu.protocols.deepep.session import DeepEp, DeepEpConfig, Hooked, size_hint
from xccl_emu.protocols.experts import layout as app
from xccl_emu.protocols.experts.case import USUAL, LayerCase
from xccl_emu.protocols.experts.data import Batch, states
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


@dataclass(frozen=True)
class NormalCase(LayerCase):
    """A small group that runs ``rounds`` rounds of dispatch and combine."""

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            "deepep-normal", "DeepEP's normal dispatch and combine, through channels", {},
            {"tokens": 6, "places": 1, "rounds": 1},
        ),
    )  # fmt: skip
    papers = read_papers("deepep", "Normal dispatch", "Normal combine")
    group, config = NormalMode, NormalConfig
    by_token = False  # what ranks return is drawn
    written = ("recv_x", "route", "counts", "out")

    cores: int = size(2, "Cores of each rank, two for a channel.", least=2, most=1 << 10)
    granules: int = size(2, "Granules of 32 bytes of a token; 448 are the true size.")
    quantized: int = switch(0, "Must be off: rows go as they are.", also="quantize", examples=(0,))
    places: int = size(2, "Rows that a ring has room for.", most=1 << 10)
    chunk: int = size(1, "Rows that are announced at once.", most=1 << 10)
    seed: int = size(0, "Of tokens, weights and what is returned.", least=0, most=None)
    biases: int = size(0, "Rows of its own rank that the sum of a token begins with.", least=0, most=16, advanced=True)
    by_choice: int = switch(0, "Is what ranks return added in order of the last choice of each?", advanced=True)

    def _config(self) -> NormalConfig:
        return NormalConfig(
            **self._shape, places=self.places, chunk=self.chunk, biases=self.biases, by_choice=bool(self.by_choice)
        )

    @property
    def _under_way(self) -> int:
        return self._config().slot_bytes

    @property
    def up_to(self) -> "Mapping[str, NormalCase]":
        """Return one round, which no other overlaps, up to either operator."""
        found = {app.DISPATCH: (app.DISPATCH,), app.COMBINE: (app.DISPATCH, app.COMBINE)}
        cases = {name: replace(self, rounds=1) for name in found}
        for name, case in cases.items():
            object.__setattr__(case, "parts", found[name])
        return cases

    def _lay_out(self, bench: Bench, batches: Sequence[Batch]) -> None:
        pod = bench.pod(self._spec(batches))
        group, streams = self._launched(bench, pod, batches)
        c, rng = self._config(), np.random.default_rng((self.seed, 1))
        wanted: dict[tuple[int, str], list[np.ndarray]] = {}
        begun = states(rng, c.n_ranks * c.biases * c.tokens_max, c.hidden, c.dtype)
        begun = begun.reshape(c.n_ranks, c.biases, c.tokens_max, c.hidden)
        assert isinstance(group, NormalMode)
        for rank, buffers in enumerate(group.buffers if c.biases else ()):
            group.fill_biases(rank, begun[rank])
            bench.already_filled(buffers["bias"])
        for i, batch in enumerate(batches):
            for rank, buffers in enumerate(group.buffers):
                bench.already_filled(*app.filled(c, buffers, i, len(batch.tokens[rank])))
            given = batch.tokens, batch.topk, batch.weights
            rows = [oracle.rows_of(*given, rank, c.local_experts) for rank in range(c.n_ranks)]
            returned = [states(rng, len(each.x), c.hidden, c.dtype) for each in rows]
            for rank, (each, back) in enumerate(zip(rows, returned, strict=True)):
                own = group.buffers[rank]
                for j, row in enumerate(back):
                    place = app.row_of(c, own, "y", i, j, c.row_bytes)
                    pod.view(place)[:] = row.view(np.uint8)
                    bench.already_filled(place)
                n = len(batch.tokens[rank])
                sums = oracle.sums_of(rows, returned, rank, n, [*begun[rank, :, :n]], bool(self.by_choice))
                left = each.x, _route(c, each), _counts(c, each, batch), sums
                for name, held in zip(self.written, left, strict=True):
                    wanted.setdefault((rank, name), []).append(held)
        for (rank, name), rounds in wanted.items():
            image = app.image_of(c, name, len(rounds), enumerate(rounds))
            cores = [streams.owner(group.die_of(rank), core) for core in range(self.cores)]
            bench.expect_whole(group.buffers[rank][name], image, f"{name} of rank {rank}", cores)
        for buffers in group.buffers:
            for name, buffer in buffers.items():
                bench.label_buffer(buffer, f"app.{name}")
        group.layout.label(bench)
        bench.tolerates("stop", "cut", "stall")

    proof_usual: ClassVar = dict(tokens=2)
    proof_rows: ClassVar = {
        "two ranks, two tokens": {},
        "three ranks, one token": dict(tokens=1, ranks=3, top_k=2, rounds=1),
        "a ring of one place": dict(tokens=3, places=1, rounds=1),
        "two rows at once": dict(tokens=3, chunk=2, rounds=1),
        "a rank with no tokens": dict(tokens="2,0"),
        "two channels a rank": dict(tokens="2,0", cores=4, rounds=1),
        "two experts a rank": dict(tokens=1, experts=2, top_k=3),
        "two biases, in order of choices": dict(tokens=1, experts=2, top_k=3, biases=2, by_choice=1),
    }


def _route(c: NormalConfig, rows: oracle.NormalRows) -> np.ndarray:
    """[rows, words] that follow the rows."""
    route = np.zeros((len(rows.x), c.route_bytes // 4), np.int32)
    route[:, 0] = rows.token
    route[:, 1 : 1 + 2 * c.top_k] = np.hstack([rows.experts, rows.weights.view(np.int32)])
    return route


def _counts(c: NormalConfig, rows: oracle.NormalRows, batch: Batch) -> np.ndarray:
    """[1, n_ranks * channels] rows by source and channel, a part of the source's tokens."""
    counts = np.zeros((c.n_ranks, c.channels), np.int32)
    for source, token in zip(rows.source, rows.token, strict=True):
        n = len(batch.tokens[source])
        bounds = [n * channel // c.channels for channel in range(c.channels + 1)]
        counts[source, np.searchsorted(bounds, token, "right") - 1] += 1
    return counts.reshape(1, -1)
