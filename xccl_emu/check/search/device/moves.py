"""Moves of a search: an action of the machine with all that the checker keeps in addition.

A *transition* is an action on memory that several cores use.  What is local to a core (its kernel between two such
actions, its data buffer, its flags, memory that it alone uses) is done at once after it (`run_local`): it commutes with
everything that others can do meanwhile and nothing that others do can prevent it, so any run is equivalent to one in
which it comes first (a persistent set of one action).  That it really is local is checked: by `clocks` and `inside`
within a core, by `granules` between cores.
"""

from typing import NamedTuple

import numpy as np

from xccl_emu.check.device import accesses
from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device import clocks, fields, granules, inside, padding, races
from xccl_emu.check.search.device.kept import touch_core, touch_readers
from xccl_emu.check.search.device.linked import classify, linked
from xccl_emu.check.search.device.record import step_machine
from xccl_emu.check.search.device.spans import adjoin
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REQUEST
from xccl_emu.machine.device import cache as machine_cache
from xccl_emu.machine.device import flight, touched
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.pipes import free_descriptor, pipe_of
from xccl_emu.machine.device.words import call, jit, load_i64


@call
def number_of(ck, core):
    """The number in the search of a core of the pod."""
    i = 0
    while clocks.core_of(ck, i) != core:
        i += 1
    return i


_NOTHING = (0, 0, 0, 0)


class Action(NamedTuple):
    """An action of a core: its request or instruction as it was, what that knows, and how it is taken."""

    i: int
    base: int
    block: int
    pipe: int
    entry: int
    op: int
    words: tuple[int, int, int, int]
    """Operation and first operands, by their places."""
    vector: int
    descriptor: int
    at_once: int
    signals: int


@jit
def _action(st, ck, i, what):
    """Return what is to be taken; its operation is -1 if there is nothing."""
    pipe, choice = what >> 16 & 255, what & ms.CHOICE_ALL
    base, block = flight.block_of_core(st, clocks.core_of(ck, i)), clocks.block_of(ck, i)
    entry = accesses.instruction_of(st, base, pipe, choice)
    op = st[entry] if entry >= 0 else -1
    # Not the request, which waits meanwhile
    if pipe == rq.SCALAR and choice >= ms.CHOICE_EVICT and choice != ms.CHOICE_ALL:
        return Action(i, base, block, pipe, entry, rq.OP_DCCI, _NOTHING, ck[block + cs.VECTORS], 0, what >> 24, 0)
    words = (op, st[entry + ops.FIRST], st[entry + ops.SECOND], st[entry + ops.THIRD]) if entry >= 0 else _NOTHING
    vector, descriptor = ck[block + cs.VECTORS], choice & 15
    if pipe == rq.DMA:
        vector = ck[block + cs.DMA_SNAPSHOTS + descriptor]
    elif pipe != rq.SCALAR:
        vector = clocks.vector_at(
            st, ck, block, base, pipe, 0 if choice == ms.CHOICE_ALL or pipe != rq.MTU_IN else choice & 15
        )
    elif ck[block + cs.FENCE_VECTOR] and (ops.SCALAR_WRITES >> op & 1 or op == rq.OP_DCCI):
        vector = clocks.joined(vector, ck[block + cs.FENCE_VECTOR])  # it was granted when mtu-out had passed the fence
    if pipe == rq.SCALAR and op == rq.OP_DMA:
        descriptor = free_descriptor(st, base)
    signals = st[entry + ops.PUT_SIGNAL.how] if pipe == rq.MTU_OUT and op == rq.OP_PUT_SIGNAL else 0
    return Action(i, base, block, pipe, entry, op, words, vector, descriptor, what >> 24, signals)


