"""FusedCombine (CloudMatrix384 4.2.1): the experts' outputs go straight to the homes of their tokens.

Steps: 1 send, peer by peer: load the rows that came from it, find by their routes where they belong, write them there;
2 when all of it is visible, add one to each token's arrivals at its home; 3 at home wait until a token has all that it
is due, load its contributions in order of the choices, weigh and add them, the shared one last and as it is.

Nothing ever resets arrivals: a token's home remembers how many it has waited for.  Choices that are masked bring none.
"""

from xccl_emu.kernels.combine import load_counts
from xccl_emu.kernels.dispatch import FIELD_BYTES, INDEX_BYTES, ROUTE_BYTES, work_at
from xccl_emu.kernels.fused import second_table
from xccl_emu.kernels.group import drain_halves
from xccl_emu.kernels.parameters import Buffers, Fused, Group
from xccl_emu.kernels.sums import add_contribution, drain_sums, write_sum
from xccl_emu.lang import (
    DMA,
    MTU_IN,
    MTU_OUT,
    SCALAR,
    add,
    dma,
    fence,
    kernel,
    load,
    mtu_in,
    mtu_out,
    poll_ge,
    set_flag,
    store,
    ub_load,
    ub_store,
    v_fill,
    wait_flag,
)

ROUTES = 16
"""Routes that are loaded at a time."""

DMAS = 8
"""Transfers that the DMA engine works on at a time."""


def send_rows(home, row, n, turn, c: Group, b: Buffers, f: Fused):
    """Write rows to the home of their tokens, some at a time, the halves in turn."""
    row_bytes = 2 * c.hidden
    done = 0
    while done < n:
        half = turn % 2
        some = min(f.row_room, n - done)
        routes = work_at(c.n_ranks * c.n_local) + half * f.row_room * (row_bytes + ROUTE_BYTES)
        at = routes + f.row_room * ROUTE_BYTES
        if turn >= 2:
            yield wait_flag(MTU_OUT, MTU_IN, half, sync="row half free")
        yield mtu_in(b.route + (row + done) * ROUTE_BYTES, routes, some * ROUTE_BYTES, step=1)
        yield mtu_in(b.y + (row + done) * row_bytes, at, some * row_bytes, step=1)
        yield set_flag(MTU_IN, SCALAR, half, sync="row half full")
        yield wait_flag(MTU_IN, SCALAR, half, sync="row half full")
        for i in range(some):
            token = yield ub_load(routes + i * ROUTE_BYTES + 8, step=1)
            choice = yield ub_load(routes + i * ROUTE_BYTES + 12, step=1)
            target = f.combine + home * c.die_bytes + (token * c.top_k + choice) * row_bytes
            yield mtu_out(at + i * row_bytes, target, row_bytes, step=1)
        yield set_flag(MTU_OUT, MTU_IN, half, sync="row half free")
        done = done + some
        turn = turn + 1
    return turn


def send_rows_sdma(home, row, n, sent, c: Group, b: Buffers, f: Fused):
    """The same by the DMA engine, straight from the experts' outputs."""
    for i in range(n):
        token = yield load(b.route + (row + i) * ROUTE_BYTES + 8, 4, step=1)
        choice = yield load(b.route + (row + i) * ROUTE_BYTES + 12, 4, step=1)
        target = f.combine + home * c.die_bytes + (token * c.top_k + choice) * 2 * c.hidden
        if sent >= DMAS:
            yield wait_flag(DMA, SCALAR, sent % DMAS, step=1, sync="row written")
        yield dma(b.y + (row + i) * 2 * c.hidden, target, 2 * c.hidden, sent % DMAS, step=1)
        sent = sent + 1
    return sent


def send_back(core, c: Group, b: Buffers, f: Fused):
    """Step 1: for each peer of this core's share, the rows that came from it, expert by expert.

    The second table holds the next row of each expert, and in the end the row behind its last one.
    """
    turn = 0
    for s in range(c.n_ranks):
        for e in range(c.n_local):
            n = yield ub_load(4 * (e * c.n_ranks + s), step=1)
            row = yield ub_load(second_table(c.n_ranks * c.n_local) + 4 * e, step=1)
            yield ub_store(second_table(c.n_ranks * c.n_local) + 4 * e, row + n, step=1)
            if s % c.cores == core and n > 0:
                if f.sdma:
                    turn = yield from send_rows_sdma(s, row, n, turn, c, b, f)
                else:
                    turn = yield from send_rows(s, row, n, turn, c, b, f)
    if f.sdma:
        for i in range(min(turn, DMAS)):
            yield wait_flag(DMA, SCALAR, i, step=1, sync="row written")
    else:
        yield from drain_halves(MTU_OUT, MTU_IN, turn, "row half free")


