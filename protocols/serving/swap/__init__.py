"""Layers of experts while a redundant slot gets other weights, as cases ([xDeepServe] 4.5): by pull dispatch and
combine, and by FusedDispatch and FusedCombine.

Whatever map a rank has used, its outputs come from the experts that its tokens chose; and what ranks have received
is by the maps that the sources have used.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu import oracle
from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels.experts.dummy import STALE_MAP
from xccl_emu.kernels.serving.swap import FIELD_BYTES
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.oracle.replicas import slots_by_map
from xccl_emu.protocol import Bench, Preset, read_papers, size
from xccl_emu.protocol.streams import Streams
from xccl_emu.protocols.experts import layout as app
from xccl_emu.protocols.experts.case import LayerCase
from xccl_emu.protocols.experts.data import Batch, choice_steps, received_rows
from xccl_emu.protocols.fused.case import FusedCase
from xccl_emu.protocols.pull.case import MoeCase
from xccl_emu.protocols.serving.swap.group import (
    HELD_BYTES,
    SwapGroup,
    SwappedExperts,
    SwappedFused,
    first_map,
    weights_of,
)

_RECEIVED = ("recv_x", "route", "counts")


@dataclass(frozen=True)
class SwapCase(LayerCase):
    """Layers whose last slot is redundant; a core after the last rank's own gives it to other experts meanwhile."""

    group: ClassVar[type[SwapGroup[Any]]]
    written: ClassVar[tuple[str, ...]] = ("out",)
    side_by_side = by_token = False
    more_cores = 1
    grace: ClassVar[int] = 1
    """Does the loader wait until all ranks have adopted the map without the slot?"""

    swaps: int = size(1, "Times that the redundant slot gets another expert.", most=1 << 10)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.routing:
            raise ConfigError("routing", self.routing, "goes without changes of maps")
        if len(self._homes) < max(2, self.top_k):
            raise ConfigError(
                "experts", self.experts, "there must be two and top_k or more in addition to what is redundant"
            )

    proof_usual: ClassVar = dict(granules=1)
    proof_rows: ClassVar = {
        "two ranks, two rounds": {},
        "two swaps, three rounds": dict(tokens="2,0", swaps=2, rounds=3),
        "two cores a rank": dict(tokens="2,0", cores=2),
    }

    @property
    def _homes(self) -> list[int]:
        """The first slot of each expert."""
        return self.group.lays_out.homes(self._config())

    def _group(self, pod: Pod, **more: int) -> SwapGroup[Any]:
        return self.group(pod, self._config(), swaps=self.swaps, grace=self.grace, **more)

    def _pattern(self, rounds: Sequence[Sequence[int]]) -> list[Batch]:
        """All tokens of a round choose one expert, which has a number as high as the round, and the next ones."""
        experts = len(self._homes)
        steps = choice_steps(self._config())
        return [
            Batch(b.tokens, [np.tile((i + steps) % experts, (len(x), 1)).astype(np.int32) for x in b.tokens], b.weights)
            for i, b in enumerate(super()._pattern(rounds))
        ]

    def _launched(self, bench: Bench, pod: Pod, batches: Sequence[Batch]) -> tuple[SwapGroup[Any], Streams]:
        group, streams = super()._launched(bench, pod, batches)
        assert isinstance(group, SwapGroup)
        for die, own in zip(group.layout.dies, group.swapped, strict=True):
            bench.fill(group.layout.maps.at(die), first_map(group.homes, group.spares[0]))
            none_used = Buffer(die, own["version"].address, FIELD_BYTES)
            bench.already_filled(none_used, *(own[name] for name in ("gate", "held", "since", "storage")))
            for name, buffer in own.items():
                bench.label_buffer(buffer, f"app.{name}")
        for rank in range(self.ranks):
            self._expect_received(bench, group, batches, rank)
        self._expect_changed(bench, group, batches, streams.owner(group.layout.dies[-1], self.cores))
        bench.stop(STALE_MAP, "a token came for a slot that has other weights since its map was published")
        return group, streams

    def _expect_changed(
        self, bench: Bench, group: SwapGroup[Any], batches: Sequence[Batch], loader: str
    ) -> None:  # fmt: skip
        """Expect what the loader leaves: the weights of the last expert in the slot."""
        held, experts = group.swapped[-1]["held"], len(group.homes)
        loaded = weights_of(experts)[self.swaps % experts]
        bench.expect(held.address + group.spares[0] * HELD_BYTES, loaded, "redundant slot", owners=loader)

    def slots_by(self, choices: NDArray[np.int32], version: int, batches: Sequence[Batch]) -> NDArray[np.int32]:
        """Return the slots that a version of the map has for choices of experts, as [T, top_k] INT32."""
        return slots_by_map(choices, version, len(self._homes))

    def _expect_received(self, bench: Bench, group: SwapGroup[Any], batches: Sequence[Batch], rank: int) -> None:
        """Expect that a rank has received what the sources sent by the maps that they have used."""
        own, used = group.buffers[rank], [each["version"] for each in group.swapped]
        buffers = [*used, *(own[name] for name in _RECEIVED)]
        everybody = [f"die{die}" for die in group.layout.dies]
        right = _Received(self, rank, batches)
        bench.judged_by(right, *buffers, name=f"what rank {rank} has received", owners=everybody)


