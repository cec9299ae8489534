"""Dispatch of DeepEP's normal mode: a token goes once to each rank that has an expert of it, through channels.

Steps: 1 find the ranks of each token, 2 announce to each rank how many rows come through each channel, 3 put the rows
for a rank into the channel's ring there, 4 announce how many are in, 5 wait for the counts of all, which say where rows
go, 6 take rows out, by source, each with its token, experts and weights, 7 report how many places are free.

Two cores are a channel: one sends, the other receives, both for a part of the tokens of each source.  They go round the
ranks in such an order that two meet, so that none is waited for by one that it waits for.

Tails and heads have the call's number above a count of its rows, so that they only rise.  Counts have two sets in turn:
who has the counts of a dispatch from all knows that the counts of the dispatch before are read.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.common import add_words, fetch
from xccl_emu.kernels.deepep.parameters import Rings
from xccl_emu.kernels.experts.counts import FIELD_BYTES, INDEX_BYTES
from xccl_emu.kernels.experts.parameters import Buffers, Group
from xccl_emu.kernels.group import drain_halves, hand_over

CALL_ROWS = 1 << 20
"""More rows than go through a channel in a call."""


def mark_ranks(first, last, c: Group, b: Buffers, r: Rings):
    """Step 1: the ranks that each token of the channel goes to, a bit each, from the choices, which come along."""
    if first < last:
        yield from fetch(b.topk + first * INDEX_BYTES, r.choices, (last - first) * INDEX_BYTES, 1, "choices loaded")
    for i in range(last - first):
        ranks = 0
        for k in range(c.top_k):
            slot = yield xl.ub_load(r.choices + i * INDEX_BYTES + 4 * k, step=1)
            if slot >= 0:
                ranks = ranks | 1 << slot // c.n_local
        yield xl.ub_store(r.marks + 4 * i, ranks, step=1)


def count_rows(d, n_tokens, r: Rings):
    """Steps 2 and 4: how many tokens of the channel go to a rank."""
    n = 0
    for i in range(n_tokens):
        ranks = yield xl.ub_load(r.marks + 4 * i, step=2)
        n = n + (ranks >> d & 1)
    return n


def block_of(rank: int, channel: int, cores: int) -> int:
    """Number of a rank and a channel, by which fields and rings of a rank stand."""
    return rank * (cores // 2) + channel


def field_at(fields: int, at: int, die_bytes: int, block: int) -> int:
    """Address of what rank ``at`` has of a rank and a channel."""
    return fields + at * die_bytes + block * FIELD_BYTES


def ring_at(at: int, block: int, die_bytes: int, rings: int, ring_bytes: int) -> int:
    """Address of the ring that rank ``at`` has for a rank and a channel."""
    return rings + at * die_bytes + block * ring_bytes


def await_room(n, head, call, r: Rings):
    """Step 3: wait until there is a place for row ``n`` of the call."""
    if n >= r.slots:
        yield xl.poll_ge(head, call * CALL_ROWS + n - r.slots + 1, step=3, sync="room")


def tell_rows(n, tail, call):
    """Step 4: announce that ``n`` rows are in the ring."""
    yield xl.fence(step=4, sync="rows before tail")
    yield xl.put(tail, call * CALL_ROWS + n, step=4, sync="tail")


def await_taken(n, head, call):
    """Step 4: at the end of a call the ring is empty again."""
    if n > 0:
        yield xl.poll_ge(head, call * CALL_ROWS + n, step=4, sync="ring empty")


def await_rows(i, n, tail, call, r: Rings):
    """Step 6: before each part of the rows wait until it is there."""
    if i % r.chunk == 0:
        yield xl.poll_ge(tail, call * CALL_ROWS + min(n, i + r.chunk), step=6, sync="rows in")


def tell_taken(i, n, head, call, r: Rings):
    """Step 7: after each part of the rows report its places free, before the rows have left the data buffer."""
    if (i + 1) % r.chunk == 0 or i + 1 == n:
        yield from hand_over(xl.MTU_IN, xl.SCALAR, 2, "rows read", step=7)
        yield xl.store(head, call * CALL_ROWS + i + 1, step=7, sync="head")


def load_row(source, at, nbytes, turn, route=0, route_bytes=0):
    """A row into a half of the data buffer, and its route after it, when what was there has left."""
    if turn >= 2:
        yield xl.wait_flag(xl.MTU_OUT, xl.MTU_IN, turn % 2, sync="row left")
    yield xl.mtu_in(source, at, nbytes, step=6)
    if route_bytes > 0:
        yield xl.mtu_in(route, at + nbytes, route_bytes, step=6)
    yield from hand_over(xl.MTU_IN, xl.MTU_OUT, turn % 2, "row in")


def make_message(t, i, d, at, c: Group, b: Buffers, r: Rings):
    """Step 3: a token, then its number, and its experts on rank ``d`` with their weights, -1 and 0 else."""
    yield xl.mtu_in(b.x + t * c.payload, at, c.payload, step=3)
    yield xl.ub_store(at + c.payload, t, step=3)
    for k in range(c.top_k):
        slot = yield xl.ub_load(r.choices + i * INDEX_BYTES + 4 * k, step=3)
        expert = -1
        weight = 0
        if slot >= 0 and slot // c.n_local == d:
            expert = slot % c.n_local
            weight = yield xl.load(b.weights + t * INDEX_BYTES + 4 * k, 4, step=3)
        yield xl.ub_store(at + c.payload + 4 + 4 * k, expert, step=3)
        yield xl.ub_store(at + c.payload + 4 + 4 * c.top_k + 4 * k, weight, step=3)
    yield from hand_over(xl.MTU_IN, xl.SCALAR, 0, "token loaded")


def send_tokens(rank, channel, first, last, call, c: Group, b: Buffers, r: Rings):
    """Steps 3 and 4 for this channel's tokens, rank by rank, from the own one on."""
    yield xl.v_fill(r.work + c.payload, r.route_bytes, step=3)
    yield xl.v_fill(r.work + r.slot_bytes + c.payload, r.route_bytes, step=3)
    yield from hand_over(xl.VECTOR, xl.SCALAR, 0, "routes cleared")
    sent = 0
    for k in range(c.n_ranks):
        d = (rank + k) % c.n_ranks
        own = block_of(rank, channel, c.cores)
        tail = field_at(r.tails, d, c.die_bytes, own)
        head = field_at(r.heads, rank, c.die_bytes, block_of(d, channel, c.cores))
        ring = ring_at(d, own, c.die_bytes, r.rings, r.slots * r.slot_bytes)
        n = 0
        for i in range(last - first):
            ranks = yield xl.ub_load(r.marks + 4 * i, step=3)
            if ranks >> d & 1:
                at = r.work + sent % 2 * r.slot_bytes
                if sent >= 2:
                    yield xl.wait_flag(xl.MTU_OUT, xl.SCALAR, sent % 2, sync="message left")
                yield from make_message(first + i, i, d, at, c, b, r)
                yield from await_room(n, head, call, r)
                yield xl.mtu_out(at, ring + n % r.slots * r.slot_bytes, c.payload + r.route_bytes, step=3)
                yield xl.set_flag(xl.MTU_OUT, xl.SCALAR, sent % 2, sync="message left")
                sent = sent + 1
                n = n + 1
                if n % r.chunk == 0:
                    yield from tell_rows(n, tail, call)
        yield from tell_rows(n, tail, call)
    yield from drain_halves(xl.MTU_OUT, xl.SCALAR, sent, "message left")


