"""RS-Combine, MixServe's Algorithm 1: reduce-scatter in the node of the experts, sums back, all-gather at home."""

from xccl_emu import lang as xl
from xccl_emu.kernels.group import drain
from xccl_emu.kernels.mixserve.rows import (
    FIELD_BYTES,
    PLACES,
    ClusterRank,
    Inboxes,
    Tables,
    end_sums,
    load_terms,
    node_on,
    round_sum,
    row_here,
    row_in,
    row_left,
    sum_left,
    terms_added,
    terms_here,
    terms_in,
    terms_place,
)


def rows_of(step, r, c: ClusterRank, t: Tables):
    """Rows of all groups of the node ``step`` nodes on."""
    rows = 0
    for group in range(c.groups):
        total = yield xl.load(t.arrived + ((r * c.nodes + node_on(step, c.node, c.nodes)) * c.groups + group) * 8)
        rows += total
    return rows


def place_of(i, step, r, c: ClusterRank, t: Tables):
    """Place of the i-th row of the node ``step`` nodes on: the groups of that node have ``capacity`` each."""
    block = (r * c.nodes + node_on(step, c.node, c.nodes)) * c.groups
    total = yield xl.load(t.arrived + block * 8)
    group = 0
    while i >= total:
        i -= total
        group += 1
        total = yield xl.load(t.arrived + (block + group) * 8)
    return group * c.capacity + i


def load_row(n, i, step, r, c: ClusterRank, t: Tables):
    """Load the i-th row of the node ``step`` nodes on."""
    place = yield from place_of(i, step, r, c, t)
    row = node_on(step, c.node, c.nodes) * c.groups * c.capacity + place
    yield from row_in(n, t.partial + r * t.partial_bytes + row * c.row_bytes, c.row_bytes, c)


def spread_row(n, i, step, r, turn, c: ClusterRank, t: Tables, b: Inboxes):
    """Algorithm 1, line 14: each shard of that row to the rank that adds it up."""
    place = yield from place_of(i, step, r, c, t)
    at = yield from row_here(n, c)
    for j in range(c.shards):
        shard = (c.local + 1 + j) % c.shards
        rank = c.ep_first + place // c.capacity * c.shards + shard
        if rank != c.local:
            term = (turn % 2 * c.capacity + place % c.capacity) * c.ranks + c.local
            target = b.terms + (c.node * c.ranks + rank) * c.pitch + term * c.part_bytes
            yield xl.mtu_out(at + shard * c.part_bytes, target, c.part_bytes, step=14)
    yield from row_left(n)


def tell_terms(turn, c: ClusterRank, b: Inboxes):
    """Signal to those with the same experts that their terms are there."""
    yield xl.fence(step=14, sync="terms before field")
    for rank in range(c.ep_first, c.ep_first + c.ep_size):
        if rank != c.local:
            field = b.terms_fields + (c.node * c.ranks + rank) * c.pitch + c.local * FIELD_BYTES
            yield xl.put(field, turn + 1, step=14, sync="terms")


def await_terms(turn, c: ClusterRank, b: Inboxes):
    """Wait for the terms of all that have the same experts."""
    fields = b.terms_fields + (c.node * c.ranks + c.local) * c.pitch
    for rank in range(c.ep_first, c.ep_first + c.ep_size):
        if rank != c.local:
            yield xl.poll_ge(fields + rank * FIELD_BYTES, turn + 1, step=14, sync="terms in")


