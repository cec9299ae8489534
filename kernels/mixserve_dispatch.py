"""AG-Dispatch, MixServe's Algorithm 2: rows to the nodes of their experts by shards, then all-gather in the node."""

from xccl_emu.kernels.group import drain_halves
from xccl_emu.kernels.mixserve_parts import FIELD_BYTES, Cluster, Inboxes, Tables, columns, row_in, row_left
from xccl_emu.lang import MTU_IN, MTU_OUT, load, mtu_out, poll_ge, put, quiet, store


def send_rows(step, r, c: Cluster, t: Tables, b: Inboxes):
    """Algorithm 2, lines 7 and 8: this shard of the rows for the node ``step`` nodes on, to the same rank there."""
    node = (c.node + step) % c.nodes
    capacity = c.tokens * c.top_k
    block = b.sent + (node * c.ranks + c.local) * c.pitch + (r % 2 * c.nodes + c.node) * (c.head + capacity * c.room)
    yield from row_in(0, t.counts + (r * c.nodes + node) * c.experts * 8, c.experts * 8, c.room)
    yield mtu_out(0, block, c.experts * 8, step=8)
    yield from row_left(0)
    total = yield load(t.totals + (r * c.nodes + node) * 8)
    own = t.x + r * c.tokens * c.row_bytes + columns(c.local % c.shards, c.core, c.cores, c.part_bytes)
    for i in range(total):
        choice = yield load(t.rows + ((r * c.nodes + node) * capacity + i) * 4, 4)
        yield from row_in(i + 1, own + choice // c.top_k * c.row_bytes, c.part_bytes, c.room)
        yield mtu_out((i + 1) % 2 * c.room, block + c.head + i * c.room, c.part_bytes, step=8)
        yield from row_left(i + 1)
    yield from drain_halves(MTU_OUT, MTU_IN, total + 1, "row left")


def tell_sent(step, r, c: Cluster, t: Tables, b: Inboxes):
    """Tell the rank that the rows of a step went to how many they are; they are visible."""
    node = (c.node + step) % c.nodes
    total = yield load(t.totals + (r * c.nodes + node) * 8)
    field = b.sent_fields + (node * c.ranks + c.local) * c.pitch + (r % 2 * c.nodes + c.node) * FIELD_BYTES
    yield put(field, r + 1, total, step=8, sync="rows sent")


def keep_local(r, c: Cluster, t: Tables, b: Inboxes):
    """The stage that Algorithm 2 leaves out: rows for the own node are here, with all their columns."""
    capacity = c.tokens * c.top_k
    die = (c.node * c.ranks + c.local) * c.pitch
    block = (r % 2 * c.nodes + c.node) * c.groups + c.group
    yield from row_in(0, t.counts + (r * c.nodes + c.node) * c.experts * 8, c.experts * 8, c.room)
    yield mtu_out(0, b.heads + die + block * c.head, c.experts * 8, step=13)
    yield from row_left(0)
    total = yield load(t.totals + (r * c.nodes + c.node) * 8)
    n = 1
    for i in range(total):
        choice = yield load(t.rows + ((r * c.nodes + c.node) * capacity + i) * 4, 4)
        row = t.x + (r * c.tokens + choice // c.top_k) * c.row_bytes
        for shard in range(c.shards):
            at = columns(shard, c.core, c.cores, c.part_bytes)
            yield from row_in(n, row + at, c.part_bytes, c.room)
            place = b.gathered + die + (block * capacity + i) * c.row_bytes + at
            yield mtu_out(n % 2 * c.room, place, c.part_bytes, step=13)
            yield from row_left(n)
            n += 1
    yield from drain_halves(MTU_OUT, MTU_IN, n, "row left")
    return total


def gather_rows(step, r, total, head, rows, row_step, c: Cluster, t: Tables, b: Inboxes):
    """Line 13: this shard of the rows from ``step`` nodes back, to all that have the experts; local ones by table."""
    node = (c.node + c.nodes - step) % c.nodes
    capacity = c.tokens * c.top_k
    block = (r % 2 * c.nodes + node) * c.groups + c.group
    at = columns(c.local % c.shards, c.core, c.cores, c.part_bytes)
    for i in range(total + 1):
        if i == 0:
            yield from row_in(0, head, c.experts * 8, c.room)
        elif step == 0:
            choice = yield load(t.rows + ((r * c.nodes + node) * capacity + i - 1) * 4, 4)
            yield from row_in(i, rows + choice // c.top_k * row_step, c.part_bytes, c.room)
        else:
            yield from row_in(i, rows + (i - 1) * row_step, c.part_bytes, c.room)
        for rank in range(c.ep_first, c.ep_first + c.ep_size):
            die = (c.node * c.ranks + rank) * c.pitch
            if step > 0 or rank // c.shards != c.local // c.shards:
                if i > 0:
                    row = b.gathered + die + (block * capacity + i - 1) * c.row_bytes + at
                    yield mtu_out(i % 2 * c.room, row, c.part_bytes, step=13)
                elif rank % c.shards == c.local % c.shards:
                    yield mtu_out(0, b.heads + die + block * c.head, c.experts * 8, step=13)
        yield from row_left(i)
    yield from drain_halves(MTU_OUT, MTU_IN, total + 1, "row left")


def gather_step(step, r, c: Cluster, t: Tables, b: Inboxes):
    """Keep what is for the own node, or wait for what ``step`` nodes back sent; pass it on; returns how many."""
    node = (c.node + c.nodes - step) % c.nodes
    at = columns(c.local % c.shards, c.core, c.cores, c.part_bytes)
    if step == 0:
        total = yield from keep_local(r, c, t, b)
        head = t.counts + (r * c.nodes + node) * c.experts * 8
        rows = t.x + r * c.tokens * c.row_bytes + at
        row_step = c.row_bytes
    else:
        die = (c.node * c.ranks + c.local) * c.pitch
        field = b.sent_fields + die + (r % 2 * c.nodes + node) * FIELD_BYTES
        yield poll_ge(field, r + 1, step=10, sync="rows sent in")
        total = yield load(field + 8, step=10)
        head = b.sent + die + (r % 2 * c.nodes + node) * (c.head + c.tokens * c.top_k * c.room)
        rows = head + c.head
        row_step = c.room
    yield store(t.arrived + ((r * c.nodes + node) * c.groups + c.group) * 8, total)
    if step > 0 or c.ep_size > c.shards:
        yield from gather_rows(step, r, total, head, rows, row_step, c, t, b)
    return total


def tell_gathered(step, r, total, c: Cluster, b: Inboxes):
    """Tell those with the same experts."""
    node = (c.node + c.nodes - step) % c.nodes
    field = b.gathered_fields + ((r % 2 * c.nodes + node) * c.ranks + c.local) * FIELD_BYTES
    for rank in range(c.ep_first, c.ep_first + c.ep_size):
        if rank != c.local and (step > 0 or rank // c.shards != c.local // c.shards):
            yield put(field + (c.node * c.ranks + rank) * c.pitch, r + 1, total, step=13, sync="rows gathered")


def await_gathered(step, r, c: Cluster, t: Tables, b: Inboxes):
    """Wait until the rows from ``step`` nodes back have all their columns."""
    node = (c.node + c.nodes - step) % c.nodes
    fields = b.gathered_fields + (c.node * c.ranks + c.local) * c.pitch
    fields += (r % 2 * c.nodes + node) * c.ranks * FIELD_BYTES
    for rank in range(c.ep_first, c.ep_first + c.ep_size):
        if rank != c.local and (step > 0 or rank // c.shards != c.local // c.shards):
            yield poll_ge(fields + rank * FIELD_BYTES, r + 1, step=13, sync="rows gathered in")
            if rank % c.shards == c.local % c.shards:
                total = yield load(fields + rank * FIELD_BYTES + 8)
                group = rank // c.shards
                yield store(t.arrived + ((r * c.nodes + node) * c.groups + group) * 8, total)


def dispatch(r, c: Cluster, t: Tables, b: Inboxes):
    """Algorithm 2: with overlap rows for the next node leave while those from the last one go round this one."""
    for i in range(c.nodes):
        step = i + c.overlap
        sends = step > 0 and step < c.nodes
        if sends:
            yield from send_rows(step, r, c, t, b)
            if not c.overlap:
                yield quiet(step=8, sync="rows before field")
                yield from tell_sent(step, r, c, t, b)
        total = yield from gather_step(i, r, c, t, b)
        yield quiet(step=13, sync="rows before field")
        if sends and c.overlap:
            yield from tell_sent(step, r, c, t, b)
        yield from tell_gathered(i, r, total, c, b)
        if not c.overlap:
            yield from await_gathered(i, r, c, t, b)
    if c.overlap:
        for i in range(c.nodes):
            yield from await_gathered(i, r, c, t, b)
