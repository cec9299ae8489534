"""Shadow memory of the monitor: who accessed each granule, and whether the next access is ordered behind that.

Accesses are kept byte by byte: each granule has a list of records, and two cores that write different bytes of a
granule do not conflict.  A record is dropped when a write that is ordered behind it covers all of its bytes: whatever
is ordered behind that write is ordered behind the record too.
"""

from typing import NamedTuple

from xccl_emu.check.device.accesses import SYNC, WHOLE, WRITE
from xccl_emu.check.device.monitor.clocks import engine_word, fence_row, signal_word, strong_word, visible_word
from xccl_emu.check.device.monitor.layout import (
    ALL_BYTES,
    BUFFERS_START,
    CHAINED,
    CORE_DIE,
    DELIVERED,
    DMA_EPOCHS,
    ENGINE_DMA,
    FENCES,
    FOUND_RACE,
    FOUND_UNWRITTEN,
    GENERATION,
    GROW,
    IMMEDIATE,
    JUDGE_ALL,
    JUDGE_NOTHING,
    JUDGED,
    LOOSE,
    META_END,
    META_START,
    N_UNDO,
    PER_CORE,
    R_END,
    R_ENGINE,
    R_EPOCH,
    R_FLAGS,
    R_NEXT,
    R_REQUEST,
    R_SITE,
    R_START,
    RECORD_FREE,
    RECORD_TOP,
    RECORD_WORDS,
    S_FIXED,
    S_GENERATION,
    S_RECORDS,
    S_WRITTEN,
    SAVED,
    SHADOW_WORDS,
    SIGNALS,
    STOP,
    SYNC_SHIFT,
    TARGETS,
    UNDO_WORDS,
    V_AT,
    V_CORE,
    V_CORE_2,
    V_ENGINE,
    V_ENGINE_2,
    V_FLAGS,
    V_FLAGS_2,
    V_SITE,
    V_SITE_2,
    X_ISSUED,
    X_KNOWN,
    X_PAYLOAD,
)
from xccl_emu.lang.requests import MTU_OUT, SCALAR
from xccl_emu.machine.device.layout import (
    ASKS_SOME_STRONG,
    ATOMIC_SHIFT,
    CACHE_LINES,
    DIE_SHIFT,
    GRANULE_BYTES,
    N_DMA_SLOTS,
    ORDER,
    ORDER_FIFO,
    ORDER_RELAXED,
    ORDER_UNORDERED,
    REQUEST_ORDERS,
)
from xccl_emu.machine.device.words import jit, load_i64

_GRANULE_SHIFT = 5


class Access(NamedTuple):
    """An access under judgement, or the part of one that becomes visible at once; what its instruction knows is in the
    rows `X_KNOWN` and `X_ISSUED`."""

    core: int
    engine: int
    word: int
    """Word of the engine in a clock."""
    epoch: int
    start: int
    end: int
    flags: int
    site: int


@jit
def shadow_of(space, granule):
    """Index of the shadow of a granule, made fresh if it is of an earlier run."""
    st, m, shadow = space.st, space.m, space.shadow
    s = granule * SHADOW_WORDS
    if shadow[s + S_GENERATION] != m[GENERATION]:
        shadow[s + S_GENERATION] = m[GENERATION]
        shadow[s + S_RECORDS] = 0
        shadow[s + S_WRITTEN] = ALL_BYTES if _has_flags(st, m, granule) else shadow[s + S_FIXED] & ALL_BYTES
    return s


@jit
def _has_flags(st, m, granule):
    """Return whether a granule is in a metadata area."""
    address = granule * GRANULE_BYTES
    offset = address & ((1 << st[DIE_SHIFT]) - 1)
    return address < m[BUFFERS_START] and m[META_START] <= offset and offset < m[META_END]


@jit
def sync_number(space, granule):
    """Number of a granule as a synchronization + 1; 0 if none is known to use it so."""
    return space.shadow[granule * SHADOW_WORDS + S_FIXED] >> SYNC_SHIFT


