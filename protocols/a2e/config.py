"""What A2E and E2A are made of, and what they keep where in the data buffers ([xDeepServe] 3.3, 5.2)."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels.a2e.expert import counts_bytes
from xccl_emu.kernels.a2e.parameters import (
    Domains,
    ReturnPlan,
    attention_die,
    first_of,
    microbatch_of,
    trampoline_of,
)
from xccl_emu.kernels.a2e.trampoline import lists_at
from xccl_emu.kernels.common import ROWS
from xccl_emu.kernels.experts.counts import INDEX_BYTES
from xccl_emu.kernels.experts.dummy import BUSY_ENTRIES, expert_bytes
from xccl_emu.kernels.experts.sums import sum_bytes
from xccl_emu.kernels.group import align
from xccl_emu.protocols.experts.config import TokenConfig, fit_half
from xccl_emu.protocols.experts.layout import OF_ROWS

DEPTH_MAX = 8
PARTS_MAX = 16


@dataclass(frozen=True)
class A2EConfig(TokenConfig):
    """Attention and expert dies, and the shape of what moves between them (xDeepServe 3.3, 5.2).

    Expert dies come first: expert die e is on the e-th die from ``first_die``, and attention die i of domain d on die
    ``n_experts + d * n_attention + i`` from there.  The first ``trampolines`` expert dies are trampolines, with as many
    attention dies in a row each, but for one.  Experts are numbered by slot, ``die * local_experts + local``.
    """

    PATHS = ("mtu", "urma")
    """Memory semantics, through the data buffers; or the cores ring the DMA engine."""
    RANGES: ClassVar[Mapping[str, tuple[int, int]]] = {
        **TokenConfig.RANGES, **dict.fromkeys(("attention_work", "expert_work"), (0, 1 << 20)),
        **dict.fromkeys(("n_domains", "n_attention", "n_experts"), (1, 1 << 16)),
        **dict.fromkeys(("microbatches", "local_experts", "tokens_max"), (1, 1 << 16)),
        **dict.fromkeys(("n_trampolines", "listed"), (0, 1 << 16)), "depth": (1, DEPTH_MAX),
        **dict.fromkeys(("a2e_parts", "e2a_parts"), (1, PARTS_MAX)),
        **dict.fromkeys(("a2e_cores", "compute_cores", "e2a_cores"), (1, 1 << 10)),
    }  # fmt: skip

    n_domains: int
    """Domains of attention dies; their microbatches take turns."""
    n_attention: int
    """Attention dies of each domain."""
    n_experts: int
    """Expert dies."""
    local_experts: int = 1
    """Expert slots on each expert die."""
    _: KW_ONLY
    tokens_max: int = 96
    """Largest microbatch of an attention die."""
    depth: int = 2
    """Calls that an expert die has memory for, 1 to 8; with 1, a call has left it before the next one's rows enter."""
    a2e_cores: int = 1
    """Cores of the A2E stream of an expert die; of the others likewise."""
    compute_cores: int = 1
    e2a_cores: int = 1
    n_trampolines: int = 0
    """Not more than attention or expert dies; 0 is as many as attention dies."""
    a2e_parts: int = 1
    """Parts, 1 to 16, in which a batch goes to the experts, a trampoline forwarding one while the next arrives."""
    e2a_parts: int = 1
    """The same of the way back; from 2 on, half of several cores of an E2A stream forward and do nothing else."""
    microbatches: int = 1
    """Microbatches of each domain, each on ``cores`` cores of its own: while one is away, another one computes."""
    attention_work: int = 0
    """Vector instructions of `BUSY_ENTRIES` that stand in for attention, before each call."""
    expert_work: int = 0
    """The same on each core of the compute stream, after the dummy expert."""
    listed: int = 0
    """Tokens whose choices a core of a trampoline has in its data buffer at most where they are streamed; 0: as fit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_trampolines()
        if self.top_k > self.n_slots:
            raise ConfigError("top_k", self.top_k, f"there are {self.n_slots} expert slots")

    def _check_trampolines(self) -> None:
        name = "n_trampolines" if self.n_trampolines else "n_attention"
        for most in ("n_attention", "n_experts"):
            if getattr(self, name) > getattr(self, most):
                raise ConfigError(name, getattr(self, name), f"must be at most {most}={getattr(self, most)}")

    @property
    def n_dies(self) -> int:
        """Dies that take part."""
        return self.n_experts + self.n_domains * self.n_attention

    @property
    def turns(self) -> int:
        """Microbatches of all domains; call c is of domain ``c % turns % n_domains``."""
        return self.n_domains * self.microbatches

    def microbatch_of(self, call: int) -> int:
        """Return which microbatch of its domain a call moves."""
        return microbatch_of(call, self.turns, self.n_domains)

    @property
    def expert_cores(self) -> int:
        """Cores used on an expert die."""
        return self.a2e_cores + self.compute_cores + self.e2a_cores

    @property
    def n_slots(self) -> int:
        """Expert slots of all expert dies."""
        return self.n_experts * self.local_experts

    @property
    def rows_max(self) -> int:
        """Most rows that an expert die can have of a call: a token's choices are different experts."""
        return self.n_attention * self.tokens_max * min(self.top_k, self.local_experts)

    @property
    def trampolines(self) -> int:
        """Return the number of trampolines."""
        return self.n_trampolines or self.n_attention

    @property
    def fan_in(self) -> int:
        """Attention dies of a domain that a trampoline has at most."""
        return -(-self.n_attention // self.trampolines)

    @property
    def counts_bytes(self) -> int:
        """The counts of a call on an expert die."""
        return counts_bytes(self.n_attention, self.local_experts)

    @property
    def calls_kept(self) -> Mapping[str, int]:
        """Return for how many calls an expert die has each of its app buffers."""
        return {**dict.fromkeys(OF_ROWS, self.depth), "counts": self.depth + 1}

    def attention_die(self, call: int, i: int) -> int:
        """The i-th attention die of the domain that has a call, counted from the first die."""
        return attention_die(call, i, self.turns, self.n_domains, self.n_attention, self.n_experts)

    def trampoline_of(self, i: int) -> tuple[int, int]:
        """The trampoline of the i-th attention die of a domain, and the die's number on that trampoline."""
        trampoline = trampoline_of(i, self.n_attention, self.trampolines)
        return trampoline, i - first_of(trampoline, self.n_attention, self.trampolines)

    def domains(self, ub_bytes: int) -> Domains:
        """Return what else a kernel has to know, on a pod with such data buffers."""
        relays = self.e2a_cores // 2 if self.e2a_parts > 1 else 0
        return Domains(
            self.turns, self.n_domains, self.n_attention, self.trampolines, self.fan_in, self.a2e_parts, self.e2a_parts,
            self.e2a_cores - relays, relays or self.e2a_cores, self.tokens_max, self.depth, self.rows_max,
            listed=lists_that_fit(self, self.tokens_max, ub_bytes - lists_of(self) - 2 * self.message_bytes),
            room=max(1, fit_half(ub_bytes, self.counts_bytes, self.message_bytes)),
            attention_work=self.attention_work, expert_work=self.expert_work,
        )  # fmt: skip


def lists_that_fit(c: A2EConfig, tokens: int, nbytes: int) -> int:
    """Return how many of the tokens whose choices are wanted have room in ``nbytes``; all if they are not streamed."""
    return min(tokens, c.listed or tokens, max(1, nbytes // INDEX_BYTES)) if c.streams else tokens


def lists_of(c: A2EConfig) -> int:
    """Return where in the data buffer of an A2E stream the lists begin."""
    return lists_at(c.n_slots, c.fan_in, int(c.streams))


def return_plan(c: A2EConfig, ub_bytes: int) -> ReturnPlan:
    """Lay out the E2A stream's part of a data buffer of that size, or as little as it needs of a smaller one."""
    counts = align(4 * c.depth * c.fan_in * c.e2a_parts)
    done = counts + c.counts_bytes
    sent = done + 2 * c.counts_bytes
    lists = sent + align(4 * c.n_attention) + 32
    listed = lists_that_fit(c, c.tokens_max // c.e2a_parts + 1, ub_bytes - lists - ROWS * c.row_bytes)
    return ReturnPlan(counts, done, sent, lists, lists + listed * INDEX_BYTES, listed)


def buffer_bytes(c: A2EConfig) -> int:
    """Return the least size of a core's data buffer that the kernels need."""
    busy = 4 * BUSY_ENTRIES + 32
    compute = max(expert_bytes(c.hidden) + (busy if c.expert_work else 0), c.counts_bytes)
    lists = lists_of(c) + c.domains(0).listed * INDEX_BYTES
    forward = max(lists, c.counts_bytes) + 2 * c.message_bytes
    attend, back = busy if c.attention_work else 0, return_plan(c, 0).work + ROWS * c.row_bytes
    return max(attend, c.sending_bytes, sum_bytes(c.hidden), compute, forward, back)
