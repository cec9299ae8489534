"""Moves of a search: an action of the machine with all that the checker keeps beside it.

A *transition* is an action on memory that several cores use.  What is local to a core (its kernel between two such
actions, its data buffer, its flags, memory that it alone uses) is done at once after it (`run_local`): it commutes with
everything that others can do meanwhile and nothing that others do can prevent it, so any run is equivalent to one in
which it comes first (a persistent set of one action).  That it really is local is checked: by `clocks` and `inside`
within a core, by `granules` between cores.
"""

from typing import NamedTuple

import numpy as np

from xccl_emu.check.device.accesses import AGENT, AGENT_DMA, FLAGS, NBYTES, SITE, START, WHOLE, WRITE, instruction_of
from xccl_emu.check.device.accesses import SYNC as SYNC_ACCESS
from xccl_emu.check.device.search import fields
from xccl_emu.check.device.search.checker_state import (
    ACTIONS,
    ARRIVED,
    BLOCK,
    CHECKER,
    CORE_WORDS,
    CORES,
    DMA_SNAPSHOTS,
    FENCE_VECTOR,
    FLYING,
    FLYING_MAX,
    FULL,
    JOINING,
    KEPT,
    LIMIT,
    LIMIT_BARRIER,
    LIMIT_CACHE,
    LIMIT_FLIGHT,
    LIMIT_LOG,
    LIMIT_MARKS,
    LOCALLY,
    LOG,
    LOG_END,
    MACHINE,
    MARK_WORDS,
    MARKS,
    MARKS_MAX,
    MEMORY_END,
    N_FLYING,
    N_MARKS,
    N_ROWS,
    NOW,
    RAW,
    RECORDING,
    ROWS_CLASS,
    ROWS_WORDS,
    SHARED_VECTOR,
    STATE,
    TOUCHED,
    UNWRITTEN,
    VECTORS,
    VIOLATION,
    WITNESS,
    WORDS_OF_READ,
    accuse,
    add_hash,
    hash_changes,
    log_changed,
    ring_hash,
    save,
    save_bytes,
)
from xccl_emu.check.device.search.clocks import (
    block_of,
    close_reads,
    completion_of,
    core_of,
    forget_all,
    joined,
    note_issue,
    note_read,
    note_set,
    note_wait,
    tick,
    vector_at,
)
from xccl_emu.check.device.search.granules import (
    DATA,
    FIELD,
    OWN,
    STABLE,
    SYNC,
    USE_POLL,
    USE_UNSTABLE,
    USES,
    all_in_flight,
    granule_of,
    mark_written,
    never_written,
    touch,
    worst_class,
)
from xccl_emu.check.device.search.inside import (
    ADDS,
    ALONE,
    IN_MEMORY,
    VISIBLE,
    WRITES,
    age_records,
    land_before,
    learn_landed,
    note_access,
    note_landed,
    note_ring,
    note_visible,
)
from xccl_emu.check.device.search.linked import linked
from xccl_emu.check.device.search.races import (
    age_marks,
    judge_return,
    mark_of,
    note_late,
    release_before,
    release_marks,
    see_told_before,
    told_by_next,
)
from xccl_emu.check.device.search.record import step_machine
from xccl_emu.check.device.search.spans import adjoin
from xccl_emu.lang.abi import REGISTERS
from xccl_emu.lang.requests import (
    DMA,
    MTU_IN,
    MTU_OUT,
    OP_ARRIVE,
    OP_ATOMIC_ADD,
    OP_AWAIT_GROUP,
    OP_DCCI,
    OP_DMA,
    OP_FENCE,
    OP_LOAD,
    OP_MTU_IN,
    OP_MTU_OUT,
    OP_POLL,
    OP_POLL_ANY,
    OP_QUIET,
    OP_RETURN,
    OP_SET_FLAG,
    OP_STORE,
    OP_V_ADD,
    OP_V_AXPY,
    OP_V_QUANTIZE,
    OP_V_SCALE,
    OP_WAIT_FLAG,
    SCALAR,
    VECTOR,
)
from xccl_emu.machine.device.cache import address_of, n_cached, place_of, written_back
from xccl_emu.machine.device.flight import block_of_core, block_of_die, flight, switched_off
from xccl_emu.machine.device.layout import (
    ATOMIC_SHIFT,
    CACHE_LINE_BYTES,
    CACHE_LINES,
    CACHE_WORDS,
    CHOICE_ALL,
    CHOICE_EVICT,
    DIE,
    DMA_SLOTS,
    ENTRY_SITE,
    ENTRY_WORDS,
    ERROR,
    FLIGHT_ADDRESS,
    FLIGHT_CAPACITY,
    FLIGHT_CORE,
    FLIGHT_COUNT,
    FLIGHT_FENCES,
    FLIGHT_KIND,
    FLIGHT_NBYTES,
    GROUP,
    GROUP_BASE,
    GROUP_WORDS,
    KIND_DMA,
    KIND_SCALAR,
    N_ACTIVE,
    N_LIVE,
    ORDER,
    ORDER_FIFO,
    ORDER_SC,
    WINDOWS,
)
from xccl_emu.machine.device.layout import CORE_WORDS as WORDS_OF_CORE
from xccl_emu.machine.device.pipes import free_descriptor
from xccl_emu.machine.device.words import call, copy_words, jit, load_i64


