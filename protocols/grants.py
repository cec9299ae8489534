"""What dispatch, expert and combine may touch: no more than they need."""

from dataclasses import dataclass

from xccl_emu.kernels.counts import FIELD_BYTES
from xccl_emu.machine.launch import Grant
from xccl_emu.machine.spec import PodSpec
from xccl_emu.protocols.layout import EpConfig, EpLayout

DISPATCH_RIGHTS = {"recv_x": "w", "route": "w", "x": "r", "topk": "r", "pos": "w", "counts": "rw"}
EXPERT_RIGHTS = {"recv_x": "r", "route": "r", "y": "w"}
COMBINE_RIGHTS = {"y": "r", "out": "w", "topk": "r", "pos": "r", "weights": "r", "counts": "r"}
"""What each kernel may do with the app buffers of its rank."""


@dataclass(frozen=True)
class Grants:
    """Permissions in the managed and metadata areas: on any die for what is for or from a rank, on its own for more."""

    spec: PodSpec
    config: EpConfig
    layout: EpLayout

    def dispatch(self, rank: int) -> list[Grant]:
        """What a rank's dispatch may touch."""
        layout = self.layout
        return [
            *self._fields(rank, layout.dispatch_fields, self.config.local_experts),
            *self._fields(rank, layout.dispatch_done),
            self._block(rank, layout.dispatch_blocks, layout.dispatch_block_bytes),
            self._managed(rank, layout.dispatch_blocks, layout.combine_blocks, "w"),
            *([self._managed(rank, layout.tallies, layout.managed_end, "rw")] if self.config.streams else []),
        ]

    def combine(self, rank: int) -> list[Grant]:
        """What a rank's combine may touch."""
        layout = self.layout
        return [
            self._block(rank, layout.combine_blocks, layout.combine_block_bytes),
            *self._fields(rank, layout.combine_fields),
            *self._fields(rank, layout.combine_done),
            self._managed(rank, layout.combine_blocks, layout.staging, "w"),
            self._managed(rank, layout.staging, layout.tallies, "rw"),
        ]

    def _fields(self, rank: int, offset: int, each: int = 1) -> list[Grant]:
        """The fields of all ranks on its own die, to read; its own on any die, to write."""
        start, nbytes = self.spec.meta_start + offset, each * FIELD_BYTES
        own = start + rank * nbytes
        everybody = Grant(self.config.first_die + rank, start, start + self.config.n_ranks * nbytes, "r")
        return [everybody, Grant(None, own, own + nbytes, "w")]

    def _block(self, rank: int, offset: int, nbytes: int) -> Grant:
        """What any die has for this rank, to read."""
        start = self.spec.managed_start + offset + rank * nbytes
        return Grant(None, start, start + nbytes, "r")

    def _managed(self, rank: int, start: int, end: int, rights: str) -> Grant:
        first = self.spec.managed_start
        return Grant(self.config.first_die + rank, first + start, first + end, rights)
