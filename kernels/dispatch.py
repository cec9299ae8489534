"""Pull dispatch (xDeepServe 3.2): every rank lays its tokens out by destination, tells each destination where and how
many, and pulls what others have for it.

Steps: 1 load a token, 2 quantize it, 3 write it into the own managed area, partitioned by destination rank, 4 tell
every rank its count, 5 wait for the counts of all, 6 pull, 7 copy out.  The paper leaves open when a source may reuse
its blocks: here every rank acknowledges to each source that it has pulled, and a source waits for the acknowledgements
of the round before (sync "dispatch blocks free").

Experts are numbered by slot: ``rank * local_experts + local``.  A block holds, for one destination, the messages of
its local experts one after the other, each in token order.  Cores take contiguous parts of the tokens, so the order
does not depend on how many there are.
"""

from xccl_emu.kernels.group import align, barrier, drain_halves
from xccl_emu.kernels.parameters import Areas, Buffers, Group
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
    poll_ge,
    put,
    set_flag,
    store,
    ub_load,
    ub_store,
    v_fill,
    v_quantize,
    wait_flag,
)

SLOT_BYTES = 512
"""Behind each payload: FP32 scale, source rank, batch slot (token), key offset (choice), expert slot; the rest zero."""

ROUTE_BYTES = 32
"""What of the slot is kept with a received row."""

FIELD_BYTES = 32
"""A metadata field: event ID, offset in the source's blocks, count."""

INDEX_BYTES = 64
"""Row of a table with one 4-byte entry for each choice of a token (at most 16)."""


def work_at(n_slots: int) -> int:
    """Where in the data buffer the room behind the two tables of counts begins."""
    return 2 * align(4 * n_slots)


def message_at(half: int, hidden: int, payload: int, quantized: int, work: int) -> int:
    """Where in the data buffer a half's message is made; the inputs of quantization stand before."""
    return work + (4 * hidden if quantized else 0) + half * (payload + SLOT_BYTES)


def field_of(fields: int, rank: int, n_local: int, local: int) -> int:
    """Offset of the field of a source rank and local expert."""
    return fields + (rank * n_local + local) * FIELD_BYTES


def count_choices(first, last, topk, c: Group):
    """Count this core's choices of each expert slot into the data buffer."""
    yield v_fill(0, 4 * c.n_ranks * c.n_local, step=1)
    yield set_flag(VECTOR, SCALAR, 0, sync="table cleared")
    yield wait_flag(VECTOR, SCALAR, 0, sync="table cleared")
    for t in range(first, last):
        for k in range(c.top_k):
            slot = yield load(topk + t * INDEX_BYTES + 4 * k, 4, step=1)
            if slot >= 0:
                n = yield ub_load(4 * slot, step=1)
                yield ub_store(4 * slot, n + 1, step=1)


def share_counts(core, scratch, c: Group):
    """Turn the counts of all cores into this core's first position in each expert's part, and the totals.

    Afterwards the first table holds the next position in the destination's block, the second one the totals.
    """
    n_slots = c.n_ranks * c.n_local
    total, row = align(4 * n_slots), 2 * align(4 * n_slots)
    yield mtu_out(0, scratch + core * total, 4 * n_slots, step=3)
    yield fence(step=3, sync="counts visible")
    yield from barrier(3, "counts shared")
    yield v_fill(0, 2 * total, step=3)
    yield set_flag(VECTOR, SCALAR, 0, sync="tables cleared")
    yield wait_flag(VECTOR, SCALAR, 0, sync="tables cleared")
    for other in range(c.cores):
        yield mtu_in(scratch + other * total, row, 4 * n_slots, step=3)
        yield set_flag(MTU_IN, SCALAR, 0, sync="row of counts in")
        yield wait_flag(MTU_IN, SCALAR, 0, sync="row of counts in")
        for s in range(n_slots):
            n = yield ub_load(row + 4 * s, step=3)
            if n > 0:
                sum_ = yield ub_load(total + 4 * s, step=3)
                yield ub_store(total + 4 * s, sum_ + n, step=3)
                if other < core:
                    yield ub_store(4 * s, sum_ + n, step=3)
    if c.n_local > 1:
        yield from add_experts_before(total, c)


def add_experts_before(total, c: Group):
    """Add to each position what the experts before it on the same rank have in the block."""
    before = 0
    for s in range(c.n_ranks * c.n_local):
        if s % c.n_local == 0:
            before = 0
        mine = yield ub_load(4 * s, step=3)
        yield ub_store(4 * s, before + mine, step=3)
        n = yield ub_load(total + 4 * s, step=3)
        before = before + n


