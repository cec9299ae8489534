"""Collectives in two levels as cases: all-gather, reduce-scatter, all-reduce, in groups and between them.

A group may be the dies of a chip, whose link is their own, or the dies of a node.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels.collectives.gather_by_reads import gather_by_reads
from xccl_emu.kernels.collectives.two_level import two_level
from xccl_emu.lang import Kernel
from xccl_emu.oracle.collectives import by_level
from xccl_emu.protocol import Case, Preset, Regions, choice, size
from xccl_emu.protocols.collectives.case import Algorithm, CollectiveCase
from xccl_emu.protocols.collectives.layout import ExchangeLayout, ReadLevels, TwoLevels

ALGORITHMS = {
    "all-reduce-two-level": Algorithm("Sums for all, in groups and between them", "two_level", TwoLevels, 1, 1, 1),
    "reduce-scatter-two-level": Algorithm(
        "A share of the sums for each, in groups and then between them", "two_level", TwoLevels, 1, 1, 0
    ),
    "all-gather-two-level": Algorithm(
        "What each has for all, between groups and then in them", "two_level", TwoLevels, 0, 0, 1
    ),
    "all-gather-by-reads": Algorithm(
        "What each has for all, read by DMA between groups and then in them", "gather_by_reads", ReadLevels, 0, 0, 1, 1
    ),
}


@dataclass(frozen=True)
class TwoLevelCase(CollectiveCase):
    """A collective of two levels: ranks of a group follow each other, and the ranks must be whole groups."""

    presets: ClassVar[tuple[Preset, ...]] = tuple(
        Preset(name, each.about, {"collective": name}, each_sync={"calls": 1}) for name, each in ALGORITHMS.items()
    )

    collective: str = choice("all-reduce-two-level", "Which.", of=ALGORITHMS)
    ranks: int = size(4, "Ranks, one a die; whole groups.", least=2, most=768, examples=(2, 6))
    calls: int = size(2, "Calls back to back, in one kernel.", examples=(1, 3), each_call=True)
    group: int = size(2, "Ranks of a group, such as the dies of a chip, 2, or of a node, 16.", most=768)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ranks % self.group:
            raise ConfigError("group", self.group, f"must divide the ranks, {self.ranks}")

    def results(self, values: NDArray[Any]) -> NDArray[Any]:
        """The results of `CollectiveCase`, with sums in two levels."""
        if not self._of.reduce:
            return super().results(values)
        sums = np.stack([by_level(call, self.group) for call in values])[:, None]
        return sums.repeat(self.ranks, 1) if self._of.gather else sums.swapaxes(1, 2)

    def inboxes(self, regions: Regions, room: int) -> ExchangeLayout:
        """Make the inboxes and fields of both levels."""
        return self._of.layout(regions, self.ranks, self.cores, room, self.group)

    @property
    def _of(self) -> Algorithm:
        return ALGORITHMS[self.collective]

    @property
    def kernel(self) -> Kernel:
        """Return what its cores run."""
        return gather_by_reads if self._of.reads else two_level

    @property
    def _counted(self) -> int:
        return self._of.reduce + self._of.gather

    @classmethod
    def proofs(cls) -> Mapping[str, Case]:
        """Two groups of two, so often that slots are used again; one group, and groups of one."""
        more: dict[str, Case] = {}
        for name, each in ALGORITHMS.items():
            case = cls(collective=name)
            pair, twice = replace(case, ranks=2), each.reads or (each.reduce and each.gather)
            more |= {
                f"{name}, two groups of two": replace(case, calls=2 if twice else 3),
                f"{name}, one group, in place, slices": replace(pair, in_place=1, elements=40, slot=32),
                f"{name}, groups of one, two cores": replace(pair, group=1, cores=2, elements=24, dtype="fp16"),
            }
        return more
