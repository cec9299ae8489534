"""Who uses each 32-byte granule of memory, and how: what a search may treat as private, as data, or has to explore.

There are two tables. *Frozen* (`USERS`, `USES`, `CLASS`) is all that a reduction may read; it does not change while a
search goes on. *Seen* (`SEEN_USERS`, `SEEN_USES`) is what accesses write; it only grows. The moment that anything is
seen that is not frozen, a bit of any kind, the search ends (`RESTART`), what was seen is frozen, and all is searched
again. So when a search has ended without that, every access of every explored run is in the table that it went by.
`docs/soundness.md` has the argument why this is enough.

- LOCAL: one core uses it, with plain accesses, or several and all only read it. Used at once: nobody can observe when.
- OWN: one core uses it, writes it by mtu-out and polls it for equality; what is polled grows with each write. Written
  at once; polled at once where mtu-out has nothing left to write, so that no write can prevent the poll, else explored.
  The poll makes the write known to be visible (`inside`).
- DATA: several cores use it, and none synchronizes on it. A full search writes it at once but marks it until the
  quiet, or under `sc` the release (`races`), and reads transfers whole.
- STABLE: one core writes it, or all only add to it, and others only poll it; the words that are polled never fall.
  Under `sc` and `relaxed` a full search makes it visible at once; polls for "at least" are granted at once too,
  others explored.
- FIELD: one core's mtu-out writes it, and others, or that one, poll it and read what is next to the flag. Under
  `relaxed` a full search makes it visible at once and marks it, as DATA, and polls are granted at once (`fields`).
- SYNC: whatever else. Explored: when each write becomes visible, and each read.
"""

from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.words import call, jit

LOCAL, OWN, DATA, STABLE, FIELD, SYNC = range(6)
NO_GRANULE = 1 << 60
"""After all granules."""
ALL_BYTES = (1 << 32) - 1
"""Uses of a granule, a bit each."""

USERS, USES, CLASS, SEEN_USERS, SEEN_USES = range(5)
GRANULE_WORDS = 5
"""Words of a granule: frozen, a mask of the cores that use it, `USE_*` and the class; seen, the first two again."""

USE_READ, USE_WRITE, USE_ADD, USE_EXACT, USE_UNSTABLE = 1, 2, 4, 8, 16
"""Plain read; write; add by mtu-out; synchronizing use whose every value counts; a polled word fell, or by DMA."""
USE_POLL = 32  # shifted left by the number of the polled word in the granule
POLLED = USE_POLL * 15
USE_AT_LEAST = 512  # some poll waits for "at least"
USE_BY_SCALAR, USE_BY_OUT = 1024, 2048
"""Written by scalar stores and atomics; by mtu-out.  Which of the two takes off first is explored."""
USE_AS_DATA, USE_AS_SYNC = 4096, 8192
"""It is part of a transfer that also touches granules of this class: a transfer is all of one class."""
USE_TORN = 1 << 14
"""Written by DMA, so not at once: a poll of it is an access like any other (`races`)."""
USE_UNORDERED = 1 << 15
"""Nothing orders a write to it and another one, which may be at once, or its owner's return: it is explored."""
USE_LATE = 1 << 16
"""Written by another core when its owners have returned: so when they return matters."""
USE_IN_TURN = 1 << 17
"""Under `fifo` its writes keep their turn among the writes of their die, since others may rely on that."""
USE_CACHED, USE_PAST = 1 << 18, 1 << 19
"""Through the cache of a scalar unit, its whole line; past it, where there is one."""
WRITER_SHIFT = 20
"""Above: the number of the only core that stores there, plus 1, or `MANY`."""
MANY = 255
READER_SHIFT = 28
"""Above: likewise of the only core that reads or polls there."""
READ_BY_MANY = USE_READ | MANY << READER_SHIFT
"""Expected bytes: their owners read them."""
USE_AS_FIELD = 1 << 36
"""As `USE_AS_DATA`: together with a field."""
_READS = USE_READ | USE_EXACT | POLLED


@jit
def granule_of(ck, address):
    """Return where the words of an address' granule are."""
    return ck[cs.GRANULE_TABLE] + (address >> 5) * GRANULE_WORDS


