"""Fields: a flag that one core writes, and what its readers find next to it in the same granule.

A write to a field is visible at once, and marked as one of shared data is.  A poll that only this write can have
granted makes it known to its core, and the mark ends.  Where nobody but that core reads the field this is local:
whatever the core does with the field comes before the poll in its program, and is met then, or after it.

A poll for equality is granted at once, too, and stays open like a load that is made early (`races`): had the next write
come before it, it would wait for ever.  Every two accesses to a field that nothing orders are met; then that is seen
(`USE_UNORDERED`), and the granule is explored from then on.
"""

from xccl_emu.check.device import dependence
from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device import clocks, granules
from xccl_emu.lang import requests as rq
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device import pipes
from xccl_emu.machine.device.words import call, jit, load_i64


@jit
def polled_at_once(st, ck, i, base, address, compare):
    """May a poll of a field be granted as soon as it can be, and its core then know of the write that granted it?

    Only if no other core reads the field, and this one has issued nothing but the poll that may read it.
    """
    uses = ck[granules.granule_of(ck, address) + granules.USES]
    if granules.reader_of(uses) == granules.MANY or not _idle(st, base):
        return False
    return not _may_be_missed(st, compare) or ck[clocks.block_of(ck, i) + cs.N_READ] < cs.READ_MAX


@jit
def _may_be_missed(st, compare):
    """Could a later write of a field, whose words do not fall, have prevented a poll?"""
    return dependence.depend(dependence.poll_of(compare), dependence.WRITE, dependence.BYTES, st[ms.ORDER])


@jit
def _idle(st, base):
    """Has a core nothing under way that reads or writes memory, but what its scalar unit is at?"""
    busy = st[pipes.pipe_of(base, rq.MTU_IN) + ms.PIPE_COUNT]
    busy |= st[pipes.pipe_of(base, rq.MTU_OUT) + ms.PIPE_COUNT]
    for k in range(ms.N_DMA_SLOTS):
        busy |= st[base + ms.DMA_SLOTS + k * ms.ENTRY_WORDS]
    return busy == 0


@call
def note_poll(st, ck, i, address, compare, site):
    """A poll of a field was granted: one for equality that was granted early stays open for who writes there."""
    own = granules.writer_of(ck[granules.granule_of(ck, address) + granules.USES]) == i + 1
    if _may_be_missed(st, compare) and ck[cs.LOCALLY] and not own:
        clocks.note_read(ck, clocks.block_of(ck, i), address, 8, rq.SCALAR, site)


@jit
def writer_seen(mem, ck, address, wanted):
    """The number of the core whose latest write to a field was needed for a poll to be granted; -1 if none was.

    What is polled grows with each write (else the granule is explored): so it is that write if the value is the one
    that was asked for.
    """
    writer = granules.writer_of(ck[granules.granule_of(ck, address) + granules.USES])
    return writer - 1 if writer != 0 and load_i64(mem, address) == wanted else -1


@jit
def any_mark(ck, block, address):
    """Return whether a write to the granule of an address is marked."""
    for n in range(ck[block + cs.N_MARKS]):
        mark = block + cs.MARKS + n * cs.MARK_WORDS
        if ck[mark] <= address | 31 and address & ~31 < ck[mark + 1]:
            return True
    return False


@call
def end_marks(ck, block, address):
    """The reader of a field knows of the writes to it: marks end there, and stay on the bytes around it."""
    first, end, n = address & ~31, (address | 31) + 1, 0
    while n < ck[block + cs.N_MARKS]:
        mark = block + cs.MARKS + n * cs.MARK_WORDS
        begins, ends = ck[mark], ck[mark + 1]
        if first <= begins and ends <= end:
            cs.drop(ck, block + cs.N_MARKS, block + cs.MARKS, cs.MARK_WORDS, n)
            continue
        if begins < first and end < ends:
            _split(ck, block, mark, first, end)
        elif begins < end and first < ends:
            ck[mark], ck[mark + 1] = (begins, first) if begins < first else (end, ends)
        n += 1


@jit
def _split(ck, block, mark, first, end):
    """Leave of a mark what is before and after some bytes; all of it where there is no room: more is met then."""
    if ck[block + cs.N_MARKS] < cs.MARKS_MAX:
        other = block + cs.MARKS + ck[block + cs.N_MARKS] * cs.MARK_WORDS
        ck[other], ck[other + 1], ck[other + 2] = end, ck[mark + 1], ck[mark + 2]
        ck[mark + 1] = first
        ck[block + cs.N_MARKS] += 1


@call
def see_read(ck, j, start, end):
    """Explore from now on bytes of a field that a core has read early, since no release has published that read."""
    block = clocks.block_of(ck, j)
    for n in range(ck[block + cs.N_READ]):
        read = block + cs.READ + n * cs.READ_WORDS
        if ck[read] < end and start < ck[read] + ck[read + 1]:
            granules.see_bytes(
                ck, max(start, ck[read]), min(end, ck[read] + ck[read + 1]), granules.USE_UNORDERED
            )  # fmt: skip


@call
def explore_marked(ck, block):
    """Marks are used up: explore from now on those fields that take some; False if none does."""
    found = False
    for n in range(ck[block + cs.N_MARKS]):
        mark = block + cs.MARKS + n * cs.MARK_WORDS
        if granules.worst_class(ck, ck[mark], ck[mark + 1] - ck[mark]) == granules.FIELD:
            granules.see_bytes(ck, ck[mark], ck[mark + 1], granules.USE_UNORDERED)
            found = True
    return found
