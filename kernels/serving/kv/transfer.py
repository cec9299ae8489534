"""A KV cache goes from prefill to decode, by pull with backpressure or by push into slots that are offered.

The steps are from [xDeepServe] 5.1.  A pair is one prefill rank and one decode rank that it serves, with words of its
own, so that a pair that is stuck holds up no other.  A request's cache is ``layers`` parts of a few blocks each; a part
has a *task*, numbered on from launch to launch.  Blocks and slots are taken by bits of a word, all that are needed at
once: of two that take them one by one each may end up with half of what it needs.

By pull, metadata alone travels ahead: where a task's blocks are.  Decode's receiver defers a task until it has slots.
By push, the receiver offers slots, and prefill writes there without a copy in between.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.common import drain_rings, fetch, ring
from xccl_emu.kernels.group import drain, hand_over
from xccl_emu.kernels.serving.kv.pair import FIELD_BYTES, PAIRING, PLACES, Pair


def lowest_free(word, count, n):
    """The lowest n of ``count`` bits that are not set, as a mask; 0 if there are fewer."""
    mask = 0
    for i in range(count):
        if n > 0 and word >> i & 1 == 0:
            mask += 1 << i
            n -= 1
    return 0 if n > 0 else mask


def nth(mask, count, n):
    """The place of the n-th of the ``count`` bits that is set, from 0 on; ``count`` if there are fewer."""
    place = count
    for i in range(count):
        if mask >> i & 1:
            if n == 0:
                place = i
            n -= 1
    return place


def claim(word, count, n, waits):
    """Take n of ``count`` places at once; returns their mask, or 0 if fewer are free and it is not to wait."""
    seen = -1
    mask = 0
    while mask == 0:
        seen = yield xl.poll_ne(word, seen, step=6, sync="room")
        mask = lowest_free(seen, count, n)
        if mask:
            before = yield xl.compare_swap(word, seen, seen + mask, step=6, sync="room taken")
            if before != seen:
                mask = 0
                seen = -1
        elif waits == 0:
            break
    return mask


def pieces(nbytes, room):
    """Return in how many pieces a block goes through the data buffer."""
    return (nbytes + room - 1) // room


def move_block(source, target, turn, k: Pair):
    """Copy a block through the data buffer, piece by piece, pieces counted on from ``turn``."""
    for at in range(pieces(k.nbytes, k.room)):
        place = (turn + at) % PLACES
        size = min(k.room, k.nbytes - at * k.room)
        if turn + at >= PLACES:
            yield xl.wait_flag(xl.MTU_OUT, xl.MTU_IN, place, step=7, sync="place free")
        yield xl.mtu_in(source + at * k.room, place * k.room, size, step=7)
        yield from hand_over(xl.MTU_IN, xl.MTU_OUT, place, "piece in", step=7)
        yield xl.mtu_out(place * k.room, target + at * k.room, size, step=7)
        yield xl.set_flag(xl.MTU_OUT, xl.MTU_IN, place, step=7, sync="place free")


# ---- prefill


def await_pulled(task, k: Pair):
    """Wait until all cores of the receiver have read a task, and give its blocks back."""
    for core in range(k.cores):
        yield xl.poll_ge(k.done + core * FIELD_BYTES, task + 1, step=8, sync="task pulled")
    mask = yield xl.ub_load(PLACES * k.room + task % k.n_tasks * 8, 8)
    yield xl.add(k.used, -mask, step=8, sync="blocks released")


def fill_blocks(mask, n, cache, table, turn, k: Pair):
    """Write the cache to the n blocks of a mask, and their addresses to a table."""
    for i in range(n):
        block = k.blocks + nth(mask, k.n_blocks, i) * k.nbytes
        yield from move_block(cache + i * k.nbytes, block, turn + i * pieces(k.nbytes, k.room), k)
        yield xl.put(table + i * FIELD_BYTES, block, step=3)


class _Prefills(Pair):
    blocks: xl.Writes
    used: xl.Updates
    tables: xl.Writes
    done: xl.Reads
    tasks: xl.Writes


@xl.kernel
def prefill(requests: xl.Reads, caches: xl.Reads, k: _Prefills):
    """Register a task for each part of each cache; ``requests`` are [requests] of ID and blocks of a part."""
    pulled = k.first * k.layers
    held = 0
    turn = 0
    for task in range(pulled, (k.first + k.requests) * k.layers):
        request = requests + (task // k.layers - k.first) * 16
        number = yield xl.load(request)
        n = yield xl.load(request + 8)
        mask = 0
        while mask == 0:
            if task - pulled < k.n_tasks and held + n <= k.quota:
                mask = yield from claim(k.used, k.n_blocks, n, pulled == task)
            if mask == 0:
                yield from await_pulled(pulled, k)
                back = yield xl.load(requests + (pulled // k.layers - k.first) * 16 + 8)
                held -= back
                pulled += 1
        held += n
        yield xl.ub_store(PLACES * k.room + task % k.n_tasks * 8, mask, 8)
        table = k.tables + task % k.n_tasks * k.table_bytes
        yield from fill_blocks(mask, n, caches, table, turn, k)
        turn += pieces(k.nbytes, k.room) * n
        caches += n * k.nbytes
        yield xl.quiet(step=3, sync="cache before task")
        yield xl.put(k.tasks + task % k.n_tasks * FIELD_BYTES, task + 1, number, table, n, step=3, sync="task")
    if k.waits:
        for task in range(pulled, (k.first + k.requests) * k.layers):
            yield from await_pulled(task, k)
    yield from drain(xl.MTU_OUT, xl.MTU_IN, turn, PLACES, "place free")


class _Pushes(Pair):
    offers: xl.Reads
    slots: xl.Writes
    ready: xl.Writes


@xl.kernel
def push(requests: xl.Reads, caches: xl.Reads, me, k: _Pushes):
    """Write each part of each cache to slots that decode offers."""
    turn = 0
    for task in range(k.first * k.layers, (k.first + k.requests) * k.layers):
        request = requests + (task // k.layers - k.first) * 16
        number = yield xl.load(request)
        n = yield xl.load(request + 8)
        offer = k.offers + task % k.n_slots * FIELD_BYTES
        yield xl.poll_ge(offer, task + 1, step=6, sync="slots offered")
        yield xl.dcci(offer, sync="offer line")
        offered = yield xl.load(offer + 8)
        if offered != number:
            yield xl.fail(PAIRING, offered, step=7)
        mask = yield xl.load(offer + 16)
        for block in range(n):
            if block % k.cores == me:
                slot = k.slots + nth(mask, k.n_slots, block) * k.nbytes
                yield from move_block(caches + block * k.nbytes, slot, turn, k)
                turn += pieces(k.nbytes, k.room)
        caches += n * k.nbytes
        yield xl.fence(step=7, sync="blocks before ready")
        yield xl.add(k.ready + me * FIELD_BYTES, 1, step=8, sync="ready")
    yield from drain(xl.MTU_OUT, xl.MTU_IN, turn, PLACES, "place free")


# ---- decode


def slots_of(task, n, rest, k: Pair):
    """Take slots for all parts of a request, of n blocks each, at its first one; returns what is left of them."""
    if task % k.layers == 0:
        rest = yield from claim(k.taken, k.n_slots, n * k.layers, 1)
    return rest


def grant(task, n, rest, table, k: Pair):
    """Grant the first n slots of the rest to a task; returns them."""
    mask = lowest_free(~rest, k.n_slots, n)
    yield xl.put(k.grants + task % k.n_slots * FIELD_BYTES, task + 1, mask, table, n, step=6, sync="slots granted")
    return mask


def grant_task(task, expected, rest, k: Pair):
    """Wait for a task of the expected request, and grant slots; returns those that are left for further parts."""
    field = k.tasks + task % k.n_tasks * FIELD_BYTES
    yield xl.poll_ge(field, task + 1, step=6, sync="task in")
    yield xl.dcci(field, sync="task line")
    number = yield xl.load(field + 8)
    if number != expected:
        yield xl.fail(PAIRING, number, step=7)
    table = yield xl.load(field + 16)
    n = yield xl.load(field + 24)
    rest = yield from slots_of(task, n, rest, k)
    mask = yield from grant(task, n, rest, table, k)
    return rest - mask


def pull_blocks(mask, n, me, turn, dma, k: Pair):
    """Read this core's share of a task's n blocks, whose table is in the data buffer, to the slots of a mask.

    Returns pieces, or by DMA blocks, that have been moved so far."""
    for block in range(n):
        if block % k.cores == me:
            source = yield xl.ub_load(PLACES * k.room + block * FIELD_BYTES, 8)
            slot = k.slots + nth(mask, k.n_slots, block) * k.nbytes
            if dma:
                yield from ring(source, slot, k.nbytes, turn)
                turn += 1
            else:
                yield from move_block(source, slot, turn, k)
                turn += pieces(k.nbytes, k.room)
    return turn


def await_grant(task, k: Pair):
    """Wait for the grant of a task; returns the address of its field, which has slots, table and blocks."""
    field = k.grants + task % k.n_slots * FIELD_BYTES
    yield xl.poll_ge(field, task + 1, step=6, sync="grant in")
    yield xl.dcci(field, sync="grant line")
    return field


class Receiver(Pair):
    """What a receiver touches of a pair, whatever way blocks come."""

    done: xl.Writes
    slots: xl.Writes
    taken: xl.Updates
    tasks: xl.Reads
    grants: xl.Updates
    ready: xl.Writes


class _Pulls(Receiver):
    blocks: xl.Reads
    tables: xl.Reads


@xl.kernel
def receive(requests: xl.Reads, me, dma, k: _Pulls):
    """Pull what prefill has ready, when there are slots for it; ``requests`` are those that are expected."""
    turn = 0
    rest = 0
    for task in range(k.first * k.layers, (k.first + k.requests) * k.layers):
        if me == 0:
            expected = yield xl.load(requests + (task // k.layers - k.first) * 16)
            rest = yield from grant_task(task, expected, rest, k)
        field = yield from await_grant(task, k)
        mask = yield xl.load(field + 8)
        table = yield xl.load(field + 16)
        n = yield xl.load(field + 24)
        yield from fetch(table, PLACES * k.room, n * FIELD_BYTES, 7, "table in buffer")
        turn = yield from pull_blocks(mask, n, me, turn, dma, k)
        if dma:
            yield from drain_rings(turn)
            turn = 0
        # mtu-out, which had to wait for each block, comes to this after them all
        yield xl.add(k.done + me * FIELD_BYTES, 1, step=8, sync="done")
        if dma == 0:
            yield xl.quiet(step=8, sync="blocks before ready")
        yield xl.add(k.ready + me * FIELD_BYTES, 1, step=8, sync="ready")
    yield from drain(xl.MTU_OUT, xl.MTU_IN, turn, PLACES, "place free")


class _OffersSlots(Pair):
    taken: xl.Updates
    grants: xl.Writes
    offers: xl.Writes


@xl.kernel
def offer(requests: xl.Reads, k: _OffersSlots):
    """Offer slots for each request, when there are enough of them."""
    rest = 0
    for task in range(k.first * k.layers, (k.first + k.requests) * k.layers):
        request = requests + (task // k.layers - k.first) * 16
        number = yield xl.load(request)
        n = yield xl.load(request + 8)
        rest = yield from slots_of(task, n, rest, k)
        mask = yield from grant(task, n, rest, 0, k)
        rest -= mask
        yield xl.quiet(step=6, sync="grant before offer")
        yield xl.put(k.offers + task % k.n_slots * FIELD_BYTES, task + 1, number, mask, n, step=6, sync="slots offered")


class _Decodes(Pair):
    slots: xl.Reads
    taken: xl.Writes
    grants: xl.Reads
    ready: xl.Reads


@xl.kernel
def decode(out: xl.Writes, k: _Decodes):
    """A decode step for each request that is complete: it reads the blocks where they are, and frees them."""
    turn = 0
    for request in range(k.first, k.first + k.requests):
        for core in range(k.cores):
            yield xl.poll_ge(k.ready + core * FIELD_BYTES, (request + 1) * k.layers, step=8, sync="request ready")
        freed = 0
        for layer in range(k.layers):
            field = k.grants + (request * k.layers + layer) % k.n_slots * FIELD_BYTES
            yield xl.dcci(field, sync="grant line")
            mask = yield xl.load(field + 8)
            for i in range(k.n_slots):
                if mask >> i & 1:
                    yield from move_block(k.slots + i * k.nbytes, out, turn, k)
                    turn += pieces(k.nbytes, k.room)
                    out += k.nbytes
            freed += mask
        yield xl.add(k.taken, -freed, step=8, sync="slots freed")
    yield from drain(xl.MTU_OUT, xl.MTU_IN, turn, PLACES, "place free")
