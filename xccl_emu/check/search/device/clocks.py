"""Order inside a core: may two of its pipes touch the same bytes at once?

A search runs what is local to a core at once, so it sees the pipes of a core in one order only.  That is sound as
long as every two accesses of a core to the same bytes, one of them a write, are ordered by its own flags, issues and
quiets (then no other order could give anything else), and this is checked with vector clocks: whichever order was
taken, an access that is not ordered after an earlier, conflicting one is reported (`inside`).

A vector is one word: four lanes of 13 bits, the clocks of the four pipes, and above them 11 bits that say for which
DMA descriptors the completion is known, and for which reused ones the completion before (`inside.note_ring`).  A
pipe's own clock ticks when it releases (sets a flag; the scalar unit also when it issues).  A quiet makes everything
known, so all starts again; what was noted before it can be forgotten.

Writes to memory are visible late: to the core's own reads, other than a scalar load of a scalar store, not before a
quiet.  The scalar unit may also learn what mtu-out has done from what others answered.  Most kernels do not rely on
that, and knowing it would make states differ that are alike, so a search is made without at first, and only where that
reports a race, or an event set twice, it is made again with it (`JOINING`): then a poll or load of a flag, and a
barrier that is passed, make known what mtu-out had done before the latest flag of it that is visible by then.  Each
delivery of a flag being explored, a race that is hidden so in one run is shown by another, in which it comes later.
Under `fifo` an answer to a flag may show that the data before it is visible, too; a search then has all writes in
flight, and takes those for visible that are when the answer comes (elsewhere it makes some visible early, which says
nothing).
"""

from xccl_emu.check.device.accesses import AGENT_DMA
from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.lang.requests import DMA, SCALAR
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.pipes import pipe_of
from xccl_emu.machine.device.words import call, jit

_LANE = 13
_LANE_MASK = (1 << _LANE) - 1
DMA_SHIFT = 4 * _LANE


@jit
def core_of(ck, i):
    """The number in the pod of the core with number ``i`` in the search."""
    return ck[ck[cs.CORES] + i * cs.CORE_WORDS]


@jit
def block_of(ck, i):
    """Return where the block of the core with number ``i`` begins in the checker state."""
    return ck[cs.BLOCKS] + i * cs.BLOCK


@jit
def lane(vector, pipe):
    """The clock of a pipe in a vector."""
    return vector >> (_LANE * pipe) & _LANE_MASK


@jit
def joined(one, other):
    """Return what is known to either of two vectors."""
    result = (one | other) >> DMA_SHIFT << DMA_SHIFT
    for pipe in range(4):
        result |= max(lane(one, pipe), lane(other, pipe)) << (_LANE * pipe)
    return result


@jit
def shared(one, other):
    """Return what is known to both of two vectors."""
    result = (one & other) >> DMA_SHIFT << DMA_SHIFT
    for pipe in range(4):
        result |= min(lane(one, pipe), lane(other, pipe)) << (_LANE * pipe)
    return result


@jit
def forget_all(ck, block):
    """Start again: everything that the core did is known to all of its pipes."""
    for pipe in range(4):
        ck[block + cs.VECTORS + pipe] = 1 << (_LANE * pipe)
    ck[block + cs.SHARED_VECTOR], ck[block + cs.N_FLYING], ck[block + cs.FENCE_VECTOR] = 0, 0, 0
    for n in range(cs.FLYING_MAX):
        ck[block + cs.FLYING + n] = 0
    for k in range(ck[block + cs.N_RECORDS] * cs.RECORD_WORDS):
        ck[block + cs.RECORDS + k] = 0
    ck[block + cs.N_RECORDS] = 0
    for k in range(ck[block + cs.N_EVENTS_SET]):
        ck[block + cs.EVENTS_SET + 2 * k + 1] = 0
    for n in range(ck[block + cs.N_READ]):
        ck[block + cs.READ + n * cs.READ_WORDS + 3] = 0
    for n in range(ck[block + cs.N_CONSUMED] * cs.CONSUMED_WORDS):
        ck[block + cs.CONSUMED + n] = 0
    ck[block + cs.N_CONSUMED] = 0


@jit
def tick(ck, block, pipe):
    """Let a pipe's clock go on, because it has released what it did."""
    at = block + cs.VECTORS + pipe
    if lane(ck[at], pipe) == _LANE_MASK:
        ck[cs.LIMIT] = cs.LIMIT_CLOCK
        return
    ck[at] += 1 << (_LANE * pipe)


# ---- numbers again