@call
def number_of(ck, core):
    """The number in the search of a core of the pod."""
    i = 0
    while core_of(ck, i) != core:
        i += 1
    return i


# ---- what a transition changes of cores


@jit
def _places(st, ck, i):
    """Of a core: its words in the state, its registers there, how many these are, its block, and where it is kept."""
    base = block_of_core(st, core_of(ck, i))
    kept = ck[KEPT] + i * (st[WORDS_OF_CORE] + BLOCK + st[CACHE_WORDS])
    return base, base + REGISTERS, ck[ck[CORES] + i * CORE_WORDS + 1], block_of(ck, i), kept


@jit
def _cache_of(st, ck, i):
    """Where the lines that a core has cached begin; `CACHE_WORDS` of them, none without a cache."""
    return place_of(st, core_of(ck, i), 0)


@call
def touch_core(st, ck, i):
    """Keep all words of a core as they are, once a transition, before any of them changes."""
    if ck[TOUCHED] >> i & 1:
        return
    ck[TOUCHED] |= 1 << i
    base, registers, n, block, kept = _places(st, ck, i)
    copy_words(ck, kept, st, base, WINDOWS)
    copy_words(ck, kept + WINDOWS, ck, block, BLOCK)
    copy_words(ck, kept + WINDOWS + BLOCK, st, registers, n)
    copy_words(ck, kept + WINDOWS + BLOCK + n, st, _cache_of(st, ck, i), st[CACHE_WORDS])


@call
def put_back(st, ck):
    """Put back all cores that were touched."""
    i = 0
    while ck[TOUCHED] >> i:
        if ck[TOUCHED] >> i & 1:
            base, registers, n, block, kept = _places(st, ck, i)
            copy_words(st, base, ck, kept, WINDOWS)
            copy_words(ck, block, ck, kept + WINDOWS, BLOCK)
            copy_words(st, registers, ck, kept + WINDOWS + BLOCK, n)
            copy_words(st, _cache_of(st, ck, i), ck, kept + WINDOWS + BLOCK + n, st[CACHE_WORDS])
        i += 1


@call
def log_touched(st, ck):
    """Log what has changed of the cores that were touched, and bring the fingerprint up to date with it."""
    i = 0
    while ck[TOUCHED] >> i:
        if ck[TOUCHED] >> i & 1:
            base, registers, n, block, kept = _places(st, ck, i)
            if ck[LOG] + 3 * (WINDOWS + BLOCK + n + st[CACHE_WORDS]) > ck[LOG_END]:
                ck[LIMIT] = LIMIT_LOG
                return
            change = log_changed(ck, st, base, kept, WINDOWS, STATE)
            change += log_changed(ck, ck, block, kept + WINDOWS, BLOCK, CHECKER)
            change += log_changed(ck, st, registers, kept + WINDOWS + BLOCK, n, STATE)
            cache = kept + WINDOWS + BLOCK + n
            add_hash(ck, change + log_changed(ck, st, _cache_of(st, ck, i), cache, st[CACHE_WORDS], STATE))
        i += 1


