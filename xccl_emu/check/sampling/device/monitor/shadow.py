"""Shadow memory of the monitor: who accessed each granule, and whether the next access is ordered after that.

Accesses are kept byte by byte: each granule has a list of records, and two cores that write different bytes of a
granule do not conflict.  A record is dropped when a write that is ordered after it covers all of its bytes: whatever
is ordered after that write is ordered after the record too.
"""

from typing import NamedTuple

from xccl_emu.check.device.accesses import SYNC, TENTATIVE, WHOLE, WRITE
from xccl_emu.check.sampling.device.monitor import clocks as monitor_clocks
from xccl_emu.check.sampling.device.monitor import layout as ml
from xccl_emu.lang.requests import MTU_OUT, SCALAR
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.words import jit, load_i64

_GRANULE_SHIFT = 5
_LENIENT = SYNC | TENTATIVE
"""Flags of a read: the larger, the fewer writes it races with; all for a plain one, none for a tentative one."""


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
    s = granule * ml.SHADOW_WORDS
    if shadow[s + ml.S_GENERATION] != m[ml.GENERATION]:
        shadow[s + ml.S_GENERATION] = m[ml.GENERATION]
        shadow[s + ml.S_RECORDS] = 0
        fixed = shadow[s + ml.S_FIXED]
        shadow[s + ml.S_WRITTEN] = (~fixed if _has_flags(st, m, granule) else fixed) & ml.ALL_BYTES
    return s


@jit
def _has_flags(st, m, granule):
    """Return whether a granule is in a metadata area."""
    address = granule * ms.GRANULE_BYTES
    offset = address & ((1 << st[ms.DIE_SHIFT]) - 1)
    return address < m[ml.BUFFERS_START] and m[ml.META_START] <= offset and offset < m[ml.META_END]


@jit
def sync_number(space, granule):
    """Number of a granule as a synchronization + 1; 0 if none is known to use it so."""
    return space.shadow[granule * ml.SHADOW_WORDS + ml.S_FIXED] >> ml.SYNC_SHIFT


@jit
def touch(space, i, engine, start, nbytes, flags, site):
    """Judge an access of an engine of core ``i``, and remember it."""
    m, at, size = space.m, start, min(ms.GRANULE_BYTES, 1 << space.st[ms.ATOMIC_SHIFT])
    word, epoch = monitor_clocks.engine_word(m, i, engine), _epoch(m, space.clocks, i, engine)
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
    if engine >= ml.ENGINE_DMA:
        return m[monitor_clocks.dma_ring(m, i, m[ml.X_DMA])] // ms.N_EVENTS
    return clocks[m[ml.X_KNOWN] + monitor_clocks.engine_word(m, i, engine)]


