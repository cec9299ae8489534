"""Who uses each 32-byte piece of memory, and how: what a search may treat as private, as data, or has to explore.

The classes are learned from random walks and then *checked at every access of the search*.  An access that does not
fit its class changes the class for good, and the search begins anew (`RESTART`).  So at the end of a search that was
not restarted every access of every explored run fits.  That is enough: take any run of the whole machine and in it
the first access that does not fit; all before it fits, so the reductions hold up to there and the search has reached
a state in which that access was possible, and would have noticed it.

- LOCAL: one core uses it, with plain accesses, or several and all only read it. Used at once: nobody can tell when.
- OWN: one core uses it, and polls it for equality with a value larger than before, for its own write. Used at once;
  the poll makes the write known to be visible (`inside`).
- DATA: several cores use it, and none synchronizes on it. A full search writes it at once but marks it until the
  fence, or under `sc` the release (`races`), and reads transfers whole.
- STABLE: one core writes it, or all only add to it, and others only poll it; the words that are polled never fall. But
  for `fifo`, a full search makes it visible at once; polls for "at least" are granted at once too, others explored.
- SYNC: whatever else. Explored: when each write becomes visible, and each read.

Why STABLE may be visible at once.  Let w be a write to such a piece, in flight (under `sc`: not made yet) while a poll
of an older value is granted. If the poll is "at least", it is granted by the new value as well, the words never
falling; its result is not used (else the piece is SYNC).  If it is "equal", the new value, if different, makes it wait
for ever, for the value never comes back: so where such a race is possible, the search, which has w visible at once,
finds a deadlock, and the deadlock is a run of the machine.  In either case the verdict is the same.  A plain load of
the piece would tell: a later write may be under way with it, which is a race, and only who explores the piece sees the
two together.
"""

from xccl_emu.check.search.book import (
    BOOK,
    FULL,
    JOINING,
    MASK,
    NOW,
    PIECE_TABLE,
    RESTART,
    call,
    save,
)
from xccl_emu.machine.layout import ORDER, ORDER_FIFO, ORDER_RELAXED
from xccl_emu.machine.words import jit

LOCAL, OWN, DATA, STABLE, SYNC = range(5)

USERS, USES, WRITTEN = 0, 1, 2
PIECE_WORDS = 4
"""Words of a piece: a mask of the cores that use it, `USE_*`, whether it holds what somebody wrote, the class."""
CLASS = 3

USE_READ, USE_WRITE, USE_ADD, USE_EXACT, USE_UNSTABLE = 1, 2, 4, 8, 16
"""Plain read; write; add by mtu-out; synchronizing use whose every value counts; a polled word fell, or by DMA."""
USE_POLL = 32  # shifted left by the number of the polled word in the piece
POLLED = USE_POLL * 15
USE_AT_LEAST = 512  # some poll waits for "at least"
USE_BY_SCALAR, USE_BY_OUT = 1024, 2048
"""Written by scalar stores and atomics; by mtu-out.  Which of the two takes off first is explored."""
USE_AS_DATA, USE_AS_SYNC = 4096, 8192
"""It is part of a transfer that also touches pieces of this class: a transfer is all of one class."""
WRITER_SHIFT = 14
"""Above: the number of the only core that stores there, plus 1, or `MANY`."""
MANY = 255


@jit
def piece_of(ck, address):
    """Where the words of an address' piece are."""
    return ck[PIECE_TABLE] + (address >> 5) * PIECE_WORDS


@call
def touch(st, ck, i, start, nbytes, use):
    """Note that the core with number ``i`` uses bytes so; returns their class, which is the same for all of them.

    Where a transfer touches pieces of several classes, all become of the highest one, so that it can be explored or
    made at once as a whole.
    """
    lowest, highest = _touch_each(st, ck, i, start, nbytes, use)
    if lowest != highest:
        as_one = USE_AS_DATA if highest == DATA else USE_AS_SYNC
        lowest, highest = _touch_each(st, ck, i, start, nbytes, use | as_one)
    return highest