class Action(NamedTuple):
    """An action of a core: its request or instruction as it was, what that knows, and how it is taken."""

    i: int
    base: int
    block: int
    pipe: int
    entry: int
    op: int
    a: int
    b: int
    c: int
    vector: int
    descriptor: int
    at_once: int
    signals: int


@jit
def _action(st, ck, i, what):
    """What is to be taken; its operation is -1 if there is nothing."""
    pipe, choice = what >> 16 & 255, what & CHOICE_ALL
    base, block = block_of_core(st, core_of(ck, i)), block_of(ck, i)
    entry = instruction_of(st, base, pipe, choice)
    op = st[entry] if entry >= 0 else -1
    if pipe == SCALAR and choice >= CHOICE_EVICT and choice != CHOICE_ALL:  # not the request, which waits meanwhile
        return Action(i, base, block, pipe, entry, OP_DCCI, 0, 0, 0, ck[block + VECTORS], 0, what >> 24, 0)
    a, b, c = (st[entry + 1], st[entry + 2], st[entry + 3]) if entry >= 0 else (0, 0, 0)
    vector, descriptor = ck[block + VECTORS], choice & 15
    if pipe == DMA:
        vector = ck[block + DMA_SNAPSHOTS + descriptor]
    elif pipe != SCALAR:
        vector = vector_at(st, ck, block, base, pipe, 0 if choice == CHOICE_ALL or pipe != MTU_IN else choice & 15)
    elif ck[block + FENCE_VECTOR] and (op == OP_STORE or op == OP_ATOMIC_ADD or op == OP_DCCI):
        vector = joined(vector, ck[block + FENCE_VECTOR])  # it was granted when mtu-out had passed the fence
    if pipe == SCALAR and op == OP_DMA:
        descriptor = free_descriptor(st, base)
    signals = st[entry + 6] if pipe == MTU_OUT and op == OP_MTU_OUT else 0
    return Action(i, base, block, pipe, entry, op, a, b, c, vector, descriptor, what >> 24, signals)


@linked
def execute_action(mem, st, ck, rows, named, i, what):
    """Take an action that was just looked at, if it is possible, and keep the checker state; the core must be touched.

    ``what`` is at_once << 24 | pipe << 16 | choice.
    """
    x = _action(st, ck, i, what)
    if x.op < 0:
        return 0
    base, block, pipe, vector, op = x.base, x.block, x.pipe, x.vector, x.op
    off, fences = pipe == SCALAR and op != OP_RETURN and switched_off(st, base), pipe == MTU_OUT and op == OP_FENCE
    event = st[x.entry + 4]
    top = ck[LOG]
    ring, flying = _save_before(mem, st, ck, rows, x)
    line = written_back(st, core_of(ck, i), base, what & CHOICE_ALL) if pipe == SCALAR and st[CACHE_LINES] else -1
    back = address_of(st, core_of(ck, i), line) if line >= 0 else -1
    if line >= 0:
        flying = _save_back(mem, st, ck, ring, back, x.at_once)
        op = OP_DCCI  # in all that follows
    if fences:
        _save_fences(mem, st, ck, ring)
    stable = rows[ROWS_CLASS, 0] == STABLE or rows[ROWS_CLASS, 0] == OWN or rows[ROWS_CLASS, 0] == FIELD
    stable = stable and rows[N_ROWS, 0] > 0 and rows[0, FLAGS] & WRITE != 0
    if stable:
        _keep_words(mem, rows)
    done = step_machine(mem, st, ck, rows, named, core_of(ck, i), what)
    if st[ERROR] != 0 and ck[VIOLATION] == 0:
        ck[VIOLATION] = MACHINE
    if not done:
        return 0
    ck[ACTIONS] += 1
    if pipe == SCALAR and st[CACHE_LINES]:
        _after_cached(st, ck, x, back)
    if flying >= 0:
        _flew(st, ck, ring, flying)
    if stable:
        _judge_stable(mem, ck, rows, i)
    _note_written(mem, st, ck, rows, i, op)
    _note_memory(st, ck, rows, x)
    if rows[ROWS_CLASS, 0] == FIELD and x.op == OP_POLL and rows[N_ROWS, 0]:
        _polled_field(mem, st, ck, rows, x)
    if pipe == SCALAR:
        if not off or op == OP_LOAD:
            _after_scalar(st, ck, rows, x, op)
        if op == OP_RETURN and not off:
            judge_return(mem, st, ck, i)
    elif op == OP_SET_FLAG:
        ck[block + VECTORS + pipe] = vector
        note_set(ck, block, x.a, x.b, x.c, vector)
        tick(ck, block, pipe)
    elif op == OP_WAIT_FLAG:
        ck[block + VECTORS + pipe] = vector
        note_wait(ck, block, x.a, x.b, x.c, pipe)
    elif fences:
        ck[block + VECTORS + pipe] = ck[block + FENCE_VECTOR] = vector
        tick(ck, block, pipe)
        age_marks(st, ck, block)
        age_records(st, ck, block)
        add_hash(ck, ring_hash(st, ring, 0))
    elif pipe == DMA and st[x.entry] == 0:
        note_set(ck, block, DMA, SCALAR, event, completion_of(ck, block, x.descriptor))
    hash_changes(mem, st, ck, top)
    return 1


