"""An expert-parallel group: its configuration, and what it refuses to be given."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import one_of
from xccl_emu.kernels.experts.counts import INDEX_BYTES, choice_at, streamed_work_at, work_at
from xccl_emu.kernels.experts.dummy import expert_bytes
from xccl_emu.kernels.experts.messages import SLOT_BYTES, message_at
from xccl_emu.kernels.experts.parameters import Group
from xccl_emu.kernels.experts.sums import contribution_stride, sum_bytes
from xccl_emu.kernels.group import align
from xccl_emu.lang import BF16, FP8_BLOCK, FP16, RULE_CANN, RULE_FP8, RULE_FP8_UE8M0, RULE_XCCL
from xccl_emu.machine.pod import Pod
from xccl_emu.protocols.communicator import as_array, number_in, offset_in_area, shaped

DTYPES: dict[str, tuple[int, Any]] = {"bf16": (BF16, ml_dtypes.bfloat16), "fp16": (FP16, np.float16)}
QUANTIZERS = {"xccl": RULE_XCCL, "cann": RULE_CANN, "fp8": RULE_FP8, "fp8-ue8m0": RULE_FP8_UE8M0}
INT8 = ("xccl", "cann")
"""Rules that make INT8, with one scale for a row."""
ROUTE = np.dtype(
    [
        ("scale", "<f4"), ("source", "<i4"), ("token", "<i4"), ("choice", "<i4"), ("slot", "<i4"), ("version", "<i4"),
        ("_rest", "V8"),
    ]
)  # fmt: skip
"""What is kept with a received row: FP32 scale (0 when not quantized), source rank, token, key offset, expert slot,
version of the source's map (0 where maps do not change)."""

_WHOLE_TOKENS_MAX = 512
"""Tokens of a batch up to which dispatch is faster where each core counts all choices than with two barriers more (in
virtual time, EP8 on 48 cores: 314 us and 341 with 512 tokens, 635 and 595 with 1,024)."""


