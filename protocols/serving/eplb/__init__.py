"""Expert balance as a loop while pull dispatch and combine run, as a case ([xDeepServe] 4.5).

Ranks report what their tokens choose; a leader chooses the expert that gets a replica, and the rank that gets it, and
swaps it in, again and again.  Judged are the counts, what was chosen, and what ranks receive by the maps they use.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu import oracle
from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels.group import align
from xccl_emu.kernels.serving import eplb as device
from xccl_emu.kernels.serving import swap
from xccl_emu.kernels.serving.reconfigure import FIELD_BYTES
from xccl_emu.lang import Kernel
from xccl_emu.machine.pod import Pod
from xccl_emu.protocol import Bench, Preset, read_papers, size
from xccl_emu.protocols.communicator import allocate_on
from xccl_emu.protocols.experts.config import EpConfig
from xccl_emu.protocols.experts.data import Batch, choice_steps
from xccl_emu.protocols.experts.group import Args, Phase, PhaseOfRound
from xccl_emu.protocols.experts.layout import DISPATCH
from xccl_emu.protocols.serving.swap import DispatchSwap
from xccl_emu.protocols.serving.swap.group import HELD_BYTES, PullSwapLayout, SwapGroup, SwappedExperts, weights_of


class BalancedLayout(PullSwapLayout):
    """The regions of swaps, and on the leader's die the reports; each rank's last slot is redundant."""

    @classmethod
    def spares(cls, config: EpConfig) -> Sequence[int]:
        """Return the redundant slots: the last one of each rank."""
        return range(config.local_experts - 1, config.n_slots, config.local_experts)

    def _add_all(self) -> None:
        super()._add_all()
        self.reported = self.meta("meta.reported", FIELD_BYTES, self.config.n_ranks, self._sources)


class Balanced(SwappedExperts):
    """A group whose leader, a core after the last rank's own, balances experts; periods have ``slices`` iterations."""

    lays_out = BalancedLayout
    layout: BalancedLayout

    def __init__(self, pod: Pod, config: EpConfig | None = None, *, slices: int = 1, **more: Any) -> None:
        super().__init__(pod, config, **more)
        self._slices, self.report_bytes = slices, align(4 * len(self.homes))
        reports = self._swaps * slices * self.config.n_ranks
        sizes = {"reports": reports * self.report_bytes, "decided": self._swaps * FIELD_BYTES}
        (self.leads,) = allocate_on(pod, self.layout.dies[-1:], sizes)
        """[iteration, rank] reports, and [period] expert and slot."""

    def steps(self, rounds: int) -> Iterator[PhaseOfRound]:
        """Yield what each rank launches: a report follows the gate."""
        for step in super().steps(rounds):
            yield step
            if step.phase.kernel.name == swap.begin.name:
                yield PhaseOfRound(Phase(DISPATCH, device.report), step.number, step.ahead)

    def _places(self, phase: Phase, ahead: int) -> Args:
        return {**super()._places(phase, ahead), "i": ahead, "k": self._collects()}

    def _collects(self) -> device.Collects:
        last, dies = self.layout.dies[-1], self.layout.dies
        at = self.leads["reports"].address
        reported, between = self.layout.reported.at(last).shared(dies), len(self.homes) // len(self.spares)
        return device.Collects(at, self.report_bytes, reported, self._slices, between)

    def _loader(self) -> tuple[Kernel, Args]:
        last, slots = self.layout.dies[-1], range(self.spares[0], self.config.n_slots)
        first = self.swapped[0]  # the same place on each rank's die
        loads = self._swap()._replace(
            adopted=self.layout.adopted.at(last), since=first["since"].only(_spans(slots, FIELD_BYTES)),
            weights=first["held"].only(_spans(slots, HELD_BYTES)),
        )  # fmt: skip
        at = {"storage": self.swapped[-1]["storage"].address, "decided": self.leads["decided"].address}
        return device.rebalance, {**at, "s": loads, "k": self._collects()}


def _spans(slots: range, nbytes: int) -> range:
    """Bytes from the first redundant slot to the last: which one is written is not known before."""
    return range(slots.start * nbytes, slots.stop * nbytes)


