"""The third stream of an expert die (xDeepServe 5.2): E2A, a persistent kernel; the others are in `expert`."""

from typing import NamedTuple

from xccl_emu import lang as xl
from xccl_emu.kernels.a2e.expert import counts_bytes
from xccl_emu.kernels.a2e.parameters import (
    STOP,
    Domains,
    Places,
    ReturnPlan,
    attention_die,
    dies_of,
    first_of,
    microbatch_of,
    part_begin,
    trampoline_of,
)
from xccl_emu.kernels.a2e.trampoline import HEADER_BYTES, lists_bytes
from xccl_emu.kernels.aborts import Abort, meet, until_all, until_least
from xccl_emu.kernels.common import ROWS, add_words, drain_rings, fetch, move_row, ring
from xccl_emu.kernels.experts.counts import COLUMNS, FIELD_BYTES, INDEX_BYTES
from xccl_emu.kernels.experts.messages import ROUTE_BYTES
from xccl_emu.kernels.experts.parameters import Buffers, Group
from xccl_emu.kernels.group import drain, hand_over


class Share(NamedTuple):
    """A core's share of the rows of a call; the core sends it back part by part."""

    begin: int
    end: int
    part: int
    parity: int
    """``call % depth``, which says where the call's rows are."""


# ---- step 5


def send_rows(row, n, high, staging, turn, c: Group, b: Buffers, plan: ReturnPlan):
    """Step 5: send those among ``n`` rows, in token order, whose token is below ``high``, each to its token and choice.

    ``staging`` is the place of token 0; returns the next turn.
    """
    for i in range(n):
        token = yield xl.load(b.route + (row + i) * ROUTE_BYTES + 8, 4, step=5)
        if token >= high:
            break
        choice = yield xl.load(b.route + (row + i) * ROUTE_BYTES + 12, 4, step=5)
        target = staging + (token * c.top_k + choice) * 2 * c.hidden
        if c.by_dma:
            yield from ring(b.y + (row + i) * 2 * c.hidden, target, 2 * c.hidden, turn)
        else:
            yield from move_row(b.y + (row + i) * 2 * c.hidden, target, 2 * c.hidden, plan.work, turn, 5)
        turn = turn + 1
    return turn


def send_share(s: Share, lap, turn, c: Group, b: Buffers, m: Domains, at: Places, plan: ReturnPlan):
    """Step 5 for a core's share; notes how many rows go where."""
    high = part_begin(s.part + 1, m.e2a_parts, m.tokens_max)
    row = 0
    for e in range(c.n_local):
        for t in range(m.n_attention):
            n = yield xl.ub_load(plan.counts + 4 * (e * m.n_attention + t), step=5)
            first = max(row, s.begin)
            some = min(row + n, s.end) - first
            row = row + n
            if some > 0:
                done_at = plan.done + lap * counts_bytes(m.n_attention, c.n_local) + 4 * (e * m.n_attention + t)
                done = yield xl.ub_load(done_at, step=5)
                before = turn
                trampoline = trampoline_of(t, m.n_attention, m.trampolines)
                place = s.parity * m.fan_in + t - first_of(trampoline, m.n_attention, m.trampolines)
                staging = at.staging + trampoline * c.die_bytes + place * m.tokens_max * c.top_k * 2 * c.hidden
                first = s.parity * m.rows_max + first + done
                turn = yield from send_rows(first, some - done, high, staging, turn, c, b, plan)
                yield xl.ub_store(done_at, done + turn - before, step=5)
                sent = yield xl.ub_load(plan.sent + 4 * t, step=5)
                yield xl.ub_store(plan.sent + 4 * t, sent + turn - before, step=5)
    return turn


def send_part(s: Share, rows, c: Group, b: Buffers, m: Domains, at: Places, plan: ReturnPlan):
    """Step 5: send this core's rows of a part; the rows wrap from the last of the call's ``rows`` to the first."""
    turn = yield from send_share(s._replace(end=min(s.end, rows)), 0, 0, c, b, m, at, plan)
    turn = yield from send_share(s._replace(begin=max(0, s.begin - rows), end=s.end - rows), 1, turn, c, b, m, at, plan)
    if c.by_dma:
        yield from drain_rings(turn)
    else:
        yield from drain(xl.MTU_OUT, xl.MTU_IN, turn, ROWS, "row left")


def announce(part, parity, c: Group, m: Domains, at: Places, plan: ReturnPlan):
    """Report to the trampolines what this core sent of a part; it alone wrote these rows, so its quiet is enough."""
    for t in range(m.n_attention):
        sent = yield xl.ub_load(plan.sent + 4 * t, step=5)
        if sent > 0:
            trampoline = trampoline_of(t, m.n_attention, m.trampolines)
            place = parity * m.fan_in + t - first_of(trampoline, m.n_attention, m.trampolines)
            field = at.arrivals + trampoline * c.die_bytes + (place * m.e2a_parts + part) * FIELD_BYTES
            yield xl.add(field, sent, step=5, sync="arrivals")
            yield xl.ub_store(plan.sent + 4 * t, 0, step=5)