@dataclass(frozen=True)
class TokenConfig(ABC):
    """What moves between attention and experts, and by what; ConfigError for what cannot be."""

    PATHS: ClassVar[tuple[str, ...]] = ("mtu", "dma")
    COUNTINGS: ClassVar[tuple[str, ...]] = ("auto", "vector", "scalar")
    RULES: ClassVar[tuple[str, ...]] = INT8
    RANGES: ClassVar[Mapping[str, tuple[int, int]]] = {
        "hidden": (32, 1 << 20), "top_k": (1, INDEX_BYTES // 4), "cores": (1, 1 << 10),
    }  # fmt: skip
    """Least and largest value of whole numbers."""
    batch_bytes: ClassVar[int] = 4
    """What is said of a batch: how many tokens it has, and maybe more."""
    position_bytes: ClassVar[int] = INDEX_BYTES
    """Bytes that a token has in the table of positions of its messages, by which combine finds contributions."""

    _: KW_ONLY
    hidden: int = 7168
    """Elements of a token's hidden state; a multiple of 32."""
    top_k: int = 8
    """Choices of a token, 1 to 16, the shared expert among them if there is one."""
    tokens_max: int = 128
    """Largest batch of a rank or attention die; sizes the buffers."""
    dtype: str = "bf16"
    """``"bf16"`` or ``"fp16"``."""
    quantized: bool = True
    """INT8, or FP8, on the way to the experts."""
    quantizer: str = "xccl"
    """Rule by which it is made: ``"xccl"``, or ``"cann"`` as in CANN's public kernels; in DeepEP's mode ``"fp8"`` and
    ``"fp8-ue8m0"`` too, by its rules (docs/records/quantizers.md)."""
    shared: bool = False
    """The last choice of each token is the shared expert: added last, unweighted."""
    cores: int = 1
    """Cores used on each rank or attention die."""
    path: str = "mtu"
    """``"mtu"``: memory semantics, through the data buffers; else the DMA engine moves data."""
    counting: str = "auto"
    """How the places of messages are counted (`kernels/experts/counts.py`): ``"vector"``, each core all choices of its
    rank or attention die, on the vector pipe; ``"scalar"``, each core the choices of tokens that it sends, in scalar
    loops, a batch of any size; ``"auto"``: the first up to 512 tokens, then the second."""

    def __post_init__(self) -> None:
        for name, (low, high) in self.RANGES.items():
            object.__setattr__(self, name, number_in(name, getattr(self, name), low, high))
        for each in fields(self):
            if each.type is bool and not isinstance(getattr(self, each.name), bool):
                raise ConfigError(each.name, getattr(self, each.name), "must be True or False")
        if self.hidden % 32:
            raise ConfigError("hidden", self.hidden, "must be a multiple of 32")
        for name, known in (
            ("dtype", DTYPES), ("quantizer", self.RULES), ("path", self.PATHS), ("counting", self.COUNTINGS),
        ):  # fmt: skip
            one_of(name, getattr(self, name), known)
        if self.in_fp8 and self.hidden % FP8_BLOCK:
            raise ConfigError("hidden", self.hidden, f"must be a multiple of {FP8_BLOCK} in FP8")

    @property
    def in_fp8(self) -> bool:
        """Do tokens travel as e4m3, followed by their scales?"""
        return self.quantized and self.quantizer not in INT8

    @property
    @abstractmethod
    def local_experts(self) -> int:
        """Expert slots on each rank or expert die."""

    @property
    @abstractmethod
    def n_slots(self) -> int:
        """Expert slots of all ranks or expert dies."""

    @property
    @abstractmethod
    def rows_max(self) -> int:
        """Most rows that a rank, or an expert die in a call, can receive."""

    @property
    @abstractmethod
    def counts_bytes(self) -> int:
        """The counts of those rows, by expert and source."""

    @property
    def payload_bytes(self) -> int:
        """A token on its way to the experts, without its slot."""
        scales = align(4 * self.hidden // FP8_BLOCK) if self.in_fp8 else 0
        return self.hidden + scales if self.quantized else self.token_bytes

    @property
    def message_bytes(self) -> int:
        """A token on its way to the experts: 7,680 bytes at hidden 7168 in INT8 (CloudMatrix384 4.2.1)."""
        return self.payload_bytes + SLOT_BYTES

    @property
    def sending_bytes(self) -> int:
        """Bytes of its data buffer that a core's messages take, two at a time."""
        return message_at(2, self.hidden, self.payload_bytes, int(self.quantized), 0)

    @property
    def row_bytes(self) -> int:
        """A row of hidden states, and a message on its way back: 14,336 bytes at hidden 7168."""
        return 2 * self.hidden

    @property
    def quantized_by(self) -> int:
        """The quantizer as the kernels take it: 0 where nothing is quantized, else 1 + the number of the rule."""
        return 1 + QUANTIZERS[self.quantizer] if self.quantized else 0

    @property
    def narrowed_by(self) -> int:
        """Return the same for the way back."""
        return 0

    @property
    def repeats(self) -> bool:
        """May a token choose an expert several times?"""
        return False

    @property
    def opaque_bytes(self) -> int:
        """Bytes of a token that travels as it is, whatever they mean; 0 where it is a hidden state."""
        return 0

    @property
    def route_bytes(self) -> int:
        """Bytes kept with a received row about where it is from."""
        return ROUTE.itemsize

    @property
    def token_bytes(self) -> int:
        """A token as it is given to dispatch."""
        return self.opaque_bytes or self.row_bytes

    def token_dtype(self) -> Any:
        """NumPy type of its elements."""
        return np.uint8 if self.opaque_bytes else self.numpy_dtype()

    @property
    def streams(self) -> bool:
        """Do cores count the choices that they send, streamed through the data buffer, and exchange the counts?"""
        return self.counting == "scalar" or (self.counting == "auto" and self.tokens_max > _WHOLE_TOKENS_MAX)

    def numpy_dtype(self) -> Any:
        """NumPy type of hidden states."""
        return DTYPES[self.dtype][1]

    def received_dtype(self) -> Any:
        """NumPy type of what experts receive."""
        if not self.quantized:
            return self.token_dtype()
        return ml_dtypes.float8_e4m3fn if self.in_fp8 else np.int8

    def group(self, n_ranks: int, cores: int, die_bytes: int, tallies: int = 0) -> Group:
        """The shape for a kernel on ``cores`` cores; ``tallies`` is where they exchange what they have counted."""
        return Group(
            n_ranks=n_ranks,
            n_local=self.local_experts,
            top_k=self.top_k,
            hidden=self.hidden,
            payload=self.payload_bytes,
            dtype=DTYPES[self.dtype][0],
            quantized=self.quantized_by,
            shared=int(self.shared),
            by_dma=int(self.path in ("dma", "urma")),
            cores=cores,
            die_bytes=die_bytes,
            tallies=tallies,
            narrowed=self.narrowed_by,
        )


@dataclass(frozen=True)
class EpConfig(TokenConfig):
    """An expert-parallel group: its size and the shape of what it moves (xDeepServe 3.2).

    Experts are numbered by slot, ``rank * local_experts + local``.
    """

    RANGES: ClassVar[Mapping[str, tuple[int, int]]] = {
        **TokenConfig.RANGES, "n_ranks": (2, 1 << 16), "local_experts": (1, 1 << 12), "tokens_max": (1, 1 << 20),
        "first_die": (0, 1 << 20),
    }  # fmt: skip

    batch_bytes = 8  # and which results there are

    n_ranks: int
    local_experts: int = 1
    """Expert slots on each rank."""
    _: KW_ONLY
    first_die: int = 0
    """Die of rank 0; rank r is on the r-th die from it."""
    repeats: bool = False
    """A token may choose an expert several times; blocks have room for that."""
    quantized_back: bool = False
    """INT8 by the same rule on the way back (xDeepServe 4.7): what experts return is dequantized where it is added."""

    @property
    def narrowed_by(self) -> int:
        """Return the same for the way back."""
        return 1 + QUANTIZERS[self.quantizer] if self.quantized_back else 0

    @property
    def n_slots(self) -> int:
        """Expert slots of all ranks."""
        return self.n_ranks * self.local_experts

    @property
    def returned_bytes(self) -> int:
        """Return the pitch of rows on the way back: 14,336 bytes at hidden 7168, 7,200 in INT8 with their scale."""
        return contribution_stride(self.hidden, self.narrowed_by)

    @property
    def rows_per_block(self) -> int:
        """Most messages that one rank can have for another: a token's choices are different experts, or may be one."""
        return self.tokens_max * (self.top_k if self.repeats else min(self.top_k, self.local_experts))

    @property
    def rows_max(self) -> int:
        """Most rows that a rank can receive."""
        return self.n_ranks * self.rows_per_block

    @property
    def counts_bytes(self) -> int:
        """The counts of those rows, by expert and source."""
        return align(4 * self.n_slots)


def check_pod(config: EpConfig, pod: Pod, managed_offset: int, field_offset: int) -> tuple[int, int]:
    """The offsets; ConfigError if the pod has too few dies or cores, or one of them is no place for a region."""
    spec = pod.spec
    if config.first_die < 0 or config.first_die + config.n_ranks > spec.n_dies:
        raise ConfigError(f"n_ranks={config.n_ranks} from die {config.first_die}: the pod has {spec.n_dies} dies")
    if config.cores > spec.cores_per_die:
        raise ConfigError("cores", config.cores, f"a die has {spec.cores_per_die}")
    return offset_in_area("managed_offset", managed_offset), offset_in_area("field_offset", field_offset)


def messages_at(config: TokenConfig) -> int:
    """Return where the data buffer of dispatch has room for messages, after the choices or the sums of tallies."""
    whole = choice_at(config.tokens_max, 0, config.n_slots)
    return streamed_work_at(config.n_slots) if config.streams else whole


def fit_half(ub_bytes: int, before: int, nbytes: int) -> int:
    """Return how many things of ``nbytes`` bytes fit a half of a data buffer after what is ``before`` them."""
    return (ub_bytes - before) // 2 // nbytes


def buffer_bytes(config: EpConfig) -> int:
    """Return the least size of a core's data buffer that the kernels need."""
    dispatch = messages_at(config) + max(config.sending_bytes, 8 * config.n_slots)
    laid_out = 2 * config.row_bytes + (2 * config.returned_bytes if config.quantized_back else 0)
    combine = work_at(config.n_slots) + max(laid_out, sum_bytes(config.hidden, config.narrowed_by))
    return max(dispatch, combine, expert_bytes(config.hidden))


def check_tokens(config: TokenConfig, rank: int, x: NDArray[Any], topk: NDArray[np.int32]) -> None:
    """Raises ConfigError, naming rank, token and value, for a batch that the group cannot dispatch."""
    columns = config.opaque_bytes or config.hidden
    if x.ndim != 2 or x.shape[1] != columns or x.dtype != config.token_dtype():
        must = f"[tokens, {columns}] {'uint8' if config.opaque_bytes else config.dtype}"
        raise ConfigError(f"tokens of rank {rank}: {list(x.shape)} {x.dtype}, must be {must}")
    if len(x) > config.tokens_max:
        raise ConfigError(f"tokens of rank {rank}: {len(x)} exceed tokens_max={config.tokens_max}")
    check_choices(f"topk of rank {rank}", topk, (len(x), config.top_k), config.n_slots, config.repeats)
    if config.quantized:
        check_finite(config, f"tokens of rank {rank}, token", x)


def check_weights(config: TokenConfig, what: str, weights: Any, n_tokens: int) -> None:
    """Raises ConfigError, saying what they are, for gate weights of the wrong shape or type."""
    shaped(what, weights, (n_tokens, config.top_k), np.float32)


def check_choices(
    what: str, topk: Any, shape: tuple[int, int], n_slots: int, repeats: bool = False
) -> NDArray[np.integer[Any]]:
    """Return choices; ConfigError, naming the token, for a wrong shape, type or slot, or one chosen twice."""
    array = as_array(what, topk)
    if array.shape != shape or not np.issubdtype(array.dtype, np.integer):
        raise ConfigError(f"{what}: {list(array.shape)} {array.dtype}, must be {list(shape)} integers")
    bad = np.argwhere((array < -1) | (array >= n_slots))
    if len(bad):
        token, choice = bad[0]
        raise ConfigError(f"{what}, token {token}: {array[token, choice]} must be -1 or a slot below {n_slots}")
    ordered = np.sort(array, axis=1)
    twice = np.argwhere((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0))
    if len(twice) and not repeats:
        token, at = twice[0]
        chosen = f"{what}, token {token}: expert slot {ordered[token, at]} is chosen twice"
        raise ConfigError(f"{chosen}; the group was not made for repeats")
    return array


def check_finite(config: TokenConfig, what: str, x: NDArray[Any]) -> None:
    """Raises ConfigError, with number and column after what rows they are, for a NaN or infinity among them."""
    exponent = 0x7F80 if config.dtype == "bf16" else 0x7C00
    bits = x.view(np.uint16) & exponent
    if bits.size and bits.max() == exponent:
        row, column = np.argwhere(bits == exponent)[0]
        raise ConfigError(f"{what} {row}, column {column}: {x[row, column]} cannot be quantized")
