"""The first two streams of an expert die (xDeepServe 5.2), persistent kernels that poll until the end is announced.

Each of the three streams runs on cores of its own and hands calls over to the next through a field of the own metadata
area; `attention` describes the steps, and what frees which memory; the third stream is in `e2a`.  Rows, their
routes and the experts' outputs of a call lie at ``call % depth`` of their buffers, their counts at
``call % (depth + 1)``: so the end finds a place too, and takes none of theirs.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.a2e.parameters import LIST, STOP, Domains, Places, inbox_of
from xccl_emu.kernels.a2e.trampoline import await_call, pass_on
from xccl_emu.kernels.aborts import Abort, meet, until_all
from xccl_emu.kernels.common import add_words, fetch
from xccl_emu.kernels.experts.counts import FIELD_BYTES, load_counts
from xccl_emu.kernels.experts.dummy import DummyBuffers, busy, compute_rows, expert_bytes
from xccl_emu.kernels.experts.messages import ROUTE_BYTES, SLOT_BYTES
from xccl_emu.kernels.experts.parameters import Buffers, Group, Slots
from xccl_emu.kernels.group import align, barrier, drain_halves, hand_over


def counts_bytes(n_attention: int, n_local: int) -> int:
    """Bytes of the counts of a call, by local expert and attention die."""
    return align(4 * n_attention * n_local)


# ---- step 3


def await_messages(core, die, call, counts, c: Group, m: Domains, at: Places, x: Abort):
    """Wait, each core for its share of the fields, and note the counts, by local expert and attention die.

    When all have, each core brings the whole table into its data buffer.  Returns 0 if an abort came sooner.
    """
    going = 1
    fields = m.n_attention * c.n_local
    for i in range(fields * core // c.cores, fields * (core + 1) // c.cores):
        field = at.counts + die * c.die_bytes + i * FIELD_BYTES
        going = yield from await_call(going, field, call + 1, x, 3, "messages announced")
        if going:
            n = yield xl.load(field + 8, step=3)
            yield xl.store(counts + 4 * (i % c.n_local * m.n_attention + i // c.n_local), n, 4, step=3)
    yield xl.quiet(step=3, sync="counts noted")
    going = yield from meet(going, x, 3, "all messages are announced")
    if going:
        yield from fetch(counts, 0, 4 * fields, 3, "counts of messages loaded")
    return going


def name_choice(slot_at, slot, top_k):
    """Write into a message's slot which of the token's choices it is here for."""
    for k in range(top_k):
        chosen = yield xl.ub_load(slot_at + LIST + 4 * k, step=3)
        if chosen == slot:
            yield xl.ub_store(slot_at + 12, k, step=3)
            yield xl.ub_store(slot_at + 16, slot, step=3)
            break


def take_rows(source, n, row, slot, turn, c: Group, b: Buffers, m: Domains):
    """Step 3: some messages in, payloads and routes out, the halves in turn."""
    message = c.payload + SLOT_BYTES
    work = counts_bytes(m.n_attention, c.n_local)
    done = 0
    while done < n:
        half = turn % 2
        some = min(m.room, n - done)
        at = work + half * m.room * message
        if turn >= 2:
            yield xl.wait_flag(xl.MTU_OUT, xl.MTU_IN, half, sync="gather half free")
        yield xl.mtu_in(source + done * message, at, some * message, step=3)
        yield from hand_over(xl.MTU_IN, xl.SCALAR, half, "gather half full")
        for i in range(some):
            yield from name_choice(at + i * message + c.payload, slot, c.top_k)
            yield xl.mtu_out(at + i * message, b.recv_x + (row + done + i) * c.payload, c.payload, step=3)
            route = b.route + (row + done + i) * ROUTE_BYTES
            yield xl.mtu_out(at + i * message + c.payload, route, ROUTE_BYTES, step=3)
        yield xl.set_flag(xl.MTU_OUT, xl.MTU_IN, half, sync="gather half free")
        done = done + some
        turn = turn + 1
    return turn


def gather(core, die, call, c: Group, b: Buffers, m: Domains, at: Places):
    """Step 3: this core's share of the rows, from the trampolines' messages into the order of the experts."""
    message = c.payload + SLOT_BYTES
    rows = yield from add_words(0, c.n_local * m.n_attention, 4, 3)
    begin = rows * core // c.cores
    end = rows * (core + 1) // c.cores
    row = 0
    turn = 0
    for e in range(c.n_local):
        for t in range(m.n_attention):
            n = yield xl.ub_load(4 * (e * m.n_attention + t), step=3)
            first = max(row, begin)
            some = min(row + n, end) - first
            if some > 0:
                source = at.inbox + die * c.die_bytes
                source = source + inbox_of(t, e, first - row, c.n_local, m.tokens_max, message)
                first = first + call % m.depth * m.rows_max
                turn = yield from take_rows(source, some, first, die * c.n_local + e, turn, c, b, m)
            row = row + n
    yield from drain_halves(xl.MTU_OUT, xl.MTU_IN, turn, "gather half free")


def receive(core, die, call, c: Group, b: Buffers, m: Domains, at: Places, x: Abort):
    """Step 3: gather what the trampolines have for this die, and hand it over; returns whether it was a call.

    A call that an abort interrupts does not count as one.
    """
    here = die * c.die_bytes
    counts = b.counts + call % (m.depth + 1) * counts_bytes(m.n_attention, c.n_local)
    going = yield from await_messages(core, die, call, counts, c, m, at, x)
    n = STOP
    if going:
        n = yield xl.ub_load(0, step=3)
    if n >= 0:
        going = yield from until_all(core, going, at.sent + here, call + 1 - m.depth, x, 3, "rows free")
        if going:
            yield from gather(core, die, call, c, b, m, at)
        else:
            n = STOP
    yield xl.quiet(step=3, sync="rows visible")
    yield from barrier(3, "all cores have gathered")
    if core == 0 and going:
        yield xl.put(at.assembled + here, call + 1, step=3, sync="rows gathered")
    if n >= 0:
        for t in range(m.trampolines):
            if t % c.cores == core:
                yield xl.add(at.acks + t * c.die_bytes, 1, step=3, sync="gathered")
    return n >= 0


def take_calls(core, die, c: Group, b: Buffers, m: Domains, at: Places, x: Abort):
    """Steps 2 and 3, call after call, from the first of the epoch to the end, or an abort."""
    call = x.first
    more = 1
    while more:
        if die < m.trampolines:
            yield from pass_on(core, die, call, c, m, at, x)
        more = yield from receive(core, die, call, c, b, m, at, x)
        call = call + 1


class Takes(Places):
    """What the first stream touches; who is no trampoline has no slots, and writes to no inbox."""

    inbox: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    counts: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    sent: xl.Own[xl.Reads]
    assembled: xl.Own[xl.Writes]
    acks: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    slots: xl.Own[xl.Reads]
    tokens_in: xl.Own[xl.Reads]
    relayed: xl.Own[xl.Reads]
    tallies: xl.Own[xl.Updates]
    lists: xl.Own[xl.Writes]
    credit: xl.Anywhere[xl.Writes]


class TakenBuffers(Buffers):
    """What it touches of app data."""

    recv_x: xl.Writes
    route: xl.Writes
    counts: xl.Updates


@xl.kernel
def a2e_stream(core, die, c: Group, b: TakenBuffers, m: Domains, at: Takes):
    """Steps 2 and 3, call after call."""
    yield from take_calls(core, die, c, b, m, at, Abort())


# ---- step 4


def compute_calls(core, die, c: Group, b: Buffers, m: Domains, at: Places, x: Abort):
    """Step 4, call after call, from the first of the epoch to the end, or an abort."""
    here = die * c.die_bytes
    call = x.first
    n = 0
    while n >= 0:
        going = yield from until_all(core, 1, at.assembled + here, call + 1, x, 4, "rows to compute")
        n = STOP
        if going:
            counts = b.counts + call % (m.depth + 1) * counts_bytes(m.n_attention, c.n_local)
            n = yield from load_counts(counts, 0, "row counts loaded", c._replace(n_ranks=m.n_attention))
        if n >= 0:
            base = call % m.depth * m.rows_max
            yield from compute_rows(
                n * core // c.cores, n * (core + 1) // c.cores, c,
                Buffers(
                    recv_x=b.recv_x + base * c.payload, route=b.route + base * ROUTE_BYTES, y=b.y + base * 2 * c.hidden
                ), Slots(),
            )  # fmt: skip
            if m.expert_work > 0:
                yield from busy(m.expert_work, expert_bytes(c.hidden), 4)
        yield xl.quiet(step=4, sync="outputs of experts visible")
        yield from barrier(4, "all cores have computed")
        if core == 0 and going:
            yield xl.put(at.computed + here, call + 1, step=4, sync="rows computed")
        call = call + 1


class Computes(Places):
    """What the second stream touches."""

    assembled: xl.Own[xl.Reads]
    computed: xl.Own[xl.Writes]


@xl.kernel
def compute_stream(core, die, c: Group, b: DummyBuffers, m: Domains, at: Computes):
    """Step 4, call after call: the dummy expert, and vector instructions that compute nothing."""
    yield from compute_calls(core, die, c, b, m, at, Abort())
