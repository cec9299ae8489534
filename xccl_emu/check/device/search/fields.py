"""Fields: a flag that one core writes, and what its readers find beside it in the same granule.

A write to a field is visible at once, and marked as one of shared data is.  A poll that only this write can have
granted tells its core of it, and the mark ends.  Where nobody but that core reads the field, this is local: whatever
the core does with the field comes before the poll in its program, or behind it.

A poll for equality is granted at once, too, and stays open like a load that is made early (`races`): had the next write
come before it, it would wait for ever.  Every two accesses to a field that nothing orders are met in some state; then
that is seen (`USE_UNORDERED`), and the granule is explored from then on.
"""

from xccl_emu.check.device.search.checker_state import (
    LOCALLY,
    MARK_WORDS,
    MARKS,
    MARKS_MAX,
    MEMBERS,
    N_MARKS,
    N_READ,
    READ,
    READ_MAX,
    READ_WORDS,
    N,
    drop,
)
from xccl_emu.check.device.search.clocks import block_of, note_read
from xccl_emu.check.device.search.granules import (
    MANY,
    USE_UNORDERED,
    USES,
    granule_of,
    reader_of,
    see_bytes,
    writer_of,
)
from xccl_emu.lang.requests import CMP_EQ, MTU_IN, MTU_OUT, SCALAR
from xccl_emu.machine.device.layout import DMA_SLOTS, ENTRY_WORDS, N_DMA_SLOTS, PIPE_COUNT
from xccl_emu.machine.device.pipes import pipe_of
from xccl_emu.machine.device.words import call, jit, load_i64


@jit
def polled_at_once(st, ck, i, base, address, compare):
    """May a poll of a field be granted as soon as it can be, and its core then know of the write that granted it?

    Only if no other core reads the field, and this one has issued nothing that may read it beside the poll.
    """
    if reader_of(ck[granule_of(ck, address) + USES]) == MANY or not _idle(st, base):
        return False
    return compare != CMP_EQ or ck[block_of(ck, i) + N_READ] < READ_MAX


@jit
def _idle(st, base):
    """Has a core nothing under way that reads or writes memory, but what its scalar unit is at?"""
    busy = st[pipe_of(base, MTU_IN) + PIPE_COUNT] | st[pipe_of(base, MTU_OUT) + PIPE_COUNT]
    for k in range(N_DMA_SLOTS):
        busy |= st[base + DMA_SLOTS + k * ENTRY_WORDS]
    return busy == 0


@call
def note_poll(ck, i, address, compare, site):
    """A poll of a field was granted; one for equality that was made early stays open for those who write there."""
    own = writer_of(ck[granule_of(ck, address) + USES]) == i + 1
    if compare == CMP_EQ and ck[LOCALLY] and not own:
        note_read(ck, block_of(ck, i), address, 8, SCALAR, site)


@jit
def told_of(mem, ck, address, wanted):
    """The number of the core whose latest write to a field a poll that was granted has waited for; -1 for none.

    What is polled grows with each write (else the granule is explored): so it is that write if the value is the one
    that was asked for.
    """
    writer = writer_of(ck[granule_of(ck, address) + USES])
    return writer - 1 if writer != 0 and load_i64(mem, address) == wanted else -1


@jit
def any_mark(ck, block, address):
    """Is a write to an address' granule marked?"""
    for n in range(ck[block + N_MARKS]):
        at = block + MARKS + n * MARK_WORDS
        if ck[at] < (address | 31) + 1 and address & ~31 < ck[at + 1]:
            return True
    return False


@call
def end_marks(ck, block, address):
    """Who reads a field knows of the writes to it: the marks end there, and stay on what is beside it."""
    first, end, n = address & ~31, (address | 31) + 1, 0
    while n < ck[block + N_MARKS]:
        at = block + MARKS + n * MARK_WORDS
        if ck[at] >= end or ck[at + 1] <= first:
            n += 1
        elif ck[at] >= first and ck[at + 1] <= end:
            drop(ck, block + N_MARKS, block + MARKS, MARK_WORDS, n)
        elif ck[at] < first and ck[at + 1] > end:
            if ck[block + N_MARKS] < MARKS_MAX:  # else it stays: more is seen than need be
                last = block + MARKS + ck[block + N_MARKS] * MARK_WORDS
                ck[last], ck[last + 1], ck[last + 2] = end, ck[at + 1], ck[at + 2]
                ck[at + 1] = first
                ck[block + N_MARKS] += 1
            n += 1
        else:
            ck[at], ck[at + 1] = (end if ck[at] >= first else ck[at]), (first if ck[at] < first else ck[at + 1])
            n += 1


@call
def see_read(ck, j, start, end):
    """Explore from now on what a core has read early of some bytes of a field: it has told nobody of it yet."""
    block = block_of(ck, j)
    for n in range(ck[block + N_READ]):
        at = block + READ + n * READ_WORDS
        if ck[at] < end and start < ck[at] + ck[at + 1]:
            see_bytes(ck, max(start, ck[at]), min(end, ck[at] + ck[at + 1]), USE_UNORDERED)


@call
def note_field(ck, i, start, end):
    """A core writes to a field: nothing orders that behind what another core has read early."""
    for m in range(ck[N]):
        if ck[ck[MEMBERS] + m] != i:
            see_read(ck, ck[ck[MEMBERS] + m], start, end)
