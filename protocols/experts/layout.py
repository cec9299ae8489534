"""Where dispatch and combine keep what in the areas of each die; the same on every rank."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from xccl_emu.kernels.experts.counts import FIELD_BYTES
from xccl_emu.kernels.group import align
from xccl_emu.machine.launch import Address
from xccl_emu.machine.pod import Pod
from xccl_emu.protocol import Region, Regions
from xccl_emu.protocol.regions import Parts
from xccl_emu.protocols.experts.config import EpConfig, buffer_bytes, check_pod

C = TypeVar("C", bound=EpConfig)

DISPATCH, EXPERT, COMBINE = "dispatch", "expert", "combine"
LAYER = (DISPATCH, EXPERT, COMBINE)
"""The parts of a layer."""
_REMEDY = "take fewer ranks, experts or tokens, or a larger pod"


class GroupLayout(Regions, ABC, Generic[C]):
    """The regions of an expert-parallel group, after what other communicators use; offsets are bytes in the areas.

    Raises ConfigError if the pod has too few dies or cores, CapacityError if an area or the data buffer is too small.
    """

    tallies: Region | None = None
    """Counts of the cores of a rank, where they exchange them: a row of 4-byte counts by slot for each core,
    and one of their sums."""

    def __init__(self, config: C, pod: Pod, managed_offset: int = 0, field_offset: int = 0) -> None:
        offsets = check_pod(config, pod, managed_offset, field_offset)
        super().__init__(config.n_ranks, config.first_die)
        self.config: C = config
        self._add_all()
        self.fit(pod.spec, *offsets, _REMEDY, self.ub_bytes(config))

    @abstractmethod
    def _add_all(self) -> None:
        """Say what there is."""

    @staticmethod
    @abstractmethod
    def ub_bytes(config: Any) -> int:
        """Return the least size of a core's data buffer that the kernels need."""

    def first(self, *regions: Region | None, tables: int = 1) -> int:
        """Address of a region, or of some, on the die of rank 0, as kernels take it, or 0 if there is none.

        tables: how many it consists of; each rank has an equal share of each of them on every die, and of none all.
        """
        die, found = self.config.first_die, [region for region in regions if region]
        if not found:
            return 0
        starts = [int(region.at(die)) for region in found]
        sizes = [region.size if region.count > 1 else region.nbytes for region in found]
        address = Address.of(starts[0], die, *(range(at, at + size) for at, size in zip(starts, sizes, strict=True)))
        each = sizes[0] // max(tables, 1)
        parts = [at - starts[0] + i * each for at in starts for i in range(tables)]
        return address.only(*(range(at, at + each) for at in parts)).shared(self.dies) if tables else address

    def _add_tallies(self) -> None:
        c = self.config
        row, names = align(4 * c.n_slots), [*(f".core{core}" for core in range(c.cores)), ".sums"]
        if c.streams:
            self.tallies = self.managed("tallies", row, len(names), lambda _: ((name, row) for name in names))

    def _sources(self, rank: int) -> Iterator[tuple[str, int]]:
        """Names of fields that each rank has on the die of one."""
        return ((f"[{source}→{rank}]", FIELD_BYTES) for source in range(self.config.n_ranks))

    def _by_expert(self, rank: int, nbytes: int = FIELD_BYTES) -> Iterator[tuple[str, int]]:
        """Names of what each rank has there for each expert."""
        experts = range(self.config.local_experts)
        return ((f"{source}.expert{e}", nbytes) for source, _ in self._sources(rank) for e in experts)


class EpLayout(GroupLayout[EpConfig]):
    """Layout of a group that pulls: on any die what is for or from a rank, on its own more."""

    ub_bytes = staticmethod(buffer_bytes)

    def _add_all(self) -> None:
        c, n = self.config, self.config.n_ranks
        self.dispatch_blocks, self.combine_blocks = (
            self.managed(name, c.rows_per_block * nbytes, n, self._rows(nbytes))
            for name, nbytes in (("dispatch_block", c.message_bytes), ("combine_block", c.returned_bytes))
        )
        cores = [(f".core{core}", 2 * c.row_bytes) for core in range(c.cores)]
        self.staging = self.managed("staging", 2 * c.row_bytes, c.cores, lambda _: cores)
        self._add_tallies()
        self.dispatch_fields = self.meta("meta.counts", FIELD_BYTES, c.n_slots, self._counts)
        self.dispatch_done, self.combine_fields, self.combine_done = (
            self.meta(f"meta.{name}", FIELD_BYTES, n, self._sources)
            for name in ("dispatch_ack", "rows", "combine_ack")
        )

    def _rows(self, nbytes: int) -> Parts:
        """Names of what a rank has for each other one, row by row."""
        rows, n = self.config.rows_per_block, self.config.n_ranks
        return lambda rank: ((f"[{rank}→{i // rows}].row{i % rows}", nbytes) for i in range(n * rows))

    def _counts(self, rank: int) -> Iterator[tuple[str, int]]:
        return self._by_expert(rank) if self.config.local_experts > 1 else self._sources(rank)
