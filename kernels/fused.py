"""FusedDispatch (CloudMatrix384 4.2.1): every rank writes its tokens straight into its peers' buffers.

Steps: 1 send: load a token, find its place at each peer and quantize it, write it there; 2 when all of it is visible,
count per expert and tell every peer, zero counts too; 3 wait for the counts of all, and assemble what came into the
order of the experts.  A buffer has a region for each source, large enough for all that it may send, so a source knows
by itself where a message goes: behind the earlier ones, in order of tokens and choices, that it has for that rank.

What makes repeated rounds safe, when `kernels/fused_layers.py` or separate launches run dispatch and combine in turn:

- A rank begins round r + 1 when all contributions to its tokens of round r have arrived.  A rank sends contributions
  when all of its cores have assembled, so each peer that had a message of it has read its region, and the region may
  be written again.  Of a peer that had none nobody reads the region.
- Such a peer may still wait for the counts of round r when those of round r + 1 come: a rank that sent it nothing does
  not wait for it.  So there are two tables of fields, for even and odd rounds.  Two rounds ahead it cannot be: its
  dispatch of round r + 1 ends only with the counts of round r + 1 of every rank, the slow one too.
- Contributions of round r + 1 come from ranks that have the counts of round r + 1 of the tokens' home.  It sends them
  when it has summed round r, so the combine buffer is free.  Arrivals are counted on from round to round.

Without allocation in advance (``exchange``) a rank first tells each peer how many messages it has for it, and writes
from where the peer says; these fields are double for the same reason.
"""

from xccl_emu.kernels.dispatch import FIELD_BYTES, INDEX_BYTES, ROUTE_BYTES, SLOT_BYTES, clear_slots, prepare
from xccl_emu.kernels.group import align, barrier, drain_halves
from xccl_emu.kernels.parameters import Buffers, Fused, Group
from xccl_emu.lang import (
    DMA,
    MTU_IN,
    MTU_OUT,
    SCALAR,
    VECTOR,
    dma,
    fence,
    kernel,
    load,
    mtu_in,
    mtu_out,
    poll_eq,
    put,
    set_flag,
    ub_load,
    ub_store,
    v_copy,
    v_fill,
    v_quantize,
    wait_flag,
)

TARGETS_BYTES = 128
"""Room for an address for each choice of a token."""


def second_table(n_slots: int) -> int:
    """Where in the data buffer the second table with an entry for each expert slot is."""
    return align(4 * n_slots)


def targets_at(n_slots: int) -> int:
    """Where in the data buffer the addresses of a token's messages are, behind two tables."""
    return 2 * align(4 * n_slots)


def choice_at(token: int, choice: int, n_slots: int) -> int:
    """Where in the data buffer a choice of a token is: in a table behind the addresses."""
    return targets_at(n_slots) + TARGETS_BYTES + token * INDEX_BYTES + 4 * choice


def field_at(table: int, event: int, n_ranks: int, n_local: int, rank: int, local: int) -> int:
    """Address of the field of a rank and local expert in the table of a round."""
    return table + ((event % 2 * n_ranks + rank) * n_local + local) * FIELD_BYTES


def load_choices(tokens, topk, c: Group):
    """Bring the choices of all tokens of the rank into the data buffer: places depend on those before."""
    for t in range(tokens):
        yield mtu_in(topk + t * INDEX_BYTES, choice_at(t, 0, c.n_ranks * c.n_local), 4 * c.top_k, step=1)
    yield set_flag(MTU_IN, SCALAR, 0, sync="choices loaded")
    yield wait_flag(MTU_IN, SCALAR, 0, sync="choices loaded")


def clear_table(at, nbytes):
    """Zero a table of counts."""
    yield v_fill(at, nbytes)
    yield set_flag(VECTOR, SCALAR, 0, sync="table cleared")
    yield wait_flag(VECTOR, SCALAR, 0, sync="table cleared")


