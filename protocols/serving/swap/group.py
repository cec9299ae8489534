"""Groups whose maps change while layers run: the launches of a rank, and the loader ([xDeepServe] 4.5)."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu.kernels.experts.counts import INDEX_BYTES
from xccl_emu.kernels.experts.dummy import EIGHTH, ONE, expert_bytes
from xccl_emu.kernels.serving import swap
from xccl_emu.kernels.serving.swap import FIELD_BYTES
from xccl_emu.lang import Kernel
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.protocol.streams import Streams
from xccl_emu.protocols.communicator import allocate_on
from xccl_emu.protocols.experts import layout as app
from xccl_emu.protocols.experts.config import EpConfig
from xccl_emu.protocols.experts.group import Args, ExpertGroup, PerRound, Phase, PhaseOfRound
from xccl_emu.protocols.experts.layout import COMBINE, DISPATCH, EXPERT, LAYER, C, EpLayout, GroupLayout
from xccl_emu.protocols.fused.session import FusedConfig, FusedExpertParallel, FusedLayout
from xccl_emu.protocols.pull.session import ExpertParallel

HELD_BYTES = FIELD_BYTES
"""Weights of an expert: its FP32 factor, and words that only travel."""


def first_map(homes: Sequence[int], slot: int) -> NDArray[np.int64]:
    """[experts, words] map 0: slots of each expert's even and odd tokens; expert 0 has the redundant ``slot``."""
    table = np.zeros((len(homes), FIELD_BYTES // 8), np.int64)
    table[:, :2] = np.array(homes)[:, None]
    table[0, 1] = slot
    return table


def weights_of(experts: int) -> NDArray[np.uint32]:
    """[experts, words] weights: the bits of the dummy expert's factor, and words that have no zero byte."""
    number = np.arange(experts, dtype=np.uint32)[:, None]
    words = np.full((experts, HELD_BYTES // 4), 0x01010101, np.uint32) * (1 + number % 255)
    words[:, :1] = ONE + number % 7 * EIGHTH
    return words


class SwapLayout(GroupLayout[C]):
    """The regions of the layer, and those by which maps change; `kernels/serving/reconfigure` says what they are."""

    def _add_all(self) -> None:
        super()._add_all()  # type: ignore[safe-super]  # of the layout that it is mixed into
        self.maps = self.meta("meta.map", FIELD_BYTES, 2 * len(self.homes(self.config)))
        self.newest = self.meta("meta.version", FIELD_BYTES)
        self.adopted = self.meta("meta.adopted", FIELD_BYTES, self.config.n_ranks, self._sources)

    @classmethod
    def spares(cls, config: EpConfig) -> Sequence[int]:
        """Return the redundant slots: the last one."""
        return [config.n_slots - 1]

    @classmethod
    def homes(cls, config: EpConfig) -> list[int]:
        """Return the first slot of each expert: the others."""
        return [slot for slot in range(config.n_slots) if slot not in cls.spares(config)]

    @classmethod
    def ub_bytes(cls, config: EpConfig) -> int:
        """Room for an expert's weights after its rows."""
        return max(super().ub_bytes(config), expert_bytes(config.hidden) + HELD_BYTES)


class SwapGroup(ExpertGroup[C]):
    """A group whose last slot is redundant: a core after the last rank's own gives it to other experts meanwhile.

    swaps, grace: see `SwapCase`.
    """

    lays_out: ClassVar[type[SwapLayout[Any]]]
    layout: SwapLayout[C]
    more_cores: ClassVar[int] = 1

    def __init__(self, pod: Pod, config: C | None = None, *, swaps: int = 1, grace: int = 1, **more: Any) -> None:
        super().__init__(pod, config, **more)
        self._swaps, self._grace = swaps, grace
        n, rounds = self.config.n_slots, self.n_rounds
        self.spares, self.homes = self.lays_out.spares(self.config), self.lays_out.homes(self.config)
        sizes = {
            "gate": rounds * self.config.tokens_max * INDEX_BYTES, "version": (rounds + 1) * FIELD_BYTES,
            "held": n * HELD_BYTES, "since": n * FIELD_BYTES, "storage": len(self.homes) * HELD_BYTES,
        }  # fmt: skip
        self.swapped = allocate_on(pod, self.layout.dies, sizes)
        """[rank] choices of the gate, versions used, weights of slots and since when, and weights of all experts."""
        for rank, own in enumerate(self.swapped):
            for i in range(rounds):
                self._of(rank, i).update(self._part(own, i))

    def _part(self, own: app.Buffered, i: int) -> app.Buffered:
        """Return the part of them that a round has."""
        nbytes = self.config.tokens_max * INDEX_BYTES
        gate, version = own["gate"], own["version"]
        before, now = (Buffer(version.die, version.address + j * FIELD_BYTES, FIELD_BYTES) for j in (i, i + 1))
        chosen = Buffer(gate.die, gate.address + i * nbytes, nbytes)
        return {"gate": chosen, "before": before, "version": now, "held": own["held"], "since": own["since"]}

    def fill_rounds(self, tokens: PerRound, topk: PerRound, weights: PerRound) -> int:
        """Put batches there, as any group does; ``topk`` are experts, and slots are chosen when an iteration begins."""
        masked = [[np.full_like(choices, -1) for choices in batch] for batch in topk]
        for i, batch in enumerate(topk):
            for rank, choices in enumerate(batch):
                rows = self.pod.view(self._of(rank, i)["gate"], np.int32, (-1, app.COLUMNS))
                rows[: len(choices)] = app.whole_rows(choices)
        experts = weights_of(len(self.homes))
        for own in self.swapped:
            held = self.pod.view(own["held"], np.uint32, (-1, experts.shape[1]))
            held[self.homes], held[self.spares] = experts, experts[0]
            self.pod.view(own["storage"], np.uint32, (-1, experts.shape[1]))[:] = experts
        return super().fill_rounds(tokens, masked, weights)

    def steps(self, rounds: int) -> Iterator[PhaseOfRound]:
        """Yield what each rank launches."""
        begin, experts = Phase(DISPATCH, swap.begin), Phase(EXPERT, swap.held_experts)
        for i in range(rounds):
            yield from (PhaseOfRound(phase, i, i) for phase in (begin, self.dispatches, experts, self.combines))
        yield PhaseOfRound(Phase(COMBINE, swap.end), rounds - 1, rounds - 1)

    def _places(self, phase: Phase, ahead: int) -> Args:
        places = super()._places(phase, ahead)  # type: ignore[safe-super]  # of the group that it is mixed into
        return {**places, "s": self._swap(), "held_bytes": HELD_BYTES}

    def _swap(self) -> swap.Swap:
        """The kernels' record of the swap, for ranks."""
        c, layout, first = self.config, self.layout, self.config.first_die
        return swap.Swap(
            0, c.n_ranks, self.pod.spec.die_bytes, layout.maps.at(first), layout.newest.at(first), 0, 0,
            layout.adopted.at(layout.dies[-1]).shared(layout.dies), 0, 0, len(self.homes), HELD_BYTES, 0, 0,
            self._swaps, self._grace,
        )  # fmt: skip

    def launch_rounds(self, streams: Streams, rounds: int, parts: Collection[str] = LAYER) -> None:
        """Launch ``rounds`` rounds on all ranks, and the loader."""
        super().launch_rounds(streams, rounds, parts)
        kernel, args = self._loader()
        self.pod.launch(kernel, self.layout.dies[-1], [self.config.cores], args, after=streams)

    def _loader(self) -> tuple[Kernel, Args]:
        """Return the kernel that changes experts, and its arguments."""
        own, (redundant,) = self.swapped[-1], self.spares
        loads = self._swap()._replace(
            adopted=self.layout.adopted.at(self.layout.dies[-1]),
            since=own["since"].only(range(redundant * FIELD_BYTES, own["since"].nbytes)),
            weights=own["held"].only(range(redundant * HELD_BYTES, own["held"].nbytes)),
        )
        return swap.reload, {"storage": own["storage"].address, "s": loads}


class PullSwapLayout(SwapLayout[EpConfig], EpLayout):
    """Layout of a group that pulls."""


class SwappedExperts(SwapGroup[EpConfig], ExpertParallel):
    """A group that pulls."""

    lays_out = PullSwapLayout
    layout: PullSwapLayout


class FusedSwapLayout(SwapLayout[FusedConfig], FusedLayout):
    """Layout of a group whose ranks write to each other."""


class SwappedFused(SwapGroup[FusedConfig], FusedExpertParallel):
    """A group whose ranks write to each other."""

    lays_out = FusedSwapLayout
    layout: FusedSwapLayout
