"""What the kernels of MixServe share: records, and rows and sums on their way through the data buffer."""

from typing import NamedTuple

from xccl_emu import lang as xl
from xccl_emu.kernels.group import drain_halves, hand_over

FIELD_BYTES = 32
PLACES = 4
"""In the data buffer, for rows that are passed on; there are two for terms of sums, and two for sums that leave."""


class ClusterRank(NamedTuple):
    """Shape of the cluster and of what a core of each rank moves, and which rank this is."""

    nodes: int
    ranks: int
    """Ranks of a node."""
    node: int
    local: int
    """Number of the rank in its node."""
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
    """Tokens of each group that this core moves."""
    capacity: int
    """Rows of a group that the place for a node's rows has."""
    top_k: int
    experts: int
    """Experts of each rank."""
    first_expert: int
    row_bytes: int
    """Bytes of a hidden state."""
    part_bytes: int
    """Bytes of a shard of it."""
    room: int
    """Bytes of a place in the data buffer, for a row or counts."""
    acc: int
    """Where in the data buffer the FP32 sum is."""
    head: int
    """Bytes of the counts of a block, by expert, in whole granules."""
    pitch: int
    """From a die to the next."""
    dtype: int
    overlap: int
    dispatches: int
    combines: int
    rounds: int
    done: int
    """Rounds of the launches before."""


class Tables(NamedTuple):
    """Addresses of what a core has of this rank's app data, in the first round; n = nodes, k = top_k, N = tokens * k.

    Rows of a block take N places, ``capacity`` in outputs and inboxes.
    """

    x: xl.Reads
    """[tokens] hidden states."""
    totals: xl.Reads
    """Rows for each node, 8 bytes [n]."""
    counts: xl.Reads
    """Rows for each expert of a node, 8 bytes [n][experts]."""
    rows: xl.Reads
    """Choice that each row is of, 4 bytes [n][N]."""
    places: xl.Reads
    """Where each choice's row is: node * N + row, or -1 if another group has it; 4 bytes [tokens][k]."""
    weights: xl.Reads
    """FP32 [tokens][k]."""
    arrived: xl.Updates
    """Rows that came, 8 bytes [n][groups]."""
    partial: xl.Updates
    """Outputs of experts [n][groups][N]; this rank has its part of their sum."""
    partial_bytes: int
    """Distance from the rows of a round to the next round's."""
    out: xl.Writes
    """[tokens] hidden states."""


class Inboxes(NamedTuple):
    """Addresses on die 0 of what others write for this core; N is the capacity."""

    sent: xl.Anywhere[xl.Updates]
    """[2][nodes] blocks: counts by expert, then rows."""
    sent_fields: xl.Anywhere[xl.Updates]
    heads: xl.Anywhere[xl.Updates]
    """[2][nodes][groups] counts by expert."""
    gathered: xl.Anywhere[xl.Updates]
    """[2][nodes][groups][N] hidden states."""
    gathered_fields: xl.Anywhere[xl.Updates]
    terms: xl.Anywhere[xl.Updates]
    """[2][N][ranks] shards to add up."""
    terms_fields: xl.Anywhere[xl.Updates]
    returned: xl.Anywhere[xl.Updates]
    """[2][nodes][N] sums."""
    returned_fields: xl.Anywhere[xl.Updates]
    results: xl.Anywhere[xl.Updates]
    """[2][tokens][ranks] weighted sums."""
    results_fields: xl.Anywhere[xl.Updates]


def node_on(step: int, node: int, nodes: int) -> int:
    """Number of the node ``step`` nodes on from one of several; before it, if that is below zero."""
    return (node + nodes + step) % nodes


# ---- through the data buffer: places for rows, for terms, the FP32 sum, and places for sums that leave


def row_in(n, source, nbytes, c: ClusterRank):
    """Load the n-th of the rows that are passed on."""
    if n >= PLACES:
        yield xl.wait_flag(xl.MTU_OUT, xl.MTU_IN, n % PLACES, sync="row left")
    yield xl.mtu_in(source, n % PLACES * c.room, nbytes)
    yield xl.set_flag(xl.MTU_IN, xl.MTU_OUT, n % PLACES, sync="row in buffer")


def row_here(n, c: ClusterRank):
    """Have mtu-out wait until the n-th row is in the data buffer; returns where it is."""
    yield xl.wait_flag(xl.MTU_IN, xl.MTU_OUT, n % PLACES, sync="row in buffer")
    return n % PLACES * c.room


def row_left(n):
    """Say that the place of the n-th row may be used again."""
    yield xl.set_flag(xl.MTU_OUT, xl.MTU_IN, n % PLACES, sync="row left")


def terms_place(n, c: ClusterRank):
    """Return where the n-th terms go, when the place is free."""
    if n >= 2:
        yield xl.wait_flag(xl.VECTOR, xl.MTU_IN, n % 2, sync="terms added")
    return (PLACES + n % 2) * c.room


def terms_in(n):
    """Say that the n-th terms are in the data buffer."""
    yield xl.set_flag(xl.MTU_IN, xl.VECTOR, n % 2, sync="terms in buffer")


def load_terms(n, source, nbytes, c: ClusterRank):
    """Load the n-th terms, which lie side by side."""
    at = yield from terms_place(n, c)
    yield xl.mtu_in(source, at, nbytes)
    yield from terms_in(n)


def terms_here(n, c: ClusterRank):
    """Have the vector pipe wait until the n-th terms are in the data buffer; returns where they are."""
    yield xl.wait_flag(xl.MTU_IN, xl.VECTOR, n % 2, sync="terms in buffer")
    return (PLACES + n % 2) * c.room


def terms_added(n):
    """Say that the place of the n-th terms may be used again."""
    yield xl.set_flag(xl.VECTOR, xl.MTU_IN, n % 2, sync="terms added")


def round_sum(m, nbytes, c: ClusterRank):
    """Round the m-th of the sums to ``nbytes`` bytes, for mtu-out; returns where it is."""
    half = m % 2
    at = c.acc + (2 + half) * c.room
    if m >= 2:
        yield xl.wait_flag(xl.MTU_OUT, xl.VECTOR, half, sync="sum left")
    yield xl.v_narrow(c.acc, at, nbytes // 2, c.dtype)
    yield from hand_over(xl.VECTOR, xl.MTU_OUT, half, "sum made")
    return at


def sum_left(m):
    """Say that the place of the m-th sum may be used again."""
    yield xl.set_flag(xl.MTU_OUT, xl.VECTOR, m % 2, sync="sum left")


def end_sums(n, m):
    """Consume the flags that the last of ``n`` terms and ``m`` sums left set."""
    yield from drain_halves(xl.VECTOR, xl.MTU_IN, n, "terms added")
    yield from drain_halves(xl.MTU_OUT, xl.VECTOR, m, "sum left")