@call
def touch(ck, i, start, nbytes, use):
    """Note that the core with number ``i`` uses bytes so; returns their class, which is the same for all of them.

    Where a transfer touches granules of several classes, all are to become of the highest one, so that it can be
    explored or made at once as a whole.  Granules that become visible at once have the same users and uses, too.
    """
    unit = ck[cs.UNIT_GRANULES]
    first, last = (start >> 5) // unit * unit, (start + nbytes - 1 >> 5) // unit * unit + unit - 1
    lowest, highest = SYNC, LOCAL
    for p in range(first, last + 1):
        _see_core(ck, i, p, use)
        of_granule = ck[ck[cs.GRANULE_TABLE] + p * GRANULE_WORDS + CLASS]
        lowest, highest = min(lowest, of_granule), max(highest, of_granule)
    if lowest != highest:
        for p in range(first, last + 1):
            as_field = USE_AS_SYNC if highest == SYNC else USE_AS_FIELD
            see(ck, p, 1 << i, USE_AS_DATA if highest == DATA else as_field)
    return highest


@jit
def _see_core(ck, i, p, use):
    """Note a use of a granule by a core."""
    at = ck[cs.GRANULE_TABLE] + p * GRANULE_WORDS
    use |= _only(ck[at + SEEN_USES], i, WRITER_SHIFT) if use & (USE_WRITE | USE_ADD) else 0
    see(ck, p, 1 << i, use | (_only(ck[at + SEEN_USES], i, READER_SHIFT) if use & _READS else 0))


@jit
def see(ck, p, users, uses):
    """Note users and uses of a granule; the search has to begin again if one of them was not seen before."""
    at = ck[cs.GRANULE_TABLE] + p * GRANULE_WORDS
    users, uses = ck[at + SEEN_USERS] | users, ck[at + SEEN_USES] | uses
    if users != ck[at + SEEN_USERS] or uses != ck[at + SEEN_USES]:
        ck[at + SEEN_USERS], ck[at + SEEN_USES] = users, uses
        ck[cs.GREW_FIRST], ck[cs.GREW_LAST] = min(ck[cs.GREW_FIRST], p), max(ck[cs.GREW_LAST], p)
        ck[cs.RESTART] = 1


@jit
def see_bytes(ck, start, end, use):
    """Note a use of all granules of some bytes."""
    for p in range(start >> 5, (end - 1 >> 5) + 1):
        see(ck, p, 0, use)


@cs.entry
def freeze(st, ck):
    """From now on go by all that was seen."""
    for p in range(ck[cs.GREW_FIRST], ck[cs.GREW_LAST] + 1):
        at = ck[cs.GRANULE_TABLE] + p * GRANULE_WORDS
        ck[at + USERS], ck[at + USES] = ck[at + SEEN_USERS], ck[at + SEEN_USES]
        ck[cs.EXPLORED] -= 1 if ck[at + CLASS] == SYNC else 0
        ck[at + CLASS] = _class(st, ck, ck[at + USERS], ck[at + USES])
        ck[cs.EXPLORED] += 1 if ck[at + CLASS] == SYNC else 0
        _see_stored(ck, ck[at + CLASS], ck[at + USERS], ck[at + USES])
    ck[cs.GREW_FIRST], ck[cs.GREW_LAST] = NO_GRANULE, -1


@jit
def _see_stored(ck, class_, users, uses):
    """Note whose cache may change an explored line: it matters what its core knows when that is evicted."""
    if class_ == SYNC and uses & USE_CACHED and uses & USE_BY_SCALAR:
        writer = writer_of(uses)
        ck[cs.EVICTS] |= 1 << writer - 1 if 0 < writer < MANY else users


@cs.entry
def explore_flags(st, ck, n_granules):
    """Take no flag for stable any more: from now on it matters when each of its writes becomes visible."""
    ck[cs.JOINING] = 1
    for p in range(n_granules):
        at = ck[cs.GRANULE_TABLE] + p * GRANULE_WORDS
        if ck[at + CLASS] == STABLE or ck[at + CLASS] == FIELD:
            ck[at + SEEN_USES] |= USE_UNSTABLE
    ck[cs.GREW_FIRST], ck[cs.GREW_LAST] = 0, n_granules - 1
    freeze(st, ck)


