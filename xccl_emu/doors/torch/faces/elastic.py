"""``deep_ep.ElasticBuffer`` of [DeepEP]: barriers, sessions of all-gathers, sends and receives on a ring of ranks."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.doors.torch.client import Rank
from xccl_emu.doors.torch.faces import assertions, utils
from xccl_emu.doors.torch.faces.common import Due, EventHandle, poison, refuse, refusing
from xccl_emu.doors.torch.faces.experts import PAGE, ExpertCalls
from xccl_emu.doors.torch.gate import Form
from xccl_emu.doors.torch.names import refused
from xccl_emu.kernels.group import align


@dataclass
class _Session:
    """A session of all-gathers: how far its buffer is in use, how many there were, what has not been awaited yet."""

    used: int = 0
    gathers: int = 0
    due: list[Due] = field(default_factory=list)


class ElasticBuffer(ExpertCalls):
    """A rank's end of a group on one node.  Arguments and results as upstream's; ConfigError for what is not here."""

    def __init__(
        self, group: Any, num_bytes: int | None = None, num_cpu_bytes: int = 0, num_max_tokens_per_rank: int = 0,
        hidden: int = 0, num_topk: int = 0, use_fp8_dispatch: bool = False, deterministic: bool = False,
        allow_hybrid_mode: bool = True, allow_multiple_reduction: bool = True, *_: Any, num_allocated_qps: int = 0,
        explicitly_destroy: bool = False, **__: Any,
    ) -> None:  # fmt: skip
        refuse(group=(group.size() < 2 and group.size(), "must have two ranks at least"))
        if num_bytes is None:
            num_bytes = self.get_buffer_size_hint(
                group, num_max_tokens_per_rank, hidden, num_topk, use_fp8_dispatch, allow_hybrid_mode,
                allow_multiple_reduction,
            )  # fmt: skip
        super().__init__(group)
        self.num_bytes, self.explicitly_destroy = num_bytes, explicitly_destroy
        self.num_max_tokens_per_rank, self.allow_multiple_reduction = num_max_tokens_per_rank, allow_multiple_reduction
        self.rank_idx = self.scaleup_rank_idx = self.rank
        self.num_ranks = self.num_scaleup_ranks = self.num_nvlink_ranks = self.group_size
        self.scaleout_rank_idx, self.num_scaleout_ranks, self.num_rdma_ranks = 0, 1, 1
        self.num_allocated_qps = num_allocated_qps or (129 if allow_hybrid_mode else 17)
        self._gathers = {"num_max_session_bytes": 0, "num_max_all_gathers_per_session": 0}
        self._tensors = {"num_max_tensor_bytes": 0, "num_max_inflight_tensors": 0}
        self._memory = torch.empty(0, dtype=torch.uint8)
        self._session: _Session | None = None
        self._counts: dict[tuple[int, int], int] = {}
        """By source and target, how many tensors were sent, or received."""
        self._lines: dict[tuple[int, int, int], Rank] = {}
        """By source, target and slot, this rank's end of a line of two."""
        self._sent: dict[Rank, None] = {}
        """Lines on which a tensor may be that was not received yet."""
        self._gate("ElasticBuffer", assertions.ELASTIC, {}, num_bytes=num_bytes, num_cpu_bytes=num_cpu_bytes)

    def destroy(self) -> None:
        """Leave the group; tensors that were never received are counted."""
        if not self.explicitly_destroy:
            raise ConfigError("explicitly_destroy", False, "must be True for destroy")
        self.barrier()
        self._collect()
        for line in self._lines.values():
            line.close()
        super().destroy()

    @staticmethod
    def get_pp_buffer_size_hint(num_max_tensor_bytes: int, num_max_inflight_tensors: int) -> int:
        """Bytes for tensors to two neighbours and from them."""
        return utils.align(4 * align(num_max_tensor_bytes) * num_max_inflight_tensors, PAGE)

    @staticmethod
    def get_agrs_num_max_session_bytes(group: Any, shapes: Any, dtype: torch.dtype) -> int:
        """Bytes of a session in which tensors of these shapes, or of this one, are gathered."""
        return sum(align(group.size() * n) for n in _sizes(shapes, dtype))

    @staticmethod
    def get_agrs_buffer_size_hint(group: Any, num_max_session_bytes: int) -> int:
        """Bytes for sessions of this many."""
        return utils.align(num_max_session_bytes, PAGE)

    capture = EventHandle

    def get_physical_domain_size(self) -> tuple[int, int]:
        """One node, and its ranks."""
        return 1, self.group_size

    get_logical_domain_size = get_physical_domain_size

    def barrier(self, use_comm_stream: bool = True, with_cpu_sync: bool = False, sequential: bool = True) -> None:
        """Return when all ranks have called it; what this rank's calls before it have brought is there."""
        Due.settle(self._rank)
        self._rank.call("barrier", {}, "deep_ep::elastic::barrier_impl")

    # ---- all-gathers

    def agrs_set_config(self, num_max_session_bytes: int, num_max_all_gathers_per_session: int) -> None:
        """Say how much a session gathers at most, and how often; collective."""
        self._gathers = self._config(
            "agrs_set_config", assertions.AGRS_CONFIG, num_max_session_bytes=align(num_max_session_bytes),
            num_max_all_gathers_per_session=num_max_all_gathers_per_session,
        )  # fmt: skip
        self._memory = torch.empty(align(num_max_session_bytes), dtype=torch.uint8)

    def _config(self, call: str, form: Form, **said: int) -> dict[str, int]:
        self._gate(call, form, {}, **said, num_bytes=self.num_bytes)
        self.barrier()
        return said

    def create_agrs_session(self) -> None:
        """Begin a session."""
        refuse(agrs_in_session=(self._session is not None, "must be over before the next one"))
        self._session = _Session()

    def destroy_agrs_session(self) -> None:
        """End it: what it gathered is poison, and what was not awaited counts as that; collective."""
        with self._refusing("destroy_agrs_session"):
            session, _ = self._places("destroy_agrs_session", ())
        for each in session.due:
            each.drop()
        poison(self._memory[: session.used])
        self._session = None
        self._rank.call("barrier", {}, "deep_ep::elastic::barrier_impl")

    @contextlib.contextmanager
    def agrs_new_session(self, enabled: bool = True) -> Iterator[None]:
        """Have a session within."""
        if enabled:
            self.create_agrs_session()
        yield
        if enabled:
            self.destroy_agrs_session()

    def agrs_get_inplace_tensor(self, shapes: Any, dtype: torch.dtype) -> Any:
        """Tensors of this rank in the session's buffer, where `all_gather` need not copy them to, if they come next."""
        sizes = _sizes(shapes, dtype)
        _, starts = self._places("agrs_get_inplace_tensor", sizes)
        own = [self._memory[start + self.rank * n :][:n].view(dtype) for start, n in zip(starts, sizes, strict=False)]
        if not isinstance(shapes[0], tuple):
            return own[0].view(shapes)
        return tuple(each.view(shape) for each, shape in zip(own, shapes, strict=True))

    def all_gather(self, t: torch.Tensor | Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """Gather tensors in the session's buffer; others' are poison until the handle, which comes last, is called."""
        tensors, ranks = (t,) if isinstance(t, torch.Tensor) else tuple(t), self.group_size
        with self._refusing("all_gather"):
            refuse(t=(not tensors, "must be a tensor, or several"))
            for each in tensors:
                assertions.TENSOR.check("all_gather", {"t": each}, {})
            session, starts = self._places("all_gather", [each.nbytes for each in tensors], tensors)
        session.used, session.gathers = starts[-1], session.gathers + 1
        sent = np.concatenate([_bytes(each, align(each.nbytes)) for each in tensors])
        _, got = self._rank.call("gather", {"x": sent}, "deep_ep::elastic::all_gather", shape={"nbytes": len(sent)})
        outs, due, at = [], list[torch.Tensor](), 0
        for each, start in zip(tensors, starts, strict=False):
            rows = self._memory[start:][: ranks * each.nbytes].view(ranks, each.nbytes)
            due += [row for row in rows if row.data_ptr() != each.data_ptr()]
            rows.copy_(torch.from_numpy(got["x"][:, at : at + each.nbytes]))
            outs.append(rows.view(each.dtype).view(ranks, *each.shape))
            at += align(each.nbytes)
        session.due.append(what := Due(self._rank, "all_gather", *due))

        def handle() -> None:
            if self._session is not session:
                raise ConfigError("all_gather: its handle must be called before its session is destroyed")
            what()

        return *outs, handle

    def _places(self, call: str, sizes: Sequence[int], tensors: Sequence[Any] = ()) -> tuple[_Session, list[int]]:
        """The session, and where in its buffer tensors of these bytes go, and then the next one does."""
        session, first = self._session or _Session(), self._memory.data_ptr()
        starts = np.cumsum([session.used, *(align(self.group_size * n) for n in sizes)]).tolist()
        own = [start + self.rank * n for start, n in zip(starts, sizes, strict=False)]
        inside = [each.data_ptr() - first for each in tensors]
        known = {
            "agrs_in_session": self._session is not None, "agrs_buffer_offset": starts[-1],
            "num_all_gathers": session.gathers + bool(sizes),
            "inplace_at_its_slot": all(
                at == place or not 0 <= at < len(self._memory) for at, place in zip(inside, own, strict=False)
            ),
        }  # fmt: skip
        assertions.AGRS.check(call, {}, {**self._gathers, **known})
        return session, starts

    # ---- sends and receives

    def pp_set_config(self, num_max_tensor_bytes: int, num_max_inflight_tensors: int) -> None:
        """Say how large tensors are, and how many may be on their way from a rank to another; collective."""
        self._tensors = self._config(
            "pp_set_config", assertions.PP_CONFIG, num_max_tensor_bytes=align(num_max_tensor_bytes),
            num_max_inflight_tensors=num_max_inflight_tensors,
        )  # fmt: skip

    def pp_send(self, t: torch.Tensor, dst_rank_idx: int, num_sms: int = 0) -> None:
        """Send a tensor to a neighbour; waits only while as many as may be on their way have not been received."""
        line = self._line("pp_send", t, self.rank, dst_rank_idx)
        line.begin("transfer", {"x": _bytes(t, t.nbytes)}, shape={"nbytes": t.nbytes})
        self._sent[line] = None

    def pp_recv(self, t: torch.Tensor, src_rank_idx: int, num_sms: int = 0) -> None:
        """Receive the next tensor that a neighbour sends, which has as many bytes."""
        line = self._line("pp_recv", t, src_rank_idx, self.rank)
        _, got = line.call("transfer", {}, "deep_ep::elastic::pp_recv_impl", shape={"nbytes": t.nbytes})
        t.view(-1).view(torch.uint8).copy_(torch.from_numpy(got["x"]))

    def _line(self, call: str, t: Any, source: int, target: int) -> Rank:
        """The line for the next tensor from a rank to its neighbour, on which none is any more."""
        ring = {f"{name}_rank_idx": (self.rank + step) % self.group_size for name, step in (("prev", -1), ("next", 1))}
        known = {**self._tensors, **ring, "peer": source + target - self.rank, "nbytes": getattr(t, "nbytes", 0)}
        assertions.PP.check(call, {}, known)
        count = self._counts[source, target] = self._counts.get((source, target), -1) + 1
        at = source, target, count % self._tensors["num_max_inflight_tensors"]
        if at not in self._lines:
            self._lines[at] = Rank(f"{self._rank.group} {at}", int(source != self.rank), 2)
        self._collect(self._lines[at])
        with refusing(self._lines[at]):
            assertions.PP_TENSOR.check(call, {"t": t}, known)
        return self._lines[at]

    def _collect(self, awaited: Rank | None = None) -> None:
        """Note what was received, and wait until that is so of the tensor on one line."""
        for line in [each for each in self._sent if each is awaited or each.answered()]:
            del self._sent[line]
            line.end("pp_send", "deep_ep::elastic::pp_send_impl")


for name in ("get_engram_storage_size_hint", "engram_write", "engram_fetch"):
    setattr(ElasticBuffer, name, refused(f"deep_ep.ElasticBuffer.{name}", "no kernel that reads rows by number"))


def _sizes(shapes: Any, dtype: torch.dtype) -> list[int]:
    """Bytes of each of several tensors, or of one."""
    return [math.prod(each) * dtype.itemsize for each in (shapes if isinstance(shapes[0], tuple) else (shapes,))]


def _bytes(tensor: torch.Tensor, nbytes: int) -> NDArray[np.uint8]:
    """The bytes of a tensor, and zeros up to ``nbytes``."""
    data = tensor.detach().reshape(-1).view(torch.uint8).numpy()
    return np.pad(data, (0, nbytes - len(data)))