@dataclass(frozen=True)
class EplbLoop(DispatchSwap):
    """Layers of `DispatchSwap`, whose last slot of each rank is redundant; one gets the expert of a period."""

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            "eplb-loop", "Loads collected, an expert chosen, placed and swapped in while layers run (xDeepServe 4.5)",
            {"granules": 1, "tokens": "0,3", "rounds": 3}, {"granules": 1, "tokens": "0,2", "rounds": 3},
        ),
    )  # fmt: skip
    papers = (*read_papers("pull"), *read_papers("serving.swap"), *read_papers("serving.eplb"))
    group = Balanced

    swaps: int = size(1, "Periods; after each a redundant slot gets an expert.", most=1 << 10)
    slices: int = size(1, "Iterations of a period, by which the hottest expert is found.", most=1 << 10)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds < self.swaps * self.slices:
            raise ConfigError("rounds", self.rounds, f"must be {self.swaps * self.slices} or more, as periods have")

    def _group(self, pod: Pod, **more: int) -> SwapGroup[Any]:
        return super()._group(pod, slices=self.slices, **more)

    def _pattern(self, rounds: Sequence[Sequence[int]]) -> list[Batch]:
        """Neighbouring tokens choose two experts by turns, and in every other iteration the next two."""
        experts, steps = len(self._homes), choice_steps(self._config())
        batches = []
        for i, batch in enumerate(super()._pattern(rounds)):
            first = [1 + (i + 1) // 2 + np.arange(len(x))[:, None] % 2 for x in batch.tokens]
            batches.append(replace(batch, topk=[((each + steps) % experts).astype(np.int32) for each in first]))
        return batches

    def reports(self, batches: Sequence[Batch]) -> NDArray[np.int32]:
        """Return the counts of each iteration of all periods, by rank and expert, as INT32."""
        periods = batches[: self.swaps * self.slices]
        return np.array([[oracle.tokens_of_experts(x, len(self._homes)) for x in b.topk] for b in periods], np.int32)

    def decided(self, batches: Sequence[Batch]) -> list[tuple[int, int]]:
        """Return the expert of each period, and the slot that it gets."""
        counts = self.reports(batches).sum(axis=1).reshape(self.swaps, self.slices, -1)
        ranks = [home // self.experts for home in self._homes]
        chosen = [oracle.hot_expert(period) for period in counts]
        placed = [oracle.least_loaded(period, e, ranks) for period, e in zip(counts, chosen, strict=True)]
        return [(e, (1 + rank) * self.experts - 1) for e, rank in zip(chosen, placed, strict=True)]

    def slots_by(self, choices: NDArray[np.int32], version: int, batches: Sequence[Batch]) -> NDArray[np.int32]:
        """Return the slots that a version of the map has for choices; odd versions have no replica."""
        maps = [(0, self.group.lays_out.spares(self._config())[0]), *self.decided(batches)]
        replica = None if version % 2 else maps[version // 2]
        return oracle.slots_with(choices, self._homes, replica)

    def _expect_changed(
        self, bench: Bench, group: SwapGroup[Any], batches: Sequence[Batch], loader: str
    ) -> None:  # fmt: skip
        assert isinstance(group, Balanced)
        last, experts = group.layout.dies[-1], weights_of(len(group.homes))
        reports = np.zeros((self.swaps * self.slices, self.ranks, group.report_bytes // 4), np.int32)
        reports[..., : len(group.homes)] = self.reports(batches)
        decided = np.zeros((self.swaps, FIELD_BYTES // 8), np.int64)
        decided[:, :2] = self.decided(batches)
        leaves: dict[str, NDArray[Any]] = {"reports": reports, "decided": decided}
        for name, data in leaves.items():
            bench.expect(group.leads[name].address, data, name, owners=loader)
            bench.label_buffer(group.leads[name], f"app.{name}")
        for expert, slot in {slot: (expert, slot) for expert, slot in self.decided(batches)}.values():
            held = group.swapped[slot // self.experts]["held"]
            bench.expect(held.address + slot * HELD_BYTES, experts[expert], f"slot {slot}", owners=loader)
        bench.role("leader", [last])

    proof_usual: ClassVar = dict(granules=1, tokens="0,3", rounds=3)
    proof_rows: ClassVar = {
        "a period, and two iterations after it": {},
        "two periods": dict(swaps=2),
        "a period of two iterations": dict(slices=2),
    }
