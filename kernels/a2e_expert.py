"""The first two streams of an expert die (xDeepServe 5.2), persistent kernels that poll until they are told to stop.

Each of the three streams runs on cores of its own and hands calls over to the next through a field of the own metadata
area; the steps, and what frees which memory, are told in `a2e`; the third stream is in `a2e_return`.  Rows, their
routes and the experts' outputs of a call lie at ``call % depth`` of their buffers, their counts at
``call % (depth + 1)``: so the end finds a place too, and takes none of theirs.
"""

from xccl_emu.kernels.a2e_parameters import (
    BUSY_ENTRIES,
    DMA_TURNS,
    LIST,
    STOP,
    WRONG_CALL,
    Domains,
    Places,
    attention_die,
    dies_of,
    first_of,
    microbatch_of,
    part_begin,
)
from xccl_emu.kernels.common import add_words, fetch
from xccl_emu.kernels.counts import (
    COLUMNS,
    FIELD_BYTES,
    INDEX_BYTES,
    clear_tally,
    next_place,
    share_tallies,
    slot_of,
    streamed_work_at,
    tally_rows,
    totals_at,
)
from xccl_emu.kernels.dispatch import ROUTE_BYTES, SLOT_BYTES, field_of
from xccl_emu.kernels.expert import dummy_expert
from xccl_emu.kernels.group import align, barrier, drain, drain_halves, hand_over
from xccl_emu.kernels.moe import count_rows
from xccl_emu.kernels.parameters import Buffers, Group
from xccl_emu.lang import (
    DMA,
    MTU_IN,
    MTU_OUT,
    SCALAR,
    VECTOR,
    add,
    dma,
    fail,
    kernel,
    load,
    mtu_in,
    mtu_out,
    poll_ge,
    put,
    quiet,
    set_flag,
    store,
    ub_load,
    ub_store,
    v_count,
    v_fill,
    wait_flag,
)

HEADER_BYTES = 32
"""Before the lists of a call: how many tokens it has."""


def counts_bytes(n_attention: int, n_local: int) -> int:
    """Bytes of the counts of a call, by local expert and attention die."""
    return align(4 * n_attention * n_local)


def inbox_of(index: int, local: int, place: int, n_local: int, tokens_max: int, message: int) -> int:
    """Offset in an inbox of the place of a message that comes from an attention die for a local expert."""
    return ((index * n_local + local) * tokens_max + place) * message


def lists_bytes(tokens_max: int) -> int:
    """Bytes of the lists of a call."""
    return HEADER_BYTES + tokens_max * INDEX_BYTES


def ring(source, target, nbytes, turn):
    """Ring the DMA engine; at most `DMA_TURNS` transfers are under way."""
    if turn >= DMA_TURNS:
        yield wait_flag(DMA, SCALAR, turn % DMA_TURNS, sync="copied by DMA")
    yield dma(source, target, nbytes, turn % DMA_TURNS)


def drain_rings(turn):
    """Wait for the transfers that are under way."""
    yield from drain(DMA, SCALAR, turn, DMA_TURNS, "copied by DMA")


def await_call(field, calls, step, sync):
    """Wait until a field speaks of so many calls.  Of more it cannot before this die has answered."""
    yield poll_ge(field, calls, step=step, sync=sync)
    seen = yield load(field, step=step)
    if seen != calls:
        yield fail(WRONG_CALL, seen, step=step)


# ---- step 2: what trampolines do for A2E


def messages_of(q: int, n_slots: int, tallies: int) -> int:
    """Where in the data buffer of an A2E stream the messages of the q-th attention die are counted, by slot.

    Where choices are streamed they stand behind what the cores tell each other.
    """
    return (streamed_work_at(n_slots) if tallies else 0) + q * align(4 * n_slots)


def place_at(choice: int, n_slots: int, fan_in: int) -> int:
    """Where in the data buffer the count stands that says the place of a token's choice: behind those of all slots."""
    return messages_of(fan_in, n_slots, 0) + 4 * choice


def lists_at(n_slots: int, fan_in: int, tallies: int) -> int:
    """Where in the data buffer of an A2E stream the lists stand: behind those counts."""
    return messages_of(fan_in, n_slots, tallies) if tallies else place_at(COLUMNS, n_slots, fan_in)