@linked
def execute_action(mem, st, ck, rows, named, i, what):
    """Take an action that was just looked at, if it is possible, and keep the checker state; the core must be touched.

    ``what`` is at_once << 24 | pipe << 16 | choice.
    """
    x = _action(st, ck, i, what)
    if x.op < 0:
        return 0
    base, pipe, op = x.base, x.pipe, x.op
    off, fences = pipe == rq.SCALAR and flight.switched_off(st, base), pipe == rq.MTU_OUT and op == rq.OP_FENCE
    event = st[x.entry + ops.DMA.event]
    top = ck[cs.LOG]
    ring, flying = _save_before(mem, st, ck, rows, x)
    line = (
        machine_cache.written_back(st, clocks.core_of(ck, i), base, what & ms.CHOICE_ALL)
        if pipe == rq.SCALAR and st[ms.CACHE_LINES]
        else -1
    )
    back = machine_cache.address_of(st, clocks.core_of(ck, i), line) if line >= 0 else -1
    if line >= 0:
        flying = _save_back(mem, st, ck, ring, back, x.at_once)
        op = rq.OP_DCCI  # in all that follows
    if fences:
        _save_fences(mem, st, ck, ring)
    stable = (
        rows[cs.ROWS_CLASS, 0] == granules.STABLE
        or rows[cs.ROWS_CLASS, 0] == granules.OWN
        or rows[cs.ROWS_CLASS, 0] == granules.FIELD
    )
    stable = stable and rows[cs.N_ROWS, 0] > 0 and rows[0, accesses.FLAGS] & accesses.WRITE != 0
    if stable:
        _keep_words(mem, rows)
    awaited = pipe != rq.SCALAR and pipe != rq.DMA and not ck[cs.LOCALLY] and _waits_for_place(st, base)
    done = step_machine(mem, st, ck, rows, named, clocks.core_of(ck, i), what)
    if st[ms.ERROR] != 0 and ck[cs.VIOLATION] == 0:
        ck[cs.VIOLATION] = cs.MACHINE
    if not done:
        return 0
    ck[cs.ACTIONS] += 1
    if pipe == rq.SCALAR and st[ms.CACHE_LINES]:
        _after_cached(st, ck, x, back)
    if flying >= 0:
        _note_flying(st, ck, ring, flying)
    if stable:
        _judge_stable(mem, ck, rows, i)
    _note_written(mem, st, ck, rows, i, op)
    _note_memory(st, ck, rows, x, awaited)
    if off and x.op == rq.OP_POLL and rows[cs.ROWS_CLASS, 0] > granules.OWN:
        ck[cs.GUIDED] |= 1 << i  # the row is of its result, which its kernel uses
    if rows[cs.ROWS_CLASS, 0] == granules.FIELD and x.op == rq.OP_POLL and rows[cs.N_ROWS, 0]:
        _polled_field(mem, st, ck, rows, x)
    if pipe == rq.SCALAR:
        if not off or ops.LOADS >> op & 1:
            _after_scalar(mem, st, ck, rows, named, x, op)
        if op == rq.OP_RETURN and not off:
            races.judge_return(mem, st, ck, i)
    else:
        _after_pipe(st, ck, rows, x, event)
    if fences:
        cs.add_hash(ck, cs.ring_hash(st, ring, 0))
    cs.hash_changes(mem, st, ck, top)
    return 1


@jit
def _waits_for_place(st, base):
    """Does a core's scalar unit wait for a place in a queue?

    (Waiting for a DMA descriptor orders nothing either, but any of them may be the one that stays in use.)
    """
    pipe = touched.queued_on(st[base + REQUEST], *touched.flag_of(st, base + REQUEST)[:2])
    runs = st[base + ms.STATUS] == ms.STATUS_RUNNING
    return runs and pipe != rq.SCALAR and st[pipe_of(base, pipe) + ms.PIPE_COUNT] == ms.QUEUE_DEPTH


@jit
def _event_of(x):
    """Return source, target and number of the event that a set_flag or wait_flag was about."""
    return x.words[ops.FLAG.source], x.words[ops.FLAG.target], x.words[ops.FLAG.event]


