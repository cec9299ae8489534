"""What the kernels of MixServe share: records, and rows and sums on their way through the data buffer."""

from typing import NamedTuple

from xccl_emu.kernels.group import drain, drain_halves
from xccl_emu.lang import MTU_IN, MTU_OUT, VECTOR, mtu_in, set_flag, v_narrow, wait_flag

FIELD_BYTES = 32
LOADS = 4
"""Terms of sums that have a place in the data buffer."""

ACC = 4 + LOADS
"""Rooms before the FP32 sum, which takes two: halves for rows, terms, two places for what leaves."""


class Cluster(NamedTuple):
    """Shape of the cluster and of what it moves, and which core of which rank this is."""

    nodes: int
    ranks: int
    """Of a node."""
    node: int
    local: int
    """Number of the rank in its node."""
    core: int
    cores: int
    shards: int
    groups: int
    """Groups of a node that have tokens of their own."""
    group: int
    """Which of them this rank is of."""
    ep_first: int
    ep_size: int
    dp_first: int
    dp_size: int
    tokens: int
    """Of each group."""
    top_k: int
    experts: int
    """Of each rank."""
    first_expert: int
    row_bytes: int
    """Of a hidden state."""
    part_bytes: int
    """Of the columns that a core of a rank moves."""
    room: int
    """In whole granules, of a place for such columns, or for counts."""
    head: int
    """Bytes of the counts of a block, by expert, in whole granules."""
    pitch: int
    """From a die to the next."""
    dtype: int
    overlap: int
    dispatches: int
    combines: int
    rounds: int


class Tables(NamedTuple):
    """Addresses of this rank's app buffers, those of the first round; n = nodes, k = top_k, N = tokens * k."""

    x: int
    """[tokens] hidden states."""
    totals: int
    """Rows for each node, 8 bytes [n]."""
    counts: int
    """Rows for each expert of a node, 8 bytes [n][experts]."""
    rows: int
    """Choice that each row is of, 4 bytes [n][N]."""
    places: int
    """Where each choice's row is: node * N + row, or -1 if another group has it; 4 bytes [tokens][k]."""
    weights: int
    """FP32 [tokens][k]."""
    arrived: int
    """Rows that came, 8 bytes [n][groups], for each core."""
    partial: int
    """Outputs of experts [n][groups][N], of which this rank has its part of the sum."""
    partial_bytes: int
    """From those of a round to the next."""
    out: int
    """[tokens] hidden states."""


class Inboxes(NamedTuple):
    """Addresses on die 0 of what others write: blocks of this core, and the rows that all cores of a rank write."""

    sent: int
    """[2][nodes] blocks: counts by expert, then rows."""
    sent_fields: int
    heads: int
    """[2][nodes][groups] counts by expert."""
    gathered: int
    """[2][nodes][groups][N] hidden states."""
    gathered_fields: int
    terms: int
    """[2][ranks][N] rows to add up."""
    terms_fields: int
    returned: int
    """[2][nodes][N] sums."""
    returned_fields: int
    results: int
    """[2][ranks][tokens] weighted sums."""
    results_fields: int


# ---- through the data buffer


def row_in(n, source, nbytes, room):
    """Load the n-th of several rows into one of two halves."""
    half = n % 2
    if n >= 2:
        yield wait_flag(MTU_OUT, MTU_IN, half, sync="row left")
    yield mtu_in(source, half * room, nbytes)
    yield set_flag(MTU_IN, MTU_OUT, half, sync="row in buffer")
    yield wait_flag(MTU_IN, MTU_OUT, half, sync="row in buffer")


def row_left(n):
    """Say that the half of the n-th row may be loaded again."""
    yield set_flag(MTU_OUT, MTU_IN, n % 2, sync="row left")


def term_in(n, source, c: Cluster):
    """Load the n-th of the terms of several sums; returns where it is."""
    place = n % LOADS
    at = 2 * c.room + place * c.room
    if n >= LOADS:
        yield wait_flag(VECTOR, MTU_IN, place, sync="term added")
    yield mtu_in(source, at, c.part_bytes)
    yield set_flag(MTU_IN, VECTOR, place, sync="term in buffer")
    yield wait_flag(MTU_IN, VECTOR, place, sync="term in buffer")
    return at


def term_added(n):
    """Say that the place of the n-th term may be loaded again."""
    yield set_flag(VECTOR, MTU_IN, n % LOADS, sync="term added")


def round_sum(m, c: Cluster):
    """Round the m-th of several sums, for mtu-out; returns where it is."""
    half = m % 2
    at = (2 + LOADS + half) * c.room
    if m >= 2:
        yield wait_flag(MTU_OUT, VECTOR, half, sync="sum left")
    yield v_narrow(ACC * c.room, at, c.part_bytes // 2, c.dtype)
    yield set_flag(VECTOR, MTU_OUT, half, sync="sum made")
    yield wait_flag(VECTOR, MTU_OUT, half, sync="sum made")
    return at


def sum_left(m):
    """Say that the place of the m-th sum may be used again."""
    yield set_flag(MTU_OUT, VECTOR, m % 2, sync="sum left")


def end_sums(n, m):
    """Consume the flags that the last of ``n`` terms and ``m`` sums left set."""
    yield from drain(VECTOR, MTU_IN, n, LOADS, "term added")
    yield from drain_halves(MTU_OUT, VECTOR, m, "sum left")


def columns(shard, core, cores, part_bytes):
    """Where the columns of a shard that a core moves begin in a row."""
    return (shard * cores + core) * part_bytes