@cs.entry
def explore_written(st, ck, n_granules, cores):
    """Explore when each write to a flag becomes visible, if one of these cores, a bit each, may write it."""
    for p in range(n_granules):
        at = ck[cs.GRANULE_TABLE] + p * GRANULE_WORDS
        writer = writer_of(ck[at + USES])
        theirs = ck[at + USERS] & cores if writer == MANY or writer == 0 else cores >> writer - 1 & 1
        if theirs and (ck[at + CLASS] == STABLE or ck[at + CLASS] == FIELD):
            see(ck, p, 0, USE_UNORDERED)
    freeze(st, ck)


@jit
def writer_of(uses):
    """The number of the only core that stores to a granule, plus 1; `MANY`, or 0 for none."""
    return uses >> WRITER_SHIFT & MANY


@jit
def reader_of(uses):
    """Likewise of the only core that reads or polls it."""
    return uses >> READER_SHIFT & MANY


@jit
def _only(uses, i, shift):
    """Return what to note of the only core that uses a granule so, when the core with number ``i`` does."""
    known = uses >> shift & MANY
    return (i + 1 if known == 0 or known == i + 1 else MANY) << shift


@jit
def all_in_flight(st, ck):
    """Return whether no write is made visible early, since what becomes visible may release others before it.

    So where requests are strong; and where they signal, if answers are to show a core what of its own is visible.
    """
    return st[ms.REQUEST_ORDERS] == ms.ASKS_SOME_STRONG or (st[ms.SOME_SIGNAL] != 0 and ck[cs.JOINING] != 0)


@jit
def _class(st, ck, users, uses):
    if uses & (USE_AS_SYNC | USE_UNORDERED) or (uses & USE_AS_FIELD and not uses & POLLED):
        return SYNC
    if uses & USE_CACHED and uses & (USE_WRITE | USE_ADD):  # who reads what when is never local, but for a core's own
        return SYNC if users & users - 1 or uses & (USE_PAST | USE_AS_DATA) else LOCAL
    least = DATA if uses & USE_AS_DATA else LOCAL
    if not uses & (USE_WRITE | USE_ADD):
        return least
    relaxed = (
        ck[cs.FULL] and st[ms.ORDER] == ms.ORDER_RELAXED and not st[ms.REQUEST_ORDERS] and not all_in_flight(st, ck)
    )
    fifo = st[ms.ORDER] == ms.ORDER_FIFO and ck[cs.UNIT_GRANULES] == 1
    early = relaxed or (ck[cs.FULL] and (st[ms.ORDER] == ms.ORDER_SC or fifo))
    both = uses & USE_BY_SCALAR and uses & USE_BY_OUT
    field = relaxed and _may_be_field(st, ck, uses)
    if users & users - 1 == 0:
        if not uses & (POLLED | USE_EXACT):
            return least
        simple = not uses & (USE_ADD | USE_EXACT | USE_UNSTABLE | USE_AT_LEAST)
        alone = relaxed and simple and not uses & USE_BY_SCALAR  # scalar loads see scalar stores that are in flight
        if alone and least == LOCAL and not uses & USE_AS_FIELD:
            return OWN
        return SYNC if not field else FIELD if uses & (USE_READ | USE_AS_FIELD) else STABLE
    if not uses & (POLLED | USE_ADD | USE_EXACT):
        return DATA
    if field and uses & (USE_READ | USE_AS_FIELD):
        return FIELD
    one_way = uses & USE_WRITE == 0 or (uses & USE_ADD == 0 and writer_of(uses) != MANY)
    simple = not uses & (USE_READ | USE_EXACT | USE_UNSTABLE | USE_IN_TURN)  # what keeps its turn is not made at once
    if early and one_way and not both and not ck[cs.JOINING] and simple:
        return STABLE
    return SYNC