@jit
def _read(space, a):
    m, shadow, records = space.m, space.shadow, space.records
    if m[ml.JUDGED] == ml.JUDGE_NOTHING:
        return
    s = shadow_of(space, a.start // ms.GRANULE_BYTES)
    missing = _bits(a) & ~shadow[s + ml.S_WRITTEN]
    if missing and not a.flags & SYNC:
        _unwritten(space, a, missing)
    elif missing and not a.flags & TENTATIVE:
        _on_padding(space, a, s, missing)
    r, again = shadow[s + ml.S_RECORDS], 0
    while r:
        first, end, flags = records[r + ml.R_START], records[r + ml.R_END], records[r + ml.R_FLAGS]
        if first < a.end and a.start < end:
            if flags & WRITE:
                if not _visible_to(space, a, r):
                    _race(space, a, r)
            elif records[r + ml.R_ENGINE] == a.word and a.start <= first and end <= a.end:
                if a.flags & _LENIENT <= flags & _LENIENT:  # the stricter one is kept
                    again = r
                if a.flags & _LENIENT == flags & _LENIENT and a.start == first and a.end == end:
                    break  # that read was judged against all that follows it in the list
        r = records[r + ml.R_NEXT]
    if again:
        _fill(m, records, again, a)
    else:
        _add(space, s, a)


@jit
def _bits(a):
    """A bit for each byte of an access in its granule."""
    return _bits_between(a.start, a.end)


@jit
def _bits_between(start, end):
    """A bit for each of some bytes in their granule."""
    return (1 << end - start) - 1 << start % ms.GRANULE_BYTES


@jit
def _write(space, a):
    m, shadow, records = space.m, space.shadow, space.records
    s = shadow_of(space, a.start // ms.GRANULE_BYTES)
    written, before = _carried(space, a) if m[ml.X_PADDING] == 2 else _bits(a), shadow[s + ml.S_WRITTEN]
    shadow[s + ml.S_WRITTEN] |= written
    if m[ml.JUDGED] == ml.JUDGE_NOTHING:
        return
    loose = space.st[ms.ORDER] == ms.ORDER_UNORDERED or space.st[ms.REQUEST_ORDERS] != 0
    if written & ~before and (loose or a.flags & SYNC) and a.start < m[ml.BUFFERS_START]:
        _on_padding(space, a, s, written & ~before)
    if a.flags & ml.IMMEDIATE or m[ml.X_PAYLOAD]:
        _note_together(space, a)
    r, last = shadow[s + ml.S_RECORDS], 0
    while r:
        after, gone = records[r + ml.R_NEXT], False
        if records[r + ml.R_START] < a.end and a.start < records[r + ml.R_END]:
            if _comes_after(space, a, r):
                covered = a.start <= records[r + ml.R_START] and records[r + ml.R_END] <= a.end
                gone = covered and _lands_first(space, a, r)
            else:
                _race(space, a, r)
        if not gone:
            last = r
        else:
            if last:
                records[last + ml.R_NEXT] = after
            else:
                shadow[s + ml.S_RECORDS] = after
            records[r + ml.R_NEXT] = m[ml.RECORD_FREE]
            m[ml.RECORD_FREE] = r
        r = after
    _add(space, s, a)


# ---- padding that nobody has written, and that travels (`search.device.padding`)


@jit
def _is_written(space, address):
    """Has anybody written a byte?"""
    s = shadow_of(space, address // ms.GRANULE_BYTES)
    return space.shadow[s + ml.S_WRITTEN] >> address % ms.GRANULE_BYTES & 1 != 0


@jit
def _unwritten(space, a, missing):
    """A read of bytes that nobody has written: to take them to where nobody has written either is no use of them."""
    m = space.m
    for at in range(a.start, a.end):
        if missing >> at % ms.GRANULE_BYTES & 1:
            if m[ml.X_PADDING] == 0 or _is_written(space, at + m[ml.X_APART]) or _is_wanted(m, at + m[ml.X_APART]):
                _found(m, ml.FOUND_UNWRITTEN, at, a)
                return
    m[ml.X_PADDING] = 2


@jit
def _is_wanted(m, address):
    """Return whether a byte is to hold something at the end."""
    for k in range(m[ml.N_WANTED]):
        if m[m[ml.WANTED] + 2 * k] <= address and address < m[m[ml.WANTED] + 2 * k + 1]:
            return True
    return False


@jit
def _carried(space, a):
    """A bit for each byte of a write in its granule that the copy has from where somebody has written."""
    bits = 0
    for at in range(a.start, a.end):
        if _is_written(space, at - space.m[ml.X_APART]):
            bits |= 1 << at % ms.GRANULE_BYTES
    return bits


@jit
def _on_padding(space, a, s, missing):
    """An access uses some bytes, and nobody has written them: what writes are recorded there have left padding."""
    records, r = space.records, space.shadow[s + ml.S_RECORDS]
    while r:
        first, end = max(a.start, records[r + ml.R_START]), min(a.end, records[r + ml.R_END])
        if records[r + ml.R_FLAGS] & WRITE and first < end and _bits_between(first, end) & missing:
            _found(space.m, ml.FOUND_UNWRITTEN, first, a)
        r = records[r + ml.R_NEXT]


# ---- what becomes visible at once


@jit
def first_together(st, address):
    """The first granule of what becomes visible at once with an address: that is a granule, less, or several."""
    return (address >> st[ms.ATOMIC_SHIFT] << st[ms.ATOMIC_SHIFT]) // ms.GRANULE_BYTES


@jit
def last_together(st, address):
    """The last granule of that."""
    return ((address >> st[ms.ATOMIC_SHIFT]) + 1 << st[ms.ATOMIC_SHIFT]) - 1 >> _GRANULE_SHIFT


@jit
def _together(space, r, start, end):
    """Return whether what is recorded becomes visible at once with a part of some bytes."""
    shift, at = space.st[ms.ATOMIC_SHIFT], space.records[r + ml.R_START]
    return start >> shift <= at >> shift and at >> shift <= end - 1 >> shift


@jit
def _note_together(space, a):
    """Note what becomes visible at once with a part of another write: an atomic has waited for some, and a
    signal releases some."""
    st, records = space.st, space.records
    for granule in range(first_together(st, a.start), last_together(st, a.end - 1) + 1):
        r = space.shadow[shadow_of(space, granule) + ml.S_RECORDS]
        while r:
            if records[r + ml.R_FLAGS] & WRITE and _together(space, r, a.start, a.end):
                if a.flags & ml.IMMEDIATE and _awaited_by_atomic(space, a, r):
                    records[r + ml.R_FLAGS] |= ml.IMMEDIATE
                if space.m[ml.X_PAYLOAD]:
                    _keep_released(space, a, r)
            r = records[r + ml.R_NEXT]


@jit
def _keep_released(space, a, r):
    """A request that signals copies after an own write that `relaxed` keeps before it: its signal releases it too."""
    st, m, records = space.st, space.m, space.records
    number, loose = records[r + ml.R_REQUEST], (a.flags | records[r + ml.R_FLAGS]) & ml.LOOSE
    if (
        st[ms.ORDER] != ms.ORDER_RELAXED
        or not _by_core(m, a.core, records[r + ml.R_ENGINE])
        or m[ml.SIGNALS] == 0
        or loose
    ):
        return
    if number == 0:
        records[r + ml.R_REQUEST] = m[ml.X_PAYLOAD]
    elif number != m[ml.X_PAYLOAD]:
        at = m[ml.CHAINED] + a.core * m[ml.SIGNALS] + number % m[ml.SIGNALS]
        m[at] = max(m[at], number)


@jit
def _awaited_by_atomic(space, a, r):
    """Return whether a recorded write is one that an atomic in the same granule had to wait for."""
    st, m, other = space.st, space.m, space.records[r + ml.R_ENGINE]
    if st[ms.ORDER] == ms.ORDER_FIFO:
        return _on_one_die(m, a.core, other)
    if st[ms.ORDER] == ms.ORDER_UNORDERED or space.records[r + ml.R_FLAGS] & ml.LOOSE:
        return False
    return _by_core(m, a.core, other)


@jit
def delivered(space, granule, start, nbytes, word, epoch):
    """Some bytes of this engine's write of this epoch to a synchronization granule have become visible."""
    records = space.records
    r = space.shadow[granule * ml.SHADOW_WORDS + ml.S_RECORDS]
    while r:
        inside = start <= records[r + ml.R_START] and records[r + ml.R_START] < start + nbytes
        if inside and records[r + ml.R_ENGINE] == word and records[r + ml.R_EPOCH] == epoch:
            records[r + ml.R_FLAGS] |= ml.DELIVERED
        r = records[r + ml.R_NEXT]


@jit
def acquired(space, half, row, core):
    """Somebody has read what the writes in this clock released: every one of them that had to come before is visible.

    These are the writes to the bytes that become visible together with the 4 bytes that were read.  ``core`` has seen
    them without acquiring; -1 if the read acquires.
    """
    st, clocks, records = space.st, space.clocks, space.records
    for granule in range(first_together(st, half), last_together(st, half) + 1):
        r = space.shadow[shadow_of(space, granule) + ml.S_RECORDS]
        while r:
            known = clocks[row + records[r + ml.R_ENGINE]] >= records[r + ml.R_EPOCH]
            there = space.m[ml.TARGETS] == 0 or records[r + ml.R_FLAGS] & ml.DELIVERED
            if known and there and _together(space, r, half, half + 4):
                records[r + ml.R_FLAGS] |= ml.IMMEDIATE
                if core >= 0:
                    records[r + ml.R_SEEN + core // ml.SEEN_BITS] |= 1 << core % ml.SEEN_BITS
            r = records[r + ml.R_NEXT]


# ---- what comes before


@jit
def _by_core(m, i, word):
    """Return whether an engine is the scalar unit or a pipe of core ``i``."""
    return word // m[ml.PER_CORE] == i and word % m[ml.PER_CORE] < ml.ENGINE_DMA


@jit
def _on_one_die(m, i, word):
    """Return whether an engine is on the die of core ``i``."""
    return m[m[ml.CORE_DIE] + word // m[ml.PER_CORE]] == m[m[ml.CORE_DIE] + i]


@jit
def _knows(space, word, epoch):
    """Does the instruction under judgement know of an epoch?"""
    m, clocks = space.m, space.clocks
    return clocks[m[ml.X_KNOWN] + word] >= epoch or clocks[m[ml.X_ISSUED] + word] >= epoch


@jit
def _happened(space, a, r):
    """Return whether what is recorded is known to have happened.  A descriptor's own reads and writes go together."""
    word, epoch = space.records[r + ml.R_ENGINE], space.records[r + ml.R_EPOCH]
    return (word == a.word and epoch == a.epoch) or _knows(space, word, epoch)


@jit
def _visible_to(space, a, r):
    """Return whether a recorded write is known to be visible to a read, or the machine itself keeps it before."""
    st, m, records = space.st, space.m, space.records
    epoch, flags, number = records[r + ml.R_EPOCH], records[r + ml.R_FLAGS], records[r + ml.R_REQUEST]
    core, engine = records[r + ml.R_ENGINE] // m[ml.PER_CORE], records[r + ml.R_ENGINE] % m[ml.PER_CORE]
    if a.start >= m[ml.BUFFERS_START] or m[ml.TARGETS] == 0 or flags & ml.IMMEDIATE or engine >= ml.ENGINE_DMA:
        return _happened(space, a, r)
    if records[r + ml.R_ENGINE] == a.word and engine == SCALAR and not a.flags & WRITE:  # it loads its stores in flight
        return True
    if st[ms.CACHE_LINES] and engine == SCALAR:  # when others see its line is no matter of order
        return _happened(space, a, r)
    die, strong = a.start >> st[ms.DIE_SHIFT], st[ms.REQUEST_ORDERS] == ms.ASKS_SOME_STRONG and flags & ml.LOOSE == 0
    if strong and _knows(space, monitor_clocks.strong_word(m, core, engine, die), epoch):
        return True
    if number and m[ml.SIGNALS] and _knows(space, monitor_clocks.signal_word(m, core, number), number):
        return True
    return _knows(space, monitor_clocks.visible_word(m, core, engine, die), epoch)


@jit
def _comes_after(space, a, r):
    """Does a write come after what is recorded?

    Writes of one core to one granule, under `fifo` of one die, become visible in the order in which they happen.
    """
    m, word = space.m, space.records[r + ml.R_ENGINE]
    if not space.records[r + ml.R_FLAGS] & WRITE:
        return _happened(space, a, r)
    if a.engine < ml.ENGINE_DMA and _by_core(m, a.core, word):
        return _happened(space, a, r)
    if space.st[ms.ORDER] == ms.ORDER_FIFO and _on_one_die(m, a.core, word):
        return _happened(space, a, r)
    return _visible_to(space, a, r)


@jit
def _lands_first(space, a, r):
    """Return whether what is recorded is visible before a write ordered after it can be.  Not so under `unordered`."""
    st, m, clocks, records = space.st, space.m, space.clocks, space.records
    if (st[ms.ORDER] != ms.ORDER_UNORDERED and not st[ms.REQUEST_ORDERS]) or not records[r + ml.R_FLAGS] & WRITE:
        return True
    word = records[r + ml.R_ENGINE]
    if m[ml.FENCES] and a.engine < ml.ENGINE_DMA and _by_core(m, a.core, word):
        if clocks[monitor_clocks.fence_row(m, a.core) + word] >= records[r + ml.R_EPOCH]:
            return True
    return _visible_to(space, a, r)


# ---- what is found, and what is remembered


@jit
def _race(space, a, r):
    """Two accesses that nothing orders: a violation unless both synchronize (`docs/machine.md`)."""
    m, records = space.m, space.records
    flags, word = records[r + ml.R_FLAGS], records[r + ml.R_ENGINE]
    if (a.flags | flags) & TENTATIVE:
        return
    first, end = max(a.start, records[r + ml.R_START]), min(a.end, records[r + ml.R_END])
    s = shadow_of(space, a.start // ms.GRANULE_BYTES)
    whole = _bits_between(first, end) & ~space.shadow[s + ml.S_WRITTEN] == 0
    if m[ml.JUDGED] != ml.JUDGE_ALL or (whole and (_is_sync(a.flags, flags) or _is_sync(flags, a.flags))):
        return
    both = a.flags & flags
    if both & WRITE and both & WHOLE and _has_flags(space.st, m, a.start // ms.GRANULE_BYTES):
        return
    if both & WRITE and both & WHOLE and _has_seen(space, r, a.core):
        return
    if m[ml.STOP] == 0:
        m[ml.V_CORE_2], m[ml.V_ENGINE_2] = word // m[ml.PER_CORE], word % m[ml.PER_CORE]
        m[ml.V_SITE_2], m[ml.V_FLAGS_2] = records[r + ml.R_SITE], flags
        m[ml.V_SEEN] = _seen_at(space, a, r) if m[ml.PENDING] else 0
        _found(m, ml.FOUND_RACE, max(a.start, records[r + ml.R_START]), a)


@jit
def _has_seen(space, r, core):
    """Has a core seen a recorded write in its word by a read that does not acquire?"""
    seen = ml.R_SEEN + core // ml.SEEN_BITS
    return space.m[ml.SEEN_WORDS] != 0 and space.records[r + seen] >> core % ml.SEEN_BITS & 1 != 0


@jit
def _seen_at(space, a, r):
    """Return the site + 1 of the read that does not acquire, and else would order an access after what is recorded."""
    m, issued, word = space.m, space.m[ml.X_ISSUED], space.records[r + ml.R_ENGINE]
    m[ml.X_ISSUED] = seen = monitor_clocks.pending_row(m, a.core)
    ordered = _comes_after(space, a, r) if a.flags & WRITE else _visible_to(space, a, r)
    m[ml.X_ISSUED] = issued
    return space.clocks[seen + m[ml.WORDS] + word] + 1 if ordered else 0


@jit
def _is_sync(one, other):
    """Return whether the first is a synchronization, and the second another or a whole write, which may be a flag."""
    return one & SYNC != 0 and (other & SYNC != 0 or (other & WRITE != 0 and other & WHOLE != 0))


@jit
def _found(m, code, at, a):
    """Take down a violation; the first one of a run is kept."""
    if m[ml.STOP] == 0:
        m[ml.STOP] = code
        m[ml.V_AT], m[ml.V_CORE], m[ml.V_ENGINE], m[ml.V_SITE], m[ml.V_FLAGS] = at, a.core, a.engine, a.site, a.flags


@jit
def _fill(m, records, r, a):
    records[r + ml.R_START], records[r + ml.R_END], records[r + ml.R_FLAGS] = a.start, a.end, a.flags
    records[r + ml.R_SITE], records[r + ml.R_REQUEST] = a.site, m[ml.X_PAYLOAD]
    records[r + ml.R_ENGINE], records[r + ml.R_EPOCH] = a.word, a.epoch
    for w in range(m[ml.SEEN_WORDS]):
        records[r + ml.R_SEEN + w] = 0


@jit
def _add(space, s, a):
    """Put a record in front of the granule's list."""
    m, shadow, records = space.m, space.shadow, space.records
    r = m[ml.RECORD_FREE]
    if r:
        m[ml.RECORD_FREE] = records[r + ml.R_NEXT]
    else:
        r = m[ml.RECORD_TOP]
        end = r + ml.RECORD_WORDS + m[ml.SEEN_WORDS]
        if end > records.size:
            m[ml.STOP] = ml.GROW
            return
        m[ml.RECORD_TOP] = end
    _fill(m, records, r, a)
    records[r + ml.R_NEXT] = shadow[s + ml.S_RECORDS]
    shadow[s + ml.S_RECORDS] = r


@jit
def save(space, start, nbytes):
    """Keep what the granules of a range held before their first write of the run."""
    mem, m, shadow, undo = space.mem, space.m, space.shadow, space.undo
    if start < 0 or nbytes <= 0 or start > mem.size - nbytes:  # the action will be refused
        return
    for granule in range(start // ms.GRANULE_BYTES, (start + nbytes - 1) // ms.GRANULE_BYTES + 1):
        s = shadow_of(space, granule)
        if shadow[s + ml.S_WRITTEN] & ml.SAVED:
            continue
        place = m[ml.N_UNDO] * ml.UNDO_WORDS
        if place + ml.UNDO_WORDS > undo.size:
            m[ml.STOP] = ml.GROW
            return
        shadow[s + ml.S_WRITTEN] |= ml.SAVED
        undo[place] = granule
        for w in range(4):
            undo[place + 1 + w] = load_i64(mem, granule * ms.GRANULE_BYTES + 8 * w)
        m[ml.N_UNDO] += 1
