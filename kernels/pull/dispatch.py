"""Pull dispatch (xDeepServe 3.2): every rank lays its tokens out by destination, announces to each destination where
they are and how many, and pulls what others have for it.

Steps: 1 load a token and find the places of its messages, 2 quantize it, 3 write it into the own managed area,
partitioned by destination rank, 4 send every rank its count, 5 wait for the counts of all, 6 pull, 7 copy out.

A block holds, for one destination, the messages of its local experts one after the other, each in token order; so a
place is a count of choices (`counts.py`) and does not depend on how many cores there are.  Experts are numbered by
slot: ``rank * local_experts + local``.

The paper leaves open when a source may reuse its blocks: here every rank acknowledges to each source when all of its
cores have pulled, and a source writes into the block of a destination, and into its own fields there, only when that
one has acknowledged the round before (sync "dispatch blocks free").
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.aborts import Abort, may_offer, until, until_free
from xccl_emu.kernels.experts.counts import (
    FIELD_BYTES,
    INDEX_BYTES,
    begin_counting,
    choice_at,
    count_share,
    find_places,
    load_counts,
    place_of,
    row_of,
    slot_of,
)
from xccl_emu.kernels.experts.messages import ROUTE_BYTES, SLOT_BYTES, clear_slots, field_of, message_at, prepare, stamp
from xccl_emu.kernels.experts.parameters import Buffers, Counting, Group
from xccl_emu.kernels.group import barrier, drain_halves, hand_over
from xccl_emu.kernels.pull.parameters import Areas, Pulls


def await_free(d, rank, event, c: Group, a: Areas, x: Abort):
    """Wait until a rank has pulled what this one offered it in the round before; returns whether it has."""
    done = a.done + rank * c.die_bytes + d * FIELD_BYTES
    free = yield from until_free(done, d, event, x, 3, "dispatch blocks free")
    return free


def send_message(half, t, rank, event, at, c: Group, b: Buffers, a: Areas, x: Abort):
    """Step 3: write a prepared message into the block of each destination, with its routing in the slot."""
    message = c.payload + SLOT_BYTES
    choices = choice_at(row_of(half, t, c.tallies), 0, c.n_ranks * c.n_local)
    for k in range(c.top_k):
        slot = yield xl.ub_load(choices + 4 * k, step=3)
        if slot >= 0:
            d = slot // c.n_local
            place = yield from place_of(half, k, slot, c)
            yield xl.store(b.pos + t * INDEX_BYTES + 4 * k, place, 4, step=3)
            yield xl.ub_store(at + c.payload + 4, rank, step=3)
            yield xl.ub_store(at + c.payload + 8, t, step=3)
            yield xl.ub_store(at + c.payload + 12, k, step=3)
            yield xl.ub_store(at + c.payload + 16, slot, step=3)
            free = yield from await_free(d, rank, event, c, a, x)
            if free:
                block = a.blocks + rank * c.die_bytes + d * a.block_bytes
                yield xl.mtu_out(at, block + place * message, message, step=3)
            yield from hand_over(xl.MTU_OUT, xl.SCALAR, half, "message left")


def send_tokens(rank, core, tokens, event, c: Group, b: Buffers, a: Areas, x: Abort):
    """Steps 1-3 for this core's tokens; the next token is loaded and quantized while one is written."""
    first = tokens * core // c.cores
    last = tokens * (core + 1) // c.cores
    at = message_at(0, c.hidden, c.payload, c.quantized, a.work)
    yield from clear_slots(at, c.payload, c.payload + SLOT_BYTES)
    yield from stamp(at + c.payload, c.payload + SLOT_BYTES, b.version)
    for t in range(first, last + 1):
        if t < last:
            yield from find_places((t - first) % 2, t, tokens, b.topk, c)
            yield from prepare((t - first) % 2, b.x + t * 2 * c.hidden, c, a.work, 2)
        if t > first:
            half = (t - 1 - first) % 2
            if c.quantized:
                yield xl.wait_flag(xl.VECTOR, xl.SCALAR, half, sync="message made")  # the places, too
            else:
                yield xl.wait_flag(xl.VECTOR, xl.SCALAR, half, sync="places found")
                yield xl.wait_flag(xl.MTU_IN, xl.SCALAR, half, sync="message made")
            yield from send_message(half, t - 1, rank, event, at + half * (c.payload + SLOT_BYTES), c, b, a, x)


