"""RS-Combine, MixServe's Algorithm 1: reduce-scatter in the node of the experts, sums back, all-gather at home."""

from xccl_emu.kernels.group import drain_halves
from xccl_emu.kernels.mixserve_parts import (
    ACC,
    FIELD_BYTES,
    Cluster,
    Inboxes,
    Tables,
    columns,
    end_sums,
    round_sum,
    row_in,
    row_left,
    sum_left,
    term_added,
    term_in,
)
from xccl_emu.lang import MTU_IN, MTU_OUT, load, mtu_out, poll_ge, put, quiet, v_add, v_axpy, v_fill, v_widen


def spread_terms(step, r, turn, c: Cluster, t: Tables, b: Inboxes):
    """Algorithm 1, line 14: each shard of the rows of the node ``step`` nodes on, to the rank that adds it up."""
    node = (c.node + step) % c.nodes
    capacity = c.tokens * c.top_k
    n = 0
    for group in range(c.groups):
        block = node * c.groups + group
        total = yield load(t.arrived + (r * c.nodes * c.groups + block) * 8)
        for j in range(total * c.shards):
            rank = c.ep_first + group * c.shards + j % c.shards
            if rank != c.local:
                at = (block * capacity + j // c.shards) * c.row_bytes
                at += columns(j % c.shards, c.core, c.cores, c.part_bytes)
                place = b.terms + (c.node * c.ranks + rank) * c.pitch
                place += ((turn % 2 * c.ranks + c.local) * capacity + j // c.shards) * c.room
                yield from row_in(n, t.partial + r * t.partial_bytes + at, c.part_bytes, c.room)
                yield mtu_out(n % 2 * c.room, place, c.part_bytes, step=14)
                yield from row_left(n)
                n += 1
    yield from drain_halves(MTU_OUT, MTU_IN, n, "row left")


def tell_terms(turn, c: Cluster, b: Inboxes):
    """Tell those with the same experts that their terms are there."""
    for rank in range(c.ep_first, c.ep_first + c.ep_size):
        if rank != c.local:
            field = b.terms_fields + (c.node * c.ranks + rank) * c.pitch + c.local * FIELD_BYTES
            yield put(field, turn + 1, step=14, sync="terms")


def return_sums(step, r, turn, c: Cluster, t: Tables, b: Inboxes):
    """Add up this rank's shard of the rows of the node ``step`` nodes on, and write the sums there."""
    node = (c.node + step) % c.nodes
    capacity = c.tokens * c.top_k
    die = (c.node * c.ranks + c.local) * c.pitch
    for rank in range(c.ep_first, c.ep_first + c.ep_size):
        if rank != c.local:
            yield poll_ge(b.terms_fields + die + rank * FIELD_BYTES, turn + 1, step=14, sync="terms in")
    block = node * c.groups + c.group
    own = t.partial + r * t.partial_bytes + columns(c.local % c.shards, c.core, c.cores, c.part_bytes)
    target = b.returned + (node * c.ranks + c.local) * c.pitch + (r % 2 * c.nodes + c.node) * capacity * c.room
    total = yield load(t.arrived + (r * c.nodes * c.groups + block) * 8)
    for i in range(total):
        for j in range(c.ep_size):
            term = b.terms + die + ((turn % 2 * c.ranks + c.ep_first + j) * capacity + i) * c.room
            if c.ep_first + j == c.local:
                term = own + (block * capacity + i) * c.row_bytes
            at = yield from term_in(i * c.ep_size + j, term, c)
            if j == 0:
                yield v_widen(at, ACC * c.room, c.part_bytes // 2, c.dtype, step=14)
            else:
                yield v_add(at, ACC * c.room, c.part_bytes // 2, c.dtype, step=14)
            yield from term_added(i * c.ep_size + j)
        at = yield from round_sum(i, c)
        yield mtu_out(at, target + i * c.room, c.part_bytes, step=9)
        yield from sum_left(i)
    yield from end_sums(total * c.ep_size, total)


def tell_returned(step, r, c: Cluster, b: Inboxes):
    """Tell the rank that the sums of a step went to; they are visible."""
    rank = (c.node + step) % c.nodes * c.ranks + c.local
    yield put(b.returned_fields + rank * c.pitch + c.node * FIELD_BYTES, r + 1, step=9, sync="sums returned")


def await_returned(step, r, c: Cluster, b: Inboxes):
    """Wait for the sums from ``step`` nodes back."""
    fields = b.returned_fields + (c.node * c.ranks + c.local) * c.pitch
    yield poll_ge(fields + (c.node + c.nodes - step) % c.nodes * FIELD_BYTES, r + 1, step=11, sync="sums returned in")


def weigh(r, c: Cluster, t: Tables, b: Inboxes):
    """Line 15: this shard of each token, the sum of what its choices brought, weighed; to all that have the tokens."""
    die = (c.node * c.ranks + c.local) * c.pitch
    capacity = c.tokens * c.top_k
    n = 0
    for i in range(c.tokens):
        yield v_fill(ACC * c.room, 2 * c.part_bytes, step=15)
        for j in range(c.top_k):
            choice = (r * c.tokens + i) * c.top_k + j
            place = yield load(t.places + choice * 4, 4)
            if place >= 0:
                weight = yield load(t.weights + choice * 4, 4)
                came = b.returned + die + (r % 2 * c.nodes * capacity + place) * c.room
                at = yield from term_in(n, came, c)
                yield v_axpy(at, ACC * c.room, weight, c.part_bytes // 2, c.dtype, step=15)
                yield from term_added(n)
                n += 1
        at = yield from round_sum(i, c)
        slot = b.results + ((r % 2 * c.ranks + c.local) * c.tokens + i) * c.room
        for rank in range(c.dp_first, c.dp_first + c.dp_size):
            yield mtu_out(at, slot + (c.node * c.ranks + rank) * c.pitch, c.part_bytes, step=17)
        yield from sum_left(i)
    yield from end_sums(n, c.tokens)
    yield quiet(step=17, sync="results before field")
    for rank in range(c.dp_first, c.dp_first + c.dp_size):
        if rank != c.local:
            field = b.results_fields + (c.node * c.ranks + rank) * c.pitch + c.local * FIELD_BYTES
            yield put(field, r + 1, step=17, sync="results")


def gather_results(r, c: Cluster, t: Tables, b: Inboxes):
    """Line 17: all columns of each token; those of several groups with the same tokens are added up."""
    die = (c.node * c.ranks + c.local) * c.pitch
    for rank in range(c.dp_first, c.dp_first + c.dp_size):
        if rank != c.local:
            yield poll_ge(b.results_fields + die + rank * FIELD_BYTES, r + 1, step=17, sync="results in")
    parts = c.dp_size // c.shards
    for i in range(c.tokens * c.shards):
        for j in range(parts):
            rank = c.dp_first + j * c.shards + i % c.shards
            came = b.results + die + ((r % 2 * c.ranks + rank) * c.tokens + i // c.shards) * c.room
            at = yield from term_in(i * parts + j, came, c)
            if j == 0:
                yield v_widen(at, ACC * c.room, c.part_bytes // 2, c.dtype, step=17)
            else:
                yield v_add(at, ACC * c.room, c.part_bytes // 2, c.dtype, step=17)
            yield from term_added(i * parts + j)
        at = yield from round_sum(i, c)
        row = t.out + (r * c.tokens + i // c.shards) * c.row_bytes
        yield mtu_out(at, row + columns(i % c.shards, c.core, c.cores, c.part_bytes), c.part_bytes)
        yield from sum_left(i)
    yield from end_sums(c.tokens * c.shards * parts, c.tokens * c.shards)


def combine(r, c: Cluster, t: Tables, b: Inboxes):
    """Algorithm 1, sums first: with overlap the sums of a step leave while the next step's are made; own node last."""
    for i in range(c.nodes):
        step = (i + 1) % c.nodes
        turn = r * c.nodes + i
        yield from spread_terms(step, r, turn, c, t, b)
        yield quiet(step=14, sync="terms before field")
        if c.overlap and i > 0:
            yield from tell_returned(i, r, c, b)
        yield from tell_terms(turn, c, b)
        yield from return_sums(step, r, turn, c, t, b)
        if not c.overlap and step > 0:
            yield quiet(step=9, sync="sums before field")
            yield from tell_returned(step, r, c, b)
            yield from await_returned(step, r, c, b)
    yield quiet(sync="own sums")
    if c.overlap:
        for i in range(1, c.nodes):
            yield from await_returned(i, r, c, b)
    yield from weigh(r, c, t, b)
    yield from gather_results(r, c, t, b)