@jit
def _after_pipe(st, ck, rows, x, event):
    """Note what an instruction of a pipe, or a DMA, means for the order inside of its core."""
    block, pipe, op = x.block, x.pipe, x.op
    if op == rq.OP_SET_FLAG:
        ck[block + cs.VECTORS + pipe] = x.vector
        clocks.note_set(ck, block, *_event_of(x), x.vector)
        clocks.tick(ck, block, pipe)
    elif op == rq.OP_WAIT_FLAG:
        ck[block + cs.VECTORS + pipe] = x.vector
        clocks.note_wait(ck, block, *_event_of(x), pipe)
        inside.forget_awaited(st, ck, block, x.base)
    elif pipe == rq.MTU_OUT and op == rq.OP_FENCE:
        ck[block + cs.VECTORS + pipe] = ck[block + cs.FENCE_VECTOR] = x.vector
        clocks.tick(ck, block, pipe)
        races.age_marks(st, ck, block)
        inside.age_records(st, ck, block)
    elif pipe == rq.MTU_IN and accesses.is_of_flags(rows):
        if rows[cs.ROWS_CLASS, 0] == granules.SYNC:
            _learn(st, ck, x)
    elif pipe == rq.DMA and st[x.entry] == 0:
        clocks.note_set(ck, block, rq.DMA, rq.SCALAR, event, clocks.completion_of(ck, block, x.descriptor))


@jit
def _save_before(mem, st, ck, rows, x):
    """Log what the action will change outside of its core; returns the ring and how many writes are in it, or -1."""
    ring, flying = flight.block_of_die(st, st[x.base + ms.DIE]), -1
    for r in range(rows[cs.N_ROWS, 0]):
        if rows[r, accesses.FLAGS] & accesses.WRITE:
            in_buffer = rows[r, accesses.START] >= ck[cs.MEMORY_END]
            if in_buffer or x.at_once or st[ms.ORDER] == ms.ORDER_SC or ops.ATOMICS >> x.op & 1:
                cs.save_bytes(mem, st, ck, rows[r, accesses.START], rows[r, accesses.NBYTES])
                touch_readers(st, ck, rows[r, accesses.START], rows[r, accesses.NBYTES])
            else:
                flying = st[ring + ms.FLIGHT_COUNT]
                cs.save(mem, st, ck, cs.STATE | cs.RAW, ring, 2)
    if x.op == rq.OP_ARRIVE:
        cs.save(
            mem, st, ck, cs.STATE | cs.NOW, st[ms.GROUP_BASE] + st[x.base + ms.GROUP] * ms.GROUP_WORDS, ms.GROUP_WORDS
        )
    return ring, flying


@jit
def _save_back(mem, st, ck, ring, address, at_once):
    """Log what a write-back will change outside of its core; returns how many writes are in flight, or -1."""
    if at_once or st[ms.ORDER] == ms.ORDER_SC:
        cs.save_bytes(mem, st, ck, address, ms.CACHE_LINE_BYTES)
        touch_readers(st, ck, address, ms.CACHE_LINE_BYTES)
        return -1
    cs.save(mem, st, ck, cs.STATE | cs.RAW, ring, 2)
    return st[ring + ms.FLIGHT_COUNT]


@jit
def _after_cached(st, ck, x, back):
    """After an action of a scalar unit with a cache: others may go by what was written back; was there room?"""
    if back >= 0:
        clocks.close_reads(ck, x.block, x.vector)
        races.release_marks(st, ck, x.block, x.vector)
        if st[ms.N_LIVE] < st[ms.N_ACTIVE]:
            races.note_late(st, ck, x.i, back, ms.CACHE_LINE_BYTES)
    if machine_cache.n_cached(st, clocks.core_of(ck, x.i)) == st[ms.CACHE_LINES] and not ck[cs.RECORDING]:
        ck[cs.LIMIT] = cs.LIMIT_CACHE


@jit
def _save_fences(mem, st, ck, ring):
    """Log how many fences have followed each write in flight, and take all these writes out of the fingerprint."""
    cs.add_hash(ck, np.uint64(0) - cs.ring_hash(st, ring, 0))
    for k in range(st[ring + ms.FLIGHT_COUNT]):
        cs.save(mem, st, ck, cs.STATE | cs.RAW, flight.flight(st, ring, k) + ms.FLIGHT_FENCES, 1)