@jit
def _save_before(mem, st, ck, rows, x):
    """Log what the action will change outside of its core; returns the ring and how many writes are in it, or -1."""
    ring, flying = block_of_die(st, st[x.base + DIE]), -1
    for r in range(rows[N_ROWS, 0]):
        if rows[r, FLAGS] & WRITE:
            in_buffer = rows[r, START] >= ck[MEMORY_END]
            if in_buffer or x.at_once or st[ORDER] == ORDER_SC or x.op == OP_ATOMIC_ADD:
                save_bytes(mem, st, ck, rows[r, START], rows[r, NBYTES])
            else:
                flying = st[ring + FLIGHT_COUNT]
                save(mem, st, ck, STATE | RAW, ring, 2)
    if x.op == OP_ARRIVE:
        save(mem, st, ck, STATE | NOW, st[GROUP_BASE] + st[x.base + GROUP] * GROUP_WORDS, GROUP_WORDS)
    return ring, flying


@jit
def _save_back(mem, st, ck, ring, address, at_once):
    """Log what a write-back will change outside of its core; returns how many writes are in flight, or -1."""
    if at_once or st[ORDER] == ORDER_SC:
        save_bytes(mem, st, ck, address, CACHE_LINE_BYTES)
        return -1
    save(mem, st, ck, STATE | RAW, ring, 2)
    return st[ring + FLIGHT_COUNT]


@jit
def _after_cached(st, ck, x, back):
    """After an action of a scalar unit with a cache: others may go by what was written back; was there room?"""
    if back >= 0:
        close_reads(ck, x.block, x.vector)
        release_marks(st, ck, x.block, x.vector)
        if st[N_LIVE] < st[N_ACTIVE]:
            note_late(st, ck, x.i, back, CACHE_LINE_BYTES)
    if n_cached(st, core_of(ck, x.i)) == st[CACHE_LINES] and not ck[RECORDING]:
        ck[LIMIT] = LIMIT_CACHE


@jit
def _save_fences(mem, st, ck, ring):
    """Log how many fences stand behind each write in flight, and take all these writes out of the fingerprint."""
    add_hash(ck, np.uint64(0) - ring_hash(st, ring, 0))
    for k in range(st[ring + FLIGHT_COUNT]):
        save(mem, st, ck, STATE | RAW, flight(st, ring, k) + FLIGHT_FENCES, 1)


@jit
def _flew(st, ck, ring, before):
    """New writes are in flight; while a path is recorded some more are, which do not count.

    There must be room for another request of any kind: who waits for room would have to be woken by others' deliveries.
    """
    add_hash(ck, ring_hash(st, ring, before))
    most = max(1, (CACHE_LINE_BYTES if st[CACHE_LINES] else 8) >> st[ATOMIC_SHIFT])  # that go into flight together
    if st[ring + FLIGHT_COUNT] + most > st[FLIGHT_CAPACITY] and not ck[RECORDING]:
        ck[LIMIT] = LIMIT_FLIGHT


