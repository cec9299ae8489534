"""FusedDispatch (CloudMatrix384 4.2.1): every rank writes its tokens straight into its peers' buffers.

Steps: 1 send: load a token, find its place at each peer and quantize it, write it there; 2 when all of it is visible,
send every peer, for each of its experts, how many messages there are and where they begin, zero counts too; 3 wait for
the counts of all, and assemble what came into the order of the experts.

A buffer has a region for each source, large enough for all that it may send.  In it the messages stand by expert and
then in order of the tokens, so a source knows by itself where each goes: it counts its choices (`counts.py`) of
the rank's earlier experts, and of the same expert before.  What a peer has for one expert is one stretch, for any
core to bring in.  The cores share the rows evenly.

What makes repeated rounds safe, when launches of dispatch and combine follow each other on each rank:

- A rank begins round r + 1 when all contributions to its tokens of round r have arrived.  A rank sends contributions
  when all of its cores have assembled, so each peer that had a message of it has read its region, and the region may
  be written again.  Of a peer that had none nobody reads the region.
- Such a peer may still wait for the counts of round r when the counts of r + 1 come: a rank that sent it nothing does
  not wait for it.  So there are two tables of fields, for even and odd rounds.  Two rounds ahead it cannot be: its
  dispatch of round r + 1 ends only with the counts of round r + 1 of every rank, the slow one too.
- Contributions of round r + 1 come from ranks that have the counts of round r + 1 of the tokens' home.  It sends them
  when it has summed round r, so the combine buffer is free.  Arrivals are counted on from round to round.

A rank that hears of an abort (`aborts`) assembles nothing, and sends no counts if it was not granted its room: what it
was sent it never reads, and what it is to send is never there.

Without allocation in advance (``exchange``) a rank first asks each peer for room for its messages there, and writes
from where the peer says; these fields are double for the same reason.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.aborts import NOBODY, Abort, unaborted, until
from xccl_emu.kernels.common import add_words, fetch
from xccl_emu.kernels.experts.counts import (
    FIELD_BYTES,
    begin_counting,
    choice_at,
    count_share,
    count_slots,
    find_places,
    place_of,
    row_of,
    second_table,
    slot_of,
    targets_at,
)
from xccl_emu.kernels.experts.messages import ROUTE_BYTES, SLOT_BYTES, clear_slots, prepare, stamp
from xccl_emu.kernels.experts.parameters import Buffers, Counting, Group
from xccl_emu.kernels.fused.parameters import Fused
from xccl_emu.kernels.group import barrier, drain_halves, hand_over


def field_at(table: int, event: int, n_ranks: int, n_local: int, rank: int, local: int) -> int:
    """Address of the field of a rank and local expert in the table of a round."""
    return table + ((event % 2 * n_ranks + rank) * n_local + local) * FIELD_BYTES


def ask_for_room(rank, core, tokens, event, c: Group, f: Fused):
    """Announce to every rank of this core's share how many messages there are for it."""
    for d in range(c.n_ranks * core // c.cores, c.n_ranks * (core + 1) // c.cores):
        yield from count_slots(d * c.n_local, (d + 1) * c.n_local, f.work + 4 * d, tokens, 1, c)
    yield from hand_over(xl.VECTOR, xl.SCALAR, 0, "messages counted")
    for d in range(c.n_ranks * core // c.cores, c.n_ranks * (core + 1) // c.cores):
        n = yield xl.ub_load(f.work + 4 * d, step=1)
        asked = field_at(f.exchange + d * c.die_bytes, event, c.n_ranks, 1, rank, 0)
        yield xl.put(asked, event, n, step=1, sync="room asked for")


def exchange_counts(rank, core, event, c: Group, f: Fused, x: Abort):
    """Answer each rank of this core's share where its messages begin, and learn the same of all ranks; 0 if aborted."""
    answers = f.exchange + 2 * c.n_ranks * FIELD_BYTES
    before = 0
    going = 1
    for s in range(c.n_ranks):
        asked = field_at(f.exchange + rank * c.die_bytes, event, c.n_ranks, 1, s, 0)
        going = yield from until(going, asked, event, x, 1, "asked in")
        if going:
            n = yield xl.load(asked + 8, step=1)
            if s % c.cores == core:
                granted = field_at(answers + s * c.die_bytes, event, c.n_ranks, 1, rank, 0)
                yield xl.put(granted, event, before, step=1, sync="room granted")
            before = before + n
    for d in range(c.n_ranks):
        granted = field_at(answers + rank * c.die_bytes, event, c.n_ranks, 1, d, 0)
        going = yield from until(going, granted, event, x, 1, "granted in")
        if going:
            n = yield xl.load(granted + 8, step=1)
            yield xl.ub_store(second_table(c.n_ranks * c.n_local) + 4 * d, n, step=1)
    return going


def room_at(d, rank, c: Group, f: Fused):
    """The place at rank ``d`` from which on there is room for this rank's messages."""
    place = rank * f.region
    if f.exchange:
        place = yield xl.ub_load(second_table(c.n_ranks * c.n_local) + 4 * d, step=1)
    return place


def target_of(slot, k, half, rank, c: Group, f: Fused):
    """The address of a message, at the rank of its expert slot."""
    d = slot // c.n_local
    place = yield from place_of(half, k, slot, c)
    first = yield from room_at(d, rank, c, f)
    return f.dispatch + d * c.die_bytes + (first + place) * (f.wire + SLOT_BYTES)


def send_message(half, t, rank, staging, at, c: Group, f: Fused):
    """Write a message to each rank that the token has chosen, or into staging, with its routing in the slot."""
    choices = choice_at(row_of(half, t, c.tallies), 0, c.n_ranks * c.n_local)
    for k in range(c.top_k):
        slot = yield xl.ub_load(choices + 4 * k, step=1)
        if slot >= 0:
            target = yield from target_of(slot, k, half, rank, c, f)
            if f.sdma:
                yield xl.ub_store(targets_at(c.n_ranks * c.n_local) + 8 * k, target, 8, step=1)
                target = staging + k * (f.wire + SLOT_BYTES)
            yield xl.ub_store(at + f.wire + 4, rank, step=1)
            yield xl.ub_store(at + f.wire + 8, t, step=1)
            yield xl.ub_store(at + f.wire + 12, k, step=1)
            yield xl.ub_store(at + f.wire + 16, slot, step=1)
            yield xl.mtu_out(at, target, f.wire + SLOT_BYTES, step=1)
            yield from hand_over(xl.MTU_OUT, xl.SCALAR, half, "message left")


def ring_sdma(half, t, staging, c: Group, f: Fused):
    """Let the DMA engine take a token's messages from staging to their ranks."""
    choices = choice_at(row_of(half, t, c.tallies), 0, c.n_ranks * c.n_local)
    yield xl.quiet(step=1, sync="messages staged")
    for k in range(c.top_k):
        slot = yield xl.ub_load(choices + 4 * k, step=1)
        if slot >= 0:
            target = yield xl.ub_load(targets_at(c.n_ranks * c.n_local) + 8 * k, 8, step=1)
            yield xl.dma(staging + k * (f.wire + SLOT_BYTES), target, f.wire + SLOT_BYTES, k, step=1)
    for k in range(c.top_k):
        slot = yield xl.ub_load(choices + 4 * k, step=1)
        if slot >= 0:
            yield xl.wait_flag(xl.DMA, xl.SCALAR, k, step=1, sync="message written")


def send_tokens(rank, core, tokens, b: Buffers, c: Group, f: Fused):
    """Step 1 for this core's tokens; stages 1 and 2 of the next token run while stage 3 of one does.

    ``c`` says what is on the wire.  Without the pipeline each token goes through its stages alone.
    """
    first = tokens * core // c.cores
    last = tokens * (core + 1) // c.cores
    message = f.wire + SLOT_BYTES
    at = f.work + (4 * c.hidden if c.quantized else 0)
    staging = f.staging + rank * c.die_bytes + core * c.top_k * message
    yield from clear_slots(at, f.wire, message)
    yield from stamp(at + f.wire, message, b.version)
    for t in range(first, last + f.pipelined):
        if t < last:
            yield from find_places((t - first) % 2 * f.pipelined, t, tokens, b.topk, c)
            yield from prepare((t - first) % 2 * f.pipelined, b.x + t * 2 * c.hidden, c, f.work, 1)
        sent = t - f.pipelined
        if sent >= first:
            half = (sent - first) % 2 * f.pipelined
            if c.quantized:
                yield xl.wait_flag(xl.VECTOR, xl.SCALAR, half, sync="message made")  # the places, too
            else:
                yield xl.wait_flag(xl.VECTOR, xl.SCALAR, half, sync="places found")
                yield xl.wait_flag(xl.MTU_IN, xl.SCALAR, half, sync="message made")
            yield from send_message(half, sent, rank, staging, at + half * message, c, f)
            if f.sdma:
                yield from ring_sdma(half, sent, staging, c, f)


def publish(rank, first, last, event, c: Group, f: Fused, x: Abort):
    """Step 2: announce to the rank of each expert of this core's share how many messages there are, and their place.

    The experts are dealt out from the own rank on, so that no two ranks begin with the same one.
    """
    for i in range(first, last):
        slot = slot_of(i, rank, c.n_ranks, c.n_local)
        n = yield xl.ub_load(f.work + 8 * i, step=2)
        before = yield xl.ub_load(f.work + 8 * i + 4, step=2)
        begin = yield from room_at(slot // c.n_local, rank, c, f)
        table = f.fields + slot // c.n_local * c.die_bytes
        field = field_at(table, event, c.n_ranks, c.n_local, rank, slot % c.n_local)
        if slot // c.n_local != x.left:
            yield xl.put(field, event, n, begin + before, step=2, sync="counts")


def await_counts(rank, first, last, event, c: Group, f: Fused, x: Abort):
    """Step 3: wait, each core for its share of the counts; returns whether all are in."""
    own = field_at(f.fields + rank * c.die_bytes, event, c.n_ranks, c.n_local, 0, 0)
    going = 1
    for i in range(first, last):
        if i // c.n_local != x.left:
            going = yield from until(going, own + i * FIELD_BYTES, event, x, 3, "counts in")
    yield from barrier(3, "all counts are in")
    complete = yield from unaborted(x)
    return complete


def load_fields_of_others(own, c: Group, f: Fused, x: Abort):
    """Load the counts of all but the rank that has left, which may still write its own, and has nothing to send."""
    nbytes = c.n_local * FIELD_BYTES
    for s in range(c.n_ranks):
        if s != x.left:
            yield xl.mtu_in(own + s * nbytes, f.work + s * nbytes, nbytes, step=3)
        else:
            for e in range(c.n_local):
                yield xl.ub_store(f.work + s * nbytes + e * FIELD_BYTES + 8, 0, step=3)
    yield from hand_over(xl.MTU_IN, xl.SCALAR, 0, "counts loaded")


def load_fields(rank, event, c: Group, f: Fused, x: Abort):
    """Step 3: load the counts of all; returns the sum."""
    own = field_at(f.fields + rank * c.die_bytes, event, c.n_ranks, c.n_local, 0, 0)
    if x.left == NOBODY:
        yield from fetch(own, f.work, c.n_ranks * c.n_local * FIELD_BYTES, 3, "counts loaded")
    else:
        yield from load_fields_of_others(own, c, f, x)
    rows = yield from add_words(f.work + 8, c.n_ranks * c.n_local, FIELD_BYTES, 3)
    return rows


def quantize_late(some, half, at, made, c: Group, f: Fused):
    """Quantize messages that came as they were into ``made``, each followed by its route."""
    yield from hand_over(xl.MTU_IN, xl.VECTOR, half, "messages in")
    for i in range(some):
        message = at + i * (f.wire + SLOT_BYTES)
        row = made + i * (c.payload + ROUTE_BYTES)
        yield xl.v_quantize(message, row, c.hidden, c.dtype, c.quantized - 1, step=3)
        yield xl.v_copy(message + f.wire + 4, row + c.payload + 4, ROUTE_BYTES - 4, step=3)
    yield from hand_over(xl.VECTOR, xl.MTU_OUT, half, "rows quantized")


def take_rows(source, row, n, turn, at, c: Group, b: Buffers, f: Fused):
    """Bring messages that stand together into rows that do, some at a time, the halves in turn."""
    message = f.wire + SLOT_BYTES
    late = c.payload != f.wire
    done = 0
    while done < n:
        half = turn % 2
        some = min(f.room, n - done)
        start = at + half * f.room * message
        stride = message
        if turn >= 2:
            yield xl.wait_flag(xl.MTU_OUT, xl.MTU_IN, half, sync="half free")
        yield xl.mtu_in(source + done * message, start, some * message, step=3)
        if late:
            stride = c.payload + ROUTE_BYTES
            made = at + 2 * f.room * message + half * f.room * stride
            yield from quantize_late(some, half, start, made, c, f)
            start = made
        else:
            yield from hand_over(xl.MTU_IN, xl.MTU_OUT, half, "half full")
        for i in range(some):
            yield xl.mtu_out(start + i * stride, b.recv_x + (row + i) * c.payload, c.payload, step=3)
            yield xl.mtu_out(start + i * stride + c.payload, b.route + (row + i) * ROUTE_BYTES, ROUTE_BYTES, step=3)
        yield xl.set_flag(xl.MTU_OUT, xl.MTU_IN, half, sync="half free")
        row = row + some
        done = done + some
        turn = turn + 1
    return turn


def assemble(rank, core, rows, c: Group, b: Buffers, f: Fused):
    """Step 3: payloads, routes and counts into the outputs, each core its part of the rows, the last one the counts."""
    first = rows * core // c.cores
    last = rows * (core + 1) // c.cores
    at = f.work + c.n_ranks * c.n_local * FIELD_BYTES
    row = 0
    turn = 0
    for e in range(c.n_local):
        for s in range(c.n_ranks):
            if row < last or core == c.cores - 1:
                field = f.work + (s * c.n_local + e) * FIELD_BYTES
                n = yield xl.ub_load(field + 8, step=3)
                if core == c.cores - 1:
                    yield xl.ub_store(4 * (e * c.n_ranks + s), n, step=3)
                begin = max(row, first)
                end = min(row + n, last)
                if begin < end:
                    place = yield xl.ub_load(field + 16, step=3)
                    source = f.dispatch + rank * c.die_bytes + (place + begin - row) * (f.wire + SLOT_BYTES)
                    turn = yield from take_rows(source, begin, end - begin, turn, at, c, b, f)
                row = row + n
    yield from drain_halves(xl.MTU_OUT, xl.MTU_IN, turn, "half free")
    if core == c.cores - 1:
        yield xl.mtu_out(0, b.counts, 4 * c.n_ranks * c.n_local, step=3)


def offer_tokens(rank, core, tokens, event, c: Group, b: Buffers, f: Fused, x: Abort):
    """Steps 1 and 2; without room nothing is sent or announced."""
    granted = 1
    yield from begin_counting(rank, core, tokens, f.work, f.wire + SLOT_BYTES, b.topk, c)
    if f.exchange:
        yield from ask_for_room(rank, core, tokens, event, c, f)
        granted = yield from exchange_counts(rank, core, event, c, f, x)
    if granted:
        early = c.quantized if c.payload == f.wire else 0
        yield from send_tokens(rank, core, tokens, b, c._replace(payload=f.wire, quantized=early), f)
    first = c.n_ranks * c.n_local * core // c.cores
    last = c.n_ranks * c.n_local * (core + 1) // c.cores
    yield from count_share(rank, first, last, tokens, f.work, 2, c)
    yield xl.quiet(step=1, sync="messages visible")  # and counted
    yield from barrier(2, "all cores have sent")
    if f.exchange:
        granted = yield from unaborted(x)
    if granted:
        yield from publish(rank, first, last, event, c, f, x)


def take_tokens(rank, core, event, c: Group, b: Buffers, f: Fused, x: Abort):
    """Step 3; if not all counts came nothing is assembled."""
    first = c.n_ranks * c.n_local * core // c.cores
    last = c.n_ranks * c.n_local * (core + 1) // c.cores
    complete = yield from await_counts(rank, first, last, event, c, f, x)
    if complete:
        rows = yield from load_fields(rank, event, c, f, x)
        yield from assemble(rank, core, rows, c, b, f)


class Dispatches(Fused):
    """What FusedDispatch touches."""

    dispatch: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    fields: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    exchange: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    staging: xl.Own[xl.Updates]


class _FusedDispatchBuffers(Buffers):
    x: xl.Reads
    topk: xl.Reads
    recv_x: xl.Writes
    route: xl.Writes
    counts: xl.Writes
    version: xl.Reads


@xl.kernel
def fused_dispatch(rank, core, tokens, event, c: Counting, b: _FusedDispatchBuffers, f: Dispatches):
    """Do one FusedDispatch on one core of a rank with this many tokens, in the round with that event ID."""
    yield from offer_tokens(rank, core, tokens, event, c, b, f, Abort())
    yield from take_tokens(rank, core, event, c, b, f, Abort())