@jit
def _note_flying(st, ck, ring, before):
    """New writes are in flight; while a path is recorded some more are, which do not count.

    There must be room for another request of any kind: who waits for room would have to be woken by others' deliveries.
    """
    cs.add_hash(ck, cs.ring_hash(st, ring, before))
    # Writes that go into flight together
    most = max(1, (ms.CACHE_LINE_BYTES if st[ms.CACHE_LINES] else 8) >> st[ms.ATOMIC_SHIFT])
    if st[ring + ms.FLIGHT_COUNT] + most > st[ms.FLIGHT_CAPACITY] and not ck[cs.RECORDING]:
        ck[cs.LIMIT] = cs.LIMIT_FLIGHT


@jit
def _keep_words(mem, rows):
    """Remember what is in a stable granule before a write."""
    for w in range(4):
        rows[cs.ROWS_WORDS, w] = load_i64(mem, (rows[0, accesses.START] & ~31) + 8 * w)


@jit
def _judge_stable(mem, ck, rows, i):
    """Check what was assumed of a stable granule: the words that are polled do not fall."""
    start, nbytes, grows = rows[0, accesses.START], rows[0, accesses.NBYTES], rows[cs.ROWS_CLASS, 0] != granules.STABLE
    uses = ck[granules.granule_of(ck, start) + granules.USES]
    for w in range(4):
        now = load_i64(mem, (start & ~31) + 8 * w)
        if uses & granules.USE_POLL << w and (
            now < rows[cs.ROWS_WORDS, w] or (grows and now == rows[cs.ROWS_WORDS, w])
        ):
            granules.touch(ck, i, start, nbytes, granules.USE_UNSTABLE)


@jit
def _note_written(mem, st, ck, rows, i, op):
    """Note what was written, and judge whether what was read had been: memory and data buffer, byte by byte."""
    adds_up, padded = ops.ACCUMULATES >> op & 1, False
    for r in range(rows[cs.N_ROWS, 0]):
        start, nbytes, flags = rows[r, accesses.START], rows[r, accesses.NBYTES], rows[r, accesses.FLAGS]
        missing = -1
        if not flags & (accesses.WRITE | accesses.SYNC) or (adds_up and flags & accesses.WRITE):
            missing = granules.never_written(ck, start, nbytes)
            if missing >= 0 and r == 0 and accesses.carries(rows, op):
                padded, missing = True, padding.in_the_way(ck, rows)
        elif not flags & accesses.TENTATIVE:
            apart = start - rows[0, accesses.START] if padded else 0
            missing = padding.met(st, ck, start, nbytes, apart, flags & accesses.SYNC)
        if flags & accesses.WRITE:
            if padded:
                missing = max(missing, padding.mark_copied(mem, st, ck, rows))
            else:
                granules.mark_written(mem, st, ck, start, nbytes)
            if st[ms.N_LIVE] < st[ms.N_ACTIVE]:
                races.note_late(st, ck, i, start, nbytes)
        if missing >= 0 and ck[cs.VIOLATION] == 0:
            blame(ck, rows, i, r, missing)