@jit
def touch(space, i, engine, start, nbytes, flags, site):
    """Judge an access of an engine of core ``i``, and remember it."""
    m, at, size = space.m, start, min(GRANULE_BYTES, 1 << space.st[ATOMIC_SHIFT])
    word, epoch = engine_word(m, i, engine), _epoch(m, space.clocks, i, engine)
    if flags & WRITE and (engine == MTU_OUT or engine == SCALAR):
        flags |= WHOLE
    while at < start + nbytes:  # piece by piece, as it becomes visible
        end = min(at // size * size + size, start + nbytes)
        piece = Access(i, engine, word, epoch, at, end, flags, site)
        if flags & WRITE:
            _write(space, piece)
        else:
            _read(space, piece)
        at = end


@jit
def _epoch(m, clocks, i, engine):
    """The epoch of an engine now."""
    if engine >= ENGINE_DMA:
        return m[m[DMA_EPOCHS] + i * N_DMA_SLOTS + engine - ENGINE_DMA]
    return clocks[m[X_KNOWN] + engine_word(m, i, engine)]


@jit
def _read(space, a):
    m, shadow, records = space.m, space.shadow, space.records
    if m[JUDGED] == JUDGE_NOTHING:
        return
    s = shadow_of(space, a.start // GRANULE_BYTES)
    if not a.flags & SYNC:
        missing = _bits(a) & ~shadow[s + S_WRITTEN]
        if missing:
            at = a.start
            while not missing >> at % GRANULE_BYTES & 1:
                at += 1
            _found(m, FOUND_UNWRITTEN, at, a)
    r, again = shadow[s + S_RECORDS], 0
    while r:
        first, end, flags = records[r + R_START], records[r + R_END], records[r + R_FLAGS]
        if first < a.end and a.start < end:
            if flags & WRITE:
                if not _visible_to(space, a, r):
                    _race(space, a, r)
            elif records[r + R_ENGINE] == a.word and a.start <= first and end <= a.end:
                if a.flags & SYNC == 0 or flags & SYNC:  # a plain read is the stricter one
                    again = r
                if a.flags & SYNC == flags & SYNC and a.start == first and a.end == end:
                    break  # that read was judged against all that is behind it in the list
        r = records[r + R_NEXT]
    if again:
        _fill(m, records, again, a)
    else:
        _add(space, s, a)


@jit
def _bits(a):
    """A bit for each byte of an access in its granule."""
    return (1 << a.end - a.start) - 1 << a.start % GRANULE_BYTES


@jit
def _write(space, a):
    m, shadow, records = space.m, space.shadow, space.records
    s = shadow_of(space, a.start // GRANULE_BYTES)
    shadow[s + S_WRITTEN] |= _bits(a)
    if m[JUDGED] == JUDGE_NOTHING:
        return
    if a.flags & IMMEDIATE or m[X_PAYLOAD]:
        _tell_together(space, a)
    r, before = shadow[s + S_RECORDS], 0
    while r:
        after, gone = records[r + R_NEXT], False
        if records[r + R_START] < a.end and a.start < records[r + R_END]:
            if _behind(space, a, r):
                covered = a.start <= records[r + R_START] and records[r + R_END] <= a.end
                gone = covered and _lands_first(space, a, r)
            else:
                _race(space, a, r)
        if not gone:
            before = r
        else:
            if before:
                records[before + R_NEXT] = after
            else:
                shadow[s + S_RECORDS] = after
            records[r + R_NEXT] = m[RECORD_FREE]
            m[RECORD_FREE] = r
        r = after
    _add(space, s, a)


# ---- what becomes visible at once


@jit
def first_together(st, address):
    """The first granule of what becomes visible at once with an address: that is a granule, less, or several."""
    return (address >> st[ATOMIC_SHIFT] << st[ATOMIC_SHIFT]) // GRANULE_BYTES


@jit
def last_together(st, address):
    """The last granule of that."""
    return ((address >> st[ATOMIC_SHIFT]) + 1 << st[ATOMIC_SHIFT]) - 1 >> _GRANULE_SHIFT


@jit
def _together(space, r, start, end):
    """Return whether what is recorded becomes visible at once with a part of some bytes."""
    shift, at = space.st[ATOMIC_SHIFT], space.records[r + R_START]
    return start >> shift <= at >> shift and at >> shift <= end - 1 >> shift


@jit
def _tell_together(space, a):
    """Note what becomes visible at once with a part of another write: an atomic has waited for some, and of some a
    signal tells."""
    st, records = space.st, space.records
    for granule in range(first_together(st, a.start), last_together(st, a.end - 1) + 1):
        r = space.shadow[shadow_of(space, granule) + S_RECORDS]
        while r:
            if records[r + R_FLAGS] & WRITE and _together(space, r, a.start, a.end):
                if a.flags & IMMEDIATE and _awaited_by_atomic(space, a, r):
                    records[r + R_FLAGS] |= IMMEDIATE
                if space.m[X_PAYLOAD]:
                    _keep_told(space, a, r)
            r = records[r + R_NEXT]


@jit
def _keep_told(space, a, r):
    """A request that signals copies behind an own write that `relaxed` keeps before it: its signal tells of it too."""
    st, m, records = space.st, space.m, space.records
    number, loose = records[r + R_REQUEST], (a.flags | records[r + R_FLAGS]) & LOOSE
    if st[ORDER] != ORDER_RELAXED or not _by_core(m, a.core, records[r + R_ENGINE]) or m[SIGNALS] == 0 or loose:
        return
    if number == 0:
        records[r + R_REQUEST] = m[X_PAYLOAD]
    elif number != m[X_PAYLOAD]:
        at = m[CHAINED] + a.core * m[SIGNALS] + number % m[SIGNALS]
        m[at] = max(m[at], number)


@jit
def _awaited_by_atomic(space, a, r):
    """Return whether a recorded write is one that an atomic in the same granule had to wait for."""
    st, m, other = space.st, space.m, space.records[r + R_ENGINE]
    if st[ORDER] == ORDER_FIFO:
        return _on_one_die(m, a.core, other)
    if st[ORDER] == ORDER_UNORDERED or space.records[r + R_FLAGS] & LOOSE:
        return False
    return _by_core(m, a.core, other)


@jit
def delivered(space, granule, start, nbytes, word, epoch):
    """Some bytes of a write to a synchronization granule have become visible: that of this engine and epoch."""
    records = space.records
    r = space.shadow[granule * SHADOW_WORDS + S_RECORDS]
    while r:
        inside = start <= records[r + R_START] and records[r + R_START] < start + nbytes
        if inside and records[r + R_ENGINE] == word and records[r + R_EPOCH] == epoch:
            records[r + R_FLAGS] |= DELIVERED
        r = records[r + R_NEXT]


@jit
def acquired(space, word, row):
    """Somebody has read what the writes in this clock released: so those of them are seen that had to come before.

    They are those to the bytes that become visible together with a word.
    """
    st, clocks, records = space.st, space.clocks, space.records
    for granule in range(first_together(st, word), last_together(st, word) + 1):
        r = space.shadow[shadow_of(space, granule) + S_RECORDS]
        while r:
            known = clocks[row + records[r + R_ENGINE]] >= records[r + R_EPOCH]
            if known and records[r + R_FLAGS] & DELIVERED and _together(space, r, word, word + 8):
                records[r + R_FLAGS] |= IMMEDIATE
            r = records[r + R_NEXT]


# ---- what comes before


@jit
def _by_core(m, i, word):
    """Return whether an engine is the scalar unit or a pipe of core ``i``."""
    return word // m[PER_CORE] == i and word % m[PER_CORE] < ENGINE_DMA


@jit
def _on_one_die(m, i, word):
    """Return whether an engine is on the die of core ``i``."""
    return m[m[CORE_DIE] + word // m[PER_CORE]] == m[m[CORE_DIE] + i]


@jit
def _knows(space, word, epoch):
    """Does the instruction under judgement know of an epoch?"""
    m, clocks = space.m, space.clocks
    return clocks[m[X_KNOWN] + word] >= epoch or clocks[m[X_ISSUED] + word] >= epoch


@jit
def _happened(space, a, r):
    """Return whether what is recorded is known to have happened.  A descriptor's own reads and writes go together."""
    word, epoch = space.records[r + R_ENGINE], space.records[r + R_EPOCH]
    return (word == a.word and epoch == a.epoch) or _knows(space, word, epoch)


@jit
def _visible_to(space, a, r):
    """Return whether a recorded write is known to be visible to a read, or the machine itself keeps it before."""
    st, m, records = space.st, space.m, space.records
    epoch, flags, number = records[r + R_EPOCH], records[r + R_FLAGS], records[r + R_REQUEST]
    core, engine = records[r + R_ENGINE] // m[PER_CORE], records[r + R_ENGINE] % m[PER_CORE]
    if a.start >= m[BUFFERS_START] or m[TARGETS] == 0 or flags & IMMEDIATE or engine >= ENGINE_DMA:
        return _happened(space, a, r)
    if records[r + R_ENGINE] == a.word and engine == SCALAR and not a.flags & WRITE:  # it loads its stores in flight
        return True
    if st[CACHE_LINES] and engine == SCALAR:  # when others see its line is no matter of order
        return _happened(space, a, r)
    die, strong = a.start >> st[DIE_SHIFT], st[REQUEST_ORDERS] == ASKS_SOME_STRONG and flags & LOOSE == 0
    if strong and _knows(space, strong_word(m, core, engine, die), epoch):
        return True
    if number and m[SIGNALS] and _knows(space, signal_word(m, core, number), number):
        return True
    return _knows(space, visible_word(m, core, engine, die), epoch)


@jit
def _behind(space, a, r):
    """Does a write come behind what is recorded?

    Writes of one core to one granule become visible in the order in which they happen, under `fifo` those of one die.
    """
    m, word = space.m, space.records[r + R_ENGINE]
    if not space.records[r + R_FLAGS] & WRITE:
        return _happened(space, a, r)
    if a.engine < ENGINE_DMA and _by_core(m, a.core, word):
        return _happened(space, a, r)
    if space.st[ORDER] == ORDER_FIFO and _on_one_die(m, a.core, word):
        return _happened(space, a, r)
    return _visible_to(space, a, r)


@jit
def _lands_first(space, a, r):
    """Return whether what is recorded is visible before a write behind it can be.  Not so under `unordered`."""
    st, m, clocks, records = space.st, space.m, space.clocks, space.records
    if (st[ORDER] != ORDER_UNORDERED and not st[REQUEST_ORDERS]) or not records[r + R_FLAGS] & WRITE:
        return True
    word = records[r + R_ENGINE]
    if m[FENCES] and a.engine < ENGINE_DMA and _by_core(m, a.core, word):
        if clocks[fence_row(m, a.core) + word] >= records[r + R_EPOCH]:
            return True
    return _visible_to(space, a, r)


# ---- what is found, and what is remembered


@jit
def _race(space, a, r):
    """Two accesses that nothing orders: a violation unless both synchronize (`docs/races.md`)."""
    m, records = space.m, space.records
    flags, word = records[r + R_FLAGS], records[r + R_ENGINE]
    if m[JUDGED] != JUDGE_ALL or _is_sync(a.flags, flags) or _is_sync(flags, a.flags):
        return
    both = a.flags & flags
    if both & WRITE and both & WHOLE and _has_flags(space.st, m, a.start // GRANULE_BYTES):
        return
    if m[STOP] == 0:
        m[V_CORE_2], m[V_ENGINE_2] = word // m[PER_CORE], word % m[PER_CORE]
        m[V_SITE_2], m[V_FLAGS_2] = records[r + R_SITE], flags
        _found(m, FOUND_RACE, max(a.start, records[r + R_START]), a)


@jit
def _is_sync(one, other):
    """Return whether the first is a synchronization, and the second another or a whole write, which may be a flag."""
    return one & SYNC != 0 and (other & SYNC != 0 or (other & WRITE != 0 and other & WHOLE != 0))


@jit
def _found(m, code, at, a):
    """Take down a violation; the first one of a run stands."""
    if m[STOP] == 0:
        m[STOP] = code
        m[V_AT], m[V_CORE], m[V_ENGINE], m[V_SITE], m[V_FLAGS] = at, a.core, a.engine, a.site, a.flags


@jit
def _fill(m, records, r, a):
    records[r + R_START], records[r + R_END], records[r + R_FLAGS] = a.start, a.end, a.flags
    records[r + R_SITE], records[r + R_REQUEST] = a.site, m[X_PAYLOAD]
    records[r + R_ENGINE], records[r + R_EPOCH] = a.word, a.epoch


@jit
def _add(space, s, a):
    """Put a record in front of the granule's list."""
    m, shadow, records = space.m, space.shadow, space.records
    r = m[RECORD_FREE]
    if r:
        m[RECORD_FREE] = records[r + R_NEXT]
    else:
        r = m[RECORD_TOP]
        if r + RECORD_WORDS > records.size:
            m[STOP] = GROW
            return
        m[RECORD_TOP] = r + RECORD_WORDS
    _fill(m, records, r, a)
    records[r + R_NEXT] = shadow[s + S_RECORDS]
    shadow[s + S_RECORDS] = r


@jit
def save(space, start, nbytes):
    """Keep what the granules of a range held before their first write of the run."""
    mem, m, shadow, undo = space.mem, space.m, space.shadow, space.undo
    if start < 0 or nbytes <= 0 or start > mem.size - nbytes:  # the action will be refused
        return
    for granule in range(start // GRANULE_BYTES, (start + nbytes - 1) // GRANULE_BYTES + 1):
        s = shadow_of(space, granule)
        if shadow[s + S_WRITTEN] & SAVED:
            continue
        place = m[N_UNDO] * UNDO_WORDS
        if place + UNDO_WORDS > undo.size:
            m[STOP] = GROW
            return
        shadow[s + S_WRITTEN] |= SAVED
        undo[place] = granule
        for w in range(4):
            undo[place + 1 + w] = load_i64(mem, granule * GRANULE_BYTES + 8 * w)
        m[N_UNDO] += 1
