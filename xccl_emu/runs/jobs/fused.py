"""One MoE layer's decode step by FusedDispatch and FusedCombine on the pod, held against the oracle bit for bit."""

from dataclasses import replace
from typing import Any

from xccl_emu import oracle
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import KIB
from xccl_emu.protocols.fused import FusedExpertParallel
from xccl_emu.protocols.fused_layout import FusedConfig
from xccl_emu.protocols.layout import ROUTE
from xccl_emu.runs.fused import Fused
from xccl_emu.runs.jobs.layer import INTERPRETER_BYTES
from xccl_emu.runs.jobs.moe import MoeJob, at_once
from xccl_emu.stage import Stage

DEFAULT_RANKS = 320
REPLICAS = 32
"""Of the hottest experts, in the default deployment: 288 dies serve routed experts and 32 the shared one."""

_PAGE = 4096


def fused_bytes_needed(ranks: int, options: Fused, choices: int) -> int:
    """Memory that a job of so many ranks touches, estimated: tokens, messages (in whole pages), rows, data buffers."""
    o, rows = options, ranks * at_once(options) * choices
    row, payload = 2 * o.hidden, o.hidden * (1 if o.quantized else 2)
    wire = o.hidden if o.quantized and o.early_quantization else row
    message = wire + oracle.SLOT_BYTES + (min(_PAGE, wire) if o.preallocated else 0)
    per_row = payload + ROUTE.itemsize + row + message + row
    return ranks * o.tokens * 3 * row + rows * per_row + ranks * o.cores * 192 * KIB + INTERPRETER_BYTES


class FusedJob(MoeJob):
    """Routing, tokens, rounds of FusedDispatch, dummy expert and FusedCombine, and the comparison of each round."""

    options: Fused
    usual_ranks = DEFAULT_RANKS

    def __init__(self, options: Fused, stage: Stage) -> None:
        super().__init__(options, stage)
        if options.redundant is None:
            self.options = replace(self.options, redundant=REPLICAS if self.ranks == DEFAULT_RANKS else 0)
            self.result.options["redundant"] = self.options.redundant

    def _need(self, ranks: int) -> int:
        return fused_bytes_needed(ranks, self.options, self._choices.top_k + 1)

    def _group(self, pod: Pod, **shape: Any) -> FusedExpertParallel:
        o = self.options
        config = FusedConfig(
            **shape, early_quantization=o.early_quantization, preallocated=o.preallocated, pipelined=o.pipelined,
            double_buffered=o.double_buffered,
        )  # fmt: skip
        return FusedExpertParallel(pod, config)