@call
def renumber(st, ck, block):
    """Give the clocks of a core their ranks in place of their values: 1 for the least of a pipe's, 2 for the next.

    Clocks are only compared with each other, each with others of its own pipe, and a tick makes one that is larger than
    all.  So nothing else changes, and a kernel that goes round is in the state that it was in.
    """
    for pipe in range(4):
        old, new = _replace(st, ck, block, pipe, 0, 0), 1
        while old <= _LANE_MASK:
            old, new = _replace(st, ck, block, pipe, old, new), new + 1


@jit
def _replace(st, ck, block, pipe, old, new):
    """Make one of a pipe's clocks another one wherever it is kept; the least that is larger, or one beyond all."""
    least, shift = _LANE_MASK + 1, _LANE * pipe
    for k in range(cs.VECTORS, cs.SHARED_VECTOR + 1):
        least = min(least, _replace_at(ck, block + k, shift, old, new))
    for k in range(cs.SNAPSHOTS, cs.EVENTS_SET):  # of DMA and of the last fence, too
        least = min(least, _replace_at(ck, block + k, shift, old, new))
    for n in range(ck[block + cs.N_EVENTS_SET]):
        least = min(least, _replace_at(ck, block + cs.EVENTS_SET + 2 * n + 1, shift, old, new))
    for n in range(ck[block + cs.N_FLYING]):
        least = min(least, _replace_at(ck, block + cs.FLYING + n, shift, old, new))
    for n in range(ck[block + cs.N_RECORDS]):
        at = block + cs.RECORDS + n * cs.RECORD_WORDS
        if ck[at + 2] & 15 == pipe:
            least = min(least, _replace_at(ck, at + 3, 0, old, new))
        if ck[at + 2] & cs.AWAITED and pipe == SCALAR:
            least = min(least, _replace_at(ck, at + 4, 0, old, new))
    for n in range(ck[block + cs.N_READ]):
        at = block + cs.READ + n * cs.READ_WORDS
        if ck[at + 2] >> cs.READ_AGENT == pipe:
            least = min(least, _replace_at(ck, at + 3, 0, old, new))
    for n in range(ck[block + cs.N_CONSUMED]):
        at = block + cs.CONSUMED + n * cs.CONSUMED_WORDS
        if ck[at + 1] == pipe:
            least = min(least, _replace_at(ck, at + 2, 0, old, new))
    for n in range(ck[block + cs.N_MARKS] if st[ms.ORDER] == ms.ORDER_SC else 0):
        at = block + cs.MARKS + n * cs.MARK_WORDS + 2
        if ck[at] >> cs.MARK_AGENT & 15 == pipe:
            least = min(least, _replace_at(ck, at, cs.MARK_CLOCK, old, new))
    return least


@jit
def _replace_at(ck, at, shift, old, new):
    """Likewise of one place: returns its clock if that is larger, or one beyond all."""
    clock = ck[at] >> shift & _LANE_MASK
    if clock == old:
        ck[at] += new - old << shift
    return clock if clock > old else _LANE_MASK + 1


# ---- instructions in the queues


@jit
def snapshot_at(st, base, pipe, j):
    """Return where the scalar's vector at the issue of the j-th instruction in a queue is kept, from the block on."""
    return cs.SNAPSHOTS + (pipe - 1) * ms.QUEUE_DEPTH + (st[pipe_of(base, pipe) + ms.PIPE_HEAD] + j) % ms.QUEUE_DEPTH


@jit
def note_issue(st, ck, block, base, pipe):
    """The scalar unit has put an instruction at the end of a queue."""
    ck[block + snapshot_at(st, base, pipe, st[pipe_of(base, pipe) + ms.PIPE_COUNT] - 1)] = ck[block + cs.VECTORS]
    tick(ck, block, SCALAR)


@jit
def vector_at(st, ck, block, base, pipe, j):
    """Return what the j-th instruction of a queue knows when it runs."""
    return joined(ck[block + cs.VECTORS + pipe], ck[block + snapshot_at(st, base, pipe, j)])


# ---- events


@jit
def _event(source, target, event):
    return (source * ms.N_PIPES + target) << 5 | event


@jit
def note_set(ck, block, source, target, event, vector):
    """An event is set, and carries what its setter knows.

    Its setter must know that it was consumed since it was last set, else another order of the pipes sets it twice.
    """
    for k in range(ck[block + cs.N_CONSUMED]):
        at = block + cs.CONSUMED + k * cs.CONSUMED_WORDS
        if ck[at] == _event(source, target, event):
            if lane(vector, ck[at + 1]) < ck[at + 2] and ck[cs.VIOLATION] == 0:
                cs.accuse(ck, cs.SET_TWICE, 0)
            cs.drop(ck, block + cs.N_CONSUMED, block + cs.CONSUMED, cs.CONSUMED_WORDS, k)
            break
    n = ck[block + cs.N_EVENTS_SET]
    if n == cs.EVENTS_SET_MAX:
        ck[cs.LIMIT] = cs.LIMIT_EVENTS
        return
    ck[block + cs.EVENTS_SET + 2 * n] = _event(source, target, event)
    ck[block + cs.EVENTS_SET + 2 * n + 1] = vector
    ck[block + cs.N_EVENTS_SET] = n + 1


