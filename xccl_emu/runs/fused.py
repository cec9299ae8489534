"""Options of ``xccl-emu run fused``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xccl_emu.options import option
from xccl_emu.runs import GroupRun

if TYPE_CHECKING:
    from xccl_emu.stage import Stage


@dataclass(frozen=True)
class Fused(GroupRun):
    """One MoE layer's decode step by FusedDispatch and FusedCombine: ranks write into each other's buffers.

    Of 320 dies, 288 host one routed expert each, 32 of them replicas of the hottest, and 32 the shared one. As with
    dispatch all that is received and every output is compared bit for bit with the oracle; exit code 1 if "wrong" is
    not 0. Each optimization can be switched off on its own, and changes no bit.
    """

    name = "fused"

    ranks: int | None = option(None, "Ranks, one a die [default: 320, or what fits]", least=2, most=768)
    tokens: int = option(96, "Tokens of each rank.", least=0)
    path: str = option("aiv", "Who writes to the peers: aiv (the cores) or sdma.")
    early_quantization: bool = option(True, "Quantize before sending or when it came.", named=("--early/--late",))
    preallocated: bool = option(
        True, "A region for each source, else counts first.", named=("--preallocate/--no-preallocate",)
    )
    pipelined: bool = option(
        True, "Load and quantize a token while one is sent.", named=("--pipeline/--no-pipeline",)
    )
    double_buffered: bool = option(
        True, "Messages and contributions in buffers of their own.", named=("--double-buffer/--no-double-buffer",)
    )
    quantized: bool = option(True, "INT8 for the experts.", named=("--quantize/--no-quantize",))
    redundant: int | None = option(
        None, "Replicas of the hottest experts [default: 32 with 320 ranks, else 0]", least=0
    )

    def start(self, stage: "Stage", say: Callable[[str], None]) -> Any:
        """As `Run.start`."""
        from xccl_emu.runs.jobs.fused import FusedJob

        return FusedJob(self, stage).tell(say).run()