@jit
def _keep_words(mem, rows):
    """Remember what stands in a stable granule before a write."""
    for w in range(4):
        rows[ROWS_WORDS, w] = load_i64(mem, (rows[0, START] & ~31) + 8 * w)


@jit
def _judge_stable(mem, ck, rows, i):
    """Check what was assumed of a stable granule: the words that are polled do not fall."""
    start, nbytes, grows = rows[0, START], rows[0, NBYTES], rows[ROWS_CLASS, 0] != STABLE
    uses = ck[granule_of(ck, start) + USES]
    for w in range(4):
        now = load_i64(mem, (start & ~31) + 8 * w)
        if uses & USE_POLL << w and (now < rows[ROWS_WORDS, w] or (grows and now == rows[ROWS_WORDS, w])):
            touch(ck, i, start, nbytes, USE_UNSTABLE)


@jit
def _note_written(mem, st, ck, rows, i, op):
    """Note what was written, and judge whether what was read had been: memory and data buffer, byte by byte."""
    adds_up = op == OP_V_AXPY or op == OP_V_ADD or op == OP_V_SCALE  # these read what they write to
    for r in range(rows[N_ROWS, 0]):
        start, nbytes, flags = rows[r, START], rows[r, NBYTES], rows[r, FLAGS]
        if not flags & (WRITE | SYNC_ACCESS) or (adds_up and flags & WRITE):
            missing = never_written(ck, start, nbytes)
            if missing >= 0 and ck[VIOLATION] == 0:
                _blame(ck, rows, i, r, missing)
        if flags & WRITE:
            mark_written(mem, st, ck, start, nbytes)
            if st[N_LIVE] < st[N_ACTIVE]:
                note_late(st, ck, i, start, nbytes)


@jit
def _note_memory(st, ck, rows, x):
    """Judge and note the accesses that were made."""
    worst, block, pipe, vector = rows[ROWS_CLASS, 0], x.block, x.pipe, x.vector
    for r in range(rows[N_ROWS, 0]):
        start, nbytes, flags, site = rows[r, START], rows[r, NBYTES], rows[r, FLAGS], rows[r, SITE]
        memory, writes, syncs = start < ck[MEMORY_END], flags & WRITE != 0, flags & SYNC_ACCESS != 0
        if memory and worst == OWN and syncs:
            note_visible(st, ck, block, start)
        elif pipe != DMA and (not memory or worst <= DATA):
            what = rows[r, AGENT] | (WRITES if writes else 0) | (IN_MEMORY if memory else 0)
            what |= (ALONE if memory and worst == OWN else 0) | (ADDS if writes and syncs else 0)
            note_access(st, ck, x.i, start, nbytes, what, vector, site)
        if not memory:
            continue
        if not writes:
            if worst > OWN and ck[FULL] and not syncs and (pipe == SCALAR or (pipe == MTU_IN and ck[LOCALLY])):
                note_read(ck, block, start, nbytes, pipe, site)
            continue
        if worst >= STABLE:
            close_reads(ck, block, vector)
            if not st[CACHE_LINES] or pipe != SCALAR or syncs:  # a store is in the cache alone
                release_marks(st, ck, block, vector)
            if pipe == SCALAR and syncs:
                release_before(st, ck, block, start, 0)
        if pipe == SCALAR and syncs:
            land_before(st, ck, block, start, 0, VISIBLE)  # an atomic has waited for what is before its fence
        if (worst == DATA or worst == FIELD) and pipe != DMA and (x.at_once or (ck[FULL] and st[ORDER] == ORDER_SC)):
            who = mark_of(st, rows[r, AGENT], site, vector)
            who = told_by_next(st, x.base, core_of(ck, x.i), start, who) if x.signals else who
            see_told_before(st, ck, block, start, nbytes, who)
            _mark(st, ck, block, start, start + nbytes, who)
        if worst == SYNC and pipe == MTU_OUT and ck[JOINING]:
            units = 1 if flags & (SYNC_ACCESS | WHOLE) else nbytes  # an addition is one in flight, over two units too
            _note_flag(st, ck, block, start, units, joined(vector, ck[block + VECTORS + MTU_OUT]))
            tick(ck, block, MTU_OUT)