def send_side(rank, channel, first, last, call, turn, c: Group, b: Buffers, r: Rings):
    """Dispatch on the core that sends."""
    yield from mark_ranks(first, last, c, b, r)
    for d in range(c.n_ranks):
        n = yield from count_rows(d, last - first, r)
        fields = r.fields + turn % 2 * r.fields_step
        field = field_at(fields, d, c.die_bytes, block_of(rank, channel, c.cores))
        yield xl.put(field, turn, n, step=2, sync="count")
    yield from send_tokens(rank, channel, first, last, call, c, b, r)
    for d in range(c.n_ranks):
        n = yield from count_rows(d, last - first, r)
        yield from await_taken(n, field_at(r.heads, rank, c.die_bytes, block_of(d, channel, c.cores)), call)


def await_counts(rank, channel, turn, c: Group, b: Buffers, r: Rings):
    """Step 5: the rows that will come, by source and channel; the first channel notes them."""
    for i in range(c.n_ranks * (c.cores // 2)):
        field = field_at(r.fields + turn % 2 * r.fields_step, rank, c.die_bytes, i)
        yield xl.poll_eq(field, turn, step=5, sync="counts in")
        n = yield xl.load(field + 8, step=5)
        yield xl.ub_store(r.counts + 4 * i, n, step=5)
        if channel == 0:
            yield xl.store(b.counts + 4 * i, n, 4, step=5)


def receive_side(rank, channel, call, turn, c: Group, b: Buffers, r: Rings):
    """Dispatch on the core that receives."""
    yield from await_counts(rank, channel, turn, c, b, r)
    taken = 0
    for k in range(c.n_ranks):
        s = (rank - k + c.n_ranks) % c.n_ranks
        block = block_of(s, channel, c.cores)
        tail = field_at(r.tails, rank, c.die_bytes, block)
        head = field_at(r.heads, s, c.die_bytes, block_of(rank, channel, c.cores))
        ring = ring_at(rank, block, c.die_bytes, r.rings, r.slots * r.slot_bytes)
        row = yield from add_words(r.counts, block, 4, 5)
        n = yield xl.ub_load(r.counts + 4 * block, step=5)
        for i in range(n):
            yield from await_rows(i, n, tail, call, r)
            at = r.work + taken % 2 * r.slot_bytes
            yield from load_row(ring + i % r.slots * r.slot_bytes, at, c.payload + r.route_bytes, taken)
            yield xl.mtu_out(at, b.recv_x + (row + i) * c.payload, c.payload, step=6)
            yield xl.mtu_out(at + c.payload, b.route + (row + i) * r.route_bytes, r.route_bytes, step=6)
            yield xl.set_flag(xl.MTU_OUT, xl.MTU_IN, taken % 2, sync="row left")
            taken = taken + 1
            yield from tell_taken(i, n, head, call, r)
    yield from drain_halves(xl.MTU_OUT, xl.MTU_IN, taken, "row left")


class _NormalDispatchBuffers(Buffers):
    x: xl.Reads
    topk: xl.Reads
    weights: xl.Reads
    recv_x: xl.Writes
    route: xl.Writes
    counts: xl.Writes


class _DispatchRings(Rings):
    fields: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]


@xl.kernel
def normal_dispatch(rank, core, tokens, call, turn, c: Group, b: _NormalDispatchBuffers, r: _DispatchRings):
    """A dispatch on one core: of a pair the first one sends, the second one receives."""
    channel = core // 2
    first = tokens * channel // (c.cores // 2)
    last = tokens * (channel + 1) // (c.cores // 2)
    if core % 2 == 0:
        yield from send_side(rank, channel, first, last, call, turn, c, b, r)
    else:
        yield from receive_side(rank, channel, call, turn, c, b, r)
