"""Pull combine (xDeepServe 3.2, "combine follows a similar pattern"): the experts' outputs go back to the tokens.

Steps: 1 load the rows of an expert, 3 write them into the own managed area, partitioned by the rank that their tokens
came from, 4 signal to each of these ranks, 5 wait, token by token, for its experts' ranks, 6 pull its contributions,
7 weigh and add them and copy the sum out.  A contribution is at the position that dispatch gave the message, so the
table of positions is all that a token's rank needs to find it.  Step 2, if ``narrowed``: rows are quantized as they are
laid out, each followed by its scale, and widened again where they are added (4.7: expert outputs in INT8, too).

A rank acknowledges to every other one, also to those that it needed nothing from and has not waited for: nobody reads
what they offer it, so that may be overwritten at any time.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.aborts import Abort, unaborted, until, until_free
from xccl_emu.kernels.experts.counts import FIELD_BYTES, INDEX_BYTES, load_counts
from xccl_emu.kernels.experts.parameters import Buffers, Group
from xccl_emu.kernels.experts.sums import (
    add_contribution,
    contribution_bytes,
    contribution_stride,
    drain_sums,
    write_sum,
)
from xccl_emu.kernels.group import barrier, drain_halves, hand_over
from xccl_emu.kernels.pull.parameters import Areas, Pulls


def copy_rows(source, target, n, row_bytes, turn, a: Areas):
    """Steps 1 and 3: copy whole rows from memory to memory through the data buffer, the halves in turn."""
    done = 0
    while done < n:
        half = turn % 2
        some = min(a.room, n - done)
        at = a.work + half * a.room * row_bytes
        if turn >= 2:
            yield xl.wait_flag(xl.MTU_OUT, xl.MTU_IN, half, sync="copy half free")
        yield xl.mtu_in(source + done * row_bytes, at, some * row_bytes, step=1)
        yield from hand_over(xl.MTU_IN, xl.MTU_OUT, half, "copy half full")
        yield xl.mtu_out(at, target + done * row_bytes, some * row_bytes, step=3)
        yield xl.set_flag(xl.MTU_OUT, xl.MTU_IN, half, sync="copy half free")
        done = done + some
        turn = turn + 1
    return turn


def quantize_rows(source, target, n, turn, c: Group, a: Areas):
    """Steps 1 to 3: quantize whole rows from memory to memory, each followed by its scale, the halves in turn."""
    stride = contribution_stride(c.hidden, c.narrowed)
    for i in range(n):
        half = turn % 2
        x = a.work + half * 2 * c.hidden
        q = a.work + 4 * c.hidden + half * stride
        if turn >= 2:
            yield xl.wait_flag(xl.VECTOR, xl.MTU_IN, half, sync="output used")
        yield xl.mtu_in(source + i * 2 * c.hidden, x, 2 * c.hidden, step=1)
        yield from hand_over(xl.MTU_IN, xl.VECTOR, half, "output in")
        if turn >= 2:
            yield xl.wait_flag(xl.MTU_OUT, xl.VECTOR, half, sync="narrowed row left")
        yield xl.v_quantize(x, q, c.hidden, c.dtype, c.narrowed - 1, step=2)
        yield xl.set_flag(xl.VECTOR, xl.MTU_IN, half, sync="output used")
        yield from hand_over(xl.VECTOR, xl.MTU_OUT, half, "row narrowed")
        yield xl.mtu_out(q, target + i * stride, contribution_bytes(c.hidden, c.narrowed), step=3)
        yield xl.set_flag(xl.MTU_OUT, xl.VECTOR, half, sync="narrowed row left")
        turn = turn + 1
    return turn


def await_free(s, rank, event, c: Group, a: Areas, x: Abort):
    """Wait until a rank has pulled what this one offered it in the round before; returns whether it has."""
    done = a.done + rank * c.die_bytes + s * FIELD_BYTES
    free = yield from until_free(done, s, event, x, 3, "combine blocks free")
    return free


def lay_out(rank, core, event, rows, y, c: Group, a: Areas, x: Abort):
    """Steps 1 and 3: this core's part of the rows, each after the rows of the rank's earlier experts for its source."""
    first = rows * core // c.cores
    last = rows * (core + 1) // c.cores
    row = 0
    turn = 0
    for i in range(c.n_ranks * c.n_local):
        if row < last:
            n = yield xl.ub_load(4 * i, step=1)
            begin = max(row, first)
            end = min(row + n, last)
            if begin < end:
                s = i % c.n_ranks
                free = yield from await_free(s, rank, event, c, a, x)
                place = begin - row
                for e in range(i // c.n_ranks):
                    before = yield xl.ub_load(4 * (e * c.n_ranks + s), step=1)
                    place = place + before
                block = a.blocks + rank * c.die_bytes + s * a.block_bytes
                target = block + place * contribution_stride(c.hidden, c.narrowed)
                source = y + begin * 2 * c.hidden
                if free and c.narrowed:
                    turn = yield from quantize_rows(source, target, end - begin, turn, c, a)
                elif free:
                    turn = yield from copy_rows(source, target, end - begin, 2 * c.hidden, turn, a)
            row = row + n
    if c.narrowed:
        yield from drain_halves(xl.VECTOR, xl.MTU_IN, turn, "output used")
        yield from drain_halves(xl.MTU_OUT, xl.VECTOR, turn, "narrowed row left")
    else:
        yield from drain_halves(xl.MTU_OUT, xl.MTU_IN, turn, "copy half free")


def offer(rank, core, event, c: Group, b: Buffers, a: Areas, x: Abort):
    """Steps 1-4: lay out the rows, each core as many, and when all have, signal to each rank of this core's share.

    The ranks are dealt out from the own one on, so that no two ranks begin with the same one.
    """
    rows = yield from load_counts(b.counts, 1, "received counts loaded", c)
    yield from lay_out(rank, core, event, rows, b.y, c, a, x)
    first = c.n_ranks * core // c.cores
    last = c.n_ranks * (core + 1) // c.cores
    for i in range(first, last):
        yield from await_free((i + rank) % c.n_ranks, rank, event, c, a, x)
    yield xl.quiet(step=3, sync="rows visible")  # it also frees the data buffer for the sums
    yield from barrier(4, "all cores have laid out")
    received = yield from unaborted(x)  # else there may be fewer rows than the peers want
    if received:
        for i in range(first, last):
            s = (i + rank) % c.n_ranks
            field = a.fields + s * c.die_bytes + rank * FIELD_BYTES
            if s != x.left:
                yield xl.put(field, event, s * a.block_bytes, step=4, sync="rows offered")


def stage(source, at, nbytes, half, turn):
    """Step 6 by DMA: a contribution lands in the own managed area first."""
    if turn >= 2:
        yield xl.wait_flag(xl.MTU_IN, xl.SCALAR, half, sync="staging free")
    yield xl.dma(source, at, nbytes, half, step=6)
    yield xl.wait_flag(xl.DMA, xl.SCALAR, half, sync="contribution staged")


def sum_token(t, rank, event, turn, staging, acc, c: Group, b: Buffers, a: Areas, x: Abort):
    """Steps 5-7 for one token: contributions are weighed and added in order of the choices, the shared one as it is.

    Each waits for the rank that it comes from, and for no other.
    """
    yield xl.v_fill(acc, 4 * c.hidden, step=7)
    came = 1
    for k in range(c.top_k):
        slot = yield xl.load(b.topk + t * INDEX_BYTES + 4 * k, 4, step=6)
        if slot >= 0:
            place = yield xl.load(b.pos + t * INDEX_BYTES + 4 * k, 4, step=6)
            weight = yield xl.load(b.weights + t * INDEX_BYTES + 4 * k, 4, step=7)
            expert_rank = slot // c.n_local
            field = a.fields + rank * c.die_bytes + expert_rank * FIELD_BYTES
            came = yield from until(came, field, event, x, 5, "rows in")
            if came:
                offset = yield xl.load(field + 8, step=6)
                block = a.blocks + expert_rank * c.die_bytes + offset
                source = block + place * contribution_stride(c.hidden, c.narrowed)
                if c.by_dma:
                    nbytes = contribution_bytes(c.hidden, c.narrowed)
                    yield from stage(source, staging + turn % 2 * 2 * c.hidden, nbytes, turn % 2, turn)
                    source = staging + turn % 2 * 2 * c.hidden
                yield from add_contribution(source, acc, turn, k, weight, c, 7)
                if c.by_dma:
                    yield xl.set_flag(xl.MTU_IN, xl.SCALAR, turn % 2, sync="staging free")
                turn = turn + 1
    return turn


def sum_tokens(rank, core, tokens, event, c: Group, b: Buffers, a: Areas, x: Abort):
    """Steps 5-7 for this core's tokens."""
    first = tokens * core // c.cores
    last = tokens * (core + 1) // c.cores
    staging = a.staging + rank * c.die_bytes + core * 4 * c.hidden
    turn = 0
    for t in range(first, last):
        turn = yield from sum_token(t, rank, event, turn, staging, a.work, c, b, a, x)
        yield from write_sum(t, first, a.work, c, b, 7)
    yield from drain_sums(turn, last - first)
    if c.by_dma:
        yield from drain_halves(xl.MTU_IN, xl.SCALAR, turn, "staging free")


def acknowledge_all(rank, core, event, done, c: Group, x: Abort):
    """Signal to each rank of this core's share that all cores have pulled what they need from it."""
    yield from hand_over(xl.MTU_IN, xl.SCALAR, 2, "contributions pulled")
    yield from barrier(7, "all cores have pulled")
    for i in range(c.n_ranks * core // c.cores, c.n_ranks * (core + 1) // c.cores):
        d = (i + rank) % c.n_ranks
        if d != x.left:
            yield xl.put(done + d * c.die_bytes + rank * FIELD_BYTES, event, step=7, sync="combine ack")


class _CombineBuffers(Buffers):
    topk: xl.Reads
    pos: xl.Reads
    weights: xl.Reads
    counts: xl.Reads
    y: xl.Reads
    out: xl.Writes


@xl.kernel
def combine(rank, core, tokens, event, c: Group, b: _CombineBuffers, a: Pulls):
    """Do one combine on one core of a rank with this many tokens, in the round with that event ID."""
    yield from offer(rank, core, event, c, b, a, Abort())
    yield from sum_tokens(rank, core, tokens, event, c, b, a, Abort())
    yield from acknowledge_all(rank, core, event, a.done, c, Abort())
