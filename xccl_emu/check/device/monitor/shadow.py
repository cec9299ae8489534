"""Shadow memory of the monitor: who accessed each granule, and whether the next access is ordered behind that.

Accesses are kept byte by byte: each granule has a list of records, and two cores that write different bytes of a
granule do not conflict.  A record is dropped when a write that is ordered behind it covers all of its bytes: whatever
is ordered behind that write is ordered behind the record too.
"""

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
    R_ENGINE,
    R_EPOCH,
    R_NEXT,
    R_WHAT,
    RECORD_FREE,
    RECORD_TOP,
    RECORD_WORDS,
    REQUEST_SHIFT,
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

_SITE_SHIFT, _FLAGS_SHIFT = 24, 16
_GRANULE_SHIFT = 5
_SITE_MASK = (1 << REQUEST_SHIFT - _SITE_SHIFT) - 1


@jit
def shadow_of(space, granule):
    """Index of the shadow of a granule, made fresh if it is of an earlier run."""
    st, m, shadow = space[1], space[2], space[4]
    s = granule * SHADOW_WORDS
    if shadow[s + S_GENERATION] != m[GENERATION]:
        shadow[s + S_GENERATION] = m[GENERATION]
        shadow[s + S_RECORDS] = 0
        shadow[s + S_WRITTEN] = ALL_BYTES if _has_flags(st, m, granule) else shadow[s + S_FIXED] & ALL_BYTES
    return s


@jit
def _has_flags(st, m, granule):
    """Is a granule of a metadata area?"""
    address = granule * GRANULE_BYTES
    offset = address & ((1 << st[DIE_SHIFT]) - 1)
    return address < m[BUFFERS_START] and m[META_START] <= offset and offset < m[META_END]


@jit
def sync_number(space, granule):
    """Number of a granule as a synchronization + 1; 0 if none is known to use it so."""
    return space[4][granule * SHADOW_WORDS + S_FIXED] >> SYNC_SHIFT


