"""What the faces have in common: tensors as arrays, groups of ranks, events."""

import contextlib
import functools
import math
import mmap
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError, UnfinishedError
from xccl_emu.doors.torch.client import Rank
from xccl_emu.doors.torch.gate import Form

_BITS = {torch.bfloat16: (torch.int16, ml_dtypes.bfloat16), torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn)}
_TYPES = {np.dtype(dtype): (bits, torch_type) for torch_type, (bits, dtype) in _BITS.items()}
_INTEGERS = {each.itemsize: each for each in (torch.int8, torch.int16, torch.int32, torch.int64)}
_ROW_BYTES = 32
_LARGE = 1 << 25
"""Bytes from which on C libraries take new pages for what is allocated, and give them back with it."""
_POISONED = functools.cache(lambda: os.memfd_create("xccl-emu-poison"))


def to_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """The values of a tensor, whatever its type."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype in _BITS:
        bits, dtype = _BITS[tensor.dtype]
        return np.asarray(tensor.view(bits).numpy().view(dtype))
    return np.asarray(tensor.numpy())


def to_torch(array: NDArray[Any]) -> torch.Tensor:
    """A tensor of its own with the values of an array."""
    if array.dtype in _TYPES:
        bits, torch_type = _TYPES[array.dtype]
        return torch.from_numpy(array.view(np.int16 if bits is torch.int16 else np.uint8).copy()).view(torch_type)
    return torch.from_numpy(np.array(array))


def to_rows(*tensors: torch.Tensor | None) -> NDArray[np.uint8]:
    """[rows, bytes] the rows of tensors one after another as bytes, a multiple of 32 of them."""
    parts = [each.contiguous().view(torch.uint8).numpy() for each in tensors if each is not None]
    row = np.concatenate(parts, 1)
    return np.pad(row, ((0, 0), (0, -row.shape[1] % _ROW_BYTES)))


def from_rows(rows: NDArray[np.uint8], *like: torch.Tensor | None) -> list[torch.Tensor]:
    """Tensors of such rows, of as many columns and the types of the given ones."""
    tensors, first = [], 0
    for each in like:
        if each is not None:
            end = first + each.size(-1) * each.element_size()
            tensors.append(made := torch.empty((len(rows), each.size(-1)), dtype=each.dtype))
            made.view(torch.uint8).copy_(torch.from_numpy(rows[:, first:end]))
            first = end
    return tensors


def unfilled(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A tensor of poison: NaN in BF16, FP32 and e4m3, so that rows that nobody sent are not right by accident.

    A large one is private pages of a file of poison, which take memory where they are written.
    """
    if (nbytes := math.prod(shape) * dtype.itemsize) >= _LARGE:
        return torch.frombuffer(mmap.mmap(_poison_file(nbytes), nbytes, mmap.MAP_PRIVATE), dtype=dtype).view(shape)
    poison(tensor := torch.empty(shape, dtype=dtype))
    return tensor


def _poison_file(nbytes: int) -> int:
    """The file, which has no name, with this many bytes at least."""
    while (size := os.fstat(_POISONED()).st_size) < nbytes:
        os.pwrite(_POISONED(), b"\xff" * min(nbytes - size, _LARGE), size)
    return _POISONED()


def poison(tensor: torch.Tensor) -> None:
    """Overwrite a tensor so that nobody takes what was there for what is to come."""
    tensor.view(_INTEGERS[tensor.itemsize]).fill_(-1)


def join(group: Any, shrinks: bool = False) -> Rank:
    """The rank of this process in a process group, which may go on without ranks that left; collective."""
    names = [uuid.uuid4().hex]
    dist.broadcast_object_list(names, src=dist.get_global_rank(group, 0), group=group)
    return Rank(names[0], group.rank(), group.size(), shrinks)


def nothing() -> None:
    """Do nothing: a hook without anything to wait for."""


def refuse(**given: tuple[Any, str]) -> None:
    """Raises ConfigError for an argument that is set: its value, and why it is not here."""
    for name, (value, why) in given.items():
        if value:
            raise ConfigError(name, value, why)


@contextlib.contextmanager
def refusing(rank: Rank) -> Iterator[None]:
    """Have the others hear of a ConfigError within, since they wait for this rank in the call."""
    try:
        yield
    except ConfigError as error:
        rank.refuse(str(error))
        raise


class Due:
    """What a call has brought already, and what its hook or event makes seen: until then its tensors are poison."""

    _pending: ClassVar[list["Due"]] = []

    def __init__(
        self, rank: Rank, call: str, *tensors: torch.Tensor | None, hooked: bool = False,
        then: Callable[[], None] = nothing,
    ) -> None:  # fmt: skip
        """Poison these tensors; ``then`` fills others, which are poison yet."""
        self._rank, self._call, self._hooked, self._then = rank, call, hooked, then
        self._held = [(each, each.clone()) for each in tensors if each is not None]
        for each, _ in self._held:
            poison(each)
        rank.note_due(call, True)
        self._pending.append(self)

    def __call__(self) -> None:
        """Put everything into its place."""
        if self in self._pending:
            self._pending.remove(self)
            for tensor, values in self._held:
                tensor.copy_(values)
            self._then()
            with contextlib.suppress(UnfinishedError):  # the server is gone
                self._rank.note_due(self._call, False)

    current_stream_wait = __call__

    def drop(self) -> None:
        """Have it never come: its tensors stay poison, and it was not awaited if it is due yet."""
        if self in self._pending:
            self._pending.remove(self)

    @classmethod
    def settle(cls, rank: Rank | None = None) -> None:
        """Do so for all events of a rank, whose calls are in one stream, or of this process; not for hooks."""
        for due in [each for each in cls._pending if rank in (None, each._rank) and not each._hooked]:
            due()


