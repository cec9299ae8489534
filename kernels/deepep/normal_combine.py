"""Combine of DeepEP's normal mode: what ranks return for a token goes back through the channels, and is added up.

Steps, in numbers of dispatch: 3 put rows into the ring at their home, 4 announce how many are in, 6 take them out, by
token and rank, 7 report how many places are free, 8 add up what came for a token, in FP32 by rank, and round once.
A sum begins with the biases of its token.  Where weights come back, the route of a row follows it through all that, and
weights are added likewise, unrounded.

All begin with rank 0, as homes and as what homes wait for: so sums do not depend on who is first, and a rank is never
waited for by one that it waits for.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.common import add_words, fetch
from xccl_emu.kernels.deepep.normal_dispatch import (
    await_room,
    await_rows,
    await_taken,
    block_of,
    count_rows,
    field_at,
    load_row,
    mark_ranks,
    ring_at,
    tell_rows,
    tell_taken,
)
from xccl_emu.kernels.deepep.parameters import Rings, Sums
from xccl_emu.kernels.experts.counts import INDEX_BYTES
from xccl_emu.kernels.experts.parameters import Buffers, Group
from xccl_emu.kernels.experts.sums import LOADS, add_contribution, drain_sums, write_sum
from xccl_emu.kernels.group import drain_halves, hand_over

ONE = 0x3F800000
"""FP32 bits of 1."""


def send_back(rank, channel, call, back, c: Group, b: Buffers, r: Rings):
    """Combine on the core that sends: the rows of the experts, home by home."""
    yield from fetch(b.counts, r.counts, 4 * c.n_ranks * (c.cores // 2), 3, "received counts loaded")
    sent = 0
    for home in range(c.n_ranks):
        block = block_of(home, channel, c.cores)
        own = block_of(rank, channel, c.cores)
        tail = field_at(r.tails, home, c.die_bytes, own)
        head = field_at(r.heads, rank, c.die_bytes, block)
        ring = ring_at(home, own, c.die_bytes, r.rings, r.slots * r.slot_bytes)
        row = yield from add_words(r.counts, block, 4, 3)
        n = yield xl.ub_load(r.counts + 4 * block, step=3)
        for i in range(n):
            at = r.work + sent % 2 * r.slot_bytes
            route = b.route + (row + i) * back
            yield from load_row(b.y + (row + i) * 2 * c.hidden, at, 2 * c.hidden, sent, route, back)
            yield from await_room(i, head, call, r)
            yield xl.mtu_out(at, ring + i % r.slots * r.slot_bytes, 2 * c.hidden + back, step=3)
            yield xl.set_flag(xl.MTU_OUT, xl.MTU_IN, sent % 2, sync="row left")
            sent = sent + 1
            if (i + 1) % r.chunk == 0:
                yield from tell_rows(i + 1, tail, call)
        yield from tell_rows(n, tail, call)
    yield from drain_halves(xl.MTU_OUT, xl.MTU_IN, sent, "row left")
    for home in range(c.n_ranks):
        block = block_of(home, channel, c.cores)
        n = yield xl.ub_load(r.counts + 4 * block, step=4)
        yield from await_taken(n, field_at(r.heads, rank, c.die_bytes, block), call)


def take_back(rank, channel, first, last, call, back, c: Group, r: Rings):
    """Steps 6 and 7 of combine, rank by rank."""
    parts = r.parts + rank * c.die_bytes
    part = 2 * c.hidden + back
    taken = 0
    for d in range(c.n_ranks):
        block = block_of(d, channel, c.cores)
        tail = field_at(r.tails, rank, c.die_bytes, block)
        head = field_at(r.heads, d, c.die_bytes, block_of(rank, channel, c.cores))
        ring = ring_at(rank, block, c.die_bytes, r.rings, r.slots * r.slot_bytes)
        n = yield from count_rows(d, last - first, r)
        i = 0
        for t in range(first, last):
            ranks = yield xl.ub_load(r.marks + 4 * (t - first), step=6)
            if ranks >> d & 1:
                yield from await_rows(i, n, tail, call, r)
                at = r.work + taken % 2 * r.slot_bytes
                yield from load_row(ring + i % r.slots * r.slot_bytes, at, part, taken)
                yield xl.mtu_out(at, parts + (t * c.n_ranks + d) * part, part, step=6)
                yield xl.set_flag(xl.MTU_OUT, xl.MTU_IN, taken % 2, sync="row left")
                taken = taken + 1
                yield from tell_taken(i, n, head, call, r)
                i = i + 1
    yield from drain_halves(xl.MTU_OUT, xl.MTU_IN, taken, "row left")
    yield xl.quiet(step=6, sync="parts written")


def rank_of_choice(i, k, c: Group, r: Rings):
    """Step 8: the rank of a token's choice ``k``, or -1 if it is masked or the rank has a later one."""
    d = -1
    for j in range(k, c.top_k):
        slot = yield xl.ub_load(r.choices + i * INDEX_BYTES + 4 * j, step=8)
        if slot >= 0 and slot // c.n_local == d:
            d = -1
        if slot >= 0 and j == k:
            d = slot // c.n_local
    return d