# ---- step 6: what trampolines do for E2A


def expect(number, low, high, kept, c: Group, plan: ReturnPlan):
    """Load the lists of some tokens, as many at a time as there is room for.

    Returns how many rows have come back in all, under ``number``, with theirs.
    """
    rows = 0
    while low < high:
        some = min(plan.listed, high - low)
        yield xl.mtu_in(kept + HEADER_BYTES + low * INDEX_BYTES, plan.lists, some * INDEX_BYTES, step=6)
        yield from hand_over(xl.MTU_IN, xl.VECTOR, 0, "kept lists loaded")
        yield xl.v_count(plan.lists, plan.lists - 32, some * COLUMNS, 0, c.n_ranks * c.n_local, step=6)
        yield from hand_over(xl.VECTOR, xl.SCALAR, 0, "rows of a part counted")
        n = yield xl.ub_load(plan.lists - 32, step=6)
        rows = rows + n
        low = low + some
    due = yield xl.ub_load(4 * number, step=6)
    yield xl.ub_store(4 * number, due + rows, step=6)
    return due + rows


def return_rows(low, first, last, source, target, c: Group, plan: ReturnPlan):
    """Step 6: every row of some tokens to the same place at the attention die; masked choices have none.

    The lists in the data buffer begin with the list of token ``low``.
    """
    turn = 0
    for t in range(first, last):
        for k in range(c.top_k):
            slot = yield xl.ub_load(plan.lists + (t - low) * INDEX_BYTES + 4 * k, step=6)
            if slot >= 0:
                offset = (t * c.top_k + k) * 2 * c.hidden
                yield from move_row(source + offset, target + offset, 2 * c.hidden, plan.work, turn, 6)
                turn = turn + 1
    yield from drain(xl.MTU_OUT, xl.MTU_IN, turn, ROWS, "row left")


