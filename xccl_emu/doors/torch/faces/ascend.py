"""``deep_ep`` of the Ascend port ([SglKernelNpu]): rows flat by expert, source and token, and a handle of seven."""

import os
from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.doors.torch.faces import assertions
from xccl_emu.doors.torch.faces.common import (
    Config,
    Due,
    EventOverlap,
    GroupMember,
    Numbered,
    dispatch_of,
    layout_of,
    nothing,
    refuse,
    to_numpy,
    to_torch,
    unfilled,
)

__all__ = ["Buffer", "Config", "EventOverlap"]
_MODES = {None: "", "bf16": "", "no": "", "int8": "cann"}
"""By quant_mode, the rule by which tokens are quantized; the other modes of the port are the A5's."""


class Buffer(GroupMember):
    """A rank's end of a group.  Arguments and results as upstream's; ConfigError for what is not here."""

    def __init__(
        self, group: Any, num_nvl_bytes: int = 0, num_rdma_bytes: int = 0, low_latency_mode: bool = False, *_: Any,
        **named: Any,
    ) -> None:  # fmt: skip
        for name in ("normal_strategy", "low_latency_strategy"):
            strategy = named.get(name) or "default"
            refuse(**{name: (strategy if strategy != "default" else None, "xccl_emu.doors.torch has the default one")})
        super().__init__(group)
        self._low_latency_mode = low_latency_mode

    @staticmethod
    def get_low_latency_rdma_size_hint(tokens: int, hidden: int, ranks: int, experts: int) -> int:
        """Bytes of two sets of messages; nothing is reserved by it."""
        return 2 * tokens * experts * (2 * hidden + 512)

    def low_latency_dispatch(
        self, x: torch.Tensor, topk_idx: torch.Tensor, num_max_dispatch_tokens_per_rank: int, num_experts: int,
        cumulative_local_expert_recv_stats: torch.Tensor | None = None, use_fp8: bool = True, round_scale: bool = False,
        use_ue8m0: bool = False, use_mxfp4: bool = False, async_finish: bool = False, return_recv_hook: bool = False,
        topk_weights: torch.Tensor | None = None, quant_mode: str | None = None,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Send tokens to their experts, as upstream's of this name."""
        most, local = num_max_dispatch_tokens_per_rank, num_experts // self.group_size
        call, stats = "low_latency_dispatch", cumulative_local_expert_recv_stats
        tensors = {"x": x, "topk_idx": topk_idx, "cumulative_local_expert_recv_stats": stats}
        self._gate(
            call, assertions.NPU_LOW_LATENCY_DISPATCH, tensors, low_latency_mode=self._low_latency_mode,
            num_experts=num_experts, local_experts=local, num_max_dispatch_tokens_per_rank=most,
        )  # fmt: skip
        if quant_mode is None and use_fp8:
            quant_mode = "mx_fp8_e4m3" if use_ue8m0 else "int8"
        with self._refusing(call):
            refuse(use_mxfp4=(use_mxfp4, "xccl_emu.doors.torch has no MXFP4"))
        kernel = "MoeLowLatencyDispatchV2"
        counted = {} if stats is None else {"stats": to_numpy(stats.int())}
        number, recv, scales, got = self._dispatched(kernel, x, topk_idx, quant_mode, (most, local), counted)
        rows, n = self.group_size * most * min(topk_idx.size(1), local), len(recv)
        counts = to_torch(got["counts"])
        source = torch.stack([to_torch(got[name]) for name in ("source", "token", "choice")], 1).int().flatten()
        layout, count = counts.flatten().cumsum(0).int(), counts.sum(1)
        if stats is not None:
            stats.copy_(to_torch(got["stats"]))
        whole, all_scales = unfilled((rows, x.size(1)), recv.dtype), unfilled((rows,), torch.float32)
        whole[:n] = recv
        if scales is not None:
            all_scales[:n] = scales
        brought = whole, all_scales, source, layout, count
        due = Due(self._rank, call, *brought, hooked=True) if return_recv_hook else None
        handle = source, layout, most, x.size(1), Numbered.of(num_experts, (number, n, rows)), count, None
        received = whole if scales is None else (whole, all_scales)
        return received, count, handle, EventOverlap(), due or nothing

    def low_latency_combine(
        self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor, handle: tuple[Any, ...],
        zero_copy: bool = False, async_finish: bool = False, return_recv_hook: bool = False,
        out: torch.Tensor | None = None,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Bring the experts' rows back and sum them by weights, as upstream's of this name."""
        call = "low_latency_combine"
        with self._refusing(call):
            number, n, rows = dispatch_of(handle, 4)
        tensors = {"x": x, "topk_idx": topk_idx, "topk_weights": topk_weights, "out": out}
        sizes = {"rows": rows, "hidden": handle[3], "num_max_dispatch_tokens_per_rank": handle[2]}
        self._gate(call, assertions.NPU_LOW_LATENCY_COMBINE, tensors, **sizes)
        result = self._combined("MoeLowLatencyCombineV2", x[:n], topk_idx, topk_weights, number)
        if out is not None:
            out.copy_(result)
            result = out
        due = Due(self._rank, call, result, hooked=True) if return_recv_hook else None
        return result, EventOverlap(), due or nothing

    # ---- normal mode: what scripts see of it, by the kernels of the low-latency mode

    def get_dispatch_layout(self, topk_idx: torch.Tensor, num_experts: int, *_: Any, **__: Any) -> tuple[Any, ...]:
        """Tokens by rank, by node (None), and by expert; which token goes where; an event."""
        self._gate("get_dispatch_layout", assertions.NPU_LAYOUT, {"topk_idx": topk_idx}, num_experts=num_experts)
        per_rank, per_expert, in_rank = layout_of(topk_idx, num_experts, self.group_size)
        return per_rank, None, per_expert, in_rank.int(), EventOverlap()

    def dispatch(
        self, x: Any, handle: Any = None, *_: Any, topk_idx: torch.Tensor | None = None,
        topk_weights: torch.Tensor | None = None, num_tokens_per_expert: torch.Tensor | None = None,
        quant_mode: str | None = None, dispatch_wait_recv_cost_stats: torch.Tensor | None = None,
        num_tokens_per_rank: torch.Tensor | None = None, **__: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Send tokens to their experts, a row for each expert, as upstream's of this name."""
        with self._refusing("dispatch"):
            refuse(
                handle=(handle is not None, "xccl_emu.doors.torch dispatches by topk_idx"),
                dispatch_wait_recv_cost_stats=(dispatch_wait_recv_cost_stats is not None, "a kernel has no clock"),
            )
        tensors = {
            "x": x, "num_tokens_per_rank": num_tokens_per_rank, "num_tokens_per_expert": num_tokens_per_expert,
            "topk_idx": topk_idx, "topk_weights": topk_weights,
        }  # fmt: skip
        sizes = self._gate("dispatch", assertions.NPU_DISPATCH, tensors)
        assert topk_idx is not None
        if quant_mode is None and os.getenv("DEEP_NORMAL_MODE_USE_INT8_QUANT") == "1":
            quant_mode = "int8"
        shape = int(self._agree(x.size(0))[0][0]), sizes["num_experts"] // self.group_size
        number, recv, scales, got = self._dispatched("CamMoeDispatchNormal", x, topk_idx, quant_mode, shape, {})
        counts = to_torch(got["counts"]).sum(1)
        sums = os.getenv("MOE_EXPERT_TOKEN_NUMS_TYPE", "1") == "0"
        numbers = (counts.cumsum(0) if sums else counts).tolist()
        own = (Numbered.of(number, recv.shape), *(None,) * 5, topk_idx, topk_weights)
        return (recv if scales is None else (recv, scales)), None, None, numbers, own, EventOverlap()

    def combine(
        self, x: torch.Tensor, handle: tuple[Any, ...], topk_weights: torch.Tensor | None = None, *_: Any,
        combine_send_cost_stats: torch.Tensor | None = None, **__: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Bring the experts' rows back and sum them by the weights of dispatch, as upstream's of this name."""
        with self._refusing("combine"):
            rows, hidden = dispatch_of(handle, 0)
            refuse(combine_send_cost_stats=(combine_send_cost_stats is not None, "a kernel has no clock"))
        self._gate("combine", assertions.NPU_COMBINE, {"x": x}, rows=rows, hidden=hidden)
        return self._combined("CamMoeCombineNormal", x, handle[6], handle[7], handle[0]), None, EventOverlap()

    # ---- both

    def _dispatched(
        self,
        kernel: str,
        x: torch.Tensor,
        topk_idx: torch.Tensor,
        quant_mode: str | None,
        sizes: tuple[int, int],
        counted: Mapping[str, NDArray[Any]],
    ) -> tuple[int, torch.Tensor, torch.Tensor | None, Mapping[str, NDArray[Any]]]:
        """Number of the dispatch, rows that came, their scales if they are quantized, and what else is known of them.

        sizes: most tokens of a rank, and its experts.  counted: statistics that are to go on, if there are any.
        """
        if quant_mode not in _MODES:
            with self._refusing("dispatch"):
                raise ConfigError("quant_mode", quant_mode, "xccl_emu.doors.torch has int8 and bf16")
        shape = {
            "hidden": x.size(1), "top_k": topk_idx.size(1), "tokens_max": sizes[0], "local_experts": sizes[1],
            "quantized": bool(_MODES[quant_mode]), "quantizer": "cann",
        }  # fmt: skip
        sent = {"x": to_numpy(x), "topk": to_numpy(topk_idx.int())}
        said, got = self._rank.call("dispatch", {**sent, **counted}, kernel, shape=shape)
        scales = to_torch(got["scales"]) if _MODES[quant_mode] else None
        return said["handle"], to_torch(got["x"]), scales, got

    def _combined(
        self, kernel: str, rows: torch.Tensor, topk_idx: torch.Tensor, weights: torch.Tensor, number: int
    ) -> torch.Tensor:
        sent = self._summands(rows, topk_idx, weights)
        return to_torch(self._rank.call("combine", sent, kernel, handle=int(number))[1][f"out{self.rank}"])