def publish(rank, first, last, event, c: Group, a: Areas, x: Abort):
    """Step 4: announce to the ranks of this core's experts how many messages there are, zero too, and where."""
    message = c.payload + SLOT_BYTES
    for i in range(first, last):
        slot = slot_of(i, rank, c.n_ranks, c.n_local)
        d = slot // c.n_local
        n = yield xl.ub_load(a.work + 8 * i, step=4)
        before = yield xl.ub_load(a.work + 8 * i + 4, step=4)
        field = field_of(a.fields + d * c.die_bytes, rank, c.n_local, slot % c.n_local)
        if d != x.left:
            yield xl.put(field, event, n, d * a.block_bytes + before * message, step=4, sync="counts")


def pull_rows(source, n, row, turn, payload, b: Buffers, work, room):
    """Steps 6-7 through the data buffer: some messages in, payloads and routes out, the halves in turn."""
    message = payload + SLOT_BYTES
    done = 0
    while done < n:
        half = turn % 2
        some = min(room, n - done)
        at = work + half * room * message
        if turn >= 2:
            yield xl.wait_flag(xl.MTU_OUT, xl.MTU_IN, half, sync="pull half free")
        yield xl.mtu_in(source + done * message, at, some * message, step=6)
        yield from hand_over(xl.MTU_IN, xl.MTU_OUT, half, "pull half full")
        for i in range(some):
            yield xl.mtu_out(at + i * message, b.recv_x + (row + done + i) * payload, payload, step=7)
            yield xl.mtu_out(at + i * message + payload, b.route + (row + done + i) * ROUTE_BYTES, ROUTE_BYTES, step=7)
        yield xl.set_flag(xl.MTU_OUT, xl.MTU_IN, half, sync="pull half free")
        done = done + some
        turn = turn + 1
    return turn


def pull_rows_dma(source, n, row, payload, b: Buffers):
    """Steps 6-7 by the DMA engine, straight into the app data area."""
    message = payload + SLOT_BYTES
    for i in range(n):
        yield xl.dma(source + i * message, b.recv_x + (row + i) * payload, payload, 0, step=6)
        yield xl.dma(source + i * message + payload, b.route + (row + i) * ROUTE_BYTES, ROUTE_BYTES, 1, step=6)
        yield xl.wait_flag(xl.DMA, xl.SCALAR, 0, sync="row in")
        yield xl.wait_flag(xl.DMA, xl.SCALAR, 1, sync="row in")