def return_rows_dma(low, first, last, source, target, c: Group, plan: ReturnPlan):
    """Return rows by URMA: rows that lie side by side go by one descriptor."""
    turn = 0
    run = 0
    for place in range(first * c.top_k, last * c.top_k):
        slot = yield xl.ub_load(plan.lists + (place // c.top_k - low) * INDEX_BYTES + place % c.top_k * 4, step=6)
        end = place
        if slot >= 0:
            end = place + 1
            run = run + 1
        if run > 0 and (slot < 0 or end == last * c.top_k):
            offset = (end - run) * 2 * c.hidden
            yield from ring(source + offset, target + offset, run * 2 * c.hidden, turn)
            turn = turn + 1
            run = 0
    yield from drain_rings(turn)


def return_share(low, high, first, last, kept, source, target, c: Group, plan: ReturnPlan):
    """Step 6 for this core's tokens of a part from ``low`` to before ``high``; lists that have no room are streamed."""
    streamed = high - low > plan.listed
    t = first
    while t < last:
        some = last - t
        if streamed:
            low = t
            some = min(plan.listed, some)
            yield xl.mtu_in(kept + HEADER_BYTES + t * INDEX_BYTES, plan.lists, some * INDEX_BYTES, step=6)
            yield from hand_over(xl.MTU_IN, xl.SCALAR, 1, "lists of a share loaded", step=6)
        if c.by_dma:
            yield from return_rows_dma(low, t, t + some, source, target, c, plan)
        else:
            yield from return_rows(low, t, t + some, source, target, c, plan)
        t = t + some


def return_part(going, core, die, q, call, part, c: Group, m: Domains, at: Places, plan: ReturnPlan, x: Abort):
    """Step 6 for a core's share of a part of an attention die's tokens, when the rows of the part are in.

    Returns 0 if an abort came sooner, or had before (``going``).
    """
    here = die * c.die_bytes
    place = call % m.depth * m.fan_in + q
    kept = at.lists + here + place * lists_bytes(m.tokens_max)
    n = yield xl.load(kept, step=6)
    low = min(n, part_begin(part, m.e2a_parts, m.tokens_max))
    high = min(n, part_begin(part + 1, m.e2a_parts, m.tokens_max))
    if going and low < high:
        number = place * m.e2a_parts + part
        due = yield from expect(number, low, high, kept, c, plan)
        going = yield from until_least(1, at.arrivals + here + number * FIELD_BYTES, due, x, 6, "all rows arrived")
        index = first_of(die, m.n_attention, m.trampolines) + q
        to = attention_die(call, index, m.turns, m.domains, m.n_attention, c.n_ranks) * c.die_bytes
        to = to + microbatch_of(call, m.turns, m.domains) * m.tokens_max * c.top_k * 2 * c.hidden
        source = at.staging + here + place * m.tokens_max * c.top_k * 2 * c.hidden
        i = core - c.cores + m.relays
        first, last = low + (high - low) * i // m.relays, low + (high - low) * (i + 1) // m.relays
        if going:
            yield from return_share(low, high, first, last, kept, source, at.returned + to, c, plan)
    return going


# ---- the stream


def send_and_return(core, die, call, rows, c: Group, b: Buffers, m: Domains, at: Places, plan: ReturnPlan, x: Abort):
    """Steps 5 and 6: while the rows of a part are on their way here, the rows of the previous part are returned.

    The rows of a call are shared evenly by the cores, and every expert die begins with other ones: if all began with
    the same trampolines, these could not take in rows as fast as they would come.  Nobody waits for a part before it
    has announced it, so nobody waits for himself.  Returns 0 if an abort came before all was done.
    """
    going = 1
    begin = rows * die // c.n_ranks + rows * min(core, m.senders) // m.senders
    end = rows * die // c.n_ranks + rows * min(core + 1, m.senders) // m.senders
    yield from clear(plan.done, 2 * counts_bytes(m.n_attention, c.n_local))
    for part in range(m.e2a_parts + 1):
        if part < m.e2a_parts and core < m.senders:
            yield from send_part(Share(begin, end, part, call % m.depth), rows, c, b, m, at, plan)
        if part > 0 and die < m.trampolines and core >= c.cores - m.relays:
            for q in range(dies_of(die, m.n_attention, m.trampolines)):
                going = yield from return_part(going, core, die, q, call, part - 1, c, m, at, plan, x)
        if part < m.e2a_parts and core < m.senders:
            yield xl.quiet(step=5, sync="rows in staging")
            yield from announce(part, call % m.depth, c, m, at, plan)
    yield xl.quiet(step=6, sync="rows at the attention die")
    return going


def hand_back(die, call, c: Group, m: Domains, at: Places):
    """Say that a call is done with: to the A2E stream, and a trampoline to its attention dies."""
    here = die * c.die_bytes
    yield xl.put(at.sent + here, call + 1, step=5, sync="rows sent back")
    if die < m.trampolines:
        for q in range(dies_of(die, m.n_attention, m.trampolines)):
            index = first_of(die, m.n_attention, m.trampolines) + q
            to = attention_die(call, index, m.turns, m.domains, m.n_attention, c.n_ranks) * c.die_bytes
            to = to + microbatch_of(call, m.turns, m.domains) * FIELD_BYTES
            yield xl.put(at.returned_in + to, call + 1, step=6, sync="call returned")
        yield xl.put(at.relayed + here, call + 1, step=6, sync="staging read")


def clear(table, nbytes):
    """Zero a table in the data buffer."""
    yield xl.v_fill(table, nbytes, step=5)
    yield from hand_over(xl.VECTOR, xl.SCALAR, 0, "table cleared")


def load_counts_of(call, c: Group, b: Buffers, m: Domains, table):
    """Load the counts of a call, by local expert and attention die; returns the first, which is -1 at the end."""
    counts = b.counts + call % (m.depth + 1) * counts_bytes(m.n_attention, c.n_local)
    yield from fetch(counts, table, 4 * m.n_attention * c.n_local, 5, "counts of rows loaded")
    n = yield xl.ub_load(table, step=5)
    return n


def return_calls(core, die, c: Group, b: Buffers, m: Domains, at: Places, plan: ReturnPlan, x: Abort):
    """Steps 5 and 6, call after call, from the first of the epoch to the end, or an abort."""
    yield from clear(0, plan.lists)  # no rows have been waited for, or sent
    call = x.first
    n = 0
    while n >= 0:
        going = yield from until_all(core, 1, at.computed + die * c.die_bytes, call + 1, x, 5, "rows to send back")
        n = STOP
        if going:
            n = yield from load_counts_of(call, c, b, m, plan.counts)
        if n >= 0:
            rows = yield from add_words(plan.counts, c.n_local * m.n_attention, 4, 5)
            going = yield from send_and_return(core, die, call, rows, c, b, m, at, plan, x)
            going = yield from meet(going, x, 6, "all cores have sent back")
            if core == 0 and going:
                yield from hand_back(die, call, c, m, at)
            if not going:
                n = STOP
        call = call + 1


class Returns(Places):
    """What the third stream touches; who is no trampoline adds to ``staging`` and ``arrivals`` alone."""

    computed: xl.Own[xl.Reads]
    sent: xl.Own[xl.Writes]
    staging: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    arrivals: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    lists: xl.Own[xl.Reads]
    relayed: xl.Own[xl.Writes]
    returned: xl.Anywhere[xl.Writes]
    returned_in: xl.Anywhere[xl.Writes]


class ReturnedBuffers(Buffers):
    """What it touches of app data."""

    route: xl.Reads
    counts: xl.Reads
    y: xl.Reads


@xl.kernel
def e2a_stream(core, die, c: Group, b: ReturnedBuffers, m: Domains, at: Returns, plan: ReturnPlan):
    """Steps 5 and 6, call after call."""
    yield from return_calls(core, die, c, b, m, at, plan, Abort())