class EventHandle:
    """An event of the current stream, in which all is done already."""

    def current_stream_wait(self) -> None:
        """Return."""


class EventOverlap:
    """An event of a call."""

    def __init__(self, event: Any = None, extra_tensors: Any = None) -> None:
        self.event = event

    def current_stream_wait(self) -> None:
        """Wait for it: what its call brings is there from now on."""
        if self.event is not None:
            self.event.current_stream_wait()

    def __enter__(self) -> "EventOverlap":
        return self

    def __exit__(self, *_: object) -> None:
        self.current_stream_wait()


class Numbered(int):
    """A number of a handle that also knows its dispatch, whatever becomes of the tensors there."""

    dispatch: Any = None

    @classmethod
    def of(cls, number: int, dispatch: Any) -> "Numbered":
        """The number, of this dispatch."""
        made = cls(number)
        made.dispatch = dispatch
        return made


def dispatch_of(handle: Any, at: int) -> Any:
    """The dispatch that a handle is of; ConfigError for what is none."""
    dispatch = getattr(handle[at], "dispatch", None) if isinstance(handle, (tuple, list)) and len(handle) > at else None
    if dispatch is None:
        raise ConfigError("handle: must be what a dispatch gave")
    return dispatch


class Config:
    """Numbers of SMs and chunks, which the emulator has no use for."""

    def __init__(self, *numbers: int, **named: int) -> None:
        self.numbers, self.named = numbers, named

    def get_nvl_buffer_size_hint(self, *_: int) -> int:
        """Bytes: none are needed apart from the pod's."""
        return 0

    get_rdma_buffer_size_hint = get_nvl_buffer_size_hint


class GroupMember:
    """A rank's end of a process group: what every library's Buffer does alike.  Collective."""

    num_sms = 20

    def __init__(self, group: Any, shrinks: bool = False) -> None:
        self.group, self.rank, self.group_size = group, group.rank(), group.size()
        self._rank = join(group, shrinks)

    def destroy(self) -> None:
        """Leave the group."""
        self._rank.close()

    def _refusing(self, call: str) -> contextlib.AbstractContextManager[None]:
        """`refusing` of this rank."""
        return refusing(self._rank)

    def _gate(self, call: str, form: Form, tensors: Mapping[str, Any], **sizes: Any) -> dict[str, Any]:
        """Begin a call: what this rank's calls before it have brought is there; returns its sizes.

        Raises ConfigError, in all ranks, where upstream's host code would assert.
        """
        Due.settle(self._rank)
        with self._refusing(call):
            return form.check(call, tensors, {"ranks": self.group_size, **sizes})

    @classmethod
    def set_num_sms(cls, number: int) -> None:
        """Remember it; the cores of a rank are an option of the command."""
        cls.num_sms = number

    @staticmethod
    def get_dispatch_config(ranks: int) -> Config:
        """A configuration, which is not used."""
        return Config()

    get_combine_config = get_dispatch_config

    def clean_low_latency_buffer(self, *_: int) -> None:
        """Return: the kernels clean the next set in each call."""

    def _agree(self, *numbers: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """The largest and the sum of each number over the ranks of the group; collective."""
        got = self._rank.call("agree", {"numbers": np.array(numbers, np.int64)})[1]
        return got["most"].copy(), got["sum"].copy()

    def _biases(self, bias: Any) -> dict[str, Any]:
        """Return by name what a combine adds, a tensor or two; ConfigError, in all ranks, for another number."""
        several = bias if isinstance(bias, tuple) else (bias, None)
        with self._refusing("combine"):
            if len(several) != 2:
                raise ConfigError("bias", f"{len(several)} tensors", "must be a tensor or two")
        return dict(zip(("bias_0", "bias_1"), several, strict=True))

    @staticmethod
    def _added(n: int, x: torch.Tensor, weights: Any, biases: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Return what a combine of normal mode is given: n rows, their weights and biases, if there are any."""
        given = [to_numpy(each) for each in biases.values() if each is not None]
        more = {} if weights is None else {"weights": to_numpy(weights[:n])}
        return {"y": to_numpy(x[:n]), **more, **({"bias": np.stack(given)} if given else {})}

    @staticmethod
    def _summands(rows: torch.Tensor, topk_idx: torch.Tensor, weights: torch.Tensor) -> dict[str, NDArray[Any]]:
        """Return what combine is given: rows of experts, and the weight of each choice, 0 where it is masked."""
        return {
            "y": to_numpy(rows), "topk": to_numpy(topk_idx.int()),
            "weights": to_numpy(weights.masked_fill(topk_idx == -1, 0).float()),
        }  # fmt: skip


def layout_of(topk_idx: torch.Tensor, experts: int, ranks: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """[ranks] and [experts] how many tokens go there, int32, and [tokens, ranks] which ones, bool."""
    at = torch.where(topk_idx >= 0, topk_idx // (experts // ranks), -1)
    in_rank = torch.stack([(at == rank).any(1) for rank in range(ranks)], 1)
    per_expert = torch.bincount(topk_idx[topk_idx >= 0].flatten(), minlength=experts)
    return in_rank.sum(0).int(), per_expert.int(), in_rank