def sum_parts(rank, first, last, c: Group, b: Buffers, r: Rings, s: Sums):
    """Step 8: the sums of the channel's tokens."""
    parts = r.parts + rank * c.die_bytes
    part = 2 * c.hidden + s.back
    added = 0
    for t in range(first, last):
        yield xl.v_fill(r.work, 4 * c.hidden, step=8)
        for i in range(s.biases):
            yield from add_contribution(s.bias + (t * s.biases + i) * 2 * c.hidden, r.work, added, 0, ONE, c, 8)
            added = added + 1
        ranks = yield xl.ub_load(r.marks + 4 * (t - first), step=8)
        turns = c.n_ranks
        if s.by_choice:
            turns = c.top_k
        for i in range(turns):
            d = i
            if s.by_choice:
                d = yield from rank_of_choice(t - first, i, c, r)
            if d >= 0 and ranks >> d & 1:
                yield from add_contribution(parts + (t * c.n_ranks + d) * part, r.work, added, 0, ONE, c, 8)
                added = added + 1
        yield from write_sum(t, first, r.work, c, b, 8)
    yield from drain_sums(added, last - first)


def sum_weights(rank, first, last, back, c: Group, b: Buffers, r: Rings):
    """Step 8 of the weights of the channel's tokens, when the sums have left."""
    acc = r.work
    at = acc + back
    weights = 4 + 4 * c.top_k
    for t in range(first, last):
        yield xl.v_fill(acc, back, step=8)
        ranks = yield xl.ub_load(r.marks + 4 * (t - first), step=8)
        for d in range(c.n_ranks):
            if ranks >> d & 1:
                part = r.parts + rank * c.die_bytes + (t * c.n_ranks + d) * (2 * c.hidden + back)
                yield from hand_over(xl.VECTOR, xl.MTU_IN, LOADS, "contribution used", step=8)
                yield xl.mtu_in(part + 2 * c.hidden, at, back, step=8)
                yield from hand_over(xl.MTU_IN, xl.VECTOR, 0, "contribution in", step=8)
                yield xl.v_add(at + weights, acc + weights, c.top_k, xl.FP32, step=8)
        yield from hand_over(xl.VECTOR, xl.MTU_OUT, 0, "sum made", step=8)
        yield xl.mtu_out(acc + weights, b.weights + t * INDEX_BYTES, 4 * c.top_k, step=8)
        yield from hand_over(xl.MTU_OUT, xl.VECTOR, 0, "sum left", step=8)


def combine_parts(rank, core, tokens, call, c: Group, b: Buffers, r: Rings, s: Sums):
    """A combine on one core: of a pair the first one sends, the second one receives."""
    channel = core // 2
    first = tokens * channel // (c.cores // 2)
    last = tokens * (channel + 1) // (c.cores // 2)
    if core % 2 == 0:
        yield from send_back(rank, channel, call, s.back, c, b, r)
    else:
        yield from mark_ranks(first, last, c, b, r)
        yield from take_back(rank, channel, first, last, call, s.back, c, r)
        yield from sum_parts(rank, first, last, c, b, r, s)
        if s.back > 0:
            yield from sum_weights(rank, first, last, s.back, c, b, r)


class _NormalCombineBuffers(Buffers):
    y: xl.Reads
    counts: xl.Reads
    topk: xl.Reads
    out: xl.Writes


class _WholeCombineBuffers(_NormalCombineBuffers):
    route: xl.Reads
    weights: xl.Writes


class _CombineRings(Rings):
    parts: xl.Own[xl.Updates]


@xl.kernel
def normal_combine(rank, core, tokens, call, c: Group, b: _NormalCombineBuffers, r: _CombineRings):
    """A combine on one core, likewise."""
    yield from combine_parts(rank, core, tokens, call, c, b, r, Sums())


@xl.kernel
def whole_combine(rank, core, tokens, call, c: Group, b: _WholeCombineBuffers, r: _CombineRings, s: Sums):
    """The same with all that a combine may add, or in another order; where no weights come back routes are not read."""
    yield from combine_parts(rank, core, tokens, call, c, b, r, s)
