"""``torch_npu``: its profiler, with what the calls on the pod took, and ``npu_moe_distribute_dispatch`` and ``combine``
in both versions ([SglKernelNpu] calls them), by FusedDispatch and FusedCombine.
"""

import functools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from xccl_emu.base.errors import ConfigError
from xccl_emu.doors.torch.client import Rank
from xccl_emu.doors.torch.faces import assertions
from xccl_emu.doors.torch.faces.common import refuse, refusing, to_numpy, to_torch, unfilled
from xccl_emu.doors.torch.gate import Form
from xccl_emu.doors.torch.profiles import DeviceProfile

_DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16"}
_ASSIST_WORDS = 128
"""Words of ``assist_info_for_combine`` for each row; source, token and choice are the first of them."""
_HERE = {
    "expert_shard_type": (0,), "shared_expert_num": (0, 1), "tp_world_size": (0, 1), "expert_token_nums_type": (0, 1),
    "comm_alg": ("", "fullmesh_v1", "fullmesh_v2"), "group_list_type": (0,),
}  # fmt: skip
"""By argument the values that are here; of any other, None, 0 and \"\"."""
_ANY = ("group_tp", "tp_rank_id", "tp_send_counts", "expand_scales", "expert_scales")
"""Arguments that say nothing here: there is one group, and weights are combine's."""

_MARK, _NUMBER = 0x58434C, slice(3, 6)
"""Words of the first row that nobody else uses, for a mark, the number of the dispatch, and its rows."""
_last: dict[tuple[str, int], tuple[int, int]] = {}
"""By group and rank, the number of the last dispatch, and its rows."""
_rank = functools.cache(Rank)