@jit
def _touch_each(st, ck, i, start, nbytes, use):
    lowest, highest = SYNC, LOCAL
    for p in range(start >> 5, (start + nbytes - 1 >> 5) + 1):
        at = ck[PIECE_TABLE] + p * PIECE_WORDS
        users, uses, writer = ck[at + USERS] | 1 << i, ck[at + USES] | use, ck[at + USES] >> WRITER_SHIFT
        if use & (USE_WRITE | USE_ADD):
            uses = _written_by(uses, i)
        if users != ck[at + USERS] or uses != ck[at + USES]:
            before, fresh = ck[at + CLASS], ck[at + USERS] == 0
            ck[at + USERS], ck[at + USES] = users, uses
            ck[at + CLASS] = _class(st, ck, users, uses)
            if (ck[at + CLASS] != before and not fresh) or (ck[at + CLASS] > OWN and users & ~ck[MASK]):
                ck[RESTART] = 1  # the second: cores that are searched apart share something
            if ck[at + CLASS] > DATA and uses & USE_READ and uses >> WRITER_SHIFT != writer:
                ck[RESTART] = 1  # whoever reads it was taken not to write it
        lowest, highest = min(lowest, ck[at + CLASS]), max(highest, ck[at + CLASS])
    return lowest, highest


@jit
def _written_by(uses, i):
    writer = uses >> WRITER_SHIFT
    if writer == 0:
        return uses | i + 1 << WRITER_SHIFT
    return uses if writer == i + 1 else uses | MANY << WRITER_SHIFT


@jit
def _class(st, ck, users, uses):
    if uses & USE_AS_SYNC:
        return SYNC
    least = DATA if uses & USE_AS_DATA else LOCAL
    if not uses & (USE_WRITE | USE_ADD):
        return least
    relaxed, early = ck[FULL] and st[ORDER] == ORDER_RELAXED, ck[FULL] and st[ORDER] != ORDER_FIFO
    both = uses & USE_BY_SCALAR and uses & USE_BY_OUT
    if users & users - 1 == 0:
        if not uses & (POLLED | USE_EXACT):
            return least
        alone = relaxed and not both and not uses & (USE_ADD | USE_EXACT | USE_UNSTABLE | USE_AT_LEAST)
        return OWN if alone and least == LOCAL else SYNC
    if not uses & (POLLED | USE_ADD | USE_EXACT):
        return DATA
    writer = uses >> WRITER_SHIFT
    one_way = uses & USE_WRITE == 0 or (uses & USE_ADD == 0 and writer != MANY)
    if early and one_way and not both and not ck[JOINING] and not uses & (USE_READ | USE_EXACT | USE_UNSTABLE):
        return STABLE
    return SYNC


@jit
def worst_class(ck, start, nbytes):
    """The highest class among the pieces of some bytes, as far as it is known."""
    worst = LOCAL
    for p in range(start >> 5, (start + nbytes - 1 >> 5) + 1):
        worst = max(worst, ck[ck[PIECE_TABLE] + p * PIECE_WORDS + CLASS])
    return worst


@jit
def may_write(ck, i, start, nbytes):
    """Does a core itself write to some of these bytes' pieces?  Then when its writes become visible matters to it."""
    for p in range(start >> 5, (start + nbytes - 1 >> 5) + 1):
        writer = ck[ck[PIECE_TABLE] + p * PIECE_WORDS + USES] >> WRITER_SHIFT
        if writer == i + 1 or writer == MANY:
            return True
    return False


@jit
def two_pipes_write(ck, start):
    """Do scalar stores and mtu-out both write to a piece?  Then which of them takes off first is a choice."""
    uses = ck[ck[PIECE_TABLE] + (start >> 5) * PIECE_WORDS + USES]
    return uses & USE_BY_SCALAR != 0 and uses & USE_BY_OUT != 0


@call
def mark_written(mem, st, ck, start, nbytes):
    """Note that bytes hold what somebody wrote; a part of the state."""
    for p in range(start >> 5, (start + nbytes - 1 >> 5) + 1):
        at = ck[PIECE_TABLE] + p * PIECE_WORDS + WRITTEN
        if ck[at] == 0:
            save(mem, st, ck, BOOK | NOW, at, 1)
            ck[at] = 1


@call
def never_written(ck, start, nbytes):
    """The first byte of a piece among these that nobody has written, or -1."""
    for p in range(start >> 5, (start + nbytes - 1 >> 5) + 1):
        if ck[ck[PIECE_TABLE] + p * PIECE_WORDS + WRITTEN] == 0:
            return max(start, p << 5)
    return -1
