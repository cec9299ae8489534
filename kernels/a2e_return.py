"""The third stream of an expert die (xDeepServe 5.2): E2A, a persistent kernel; the others are in `a2e_expert`."""

from xccl_emu.kernels.a2e_expert import HEADER_BYTES, counts_bytes, drain_rings, lists_bytes, ring, rows_of_call
from xccl_emu.kernels.a2e_parameters import Domains, Places, attention_die
from xccl_emu.kernels.counts import FIELD_BYTES, INDEX_BYTES
from xccl_emu.kernels.dispatch import ROUTE_BYTES
from xccl_emu.kernels.group import align, barrier, drain_halves
from xccl_emu.kernels.parameters import Buffers, Group
from xccl_emu.lang import (
    MTU_IN,
    MTU_OUT,
    SCALAR,
    VECTOR,
    add,
    kernel,
    load,
    mtu_in,
    mtu_out,
    poll_ge,
    put,
    quiet,
    set_flag,
    ub_load,
    ub_store,
    v_fill,
    wait_flag,
)

# ---- step 5


def target_of(row, t, parity, c: Group, b: Buffers, m: Domains, at: Places):
    """Where in the staging of trampoline ``t`` a row belongs: at its token and choice."""
    token = yield load(b.route + row * ROUTE_BYTES + 8, 4, step=5)
    choice = yield load(b.route + row * ROUTE_BYTES + 12, 4, step=5)
    place = (parity * m.tokens_max + token) * c.top_k + choice
    return at.staging + t * c.die_bytes + place * 2 * c.hidden


def send_rows(row, n, t, parity, c: Group, b: Buffers, m: Domains, at: Places, work, room, turn):
    """Step 5 through the data buffer: some rows in, each out to its place, the halves in turn."""
    done = 0
    while done < n:
        half = turn % 2
        some = min(room, n - done)
        first = work + half * room * 2 * c.hidden
        if turn >= 2:
            yield wait_flag(MTU_OUT, MTU_IN, half, sync="send half free")
        yield mtu_in(b.y + (row + done) * 2 * c.hidden, first, some * 2 * c.hidden, step=5)
        yield set_flag(MTU_IN, MTU_OUT, half, sync="send half full")
        yield wait_flag(MTU_IN, MTU_OUT, half, sync="send half full")
        for i in range(some):
            target = yield from target_of(row + done + i, t, parity, c, b, m, at)
            yield mtu_out(first + i * 2 * c.hidden, target, 2 * c.hidden, step=5)
        yield set_flag(MTU_OUT, MTU_IN, half, sync="send half free")
        done = done + some
        turn = turn + 1
    return turn


def send_rows_dma(row, n, t, parity, c: Group, b: Buffers, m: Domains, at: Places, turn):
    """Step 5 by URMA: each row straight to its place."""
    for r in range(row, row + n):
        target = yield from target_of(r, t, parity, c, b, m, at)
        yield from ring(b.y + r * 2 * c.hidden, target, 2 * c.hidden, turn)
        turn = turn + 1
    return turn


def send_part(begin, end, parity, c: Group, b: Buffers, m: Domains, at: Places, table, work, room, turn):
    """Step 5 for the rows of a call from ``begin`` to before ``end``."""
    row = 0
    for e in range(c.n_local):
        for t in range(m.n_attention):
            n = yield ub_load(table + 4 * (e * m.n_attention + t), step=5)
            first = max(row, begin)
            some = min(row + n, end) - first
            if some > 0:
                first = first + parity * m.rows_max
                if c.by_dma:
                    turn = yield from send_rows_dma(first, some, t, parity, c, b, m, at, turn)
                else:
                    turn = yield from send_rows(first, some, t, parity, c, b, m, at, work, room, turn)
            row = row + n
    return turn


def send_back(begin, end, rows, parity, c: Group, b: Buffers, m: Domains, at: Places, table, work, room):
    """Step 5: this core's share of the rows; behind the last of them come the first ones."""
    turn = yield from send_part(begin, min(end, rows), parity, c, b, m, at, table, work, room, 0)
    turn = yield from send_part(max(0, begin - rows), end - rows, parity, c, b, m, at, table, work, room, turn)
    if c.by_dma:
        yield from drain_rings(turn)
    else:
        yield from drain_halves(MTU_OUT, MTU_IN, turn, "send half free")
        yield quiet(step=5, sync="rows in staging")


def announce_part(begin, end, parity, c: Group, m: Domains, at: Places, table):
    """Tell each trampoline how many rows from ``begin`` to before ``end`` have arrived there."""
    row = 0
    for e in range(c.n_local):
        for t in range(m.n_attention):
            n = yield ub_load(table + 4 * (e * m.n_attention + t), step=5)
            total = min(row + n, end) - max(row, begin)
            if total > 0:
                yield add(at.arrivals + t * c.die_bytes + parity * FIELD_BYTES, total, step=5, sync="arrivals")
            row = row + n


def announce(begin, end, rows, parity, c: Group, m: Domains, at: Places, table):
    """Tell the trampolines what this core has sent; all rows are its own, so its quiet is enough."""
    yield from announce_part(begin, min(end, rows), parity, c, m, at, table)
    yield from announce_part(max(0, begin - rows), end - rows, parity, c, m, at, table)


# ---- step 6: what trampolines do for E2A