@jit
def _may_be_field(st, ck, uses):
    """Return whether, under `relaxed`, one core's mtu-out writes a granule at once and its polled values never fall."""
    plain = not st[ms.CACHE_LINES] and not st[ms.SOME_SIGNAL] and ck[cs.UNIT_GRANULES] == 1
    by_one = uses & USE_BY_OUT and not uses & (USE_BY_SCALAR | USE_ADD) and writer_of(uses) != MANY
    simple = uses & POLLED and not uses & (USE_EXACT | USE_UNSTABLE | USE_AS_DATA)
    return ck[cs.FULL] == cs.MOST and not ck[cs.JOINING] and plain and by_one and simple


@jit
def worst_class(ck, start, nbytes):
    """The highest class among the granules of some bytes, as far as it is known."""
    worst = LOCAL
    for p in range(start >> 5, (start + nbytes - 1 >> 5) + 1):
        worst = max(worst, ck[ck[cs.GRANULE_TABLE] + p * GRANULE_WORDS + CLASS])
    return worst


@jit
def shared(ck, start, nbytes):
    """Return whether some bytes are in memory and a granule of theirs is explored."""
    inside = start >= 0 and nbytes > 0 and start + nbytes <= ck[cs.MEMORY_END]
    return inside and worst_class(ck, start, nbytes) == SYNC


@jit
def may_write(ck, i, start, nbytes):
    """Does a core itself write to some of these bytes' granules?  Then when its writes become visible matters to it."""
    for p in range(start >> 5, (start + nbytes - 1 >> 5) + 1):
        writer = writer_of(ck[ck[cs.GRANULE_TABLE] + p * GRANULE_WORDS + USES])
        if writer == i + 1 or writer == MANY:
            return True
    return False


@jit
def by_others_too(ck, i, start, nbytes):
    """May a core touch what its mtu-out writes otherwise, too: by scalar unit or DMA, or as a reader?"""
    for p in range(start >> 5, (start + nbytes - 1 >> 5) + 1):
        uses = ck[ck[cs.GRANULE_TABLE] + p * GRANULE_WORDS + USES]
        if uses & (USE_BY_SCALAR | USE_TORN) or reader_of(uses) == i + 1 or reader_of(uses) == MANY:
            return True
    return False


@jit
def any_used(ck, start, nbytes, use):
    """Return whether one of some bytes' granules is used in all of these ways."""
    for p in range(start >> 5, (start + nbytes - 1 >> 5) + 1):
        if ck[ck[cs.GRANULE_TABLE] + p * GRANULE_WORDS + USES] & use == use:
            return True
    return False


@jit
def has_flags(ck, p):
    """Return whether a granule is in a metadata area: only there may two writes at once go without an order."""
    offset = (p << 5) % ck[cs.DIE_BYTES]
    return ck[cs.META_START] <= offset and offset < ck[cs.META_END]


@jit
def bytes_in(p, start, nbytes):
    """A bit for each byte of a granule that is among some bytes."""
    first, end = max(start - (p << 5), 0), min(start + nbytes - (p << 5), 32)
    return (1 << end) - (1 << first)


@call
def mark_written(mem, st, ck, start, nbytes):
    """Note that bytes hold what somebody wrote; a part of the state."""
    for p in range(start >> 5, (start + nbytes - 1 >> 5) + 1):
        at = ck[cs.WRITTEN_TABLE] + 2 * p
        if ck[at] != ALL_BYTES and ck[at] | bytes_in(p, start, nbytes) != ck[at]:
            cs.save(mem, st, ck, cs.CHECKER | cs.NOW, at, 2)
            ck[at] |= bytes_in(p, start, nbytes)
            ck[at + 1] &= ~ck[at]


@call
def never_written(ck, start, nbytes):
    """The first of some bytes that nobody has written, or -1."""
    for p in range(start >> 5, (start + nbytes - 1 >> 5) + 1):
        written = ck[ck[cs.WRITTEN_TABLE] + 2 * p]
        if written != ALL_BYTES:
            missing = bytes_in(p, start, nbytes) & ~written
            b = 0
            while missing >> b & 1 == 0 and b < 32:
                b += 1
            if b < 32:
                return (p << 5) + b
    return -1
