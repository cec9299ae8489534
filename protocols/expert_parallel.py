"""Dispatch and combine for users: an expert-parallel group on a pod.

group = ExpertParallel(pod, EpConfig(n_ranks=4, top_k=2, hidden=128))
received = group.dispatch(tokens, topk)
...                                      # experts: group.run_dummy(), or write into group.expert_output(rank)
outputs = group.combine(weights)
"""

import numpy as np

from xccl_emu.kernels import combine as combine_kernel
from xccl_emu.kernels import dispatch as dispatch_kernel
from xccl_emu.kernels.counts import work_at
from xccl_emu.kernels.parameters import Areas
from xccl_emu.machine.pod import Pod
from xccl_emu.protocols.expert_group import Args, ExpertGroup, Phases, Received
from xccl_emu.protocols.grants import COMBINE_RIGHTS, DISPATCH_RIGHTS, Grants
from xccl_emu.protocols.layout import EpConfig, lay_out, messages_at

__all__ = ["ExpertParallel", "Received"]


class ExpertParallel(ExpertGroup[EpConfig]):
    """An expert-parallel group that pulls: dispatch, a dummy expert, combine (xDeepServe 3.2)."""

    phases = Phases(dispatch=dispatch_kernel.dispatch, combine=combine_kernel.combine)

    def __init__(self, pod: Pod, config: EpConfig, *, managed_offset: int = 0, field_offset: int = 0) -> None:
        self.layout = lay_out(config, pod, managed_offset, field_offset)
        self.grants = Grants(pod.spec, config, self.layout)
        super().__init__(pod, config, self.layout, managed_offset)

    def rounds_done(self, done_offset: int) -> int:
        """How many rounds rank 0 has acknowledged to itself, in the fields at an offset: the last event ID."""
        field = self.pod.meta(self.config.first_die, done_offset)
        return int(self.pod.span(field, 8).view(np.int64)[0])

    def _room(self, before: int, row_bytes: int) -> int:
        """How many rows fit a half of what is behind the first ``before`` bytes of the data buffer."""
        return (self.pod.spec.ub_bytes - before) // 2 // row_bytes

    def next_dispatch(self) -> int:
        """Event ID of the next dispatch."""
        return self.rounds_done(self.layout.dispatch_done) + 1

    def dispatch_areas(self) -> Areas:
        """Where dispatch keeps what."""
        layout, first, work = self.layout, self.config.first_die, messages_at(self.config)
        return Areas(
            blocks=self.pod.managed(first, layout.dispatch_blocks),
            block_bytes=layout.dispatch_block_bytes,
            fields=self.pod.meta(first, layout.dispatch_fields),
            done=self.pod.meta(first, layout.dispatch_done),
            staging=0,
            work=work,
            room=self._room(work, self.config.message_bytes),
        )

    def next_combine(self) -> int:
        """Event ID of the next combine."""
        return self.rounds_done(self.layout.combine_done) + 1

    def combine_areas(self) -> Areas:
        """Where combine keeps what."""
        layout, first, work = self.layout, self.config.first_die, work_at(self.config.n_slots)
        return Areas(
            blocks=self.pod.managed(first, layout.combine_blocks),
            block_bytes=layout.combine_block_bytes,
            fields=self.pod.meta(first, layout.combine_fields),
            done=self.pod.meta(first, layout.combine_done),
            staging=self.pod.managed(first, layout.staging),
            work=work,
            room=self._room(work, self.config.row_bytes),
        )

    def _core_args(self, rank: int) -> Args:
        """Who each core of a rank is, and how many tokens the rank has."""
        return {"rank": rank, "core": range(self.config.cores), "tokens": self.n_tokens(rank)}

    def _launch_dispatch(self, rank: int) -> None:
        args = {**self._core_args(rank), "event": self.next_dispatch(), "a": self.dispatch_areas()}
        self._launch(dispatch_kernel.dispatch, rank, args, DISPATCH_RIGHTS, self.grants.dispatch(rank))

    def _launch_combine(self, rank: int) -> None:
        args = {**self._core_args(rank), "event": self.next_combine(), "a": self.combine_areas()}
        self._launch(combine_kernel.combine, rank, args, COMBINE_RIGHTS, self.grants.combine(rank))
