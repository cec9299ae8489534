"""Dispatch and combine of ``deep_ep.ElasticBuffer`` ([DeepEP]), by the kernels of normal mode: a token once to a rank.

What upstream's epilogues copy or add up within a rank is done here: the layout by expert, and sums of its rows.
"""

from types import SimpleNamespace
from typing import Any

import torch

from xccl_emu.base.errors import ConfigError
from xccl_emu.doors.torch.faces import assertions, utils
from xccl_emu.doors.torch.faces.common import (
    Due,
    EventOverlap,
    GroupMember,
    from_rows,
    to_numpy,
    to_rows,
    to_torch,
    unfilled,
)
from xccl_emu.kernels.group import align

PAGE = 1 << 21


class EPHandle(SimpleNamespace):
    """What a dispatch brought, and where it is: attributes as upstream's, and what the server calls it."""


class ExpertCalls(GroupMember):
    """A group whose ranks bring tokens to experts; its attributes are of `ElasticBuffer`."""

    num_bytes: int
    num_max_tokens_per_rank: int
    num_allocated_qps: int
    allow_multiple_reduction: bool

    @staticmethod
    def get_buffer_size_hint(
        group: Any, num_max_tokens_per_rank: int, hidden: int, num_topk: int = 0, use_fp8_dispatch: bool = False,
        allow_hybrid_mode: bool = True, allow_multiple_reduction: bool = True,
    ) -> int:  # fmt: skip
        """Bytes that upstream asks for; nothing is reserved by it."""
        most, top_k = num_max_tokens_per_rank, num_topk or 32
        assertions.ELASTIC_HINT.check("get_buffer_size_hint", {}, {"num_max_tokens_per_rank": most, "hidden": hidden})
        sent = (hidden, utils.ceil_div(hidden, 32)) if use_fp8_dispatch else (2 * hidden, 0)
        places = min(group.size(), top_k) if allow_multiple_reduction else top_k
        nbytes = max(dispatch_bytes(group.size(), most, *sent, top_k), combine_bytes(places, most, hidden, top_k))
        return utils.align(nbytes, PAGE)

    def get_theoretical_num_sms(self, num_experts: int, num_topk: int, *_: Any, **__: Any) -> int:
        """Return a number that nothing depends on."""
        return self.num_sms

    def get_theoretical_num_qps(self, num_sms: int) -> int:
        """Return a number that nothing depends on."""
        return min(num_sms, self.num_allocated_qps)

    def dispatch(
        self, x: Any, topk_idx: torch.Tensor | None = None, topk_weights: torch.Tensor | None = None,
        cumulative_local_expert_recv_stats: torch.Tensor | None = None, num_experts: int | None = None,
        num_max_tokens_per_rank: int | None = None, expert_alignment: int | None = None, num_sms: int = 0,
        num_qps: int = 0, previous_event: Any = None, previous_event_before_epilogue: Any = None,
        async_with_compute_stream: bool = False, allocate_on_comm_stream: bool = False,
        handle: EPHandle | None = None, do_handle_copy: bool = True, do_cpu_sync: bool | None = None,
        do_expand: bool = False, do_zero_padding: bool = False, use_tma_aligned_col_major_sf: bool = False,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Send each token once to each rank that it has experts on, as upstream's of this name."""
        parts = x if isinstance(x, tuple) else (x,)
        choices, stats = topk_idx if handle is None else handle.topk_idx, cumulative_local_expert_recv_stats
        said: dict[str, Any] = {
            "num_experts": num_experts, "num_max_tokens_per_rank": num_max_tokens_per_rank or None,
            "expert_alignment": expert_alignment, "do_expand": do_expand,
        }  # fmt: skip
        usual = {"num_experts": 0, "num_max_tokens_per_rank": self.num_max_tokens_per_rank, "expert_alignment": 1}
        had = usual if handle is None else vars(handle)
        said = {name: had[name] if value is None else value for name, value in said.items()}
        tensors = {
            "x": parts[0], "x_scales": [*parts, None][1], "topk_idx": choices, "topk_weights": topk_weights,
            "cumulative_local_expert_recv_stats": stats,
        }  # fmt: skip
        sizes = self._gate(
            "dispatch", assertions.ELASTIC_DISPATCH, tensors, **said, **({} if len(parts) > 1 else {"scales": 0}),
            **self._limits(num_qps, previous_event, allocate_on_comm_stream), cached=handle is not None,
            as_in_handle=handle is None or said.items() <= had.items(), has_topk_idx=topk_idx is not None,
            do_cpu_sync=do_cpu_sync, do_zero_padding=do_zero_padding, dispatch_bytes=dispatch_bytes,
            element_size=getattr(parts[0], "itemsize", 0), local_experts=said["num_experts"] // self.group_size,
            an_expert_twice=_an_expert_twice(choices),
        )  # fmt: skip
        assert choices is not None
        weights = torch.zeros(choices.shape, dtype=torch.float32) if topk_weights is None else topk_weights
        sent = {"x": to_rows(*parts), "topk": to_numpy(choices.int()), "weights": to_numpy(weights)}
        shape = {
            "hidden": sizes["hidden"], "top_k": sizes["top_k"], "tokens_max": said["num_max_tokens_per_rank"],
            "local_experts": sizes["local_experts"], "opaque_bytes": sent["x"].shape[1], "by_choice": True,
        }  # fmt: skip
        answer, got = self._rank.call("dispatch_rows", sent, "deep_ep::elastic::dispatch_impl", shape=shape)
        experts = to_torch(got["experts"])
        counts = _counts(experts, sizes["local_experts"])
        if handle is None:
            kept = choices.clone() if do_handle_copy else choices
            handle = self._handle(got, kept, counts, do_cpu_sync in (None, True), num_sms=num_sms, **said)
            names = ("psum", "recv", "num_unaligned")
            fresh = [value for name, value in vars(handle).items() if name.startswith(names)]
        else:
            fresh = []
        handle.number, handle.n, handle.hidden = answer["handle"], len(experts), sizes["hidden"]
        slots = handle.recv_src_metadata[: handle.n, 2:]
        chosen = slots >= 0 if do_expand else torch.ones(handle.n, 1, dtype=torch.bool)
        to = slots[chosen].long() if do_expand else torch.arange(handle.n)
        size = handle.num_expanded_tokens if do_expand else handle.num_recv_tokens
        aligned: Any = utils.align(counts, said["expert_alignment"])
        padding = torch.arange(size) < (int(aligned.sum()) if do_zero_padding else 0)
        padding[to] = False

        def placed(values: torch.Tensor, by_columns: bool = False) -> torch.Tensor:
            """Values of choices, or of rows, in their rows of the result; poison where there are none."""
            room = values.size(1), utils.align(size, 4)
            out = unfilled(room, values.dtype).t()[:size] if by_columns else unfilled((size, room[0]), values.dtype)
            bits = torch.uint8 if values.dtype.itemsize == 1 else values.dtype
            out.view(bits)[to] = values.view(bits)
            out.view(bits)[padding] = 0
            return out

        of = chosen.nonzero()[:, 0]
        rows, *scales = from_rows(got["x"], *parts)
        recv = [placed(rows[of]), *(placed(each[of], use_tma_aligned_col_major_sf) for each in scales)]
        came, indices, event = to_torch(got["weights"]), None, None
        came = placed(came[chosen][:, None])[:, 0] if do_expand else placed(came)
        if not do_expand:
            indices = placed(experts.to(choices.dtype))
        if stats is not None:
            stats.add_(counts.int())
        given = None if topk_weights is None else came
        if async_with_compute_stream:
            event = Due(self._rank, "dispatch", *recv, indices, given, *fresh)
        return tuple(recv) if isinstance(x, tuple) else recv[0], indices, given, handle, EventOverlap(event)

    def _handle(self, got: Any, choices: torch.Tensor, counts: torch.Tensor, sync: bool, **said: Any) -> EPHandle:
        """Return where what came is; without ``sync`` as many rows are counted as may come."""
        experts, from_rank = to_torch(got["experts"]), to_torch(got["counts"]).sum(1)
        most = said["num_max_tokens_per_rank"]
        (n, k), local, to = experts.shape, said["num_experts"] // self.group_size, said["expert_alignment"]
        aligned: Any = utils.align(counts, to)
        starts = aligned.cumsum(0) - aligned
        rows = n if sync else self.group_size * most
        places = int(aligned.sum()) if sync else utils.align(rows * min(k, local) + (to - 1) * local, to)
        where, source = unfilled((rows, 2 + k), torch.int32), torch.arange(self.group_size).repeat_interleave(from_rank)
        where[:n, 0] = source * most + to_torch(got["token"])
        where[:n, 1] = source * k + torch.where(experts >= 0, torch.arange(k), -1).amax(1)
        for expert, start in enumerate(starts.tolist() if said["do_expand"] else ()):
            here = experts == expert
            where[:n, 2:][here] = torch.arange(start, start + int(here.sum()), dtype=torch.int32)
        return EPHandle(
            topk_idx=choices, num_recv_tokens=rows, num_expanded_tokens=places, recv_src_metadata=where,
            num_recv_tokens_per_expert_list=aligned.tolist() if sync else [],
            psum_num_recv_tokens_per_scaleup_rank=from_rank.cumsum(0).int(),
            psum_num_recv_tokens_per_expert=(starts + counts if said["do_expand"] else aligned.cumsum(0)).int(),
            num_unaligned_recv_tokens_per_expert=counts.int(), token_metadata_at_forward=None,
            dst_buffer_slot_idx=torch.full(choices.shape, -1, dtype=torch.int32), channel_linked_list=None, **said,
        )  # fmt: skip

    def combine(
        self, x: torch.Tensor, handle: EPHandle, topk_weights: torch.Tensor | None = None, bias: Any = None,
        num_sms: int = 0, num_qps: int = 0, previous_event: Any = None, previous_event_before_epilogue: Any = None,
        async_with_compute_stream: bool = False, allocate_on_comm_stream: bool = False,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Add up what ranks return for each token, as upstream's of this name."""
        with self._refusing("combine"):
            if not isinstance(handle, EPHandle):
                raise ConfigError("handle: must be what dispatch gave")
            if handle.do_expand and not self.allow_multiple_reduction:
                must = "must be True to combine rows by expert: kernels here bring one row from each rank"
                raise ConfigError("allow_multiple_reduction", False, must)
        form, rows = assertions.ELASTIC_COMBINE, handle.num_recv_tokens
        if handle.do_expand:
            form, rows = assertions.ELASTIC_COMBINE_BY_EXPERT, handle.num_expanded_tokens
        biases, (tokens, k) = self._biases(bias), handle.topk_idx.shape
        self._gate(
            "combine", form, {"x": x, "topk_weights": topk_weights, **biases}, rows=rows, hidden=handle.hidden,
            top_k=k, tokens=tokens, num_max_tokens_per_rank=handle.num_max_tokens_per_rank, combine_bytes=combine_bytes,
            places=min(k, self.group_size) if self.allow_multiple_reduction else k,
            **self._limits(num_qps, previous_event, allocate_on_comm_stream),
        )  # fmt: skip
        slots = handle.recv_src_metadata[: handle.n, 2:].long()
        if handle.do_expand:
            total = torch.zeros(handle.n, handle.hidden, dtype=torch.float32)
            for at in slots.T:
                total += torch.where((at >= 0)[:, None], x[at].float(), 0)
            x = total.bfloat16()
            topk_weights = None if topk_weights is None else torch.where(slots >= 0, topk_weights[slots], 0)
        sent = self._added(handle.n, x, topk_weights, biases)
        _, got = self._rank.call("combine_rows", sent, "deep_ep::elastic::combine_impl", handle=handle.number)
        out, sums = to_torch(got["out"]), None if topk_weights is None else to_torch(got["weights"])
        return out, sums, EventOverlap(Due(self._rank, "combine", out, sums) if async_with_compute_stream else None)

    def _limits(self, num_qps: int, previous_event: Any, allocate_on_comm_stream: bool) -> dict[str, Any]:
        """Return what both calls assert of numbers."""
        return {
            "num_qps": num_qps, "num_allocated_qps": self.num_allocated_qps, "num_bytes": self.num_bytes,
            "has_previous_event": previous_event is not None, "allocate_on_comm_stream": allocate_on_comm_stream,
        }  # fmt: skip


def dispatch_bytes(ranks: int, most: int, hidden_bytes: int, scales: int, top_k: int) -> int:
    """Bytes of upstream's buffer for a dispatch: parts of a token each in granules, its choices with three words."""
    return ranks * most * (align(hidden_bytes) + align(4 * scales) + align(12 * top_k + 4))


def combine_bytes(places: int, most: int, hidden: int, top_k: int) -> int:
    """Bytes of upstream's buffer for a combine, in which a token has this many places."""
    return places * most * (align(2 * hidden) + align(8 * top_k))


def _counts(experts: torch.Tensor, local: int) -> torch.Tensor:
    """[local] choices of each expert here."""
    return torch.bincount(experts[experts >= 0].long(), minlength=local)


def _an_expert_twice(choices: Any) -> bool:
    """Say whether a token names an expert twice."""
    if not isinstance(choices, torch.Tensor) or choices.ndim != 2:
        return False
    ordered = choices.sort(1).values
    return bool(((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any())