def expect(n, kept, parity, c: Group, lists):
    """Load the lists of the call; returns how many rows have come back at this parity when all of the call have."""
    if n > 0:
        yield mtu_in(kept + HEADER_BYTES, lists, n * INDEX_BYTES, step=6)
        yield set_flag(MTU_IN, SCALAR, 0, sync="kept lists loaded")
        yield wait_flag(MTU_IN, SCALAR, 0, sync="kept lists loaded")
    total = yield ub_load(4 * parity, step=6)
    for t in range(n):
        for k in range(c.top_k):
            slot = yield ub_load(lists + t * INDEX_BYTES + 4 * k, step=6)
            if slot >= 0:
                total = total + 1
    yield ub_store(4 * parity, total, step=6)
    return total


def return_row(source, target, nbytes, work, turn):
    """Step 6 for one row through the data buffer."""
    half = turn % 2
    if turn >= 2:
        yield wait_flag(MTU_OUT, MTU_IN, half, sync="return half free")
    yield mtu_in(source, work + half * nbytes, nbytes, step=6)
    yield set_flag(MTU_IN, MTU_OUT, half, sync="return half full")
    yield wait_flag(MTU_IN, MTU_OUT, half, sync="return half full")
    yield mtu_out(work + half * nbytes, target, nbytes, step=6)
    yield set_flag(MTU_OUT, MTU_IN, half, sync="return half free")


def return_rows(first, last, source, target, c: Group, lists, work):
    """Step 6: every row of some tokens to the same place at the attention die; masked choices have none."""
    turn = 0
    for t in range(first, last):
        for k in range(c.top_k):
            slot = yield ub_load(lists + t * INDEX_BYTES + 4 * k, step=6)
            if slot >= 0:
                offset = (t * c.top_k + k) * 2 * c.hidden
                if c.by_dma:
                    yield from ring(source + offset, target + offset, 2 * c.hidden, turn)
                else:
                    yield from return_row(source + offset, target + offset, 2 * c.hidden, work, turn)
                turn = turn + 1
    if c.by_dma:
        yield from drain_rings(turn)
    else:
        yield from drain_halves(MTU_OUT, MTU_IN, turn, "return half free")
        yield quiet(step=6, sync="rows at the attention die")


def relay_back(core, die, call, c: Group, m: Domains, at: Places, lists, work):
    """Step 6: when all rows of the call have arrived, forward them, and tell the attention die and the A2E stream."""
    here = die * c.die_bytes
    parity = call % m.depth
    to = attention_die(call, die, m.n_domains, m.n_attention, c.n_ranks) * c.die_bytes
    kept = at.lists + here + parity * lists_bytes(m.tokens_max)
    n = yield load(kept, step=6)
    total = yield from expect(n, kept, parity, c, lists)
    yield poll_ge(at.arrivals + here + parity * FIELD_BYTES, total, step=6, sync="all rows arrived")
    source = at.staging + here + parity * m.tokens_max * c.top_k * 2 * c.hidden
    first, last = n * core // c.cores, n * (core + 1) // c.cores
    yield from return_rows(first, last, source, at.returned + to, c, lists, work)
    yield from barrier(6, "all cores have returned")
    if core == 0:
        yield put(at.returned_in + to, call + 1, step=6, sync="call returned")
        yield put(at.relayed + here, call + 1, step=6, sync="staging read")


def load_counts_of(call, c: Group, b: Buffers, m: Domains, table):
    """Load the counts of a call, by local expert and trampoline; returns the first, which is -1 at the end."""
    counts = b.counts + call % (m.depth + 1) * counts_bytes(m.n_attention, c.n_local)
    yield mtu_in(counts, table, 4 * m.n_attention * c.n_local, step=5)
    yield set_flag(MTU_IN, SCALAR, 0, sync="counts of rows loaded")
    yield wait_flag(MTU_IN, SCALAR, 0, sync="counts of rows loaded")
    n = yield ub_load(table, step=5)
    return n


@kernel
def e2a_stream(core, die, room, c: Group, b: Buffers, m: Domains, at: Places):
    """Steps 5 and 6, call after call; ``room`` rows fit half of the data buffer behind the tables.

    The rows of a call are shared evenly by the cores, and every expert die begins with other ones: if all began with
    the same trampolines, these could not take in rows as fast as they would come.
    """
    here = die * c.die_bytes
    table = align(4 * m.depth)
    lists = table + counts_bytes(m.n_attention, c.n_local)
    work = lists + m.tokens_max * INDEX_BYTES
    yield v_fill(0, table, step=5)  # how many rows have been waited for, by parity
    yield set_flag(VECTOR, SCALAR, 0, sync="table of arrivals cleared")
    yield wait_flag(VECTOR, SCALAR, 0, sync="table of arrivals cleared")
    call = 0
    n = 0
    while n >= 0:
        yield poll_ge(at.computed + here, call + 1, step=5, sync="rows to send back")
        n = yield from load_counts_of(call, c, b, m, table)
        if n >= 0:
            rows = yield from rows_of_call(table, 5, c, m)
            begin = rows * die // c.n_ranks + rows * core // c.cores
            end = rows * die // c.n_ranks + rows * (core + 1) // c.cores
            yield from send_back(begin, end, rows, call % m.depth, c, b, m, at, table, work, room)
            yield from announce(begin, end, rows, call % m.depth, c, m, at, table)
            yield from barrier(5, "all cores have sent back")
            if core == 0:
                yield put(at.sent + here, call + 1, step=5, sync="rows sent back")
            if die < m.n_attention:
                yield from relay_back(core, die, call, c, m, at, lists, work)
        call = call + 1
