"""The operators of [PplxKernels], under its own Python: rows and their scales are bytes, carried as they are."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from xccl_emu.base.errors import ConfigError
from xccl_emu.doors.torch.faces.common import from_rows, join, poison, to_numpy, to_rows, to_torch

_LIBRARY = "libpplx_kernels.so"
_DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16"}


class _Plan:
    """What a rank of an all-to-all knows.

    The ranks of a data-parallel group have the same tokens: each sends its share of them.
    """

    def __init__(
        self, most: int, experts: int, top_k: int, rank: int, ranks: int, dp_size: int, *sizes: int | str
    ) -> None:  # fmt: skip
        hidden, row_bytes, scale_bytes = (int(size) for size in sizes[:3])
        self.dp_size, self.dp_rank, self.first = dp_size, rank % dp_size, rank // dp_size * dp_size
        self.shape = {
            "hidden": hidden, "top_k": top_k, "tokens_max": -(-most // dp_size), "local_experts": experts // ranks,
            "quantized": False, "opaque_bytes": -(-(row_bytes + scale_bytes) // 32) * 32,
        }  # fmt: skip
        self.rank = join(dist.group.WORLD)
        self.handle = 0
        self.counts = np.zeros(0, np.int64)

    def share(self, tensor: torch.Tensor, n: int) -> torch.Tensor:
        """The rows of a tensor that this rank sends, of the first n."""
        return tensor[:n][self.dp_rank :: self.dp_size]


def _phase(name: str, send: bool, receive: bool) -> str:
    if not send and not receive:
        raise ConfigError("do_send=False, do_recv=False: one of them must be True")
    return name if send and receive else f"{name}_{'send' if send else 'recv'}"


def _dispatch(
    plan: _Plan, out_num: torch.Tensor, out_x: torch.Tensor, out_scale: torch.Tensor | None, x: torch.Tensor,
    x_scale: torch.Tensor | None, *rest: Any,
) -> None:  # fmt: skip
    """Send tokens, and put what was received into blocks by expert: rows, and how many there are."""
    indices, bound_m, send, receive = rest
    n, sent = int(bound_m.item()) if bound_m is not None else x.size(0), {}
    said = {"shape": plan.shape} if send else {"handle": plan.handle}
    if send:
        sent["x"] = to_rows(plan.share(x, n), None if x_scale is None else plan.share(x_scale, n))
        sent["topk"] = plan.share(indices, n).to(torch.int32).numpy()
    call = _phase("dispatch", send, receive)
    answer, got = plan.rank.call(call, sent, call, **said)
    plan.handle = answer["handle"]
    outs = [out_x] if out_scale is None else [out_x, out_scale]
    if not receive:
        for each in (out_num, *outs):
            poison(each)
        return
    plan.counts, first = got["counts"].sum(1), 0
    for expert, m in enumerate(plan.counts.tolist()):
        out_num[expert] = m
        for out, rows in zip(outs, from_rows(got["x"][first : first + m], *outs), strict=True):
            out[expert, :m] = rows
        first += m


def _combine(
    plan: _Plan, out: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor, expert_y: torch.Tensor, *rest: Any
) -> None:  # fmt: skip
    """Bring rows back and sum them by weights; each rank of a data-parallel group is given the sums of all."""
    bound_m, send, receive = rest
    n, sent = int(bound_m.item()) if bound_m is not None else indices.size(0), {}
    if send:
        sent = {
            "y": to_numpy(torch.cat([expert_y[expert, :m] for expert, m in enumerate(plan.counts.tolist())])),
            "topk": plan.share(indices, n).to(torch.int32).numpy(), "weights": to_numpy(plan.share(weights, n)),
        }  # fmt: skip
    call = _phase("combine", send, receive)
    _, got = plan.rank.call(
        call, sent, call, handle=plan.handle, replicas=plan.dp_size, dtype=_DTYPES.get(expert_y.dtype, "other")
    )
    if not receive:
        poison(out[:n])
    for i in range(plan.dp_size if receive else 0):
        out[:n][i :: plan.dp_size] = to_torch(got[f"out{plan.first + i}"])


def install() -> None:
    """Put the operators into PyTorch; their library is not loaded."""
    load, operators = torch.ops.load_library, SimpleNamespace(all_to_all_destroy=lambda plan: plan.rank.close())
    for kind in ("intranode", "internode"):
        for name, function in (("create", _Plan), ("dispatch", _dispatch), ("combine", _combine)):
            setattr(operators, f"all_to_all_{kind}_{name}", function)
    torch.ops.pplx_kernels = operators
    torch.ops.load_library = lambda path: None if str(path).endswith(_LIBRARY) else load(path)