@jit
def _polled_field(mem, st, ck, rows, x):
    """A poll of a field was granted: end the marks of the write that its core now knows of."""
    writer = fields.told_of(mem, ck, x.a, x.c)
    if writer >= 0 and fields.any_mark(ck, block_of(ck, writer), x.a):
        fields.see_read(ck, x.i, x.a & ~31, (x.a | 31) + 1)  # before it knew: of that no state shows the mark
        touch_core(st, ck, writer)
        fields.end_marks(ck, block_of(ck, writer), x.a)
    fields.note_poll(ck, x.i, x.a, x.b, rows[0, SITE])


@jit
def _blame(ck, rows, i, r, first):
    """A read of bytes that nobody has written, from ``first`` on."""
    w = WITNESS
    for k in range(12):
        ck[w + k] = 0
    ck[w], ck[w + 1], ck[w + 2] = core_of(ck, i), rows[r, SITE], rows[r, AGENT]
    ck[w + 3], ck[w + 4], ck[w + 5] = first, rows[r, START] + rows[r, NBYTES] - first, 0
    ck[w + 6] = -1
    accuse(ck, UNWRITTEN, WORDS_OF_READ)


@jit
def _mark(st, ck, block, start, end, who):
    """A write of shared data counts as under way until the quiet of its core, or under `sc` until a release."""
    for n in range(ck[block + N_MARKS]):
        at = block + MARKS + n * MARK_WORDS
        if ck[at + 2] == who and adjoin(st, ck, start, end, ck[at], ck[at + 1]):
            ck[at], ck[at + 1] = min(ck[at], start), max(ck[at + 1], end)
            return
    n = ck[block + N_MARKS]
    if n == MARKS_MAX:
        if not fields.explore_marked(ck, block):
            ck[LIMIT] = LIMIT_MARKS
        return
    at = block + MARKS + n * MARK_WORDS
    ck[at], ck[at + 1], ck[at + 2] = start, end, who
    ck[block + N_MARKS] = n + 1


@jit
def _after_scalar(st, ck, rows, x, op):
    """What the scalar unit's request means for the order inside of its core."""
    base, block, a, b, c = x.base, x.block, x.a, x.b, x.c
    if op >= OP_V_QUANTIZE:
        note_issue(st, ck, block, base, VECTOR)
    elif op >= OP_MTU_IN:
        note_issue(st, ck, block, base, MTU_IN if op == OP_MTU_IN else MTU_OUT)
    elif op == OP_DMA:
        _after_ring(st, ck, x)
    elif op == OP_SET_FLAG and a != SCALAR:
        note_issue(st, ck, block, base, a)
    elif op == OP_SET_FLAG:
        note_set(ck, block, a, b, c, ck[block + VECTORS])
        tick(ck, block, SCALAR)
    elif op == OP_WAIT_FLAG and b != SCALAR:
        note_issue(st, ck, block, base, b)
    elif op == OP_WAIT_FLAG:
        note_wait(ck, block, a, b, c, SCALAR)
    elif op == OP_QUIET or op == OP_RETURN:
        forget_all(ck, block)
        for k in range(ck[block + N_MARKS] * MARK_WORDS):
            ck[block + MARKS + k] = 0
        ck[block + N_MARKS] = 0
    elif op == OP_ARRIVE or op == OP_AWAIT_GROUP:
        if ck[block + ARRIVED] != (op == OP_AWAIT_GROUP):
            ck[LIMIT] = LIMIT_BARRIER
        ck[block + ARRIVED] = 1 if op == OP_ARRIVE else 0
        if op == OP_ARRIVE:
            release_marks(st, ck, block, ck[block + VECTORS])
    if (op == OP_ATOMIC_ADD or (op == OP_STORE and not st[CACHE_LINES])) and ck[block + FENCE_VECTOR]:
        ck[block + VECTORS] = joined(ck[block + VECTORS], ck[block + FENCE_VECTOR])  # all fences before it are passed
    reads = (op <= OP_POLL or op == OP_POLL_ANY) and rows[N_ROWS, 0] and rows[0, FLAGS] & SYNC_ACCESS
    reads = reads and rows[ROWS_CLASS, 0] == SYNC
    if ck[JOINING] and (reads or op == OP_AWAIT_GROUP):  # who arrived may have seen a flag of this core
        ck[block + VECTORS] = joined(ck[block + VECTORS], ck[block + SHARED_VECTOR])
        if st[ORDER] == ORDER_FIFO or all_in_flight(st, ck):
            note_landed(st, ck, x.i)
        learn_landed(ck, block)
    if ck[JOINING] and op == OP_WAIT_FLAG and a == DMA and st[ORDER] == ORDER_FIFO:
        note_landed(st, ck, x.i)  # what DMA has written is visible, and what was before it on its way


