"""Options of ``xccl-emu run dispatch``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xccl_emu.options import option
from xccl_emu.runs import GroupRun

if TYPE_CHECKING:
    from xccl_emu.stage import Stage


@dataclass(frozen=True)
class Dispatch(GroupRun):
    """One MoE layer's decode step: dispatch, a dummy expert, combine.

    Of 288 dies, 256 host one routed expert each and 32 the shared one (a token's rank mod 32), so a token has nine
    messages. Every received row with its scale and route, all counts, and every output is compared bit for bit with an
    independent NumPy oracle: "wrong" counts what differs, and the exit code is 1 if it is not 0. Without --routing,
    choices are drawn from Zipf-like loads whose hottest expert carries about 6.6 times the mean.

    --ranks 320 --redundant 32: 256 experts and 32 replicas of the hottest on 288 dies, the shared one on 32.
    --redundant 288 --redundant-slots 1: 288 dies with an expert and a replica each.
    """

    name = "dispatch"

    ranks: int | None = option(None, "Ranks, one a die [default: 288, or what fits]", least=2, most=768)
    path: str = option("mtu", "How data is pulled: mtu or dma.")
    quantized: bool = option(True, "INT8 on the wire in dispatch.", named=("--quantize/--no-quantize",))
    quantized_back: bool = option(
        False, "INT8 on the wire in combine.", named=("--quantize-back/--no-quantize-back",)
    )  # fmt: skip

    def start(self, stage: "Stage", say: Callable[[str], None]) -> Any:
        """As `Run.start`."""
        from xccl_emu.runs.jobs.moe import MoeJob

        return MoeJob(self, stage).tell(say).run()