@dataclass(frozen=True)
class _Received:
    """A predicate: a rank has received what the sources sent by the maps that they have used."""

    case: SwapCase
    rank: int
    batches: Sequence[Batch] = field(compare=False)

    def __call__(self, *raw: NDArray[np.uint8]) -> bool:
        """Judge the versions that each rank has used, and what the rank has received."""
        ranks, c = self.case.ranks, self.case._config()
        versions = np.array([each.view(np.int64)[4::4] for each in raw[:ranks]])
        wanted = received_by(self.case, versions, self.batches, self.rank)
        return all(
            np.array_equal(got, app.image_of(c, name, len(rows), enumerate(rows)).reshape(-1))
            for name, rows, got in zip(_RECEIVED, wanted, raw[ranks:], strict=True)
        )


def received_by(
    case: SwapCase, versions: NDArray[np.int64], batches: Sequence[Batch], rank: int
) -> list[list[NDArray[Any]]]:
    """Rows, routes and counts of each round that a rank gets, by the versions [ranks, rounds] of the sources' maps."""
    c, got = case._config(), []
    for batch, used in zip(batches, versions.T, strict=True):
        slots = [case.slots_by(topk, int(v), batches) for topk, v in zip(batch.topk, used, strict=True)]
        sent = oracle.dispatch(batch.tokens, slots, c.n_ranks, c.local_experts, c.quantized, c.quantizer)
        rows = received_rows(sent, rank)
        rows["route"]["version"] = used[rows["route"]["source"]]
        got.append([rows[name] for name in _RECEIVED])
    return [list(column) for column in zip(*got, strict=True)]


@dataclass(frozen=True)
class DispatchSwap(SwapCase, MoeCase):
    """Layers of `MoeCase`."""

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            "dispatch-swap",
            "A redundant expert gets other weights while pull dispatch and combine run (xDeepServe 4.5)",
            {"granules": 1},
            {"tokens": "2,0", "granules": 1},
        ),
    )
    papers = (*read_papers("pull"), *read_papers("serving.swap"))
    group = SwappedExperts

    experts: int = size(2, "Slots on each rank.")


@dataclass(frozen=True)
class FusedSwap(SwapCase, FusedCase):
    """Layers of `FusedCase`."""

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            "fused-swap",
            "A redundant expert gets other weights while FusedDispatch and FusedCombine run (xDeepServe 4.5)",
            {"granules": 1},
            {"tokens": "2,0", "granules": 1},
        ),
    )
    papers = (*read_papers("fused"), *read_papers("serving.swap"))
    group = SwappedFused

    experts: int = size(2, "Slots on each rank.")