def load_lists(low, high, slots, c: Group, lists):
    """Load the lists of choices of some tokens."""
    message = c.payload + SLOT_BYTES
    for t in range(low, high):
        yield mtu_in(slots + t * message + c.payload + LIST, lists + t * INDEX_BYTES, INDEX_BYTES, step=2)
    yield from hand_over(MTU_IN, SCALAR, 0, "lists loaded")


def keep_lists(first, last, kept, lists):
    """Keep this core's lists for the way back; their place in the data buffer is for others when they have left."""
    if first < last:
        source = lists + first * INDEX_BYTES
        yield mtu_out(source, kept + HEADER_BYTES + first * INDEX_BYTES, (last - first) * INDEX_BYTES, step=2)
        yield from hand_over(MTU_OUT, MTU_IN, 2, "lists left")


def find_places(t, c: Group, m: Domains, lists):
    """Count, for each choice of a token, those of the same expert up to it; it is the last one of them.

    Where choices are streamed they are counted already.
    """
    if not c.tallies:
        for k in range(c.top_k):
            slot = yield ub_load(lists + t * INDEX_BYTES + 4 * k, step=2)
            if slot >= 0:
                at = place_at(k, c.n_ranks * c.n_local, m.fan_in)
                yield v_count(lists, at, t * COLUMNS + k + 1, slot, slot + 1, step=2)
        yield from hand_over(VECTOR, SCALAR, 0, "places found")


def inbox_for(t, k, index, c: Group, m: Domains, at: Places, lists):
    """Where the message of a choice goes, the next place of its expert; 0 if the choice is masked."""
    target = 0
    slot = yield ub_load(lists + t * INDEX_BYTES + 4 * k, step=2)
    if slot >= 0:
        if c.tallies:
            place = yield from next_place(slot, 2)
        else:
            found = yield ub_load(place_at(k, c.n_ranks * c.n_local, m.fan_in), step=2)
            place = found - 1
        offset = inbox_of(index, slot % c.n_local, place, c.n_local, m.tokens_max, c.payload + SLOT_BYTES)
        target = at.inbox + slot // c.n_local * c.die_bytes + offset
    return target


def forward(first, last, index, slots, c: Group, m: Domains, at: Places, lists, work):
    """Step 2 through the data buffer: each message in once, and out to all experts that it is for."""
    message = c.payload + SLOT_BYTES
    for t in range(first, last):
        half = (t - first) % 2
        if t - first >= 2:
            yield wait_flag(MTU_OUT, MTU_IN, half, sync="forward half free")
        yield mtu_in(slots + t * message, work + half * message, message, step=2)
        yield from hand_over(MTU_IN, MTU_OUT, half, "forward half full")
        yield from find_places(t, c, m, lists)
        for k in range(c.top_k):
            target = yield from inbox_for(t, k, index, c, m, at, lists)
            if target > 0:
                yield mtu_out(work + half * message, target, message, step=2)
        yield set_flag(MTU_OUT, MTU_IN, half, sync="forward half free")
    yield from drain_halves(MTU_OUT, MTU_IN, last - first, "forward half free")


def forward_dma(first, last, index, slots, c: Group, m: Domains, at: Places, lists):
    """Step 2 by URMA: each message straight from its slot to all experts that it is for."""
    message = c.payload + SLOT_BYTES
    turn = 0
    for t in range(first, last):
        yield from find_places(t, c, m, lists)
        for k in range(c.top_k):
            target = yield from inbox_for(t, k, index, c, m, at, lists)
            if target > 0:
                yield from ring(slots + t * message, target, message, turn)
                turn = turn + 1
    yield from drain_rings(turn)


def keep_and_tally(first, last, slots, kept, c: Group, m: Domains, lists):
    """Keep the lists of this core's tokens and count their choices by slot, as many at a time as there is room for."""
    yield from clear_tally(0, 2, c)
    t = first
    while t < last:
        some = min(m.listed, last - t)
        yield from load_lists(t, t + some, slots, c, lists - t * INDEX_BYTES)
        yield from keep_lists(t, t + some, kept, lists - t * INDEX_BYTES)
        yield from tally_rows(some, lists, 2, c)
        t = t + some


