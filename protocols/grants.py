"""What dispatch, expert and combine may touch: no more than they need."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from xccl_emu.kernels.counts import FIELD_BYTES
from xccl_emu.machine.launch import Grant
from xccl_emu.machine.spec import PodSpec
from xccl_emu.protocols.layout import EpConfig, EpLayout

DISPATCH_RIGHTS = {"recv_x": "w", "route": "w", "x": "r", "topk": "r", "pos": "w", "counts": "rw"}
EXPERT_RIGHTS = {"recv_x": "r", "route": "r", "y": "w"}
COMBINE_RIGHTS = {"y": "r", "out": "w", "topk": "r", "pos": "r", "weights": "r", "counts": "r"}
"""What each kernel may do with the app buffers of its rank."""


L = TypeVar("L")


@dataclass(frozen=True)
class GroupGrants(Generic[L]):
    """Permissions in the managed and metadata areas, given by rank; None is any die."""

    spec: PodSpec
    config: EpConfig
    layout: L

    def _fields(self, rank: int, offset: int, each: int = 1) -> list[Grant]:
        """A table with ``each`` fields of every rank: on its own die to read, its own fields on any die to write."""
        nbytes = each * FIELD_BYTES
        return [
            self._meta(rank, offset, self.config.n_ranks * nbytes, "r"),
            self._meta(None, offset + rank * nbytes, nbytes, "w"),
        ]

    def _own(self, rank: int, start: int, end: int) -> list[Grant]:
        """A region that only the rank's own cores use, if there is one."""
        return [self._managed(rank, start, end - start, "rw")] if end > start else []

    def _meta(self, rank: int | None, offset: int, nbytes: int, rights: str) -> Grant:
        return self._grant(rank, self.spec.meta_start + offset, nbytes, rights)

    def _managed(self, rank: int | None, offset: int, nbytes: int, rights: str) -> Grant:
        return self._grant(rank, self.spec.managed_start + offset, nbytes, rights)

    def _grant(self, rank: int | None, start: int, nbytes: int, rights: str) -> Grant:
        die = None if rank is None else self.config.first_die + rank
        return Grant(die, start, start + nbytes, rights)


class Grants(GroupGrants[EpLayout]):
    """Of a group that pulls: on any die what is for or from a rank, on its own more."""

    def dispatch(self, rank: int) -> list[Grant]:
        """What a rank's dispatch may touch."""
        layout, nbytes = self.layout, self.layout.dispatch_block_bytes
        return [
            *self._fields(rank, layout.dispatch_fields, self.config.local_experts),
            *self._fields(rank, layout.dispatch_done),
            self._managed(None, layout.dispatch_blocks + rank * nbytes, nbytes, "r"),
            self._managed(rank, layout.dispatch_blocks, layout.combine_blocks - layout.dispatch_blocks, "w"),
            *self._own(rank, layout.tallies, layout.managed_end),
        ]

    def combine(self, rank: int) -> list[Grant]:
        """What a rank's combine may touch."""
        layout, nbytes = self.layout, self.layout.combine_block_bytes
        return [
            self._managed(None, layout.combine_blocks + rank * nbytes, nbytes, "r"),
            *self._fields(rank, layout.combine_fields),
            *self._fields(rank, layout.combine_done),
            self._managed(rank, layout.combine_blocks, layout.staging - layout.combine_blocks, "w"),
            *self._own(rank, layout.staging, layout.tallies),
        ]