@jit
def _note_consumed(ck, block, key, pipe):
    if ck[block + cs.N_CONSUMED] == cs.EVENTS_SET_MAX:
        _forget_consumed(ck, block)
    n = ck[block + cs.N_CONSUMED]
    if n == cs.EVENTS_SET_MAX:
        ck[cs.LIMIT] = cs.LIMIT_EVENTS
        return
    at = block + cs.CONSUMED + n * cs.CONSUMED_WORDS
    ck[at], ck[at + 1], ck[at + 2] = key, pipe, lane(ck[block + cs.VECTORS + pipe], pipe)
    ck[block + cs.N_CONSUMED] = n + 1


@jit
def _forget_consumed(ck, block):
    """Make room: the pipe that would set an event again knows of most that they were consumed."""
    k = 0
    while k < ck[block + cs.N_CONSUMED]:
        at = block + cs.CONSUMED + k * cs.CONSUMED_WORDS
        setter = (ck[at] >> 5) // ms.N_PIPES
        if setter < DMA and lane(ck[block + cs.VECTORS + setter], ck[at + 1]) >= ck[at + 2]:
            cs.drop(ck, block + cs.N_CONSUMED, block + cs.CONSUMED, cs.CONSUMED_WORDS, k)
        else:
            k += 1


@jit
def brings_more(ck, block, source, target, event, vector):
    """Would an event make known to a pipe what this vector does not know?  So too if it is not set yet."""
    for k in range(ck[block + cs.N_EVENTS_SET]):
        at = block + cs.EVENTS_SET + 2 * k
        if ck[at] == _event(source, target, event):
            return joined(vector, ck[at + 1]) != vector
    return True


@jit
def note_wait(ck, block, source, target, event, pipe):
    """A pipe has consumed an event, and knows what it carried."""
    for k in range(ck[block + cs.N_EVENTS_SET]):
        at = block + cs.EVENTS_SET + 2 * k
        if ck[at] == _event(source, target, event):
            ck[block + cs.VECTORS + pipe] = joined(ck[block + cs.VECTORS + pipe], ck[at + 1])
            cs.drop(ck, block + cs.N_EVENTS_SET, block + cs.EVENTS_SET, 2, k)
            _note_consumed(ck, block, _event(source, target, event), pipe)
            return


@jit
def completion_of(ck, block, k):
    """Return what the completion of a DMA descriptor makes known."""
    return ck[block + cs.DMA_SNAPSHOTS + k] | 1 << (DMA_SHIFT + k)


# ---- loads of shared memory that were made early


@jit
def note_read(ck, block, start, nbytes, agent, site):
    """Keep a read open that an agent of a core made early; one that was explored may find no room, and need not."""
    n = ck[block + cs.N_READ]
    if n == cs.READ_MAX:
        ck[cs.LIMIT] = cs.LIMIT_OPEN if ck[cs.LOCALLY] else ck[cs.LIMIT]
        return
    at = block + cs.READ + n * cs.READ_WORDS
    ck[at], ck[at + 1], ck[at + 2] = start, nbytes, site | agent << cs.READ_AGENT
    ck[at + 3] = lane(ck[block + cs.VECTORS + agent], agent)
    ck[block + cs.N_READ] = n + 1


@jit
def _comes_after(ck, at, vector):
    """Does an instruction with this vector come after a read that was made early?"""
    return lane(vector, ck[at + 2] >> cs.READ_AGENT) >= ck[at + 3]


@jit
def any_read(ck, block, vector):
    """Return whether a read is still open that comes before an instruction with this vector."""
    for n in range(ck[block + cs.N_READ]):
        if _comes_after(ck, block + cs.READ + n * cs.READ_WORDS, vector):
            return True
    return False


@jit
def close_reads(ck, block, vector):
    """Close the reads that an instruction with this vector comes after; a local action closes none (`races`)."""
    n = 0
    while n < ck[block + cs.N_READ] and not ck[cs.LOCALLY]:
        if _comes_after(ck, block + cs.READ + n * cs.READ_WORDS, vector):
            cs.drop(ck, block + cs.N_READ, block + cs.READ, cs.READ_WORDS, n)
        else:
            n += 1


@jit
def knows(vector, agent, clock):
    """Does a vector know of what an agent did when its clock was so?"""
    if agent >= AGENT_DMA:
        return vector >> (DMA_SHIFT + agent - AGENT_DMA) & 1 != 0
    return lane(vector, agent) >= clock