def go_on(messages, c: Group):
    """The places of a part's messages begin behind those of the parts before, which are counted in ``messages``."""
    n_slots = c.n_ranks * c.n_local
    for slot in range(n_slots):
        before = yield ub_load(messages + 4 * slot, step=2)
        place = yield ub_load(4 * slot, step=2)
        yield ub_store(4 * slot, before + place, step=2)
        n = yield ub_load(totals_at(n_slots) + 4 * slot, step=2)
        yield ub_store(messages + 4 * slot, before + n, step=2)


def forward_share(first, last, index, slots, c: Group, m: Domains, at: Places, lists):
    """Step 2 for this core's tokens, whose lists are in the data buffer, or are streamed through it."""
    t = first
    while t < last:
        some = last - t
        if c.tallies:
            some = min(m.listed, some)
            lists = lists_at(c.n_ranks * c.n_local, m.fan_in, c.tallies) - t * INDEX_BYTES
            yield from load_lists(t, t + some, slots, c, lists)
        if c.by_dma:
            yield from forward_dma(t, t + some, index, slots, c, m, at, lists)
        else:
            work = lists_at(c.n_ranks * c.n_local, m.fan_in, c.tallies) + m.listed * INDEX_BYTES
            yield from forward(t, t + some, index, slots, c, m, at, lists, work)
        t = t + some


def relay_part(core, die, index, low, high, slots, kept, messages, c: Group, m: Domains, at: Places, lists):
    """Step 2 for some tokens that have arrived: each core forwards its share, for which it needs the lists before."""
    first = low + (high - low) * core // c.cores
    last = low + (high - low) * (core + 1) // c.cores
    if c.tallies:
        yield from keep_and_tally(first, last, slots, kept, c, m, lists)
        yield from share_tallies(die, core, 2, c)
        yield from go_on(messages, c)
    else:
        yield from load_lists(low, high, slots, c, lists)
        yield from keep_lists(first, last, kept, lists)
    yield from forward_share(first, last, index, slots, c, m, at, lists)


