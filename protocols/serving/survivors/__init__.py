"""Layers of experts that go on when a rank is lost, as cases ([xDeepServe] 6.2, stage 2): by pull dispatch and combine,
and by FusedDispatch and FusedCombine.

Which rounds were made without it depends on the schedule: ranks say of each who took part in it, all the same, and
what they have received and their outputs are the oracle's for that.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels.serving.membership import NOBODY
from xccl_emu.machine.pod import Buffer, Pod, bytes_of
from xccl_emu.oracle import survivors as oracle
from xccl_emu.protocol import Bench, Preset, read_papers, size
from xccl_emu.protocol.streams import Streams
from xccl_emu.protocols.experts import layout as app
from xccl_emu.protocols.experts.case import LayerCase, columns
from xccl_emu.protocols.experts.data import Batch, received_rows
from xccl_emu.protocols.fused.case import FusedCase
from xccl_emu.protocols.pull.case import MoeCase
from xccl_emu.protocols.serving.survivors.group import SurvivingFused, SurvivingGroup, SurvivingPull
from xccl_emu.routing import Placement, Redundancy, place_experts

_JUDGED = ("recv_x", "route", "counts", "out")

Rows = dict[str, NDArray[Any]]
"""The rows of each buffer that is judged."""


@dataclass(frozen=True)
class SurvivorsCase(LayerCase):
    """Layers; a supervisor on one more die may give up rank ``lost`` at any moment, dead or alive."""

    group: ClassVar[type[SurvivingGroup[Any]]]
    side_by_side = by_token = False
    more_dies = 1

    lost: int = size(1, "Rank that may be given up; the number of ranks for none.", least=0, most=768)
    replicas: int = size(1, "Slots that have replicas of experts; the others have an expert each.", most=1 << 10)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.routing:
            raise ConfigError("routing", self.routing, "goes without ranks that are lost")
        if self.ranks > 128:
            raise ConfigError("ranks", self.ranks, "must be at most 128")
        if self.lost > self.ranks:
            raise ConfigError("lost", self.lost, f"must be a rank, 0 to {self.ranks - 1}, or {self.ranks} for none")
        if not self.experts <= self.replicas <= self.ranks * self.experts - self.top_k:
            most = self.ranks * self.experts - self.top_k
            raise ConfigError("replicas", self.replicas, f"must be {self.experts}, slots of a rank, to {most}")

    @property
    def _n_experts(self) -> int:
        return self.ranks * self.experts - self.replicas

    @functools.cached_property
    def _placement(self) -> Placement:
        loads = np.arange(self._n_experts, 0, -1)
        return place_experts(self.ranks, self._n_experts, False, Redundancy(self.replicas, loads))

    def _pattern(self, rounds: Sequence[Sequence[int]]) -> list[Batch]:
        """Neighbours choose neighbours, by the numbers of experts."""
        step = np.arange(self.top_k)
        topk = [
            [((rank + 1 + i + np.arange(n)[:, None] + step) % self._n_experts).astype(np.int32) for rank, n in each]
            for i, each in enumerate(map(enumerate, rounds))
        ]
        return [
            replace(batch, topk=[np.where(old < 0, old, new) for old, new in zip(batch.topk, own, strict=True)])
            for batch, own in zip(super()._pattern(rounds), topk, strict=True)
        ]

    def _launched(self, bench: Bench, pod: Pod, batches: Sequence[Batch]) -> tuple[SurvivingGroup[Any], Streams]:
        corner, streams = bench.corner, Streams(bench, pod)
        group = self.group(
            pod, self._config(), rounds=len(batches), managed_offset=corner.managed, field_offset=corner.meta
        )
        group.fill_rounds(*columns(batches))
        group.put_tables(bench, self._placement)
        group.launch_rounds(streams, len(batches), lost=self.lost if self.lost < self.ranks else NOBODY)
        streams.put()
        return group, streams

    def _lay_out(self, bench: Bench, batches: Sequence[Batch]) -> None:
        """Every rank launched, and what is right in the end, by who took part in each round."""
        pod = bench.pod(self._spec(batches))
        group, streams = self._launched(bench, pod, batches)
        rows = [self._rows(batch, lost) for batch in batches for lost in (self.lost, self.ranks)]
        owners = [[streams.owner(group.die_of(r), core) for core in range(self.cores)] for r in range(self.ranks)]
        for rank, buffers in enumerate(group.buffers):
            took_part = group.tables[rank]["took_part"]
            for i, batch in enumerate(batches):
                bench.already_filled(*app.filled(group.config, buffers, i, len(batch.tokens[rank])))
                of_round = app.part_of(buffers, i, len(batches))
                word = Buffer(took_part.die, took_part.address + 8 * i, 8)
                right = _Right(app.table(group.config), rank == self.lost, {
                    self.lost: rows[2 * i][rank], self.ranks: rows[2 * i + 1][rank]
                })  # fmt: skip
                judged = [of_round[name] for name in _JUDGED]
                bench.judged_by(right, word, *judged, name=f"round {i} of rank {rank}", owners=owners[rank])
            for name, buffer in buffers.items():
                bench.label_buffer(buffer, f"app.{name}")
        left = [rank for rank in range(self.ranks) if rank != self.lost]
        words, of_all = [group.tables[r]["took_part"] for r in left], [core for r in left for core in owners[r]]
        bench.judged_by(_same, *words, name="who took part", owners=of_all)
        group.layout.label(bench)
        bench.tolerates("stop", "cut", "stall")
        if self.lost < self.ranks:
            bench.recovers(self.lost)

    def _rows(self, batch: Batch, lost: int) -> list[Rows]:
        """Return what each rank has of a round in the end, by the oracle; the lost one nothing that is judged."""
        c, local = self._config(), self.experts
        slots = self._placement.held.tolist()
        if lost < self.ranks:
            slots = oracle.without_rank(slots, local, lost)
        sent = oracle.dispatched(batch.tokens, batch.topk, slots, local, lost, c.quantized, c.quantizer)
        back = c.quantizer if c.quantized_back else None
        outs = [
            oracle.combined(sent, rank, weights[: 0 if rank == lost else None], slots, back)
            for rank, weights in enumerate(batch.weights)
        ]
        return [{**received_rows(sent, rank), "out": out} for rank, out in enumerate(outs)]


@dataclass(frozen=True)
class _Right:
    """What a round of a rank has left: a word that says who took part, and rows for that, as many as there are."""

    table: Mapping[str, tuple[int, int]]
    may_lack: bool
    """May the rank not have made it?"""
    rows: Mapping[int, Rows]
    """By the lost rank."""

    def __call__(self, word: NDArray[np.uint8], *buffers: NDArray[np.uint8]) -> bool | str:
        lost = int(word.view(np.int64)[0]) - 1
        if lost < 0:
            return self.may_lack or "it was not made"
        if lost not in self.rows:
            return f"without rank {lost}, which nobody gave up"
        for name, there in zip(_JUDGED, buffers, strict=True):
            want, stride = self.rows[lost][name], self.table[name][0]
            got = there[: len(want) * stride].reshape(len(want), stride)
            raw = bytes_of(want).reshape(len(want), -1 if len(want) else 0)
            wrong = np.flatnonzero((got[:, : raw.shape[1]] != raw).any(axis=1))
            if wrong.size:
                return f"{name}, row {wrong[0]}, where {'all' if lost == max(self.rows) else 'the others'} took part"
        return True


def _same(*words: NDArray[np.uint8]) -> bool | str:
    """Have all ranks that are left made each round with the same ranks, and once without one never with it?"""
    each = np.stack([word.view(np.int64) for word in words])
    if (each != each[0]).any():
        return f"ranks differ: {each.tolist()}"
    return bool((np.diff(each[0]) <= 0).all()) or f"the lost one is back: {each[0].tolist()}"


@dataclass(frozen=True)
class DispatchMembership(SurvivorsCase, MoeCase):
    """Layers of `MoeCase`, by its dispatch and combine, that go on when a rank is lost."""

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            "dispatch-membership",
            "Dispatch and combine go on when a rank is lost (xDeepServe 6.2)",
            {"tokens": 1, "granules": 1, "rounds": 1},
            {"rounds": 2},
        ),
    )
    papers = (*read_papers("pull"), *read_papers("serving.survivors"))
    group = SurvivingPull
    proof_usual: ClassVar = dict(ranks=2, tokens=1, granules=1, rounds=1)  # three ranks end in no few minutes
    proof_rows: ClassVar = {"the second is lost": {}, "the first is lost": dict(lost=0), "two rounds": dict(rounds=2)}


@dataclass(frozen=True)
class FusedMembership(SurvivorsCase, FusedCase):
    """Layers of `FusedCase` that go on when a rank is lost."""

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            "fused-membership",
            "FusedDispatch and FusedCombine go on when a rank is lost",
            {"tokens": 1, "granules": 1, "cores": 1, "rounds": 1},
            {"rounds": 2},
        ),
    )
    papers = (*read_papers("fused"), *read_papers("serving.survivors"))
    group = SurvivingFused

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("preallocated", "double_buffered"):
            if not getattr(self, name):
                raise ConfigError(name, 0, "must be 1: what a lost rank still writes must have places of its own")
    proof_usual: ClassVar = dict(ranks=2, tokens=1, granules=1, cores=1, rounds=1)
    proof_rows: ClassVar = {"two ranks": {}, "two ranks, two rounds": dict(rounds=2)}
