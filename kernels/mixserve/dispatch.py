"""AG-Dispatch, MixServe's Algorithm 2: rows to the nodes of their experts by shards, then all-gather in the node."""

from xccl_emu import lang as xl
from xccl_emu.kernels.group import drain
from xccl_emu.kernels.mixserve.rows import (
    FIELD_BYTES,
    PLACES,
    ClusterRank,
    Inboxes,
    Tables,
    node_on,
    row_here,
    row_in,
    row_left,
)


def load_sent(n, i, step, r, c: ClusterRank, t: Tables):
    """Load this shard of the i-th row for the node ``step`` nodes on; of the first, i = 0, the counts by expert."""
    node = node_on(step, c.node, c.nodes)
    if i == 0:
        yield from row_in(n, t.counts + (r * c.nodes + node) * c.experts * 8, c.experts * 8, c)
    else:
        choice = yield xl.load(t.rows + ((r * c.nodes + node) * c.capacity + i - 1) * 4, 4)
        row = t.x + (r * c.tokens + choice // c.top_k) * c.row_bytes
        yield from row_in(n, row + c.local % c.shards * c.part_bytes, c.part_bytes, c)


def send_row(n, i, step, r, c: ClusterRank, b: Inboxes):
    """Algorithm 2, line 8: what was loaded, to the same rank of that node."""
    node = node_on(step, c.node, c.nodes)
    block = b.sent + (node * c.ranks + c.local) * c.pitch
    block += (r % 2 * c.nodes + c.node) * (c.head + c.capacity * c.part_bytes)
    at = yield from row_here(n, c)
    if i == 0:
        yield xl.mtu_out(at, block, c.experts * 8, step=8)
    else:
        yield xl.mtu_out(at, block + c.head + (i - 1) * c.part_bytes, c.part_bytes, step=8)
    yield from row_left(n)


def tell_sent(step, r, c: ClusterRank, t: Tables, b: Inboxes):
    """Report to the rank that gets the rows of a step how many they are; the rows become visible first."""
    node = node_on(step, c.node, c.nodes)
    total = yield xl.load(t.totals + (r * c.nodes + node) * 8)
    field = b.sent_fields + (node * c.ranks + c.local) * c.pitch + (r % 2 * c.nodes + c.node) * FIELD_BYTES
    yield xl.fence(step=8, sync="rows before field")
    yield xl.put(field, r + 1, total, step=8, sync="rows sent")


def rows_come(step, r, c: ClusterRank, t: Tables, b: Inboxes):
    """Wait for the rows from ``step`` nodes back; returns how many."""
    node = node_on(-step, c.node, c.nodes)
    if step == 0:
        total = yield xl.load(t.totals + (r * c.nodes + node) * 8)
    else:
        field = b.sent_fields + (c.node * c.ranks + c.local) * c.pitch + (r % 2 * c.nodes + node) * FIELD_BYTES
        yield xl.poll_ge(field, r + 1, step=10, sync="rows sent in")
        total = yield xl.load(field + 8, step=10)
    yield xl.store(t.arrived + ((r * c.nodes + node) * c.groups + c.group) * 8, total)
    return total


def load_gathered(n, i, step, r, c: ClusterRank, t: Tables, b: Inboxes):
    """Load the i-th row from ``step`` nodes back: this shard, or the row if it is for the own node; or the counts."""
    node = node_on(-step, c.node, c.nodes)
    head = b.sent + (c.node * c.ranks + c.local) * c.pitch
    head += (r % 2 * c.nodes + node) * (c.head + c.capacity * c.part_bytes)
    if i == 0 and step == 0:
        yield from row_in(n, t.counts + (r * c.nodes + node) * c.experts * 8, c.experts * 8, c)
    elif i == 0:
        yield from row_in(n, head, c.experts * 8, c)
    elif step == 0:
        choice = yield xl.load(t.rows + ((r * c.nodes + node) * c.capacity + i - 1) * 4, 4)
        yield from row_in(n, t.x + (r * c.tokens + choice // c.top_k) * c.row_bytes, c.row_bytes, c)
    else:
        yield from row_in(n, head + c.head + (i - 1) * c.part_bytes, c.part_bytes, c)


def gather_row(n, i, step, r, c: ClusterRank, b: Inboxes):
    """Line 13: this shard to all that have the experts; counts to a rank of each group of those.

    The stage that Algorithm 2 leaves out: a row for the own node stays, with all its columns.
    """
    block = (r % 2 * c.nodes + node_on(-step, c.node, c.nodes)) * c.groups + c.group
    row = b.gathered + (block * c.capacity + i - 1) * c.row_bytes
    at = yield from row_here(n, c)
    shard = c.local % c.shards * c.part_bytes
    if i > 0 and step == 0:
        yield xl.mtu_out(at, row + (c.node * c.ranks + c.local) * c.pitch, c.row_bytes, step=13)
        at += shard
    for j in range(c.ep_size):
        rank = c.ep_first + (c.local - c.ep_first + 1 + j) % c.ep_size
        die = (c.node * c.ranks + rank) * c.pitch
        if i == 0 and rank % c.shards == c.local % c.shards:
            yield xl.mtu_out(at, b.heads + die + block * c.head, c.experts * 8, step=13)
        if i > 0 and (step > 0 or rank // c.shards != c.local // c.shards):
            yield xl.mtu_out(at, row + die + shard, c.part_bytes, step=13)
    yield from row_left(n)


def tell_gathered(step, r, total, c: ClusterRank, b: Inboxes):
    """Signal it to those with the same experts."""
    field = b.gathered_fields + ((r % 2 * c.nodes + node_on(-step, c.node, c.nodes)) * c.ranks + c.local) * FIELD_BYTES
    yield xl.fence(step=13, sync="rows before field")
    for rank in range(c.ep_first, c.ep_first + c.ep_size):
        if rank != c.local and (step > 0 or rank // c.shards != c.local // c.shards):
            yield xl.put(field + (c.node * c.ranks + rank) * c.pitch, r + 1, total, step=13, sync="rows gathered")


def await_gathered(step, r, c: ClusterRank, t: Tables, b: Inboxes):
    """Wait until the rows from ``step`` nodes back have all their columns."""
    node = node_on(-step, c.node, c.nodes)
    fields = b.gathered_fields + (c.node * c.ranks + c.local) * c.pitch
    fields += (r % 2 * c.nodes + node) * c.ranks * FIELD_BYTES
    for rank in range(c.ep_first, c.ep_first + c.ep_size):
        if rank != c.local and (step > 0 or rank // c.shards != c.local // c.shards):
            yield xl.poll_ge(fields + rank * FIELD_BYTES, r + 1, step=13, sync="rows gathered in")
            if rank % c.shards == c.local % c.shards:
                total = yield xl.load(fields + rank * FIELD_BYTES + 8)
                yield xl.store(t.arrived + ((r * c.nodes + node) * c.groups + rank // c.shards) * 8, total)


def dispatch(r, c: ClusterRank, t: Tables, b: Inboxes):
    """Algorithm 2.  With overlap half of the rows for the next node leave before those from the last one are awaited,
    and the others row by row with those that go round this node.  What a turn loads leaves in the next.
    """
    n = 0
    for i in range(c.nodes):
        step = i + c.overlap
        sends = 0
        if step > 0 and step < c.nodes:
            total = yield xl.load(t.totals + (r * c.nodes + node_on(step, c.node, c.nodes)) * 8)
            sends = total + 1
        first = sends // (1 + c.overlap)
        for j in range(first):
            yield from load_sent(n, j, step, r, c, t)
            yield from send_row(n, j, step, r, c, b)
            n += 1
        if sends > 0 and first == sends:
            yield from tell_sent(step, r, c, t, b)
        total = yield from rows_come(i, r, c, t, b)
        left = n
        for j in range(max(total + 1, sends - first) + 1):
            if first + j < sends:
                yield from load_sent(n, first + j, step, r, c, t)
                n += 1
            if j <= total:
                yield from load_gathered(n, j, i, r, c, t, b)
                n += 1
            if j > 0 and first + j - 1 < sends:
                yield from send_row(left, first + j - 1, step, r, c, b)
                left += 1
                if first + j == sends:
                    yield from tell_sent(step, r, c, t, b)
            if j > 0 and j - 1 <= total:
                yield from gather_row(left, j - 1, i, r, c, b)
                left += 1
        yield from tell_gathered(i, r, total, c, b)
        if not c.overlap:
            yield from await_gathered(i, r, c, t, b)
    yield from drain(xl.MTU_OUT, xl.MTU_IN, n, PLACES, "row left")
    if c.overlap:
        for i in range(c.nodes):
            yield from await_gathered(i, r, c, t, b)
    yield xl.quiet(step=13, sync="own rows")
