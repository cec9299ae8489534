"""Closed forms: what an operator takes, as a sum of stages, in microseconds of arithmetic and without running anything.

They say the same as the timed run where nothing but the stages counts: loads that are balanced, ranks that start
together, batches that fill the cores.  There they claim to be within `CLAIMED_PERCENT`; tests hold them to it.  What
queues do when loads are uneven, only the run shows.

Each function returns its stages by name, in order; their sum is the latency of the kernels, without launch and skew.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from xccl_emu.kernels.experts.counts import COLUMNS, FIELD_BYTES
from xccl_emu.kernels.experts.messages import SLOT_BYTES
from xccl_emu.kernels.experts.sums import LOADS
from xccl_emu.papers.bench.mixserve import Prices
from xccl_emu.timing.fabric import OTHER_NODE, SAME_DIE

CLAIMED_PERCENT = 15.0
"""How far from the timed run a closed form may be where it claims to hold."""

Stages = Mapping[str, float]


@dataclass(frozen=True)
class Shape:
    """A balanced layer: ranks on consecutive dies from 0 on, and as many tokens on each."""

    ranks: int
    tokens: int
    """Tokens on each rank."""
    hidden: int = 7168
    choices: int = 9
    """Choices of a token, the shared expert included."""
    local_experts: int = 2
    cores: int = 48

    @property
    def rows(self) -> int:
        """Messages that a rank sends, and rows that it receives."""
        return self.tokens * self.choices

    @property
    def counts(self) -> int:
        """Expert slots of all ranks."""
        return self.ranks * self.local_experts

    @property
    def busiest_tokens(self) -> int:
        """Tokens of the core that has most."""
        return -(-self.tokens // self.cores)


def fused_dispatch(shape: Shape, prices: Prices) -> Stages:
    """FusedDispatch, quantized early, its buffers allocated in advance, pipelined (CloudMatrix384 4.2.1)."""
    s, p = shape, prices
    message, local = s.hidden + SLOT_BYTES, p.latency(SAME_DIE, write=False)
    entries = s.tokens * COLUMNS
    places = p.vector("v_count", entries / 2, s.choices) + p.vector("v_count", entries, s.choices)
    quantize = places + p.vector("v_quantize", s.hidden)
    sent = p.core(message, 1) + p.scalar(13)
    share = -(-s.counts // s.cores)
    rows = -(-s.rows // s.cores)
    return {
        "choices": p.core(4 * entries) + local,
        "first token": p.core(2 * s.hidden) + local + quantize + p.scalar(5 * s.choices),
        "send": max(p.wire(s.rows * message, s.ranks, write=True), s.busiest_tokens * s.choices * sent),
        "visible": p.far(s.ranks, write=True) + p.vector("v_count", entries, 2 * share) + p.barrier(),
        "counts": p.scalar(6 * share) + p.far(s.ranks, write=True) + p.scalar(2 * share) + p.barrier(),
        "table": p.core(s.counts * FIELD_BYTES) + local + p.scalar(2 * s.counts),
        "assemble": local + p.core(rows * (s.hidden + FIELD_BYTES), 2 * rows) + p.core(message),
        "end": p.latency(SAME_DIE, write=True),
    }


def fused_combine(shape: Shape, prices: Prices) -> Stages:
    """FusedCombine (CloudMatrix384 4.2.1): rows to their homes, arrivals, and the sums."""
    s, p = shape, prices
    row, local = 2 * s.hidden, p.latency(SAME_DIE, write=False)
    rows = -(-s.rows // s.cores)
    contributions = s.busiest_tokens * s.choices
    return {
        "counts": p.core(4 * s.counts) + local + p.scalar(s.counts),
        "first row": local + p.core(row) + p.scalar(10),
        "send": max(p.wire(s.rows * row, s.ranks, write=True), rows * (p.core(row) + p.scalar(9))),
        "visible": p.far(s.ranks, write=True),
        "arrivals": p.scalar(3 * rows) + p.far(s.ranks, write=True) + p.poll(),
        "sums": local + contributions * p.core(row) + p.vector("v_axpy", s.hidden) + p.vector("v_narrow", s.hidden),
        "end": p.core(row) + p.latency(SAME_DIE, write=True),
    }


def pull_dispatch(shape: Shape, prices: Prices) -> Stages:
    """Pull dispatch through the data buffer, quantized (xDeepServe 3.2).

    It claims to hold up to 64 ranks: with more, ranks often meet at the same source, and wait for each other.
    """
    s, p = shape, prices
    message, local = s.hidden + SLOT_BYTES, p.latency(SAME_DIE, write=False)
    entries, share, rows = s.tokens * COLUMNS, -(-s.counts // s.cores), -(-s.rows // s.cores)
    places = p.vector("v_count", entries / 2, s.choices) + p.vector("v_count", entries, s.choices)
    made = places + p.vector("v_quantize", s.hidden)
    sent = p.core(message) + p.scalar(12) + p.loads(2)
    out = p.core(s.hidden + FIELD_BYTES, 2)
    turn = max(p.core(message), out, (p.far(s.ranks, write=False) + p.core(message) + out) / 2)  # two halves
    return {
        "choices": p.core(4 * entries) + local,
        "first token": p.core(2 * s.hidden) + local + p.scalar(5 * s.choices) + made,
        "write": s.busiest_tokens * s.choices * sent,
        "visible": p.latency(SAME_DIE, write=True) + p.vector("v_count", entries, 2 * share) + p.barrier(),
        "counts": p.scalar(6 * share) + p.far(s.ranks, write=True) + p.poll() + 3 * p.loads(share) + p.barrier(),
        "table": p.core(4 * s.counts) + local + p.latency(SAME_DIE, write=True) + p.scalar(2 * s.counts),
        "pull": max(p.wire(s.rows * message, s.ranks, write=False), rows * (turn + p.loads(1))),
        "end": p.latency(SAME_DIE, write=True) + p.barrier() + p.scalar(2 * s.ranks / s.cores),
    }


def pull_combine(shape: Shape, prices: Prices) -> Stages:
    """Pull combine through the data buffer (xDeepServe 3.2)."""
    s, p = shape, prices
    row, local, far = 2 * s.hidden, p.latency(SAME_DIE, write=False), p.far(s.ranks, write=False)
    rows = -(-s.rows // s.cores)
    contributions, wire = s.busiest_tokens * s.choices, p.wire(s.rows * row, s.ranks, write=False)
    arrive = max(p.core(row), (far + p.core(row)) / LOADS, p.scalar(15) + p.loads(4))
    return {
        "counts": p.core(4 * s.counts) + local + p.scalar(2 * s.counts),
        "lay out": local + rows * max(p.core(row), (local + 2 * p.core(row)) / 2),
        "visible": p.latency(SAME_DIE, write=True) + p.core(row) + p.barrier(),
        "offers": p.scalar(2 * s.ranks / s.cores) + p.far(s.ranks, write=True) + p.poll(),
        "sums": far + max(wire, contributions * arrive) + p.vector("v_axpy", s.hidden) + p.vector("v_narrow", s.hidden),
        "end": p.core(row) + p.latency(SAME_DIE, write=True) + p.barrier() + p.scalar(2 * s.ranks / s.cores),
    }


@dataclass(frozen=True)
class Disaggregated:
    """A domain of attention dies and the expert dies that it sends to; every expert die receives as many rows."""

    attention: int = 160
    experts: int = 288
    """Expert dies."""
    tokens: int = 96
    """Tokens on each attention die."""
    hidden: int = 7168
    choices: int = 9
    local_experts: int = 1
    cores: int = 48
    """Cores used on each attention die."""
    stream_cores: int = 16
    """Cores of each stream of an expert die."""

    @property
    def messages(self) -> int:
        """Messages that pass through a trampoline."""
        return self.tokens * self.choices

    @property
    def core_rows(self) -> int:
        """Rows of a core of an expert die's stream."""
        return -(-self.attention * self.messages // (self.experts * self.stream_cores))

    @property
    def fields(self) -> int:
        """Counts that an expert die waits for."""
        return self.attention * self.local_experts


def a2e(shape: Disaggregated, prices: Prices) -> Stages:
    """A2E through trampolines, until every expert die has its rows in order (xDeepServe 3.3)."""
    s, p = shape, prices
    message, local = s.hidden + SLOT_BYTES, p.latency(SAME_DIE, write=False)
    far = p.latency(OTHER_NODE, write=True)
    to_expert = -(-s.tokens // s.stream_cores) * s.choices * p.core(message)
    parts = min(s.core_rows, -(-s.fields // s.stream_cores))  # a core's rows come from this many trampolines
    row = p.core(s.hidden + FIELD_BYTES, 2) + p.scalar(2 + s.choices)
    turn = (local + s.core_rows / parts * (p.core(message) + row)) / 2  # two halves share the way in and out
    return {
        "first token": p.core(2 * s.hidden) + local + p.vector("v_quantize", s.hidden),
        "send": max(p.stream(s.tokens * message, OTHER_NODE), -(-s.tokens // s.cores) * p.core(message)),
        "tokens in": 2 * far + p.barrier() + p.poll(),
        "lists": p.core(64 * s.tokens, s.tokens) + local,
        "forward": local + p.core(message) + max(p.wire(s.messages * message, s.experts, write=True), to_expert),
        "visible": far + p.barrier(),
        "counts": p.scalar(2 * s.experts * s.local_experts / s.stream_cores) + far + p.poll(),
        "counts in": 4 * p.loads(-(-s.fields // s.stream_cores)) + 2 * local + p.barrier() + p.scalar(s.fields),
        "gather": p.scalar(2 * s.fields) + parts * max(turn, s.core_rows / parts * row),
        "end": p.latency(SAME_DIE, write=True) + p.barrier(),
    }


def e2a(shape: Disaggregated, prices: Prices) -> Stages:
    """E2A back through the trampolines, until every attention die has its sums (xDeepServe 3.3)."""
    s, p = shape, prices
    row, local = 2 * s.hidden, p.latency(SAME_DIE, write=False)
    far, wire = p.latency(OTHER_NODE, write=True), p.stream(s.messages * 2 * s.hidden, OTHER_NODE)
    contributions = -(-s.tokens // s.cores) * s.choices
    returned = -(-s.messages // s.stream_cores)
    return {
        "counts": p.poll() + 2 * local + p.scalar(2 * s.fields),
        "send back": local + p.core(row) + max(wire, s.core_rows * (p.core(row) + 2 * p.loads(1))),
        "arrivals": 2 * far + p.scalar(2 * s.fields) + p.poll(),
        "return": local + p.core(row) + max(wire, returned * p.core(row)),
        "call returned": 2 * far + p.barrier() + p.poll(),
        "sums": local + contributions * p.core(row) + p.vector("v_axpy", s.hidden) + p.vector("v_narrow", s.hidden),
        "end": p.core(row) + p.latency(SAME_DIE, write=True),
    }


def send_receive(nbytes: int, cores: int, path: int, prices: Prices) -> Stages:
    """A send through rings, channel by channel (xDeepServe 3.1): copy into the slots, flag, copy out, acknowledge.

    path: class of the path between the two dies (`fabric.PATHS`).  For channels that fit their rings: then nothing
    waits for a slot, and one acknowledgment comes when all is copied out.
    """
    p, channel, slot_bytes = prices, nbytes / cores, 65536
    chunk, chunks = min(channel, slot_bytes), max(1, -(-int(channel) // slot_bytes))
    wire = p.stream(nbytes, path)
    far, local, poll = p.latency(path, write=True), p.latency(SAME_DIE, write=False), p.poll()
    last = min(chunk, channel - (chunks - 1) * slot_bytes)
    return {
        "load": p.scalar(10) + local + p.core(chunk),
        "send": max(wire, p.core(channel, chunks)),
        "tail": far + poll + p.scalar(10),
        "copy out": local + 2 * p.core(last) + p.latency(SAME_DIE, write=True),
        "ack": far + poll + p.scalar(4),
    }