def load_shards(n, i, step, r, turn, c: ClusterRank, t: Tables, b: Inboxes):
    """Load the i-th terms: those that the ranks of one group have of this rank's shard of a row, its own among them."""
    groups = c.ep_size // c.shards
    first = c.ep_first + i % groups * c.shards
    source = b.terms + (c.node * c.ranks + c.local) * c.pitch
    source += ((turn % 2 * c.capacity + i // groups) * c.ranks + first) * c.part_bytes
    at = yield from terms_place(n, c)
    own = c.local - first
    if own < 0 or own >= c.shards:
        yield xl.mtu_in(source, at, c.row_bytes, step=14)
    else:
        row = ((node_on(step, c.node, c.nodes) * c.groups + c.group) * c.capacity + i // groups) * c.row_bytes
        row += t.partial + r * t.partial_bytes
        if own > 0:
            yield xl.mtu_in(source, at, own * c.part_bytes, step=14)
        yield xl.mtu_in(row + own * c.part_bytes, at + own * c.part_bytes, c.part_bytes, step=14)
        if own + 1 < c.shards:
            yield xl.mtu_in(
                source + (own + 1) * c.part_bytes,
                at + (own + 1) * c.part_bytes,
                (c.shards - 1 - own) * c.part_bytes,
                step=14,
            )
    yield from terms_in(n)


def return_sum(n, i, step, r, c: ClusterRank, b: Inboxes):
    """Add up these terms; a sum that is complete leaves for the node ``step`` nodes on."""
    groups = c.ep_size // c.shards
    at = yield from terms_here(n, c)
    for j in range(c.shards):
        if i % groups + j == 0:
            yield xl.v_widen(at, c.acc, c.part_bytes // 2, c.dtype, step=14)
        else:
            yield xl.v_add(at + j * c.part_bytes, c.acc, c.part_bytes // 2, c.dtype, step=14)
    yield from terms_added(n)
    if i % groups == groups - 1:
        at = yield from round_sum(n // groups, c.part_bytes, c)
        target = b.returned + (node_on(step, c.node, c.nodes) * c.ranks + c.local) * c.pitch
        target += ((r % 2 * c.nodes + c.node) * c.capacity + i // groups) * c.part_bytes
        yield xl.mtu_out(at, target, c.part_bytes, step=9)
        yield from sum_left(n // groups)


def tell_returned(step, r, c: ClusterRank, b: Inboxes):
    """Signal to the rank that gets the sums of a step; the sums become visible first."""
    rank = node_on(step, c.node, c.nodes) * c.ranks + c.local
    yield xl.fence(step=9, sync="sums before field")
    yield xl.put(b.returned_fields + rank * c.pitch + c.node * FIELD_BYTES, r + 1, step=9, sync="sums returned")


def await_returned(step, r, c: ClusterRank, b: Inboxes):
    """Wait for the sums from ``step`` nodes back."""
    fields = b.returned_fields + (c.node * c.ranks + c.local) * c.pitch
    yield xl.poll_ge(fields + node_on(-step, c.node, c.nodes) * FIELD_BYTES, r + 1, step=11, sync="sums returned in")


def weigh(r, c: ClusterRank, t: Tables, b: Inboxes):
    """Line 15: this shard of each token, the sum of what its choices brought, weighed; to all that have the tokens."""
    returned = b.returned + (c.node * c.ranks + c.local) * c.pitch + r % 2 * c.nodes * c.capacity * c.part_bytes
    n = 0
    for i in range(c.tokens):
        yield xl.v_fill(c.acc, 2 * c.part_bytes, step=15)
        choice = (r * c.tokens + i) * c.top_k
        for first in range(c.top_k):
            if first % c.shards == 0:
                at = yield from terms_place(n, c)
                for j in range(first, min(first + c.shards, c.top_k)):
                    place = yield xl.load(t.places + (choice + j) * 4, 4)
                    if place >= 0:
                        yield xl.mtu_in(returned + place * c.part_bytes, at + (j - first) * c.part_bytes, c.part_bytes)
                yield from terms_in(n)
                at = yield from terms_here(n, c)
                for j in range(first, min(first + c.shards, c.top_k)):
                    place = yield xl.load(t.places + (choice + j) * 4, 4)
                    if place >= 0:
                        weight = yield xl.load(t.weights + (choice + j) * 4, 4)
                        yield xl.v_axpy(
                            at + (j - first) * c.part_bytes, c.acc, weight, c.part_bytes // 2, c.dtype, step=15
                        )
                yield from terms_added(n)
                n += 1
        at = yield from round_sum(i, c.part_bytes, c)
        slot = b.results + ((r % 2 * c.tokens + i) * c.ranks + c.local) * c.part_bytes
        for rank in range(c.dp_first, c.dp_first + c.dp_size):
            yield xl.mtu_out(at, slot + (c.node * c.ranks + rank) * c.pitch, c.part_bytes, step=17)
        yield from sum_left(i)
    yield from end_sums(n, c.tokens)
    yield xl.quiet(step=17, sync="results before field")
    for rank in range(c.dp_first, c.dp_first + c.dp_size):
        if rank != c.local:
            field = b.results_fields + (c.node * c.ranks + rank) * c.pitch + c.local * FIELD_BYTES
            yield xl.put(field, r + 1, step=17, sync="results")


def gather_results(r, c: ClusterRank, t: Tables, b: Inboxes):
    """Line 17: all columns of each token; what several groups have for the same tokens is added up."""
    die = (c.node * c.ranks + c.local) * c.pitch
    for rank in range(c.dp_first, c.dp_first + c.dp_size):
        if rank != c.local:
            yield xl.poll_ge(b.results_fields + die + rank * FIELD_BYTES, r + 1, step=17, sync="results in")
    groups = c.dp_size // c.shards
    for i in range(c.tokens):
        for group in range(groups):
            first = (r % 2 * c.tokens + i) * c.ranks + c.dp_first + group * c.shards
            yield from load_terms(i * groups + group, b.results + die + first * c.part_bytes, c.row_bytes, c)
            at = yield from terms_here(i * groups + group, c)
            if group == 0:
                yield xl.v_widen(at, c.acc, c.row_bytes // 2, c.dtype, step=17)
            else:
                yield xl.v_add(at, c.acc, c.row_bytes // 2, c.dtype, step=17)
            yield from terms_added(i * groups + group)
        at = yield from round_sum(i, c.row_bytes, c)
        yield xl.mtu_out(at, t.out + (r * c.tokens + i) * c.row_bytes, c.row_bytes)
        yield from sum_left(i)
    yield from end_sums(c.tokens * groups, c.tokens)


def spread_rows(n, rows, step, r, turn, c: ClusterRank, t: Tables, b: Inboxes):
    """Send all rows of the node ``step`` nodes on; each row is loaded before the one before it leaves."""
    for j in range(rows + 1):
        if j < rows:
            yield from load_row(n + j, j, step, r, c, t)
        if j > 0:
            yield from spread_row(n + j - 1, j - 1, step, r, turn, c, t, b)


def combine(r, c: ClusterRank, t: Tables, b: Inboxes):
    """Algorithm 1, sums first, own node last.

    With overlap the sums of a step leave, row by row, while the next step's terms go round this node.
    """
    groups = c.ep_size // c.shards
    n = 0
    m = 0
    for i in range(c.nodes + c.overlap):
        step = (i + 1) % c.nodes
        back = (i + 1 - c.overlap) % c.nodes
        turn = r * c.nodes + i
        spreads = 0
        if i < c.nodes:
            spreads = yield from rows_of(step, r, c, t)
        spread = 0
        if not c.overlap:
            yield from spread_rows(n, spreads, step, r, turn, c, t, b)
            spread = spreads
            yield from tell_terms(turn, c, b)
        sums = 0
        if i >= c.overlap:
            yield from await_terms(turn - c.overlap, c, b)
            total = yield xl.load(t.arrived + ((r * c.nodes + node_on(back, c.node, c.nodes)) * c.groups + c.group) * 8)
            sums = total * groups
        left = spread
        for j in range(max(sums, (spreads - spread + 1) // 2) + 1):
            if j < sums:
                yield from load_shards(m + j, j, back, r, turn - c.overlap, c, t, b)
            for _ in range(2):
                if spread < spreads:
                    yield from load_row(n + spread, spread, step, r, c, t)
                    spread += 1
            for _ in range(2):
                if j > 0 and left < spreads:
                    yield from spread_row(n + left, left, step, r, turn, c, t, b)
                    left += 1
            if j > 0 and j - 1 < sums:
                yield from return_sum(m + j - 1, j - 1, back, r, c, b)
        n += spreads
        m += sums
        if c.overlap and i < c.nodes:
            yield from tell_terms(turn, c, b)
        if i >= c.overlap and back > 0:
            yield from tell_returned(back, r, c, b)
            if not c.overlap:
                yield from await_returned(back, r, c, b)
    yield from drain(xl.MTU_OUT, xl.MTU_IN, n, PLACES, "row left")
    yield from end_sums(m, m // groups)
    yield xl.quiet(sync="own sums")
    if c.overlap:
        for i in range(1, c.nodes):
            yield from await_returned(i, r, c, b)
    yield from weigh(r, c, t, b)
    yield from gather_results(r, c, t, b)