@jit
def _note_flag(st, ck, block, start, nbytes, vector):
    """Mtu-out has written a flag: whoever sees it makes known what was known then, of each granule by itself."""
    if st[ORDER] == ORDER_SC:
        ck[block + SHARED_VECTOR] = joined(ck[block + SHARED_VECTOR], vector)
        return
    for _ in range(start >> st[ATOMIC_SHIFT], (start + nbytes - 1 >> st[ATOMIC_SHIFT]) + 1 if nbytes else 0):
        n = ck[block + N_FLYING]
        if n == FLYING_MAX:
            ck[LIMIT] = LIMIT_MARKS
            return
        ck[block + FLYING + n], ck[block + N_FLYING] = vector, n + 1


@call
def flag_landed(mem, st, ck, i, die, k):
    """The k-th write in flight of a die, by the core with number ``i``, is about to become visible."""
    ring, block = block_of_die(st, die), block_of(ck, i)
    if not _is_flag_by_out(st, ck, flight(st, ring, k), core_of(ck, i)):
        return
    if not ck[TOUCHED] >> i & 1:
        save(mem, st, ck, CHECKER | NOW, block + SHARED_VECTOR, 1)
        save(mem, st, ck, CHECKER | NOW, block + N_FLYING, 1)
        save(mem, st, ck, CHECKER | NOW, block + FLYING, FLYING_MAX)
    n = 0
    for j in range(k):
        n += 1 if _is_flag_by_out(st, ck, flight(st, ring, j), core_of(ck, i)) else 0
    ck[block + SHARED_VECTOR] = joined(ck[block + SHARED_VECTOR], ck[block + FLYING + n])
    for j in range(n, ck[block + N_FLYING]):
        ck[block + FLYING + j] = ck[block + FLYING + j + 1] if j + 1 < ck[block + N_FLYING] else 0
    ck[block + N_FLYING] -= 1


@jit
def _is_flag_by_out(st, ck, entry, core):
    """Is a write in flight one of a core's mtu-out to a flag?"""
    kind = st[entry + FLIGHT_KIND]
    if st[entry + FLIGHT_CORE] != core or kind == KIND_SCALAR or kind >= KIND_DMA:
        return False
    return worst_class(ck, st[entry + FLIGHT_ADDRESS], st[entry + FLIGHT_NBYTES]) == SYNC


@jit
def _after_ring(st, ck, x):
    """A DMA transfer may be made at any moment from now on until its completion is known."""
    site, agent = st[x.base + DMA_SLOTS + x.descriptor * ENTRY_WORDS + ENTRY_SITE], AGENT_DMA + x.descriptor
    note_ring(st, ck, x.block, x.base, x.descriptor)
    note_access(st, ck, x.i, x.a, x.c, agent | IN_MEMORY, ck[x.block + VECTORS], site)
    note_access(st, ck, x.i, x.b, x.c, agent | IN_MEMORY | WRITES, ck[x.block + VECTORS], site)
    tick(ck, x.block, SCALAR)
