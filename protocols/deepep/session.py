"""[DeepEP]'s low-latency mode for users: an expert-parallel group whose calls take two buffer sets in turn.

group = DeepEp(pod, DeepEpConfig(n_ranks=4, top_k=2, hidden=128))
received = group.dispatch(tokens, topk)
...                                      # experts: group.run_dummy(), or write into group.expert_output(rank)
outputs = group.combine(weights)

Several rounds in one run: `DeepEp(pod, config, rounds=3).run_rounds(tokens, topk, weights)`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels.common import ROWS
from xccl_emu.kernels.deepep import combine as combine_kernel
from xccl_emu.kernels.deepep import dispatch as dispatch_kernel
from xccl_emu.kernels.deepep.dispatch import SETS, SIGNAL_BYTES
from xccl_emu.kernels.deepep.parameters import Sets
from xccl_emu.kernels.experts.counts import work_at
from xccl_emu.kernels.experts.sums import sum_bytes
from xccl_emu.lang import FP8_BLOCK
from xccl_emu.protocols.experts.config import QUANTIZERS, EpConfig, buffer_bytes, fit_half, messages_at
from xccl_emu.protocols.experts.group import DUMMY, Args, ExpertGroup, Phase, PhaseOfRound
from xccl_emu.protocols.experts.layout import COMBINE, DISPATCH, GroupLayout


@dataclass(frozen=True)
class DeepEpConfig(EpConfig):
    """An expert-parallel group in DeepEP's low-latency mode; ConfigError for what this mode has not."""

    PATHS: ClassVar[tuple[str, ...]] = ("mtu",)
    COUNTINGS: ClassVar[tuple[str, ...]] = ("auto",)
    RULES: ClassVar[tuple[str, ...]] = tuple(QUANTIZERS)
    RANGES: ClassVar[Mapping[str, tuple[int, int]]] = {**EpConfig.RANGES, "opaque_bytes": (0, 1 << 22)}
    position_bytes = 0  # the place of a contribution follows from token and choice
    batch_bytes = 16  # and the number of the dispatch, by which handles know it

    _: KW_ONLY
    opaque_bytes: int = 0
    """Bytes of a token that travels to the experts as it is, whatever its type (one that is quantized already, its
    scales after it), a multiple of 32; 0 where it is a hidden state.  Experts return hidden states all the same."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.opaque_bytes % 32 or (self.opaque_bytes and self.quantized):
            raise ConfigError("opaque_bytes", self.opaque_bytes, "must be a multiple of 32, and quantized=False")
        if self.quantized_back:
            raise ConfigError("quantized_back", True, "combine sends what experts return as it is")

    @property
    def streams(self) -> bool:
        """A core counts what it sends, and sees the choices of all tokens at once."""
        return False

    @property
    def slots(self) -> int:
        """Most messages of a rank for an expert."""
        return self.tokens_max * (self.top_k if self.repeats else 1)

    @property
    def set_bytes(self) -> int:
        """Data of a buffer set: messages by source and expert, or contributions by token and choice."""
        messages = self.n_slots * self.slots * self.message_bytes
        return max(messages, self.tokens_max * self.top_k * self.row_bytes)


def size_hint(tokens: int, hidden: int, experts: int) -> int:
    """Bytes as `get_low_latency_rdma_size_hint` of [DeepEP] has them: two sets of what is sent, received and counted.

    tokens: most of a rank; experts: of all ranks.
    """
    scales, messages = 4 * (hidden // FP8_BLOCK), experts * tokens
    dispatched, combined = 16 + max(2 * hidden, hidden + scales), scales + 2 * hidden
    sent, received = max(tokens * dispatched, messages * combined), messages * max(dispatched, combined)
    return (2 * (sent + received + -(-4 * experts // 128) * 128) + 128) // 128 * 128


def deepep_buffer_bytes(config: DeepEpConfig) -> int:
    """Return the least size of a core's data buffer that the kernels need."""
    c = config
    rows = combine_kernel.rows_at(c.slots, c.n_slots) + ROWS * c.row_bytes
    return max(buffer_bytes(c), rows, work_at(c.n_slots) + sum_bytes(c.hidden))