@jit
def _note_memory(st, ck, rows, x, awaited):
    """Judge and note the accesses that were made; ``awaited``: while the scalar unit waited for a place in a queue."""
    worst, block, pipe, vector = rows[cs.ROWS_CLASS, 0], x.block, x.pipe, x.vector
    for r in range(rows[cs.N_ROWS, 0]):
        start, nbytes, flags, site = (
            rows[r, accesses.START],
            rows[r, accesses.NBYTES],
            rows[r, accesses.FLAGS],
            rows[r, accesses.SITE],
        )
        memory, writes, syncs = start < ck[cs.MEMORY_END], flags & accesses.WRITE != 0, flags & accesses.SYNC != 0
        if memory and worst == granules.OWN and syncs:
            inside.note_visible(st, ck, block, start)
        elif pipe != rq.DMA and (not memory or worst <= granules.DATA):
            what = rows[r, accesses.AGENT] | (inside.WRITES if writes else 0) | (inside.IN_MEMORY if memory else 0)
            what |= (inside.ALONE if memory and worst == granules.OWN else 0) | (inside.ADDS if writes and syncs else 0)
            what |= inside.IN_ROW if writes and syncs and not flags & accesses.WHOLE else 0
            inside.note_access(st, ck, x.i, start, nbytes, what, vector, site)
        if not memory:
            continue
        if worst > granules.DATA or (awaited and worst > granules.OWN):
            what = rows[r, accesses.AGENT] | (inside.WRITES if writes else 0)
            inside.note_explored(st, ck, x.i, start, nbytes, what, vector, awaited)
        if ck[cs.GUIDED] >> x.i & 1 and worst > granules.OWN and not syncs:
            # Ordered by what that poll has seen, but not synchronized: so no state has both open
            ck[cs.DOUBT] = cs.LIMIT_GUIDED
        if not writes:
            early = pipe == rq.SCALAR or (pipe == rq.MTU_IN and ck[cs.LOCALLY])
            if worst > granules.OWN and ck[cs.FULL] and not syncs and early:
                clocks.note_read(ck, block, start, nbytes, pipe, site)
            continue
        if worst >= granules.STABLE:
            clocks.close_reads(ck, block, vector)
            if not st[ms.CACHE_LINES] or pipe != rq.SCALAR or syncs:  # a store is in the cache alone
                races.release_marks(st, ck, block, vector)
            if pipe == rq.SCALAR and syncs:
                races.release_before(st, ck, block, start, 0)
        if pipe == rq.SCALAR and syncs:
            # An atomic has waited for what is before its fence
            inside.land_before(st, ck, block, start, 0, inside.VISIBLE)
        if (
            (worst == granules.DATA or worst == granules.FIELD)
            and pipe != rq.DMA
            and (x.at_once or (ck[cs.FULL] and st[ms.ORDER] == ms.ORDER_SC))
        ):
            who = races.mark_of(st, rows[r, accesses.AGENT], site, vector)
            who = races.released_by_next(st, x.base, clocks.core_of(ck, x.i), start, who) if x.signals else who
            races.see_released_before(st, ck, block, start, nbytes, who)
            _mark(st, ck, block, start, start + nbytes, who)
        if worst == granules.SYNC and pipe == rq.MTU_OUT and ck[cs.JOINING]:
            # An addition is one in flight, over two units too
            units = 1 if flags & (accesses.SYNC | accesses.WHOLE) else nbytes
            _note_flag(st, ck, block, start, units, clocks.joined(vector, ck[block + cs.VECTORS + rq.MTU_OUT]))
            clocks.tick(ck, block, rq.MTU_OUT)


@jit
def _polled_field(mem, st, ck, rows, x):
    """A poll of a field was granted: end the marks of the write that its core now knows of."""
    address = x.words[ops.POLL.address]
    writer = fields.writer_seen(mem, ck, address, x.words[ops.POLL.value])
    if writer >= 0 and fields.any_mark(ck, clocks.block_of(ck, writer), address):
        fields.see_read(ck, x.i, address & ~31, (address | 31) + 1)  # before it knew: of that no state shows the mark
        touch_core(st, ck, writer)
        fields.end_marks(ck, clocks.block_of(ck, writer), address)
    fields.note_poll(st, ck, x.i, address, x.words[ops.POLL.compare], rows[0, accesses.SITE])


@call
def blame(ck, rows, i, r, first):
    """A read of bytes that nobody has written, from ``first`` on; or a write by which such bytes are used."""
    w = cs.WITNESS
    for k in range(12):
        ck[w + k] = 0
    ck[w], ck[w + 1], ck[w + 2] = clocks.core_of(ck, i), rows[r, accesses.SITE], rows[r, accesses.AGENT]
    ck[w + 3], ck[w + 4] = first, max(1, rows[r, accesses.START] + rows[r, accesses.NBYTES] - first)
    ck[w + 5], ck[w + 6] = rows[r, accesses.FLAGS] & accesses.WRITE, -1
    cs.accuse(ck, cs.UNWRITTEN, cs.WORDS_OF_READ)


