"""Dispatch and combine for users: an expert-parallel group on a pod.

group = ExpertParallel(pod, EpConfig(n_ranks=4, top_k=2, hidden=128))
received = group.dispatch(tokens, topk)
...                                      # experts: group.run_dummy(), or write into group.expert_output(rank)
outputs = group.combine(weights)
"""

import numpy as np

from xccl_emu.kernels.experts.counts import work_at
from xccl_emu.kernels.pull import combine as combine_kernel
from xccl_emu.kernels.pull import dispatch as dispatch_kernel
from xccl_emu.kernels.pull.parameters import Areas
from xccl_emu.protocol import Region
from xccl_emu.protocols.experts.config import EpConfig, fit_half, messages_at
from xccl_emu.protocols.experts.group import Args, ExpertGroup, Phase
from xccl_emu.protocols.experts.layout import COMBINE, DISPATCH, EpLayout, Received

__all__ = ["ExpertParallel", "Received"]


class ExpertParallel(ExpertGroup[EpConfig]):
    """An expert-parallel group that pulls: dispatch, a dummy expert, combine (xDeepServe 3.2).

    `EpConfig` has the sizes; shapes and types are at `dispatch` and `combine`.

    >>> import ml_dtypes, numpy as np, xccl_emu as xe
    >>> group = xe.ExpertParallel(xe.Pod(xe.small_pod(2, ub_bytes=32768)), n_ranks=2, hidden=64, top_k=1, tokens_max=4)
    >>> x, expert = np.ones((1, 64), ml_dtypes.bfloat16), np.array([[1]])
    >>> out = group.layer([x, x], [expert, expert], [np.ones((1, 1), np.float32)] * 2)
    >>> [float(rank[0, 0]) for rank in out]  # expert 1 makes 1.125 of a one
    [1.125, 1.125]
    """

    dispatches = Phase(DISPATCH, dispatch_kernel.dispatch)
    combines = Phase(COMBINE, combine_kernel.combine)
    lays_out = EpLayout
    layout: EpLayout

    def _rounds_done(self, done: Region) -> int:
        """Return how many rounds rank 0 has acknowledged to itself, in fields of all ranks: the last event ID."""
        return int(self.pod.span(self.layout.first(done), 8).view(np.int64)[0])

    def next_dispatch(self) -> int:
        """Event ID of the next dispatch."""
        return self._rounds_done(self.layout.dispatch_done) + 1

    def dispatch_areas(self) -> Areas:
        """Return the places that dispatch uses."""
        layout, first, work = self.layout, self.layout.first, messages_at(self.config)
        return Areas(
            blocks=first(layout.dispatch_blocks),
            block_bytes=layout.dispatch_blocks.nbytes,
            fields=first(layout.dispatch_fields),
            done=first(layout.dispatch_done),
            staging=0,
            work=work,
            room=fit_half(self.pod.spec.ub_bytes, work, self.config.message_bytes),
        )

    def next_combine(self) -> int:
        """Event ID of the next combine."""
        return self._rounds_done(self.layout.combine_done) + 1

    def combine_areas(self) -> Areas:
        """Return the places that combine uses."""
        layout, first, work = self.layout, self.layout.first, work_at(self.config.n_slots)
        return Areas(
            blocks=first(layout.combine_blocks),
            block_bytes=layout.combine_blocks.nbytes,
            fields=first(layout.combine_fields),
            done=first(layout.combine_done),
            staging=first(layout.staging),
            work=work,
            room=fit_half(self.pod.spec.ub_bytes, work, self.config.row_bytes),
        )

    def _all_places(self) -> Args:
        return {"d": self.dispatch_areas(), "e": self.combine_areas()}

    def _places(self, phase: Phase, ahead: int) -> Args:
        if phase.part == COMBINE:
            return {"event": self.next_combine() + ahead, "a": self.combine_areas()}
        return {"event": self.next_dispatch() + ahead, "a": self.dispatch_areas()}
