"""``deep_ep`` of the Ascend port ([sgl-kernel-npu]): rows flat by expert, source and token, and a handle of seven."""

from typing import Any

import torch

from xccl_emu.errors import ConfigError
from xccl_emu.torch.faces.common import Config, EventOverlap, join, nothing, refuse, to_numpy, to_torch, unfilled

__all__ = ["Buffer", "Config", "EventOverlap"]
_MODES = {None: "", "bf16": "", "no": "", "int8": "cann"}
"""By quant_mode, the rule by which tokens are quantized; the other modes of the port are those of the A5."""


class Buffer:
    """A rank's end of a group.  Arguments and results as upstream's; ConfigError for what is not here."""

    num_sms = 20

    def __init__(self, group: Any, *_: Any, **__: Any) -> None:
        self.group, self.rank, self.group_size = group, group.rank(), group.size()
        self._rank = join(group)

    def destroy(self) -> None:
        """Leave the group."""
        self._rank.close()

    @staticmethod
    def get_low_latency_rdma_size_hint(tokens: int, hidden: int, ranks: int, experts: int) -> int:
        """Bytes of two sets of messages; nothing is reserved by it."""
        return 2 * tokens * experts * (2 * hidden + 512)

    def clean_low_latency_buffer(self, *_: int) -> None:
        """Return: the kernels clean the next set in each call."""

    def low_latency_dispatch(
        self, x: torch.Tensor, topk_idx: torch.Tensor, num_max_dispatch_tokens_per_rank: int, num_experts: int,
        cumulative_local_expert_recv_stats: torch.Tensor | None = None, use_fp8: bool = True, round_scale: bool = False,
        use_ue8m0: bool = False, use_mxfp4: bool = False, async_finish: bool = False, return_recv_hook: bool = False,
        topk_weights: torch.Tensor | None = None, quant_mode: str | None = None,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Send tokens to their experts, as upstream's of this name."""
        if quant_mode is None and use_fp8:
            quant_mode = "mx_fp8_e4m3" if use_ue8m0 else "int8"
        refuse(use_mxfp4=(use_mxfp4, "xccl_emu.torch has no MXFP4"))
        if quant_mode not in _MODES:
            raise ConfigError(f"quant_mode={quant_mode!r}: xccl_emu.torch has int8 and bf16")
        most, local, quantizer = num_max_dispatch_tokens_per_rank, num_experts // self.group_size, _MODES[quant_mode]
        shape = {
            "hidden": x.size(1), "top_k": topk_idx.size(1), "tokens_max": most, "local_experts": local,
            "quantized": bool(quantizer), "quantizer": quantizer or "cann",
        }  # fmt: skip
        sent = {"x": to_numpy(x), "topk": to_numpy(topk_idx.int())}
        said, got = self._rank.call("dispatch", sent, "MoeLowLatencyDispatchV2", shape=shape)
        rows, n = self.group_size * most * min(topk_idx.size(1), local), len(got["x"])
        recv = unfilled((rows, x.size(1)), torch.int8 if quantizer else torch.bfloat16)
        scales = unfilled((rows,), torch.float32)
        recv[:n], scales[:n] = to_torch(got["x"]), to_torch(got["scales"])
        counts = to_torch(got["counts"])
        source = torch.stack([to_torch(got[name]) for name in ("source", "token", "choice")], 1).int().flatten()
        layout, count = counts.flatten().cumsum(0).int(), counts.sum(1)
        if cumulative_local_expert_recv_stats is not None:
            cumulative_local_expert_recv_stats += count.to(cumulative_local_expert_recv_stats.dtype)
        source.xccl_emu_handle = said["handle"], n
        handle = source, layout, most, x.size(1), num_experts, count, None
        return ((recv, scales) if quantizer else recv), count, handle, EventOverlap(), nothing

    def low_latency_combine(
        self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor, handle: tuple[Any, ...],
        zero_copy: bool = False, async_finish: bool = False, return_recv_hook: bool = False,
        out: torch.Tensor | None = None,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Bring the experts' rows back and sum them by weights, as upstream's of this name."""
        number, n = handle[0].xccl_emu_handle
        weights = topk_weights.masked_fill(topk_idx == -1, 0).float()
        sent = {"y": to_numpy(x[:n].to(torch.bfloat16)), "topk": to_numpy(topk_idx.int()), "weights": to_numpy(weights)}
        _, got = self._rank.call("combine", sent, "MoeLowLatencyCombineV2", handle=number)
        return to_torch(got["out"]), EventOverlap(), nothing