@jit
def _mark(st, ck, block, start, end, who):
    """A write of shared data counts as under way until the quiet of its core, or under `sc` until a release."""
    for n in range(ck[block + cs.N_MARKS]):
        at = block + cs.MARKS + n * cs.MARK_WORDS
        if ck[at + 2] == who and adjoin(st, ck, start, end, ck[at], ck[at + 1]):
            ck[at], ck[at + 1] = min(ck[at], start), max(ck[at + 1], end)
            return
    n = ck[block + cs.N_MARKS]
    if n == cs.MARKS_MAX:
        if not fields.explore_marked(ck, block):
            ck[cs.LIMIT] = cs.LIMIT_MARKS
        return
    at = block + cs.MARKS + n * cs.MARK_WORDS
    ck[at], ck[at + 1], ck[at + 2] = start, end, who
    ck[block + cs.N_MARKS] = n + 1


@jit
def _after_scalar(mem, st, ck, rows, named, x, op):
    """Note what the scalar unit's request means for the order inside of its core."""
    base, block, event = x.base, x.block, _event_of(x)
    pipe = touched.queued_on(op, event[0], event[1])
    if pipe != rq.SCALAR:
        clocks.note_issue(st, ck, block, base, pipe)
    elif op == rq.OP_DMA:
        _after_ring(mem, st, ck, rows, named, x)
    elif op == rq.OP_SET_FLAG:
        clocks.note_set(ck, block, *event, ck[block + cs.VECTORS])
        clocks.tick(ck, block, rq.SCALAR)
    elif op == rq.OP_WAIT_FLAG:
        clocks.note_wait(ck, block, *event, rq.SCALAR)
        inside.forget_awaited(st, ck, block, base)
    elif ops.DRAINS >> op & 1:
        clocks.forget_all(ck, block)
        for k in range(ck[block + cs.N_MARKS] * cs.MARK_WORDS):
            ck[block + cs.MARKS + k] = 0
        ck[block + cs.N_MARKS] = 0
    elif ops.BARRIERS >> op & 1:
        if ck[block + cs.ARRIVED] != (op == rq.OP_AWAIT_GROUP):
            ck[cs.LIMIT] = cs.LIMIT_BARRIER
        ck[block + cs.ARRIVED] = 1 if op == rq.OP_ARRIVE else 0
        if op == rq.OP_ARRIVE:
            races.release_marks(st, ck, block, ck[block + cs.VECTORS])
            inside.note_explored(st, ck, x.i, 0, 0, rq.SCALAR | inside.WRITES, ck[block + cs.VECTORS], False)
    if (ops.ATOMICS >> op & 1 or (ops.STORES >> op & 1 and not st[ms.CACHE_LINES])) and ck[block + cs.FENCE_VECTOR]:
        # All fences before it are passed
        ck[block + cs.VECTORS] = clocks.joined(ck[block + cs.VECTORS], ck[block + cs.FENCE_VECTOR])
    reads = (
        (ops.WORDS | ops.POLLS) >> op & 1
        and rows[cs.N_ROWS, 0]
        and rows[0, accesses.FLAGS] & accesses.SYNC
        and rows[cs.ROWS_CLASS, 0] == granules.SYNC
    )
    if reads or op == rq.OP_AWAIT_GROUP:  # who arrived may have seen a flag of this core
        _learn(st, ck, x)
    if ck[cs.JOINING] and op == rq.OP_WAIT_FLAG and event[0] == rq.DMA and st[ms.ORDER] == ms.ORDER_FIFO:
        inside.note_landed(st, ck, x.i)  # what DMA has written is visible, and what was before it on its way


@jit
def _learn(st, ck, x):
    """A pipe, the scalar unit or mtu-in, has seen what others answered."""
    if ck[cs.JOINING]:
        at = x.block + cs.VECTORS + x.pipe
        ck[at] = clocks.joined(ck[at], ck[x.block + cs.SHARED_VECTOR])
        if st[ms.ORDER] == ms.ORDER_FIFO or granules.all_in_flight(st, ck):
            inside.note_landed(st, ck, x.i)
        inside.learn_landed(ck, x.block)


