"""FusedCombine (CloudMatrix384 4.2.1): the experts' outputs go straight to the homes of their tokens.

Steps: 1 send, peer by peer: load the rows that came from it, find by their routes where they belong, write them there;
2 when all of it is visible, add one to each token's arrivals at its home; 3 at home wait until a token has all that it
is due, load its contributions in order of the choices, weigh and add them, the shared one last and as it is.

The peers are dealt out to the cores from the own rank on, so that no two ranks begin with the same one, and evenly: a
core may have a part of a peer, and then of the rows that came from it.

Nothing ever resets arrivals: a token's home remembers how many it has waited for.  Choices that are masked bring none.

A rank that has heard of an abort (`aborts`) sends nothing more, and sums up only tokens that have all they are due.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.aborts import Abort, unaborted, until_least
from xccl_emu.kernels.common import ROWS, add_words, fetch, move_row
from xccl_emu.kernels.experts.counts import FIELD_BYTES, INDEX_BYTES, second_table, work_at
from xccl_emu.kernels.experts.messages import ROUTE_BYTES
from xccl_emu.kernels.experts.parameters import Buffers, Group, RoutedBuffers
from xccl_emu.kernels.experts.sums import drain_sums, sum_token, write_sum
from xccl_emu.kernels.fused.parameters import Fused
from xccl_emu.kernels.group import drain, hand_over

DMAS = 8
"""Transfers that the DMA engine works on at a time."""

LISTED_BYTES = ROUTE_BYTES + 4
"""Bytes that the data buffer keeps for a row to be sent until it is announced: its route and its number."""


def buffer_at(i: int, hidden: int, n_slots: int) -> int:
    """Return where the data buffer has a row, after the tables; the number `ROWS` is where the routes begin."""
    return work_at(n_slots) + 2 * hidden * i


def find_rows(rank, core, first, last, counts, c: Group):
    """Load the counts that dispatch received, and find the rows of this core's peers, ``first`` to before ``last``.

    For these the first table then holds, by expert and source, how many are the core's, the second one the first row.
    """
    second = second_table(c.n_ranks * c.n_local)
    yield from fetch(counts, 0, 4 * c.n_ranks * c.n_local, 1, "received counts loaded")
    row = 0
    for e in range(c.n_local):
        for s in range(c.n_ranks):
            n = yield xl.ub_load(4 * (e * c.n_ranks + s), step=1)
            if first <= (s + c.n_ranks - rank) % c.n_ranks < last:
                yield xl.ub_store(second + 4 * (e * c.n_ranks + s), row, step=1)
            row = row + n
    for i in range(first, last):
        yield from take_part(i, (rank + i) % c.n_ranks, core, c)


def take_part(i, s, core, c: Group):
    """Narrow the rows that came from the i-th peer to this core's part, where it shares the peer with others."""
    begin = max(0, c.n_ranks * core - i * c.cores)
    end = min(c.cores, c.n_ranks * (core + 1) - i * c.cores)
    if end - begin < c.cores:
        rows = yield from add_words(4 * s, c.n_local, 4 * c.n_ranks, 1)
        begin = rows * begin // c.cores
        end = rows * end // c.cores
        for e in range(c.n_local):
            second = second_table(c.n_ranks * c.n_local) + 4 * (e * c.n_ranks + s)
            n = yield xl.ub_load(4 * (e * c.n_ranks + s), step=1)
            row = yield xl.ub_load(second, step=1)
            skipped = min(n, max(0, begin))
            yield xl.ub_store(second, row + skipped, step=1)
            yield xl.ub_store(4 * (e * c.n_ranks + s), max(0, min(n, end) - skipped), step=1)
            begin = begin - n
            end = end - n


def list_rows(row, n, listed, c: Group, b: Buffers, f: Fused):
    """Load the routes of some rows after those that are listed, and note the rows' numbers."""
    routes = buffer_at(ROWS, c.hidden, c.n_ranks * c.n_local)
    yield xl.mtu_in(b.route + row * ROUTE_BYTES, routes + listed * ROUTE_BYTES, n * ROUTE_BYTES, step=1)
    for i in range(n):
        yield xl.ub_store(routes + f.list_room * ROUTE_BYTES + 4 * (listed + i), row + i, step=1)


def target_of(route, c: Group, f: Fused):
    """Return where a row belongs, by its route."""
    home = yield xl.ub_load(route + 4, step=1)
    token = yield xl.ub_load(route + 8, step=1)
    choice = yield xl.ub_load(route + 12, step=1)
    return f.combine + home * c.die_bytes + (token * c.top_k + choice) * 2 * c.hidden


