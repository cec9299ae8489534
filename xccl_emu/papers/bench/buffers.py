"""Sizes that must come out exactly: messages and buffers of the fused operators, metadata of send and receive."""

from collections.abc import Iterable

from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import CLOUDMATRIX384, MIB
from xccl_emu.papers.bench import published
from xccl_emu.papers.bench.result import Configuration, Result
from xccl_emu.papers.bench.setting import DEFAULT, Setting
from xccl_emu.protocols.fused.session import FusedConfig, FusedLayout
from xccl_emu.protocols.sendrecv.rings import RingLayout

RANKS, TOKENS = 320, 96


def buffers(setting: Setting = DEFAULT) -> list[Result]:
    """Sizes as the protocols lay them out on the whole pod."""
    spec = CLOUDMATRIX384
    config = FusedConfig(n_ranks=RANKS, local_experts=1, hidden=7168, top_k=9, tokens_max=TOKENS, shared=True)
    layout = FusedLayout(config, Pod(spec))
    fused = [config.message_bytes, config.row_bytes, layout.dispatch.size / MIB, layout.combine.size / MIB]
    ring = RingLayout.fit(spec, 4, None, spec.cores_per_die, 0, 0)
    fields = [spec.meta_bytes, (ring.meta_end - ring.field_offset) // 32]
    shape = {"ranks": RANKS, "tokens": TOKENS, "hidden": 7168}
    return [
        *_beside("buffers", fused, shape),
        *_beside("metadata", fields, {"dies": spec.n_dies, "cores": spec.cores_per_die}),
    ]


def _beside(measurement: str, sizes: Iterable[float], shape: Configuration) -> list[Result]:
    rows = published.rows(measurement)
    return [Result.of(row, size, bench="buffers", configuration=shape) for row, size in zip(rows, sizes, strict=True)]
