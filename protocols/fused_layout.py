"""FusedDispatch and FusedCombine: configuration, and where they keep what in the areas of each die."""

from dataclasses import dataclass
from typing import ClassVar

from xccl_emu.errors import ConfigError
from xccl_emu.kernels.counts import FIELD_BYTES, INDEX_BYTES, work_at
from xccl_emu.kernels.dispatch import ROUTE_BYTES, SLOT_BYTES
from xccl_emu.kernels.fused_combine import BUFFERS, LISTED_BYTES, buffer_at
from xccl_emu.kernels.sums import sum_bytes
from xccl_emu.machine.launch import Grant
from xccl_emu.machine.pod import Pod
from xccl_emu.protocols.grants import GroupGrants
from xccl_emu.protocols.layout import EpConfig, check_fits, check_pod, messages_at, stack


@dataclass(frozen=True)
class FusedConfig(EpConfig):
    """An expert-parallel group whose ranks write into each other's buffers (CloudMatrix384 4.2.1).

    The four optimizations, and the double buffer, can be switched off each on its own; the results stay the same.
    """

    PATHS: ClassVar[tuple[str, ...]] = ("aiv", "sdma")

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
        for name in ("early_quantization", "preallocated", "pipelined", "double_buffered"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name}={getattr(self, name)!r}: must be True or False")
        if self.quantized_back:
            raise ConfigError("quantized_back=True: FusedCombine sends what experts return as it is")
        if self.top_k > self.n_slots and not self.repeats:
            raise ConfigError(f"top_k={self.top_k}: there are {self.n_slots} expert slots")

    @property
    def wire_bytes(self) -> int:
        """A token's payload on its way."""
        return self.hidden if self.quantized and self.early_quantization else 2 * self.hidden

    @property
    def message_bytes(self) -> int:
        """A token on its way: 7,680 bytes at hidden 7168 in INT8."""
        return self.wire_bytes + SLOT_BYTES

    @property
    def position_bytes(self) -> int:
        """No table of positions: the place of a contribution follows from token and choice."""
        return 0

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


@dataclass(frozen=True)
class FusedLayout:
    """Offsets of the group's regions in each die; made by `lay_out_fused`."""

    dispatch: int
    combine: int
    staging: int
    tallies: int
    managed_end: int
    fields: int
    """Counts, of even and odd rounds."""
    exchange: int
    arrivals: int
    due: int
    meta_end: int

    @property
    def meta_start(self) -> int:
        """The first field."""
        return self.fields


def lay_out_fused(config: FusedConfig, pod: Pod, managed_offset: int = 0, field_offset: int = 0) -> FusedLayout:
    """Place the group's regions behind what other communicators use; offsets are bytes in the areas.

    Raises ConfigError if the pod has too few dies or cores, CapacityError if an area or the data buffer is too small.
    """
    managed_offset, field_offset = check_pod(config, pod, managed_offset, field_offset)
    c = config
    staging = c.cores * c.top_k * c.message_bytes if c.path == "sdma" else 0
    if c.double_buffered:
        managed = stack(managed_offset, c.dispatch_buffer_bytes, c.combine_buffer_bytes, staging, c.tallies_bytes)
    else:
        both = max(c.dispatch_buffer_bytes, c.combine_buffer_bytes)
        managed = [managed_offset, *stack(managed_offset, both, staging, c.tallies_bytes)]
    exchange = 0 if c.preallocated else 4 * c.n_ranks
    meta = stack(field_offset, *(n * FIELD_BYTES for n in (2 * c.n_slots, exchange, c.tokens_max, c.tokens_max)))
    layout = FusedLayout(*managed, *meta)
    check_fits("managed data area", layout.managed_end, pod.spec.managed_bytes)
    check_fits("metadata area", layout.meta_end, pod.spec.meta_bytes)
    check_fits("data buffer (ub_bytes)", fused_buffer_bytes(c), pod.spec.ub_bytes)
    return layout


def inbound_bytes(config: FusedConfig) -> int:
    """What a message takes of the data buffer while it is brought into order."""
    late = config.quantized and not config.early_quantization
    return config.message_bytes + (config.payload_bytes + ROUTE_BYTES if late else 0)


def fused_buffer_bytes(config: FusedConfig) -> int:
    """What the kernels need of a core's data buffer at least."""
    c = config
    send = 2 * c.message_bytes + (4 * c.hidden if c.quantized and c.early_quantization else 0)
    dispatch = messages_at(c) + max(send, c.n_slots * FIELD_BYTES + 2 * inbound_bytes(c))
    combine = max(work_at(c.n_slots) + sum_bytes(c.hidden), buffer_at(BUFFERS, c.hidden, c.n_slots) + LISTED_BYTES)
    return max(dispatch, combine, 12 * c.hidden + 2 * ROUTE_BYTES)


class FusedGrants(GroupGrants[FusedLayout]):
    """What dispatch and combine may touch in the managed and metadata areas: no more than they need."""

    config: FusedConfig

    def dispatch(self, rank: int) -> list[Grant]:
        """What a rank's dispatch may touch."""
        c, layout = self.config, self.layout
        tables = [(layout.fields + parity * c.n_slots * FIELD_BYTES, c.local_experts) for parity in range(2)]
        if not c.preallocated:
            tables += [(layout.exchange + i * c.n_ranks * FIELD_BYTES, 1) for i in range(4)]
        region = c.max_tokens * c.message_bytes
        mine = (rank * region, region) if c.preallocated else (0, c.dispatch_buffer_bytes)
        return [
            *(grant for offset, each in tables for grant in self._fields(rank, offset, each)),
            self._managed(rank, layout.dispatch, c.dispatch_buffer_bytes, "r"),
            self._managed(None, layout.dispatch + mine[0], mine[1], "w"),
            *self._own(rank, layout.staging, layout.tallies),
            *self._own(rank, layout.tallies, layout.managed_end),
        ]

    def combine(self, rank: int) -> list[Grant]:
        """What a rank's combine may touch: contributions go anywhere in the buffers of all."""
        c, layout = self.config, self.layout
        arrivals = c.tokens_max * FIELD_BYTES
        return [
            self._managed(None, layout.combine, c.combine_buffer_bytes, "w"),
            self._managed(rank, layout.combine, c.combine_buffer_bytes, "r"),
            self._meta(None, layout.arrivals, arrivals, "w"),
            self._meta(rank, layout.arrivals, arrivals, "r"),
            self._meta(rank, layout.due, arrivals, "rw"),
        ]


assert INDEX_BYTES % 32 == 0  # rows of the table of choices are whole granules