def send_rows(n, c: Group, b: Buffers, f: Fused):
    """Step 1: load the listed rows and write them to the homes of their tokens; or let the DMA engine do it."""
    routes = buffer_at(ROWS, c.hidden, c.n_ranks * c.n_local)
    for i in range(n):
        row = yield xl.ub_load(routes + f.list_room * ROUTE_BYTES + 4 * i, step=1)
        target = yield from target_of(routes + i * ROUTE_BYTES, c, f)
        if f.sdma:
            if i >= DMAS:
                yield xl.wait_flag(xl.DMA, xl.SCALAR, i % DMAS, step=1, sync="row written")
            yield xl.dma(b.y + row * 2 * c.hidden, target, 2 * c.hidden, i % DMAS, step=1)
        else:
            work = buffer_at(0, c.hidden, c.n_ranks * c.n_local)
            yield from move_row(b.y + row * 2 * c.hidden, target, 2 * c.hidden, work, i, 1)
    if f.sdma:
        yield from drain(xl.DMA, xl.SCALAR, n, DMAS, "row written")
    else:
        yield from drain(xl.MTU_OUT, xl.MTU_IN, n, ROWS, "row left")


def announce(n, c: Group, f: Fused):
    """Step 2: add an arrival to the token of each listed row."""
    routes = buffer_at(ROWS, c.hidden, c.n_ranks * c.n_local)
    for i in range(n):
        home = yield xl.ub_load(routes + i * ROUTE_BYTES + 4, step=2)
        token = yield xl.ub_load(routes + i * ROUTE_BYTES + 8, step=2)
        yield xl.add(f.arrivals + home * c.die_bytes + token * FIELD_BYTES, 1, step=2, sync="arrival")


def send_back(rank, first, last, c: Group, b: Buffers, f: Fused):
    """Steps 1 and 2 for this core's peers, expert by expert; more than once if there is no room to list all rows."""
    part = first * c.n_local
    done = 0
    while part < last * c.n_local:
        listed = 0
        while part < last * c.n_local and listed < f.list_room:
            cell = 4 * (part % c.n_local * c.n_ranks + (rank + part // c.n_local) % c.n_ranks)
            n = yield xl.ub_load(cell, step=1)
            some = min(n - done, f.list_room - listed)
            if some > 0:
                row = yield xl.ub_load(second_table(c.n_ranks * c.n_local) + cell, step=1)
                yield from list_rows(row + done, some, listed, c, b, f)
            listed = listed + some
            done = done + some
            if done == n:
                part = part + 1
                done = 0
        yield from hand_over(xl.MTU_IN, xl.SCALAR, 0, "rows listed")
        yield from send_rows(listed, c, b, f)
        yield xl.quiet(step=1, sync="contributions visible")
        yield from announce(listed, c, f)


def await_arrivals(going, t, rank, topk, c: Group, f: Fused, x: Abort):
    """Step 3: wait until a token has got a contribution for each of its choices, this round's and all before.

    Returns 0 if an abort came sooner, or had before (``going``).
    """
    own = rank * c.die_bytes + t * FIELD_BYTES
    due = yield xl.load(f.due + own, step=3)
    for k in range(c.top_k):
        slot = yield xl.load(topk + t * INDEX_BYTES + 4 * k, 4, step=3)
        if slot >= 0:
            due = due + 1
    yield xl.store(f.due + own, due, step=3)
    came = yield from until_least(going, f.arrivals + own, due, x, 3, "all arrived")
    return came


def sum_tokens(rank, first, last, c: Group, b: Buffers, f: Fused, x: Abort):
    """Step 3 for this core's tokens."""
    acc = work_at(c.n_ranks * c.n_local)
    turn = 0
    going = 1
    for t in range(first, last):
        going = yield from await_arrivals(going, t, rank, b.topk, c, f, x)
        if going:
            turn = yield from sum_token(t, f.combine + rank * c.die_bytes, turn, acc, c, b, 3)
        else:
            yield xl.v_fill(acc, 4 * c.hidden, step=3)
        yield from write_sum(t, first, acc, c, b, 3)
    yield from drain_sums(turn, last - first)


def bring_back(rank, core, tokens, c: Group, b: Buffers, f: Fused, x: Abort):
    """All steps."""
    received = yield from unaborted(x)
    if received:
        first = c.n_ranks * core // c.cores
        last = (c.n_ranks * (core + 1) + c.cores - 1) // c.cores
        yield from find_rows(rank, core, first, last, b.counts, c)
        yield from send_back(rank, first, last, c, b, f)  # its last quiet frees the data buffer
    yield from sum_tokens(rank, tokens * core // c.cores, tokens * (core + 1) // c.cores, c, b, f, x)


class _Combines(Fused):
    combine: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    arrivals: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    due: xl.Own[xl.Updates]


@xl.kernel
def fused_combine(rank, core, tokens, c: Group, b: RoutedBuffers, f: _Combines):
    """Do one FusedCombine on one core of a rank with this many tokens."""
    yield from bring_back(rank, core, tokens, c, b, f, Abort())