def prepare(half, source, c: Group, work):
    """Steps 1-2: load a token and quantize it, asynchronously, into a half of the data buffer."""
    at = message_at(half, c.hidden, c.payload, c.quantized, work)
    if c.quantized:
        yield mtu_in(source, work + 2 * c.hidden * half, 2 * c.hidden, step=1)
        yield set_flag(MTU_IN, VECTOR, half, sync="token loaded")
        yield wait_flag(MTU_IN, VECTOR, half, sync="token loaded")
        yield v_quantize(work + 2 * c.hidden * half, at, c.hidden, c.dtype, c.quantized - 1, step=2)
        yield set_flag(VECTOR, SCALAR, half, sync="message made")
    else:
        yield mtu_in(source, at, 2 * c.hidden, step=1)
        yield set_flag(MTU_IN, SCALAR, half, sync="message made")


def send_token(half, t, rank, at, own, c: Group, b: Buffers, a: Areas):
    """Step 3: write a prepared message into the block of each destination, with its routing in the slot."""
    message = c.payload + SLOT_BYTES
    for k in range(c.top_k):
        slot = yield load(b.topk + t * INDEX_BYTES + 4 * k, 4, step=3)
        if slot >= 0:
            place = yield ub_load(4 * slot, step=3)
            yield ub_store(4 * slot, place + 1, step=3)
            yield store(b.pos + t * INDEX_BYTES + 4 * k, place, 4, step=3)
            yield ub_store(at + c.payload + 4, rank, step=3)
            yield ub_store(at + c.payload + 8, t, step=3)
            yield ub_store(at + c.payload + 12, k, step=3)
            yield ub_store(at + c.payload + 16, slot, step=3)
            yield mtu_out(at, own + slot // c.n_local * a.block_bytes + place * message, message, step=3)
            yield set_flag(MTU_OUT, SCALAR, half, sync="message left")
            yield wait_flag(MTU_OUT, SCALAR, half, sync="message left")


def clear_slots(at, payload, message):
    """Zero the slots of both halves: what is not written later (the scale, if nothing is quantized) still travels."""
    yield v_fill(at + payload, SLOT_BYTES, step=1)
    yield v_fill(at + message + payload, SLOT_BYTES, step=1)
    yield set_flag(VECTOR, SCALAR, 1, sync="slots cleared")
    yield wait_flag(VECTOR, SCALAR, 1, sync="slots cleared")


def send_tokens(rank, first, last, c: Group, b: Buffers, a: Areas, work):
    """Steps 1-3 for this core's tokens; the next token is loaded and quantized while one is written."""
    message = c.payload + SLOT_BYTES
    at = message_at(0, c.hidden, c.payload, c.quantized, work)
    own = a.blocks + rank * c.die_bytes
    yield from clear_slots(at, c.payload, message)
    if first < last:
        yield from prepare(0, b.x + first * 2 * c.hidden, c, work)
    for t in range(first, last):
        half = (t - first) % 2
        if t + 1 < last:
            yield from prepare(1 - half, b.x + (t + 1) * 2 * c.hidden, c, work)
        if c.quantized:
            yield wait_flag(VECTOR, SCALAR, half, sync="message made")
        else:
            yield wait_flag(MTU_IN, SCALAR, half, sync="message made")
        yield from send_token(half, t, rank, at + half * message, own, c, b, a)


def publish(rank, core, event, c: Group, a: Areas):
    """Step 4: tell every rank, for each of its experts, where its messages are and how many; zero counts too."""
    message = c.payload + SLOT_BYTES
    total = align(4 * c.n_ranks * c.n_local)
    for d in range(c.n_ranks):
        if d % c.cores == core:
            before = 0
            for e in range(c.n_local):
                n = yield ub_load(total + 4 * (d * c.n_local + e), step=4)
                field = field_of(a.fields + d * c.die_bytes, rank, c.n_local, e)
                yield put(field, event, d * a.block_bytes + before * message, n, step=4, sync="counts")
                before = before + n


def await_counts(rank, event, c: Group, a: Areas):
    """Step 5: wait for the field of every rank and expert, and keep the counts, by expert and then source."""
    for s in range(c.n_ranks):
        for e in range(c.n_local):
            field = field_of(a.fields + rank * c.die_bytes, s, c.n_local, e)
            yield poll_eq(field, event, step=5, sync="counts in")
            n = yield load(field + 16, step=5)
            yield ub_store(4 * (e * c.n_ranks + s), n, step=5)


def pull_rows(source, n, row, payload, b: Buffers, work, room, turn):
    """Steps 6-7 through the data buffer: some messages in, payloads and routes out, the halves in turn."""
    message = payload + SLOT_BYTES
    done = 0
    while done < n:
        half = turn % 2
        some = min(room, n - done)
        at = work + half * room * message
        if turn >= 2:
            yield wait_flag(MTU_OUT, MTU_IN, half, sync="pull half free")
        yield mtu_in(source + done * message, at, some * message, step=6)
        yield set_flag(MTU_IN, MTU_OUT, half, sync="pull half full")
        yield wait_flag(MTU_IN, MTU_OUT, half, sync="pull half full")
        for i in range(some):
            yield mtu_out(at + i * message, b.recv_x + (row + done + i) * payload, payload, step=7)
            yield mtu_out(at + i * message + payload, b.route + (row + done + i) * ROUTE_BYTES, ROUTE_BYTES, step=7)
        yield set_flag(MTU_OUT, MTU_IN, half, sync="pull half free")
        done = done + some
        turn = turn + 1
    return turn


def pull_rows_dma(source, n, row, payload, b: Buffers):
    """Steps 6-7 by the DMA engine, straight into the app data area."""
    message = payload + SLOT_BYTES
    for i in range(n):
        yield dma(source + i * message, b.recv_x + (row + i) * payload, payload, 0, step=6)
        yield dma(source + i * message + payload, b.route + (row + i) * ROUTE_BYTES, ROUTE_BYTES, 1, step=6)
        yield wait_flag(DMA, SCALAR, 0, sync="row in")
        yield wait_flag(DMA, SCALAR, 1, sync="row in")


def pull(rank, core, c: Group, b: Buffers, a: Areas, work):
    """Steps 6-7: from every source of this core's share, the rows of each expert, into the receiver's order."""
    row = 0
    turn = 0
    for e in range(c.n_local):
        for s in range(c.n_ranks):
            n = yield ub_load(4 * (e * c.n_ranks + s), step=6)
            if s % c.cores == core and n > 0:
                offset = yield load(field_of(a.fields + rank * c.die_bytes, s, c.n_local, e) + 8, step=6)
                source = a.blocks + s * c.die_bytes + offset
                if c.by_dma:
                    yield from pull_rows_dma(source, n, row, c.payload, b)
                else:
                    turn = yield from pull_rows(source, n, row, c.payload, b, work, a.room, turn)
            row = row + n
    yield from drain_halves(MTU_OUT, MTU_IN, turn, "pull half free")


def acknowledge(rank, core, event, done, c: Group):
    """Tell each source of this core's share that all of its messages are pulled.

    They are: the puts queue on mtu-out behind waits for all that was pulled; by DMA, the core has waited itself.
    """
    for s in range(c.n_ranks):
        if s % c.cores == core:
            yield put(done + s * c.die_bytes + rank * FIELD_BYTES, event, step=7, sync="dispatch ack")


def await_acknowledged(rank, event, done, c: Group):
    """Wait until every rank has pulled what this one offered in the round of ``event``."""
    for d in range(c.n_ranks):
        yield poll_ge(done + rank * c.die_bytes + d * FIELD_BYTES, event, step=3, sync="dispatch blocks free")


@kernel
def dispatch(rank, core, first, last, event, c: Group, b: Buffers, a: Areas):
    """One dispatch on one core: of its rank's tokens, ``first`` to ``last``."""
    work = work_at(c.n_ranks * c.n_local)
    yield from count_choices(first, last, b.topk, c)
    yield from share_counts(core, a.scratch + rank * c.die_bytes, c)
    yield from await_acknowledged(rank, event - 1, a.done, c)
    yield from send_tokens(rank, first, last, c, b, a, work)
    yield fence(step=3, sync="tokens visible")  # it also frees the data buffer: the messages have left
    yield from barrier(4, "all cores have written")
    yield from publish(rank, core, event, c, a)
    yield from await_counts(rank, event, c, a)
    yield from barrier(5, "all cores have the counts")
    yield from pull(rank, core, c, b, a, work)
    if core == 0:
        yield mtu_out(0, b.counts, 4 * c.n_ranks * c.n_local, step=7)
    yield from acknowledge(rank, core, event, a.done, c)
