"""FusedDispatch and FusedCombine for users: an expert-parallel group whose ranks write to each other.

group = FusedExpertParallel(pod, FusedConfig(n_ranks=4, top_k=2, hidden=128))
received = group.dispatch(tokens, topk)
...                                      # experts: group.run_dummy(), or write into group.expert_output(rank)
outputs = group.combine(weights)

Several rounds in one run: `FusedExpertParallel(pod, config, rounds=3).run_rounds(tokens, topk, weights)`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels.common import ROWS
from xccl_emu.kernels.experts.counts import FIELD_BYTES, INDEX_BYTES, work_at
from xccl_emu.kernels.experts.dummy import expert_bytes
from xccl_emu.kernels.experts.messages import ROUTE_BYTES, SLOT_BYTES, message_at
from xccl_emu.kernels.experts.sums import sum_bytes
from xccl_emu.kernels.fused import combine as combine_kernel
from xccl_emu.kernels.fused import dispatch as dispatch_kernel
from xccl_emu.kernels.fused.combine import LISTED_BYTES, buffer_at
from xccl_emu.kernels.fused.parameters import Fused
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.protocol import Region
from xccl_emu.protocols.experts.config import EpConfig, fit_half, messages_at
from xccl_emu.protocols.experts.group import Args, ExpertGroup, Phase
from xccl_emu.protocols.experts.layout import COMBINE, DISPATCH, GroupLayout

_PARITIES = ("even", "odd")
"""Names of even and odd rounds."""


@dataclass(frozen=True)
class FusedConfig(EpConfig):
    """An expert-parallel group whose ranks write into each other's buffers (CloudMatrix384 4.2.1).

    The four optimizations, and the double buffer, can be switched off each on its own; the results stay the same.
    """

    PATHS: ClassVar[tuple[str, ...]] = ("aiv", "sdma")
    position_bytes = 0  # the place of a contribution follows from token and choice

    _: KW_ONLY
    path: str = "aiv"
    """``"aiv"``: cores write to the peers themselves; ``"sdma"``: the DMA engine does."""
    early_quantization: bool = True
    """INT8 on the wire; else messages travel as they are and their receiver quantizes them."""
    preallocated: bool = True
    """A region for each source; else counts are exchanged first, and the messages lie packed."""
    pipelined: bool = True
    """The next token is loaded and quantized while one is written."""
    double_buffered: bool = True
    """Messages and contributions have buffers of their own; in one that they share they overwrite each other."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.quantized_back:
            raise ConfigError("quantized_back", True, "FusedCombine sends what experts return as it is")
        if self.top_k > self.n_slots and not self.repeats:
            raise ConfigError("top_k", self.top_k, f"there are {self.n_slots} expert slots")

    @property
    def wire_bytes(self) -> int:
        """A token's payload on its way."""
        return self.hidden if self.quantized and self.early_quantization else 2 * self.hidden

    @property
    def message_bytes(self) -> int:
        """A token on its way: 7,680 bytes at hidden 7168 in INT8."""
        return self.wire_bytes + SLOT_BYTES

    @property
    def max_tokens(self) -> int:
        """Most messages that a rank may send to one peer, Eq. (2); with ``repeats`` all of a token's choices."""
        return self.rows_per_block

    @property
    def dispatch_buffer_bytes(self) -> int:
        """Messages from all ranks, Eq. (1)."""
        return self.n_ranks * self.max_tokens * self.message_bytes

    @property
    def combine_buffer_bytes(self) -> int:
        """Contributions from all ranks, Eq. (1)."""
        return self.n_ranks * self.max_tokens * self.row_bytes


def inbound_bytes(config: FusedConfig) -> int:
    """Bytes of the data buffer that a message takes while it is brought into order."""
    late = config.quantized and not config.early_quantization
    return config.message_bytes + (config.payload_bytes + ROUTE_BYTES if late else 0)


def fused_buffer_bytes(config: FusedConfig) -> int:
    """Return the least size of a core's data buffer that the kernels need."""
    c = config
    send = message_at(2, c.hidden, c.wire_bytes, int(c.quantized and c.early_quantization), 0)
    dispatch = messages_at(c) + max(send, c.n_slots * FIELD_BYTES + 2 * inbound_bytes(c))
    combine = max(work_at(c.n_slots) + sum_bytes(c.hidden), buffer_at(ROWS, c.hidden, c.n_slots) + LISTED_BYTES)
    return max(dispatch, combine, expert_bytes(c.hidden))