def count_rows_in(home, row, n, c: Group, b: Buffers, f: Fused):
    """Add an arrival for each of some rows to its token."""
    done = 0
    while done < n:
        work = work_at(c.n_ranks * c.n_local)
        some = min(ROUTES, n - done)
        yield mtu_in(b.route + (row + done) * ROUTE_BYTES, work, some * ROUTE_BYTES, step=2)
        yield set_flag(MTU_IN, SCALAR, 0, sync="routes loaded")
        yield wait_flag(MTU_IN, SCALAR, 0, sync="routes loaded")
        for i in range(some):
            token = yield ub_load(work + i * ROUTE_BYTES + 8, step=2)
            yield add(f.arrivals + home * c.die_bytes + token * FIELD_BYTES, 1, step=2, sync="arrival")
        done = done + some


def announce(core, c: Group, b: Buffers, f: Fused):
    """Step 2: the arrivals of all rows that this core has sent; backwards, as the table of rows stands at the ends."""
    for i in range(c.n_ranks):
        s = c.n_ranks - 1 - i
        for e in range(c.n_local):
            n = yield ub_load(4 * (e * c.n_ranks + s), step=2)
            behind = yield ub_load(second_table(c.n_ranks * c.n_local) + 4 * e, step=2)
            yield ub_store(second_table(c.n_ranks * c.n_local) + 4 * e, behind - n, step=2)
            if s % c.cores == core and n > 0:
                yield from count_rows_in(s, behind - n, n, c, b, f)


def await_arrivals(t, rank, topk, c: Group, f: Fused):
    """Step 3: wait until a token has got a contribution for each of its choices, this round's and all before."""
    own = rank * c.die_bytes + t * FIELD_BYTES
    due = yield load(f.due + own, step=3)
    for k in range(c.top_k):
        slot = yield load(topk + t * INDEX_BYTES + 4 * k, 4, step=3)
        if slot >= 0:
            due = due + 1
    yield store(f.due + own, due, step=3)
    yield poll_ge(f.arrivals + own, due, step=3, sync="all arrived")


def sum_token(t, rank, turn, acc, c: Group, b: Buffers, f: Fused):
    """Step 3 for one token: its contributions weighed and added in order of the choices, the shared one as it is."""
    yield v_fill(acc, 4 * c.hidden, step=3)
    for k in range(c.top_k):
        slot = yield load(b.topk + t * INDEX_BYTES + 4 * k, 4, step=3)
        if slot >= 0:
            weight = yield load(b.weights + t * INDEX_BYTES + 4 * k, 4, step=3)
            source = f.combine + rank * c.die_bytes + (t * c.top_k + k) * 2 * c.hidden
            yield from add_contribution(source, acc, turn, k, weight, c, 3)
            turn = turn + 1
    return turn


def sum_tokens(rank, first, last, c: Group, b: Buffers, f: Fused):
    """Step 3 for this core's tokens."""
    acc = work_at(c.n_ranks * c.n_local)
    turn = 0
    for t in range(first, last):
        yield from await_arrivals(t, rank, b.topk, c, f)
        turn = yield from sum_token(t, rank, turn, acc, c, b, f)
        yield from write_sum(t, first, acc, c, b, 3)
    yield from drain_sums(turn, last - first)


@kernel
def fused_combine(rank, core, tokens, c: Group, b: Buffers, f: Fused):
    """One FusedCombine on one core of a rank with so many tokens."""
    yield from load_counts(b.counts, c)
    yield from send_back(core, c, b, f)
    yield fence(step=1, sync="contributions visible")  # it also frees the data buffer
    yield from announce(core, c, b, f)
    yield from sum_tokens(rank, tokens * core // c.cores, tokens * (core + 1) // c.cores, c, b, f)
