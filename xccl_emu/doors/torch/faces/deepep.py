"""``deep_ep``, the legacy Buffer of [DeepEP]: low-latency and normal mode."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.doors.torch.faces import assertions
from xccl_emu.doors.torch.faces.common import (
    Config,
    Due,
    EventHandle,
    EventOverlap,
    GroupMember,
    Numbered,
    dispatch_of,
    from_rows,
    layout_of,
    nothing,
    poison,
    refuse,
    to_numpy,
    to_rows,
    to_torch,
    unfilled,
)
from xccl_emu.doors.torch.faces.elastic import ElasticBuffer
from xccl_emu.doors.torch.faces.experts import EPHandle
from xccl_emu.protocols.deepep.session import size_hint

__all__ = ["Buffer", "Config", "EPHandle", "ElasticBuffer", "EventHandle", "EventOverlap", "topk_idx_t"]
topk_idx_t = torch.int64
_BLOCK = 128
"""Elements with one scale."""
_Arrays = Mapping[str, NDArray[Any]]


class _Route(NamedTuple):
    """Where the tokens of a rank go in normal mode."""

    topk: NDArray[np.int32]
    weights: NDArray[np.float32]
    most: int
    """Tokens of the largest batch."""
    local: int
    """Experts of a rank."""
    numbers: list[int] | None
    """Tokens of each own expert, where choices do not say it."""
    hidden: int = 0


class _Rows(NamedTuple):
    """What a dispatch in normal mode brought to a rank."""

    route: _Route
    number: int
    """The handle's."""
    n: int
    padded: int
    """Rows that the caller was given: `n`, and what ``num_worst_tokens`` adds."""


class _Received(NamedTuple):
    """What is done with what a call brought: statistics of waits go on, if there are any; nanoseconds here."""

    waited: torch.Tensor | None
    then: Callable[[_Arrays], None]

    @property
    def asks(self) -> dict[str, bool]:
        """Return the arguments of a call."""
        return {} if self.waited is None else {"waits": True}

    def __call__(self, got: _Arrays) -> None:
        self.then(got)
        if self.waited is not None:
            self.waited.add_(to_torch(got["waits"]))