@jit
def touch(space, i, engine, known, issued, start, nbytes, flags, site):
    """Judge an access of an engine of core ``i``, whose clock is the join of two rows, and remember it."""
    at, size = start, min(GRANULE_BYTES, 1 << space[1][ATOMIC_SHIFT])
    while at < start + nbytes:  # piece by piece, as it becomes visible
        granule, first = at // GRANULE_BYTES, at % GRANULE_BYTES
        end = min(first // size * size + size, start + nbytes - granule * GRANULE_BYTES)
        at = granule * GRANULE_BYTES + end
        if flags & WRITE:
            at_once = WHOLE if engine == MTU_OUT or engine == SCALAR else 0
            _write(space, i, engine, known, issued, granule, first, end, flags | at_once, site)
        else:
            _read(space, i, engine, known, issued, granule, first, end, flags, site)


@jit
def _epoch(m, clocks, i, engine, known):
    """The epoch of an engine now."""
    if engine >= ENGINE_DMA:
        return m[m[DMA_EPOCHS] + i * N_DMA_SLOTS + engine - ENGINE_DMA]
    return clocks[known + engine_word(m, i, engine)]


@jit
def _read(space, i, engine, known, issued, granule, first, end, flags, site):
    m, clocks, shadow, records = space[2], space[3], space[4], space[5]
    if m[JUDGED] == JUDGE_NOTHING:
        return
    s = shadow_of(space, granule)
    if not flags & SYNC:
        bits = (1 << end) - (1 << first)
        if shadow[s + S_WRITTEN] & bits != bits:
            at = first
            while shadow[s + S_WRITTEN] >> at & 1:
                at += 1
            _found(m, FOUND_UNWRITTEN, granule * GRANULE_BYTES + at, i, engine, site, flags)
    me, epoch = engine_word(m, i, engine), _epoch(m, clocks, i, engine, known)
    r, again = shadow[s + S_RECORDS], -1
    while r:
        record = r * RECORD_WORDS
        what = records[record + R_WHAT]
        first_2, end_2, flags_2 = what & 63, what >> 8 & 63, what >> _FLAGS_SHIFT & 255
        if first_2 < end and first < end_2:
            if flags_2 & WRITE:
                if not _visible_to(space, i, engine, me, epoch, known, issued, granule, record, flags_2):
                    _race(space, i, engine, site, flags, granule, max(first, first_2), record)
            elif records[record + R_ENGINE] == me and first <= first_2 and end_2 <= end:
                if flags & SYNC == 0 or flags_2 & SYNC:  # a plain read is the stricter one
                    again = record
                if flags & SYNC == flags_2 & SYNC and first == first_2 and end == end_2:
                    break  # that read was judged against all that is behind it in the list
        r = records[record + R_NEXT]
    if again >= 0:
        _fill(records, again, first, end, flags, site, me, epoch)
    else:
        _add(space, s, first, end, flags, site, me, epoch)


@jit
def _write(space, i, engine, known, issued, granule, first, end, flags, site):
    st, m, clocks, shadow, records = space[1], space[2], space[3], space[4], space[5]
    s = shadow_of(space, granule)
    shadow[s + S_WRITTEN] |= (1 << end) - (1 << first)
    if m[JUDGED] == JUDGE_NOTHING:
        return
    if flags & IMMEDIATE or m[X_PAYLOAD]:
        start = granule * GRANULE_BYTES + first
        for p in range(first_together(st, start), last_together(st, start + end - first - 1) + 1):
            _tell_together(space, i, engine, p, start, start + end - first, flags)
    me, epoch = engine_word(m, i, engine), _epoch(m, clocks, i, engine, known)
    before = -1
    r = shadow[s + S_RECORDS]
    while r:
        record = r * RECORD_WORDS
        what = records[record + R_WHAT]
        first_2, end_2, flags_2 = what & 63, what >> 8 & 63, what >> _FLAGS_SHIFT & 255
        gone = False
        if first_2 < end and first < end_2:
            if _behind(space, i, engine, me, epoch, known, issued, granule, record, flags_2):
                covered = first <= first_2 and end_2 <= end
                gone = covered and _lands_first(space, i, engine, me, epoch, known, issued, granule, record, flags_2)
            else:
                _race(space, i, engine, site, flags, granule, max(first, first_2), record)
        after = records[record + R_NEXT]
        if gone:
            if before < 0:
                shadow[s + S_RECORDS] = after
            else:
                records[before + R_NEXT] = after
            records[record + R_NEXT] = m[RECORD_FREE]
            m[RECORD_FREE] = r
        else:
            before = record
        r = after
    _add(space, s, first, end, flags, site, me, epoch)


@jit
def first_together(st, address):
    """The first granule of what becomes visible at once with an address: that is a granule, less, or several."""
    return (address >> st[ATOMIC_SHIFT] << st[ATOMIC_SHIFT]) // GRANULE_BYTES


@jit
def last_together(st, address):
    """The last granule of that."""
    return ((address >> st[ATOMIC_SHIFT]) + 1 << st[ATOMIC_SHIFT]) - 1 >> _GRANULE_SHIFT


@jit
def _tell_together(space, i, engine, granule, start, end, flags):
    """Of the writes to a granule that become visible at once with a part of another: an atomic has waited for some, and
    of some a signal tells."""
    st, m, records = space[1], space[2], space[5]
    r = space[4][shadow_of(space, granule) + S_RECORDS]
    while r:
        record = r * RECORD_WORDS
        what = records[record + R_WHAT]
        first, last = granule * GRANULE_BYTES + (what & 63), granule * GRANULE_BYTES + (what >> 8 & 63) - 1
        near = start >> st[ATOMIC_SHIFT] <= last >> st[ATOMIC_SHIFT]
        near = near and first >> st[ATOMIC_SHIFT] <= end - 1 >> st[ATOMIC_SHIFT]
        if near and what >> _FLAGS_SHIFT & WRITE:
            if flags & IMMEDIATE and _awaited_by_atomic(space, i, record):
                records[record + R_WHAT] = what | IMMEDIATE << _FLAGS_SHIFT
            if m[X_PAYLOAD]:
                _keep_told(space, i, engine, record, flags, what >> _FLAGS_SHIFT & 255)
        r = records[record + R_NEXT]


@jit
def _keep_told(space, i, engine, record, flags, flags_2):
    """A request that signals copies behind an own write that `relaxed` keeps before it: its signal tells of it too."""
    st, m, records = space[1], space[2], space[5]
    other, number = records[record + R_ENGINE], records[record + R_WHAT] >> REQUEST_SHIFT
    own = other // m[PER_CORE] == i and other % m[PER_CORE] < ENGINE_DMA
    if st[ORDER] != ORDER_RELAXED or not own or m[SIGNALS] == 0 or (flags | flags_2) & LOOSE:
        return
    if number == 0:
        records[record + R_WHAT] |= m[X_PAYLOAD] << REQUEST_SHIFT
    elif number != m[X_PAYLOAD]:
        at = m[CHAINED] + i * m[SIGNALS] + number % m[SIGNALS]
        m[at] = max(m[at], number)


@jit
def _known(clocks, known, issued, word, epoch):
    return clocks[known + word] >= epoch or clocks[issued + word] >= epoch


@jit
def _happened(space, i, engine, me, epoch, known, issued, record):
    """Is what is recorded known to have happened?  A descriptor's own reads and writes go together."""
    clocks, records = space[3], space[5]
    other, epoch_2 = records[record + R_ENGINE], records[record + R_EPOCH]
    return (other == me and epoch_2 == epoch) or _known(clocks, known, issued, other, epoch_2)


@jit
def _visible_to(space, i, engine, me, epoch, known, issued, granule, record, flags_2):
    """Is a recorded write known to be visible to a read, or to come first where the machine keeps order by itself?"""
    m, clocks, records = space[2], space[3], space[5]
    other, epoch_2 = records[record + R_ENGINE], records[record + R_EPOCH]
    in_buffer = granule * GRANULE_BYTES >= m[BUFFERS_START]
    if in_buffer or m[TARGETS] == 0 or flags_2 & IMMEDIATE or other % m[PER_CORE] >= ENGINE_DMA:
        return _happened(space, i, engine, me, epoch, known, issued, record)
    if other == me and engine == SCALAR:  # it sees its own stores in flight
        return True
    if space[1][CACHE_LINES] and other % m[PER_CORE] == SCALAR:  # when others see its line is no matter of order
        return _happened(space, i, engine, me, epoch, known, issued, record)
    die = granule * GRANULE_BYTES >> space[1][DIE_SHIFT]
    word = visible_word(m, other // m[PER_CORE], other % m[PER_CORE], die)
    if space[1][REQUEST_ORDERS] == ASKS_SOME_STRONG and flags_2 & LOOSE == 0:
        strong = strong_word(m, other // m[PER_CORE], other % m[PER_CORE], die)
        if _known(clocks, known, issued, strong, epoch_2):
            return True
    number = records[record + R_WHAT] >> REQUEST_SHIFT
    if number and m[SIGNALS]:
        if _known(clocks, known, issued, signal_word(m, other // m[PER_CORE], number), number):
            return True
    return _known(clocks, known, issued, word, epoch_2)


@jit
def _behind(space, i, engine, me, epoch, known, issued, granule, record, flags_2):
    """Does a write come behind what is recorded?

    Writes of one core to one granule become visible in the order in which they happen, under `fifo` those of one die.
    """
    st, m = space[1], space[2]
    if flags_2 & WRITE:
        other = space[5][record + R_ENGINE]
        if other // m[PER_CORE] == i:
            kept = other % m[PER_CORE] < ENGINE_DMA and engine < ENGINE_DMA
        else:
            kept = False
        if st[ORDER] == ORDER_FIFO and m[m[CORE_DIE] + other // m[PER_CORE]] == m[m[CORE_DIE] + i]:
            kept = True
        if not kept:
            return _visible_to(space, i, engine, me, epoch, known, issued, granule, record, flags_2)
    return _happened(space, i, engine, me, epoch, known, issued, record)


@jit
def _lands_first(space, i, engine, me, epoch, known, issued, granule, record, flags_2):
    """Is what is recorded, and a write comes behind, sure to be visible when that is?  Not so under `unordered`."""
    st, m, clocks, records = space[1], space[2], space[3], space[5]
    if (st[ORDER] != ORDER_UNORDERED and not st[REQUEST_ORDERS]) or not flags_2 & WRITE:
        return True
    other = records[record + R_ENGINE]
    if m[FENCES] and other // m[PER_CORE] == i and other % m[PER_CORE] < ENGINE_DMA and engine < ENGINE_DMA:
        if clocks[fence_row(m, i) + other] >= records[record + R_EPOCH]:
            return True
    return _visible_to(space, i, engine, me, epoch, known, issued, granule, record, flags_2)


@jit
def _awaited_by_atomic(space, i, record):
    """Is a recorded write one that an atomic of core ``i`` in the same granule had to wait for?"""
    st, m = space[1], space[2]
    other = space[5][record + R_ENGINE]
    if st[ORDER] == ORDER_FIFO:
        return m[m[CORE_DIE] + other // m[PER_CORE]] == m[m[CORE_DIE] + i]
    if st[ORDER] == ORDER_UNORDERED or space[5][record + R_WHAT] >> _FLAGS_SHIFT & LOOSE:
        return False
    return other // m[PER_CORE] == i and other % m[PER_CORE] < ENGINE_DMA


@jit
def delivered(space, granule, start, nbytes, word, epoch):
    """Some bytes of a write to a synchronization granule have become visible: that of this engine and epoch."""
    shadow, records = space[4], space[5]
    r = shadow[granule * SHADOW_WORDS + S_RECORDS]
    while r:
        record = r * RECORD_WORDS
        at = granule * GRANULE_BYTES + (records[record + R_WHAT] & 63)
        inside = start <= at and at < start + nbytes
        if records[record + R_ENGINE] == word and records[record + R_EPOCH] == epoch and inside:
            records[record + R_WHAT] |= DELIVERED << _FLAGS_SHIFT
        r = records[record + R_NEXT]


@jit
def acquired(space, word, row):
    """Somebody has read what the writes in this clock released: so those of them are seen that had to come before.

    They are those to the bytes that become visible together with a word.
    """
    st, clocks, records = space[1], space[3], space[5]
    shift = max(3, st[ATOMIC_SHIFT])
    for granule in range(first_together(st, word), last_together(st, word) + 1):
        r = space[4][shadow_of(space, granule) + S_RECORDS]
        while r:
            record = r * RECORD_WORDS
            what = records[record + R_WHAT]
            known = clocks[row + records[record + R_ENGINE]] >= records[record + R_EPOCH]
            near = granule * GRANULE_BYTES + (what & 63) >> shift == word >> shift
            if near and known and what >> _FLAGS_SHIFT & DELIVERED:
                records[record + R_WHAT] = what | IMMEDIATE << _FLAGS_SHIFT
            r = records[record + R_NEXT]


@jit
def _race(space, i, engine, site, flags, granule, at, record):
    """Two accesses that nothing orders: a violation unless both synchronize (`docs/races.md`)."""
    m, records = space[2], space[5]
    what = records[record + R_WHAT]
    flags_2 = what >> _FLAGS_SHIFT & 255
    if m[JUDGED] != JUDGE_ALL or _is_sync(flags, flags_2) or _is_sync(flags_2, flags):
        return
    if flags & flags_2 & WRITE and flags & flags_2 & WHOLE and _has_flags(space[1], m, granule):
        return
    if m[STOP] == 0:
        other = records[record + R_ENGINE]
        m[V_CORE_2], m[V_ENGINE_2] = other // m[PER_CORE], other % m[PER_CORE]
        m[V_SITE_2], m[V_FLAGS_2] = (what >> _SITE_SHIFT & _SITE_MASK) - 1, flags_2
        _found(m, FOUND_RACE, granule * GRANULE_BYTES + at, i, engine, site, flags)


@jit
def _is_sync(one, other):
    """Is the first a synchronization, and the second another or a whole write, which may be a flag?"""
    return one & SYNC != 0 and (other & SYNC != 0 or (other & WRITE != 0 and other & WHOLE != 0))


@jit
def _found(m, code, at, i, engine, site, flags):
    """Take down a violation; the first one of a run stands."""
    if m[STOP] == 0:
        m[STOP] = code
        m[V_AT], m[V_CORE], m[V_ENGINE], m[V_SITE], m[V_FLAGS] = at, i, engine, site, flags


@jit
def _fill(records, record, first, end, flags, site, me, epoch):
    records[record + R_WHAT] = first | end << 8 | flags << _FLAGS_SHIFT | (site + 1) << _SITE_SHIFT
    records[record + R_ENGINE] = me
    records[record + R_EPOCH] = epoch


@jit
def _add(space, s, first, end, flags, site, me, epoch):
    """Put a record in front of the granule's list."""
    m, shadow, records = space[2], space[4], space[5]
    r = m[RECORD_FREE]
    if r:
        m[RECORD_FREE] = records[r * RECORD_WORDS + R_NEXT]
    else:
        r = m[RECORD_TOP]
        if (r + 1) * RECORD_WORDS > records.size:
            m[STOP] = GROW
            return
        m[RECORD_TOP] = r + 1
    _fill(records, r * RECORD_WORDS, first, end, flags, site, me, epoch)
    if flags & WRITE:
        records[r * RECORD_WORDS + R_WHAT] |= m[X_PAYLOAD] << REQUEST_SHIFT
    records[r * RECORD_WORDS + R_NEXT] = shadow[s + S_RECORDS]
    shadow[s + S_RECORDS] = r


@jit
def save(space, start, nbytes):
    """Keep what the granules of a range held before their first write of the run."""
    mem, m, shadow, undo = space[0], space[2], space[4], space[6]
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