def await_counts(rank, core, event, c: Group, b: Buffers, a: Areas, x: Abort):
    """Step 5: wait, each core for its share of the fields, and note the counts, by expert and then source."""
    came = 1
    for i in range(c.n_ranks * c.n_local * core // c.cores, c.n_ranks * c.n_local * (core + 1) // c.cores):
        field = a.fields + rank * c.die_bytes + i * FIELD_BYTES
        n = 0
        if i // c.n_local != x.left:
            came = yield from until(came, field, event, x, 5, "counts in")
            if came:
                n = yield xl.load(field + 8, step=5)
        yield xl.store(b.counts + 4 * (i % c.n_local * c.n_ranks + i // c.n_local), n, 4, step=5)


def gather_counts(c: Group, b: Buffers):
    """Bring the whole table into the data buffer once all cores have noted theirs; returns the number of rows."""
    yield xl.quiet(step=5, sync="counts noted")
    yield from barrier(5, "all counts are in")
    rows = yield from load_counts(b.counts, 5, "counts loaded", c)
    return rows


def pull(rank, core, rows, c: Group, b: Buffers, a: Areas):
    """Steps 6-7: payloads and routes into the outputs, each core its part of the rows.

    The parts begin about as far after the first row as the rank is after the first one, and go on from the last row
    to the first one: else all ranks would read from the same few sources at the same time.
    """
    shift = rows * (rank % c.n_ranks) // (c.n_ranks * c.n_local)  # in A2E there may be more ranks than sources
    first = rows * core // c.cores + shift
    last = rows * (core + 1) // c.cores + shift
    turn = 0
    for lap in range(2):
        row = lap * rows
        if row < last and first < row + rows:
            for i in range(c.n_ranks * c.n_local):
                if row < last:
                    n = yield xl.ub_load(4 * i, step=6)
                    begin = max(row, first)
                    end = min(row + n, last)
                    if begin < end:
                        s = i % c.n_ranks
                        field = field_of(a.fields + rank * c.die_bytes, s, c.n_local, i // c.n_ranks)
                        offset = yield xl.load(field + 16, step=6)
                        source = a.blocks + s * c.die_bytes + offset + (begin - row) * (c.payload + SLOT_BYTES)
                        into = begin - lap * rows
                        if c.by_dma:
                            yield from pull_rows_dma(source, end - begin, into, c.payload, b)
                        else:
                            turn = yield from pull_rows(source, end - begin, into, turn, c.payload, b, a.work, a.room)
                    row = row + n
    yield xl.set_flag(xl.MTU_IN, xl.SCALAR, 2, sync="rows pulled")
    yield from drain_halves(xl.MTU_OUT, xl.MTU_IN, turn, "pull half free")
    yield xl.wait_flag(xl.MTU_IN, xl.SCALAR, 2, sync="rows pulled")


def acknowledge(rank, core, event, done, c: Group, x: Abort):
    """Signal to each source of this core's share that all cores have pulled what it had."""
    yield from barrier(7, "all rows pulled")
    for i in range(c.n_ranks * core // c.cores, c.n_ranks * (core + 1) // c.cores):
        s = (i + rank) % c.n_ranks
        if s != x.left:
            yield xl.put(done + s * c.die_bytes + rank * FIELD_BYTES, event, step=7, sync="dispatch ack")


def offer_tokens(rank, core, tokens, event, c: Group, b: Buffers, a: Areas, x: Abort):
    """Steps 1-4."""
    first = c.n_ranks * c.n_local * core // c.cores
    last = c.n_ranks * c.n_local * (core + 1) // c.cores
    yield from begin_counting(rank, core, tokens, a.work, c.payload + SLOT_BYTES, b.topk, c)
    yield from send_tokens(rank, core, tokens, event, c, b, a, x)
    for d in range(c.n_ranks * core // c.cores, c.n_ranks * (core + 1) // c.cores):
        yield from await_free(d, rank, event, c, a, x)
    yield from count_share(rank, first, last, tokens, a.work, 4, c)
    yield xl.quiet(step=3, sync="tokens visible")  # and counted
    yield from barrier(4, "all cores have written")
    whole = yield from may_offer(x)
    if whole:
        yield from publish(rank, first, last, event, c, a, x)


def take_tokens(rank, core, event, c: Group, b: Buffers, a: Areas, x: Abort):
    """Steps 5-7."""
    yield from await_counts(rank, core, event, c, b, a, x)
    rows = yield from gather_counts(c, b)
    yield from pull(rank, core, rows, c, b, a)
    yield from acknowledge(rank, core, event, a.done, c, x)


class DispatchBuffers(Buffers):
    """What dispatch touches."""

    x: xl.Reads
    topk: xl.Reads
    pos: xl.Writes
    recv_x: xl.Writes
    route: xl.Writes
    counts: xl.Updates
    version: xl.Reads


@xl.kernel
def dispatch(rank, core, tokens, event, c: Counting, b: DispatchBuffers, a: Pulls):
    """Do one dispatch on one core of a rank with this many tokens, in the round with that event ID."""
    yield from offer_tokens(rank, core, tokens, event, c, b, a, Abort())
    yield from take_tokens(rank, core, event, c, b, a, Abort())
