"""What the tests of FusedDispatch and FusedCombine share: pods that just fit, and drawn configurations."""

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from xccl_emu.kernels.dispatch import INDEX_BYTES, ROUTE_BYTES
from xccl_emu.kernels.group import align
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import MIB, small_pod
from xccl_emu.protocols.fused import FusedExpertParallel, FusedRounds
from xccl_emu.protocols.fused_layout import FusedConfig, fused_buffer_bytes, lay_out_fused

from .ep_support import Batch, Case, cases, poison

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
            self.config, spare_ub=self.spare_ub, flight_pieces=self.flight_pieces, rounds=max(1, len(self.lengths)),
            order=order, policy=policy, seed=seed, **options,
        )  # fmt: skip
        return FusedExpertParallel(pod, self.config)

    def group(self, **options: Any) -> FusedExpertParallel:
        """The same under the case's own order, policy and seed."""
        return self.group_in(self.order, self.policy, self.seed, **options)


def fused_pod(
    c: FusedConfig, *, spare_ub: int = 0, flight_pieces: int = 64, rounds: int = 1, **options: Any
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
        flight_pieces=flight_pieces,
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
    own = {name: value for name, value in vars(case.config).items() if name != "path"}
    config = FusedConfig(
        **own,
        path=draw(st.sampled_from(["aiv", "aiv", "sdma"])),
        early_quantization=draw(st.booleans()),
        preallocated=draw(st.booleans()),
        pipelined=draw(st.booleans()),
    )
    return FusedCase(**{**vars(case), "config": config})
