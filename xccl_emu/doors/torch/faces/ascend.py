"""``deep_ep`` of the Ascend port ([SglKernelNpu]): rows flat by expert, source and token, and a handle of seven."""

import os
from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.doors.torch.faces.common import (
    Config,
    EventOverlap,
    GroupMember,
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

    def __init__(self, group: Any, *_: Any, **named: Any) -> None:
        for name in ("normal_strategy", "low_latency_strategy"):
            strategy = named.get(name) or "default"
            refuse(**{name: (strategy if strategy != "default" else None, "xccl_emu.doors.torch has the default one")})
        super().__init__(group)

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
        if quant_mode is None and use_fp8:
            quant_mode = "mx_fp8_e4m3" if use_ue8m0 else "int8"
        refuse(use_mxfp4=(use_mxfp4, "xccl_emu.doors.torch has no MXFP4"))
        most, local = num_max_dispatch_tokens_per_rank, num_experts // self.group_size
        kernel = "MoeLowLatencyDispatchV2"
        stats = cumulative_local_expert_recv_stats
        counted = {} if stats is None else {"stats": to_numpy(stats.int())}
        number, recv, scales, got = self._dispatched(kernel, x, topk_idx, quant_mode, (most, local), counted)
        rows, n = self.group_size * most * min(topk_idx.size(1), local), len(recv)
        counts = to_torch(got["counts"])
        source = torch.stack([to_torch(got[name]) for name in ("source", "token", "choice")], 1).int().flatten()
        layout, count = counts.flatten().cumsum(0).int(), counts.sum(1)
        if stats is not None:
            stats.copy_(to_torch(got["stats"]))
        source.xccl_emu_handle = number, n
        handle = source, layout, most, x.size(1), num_experts, count, None
        whole = unfilled((rows, x.size(1)), recv.dtype)
        whole[:n] = recv
        if scales is None:
            return whole, count, handle, EventOverlap(), nothing
        all_scales = unfilled((rows,), torch.float32)
        all_scales[:n] = scales
        return (whole, all_scales), count, handle, EventOverlap(), nothing

    def low_latency_combine(
        self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor, handle: tuple[Any, ...],
        zero_copy: bool = False, async_finish: bool = False, return_recv_hook: bool = False,
        out: torch.Tensor | None = None,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Bring the experts' rows back and sum them by weights, as upstream's of this name."""
        number, n = handle[0].xccl_emu_handle
        result = self._combined("MoeLowLatencyCombineV2", x[:n], topk_idx, topk_weights, number)
        if out is not None:
            out[: len(result)] = result
            result = out[: len(result)]
        return result, EventOverlap(), nothing

    # ---- normal mode: what scripts see of it, by the kernels of the low-latency mode

    def get_dispatch_layout(self, topk_idx: torch.Tensor, num_experts: int, *_: Any, **__: Any) -> tuple[Any, ...]:
        """Tokens by rank, by node (None), and by expert; which token goes where; an event."""
        per_rank, per_expert, in_rank = layout_of(topk_idx, num_experts, self.group_size)
        return per_rank, None, per_expert, in_rank.int(), EventOverlap()

    def dispatch(
        self, x: Any, handle: Any = None, *_: Any, topk_idx: torch.Tensor | None = None,
        topk_weights: torch.Tensor | None = None, num_tokens_per_expert: torch.Tensor | None = None,
        quant_mode: str | None = None, dispatch_wait_recv_cost_stats: torch.Tensor | None = None, **__: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Send tokens to their experts, a row for each expert, as upstream's of this name."""
        refuse(
            handle=(handle is not None, "xccl_emu.doors.torch dispatches by topk_idx"),
            x=(not isinstance(x, torch.Tensor), "must be a tensor; xccl_emu.doors.torch quantizes by quant_mode"),
            dispatch_wait_recv_cost_stats=(dispatch_wait_recv_cost_stats is not None, "a kernel has no clock"),
            topk_idx=(topk_idx is None or num_tokens_per_expert is None, "must be there, and num_tokens_per_expert"),
        )
        assert topk_idx is not None
        assert num_tokens_per_expert is not None
        if quant_mode is None and os.getenv("DEEP_NORMAL_MODE_USE_INT8_QUANT") == "1":
            quant_mode = "int8"
        shape = self._most(x.size(0)), num_tokens_per_expert.numel() // self.group_size
        number, recv, scales, got = self._dispatched("CamMoeDispatchNormal", x, topk_idx, quant_mode, shape, {})
        counts = to_torch(got["counts"]).sum(1)
        sums = os.getenv("MOE_EXPERT_TOKEN_NUMS_TYPE", "1") == "0"
        numbers = (counts.cumsum(0) if sums else counts).tolist()
        own = (number, *(None,) * 5, topk_idx, topk_weights)
        return (recv if scales is None else (recv, scales)), None, None, numbers, own, EventOverlap()

    def combine(
        self, x: torch.Tensor, handle: tuple[Any, ...], topk_weights: torch.Tensor | None = None, *_: Any,
        combine_send_cost_stats: torch.Tensor | None = None, **__: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Bring the experts' rows back and sum them by the weights of dispatch, as upstream's of this name."""
        refuse(combine_send_cost_stats=(combine_send_cost_stats is not None, "a kernel has no clock"))
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
        sent = self._summands(rows.to(torch.bfloat16), topk_idx, weights)
        return to_torch(self._rank.call("combine", sent, kernel, handle=number)[1][f"out{self.rank}"])