def count_before(first, c: Group):
    """Count for each rank the messages of the tokens before this core's: where its own begin."""
    yield from clear_table(0, 4 * c.n_ranks)
    for t in range(first):
        for k in range(c.top_k):
            slot = yield ub_load(choice_at(t, k, c.n_ranks * c.n_local), step=1)
            if slot >= 0:
                n = yield ub_load(slot // c.n_local * 4, step=1)
                yield ub_store(slot // c.n_local * 4, n + 1, step=1)


def count_share(core, tokens, at, c: Group):
    """Count the messages for each expert of those ranks that this core tells; the cores count in parallel."""
    yield from clear_table(at, 4 * c.n_ranks * c.n_local)
    for t in range(tokens):
        for k in range(c.top_k):
            slot = yield ub_load(choice_at(t, k, c.n_ranks * c.n_local), step=2)
            if slot >= 0:
                if slot // c.n_local % c.cores == core:
                    n = yield ub_load(at + 4 * slot, step=2)
                    yield ub_store(at + 4 * slot, n + 1, step=2)


def ask_for_room(rank, core, tokens, event, c: Group, f: Fused):
    """Tell every rank of this core's share how many messages there are for it."""
    yield from count_share(core, tokens, f.work, c)
    for d in range(c.n_ranks):
        if d % c.cores == core:
            n = 0
            for e in range(c.n_local):
                more = yield ub_load(f.work + 4 * (d * c.n_local + e), step=1)
                n = n + more
            asked = field_at(f.exchange + d * c.die_bytes, event, c.n_ranks, 1, rank, 0)
            yield put(asked, event, n, step=1, sync="room asked for")


def exchange_counts(rank, core, event, c: Group, f: Fused):
    """Answer each rank of this core's share where its messages begin, and learn the same of all ranks."""
    answers = f.exchange + 2 * c.n_ranks * FIELD_BYTES
    before = 0
    for s in range(c.n_ranks):
        asked = field_at(f.exchange + rank * c.die_bytes, event, c.n_ranks, 1, s, 0)
        yield poll_eq(asked, event, step=1, sync="asked in")
        n = yield load(asked + 8, step=1)
        if s % c.cores == core:
            granted = field_at(answers + s * c.die_bytes, event, c.n_ranks, 1, rank, 0)
            yield put(granted, event, before, step=1, sync="room granted")
        before = before + n
    for d in range(c.n_ranks):
        granted = field_at(answers + rank * c.die_bytes, event, c.n_ranks, 1, d, 0)
        yield poll_eq(granted, event, step=1, sync="granted in")
        n = yield load(granted + 8, step=1)
        yield ub_store(second_table(c.n_ranks * c.n_local) + 4 * d, n, step=1)


def target_of(slot, rank, c: Group, f: Fused):
    """Offset stage: the address of the next message for the rank of an expert slot."""
    d = slot // c.n_local
    place = yield ub_load(4 * d, step=1)
    yield ub_store(4 * d, place + 1, step=1)
    if f.exchange:
        before = yield ub_load(second_table(c.n_ranks * c.n_local) + 4 * d, step=1)
        place = place + before
    else:
        place = place + rank * f.region
    return f.dispatch + d * c.die_bytes + place * (f.wire + SLOT_BYTES)


def send_message(half, t, rank, staging, at, c: Group, f: Fused):
    """Write a message to each rank that the token has chosen, or into staging, with its routing in the slot."""
    for k in range(c.top_k):
        slot = yield ub_load(choice_at(t, k, c.n_ranks * c.n_local), step=1)
        if slot >= 0:
            target = yield from target_of(slot, rank, c, f)
            if f.sdma:
                yield ub_store(targets_at(c.n_ranks * c.n_local) + 8 * k, target, 8, step=1)
                target = staging + k * (f.wire + SLOT_BYTES)
            yield ub_store(at + f.wire + 4, rank, step=1)
            yield ub_store(at + f.wire + 8, t, step=1)
            yield ub_store(at + f.wire + 12, k, step=1)
            yield ub_store(at + f.wire + 16, slot, step=1)
            yield mtu_out(at, target, f.wire + SLOT_BYTES, step=1)
            yield set_flag(MTU_OUT, SCALAR, half, sync="message left")
            yield wait_flag(MTU_OUT, SCALAR, half, sync="message left")


def ring_sdma(t, staging, c: Group, f: Fused):
    """Let the DMA engine take a token's messages from staging to their ranks."""
    yield fence(step=1, sync="messages staged")
    for k in range(c.top_k):
        slot = yield ub_load(choice_at(t, k, c.n_ranks * c.n_local), step=1)
        if slot >= 0:
            target = yield ub_load(targets_at(c.n_ranks * c.n_local) + 8 * k, 8, step=1)
            yield dma(staging + k * (f.wire + SLOT_BYTES), target, f.wire + SLOT_BYTES, k, step=1)
    for k in range(c.top_k):
        slot = yield ub_load(choice_at(t, k, c.n_ranks * c.n_local), step=1)
        if slot >= 0:
            yield wait_flag(DMA, SCALAR, k, step=1, sync="message written")


def send_tokens(rank, core, first, last, x, c: Group, f: Fused):
    """Step 1 for this core's tokens; stages 1 and 2 of the next token run while stage 3 of one does.

    ``c`` says what is on the wire.  Without the pipeline each token goes through its stages alone.
    """
    message = f.wire + SLOT_BYTES
    at = f.work + (4 * c.hidden if c.quantized else 0)
    staging = f.staging + rank * c.die_bytes + core * c.top_k * message
    yield from clear_slots(at, f.wire, message)
    for t in range(first, last + f.pipelined):
        if t < last:
            yield from prepare((t - first) % 2 * f.pipelined, x + t * 2 * c.hidden, c, f.work)
        sent = t - f.pipelined
        if sent >= first:
            half = (sent - first) % 2 * f.pipelined
            if c.quantized:
                yield wait_flag(VECTOR, SCALAR, half, sync="message made")
            else:
                yield wait_flag(MTU_IN, SCALAR, half, sync="message made")
            yield from send_message(half, sent, rank, staging, at + half * message, c, f)
            if f.sdma:
                yield from ring_sdma(sent, staging, c, f)


def publish(rank, core, tokens, event, c: Group, f: Fused):
    """Step 2: tell each rank of this core's share how many messages there are for each of its experts."""
    yield from count_share(core, tokens, f.work, c)
    for d in range(c.n_ranks):
        if d % c.cores == core:
            for e in range(c.n_local):
                n = yield ub_load(f.work + 4 * (d * c.n_local + e), step=2)
                field = field_at(f.fields + d * c.die_bytes, event, c.n_ranks, c.n_local, rank, e)
                yield put(field, event, n, step=2, sync="counts")


def await_counts(rank, core, event, c: Group, f: Fused):
    """Step 3: wait, each core for its share of the sources, and when all are in find where each source's rows go.

    Afterwards the first table holds the counts, by expert and then source, the second one the first row of each.
    """
    own = f.fields + rank * c.die_bytes
    for s in range(c.n_ranks):
        if s % c.cores == core:
            for e in range(c.n_local):
                field = field_at(own, event, c.n_ranks, c.n_local, s, e)
                yield poll_eq(field, event, step=3, sync="counts in")
    yield from barrier(3, "all counts are in")
    row = 0
    for e in range(c.n_local):
        for s in range(c.n_ranks):
            n = yield load(field_at(own, event, c.n_ranks, c.n_local, s, e) + 8, step=3)
            yield ub_store(4 * (e * c.n_ranks + s), n, step=3)
            yield ub_store(second_table(c.n_ranks * c.n_local) + 4 * (e * c.n_ranks + s), row, step=3)
            row = row + n


def quantize_late(some, half, at, made, c: Group, f: Fused):
    """Quantize messages that came as they were into ``made``, the routes behind."""
    for i in range(some):
        message = at + i * (f.wire + SLOT_BYTES)
        row = made + i * (c.payload + ROUTE_BYTES)
        yield v_quantize(message, row, c.hidden, c.dtype, c.quantized - 1, step=3)
        yield v_copy(message + f.wire + 4, row + c.payload + 4, ROUTE_BYTES - 4, step=3)
    yield set_flag(VECTOR, MTU_OUT, half, sync="rows quantized")
    yield wait_flag(VECTOR, MTU_OUT, half, sync="rows quantized")


def row_of(message, s, c: Group, f: Fused):
    """The row that a message of source ``s`` goes to: the next one of its expert, which stands in its slot."""
    local = 0
    if c.n_local > 1:
        slot = yield ub_load(message + f.wire + 16, step=3)
        local = slot % c.n_local
    cell = second_table(c.n_ranks * c.n_local) + 4 * (local * c.n_ranks + s)
    row = yield ub_load(cell, step=3)
    yield ub_store(cell, row + 1, step=3)
    return row


def take_messages(source, s, n, turn, c: Group, b: Buffers, f: Fused):
    """Bring messages of one source into the order of the experts, some at a time, the halves in turn."""
    message = f.wire + SLOT_BYTES
    late = c.payload != f.wire
    done = 0
    while done < n:
        half = turn % 2
        some = min(f.room, n - done)
        at = f.work + half * f.room * message
        made = f.work + 2 * f.room * message + half * f.room * (c.payload + ROUTE_BYTES)
        if turn >= 2:
            yield wait_flag(MTU_OUT, MTU_IN, half, sync="half free")
        yield mtu_in(source + done * message, at, some * message, step=3)
        yield set_flag(MTU_IN, SCALAR, half, sync="half full")
        yield wait_flag(MTU_IN, SCALAR, half, sync="half full")
        if late:
            yield from quantize_late(some, half, at, made, c, f)
        for i in range(some):
            row = yield from row_of(at + i * message, s, c, f)
            start = made + i * (c.payload + ROUTE_BYTES) if late else at + i * message
            yield mtu_out(start, b.recv_x + row * c.payload, c.payload, step=3)
            yield mtu_out(start + c.payload, b.route + row * ROUTE_BYTES, ROUTE_BYTES, step=3)
        yield set_flag(MTU_OUT, MTU_IN, half, sync="half free")
        done = done + some
        turn = turn + 1
    return turn


def assemble(rank, core, c: Group, b: Buffers, f: Fused):
    """Step 3: payloads, routes and counts into the outputs, each core for its share of the sources."""
    turn = 0
    before = 0
    for s in range(c.n_ranks):
        n = 0
        for e in range(c.n_local):
            more = yield ub_load(4 * (e * c.n_ranks + s), step=3)
            n = n + more
        first = before if f.exchange else s * f.region
        if s % c.cores == core and n > 0:
            source = f.dispatch + rank * c.die_bytes + first * (f.wire + SLOT_BYTES)
            turn = yield from take_messages(source, s, n, turn, c, b, f)
        before = before + n
    yield from drain_halves(MTU_OUT, MTU_IN, turn, "half free")
    if core == 0:
        yield mtu_out(0, b.counts, 4 * c.n_ranks * c.n_local, step=3)


@kernel
def fused_dispatch(rank, core, tokens, event, c: Group, b: Buffers, f: Fused):
    """One FusedDispatch on one core of a rank with so many tokens, in the round with that event ID."""
    first = tokens * core // c.cores
    last = tokens * (core + 1) // c.cores
    yield from load_choices(tokens, b.topk, c)
    if f.exchange:
        yield from ask_for_room(rank, core, tokens, event, c, f)
        yield from exchange_counts(rank, core, event, c, f)
    yield from count_before(first, c)
    early = c.quantized if c.payload == f.wire else 0
    yield from send_tokens(rank, core, first, last, b.x, c._replace(payload=f.wire, quantized=early), f)
    yield fence(step=1, sync="messages visible")  # it also frees the data buffer
    yield from barrier(2, "all cores have sent")
    yield from publish(rank, core, tokens, event, c, f)
    yield from await_counts(rank, core, event, c, f)
    yield from assemble(rank, core, c, b, f)