class Buffer(GroupMember):
    """A rank's end of a group.  Arguments and results as upstream's; ConfigError for what is not here."""

    def __init__(
        self, group: Any, num_nvl_bytes: int = 0, num_rdma_bytes: int = 0, low_latency_mode: bool = False, *_: Any,
        enable_shrink: bool = False, comm: Any = None, **__: Any,
    ) -> None:  # fmt: skip
        refuse(comm=(comm, "a group must be a process group of PyTorch"))
        if num_rdma_bytes and not low_latency_mode:
            must = "must be 0 without low_latency_mode: it is for other nodes, which xccl_emu.doors.torch has not"
            raise ConfigError("num_rdma_bytes", num_rdma_bytes, must)
        super().__init__(group, enable_shrink)
        self._mode = {"low_latency_mode": low_latency_mode, "num_rdma_bytes": num_rdma_bytes}
        self._zero_copy: dict[tuple[int, ...], torch.Tensor] = {}
        self._masked: set[int] | None = set() if enable_shrink else None
        """Ranks without which calls are made; None where there are no masks."""

    @staticmethod
    def get_low_latency_rdma_size_hint(tokens: int, hidden: int, ranks: int, experts: int) -> int:
        """Bytes that upstream asks for; nothing is reserved by it."""
        return size_hint(tokens, hidden, experts)

    @staticmethod
    def capture() -> EventOverlap:
        """An event."""
        return EventOverlap(EventHandle())

    def get_dispatch_layout(self, topk_idx: torch.Tensor, num_experts: int, *_: Any, **__: Any) -> tuple[Any, ...]:
        """Tokens by rank, by node (None), and by expert; which token goes where; an event."""
        self._gate("get_dispatch_layout", assertions.LAYOUT, {"topk_idx": topk_idx}, num_experts=num_experts)
        per_rank, per_expert, in_rank = layout_of(topk_idx, num_experts, self.group_size)
        return per_rank, None, per_expert, in_rank, EventOverlap()

    def low_latency_dispatch(
        self, x: torch.Tensor, topk_idx: torch.Tensor, num_max_dispatch_tokens_per_rank: int, num_experts: int,
        cumulative_local_expert_recv_stats: torch.Tensor | None = None,
        dispatch_wait_recv_cost_stats: torch.Tensor | None = None, use_fp8: bool = True, round_scale: bool = False,
        use_ue8m0: bool = False, async_finish: bool = False, return_recv_hook: bool = False,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Send tokens to their experts, as upstream's of this name."""
        most, stats = num_max_dispatch_tokens_per_rank, cumulative_local_expert_recv_stats
        tensors = {
            "x": x, "topk_idx": topk_idx, "cumulative_local_expert_recv_stats": stats,
            "dispatch_wait_recv_cost_stats": dispatch_wait_recv_cost_stats,
        }  # fmt: skip
        sizes = self._gate(
            "low_latency_dispatch", assertions.LOW_LATENCY_DISPATCH, tensors, **self._low_latency(most, num_experts),
            async_finish=async_finish, return_recv_hook=return_recv_hook, use_fp8=use_fp8, use_ue8m0=use_ue8m0,
            round_scale=round_scale, most_of_an_expert=_most_of_an_expert(topk_idx),
        )  # fmt: skip
        local, hidden = sizes["local_experts"], sizes["hidden"]
        shape = {
            "hidden": hidden, "top_k": topk_idx.size(1), "tokens_max": most, "local_experts": local,
            "quantized": use_fp8, "quantizer": "fp8-ue8m0" if use_fp8 and round_scale else "fp8", "repeats": True,
        }  # fmt: skip
        rows = self.group_size * most
        recv = unfilled((local, rows, hidden), torch.float8_e4m3fn if use_fp8 else torch.bfloat16)
        width, dtype = (hidden // 512, torch.int32) if use_ue8m0 else (hidden // _BLOCK, torch.float32)
        scales = unfilled((local, width, rows), dtype).transpose(1, 2)
        count, source = unfilled((local,), torch.int32), unfilled((local, rows), torch.int32)
        layout = unfilled((local, self.group_size), torch.int64)

        def received(got: _Arrays) -> None:
            """Put rows into the block of their expert, one after another by source."""
            counts = got["counts"].astype(np.int64)
            count.copy_(to_torch(counts.sum(1)))
            layout.copy_(to_torch((counts.cumsum(1) - counts << 32) | counts))
            first = 0
            for expert, n in enumerate(counts.sum(1).tolist()):
                mine = slice(first, first + n)
                recv[expert, :n] = to_torch(got["x"][mine])
                source[expert, :n] = to_torch(got["token"][mine])
                if use_fp8:
                    packed = _packed(got["scales"][mine]) if use_ue8m0 else got["scales"][mine]
                    scales[expert, :n] = to_torch(packed)
                first += n
            if stats is not None:
                stats.add_(to_torch(got["stats"]))

        sent, counted = {"x": to_numpy(x), "topk": to_numpy(topk_idx.int())}, {}
        if stats is not None:  # it may be given to several calls at once, and each adds to it
            counted["stats"] = np.zeros(local, np.int32)
        bring = _Received(dispatch_wait_recv_cost_stats, received)
        number, event, hook = self._phases(
            "dispatch", (sent, counted), bring, hooked=return_recv_hook, awaited=async_finish, shape=shape
        )
        handle = source, layout, most, hidden, Numbered.of(num_experts, (number, count))
        return ((recv, scales) if use_fp8 else recv), count, handle, event, hook

    def _low_latency(self, most: int, experts: int) -> dict[str, Any]:
        """Return sizes of a call in low-latency mode, for its assertions."""
        sizes = {"num_experts": experts, "num_max_dispatch_tokens_per_rank": most, "size_hint": size_hint, **self._mode}
        return {**sizes, "local_experts": experts // self.group_size, "rows": self.group_size * most}

    def get_next_low_latency_combine_buffer(self, handle: tuple[Any, ...]) -> torch.Tensor:
        """[local experts, rows, hidden] what `low_latency_combine` sends with ``zero_copy``."""
        _, _, most, hidden, experts = handle
        shape = experts // self.group_size, self.group_size * most, hidden
        if shape not in self._zero_copy:
            self._zero_copy[shape] = unfilled(shape, torch.bfloat16)
        return self._zero_copy[shape]

    def low_latency_combine(
        self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor, handle: tuple[Any, ...],
        use_logfmt: bool = False, zero_copy: bool = False, async_finish: bool = False, return_recv_hook: bool = False,
        out: torch.Tensor | None = None, combine_wait_recv_cost_stats: torch.Tensor | None = None,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Bring the experts' rows back and sum them by weights, as upstream's of this name."""
        refuse(use_logfmt=(use_logfmt, "xccl_emu.doors.torch has no LogFMT; combine is in BF16"))
        call = "low_latency_combine"
        with self._refusing(call):
            number, count = dispatch_of(handle, 4)
        source, layout, most, hidden, experts = handle
        x = self.get_next_low_latency_combine_buffer(handle) if zero_copy else x
        tensors = {
            "x": x, "topk_idx": topk_idx, "topk_weights": topk_weights, "src_info": source, "layout_range": layout,
            "out": out, "combine_wait_recv_cost_stats": combine_wait_recv_cost_stats,
        }  # fmt: skip
        self._gate(
            call, assertions.LOW_LATENCY_COMBINE, tensors, **self._low_latency(most, int(experts)), hidden=hidden,
            async_finish=async_finish, return_recv_hook=return_recv_hook,
        )  # fmt: skip
        with self._refusing(call):
            if int(count.min()) < 0:
                raise ConfigError(f"{call}: handle: its dispatch is not received: call its hook, or wait for its event")
        result = unfilled((topk_idx.size(0), hidden), torch.bfloat16) if out is None else out
        rows = torch.cat([x[expert, :n] for expert, n in enumerate(count.tolist())])
        sent = self._summands(rows, topk_idx, topk_weights)
        for each in [result, *([x] if zero_copy else [])]:  # what was sent is the next call's to fill
            poison(each)

        def received(got: _Arrays) -> None:
            result[:] = to_torch(got[f"out{self.rank}"])

        bring = _Received(combine_wait_recv_cost_stats, received)
        return result, *self._phases(
            "combine", (sent, {}), bring, hooked=return_recv_hook, awaited=async_finish, handle=number
        )[1:]

    def _phases(
        self, call: str, sent: tuple[_Arrays, _Arrays], received: _Received, *, hooked: bool, awaited: bool, **said: Any
    ) -> tuple[int, EventOverlap, Callable[[], None]]:
        """Make a call, or send now and receive in the hook; returns the number of its handle, its event, and the hook.

        sent: what the send phase is given, and what the receive phase is.  awaited: what comes is kept for the event.
        """
        kernel = f"deep_ep::internode_ll::{call}"
        if hooked:
            number = self._call(f"{call}_send", sent[0], kernel, **said)[0]["handle"]
            said = {"handle": number, **received.asks}
            return number, EventOverlap(), lambda: received(self._call(f"{call}_recv", sent[1], kernel, **said)[1])
        answer, got = self._call(call, {**sent[0], **sent[1]}, kernel, **said, **received.asks)
        if not awaited:
            received(got)
            return answer["handle"], EventOverlap(), nothing
        kept = {name: array.copy() for name, array in got.items()}
        event = Due(self._rank, f"low_latency_{call}", then=lambda: received(kept))
        return answer["handle"], EventOverlap(event), nothing

    def _call(self, call: str, arrays: _Arrays, kernel: str = "", **said: Any) -> tuple[Mapping[str, Any], _Arrays]:
        """Make a call without the masked ranks, and mask those that have left."""
        if self._masked is None:
            return self._rank.call(call, arrays, kernel, **said)
        answer, got = self._rank.call(call, arrays, kernel, masked=sorted(self._masked), **said)
        self._masked.update(answer["lost"])
        return answer, got

    # ---- ranks that are left out

    def clean_low_latency_buffer(self, *_: int) -> None:
        """Wait for all ranks that are not masked, if there are masks; the kernels clean the next set in each call."""
        if self._masked is not None:
            self._call("clean", {})

    def low_latency_update_mask_buffer(self, rank_to_mask: int, mask: bool = False) -> None:
        """Leave a rank out from now on, or no more; all others must do the same before they make a call."""
        masked = self._masks()
        if not 0 <= rank_to_mask < self.group_size:
            raise ConfigError("rank_to_mask", rank_to_mask, f"must be from 0 to {self.group_size - 1}")
        (masked.add if mask else masked.discard)(rank_to_mask)

    def low_latency_query_mask_buffer(self, mask_status: torch.Tensor) -> None:
        """Put 1 for each rank that is left out, and 0 for the others, into [ranks] int32."""
        masked = self._masks()
        mask_status.copy_(torch.tensor([rank in masked for rank in range(self.group_size)]))

    def low_latency_clean_mask_buffer(self) -> None:
        """Leave nobody out any more; the next call masks ranks that have left again."""
        self._masks().clear()

    def _masks(self) -> set[int]:
        if self._masked is None:
            raise ConfigError("enable_shrink", False, "must be True for low_latency_*_mask_buffer")
        return self._masked

    # ---- normal mode

    @staticmethod
    def is_sm90_compiled() -> bool:
        """Say that e4m3 is there."""
        return True

    def dispatch(
        self, x: Any, handle: tuple[Any, ...] | None = None, num_tokens_per_rank: Any = None,
        num_tokens_per_rdma_rank: Any = None, is_token_in_rank: torch.Tensor | None = None,
        num_tokens_per_expert: torch.Tensor | None = None, topk_idx: torch.Tensor | None = None,
        topk_weights: torch.Tensor | None = None, expert_alignment: int = 1, num_worst_tokens: int = 0,
        config: Any = None, previous_event: Any = None, async_finish: bool = False, **_: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Send each token once to each rank that it has experts on, as upstream's of this name."""
        parts = x if isinstance(x, tuple) else (x,)
        tensors = {
            "is_token_in_rank": is_token_in_rank, "num_tokens_per_rank": num_tokens_per_rank,
            "num_tokens_per_expert": num_tokens_per_expert, "topk_idx": topk_idx, "topk_weights": topk_weights,
        }  # fmt: skip
        self._gate(
            "dispatch", assertions.DISPATCH, {"x": parts[0], "x_scales": [*parts, None][1], **tensors},
            **{f"has_{name}": each is not None for name, each in tensors.items()}, has_scales=len(parts) > 1,
            cached=handle is not None, element_size=getattr(parts[0], "itemsize", 0),
        )  # fmt: skip
        if handle is not None:
            with self._refusing("dispatch"):
                route = dispatch_of(handle, 5).route
        else:
            route = self._route(topk_idx, topk_weights, is_token_in_rank, num_tokens_per_expert)
            route = route._replace(hidden=parts[0].size(1))
        sent = {"x": to_rows(*parts), "topk": route.topk, "weights": route.weights}
        shape = {
            "hidden": parts[0].size(1), "top_k": route.topk.shape[1], "tokens_max": route.most,
            "local_experts": route.local, "opaque_bytes": sent["x"].shape[1],
        }  # fmt: skip
        said, got = self._rank.call("dispatch_rows", sent, "deep_ep::intranode::dispatch", shape=shape)
        more = max(0, num_worst_tokens - len(got["x"]))
        recv = [_padded(each, more) for each in from_rows(got["x"], *parts)]
        experts = _padded(to_torch(got["experts"]).to(topk_idx_t), more, -1)
        result = tuple(recv) if isinstance(x, tuple) else recv[0]
        if handle is not None:
            event = Due(self._rank, "dispatch", *recv) if async_finish else None
            return result, None, None, None, None, EventOverlap(event)
        numbers = route.numbers or [int((experts == expert).sum()) for expert in range(route.local)]
        aligned = [] if num_worst_tokens else [-(-m // expert_alignment) * expert_alignment for m in numbers]
        counts = to_torch(got["counts"])
        prefix = torch.full((self.group_size, self.group_size), -1, dtype=torch.int32)
        prefix[:, self.rank] = counts.sum(1).cumsum(0).int()
        made = Numbered.of(0, _Rows(route, said["handle"], len(got["x"]), len(recv[0])))
        handle = prefix, None, counts.cumsum(1).int(), to_torch(got["token"]), is_token_in_rank, made
        topk = (None, None) if topk_idx is None else (experts, _padded(to_torch(got["weights"]), more))
        event = Due(self._rank, "dispatch", *recv, *topk, prefix, *handle[2:4]) if async_finish else None
        return result, *topk, aligned, handle, EventOverlap(event)

    def combine(
        self, x: torch.Tensor, handle: tuple[Any, ...], topk_weights: torch.Tensor | None = None, bias: Any = None,
        config: Any = None, previous_event: Any = None, async_finish: bool = False, **_: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Add up what ranks return for each token, as upstream's of this name."""
        with self._refusing("combine"):
            made: _Rows = dispatch_of(handle, 5)
        biases, (tokens, k) = self._biases(bias), made.route.topk.shape
        self._gate(
            "combine", assertions.COMBINE, {"x": x, "topk_weights": topk_weights, **biases}, rows=made.padded,
            hidden=made.route.hidden, top_k=k, tokens=tokens,
        )  # fmt: skip
        sent = self._added(made.n, x, topk_weights, biases)
        _, got = self._rank.call("combine_rows", sent, "deep_ep::intranode::combine", handle=made.number)
        out, sums = to_torch(got["out"]), None if topk_weights is None else to_torch(got["weights"])
        return out, sums, EventOverlap(Due(self._rank, "combine", out, sums) if async_finish else None)

    def _route(
        self, topk_idx: torch.Tensor | None, weights: torch.Tensor | None, in_rank: Any, per_expert: Any
    ) -> "_Route":
        """Return where tokens go; collective, since all must know the largest batch."""
        local, numbers = per_expert.numel() // self.group_size, None
        most, everywhere = self._agree(len(in_rank), *per_expert.tolist())
        if topk_idx is None:  # a choice for each rank, of its first expert
            experts = torch.arange(self.group_size) * local
            topk_idx = torch.where(in_rank, experts, -1)
            numbers = everywhere[1:].reshape(self.group_size, -1)[self.rank].tolist()
        topk = to_numpy(topk_idx.int())
        given = np.zeros(topk.shape, np.float32) if weights is None else to_numpy(weights.float())
        return _Route(topk, given, int(most[0]), local, numbers)

    def internode_dispatch(self, *_: Any, **__: Any) -> None:
        """Refused: all ranks of a pod are in reach of each other."""
        raise ConfigError("internode_dispatch, internode_combine: xccl_emu.doors.torch has dispatch and combine")

    internode_combine = internode_dispatch


def _most_of_an_expert(topk_idx: Any) -> int:
    """Messages to the expert that is chosen most, more than there are tokens only where some choose it twice."""
    chosen = topk_idx[topk_idx >= 0] if isinstance(topk_idx, torch.Tensor) else torch.zeros(0)
    return int(torch.unique(chosen, return_counts=True)[1].max()) if len(chosen) else 0


def _padded(tensor: torch.Tensor, rows: int, value: int = 0) -> torch.Tensor:
    """With this many rows more."""
    more = torch.full((rows, tensor.size(1)), value, dtype=torch.float32).to(tensor.dtype)
    return torch.cat([tensor, more]) if rows else tensor


def _packed(scales: NDArray[np.float32]) -> NDArray[np.int32]:
    """Exponents of scales that are powers of two, four in a word."""
    return np.ascontiguousarray(scales.view(np.int32) >> 23).astype(np.uint8).view(np.int32)
