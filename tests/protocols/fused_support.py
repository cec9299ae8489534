"""What the tests of FusedDispatch and FusedCombine share: pods that just fit, and drawn configurations."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from xccl_emu.kernels.counts import INDEX_BYTES
from xccl_emu.kernels.dispatch import ROUTE_BYTES
from xccl_emu.kernels.group import align
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import MIB, small_pod
from xccl_emu.protocols.fused import FusedExpertParallel, FusedRounds
from xccl_emu.protocols.fused_layout import FusedConfig, fused_buffer_bytes, lay_out_fused

from .ep_support import Batch, Case, cases, poison, spans_of_dies

SWITCHES = (
    {"path": "sdma"},
    {"early_quantization": False},
    {"preallocated": False},
    {"pipelined": False},
)
"""Each optimization switched off on its own."""


@dataclass(frozen=True)
class FusedCase(Case):
    """As `Case`, with a group that writes to its peers."""

    config: FusedConfig

    def group_in(self, order: str, policy: str, seed: int, **options: Any) -> FusedExpertParallel:
        """A group on a new, poisoned pod."""
        pod = fused_pod(
            self.config, spare_ub=self.spare_ub, flight_granules=self.flight_granules, rounds=max(1, len(self.lengths)),
            order=order, policy=policy, seed=seed, **options,
        )  # fmt: skip
        return FusedExpertParallel(pod, self.config)

    def group(self, **options: Any) -> FusedExpertParallel:
        """The same under the case's own order, policy and seed."""
        return self.group_in(self.order, self.policy, self.seed, **options)


def fused_pod(
    c: FusedConfig, *, spare_ub: int = 0, flight_granules: int = 64, rounds: int = 1, **options: Any
) -> Pod:
    """A pod on which the group and so many rounds in one launch fit exactly; everything poisoned."""
    tokens = c.tokens_max * (2 * c.row_bytes + 2 * INDEX_BYTES)
    rows = c.rows_max * (c.payload_bytes + ROUTE_BYTES + c.row_bytes)
    app = (rounds + 1) * (tokens + rows + align(4 * c.n_slots) + 128)
    dies, ub = c.first_die + c.n_ranks, align(fused_buffer_bytes(c) + spare_ub)
    roomy = Pod(small_pod(dies, c.cores, app_bytes=MIB, meta_bytes=MIB, managed_bytes=64 * MIB, ub_bytes=ub))
    layout = lay_out_fused(c, roomy)
    spec = small_pod(
        dies, c.cores, app_bytes=app, meta_bytes=layout.meta_end, managed_bytes=layout.managed_end, ub_bytes=ub,
        flight_granules=flight_granules,
    )  # fmt: skip
    pod = Pod(spec, **options)
    poison(pod)
    return pod


def fused_rounds_of(group: FusedExpertParallel, batches: list[Batch]) -> FusedRounds:
    """The batches as rounds of one launch."""
    return FusedRounds(group, [b.tokens for b in batches], [b.topk for b in batches], [b.weights for b in batches])


@st.composite
def fused_cases(draw: st.DrawFn, ranks: st.SearchStrategy[int], rounds: st.SearchStrategy[int]) -> FusedCase:
    """A group of any kind with some of the optimizations, how it runs, and batches of uneven sizes for its rounds."""
    case = draw(cases(ranks, rounds))
    own = {name: value for name, value in vars(case.config).items() if name not in ("path", "quantized_back")}
    config = FusedConfig(
        **own,
        path=draw(st.sampled_from(["aiv", "aiv", "sdma"])),
        early_quantization=draw(st.booleans()),
        preallocated=draw(st.booleans()),
        pipelined=draw(st.booleans()),
    )
    return FusedCase(**{**vars(case), "config": config})


class FusedTouched:
    """The bytes of a pod that rounds may write: buffers down to the row, regions down to the message."""

    def __init__(self, group: FusedExpertParallel) -> None:
        self.group, self.pod, self.config = group, group.pod, group.config
        self.before = spans_of_dies(self.pod).copy()
        self.may = np.zeros_like(self.before, dtype=bool)

    def add(self, batch: Batch) -> None:
        """Allow what a round with this batch writes."""
        c, layout, spec = self.config, self.group.layout, self.pod.spec
        messages = np.stack([np.bincount(t[t >= 0] // c.local_experts, minlength=c.n_ranks) for t in batch.topk])
        for rank in range(c.n_ranks):
            die = self.may[c.first_die + rank]
            self._app(rank, len(batch.tokens[rank]), int(messages[:, rank].sum()))
            die[spec.meta_start + layout.meta_start : spec.meta_start + layout.meta_end] = True
            managed = die[spec.managed_start :]
            managed[layout.staging : layout.managed_end] = True
            regions = messages[:, rank] if c.preallocated else [int(messages[:, rank].sum())]
            for source, n in enumerate(regions):
                start = layout.dispatch + source * c.max_tokens * c.message_bytes
                managed[start : start + n * c.message_bytes] = True
            for choice in np.flatnonzero(batch.topk[rank].reshape(-1) >= 0):
                start = layout.combine + choice * c.row_bytes
                managed[start : start + c.row_bytes] = True

    def _app(self, rank: int, tokens: int, rows: int) -> None:
        c, b = self.config, self.group._ranks[rank]
        states, table = tokens * c.row_bytes, tokens * INDEX_BYTES
        sizes = {
            "batches": 8, "x": states, "topk": table, "weights": table, "recv_x": rows * c.payload_bytes,
            "route": rows * ROUTE_BYTES, "counts": 4 * c.n_slots, "y": rows * c.row_bytes, "out": states,
        }  # fmt: skip
        for name, size in sizes.items():
            start = getattr(b, name).address
            self.may.reshape(-1)[start : start + size] = True

    def check(self) -> None:
        """Everything else is as it was."""
        changed = np.argwhere((spans_of_dies(self.pod) != self.before) & ~self.may)
        assert len(changed) == 0, f"die and offset of bytes that changed: {changed[:5].tolist()}"