@jit
def _note_flag(st, ck, block, start, nbytes, vector):
    """Mtu-out has written a flag: to see it makes known what was known then, of each granule by itself."""
    if st[ms.ORDER] == ms.ORDER_SC:
        ck[block + cs.SHARED_VECTOR] = clocks.joined(ck[block + cs.SHARED_VECTOR], vector)
        return
    for _ in range(start >> st[ms.ATOMIC_SHIFT], (start + nbytes - 1 >> st[ms.ATOMIC_SHIFT]) + 1 if nbytes else 0):
        n = ck[block + cs.N_FLYING]
        if n == cs.FLYING_MAX:
            ck[cs.LIMIT] = cs.LIMIT_MARKS
            return
        ck[block + cs.FLYING + n], ck[block + cs.N_FLYING] = vector, n + 1


@call
def flag_landed(mem, st, ck, i, die, k):
    """The k-th write in flight of a die, by the core with number ``i``, is about to become visible."""
    ring, block = flight.block_of_die(st, die), clocks.block_of(ck, i)
    if not _is_flag_by_out(st, ck, flight.flight(st, ring, k), clocks.core_of(ck, i)):
        return
    if not ck[cs.TOUCHED] >> i & 1:
        cs.save(mem, st, ck, cs.CHECKER | cs.NOW, block + cs.SHARED_VECTOR, 1)
        cs.save(mem, st, ck, cs.CHECKER | cs.NOW, block + cs.N_FLYING, 1)
        cs.save(mem, st, ck, cs.CHECKER | cs.NOW, block + cs.FLYING, cs.FLYING_MAX)
    n = 0
    for j in range(k):
        n += 1 if _is_flag_by_out(st, ck, flight.flight(st, ring, j), clocks.core_of(ck, i)) else 0
    ck[block + cs.SHARED_VECTOR] = clocks.joined(ck[block + cs.SHARED_VECTOR], ck[block + cs.FLYING + n])
    for j in range(n, ck[block + cs.N_FLYING]):
        ck[block + cs.FLYING + j] = ck[block + cs.FLYING + j + 1] if j + 1 < ck[block + cs.N_FLYING] else 0
    ck[block + cs.N_FLYING] -= 1


@jit
def _is_flag_by_out(st, ck, entry, core):
    """Return whether a write in flight is one of a core's mtu-out to a flag."""
    kind = st[entry + ms.FLIGHT_KIND]
    if st[entry + ms.FLIGHT_CORE] != core or kind == ms.KIND_SCALAR or kind >= ms.KIND_DMA:
        return False
    return granules.worst_class(ck, st[entry + ms.FLIGHT_ADDRESS], st[entry + ms.FLIGHT_NBYTES]) == granules.SYNC


@jit
def _after_ring(mem, st, ck, rows, named, x):
    """A DMA transfer may be made at any moment from now on until its completion is known.

    It is looked at before it is judged: what it does to its granules may be new.
    """
    classify(mem, st, ck, rows, named, x.i, rq.DMA << 16 | accesses.WHOLE_TRANSFER | x.descriptor)
    site, agent = (
        st[x.base + ms.DMA_SLOTS + x.descriptor * ms.ENTRY_WORDS + ms.ENTRY_SITE],
        accesses.AGENT_DMA + x.descriptor,
    )
    inside.note_ring(st, ck, x.block, x.base, x.descriptor)
    agent |= inside.IN_MEMORY
    source, target, nbytes = x.words[ops.DMA.source], x.words[ops.DMA.target], x.words[ops.DMA.nbytes]
    inside.note_access(st, ck, x.i, source, nbytes, agent, ck[x.block + cs.VECTORS], site)
    inside.note_access(st, ck, x.i, target, nbytes, agent | inside.WRITES, ck[x.block + cs.VECTORS], site)
    clocks.tick(ck, x.block, rq.SCALAR)