def count_messages(core, index, n, totals, c: Group, lists):
    """Count what there is from an attention die for each expert of this core's share."""
    n_slots = c.n_ranks * c.n_local
    if n == 0:
        yield v_fill(totals, 4 * n_slots, step=2)
    else:
        for i in range(n_slots * core // c.cores, n_slots * (core + 1) // c.cores):
            slot = slot_of(i, index, c.n_ranks, c.n_local)
            yield v_count(lists, totals + 4 * slot, n * COLUMNS, slot, slot + 1, step=2)
    yield from hand_over(VECTOR, SCALAR, 1, "messages counted")


def relay(core, die, q, call, n, field, c: Group, m: Domains, at: Places):
    """Step 2 for the ``n`` tokens of an attention die: forward each part when it has come, and keep the lists."""
    index = first_of(die, m.n_attention, m.trampolines) + q
    n_slots = c.n_ranks * c.n_local
    lists = lists_at(n_slots, m.fan_in, c.tallies)
    messages = messages_of(q, n_slots, c.tallies)
    slots = at.slots + die * c.die_bytes + q * m.tokens_max * (c.payload + SLOT_BYTES)
    kept = at.lists + die * c.die_bytes + (call % m.depth * m.fan_in + q) * lists_bytes(m.tokens_max)
    if c.tallies:
        yield from clear_tally(messages, 2, c)
    for part in range(m.a2e_parts):
        low = min(n, part_begin(part, m.a2e_parts, m.tokens_max))
        high = min(n, part_begin(part + 1, m.a2e_parts, m.tokens_max))
        if low < high:
            if part > 0:
                yield from await_call(field + part * FIELD_BYTES, call + 1, 2, "tokens announced")
            yield from relay_part(core, die, index, low, high, slots, kept, messages, c, m, at, lists)
    if not c.tallies:
        yield from count_messages(core, index, n, messages, c, lists)
    if core == 0:
        yield put(kept, n, step=2)


def publish(core, index, call, more, totals, c: Group, at: Places):
    """Tell every expert of this core's share how many messages an attention die has for it, zero too; or the end."""
    n_slots = c.n_ranks * c.n_local
    for i in range(n_slots * core // c.cores, n_slots * (core + 1) // c.cores):
        slot = slot_of(i, index, c.n_ranks, c.n_local)
        count = STOP
        if more:
            count = yield ub_load(totals + 4 * slot, step=2)
        field = field_of(at.counts + slot // c.n_local * c.die_bytes, index, c.n_local, slot % c.n_local)
        yield put(field, call + 1, count, step=2, sync="counts of messages")


def pass_on(core, die, call, c: Group, m: Domains, at: Places):
    """What a trampoline does with a call: wait for tokens and for room, forward, give the slots to the next domain, and
    tell the experts.

    Of its attention dies it takes one after the other.
    """
    here = die * c.die_bytes
    fields = at.tokens_in + here + call % m.turns * m.fan_in * m.a2e_parts * FIELD_BYTES
    yield from await_call(fields, call + 1, 2, "tokens announced")
    n = yield load(fields + 8, step=2)
    more = n >= 0
    yield poll_ge(at.acks + here, c.n_ranks * call, step=2, sync="inboxes free")
    if more:
        yield poll_ge(at.relayed + here, call + 1 - m.depth, step=2, sync="staging free")
        for q in range(dies_of(die, m.n_attention, m.trampolines)):
            field = fields + q * m.a2e_parts * FIELD_BYTES
            if q > 0:
                yield from await_call(field, call + 1, 2, "tokens announced")
                n = yield load(field + 8, step=2)
            yield from relay(core, die, q, call, n, field, c, m, at)
    yield quiet(step=2, sync="messages visible")
    yield from barrier(2, "all cores have forwarded")
    for q in range(dies_of(die, m.n_attention, m.trampolines)):
        index = first_of(die, m.n_attention, m.trampolines) + q
        if more and core == 0:
            to = attention_die(call + 1, index, m.turns, m.domains, m.n_attention, c.n_ranks) * c.die_bytes
            to = to + microbatch_of(call + 1, m.turns, m.domains) * FIELD_BYTES
            yield put(at.credit + to, call + 1, step=2, sync="credit")
        yield from publish(core, index, call, more, messages_of(q, c.n_ranks * c.n_local, c.tallies), c, at)


# ---- step 3


def await_messages(core, die, call, counts, c: Group, m: Domains, at: Places):
    """Wait, each core for its share of the fields, and note the counts, by local expert and attention die.

    When all have, each core brings the whole table into its data buffer.
    """
    fields = m.n_attention * c.n_local
    for i in range(fields * core // c.cores, fields * (core + 1) // c.cores):
        field = at.counts + die * c.die_bytes + i * FIELD_BYTES
        yield from await_call(field, call + 1, 3, "messages announced")
        n = yield load(field + 8, step=3)
        yield store(counts + 4 * (i % c.n_local * m.n_attention + i // c.n_local), n, 4, step=3)
    yield quiet(step=3, sync="counts noted")
    yield from barrier(3, "all messages are announced")
    yield from fetch(counts, 0, 4 * fields, 3, "counts of messages loaded")


def name_choice(slot_at, slot, top_k):
    """Write into a message's slot which of the token's choices it is here for."""
    for k in range(top_k):
        chosen = yield ub_load(slot_at + LIST + 4 * k, step=3)
        if chosen == slot:
            yield ub_store(slot_at + 12, k, step=3)
            yield ub_store(slot_at + 16, slot, step=3)
            break


def take_rows(source, n, row, slot, c: Group, b: Buffers, work, room, turn):
    """Step 3: some messages in, payloads and routes out, the halves in turn."""
    message = c.payload + SLOT_BYTES
    done = 0
    while done < n:
        half = turn % 2
        some = min(room, n - done)
        at = work + half * room * message
        if turn >= 2:
            yield wait_flag(MTU_OUT, MTU_IN, half, sync="gather half free")
        yield mtu_in(source + done * message, at, some * message, step=3)
        yield from hand_over(MTU_IN, SCALAR, half, "gather half full")
        for i in range(some):
            yield from name_choice(at + i * message + c.payload, slot, c.top_k)
            yield mtu_out(at + i * message, b.recv_x + (row + done + i) * c.payload, c.payload, step=3)
            route = b.route + (row + done + i) * ROUTE_BYTES
            yield mtu_out(at + i * message + c.payload, route, ROUTE_BYTES, step=3)
        yield set_flag(MTU_OUT, MTU_IN, half, sync="gather half free")
        done = done + some
        turn = turn + 1
    return turn


def gather(core, die, call, c: Group, b: Buffers, m: Domains, at: Places, room):
    """Step 3: this core's share of the rows, from the trampolines' messages into the order of the experts."""
    message = c.payload + SLOT_BYTES
    work = counts_bytes(m.n_attention, c.n_local)
    rows = yield from add_words(0, c.n_local * m.n_attention, 4, 3)
    begin = rows * core // c.cores
    end = rows * (core + 1) // c.cores
    row = 0
    turn = 0
    for e in range(c.n_local):
        for t in range(m.n_attention):
            n = yield ub_load(4 * (e * m.n_attention + t), step=3)
            first = max(row, begin)
            some = min(row + n, end) - first
            if some > 0:
                source = at.inbox + die * c.die_bytes
                source = source + inbox_of(t, e, first - row, c.n_local, m.tokens_max, message)
                first = first + call % m.depth * m.rows_max
                turn = yield from take_rows(source, some, first, die * c.n_local + e, c, b, work, room, turn)
            row = row + n
    yield from drain_halves(MTU_OUT, MTU_IN, turn, "gather half free")


def receive(core, die, call, c: Group, b: Buffers, m: Domains, at: Places, room):
    """Step 3: gather what the trampolines have for this die, and hand it over; returns whether it was a call."""
    here = die * c.die_bytes
    counts = b.counts + call % (m.depth + 1) * counts_bytes(m.n_attention, c.n_local)
    yield from await_messages(core, die, call, counts, c, m, at)
    n = yield ub_load(0, step=3)
    if n >= 0:
        yield poll_ge(at.sent + here, call + 1 - m.depth, step=3, sync="rows free")
        yield from gather(core, die, call, c, b, m, at, room)
    yield quiet(step=3, sync="rows visible")
    yield from barrier(3, "all cores have gathered")
    if core == 0:
        yield put(at.assembled + here, call + 1, step=3, sync="rows gathered")
    if n >= 0:
        for t in range(m.trampolines):
            if t % c.cores == core:
                yield add(at.acks + t * c.die_bytes, 1, step=3, sync="gathered")
    return n >= 0


@kernel
def a2e_stream(core, die, room, c: Group, b: Buffers, m: Domains, at: Places):
    """Steps 2 and 3, call after call; ``room`` messages fit half of the data buffer behind the counts."""
    call = 0
    more = 1
    while more:
        if die < m.trampolines:
            yield from pass_on(core, die, call, c, m, at)
        more = yield from receive(core, die, call, c, b, m, at, room)
        call = call + 1


# ---- step 4


def busy(work, table, step):
    """So many vector instructions, which stand in for computing; their result is nothing."""
    yield v_fill(table, 4 * BUSY_ENTRIES, step=step)
    for _ in range(work):
        yield v_count(table, table + 4 * BUSY_ENTRIES, BUSY_ENTRIES, 0, 1, step=step)
    yield from hand_over(VECTOR, SCALAR, 0, "computed", step=step)


@kernel
def compute_stream(core, die, work, c: Group, b: Buffers, m: Domains, at: Places):
    """Step 4, call after call: the dummy expert, and ``work`` vector instructions that compute nothing."""
    here = die * c.die_bytes
    call = 0
    n = 0
    while n >= 0:
        yield poll_ge(at.assembled + here, call + 1, step=4, sync="rows to compute")
        counts = b.counts + call % (m.depth + 1) * counts_bytes(m.n_attention, c.n_local)
        n = yield from count_rows(counts, c._replace(n_ranks=m.n_attention))
        if n >= 0:
            base = call % m.depth * m.rows_max
            yield from dummy_expert(
                n * core // c.cores, n * (core + 1) // c.cores, c,
                Buffers(
                    recv_x=b.recv_x + base * c.payload, route=b.route + base * ROUTE_BYTES, y=b.y + base * 2 * c.hidden
                ),
            )  # fmt: skip
            if work > 0:
                yield from busy(work, 12 * c.hidden + 2 * ROUTE_BYTES, 4)
        yield quiet(step=4, sync="outputs of experts visible")
        yield from barrier(4, "all cores have computed")
        if core == 0:
            yield put(at.computed + here, call + 1, step=4, sync="rows computed")
        call = call + 1