class FusedLayout(GroupLayout[FusedConfig]):
    """Layout of a group whose ranks write to each other."""

    ub_bytes = staticmethod(fused_buffer_bytes)
    sets: ClassVar[int] = 1
    """Sets of places for contributions, with what has arrived and is due of them."""
    staging: Region | None = None
    """Messages on their way to the DMA engine."""
    exchange: Region | None = None
    """Without allocation in advance: what was asked for, and what was granted, by parity of the round and rank."""

    def _add_all(self) -> None:
        c = self.config
        rows = c.n_ranks * c.max_tokens
        self.dispatch = self.managed("dispatch_buffer", c.message_bytes, rows, self._messages)
        over = None if c.double_buffered else self.dispatch
        self.combine = self.managed("combine_buffer", c.row_bytes, self.sets * rows, self._contributions, over)
        if c.path == "sdma":
            self.staging = self.managed("staging", c.message_bytes, c.cores * c.top_k, self._staged)
        self._add_tallies()
        self.fields = self.meta("meta.counts", FIELD_BYTES, 2 * c.n_slots, self._counts)
        if not c.preallocated:
            self.exchange = self.meta("meta.", FIELD_BYTES, 4 * c.n_ranks, self._exchanged)
        self.arrivals, self.due = (
            self.meta(f"meta.{name}", FIELD_BYTES, self.sets * c.tokens_max, self._tokens)
            for name in ("arrivals", "due")
        )

    # ---- names in reports

    def _messages(self, rank: int) -> Iterator[tuple[str, int]]:
        c = self.config
        for i in range(c.n_ranks * c.max_tokens):
            what = f"[{i // c.max_tokens}→{rank}].message{i % c.max_tokens}" if c.preallocated else f".message{i}"
            yield what, c.message_bytes
        if not c.double_buffered and c.combine_buffer_bytes > c.dispatch_buffer_bytes:
            yield ".rest", c.combine_buffer_bytes - c.dispatch_buffer_bytes

    def _contributions(self, rank: int) -> Iterator[tuple[str, int]]:
        """In a buffer that both share, places go by the names of messages."""
        c = self.config
        rows = c.tokens_max * c.top_k
        for again in [i * ".again" for i in range(self.sets)] if c.double_buffered else ():
            yield from ((f".token{i // c.top_k}.choice{i % c.top_k}{again}", c.row_bytes) for i in range(rows))
            if c.combine_buffer_bytes > rows * c.row_bytes:
                yield f".spare{again}", c.combine_buffer_bytes - rows * c.row_bytes

    def _staged(self, rank: int) -> Iterator[tuple[str, int]]:
        c = self.config
        return ((f".core{i // c.top_k}.choice{i % c.top_k}", c.message_bytes) for i in range(c.cores * c.top_k))

    def _counts(self, rank: int) -> Iterator[tuple[str, int]]:
        return ((f"{name}.{parity}", nbytes) for parity in _PARITIES for name, nbytes in self._by_expert(rank))

    def _exchanged(self, rank: int) -> Iterator[tuple[str, int]]:
        for kind in ("asked", "granted"):
            for parity in _PARITIES:
                yield from ((f"{kind}{source}.{parity}", nbytes) for source, nbytes in self._sources(rank))

    def _tokens(self, rank: int) -> Iterator[tuple[str, int]]:
        n = self.config.tokens_max
        return ((f".token{t % n}{t // n * '.again'}", FIELD_BYTES) for t in range(self.sets * n))


assert INDEX_BYTES % 32 == 0  # rows of the table of choices are whole granules


class FusedExpertParallel(ExpertGroup[FusedConfig]):
    """An expert-parallel group: FusedDispatch, a dummy expert, FusedCombine (CloudMatrix384 4.2.1).

    `FusedConfig` has the sizes; shapes and types are at `dispatch` and `combine`.

    >>> import ml_dtypes, numpy as np, xccl_emu as xe
    >>> group = xe.FusedExpertParallel(xe.Pod(xe.small_pod(2)), n_ranks=2, hidden=64, top_k=1, tokens_max=4)
    >>> x, expert = np.ones((1, 64), ml_dtypes.bfloat16), np.array([[1]])
    >>> out = group.layer([x, x], [expert, expert], [np.ones((1, 1), np.float32)] * 2)
    >>> [float(rank[0, 0]) for rank in out]  # expert 1 makes 1.125 of a one
    [1.125, 1.125]
    """

    dispatches = Phase(DISPATCH, dispatch_kernel.fused_dispatch)
    combines = Phase(COMBINE, combine_kernel.fused_combine)
    lays_out = FusedLayout
    layout: FusedLayout
    kind = FusedConfig

    def __init__(self, pod: Pod, config: FusedConfig | None = None, **more: Any) -> None:
        super().__init__(pod, config, **more)
        self._choices_committed = [0] * self.config.n_ranks

    def next_dispatch(self) -> int:
        """Event ID of the next dispatch: one more than rank 0 last wrote to itself, in either table."""
        c = self.config
        fields = [self.layout.fields.at(c.first_die, parity * c.n_slots) for parity in range(2)]
        return 1 + max(int(self.pod.span(field, 8).view(np.int64)[0]) for field in fields)

    def areas(self) -> Fused:
        """Return the places that the protocol uses, and the optimizations that are on."""
        c, layout, first = self.config, self.layout, self.layout.first
        ub_bytes, work = self.pod.spec.ub_bytes, messages_at(c)
        return Fused(
            dispatch=first(layout.dispatch, tables=int(c.preallocated)),  # messages that are packed go anywhere
            combine=first(layout.combine, tables=0),
            region=c.max_tokens,
            fields=first(layout.fields, tables=2),
            arrivals=first(layout.arrivals, tables=0),
            due=first(layout.due),
            staging=first(layout.staging),
            work=work,
            room=fit_half(ub_bytes, work + c.n_slots * FIELD_BYTES, inbound_bytes(c)),
            list_room=(ub_bytes - buffer_at(ROWS, c.hidden, c.n_slots)) // LISTED_BYTES,
            wire=c.wire_bytes,
            exchange=first(layout.exchange, tables=4),
            sdma=int(c.path == "sdma"),
            pipelined=int(c.pipelined),
        )

    def _commit_rows(self, topk: Sequence[NDArray[Any]], number: int) -> None:
        """Commit the combine buffers too: contributions lie close together, by token and choice."""
        super()._commit_rows(topk, number)
        for rank, choices in enumerate(topk):
            if choices.size > self._choices_committed[rank]:
                nbytes = choices.size * self.config.row_bytes
                start = self.layout.combine.at(self.die_of(rank))
                self.pod.commit(Buffer(self.die_of(rank), start, nbytes), nbytes)
                self._choices_committed[rank] = choices.size

    def _all_places(self) -> Args:
        return {"f": self.areas()}

    def _places(self, phase: Phase, ahead: int) -> Args:
        return {"event": self.next_dispatch() + ahead, "f": self.areas()}
