"""``mooncake``, the Buffer of Mooncake EP: DeepEP's low-latency mode, under other names and with other arguments."""

from typing import Any

import torch

from xccl_emu.doors.torch.faces import deepep
from xccl_emu.doors.torch.faces.common import EventOverlap, join, refuse

__all__ = ["Buffer", "EventOverlap", "get_active_ranks"]


class Buffer(deepep.Buffer):
    """A rank's end of a group.  Arguments and results as upstream's; ConfigError for what is not here."""

    _use_fallback = False

    def __init__(self, group: Any, num_ep_buffer_bytes: int = 0, disable_p2p: bool = False) -> None:
        super().__init__(group, 0, num_ep_buffer_bytes, low_latency_mode=True)

    get_ep_buffer_size_hint = staticmethod(deepep.Buffer.get_low_latency_rdma_size_hint)

    def update_ep_member(self) -> None:
        """Join the group again, with ranks whose Buffer is a new one; collective."""
        self.destroy()
        self._rank = join(self.group)

    def dispatch(  # type: ignore[override]
        self, x: torch.Tensor, topk_idx: torch.Tensor, active_ranks: torch.Tensor | None,
        num_max_dispatch_tokens_per_rank: int, num_experts: int, timeout_us: int, use_fp8: bool | None = None,
        async_finish: bool = False, return_recv_hook: bool = False,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Send tokens to their experts; a rank that does not call ends the call, whatever the time limit."""
        self._check_active("dispatch", active_ranks)
        return self.low_latency_dispatch(
            x, topk_idx, num_max_dispatch_tokens_per_rank, num_experts, use_fp8=use_fp8 is not False,
            async_finish=async_finish, return_recv_hook=return_recv_hook,
        )  # fmt: skip

    def get_next_combine_buffer(self, handle: tuple[Any, ...]) -> torch.Tensor:
        """[local experts, rows, hidden] what `combine` sends with ``zero_copy``."""
        return self.get_next_low_latency_combine_buffer(handle)

    def combine(  # type: ignore[override]
        self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor, active_ranks: torch.Tensor | None,
        timeout_us: int, handle: tuple[Any, ...], zero_copy: bool = False, async_finish: bool = False,
        return_recv_hook: bool = False, out: torch.Tensor | None = None,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Bring the experts' rows back and sum them by weights."""
        self._check_active("combine", active_ranks)
        return self.low_latency_combine(
            x, topk_idx, topk_weights, handle, zero_copy=zero_copy, async_finish=async_finish,
            return_recv_hook=return_recv_hook, out=out,
        )  # fmt: skip

    def _check_active(self, call: str, active_ranks: torch.Tensor | None) -> None:
        """Raises ConfigError, in all ranks, for a rank that is left out; upstream takes another length for all ones."""
        if active_ranks is not None and active_ranks.numel() == self.group_size:
            with self._refusing(call):
                refuse(active_ranks=(not bool(active_ranks.all()), "must be 1 for each rank: no call leaves one out"))


def get_active_ranks(group: Any) -> torch.Tensor:
    """[ranks] int32, 1 for each: a rank that ends is named in an error of the others' next call."""
    return torch.ones(group.size(), dtype=torch.int32)