class DeepEpLayout(GroupLayout[DeepEpConfig]):
    """Buffer sets, in turn."""

    ub_bytes = staticmethod(deepep_buffer_bytes)

    def _add_all(self) -> None:
        c = self.config
        self.data = self.managed("set", c.set_bytes, SETS, self._blocks)
        self.signals = [self.meta(f"set{i}", c.n_slots * SIGNAL_BYTES, parts=self._signals) for i in range(SETS)]

    def _signals(self, rank: int) -> Iterator[tuple[str, int]]:
        """Name the signals by who writes them."""
        return ((f".signal{name}", nbytes) for name, nbytes in self._by_expert(rank, SIGNAL_BYTES))

    def _blocks(self, rank: int) -> Iterator[tuple[str, int]]:
        """Likewise; contributions lie in them, too."""
        c = self.config
        block = c.slots * c.message_bytes
        for i in range(SETS):
            yield from ((f"{i}.block{name}", nbytes) for name, nbytes in self._by_expert(rank, block))
            if c.set_bytes > c.n_slots * block:
                yield f"{i}.rest", c.set_bytes - c.n_slots * block


class DeepEp(ExpertGroup[DeepEpConfig]):
    """An expert-parallel group: dispatch, a dummy expert, combine, as in DeepEP's low-latency mode."""

    dispatches = Phase(DISPATCH, dispatch_kernel.deepep_dispatch)
    combines = Phase(COMBINE, combine_kernel.deepep_combine)
    sends = Phase(DISPATCH, dispatch_kernel.send_dispatch)
    receives = Phase(DISPATCH, dispatch_kernel.receive_dispatch)
    sends_back = Phase(COMBINE, combine_kernel.send_combine)
    receives_back = Phase(COMBINE, combine_kernel.receive_combine)
    """The phases of these two, for users who do something in between."""
    kind = DeepEpConfig
    lays_out = DeepEpLayout
    layout: DeepEpLayout

    def next_dispatch(self) -> int:
        """Number of the next call, be it dispatch or combine: 1 or 2, since it takes the set that is clean."""
        signal = self.layout.first(self.layout.signals[1])
        return 1 + int(self.pod.span(signal, SIGNAL_BYTES).view(np.int64)[0] != 0)

    def sets(self) -> Sets:
        """Return the places of the buffer sets."""
        c, signals, data, work = self.config, self.layout.signals[0], self.layout.data, messages_at(self.config)
        return Sets(
            signals=self.layout.first(*self.layout.signals),
            signals_step=signals.step,
            data=self.layout.first(data, tables=0),
            data_step=data.step,
            slots=c.slots,
            work=work,
            room=fit_half(self.pod.spec.ub_bytes, work, c.message_bytes),
        )

    def _places(self, phase: Phase, ahead: int) -> Args:
        return {"call": self.next_dispatch() + ahead, "s": self.sets(), "stats": 0}

    def steps(self, rounds: int) -> Iterator[PhaseOfRound]:
        """Both calls of a round take a buffer set."""
        for i in range(rounds):
            yield from (
                PhaseOfRound(self.dispatches, i, 2 * i),
                PhaseOfRound(DUMMY, i),
                PhaseOfRound(self.combines, i, 2 * i + 1),
            )


class Hooked(DeepEp):
    """The same with receive hooks, two rounds side by side, as DeepEP's users run two microbatches: between the send
    and the receive phase of a call of one round the expert of the other computes.

    Each call is received before the next one is sent.  If their number is odd the last round goes alone.
    """

    def steps(self, rounds: int) -> Iterator[PhaseOfRound]:
        """Two rounds at a time."""
        call = -1
        for pair in range(0, rounds, 2):
            for phase, which in (
                (self.sends, 0), (self.receives, 0), (self.sends, 1), (DUMMY, 0), (self.receives, 1),
                (self.sends_back, 0), (DUMMY, 1), (self.receives_back, 0), (self.sends_back, 1),
                (self.receives_back, 1),
            ):  # fmt: skip
                if pair + which < rounds:
                    call += phase in (self.sends, self.sends_back)
                    yield PhaseOfRound(phase, pair + which, call)