def npu_moe_distribute_dispatch_v2(
    x: torch.Tensor, expert_ids: torch.Tensor, group_ep: str, ep_world_size: int, ep_rank_id: int, moe_expert_num: int,
    *, quant_mode: int = 0, global_bs: int = 0, expert_token_nums_type: int = 1,
    x_active_mask: torch.Tensor | None = None, **named: Any,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """Send tokens to their experts; arguments and the seven results as upstream's, ConfigError for what is not here.

    Ranks that have the same ``group_ep`` are a group.  Without ``global_bs`` all must have as many tokens.  A token
    or choice that ``x_active_mask`` has off goes nowhere.
    """
    rank = _rank(group_ep, ep_rank_id, ep_world_size)
    with refusing(rank):
        _check(named | {"expert_token_nums_type": expert_token_nums_type})
        refuse(quant_mode=(quant_mode not in (0, 2) and quant_mode, "must be 0, or 2 without scales"))
        tensors = {"x": x, "expert_ids": expert_ids, "x_active_mask": x_active_mask}
        sizes = {"num_experts": moe_expert_num, "ranks": ep_world_size}
        _gate("npu_moe_distribute_dispatch", assertions.NPU_DISTRIBUTE_DISPATCH, tensors, **sizes)
    local, top_k = moe_expert_num // ep_world_size, expert_ids.size(1)
    most = global_bs // ep_world_size or x.size(0)
    shape = {
        "hidden": x.size(1), "top_k": top_k, "tokens_max": most, "local_experts": local, "quantized": quant_mode == 2,
        "quantizer": "cann", "dtype": _DTYPES.get(x.dtype, str(x.dtype)),
    }  # fmt: skip
    sent = {"x": to_numpy(x), "topk": to_numpy(_active(expert_ids, x_active_mask).int())}
    said, got = rank.call("dispatch_fused", sent, "MoeDistributeDispatch", shape=shape)
    rows, n = ep_world_size * most * min(top_k, local), len(got["x"])
    recv = to_torch(got["x"])
    whole, scales = unfilled((rows, x.size(1)), recv.dtype), unfilled((rows,), torch.float32)
    whole[:n] = recv
    if quant_mode == 2:
        scales[:n] = to_torch(got["scales"])
    assist = unfilled((rows, _ASSIST_WORDS), torch.int32)
    assist[:n, :3] = torch.stack([to_torch(got[name]) for name in ("source", "token", "choice")], 1)
    assist[0, _NUMBER] = torch.tensor([_MARK, said["handle"], n], dtype=torch.int32)
    assist = assist.flatten()
    _last[group_ep, ep_rank_id] = said["handle"], n
    counts = to_torch(got["counts"])
    numbers = counts.sum(1)
    numbers = (numbers if expert_token_nums_type else numbers.cumsum(0)).long()
    nothing = torch.zeros(0)
    return whole, scales, assist, numbers, counts.flatten().cumsum(0).int(), nothing.int(), nothing


def npu_moe_distribute_dispatch(x: torch.Tensor, expert_ids: torch.Tensor, *args: Any, **named: Any) -> Any:
    """The same, with [tokens * top_k] for the third: how many choices before name the same expert."""
    whole, scales, _, *rest = npu_moe_distribute_dispatch_v2(x, expert_ids, *args, **named)
    flat = expert_ids.flatten()
    before = torch.tril(flat[:, None] == flat, -1).sum(1).int()
    return whole, scales, before, *rest


def npu_moe_distribute_combine_v2(
    expand_x: torch.Tensor, expert_ids: torch.Tensor, assist_info_for_combine: torch.Tensor,
    ep_send_counts: torch.Tensor, expert_scales: torch.Tensor, group_ep: str, ep_world_size: int, ep_rank_id: int,
    moe_expert_num: int, *, x_active_mask: torch.Tensor | None = None, **named: Any,
) -> torch.Tensor:  # fmt: skip
    """Bring the experts' rows of the last dispatch back, and sum them by weights; as upstream's of this name.

    What it gives for a token that ``x_active_mask`` has off, or all of its choices, upstream leaves open: poison.
    """
    rank = _rank(group_ep, ep_rank_id, ep_world_size)
    with refusing(rank):
        _check(named)
        tensors = {
            "expand_x": expand_x, "expert_ids": expert_ids, "expert_scales": expert_scales,
            "x_active_mask": x_active_mask,
        }  # fmt: skip
        _gate("npu_moe_distribute_combine", assertions.NPU_DISTRIBUTE_COMBINE, tensors)
    mark, number, n = [*assist_info_for_combine[_NUMBER].tolist(), 0, 0, 0][:3]
    if mark != _MARK:  # the first version's, which says nothing: one result is held
        number, n = _last.get((group_ep, ep_rank_id), (0, 0))
    sent = {
        "y": to_numpy(expand_x[:n]), "topk": to_numpy(_active(expert_ids, x_active_mask).int()),
        "weights": to_numpy(expert_scales),
    }  # fmt: skip
    out = to_torch(rank.call("combine_fused", sent, "MoeDistributeCombine", handle=number)[1]["out"])
    if x_active_mask is None:
        return out
    return torch.where(_columns(x_active_mask).any(1, keepdim=True), out, unfilled((1, 1), out.dtype))


def npu_moe_distribute_combine(
    expand_x: torch.Tensor, expert_ids: torch.Tensor, expand_idx: torch.Tensor, *args: Any, **named: Any
) -> torch.Tensor:
    """The same of the first version."""
    named.pop("global_bs", None)
    return npu_moe_distribute_combine_v2(expand_x, expert_ids, expand_idx, *args, **named)


def _gate(call: str, form: Form, tensors: dict[str, Any], **sizes: int) -> None:
    """Raises ConfigError where upstream would; tokens that take part must be the first ones."""
    mask = tensors["x_active_mask"]
    if isinstance(mask, torch.Tensor) and mask.ndim == 2:
        mask, tensors = None, {**tensors, "x_active_mask": None, "x_active_mask of choices": mask}
    on = mask.flatten().tolist() if isinstance(mask, torch.Tensor) else []
    last = max((i for i, each in enumerate(on) if each), default=-1)
    form.check(call, tensors, {**sizes, "last_active": last, "first_off": [*map(bool, on), False].index(False)})


def _active(expert_ids: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return choices, -1 for those that take no part."""
    return expert_ids if mask is None else torch.where(_columns(mask), expert_ids, -1)


def _columns(mask: torch.Tensor) -> torch.Tensor:
    """[tokens, choices] of a mask of choices, and [tokens, 1] of one of tokens."""
    return mask if mask.ndim == 2 else mask[:, None]


def _check(named: dict[str, Any]) -> None:
    """ConfigError for an argument that is set to what is not here."""
    for name, value in named.items():
        here = _HERE.get(name, (0, ""))
        tensor = isinstance(value, torch.Tensor)
        if name not in _ANY and value is not None and (tensor or value not in here):
            raise ConfigError(name, "a tensor" if tensor else value, f"xccl_emu.doors.torch has {here} or None")


__all__ = [
    "npu", "npu_moe_distribute_combine", "npu_moe_distribute_combine_v2", "npu_moe_distribute_dispatch",
    "npu_moe_distribute_dispatch_v2", "profiler",
]  # fmt: skip

npu = getattr(torch, "npu", None)
__version__ = "xccl_emu"


class _Profile(DeviceProfile):
    def export_chrome_trace(self, path: str | Path) -> None:
        """Write the kernels since the beginning, as a list."""
        self._keep()
        Path(path).write_text(json.dumps(self.events()), encoding="utf-8")


profiler = SimpleNamespace(
    profile=_Profile, schedule=lambda **_: None, ProfilerActivity=SimpleNamespace(NPU=0, CPU=1),
)  # fmt: skip
