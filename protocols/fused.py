"""FusedDispatch and FusedCombine for users: an expert-parallel group whose ranks write to each other.

group = FusedExpertParallel(pod, FusedConfig(n_ranks=4, top_k=2, hidden=128))
received = group.dispatch(tokens, topk)
...                                      # experts: group.run_dummy(), or write into group.expert_output(rank)
outputs = group.combine(weights)

Several rounds in one run: `FusedExpertParallel(pod, config, rounds=3).run_rounds(tokens, topk, weights)`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.kernels import fused as dispatch_kernel
from xccl_emu.kernels import fused_combine as combine_kernel
from xccl_emu.kernels.common import ROWS
from xccl_emu.kernels.counts import FIELD_BYTES
from xccl_emu.kernels.fused_combine import LISTED_BYTES, buffer_at
from xccl_emu.kernels.parameters import Fused
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.protocols.expert_group import COMBINE, DISPATCH, Args, ExpertGroup, Phase
from xccl_emu.protocols.fused_layout import FusedConfig, FusedLayout, inbound_bytes
from xccl_emu.protocols.layout import messages_at


class FusedExpertParallel(ExpertGroup[FusedConfig]):
    """An expert-parallel group: FusedDispatch, a dummy expert, FusedCombine (CloudMatrix384 4.2.1)."""

    dispatches = Phase(
        DISPATCH, dispatch_kernel.fused_dispatch,
        {"x": "r", "topk": "r", "recv_x": "w", "route": "w", "counts": "w"},
    )  # fmt: skip
    combines = Phase(
        COMBINE, combine_kernel.fused_combine,
        {"y": "r", "route": "r", "counts": "r", "topk": "r", "weights": "r", "out": "w"},
    )  # fmt: skip
    lays_out = FusedLayout
    layout: FusedLayout

    def __init__(self, pod: Pod, config: FusedConfig, **more: int) -> None:
        super().__init__(pod, config, **more)
        self._choices_committed = [0] * config.n_ranks

    def next_dispatch(self) -> int:
        """Event ID of the next dispatch: behind that in what rank 0 last told itself, in either table."""
        c = self.config
        fields = [self.layout.fields.at(c.first_die, parity * c.n_slots) for parity in range(2)]
        return 1 + max(int(self.pod.span(field, 8).view(np.int64)[0]) for field in fields)

    def areas(self) -> Fused:
        """Where the protocol keeps what, and which optimizations are on."""
        c, layout, first = self.config, self.layout, self.layout.first
        ub_bytes, work = self.pod.spec.ub_bytes, messages_at(c)
        return Fused(
            dispatch=first(layout.dispatch),
            combine=first(layout.combine),
            region=c.max_tokens,
            fields=first(layout.fields),
            arrivals=first(layout.arrivals),
            due=first(layout.due),
            staging=first(layout.staging),
            work=work,
            room=(ub_bytes - work - c.n_slots * FIELD_BYTES) // 2 // inbound_bytes(c),
            list_room=(ub_bytes - buffer_at(ROWS, c.hidden, c.n_slots)) // LISTED_BYTES,
            wire=c.wire_bytes,
            exchange=first(layout.exchange),
            sdma=int(c.path == "sdma"),
            pipelined=int(c.pipelined),
        )

    def _commit_rows(self, topk: Sequence[NDArray[Any]]) -> None:
        """Commit the combine buffers too: contributions lie close together, by token and choice."""
        super()._commit_rows(topk)
        for rank, choices in enumerate(topk):
            if choices.size > self._choices_committed[rank]:
                nbytes = choices.size * self.config.row_bytes
                start = self.layout.combine.at(self.die_of(rank))
                self.pod.commit(Buffer(self.die_of(rank), start, nbytes), nbytes)
                self._choices_committed[rank] = choices.size

    def _places(self, phase: Phase, ahead: int) -> Args:
        return {"event": self.next_dispatch() + ahead, "f": self.areas()}
