"""What the agents of a core have done to bytes that not all of them know of yet, and races between them.

An agent is a pipe or a DMA descriptor.  What it did is kept until whatever can still come knows of it, or a quiet.
"""

from xccl_emu.check.device import dependence
from xccl_emu.check.device.accesses import AGENT_DMA
from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device import clocks, granules
from xccl_emu.check.search.device.granules import USE_UNORDERED, has_flags, see_bytes
from xccl_emu.check.search.device.spans import adjoin, all_on_die_of
from xccl_emu.lang.requests import SCALAR
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.flight import block_of_core, block_of_die, flight
from xccl_emu.machine.device.pipes import pipe_of
from xccl_emu.machine.device.words import call, jit

WRITES, IN_MEMORY, ALONE, VISIBLE, ADDS, LANDED, COARSE, IN_ROW = 16, 32, 64, 128, 256, 512, 1024, 2048
AWAITED = cs.AWAITED
"""Above the agent. ALONE: not to be made one with its neighbours; VISIBLE: a write that is so for certain; ADDS: a
write that synchronizes whatever it meets; LANDED: it is visible, but the core does not know yet; COARSE: several
reads of memory, with the clock of the latest; IN_ROW: it adds integers of 4 bytes, not a word; AWAITED: it is explored,
and was made while the scalar unit waited for a place (`note_explored`); it has the unit's clock in place of a site."""
AGENT_BEFORE, N_BEFORE = AGENT_DMA + 8, 3
"""Agents of descriptors that were used again: of what they did before, while not all know of it."""
_FENCES = 13
"""Above that: under `relaxed`, how many fences the core has passed since a write to memory."""


@jit
def note_ring(st, ck, block, base, k):
    """A DMA descriptor is used again: nobody knows of its completion yet.

    What it did before goes on under another agent, if something may still come that does not know of it.
    """
    if not _free_agent(ck, block):
        _forget_known(st, ck, block, base)
    n, earlier, least = 0, 0, _known_at_least(st, ck, block, base)
    while n < ck[block + cs.N_RECORDS]:
        at = block + cs.RECORDS + n * cs.RECORD_WORDS
        if ck[at + 2] & 15 != AGENT_DMA + k:
            n += 1
            continue
        if _known_to_all(least, ck[at + 2], ck[at + 3]):
            _drop(ck, block, n)
            continue
        earlier = earlier or _free_agent(ck, block)
        if not earlier:
            ck[cs.DOUBT] = cs.LIMIT_DMA
            _drop(ck, block, n)
            continue
        ck[at + 2] += earlier - (AGENT_DMA + k)
        n += 1
    for pipe in range(4):
        _rename(ck, block + cs.VECTORS + pipe, k, earlier)
    _rename(ck, block + cs.SHARED_VECTOR, k, earlier)
    for j in range(ck[block + cs.N_FLYING]):
        _rename(ck, block + cs.FLYING + j, k, earlier)
    for j in range(cs.SNAPSHOTS, cs.EVENTS_SET):  # of the last fence, too
        _rename(ck, block + j, k, earlier)
    for j in range(ck[block + cs.N_EVENTS_SET]):
        _rename(ck, block + cs.EVENTS_SET + 2 * j + 1, k, earlier)
    ck[block + cs.DMA_SNAPSHOTS + k] = ck[block + cs.VECTORS]


@jit
def _free_agent(ck, block):
    """An agent for what a descriptor did before it was used again, or 0 if all are in use."""
    used = 0
    for n in range(ck[block + cs.N_RECORDS]):
        used |= 1 << (ck[block + cs.RECORDS + n * cs.RECORD_WORDS + 2] & 15)
    for agent in range(AGENT_BEFORE, AGENT_BEFORE + N_BEFORE):
        if not used >> agent & 1:
            return agent
    return 0


@jit
def _forget_known(st, ck, block, base):
    """Drop what descriptors did before they were used again, as far as all that can still come knows of it."""
    known = ck[block + cs.VECTORS]
    for pipe in range(1, 4):
        if st[pipe_of(base, pipe) + ms.PIPE_COUNT]:  # the first in its queue knows least of those in it
            known &= clocks.vector_at(st, ck, block, base, pipe, 0)
    n = 0
    while n < ck[block + cs.N_RECORDS]:
        at = block + cs.RECORDS + n * cs.RECORD_WORDS
        if ck[at + 2] & 15 >= AGENT_BEFORE and clocks.knows(known, ck[at + 2] & 15, 0):
            _drop(ck, block, n)
        else:
            n += 1


@jit
def _rename(ck, at, k, agent):
    """A clock that knew of a descriptor's completion knows of this agent's instead, if it is one, else of neither."""
    knew = ck[at] >> clocks.DMA_SHIFT + k & 1
    ck[at] &= ~(1 << clocks.DMA_SHIFT + k)
    if agent:
        bit = clocks.DMA_SHIFT + agent - AGENT_DMA
        ck[at] = ck[at] & ~(1 << bit) | knew << bit


@jit
def _drop(ck, block, n):
    cs.drop(ck, block + cs.N_RECORDS, block + cs.RECORDS, cs.RECORD_WORDS, n)


@jit
def _known_at_least(st, ck, block, base):
    """Return what all that can still come knows. An idle pipe will learn from the scalar unit."""
    least = ck[block + cs.VECTORS + SCALAR]
    for pipe in range(1, 4):
        if st[pipe_of(base, pipe) + ms.PIPE_COUNT]:
            least = clocks.shared(least, ck[block + cs.VECTORS + pipe])
    return least


@jit
def _known_to_all(least, what, clock):
    """Return whether all that know at least so much know an access."""
    if what & WRITES and what & IN_MEMORY and what & 15 < AGENT_DMA:
        return False  # known, perhaps, but not visible
    return clocks.knows(least, what & 15, clock)


@call
def note_access(st, ck, i, start, nbytes, what, vector, site):
    """Check an access (agent and flags in ``what``) against what the core's other agents did, and note it."""
    core, block, end, agent, writes = (
        clocks.core_of(ck, i),
        clocks.block_of(ck, i),
        start + nbytes,
        what & 15,
        what & WRITES != 0,
    )
    base = block_of_core(st, core)
    own = clocks.lane(vector, agent) if agent < AGENT_DMA else 0
    n, least = 0, _known_at_least(st, ck, block, base)
    while n < ck[block + cs.N_RECORDS]:
        at = block + cs.RECORDS + n * cs.RECORD_WORDS
        first, last, other = ck[at], ck[at + 1], ck[at + 2]
        if other & AWAITED:
            n += 1
            continue
        known = other & 15 == agent or clocks.knows(vector, other & 15, ck[at + 3])
        if first < end and start < last and (writes or other & WRITES) and other & 15 != agent:
            # It may come before the write
            loose = not writes or (agent >= AGENT_DMA and st[ms.ORDER] >= ms.ORDER_RELAXED)
            late = loose and what & IN_MEMORY != 0 and other & WRITES != 0 and other & 15 < AGENT_DMA
            if not known or (late and st[ms.ORDER] != ms.ORDER_SC and other & VISIBLE == 0):
                if other & COARSE:
                    ck[cs.DOUBT] = cs.LIMIT_RECORDS
                elif not _are_flags(ck, max(start, first), min(end, last), what, other):
                    _race_inside(ck, core, at, start, nbytes, agent, writes, site)
                return
        if first < end and start < last and _may_overtake(st, what, other):
            see_bytes(ck, max(start, first), min(end, last), USE_UNORDERED)  # explored: which is visible last
        covered = start <= first and last <= end and (writes or what == other)
        if known and (covered or _known_to_all(least, other, ck[at + 3])):
            _drop(ck, block, n)
        else:
            n += 1
    _add(st, ck, block, start, end, what, own, site)


@call
def note_explored(st, ck, i, start, nbytes, what, vector, awaited):
    """Judge an explored access by what was made of the core while its scalar unit waited for a place in a queue.

    How deep a queue is orders nothing, but no state has such an access open together with what the scalar unit issues
    later.  Where the two depend on each other and nothing else orders them, the search proves nothing.
    """
    block, agent, end = clocks.block_of(ck, i), what & 15, start + nbytes
    for n in range(ck[block + cs.N_RECORDS]):
        at = block + cs.RECORDS + n * cs.RECORD_WORDS
        other = ck[at + 2]
        if other & AWAITED and other & 15 != agent and not clocks.knows(vector, other & 15, ck[at + 3]):
            later = clocks.lane(vector, SCALAR) >= ck[at + 4]  # it was issued when that wait was over
            if later and _by_depth(st, what, other, _share(st, start, end, ck[at], ck[at + 1])):
                ck[cs.DOUBT] = cs.LIMIT_QUEUE
    if awaited and (not what & WRITES or _orders_writes(st) or granules.by_others_too(ck, i, start, nbytes)):
        if ck[block + cs.N_RECORDS] == cs.RECORDS_MAX:
            ck[cs.DOUBT] = cs.LIMIT_QUEUE
        else:
            issued = clocks.lane(ck[block + cs.VECTORS], SCALAR)
            _add(st, ck, block, start, end, what | AWAITED, clocks.lane(vector, agent), issued)


@jit
def forget_awaited(st, ck, block, base):
    """Drop what a full queue alone could order, as far as all that can still come knows of it."""
    n, least = 0, _known_at_least(st, ck, block, base)
    while n < ck[block + cs.N_RECORDS]:
        at = block + cs.RECORDS + n * cs.RECORD_WORDS
        if ck[at + 2] & AWAITED and _known_to_all(least, ck[at + 2], ck[at + 3]):
            _drop(ck, block, n)
        else:
            n += 1


@jit
def _share(st, start, end, other, other_end):
    """Return whether two ranges share what becomes visible at once; a core's writes to one granule keep their order."""
    shift = max(5, st[ms.ATOMIC_SHIFT])
    return start < end and start >> shift <= other_end - 1 >> shift and other >> shift <= end - 1 >> shift


@jit
def _by_depth(st, what, other, shared):
    """Return whether it may be seen that an access was made after one which only a full queue has put before it.

    Of two to one granule, if one writes.  After a read, of any write: others may go by it and write what was read.  Of
    anything after a write, where writes become visible as they take off.
    """
    if other & WRITES:
        return shared or _orders_writes(st)
    return what & WRITES != 0


@jit
def _orders_writes(st):
    """Return whether a write comes before those that take off later, though nobody waits until it is visible."""
    return st[ms.ORDER] < ms.ORDER_RELAXED or st[ms.REQUEST_ORDERS] != 0


@jit
def _may_overtake(st, what, other):
    """May a write of a core, of two to the same bytes, become visible before an earlier one that is recorded?

    Under `unordered`, or where requests ask for orders; whatever these are, since more facts do no harm.  And only if
    they depend on each other: two additions of one width do not.
    """
    both = what & other
    kept = st[ms.ORDER] != ms.ORDER_UNORDERED and not st[ms.REQUEST_ORDERS]
    if kept or not both & WRITES or not both & IN_MEMORY:
        return False
    if not dependence.depend(_effect(what), _effect(other), dependence.OWN_BYTES, dependence.order_of(st)):
        return False
    by_core = what & 15 < AGENT_DMA and other & 15 < AGENT_DMA
    return by_core and not other & VISIBLE and other >> _FENCES == 0


@jit
def _effect(what):
    """Return what a write does to its bytes, as `dependence` names it."""
    if not what & ADDS:
        return dependence.WRITE
    if what & 15 == SCALAR:
        return dependence.FETCH
    return dependence.ADD_ROW if what & IN_ROW else dependence.ADD


@jit
def _are_flags(ck, start, end, what, other):
    """May two writes of a core to some bytes go without an order?  Then these granules are explored from now on."""
    both = what & other
    if not both & WRITES or not both & IN_MEMORY or what & 15 >= AGENT_DMA or other & 15 >= AGENT_DMA:
        return False
    for p in range(start >> 5, (end - 1 >> 5) + 1):
        if not (what | other) & ADDS and not has_flags(ck, p):
            return False
    see_bytes(ck, start, end, USE_UNORDERED)
    return True


@jit
def note_visible(st, ck, block, start):
    """A poll has seen what the core itself wrote to this granule, and so what is before a fence before that."""
    n, granule = 0, start >> 5
    for k in range(ck[block + cs.N_RECORDS] if ck[block + cs.FENCE_VECTOR] else 0):
        at = block + cs.RECORDS + k * cs.RECORD_WORDS
        if ck[at + 2] & ALONE and ck[at] >> 5 == granule and ck[at + 2] >> _FENCES == 0:
            ck[block + cs.VECTORS] = clocks.joined(ck[block + cs.VECTORS], ck[block + cs.FENCE_VECTOR])
            land_before(st, ck, block, start, 0, VISIBLE)
    while n < ck[block + cs.N_RECORDS]:
        at = block + cs.RECORDS + n * cs.RECORD_WORDS
        if ck[at + 2] & ALONE and ck[at] >> 5 == granule:
            _drop(ck, block, n)
        else:
            n += 1


@jit
def note_landed(st, ck, i):
    """The core learns from another one that what it has written and is not in flight is visible."""
    core, block = clocks.core_of(ck, i), clocks.block_of(ck, i)
    for n in range(ck[block + cs.N_RECORDS]):
        at = block + cs.RECORDS + n * cs.RECORD_WORDS
        if ck[at + 2] & WRITES and ck[at + 2] & IN_MEMORY and not _flies(st, core, ck[at], ck[at + 1]):
            ck[at + 2] |= VISIBLE


@call
def age_records(st, ck, block):
    """A core has passed a fence: what its scalar unit and mtu-out wrote to memory comes before one more."""
    for n in range(ck[block + cs.N_RECORDS] if st[ms.ORDER] >= ms.ORDER_RELAXED else 0):
        at = block + cs.RECORDS + n * cs.RECORD_WORDS
        if ck[at + 2] & WRITES and ck[at + 2] & IN_MEMORY and ck[at + 2] & 15 < AGENT_DMA:
            ck[at + 2] += 1 << _FENCES


@call
def land_before(st, ck, block, address, fences, how):
    """A write to this address is visible: note so of what is before a fence before it, to the same die."""
    for n in range(ck[block + cs.N_RECORDS] if st[ms.ORDER] >= ms.ORDER_RELAXED else 0):
        at = block + cs.RECORDS + n * cs.RECORD_WORDS
        if ck[at + 2] >> _FENCES > fences and all_on_die_of(st, ck[at], ck[at + 1], address):
            ck[at + 2] |= how


@call
def learn_landed(ck, block):
    """The core learns from another one what of its writes is visible."""
    for n in range(ck[block + cs.N_RECORDS]):
        at = block + cs.RECORDS + n * cs.RECORD_WORDS
        if ck[at + 2] & LANDED:
            ck[at + 2] |= VISIBLE


@jit
def _flies(st, core, start, end):
    """Return whether a write of a core to some of these bytes is in flight."""
    base = block_of_core(st, core)
    ring = block_of_die(st, st[base + ms.DIE])
    for k in range(st[ring + ms.FLIGHT_COUNT] if st[base + ms.IN_FLIGHT] else 0):
        entry = flight(st, ring, k)
        first = st[entry + ms.FLIGHT_ADDRESS]
        if st[entry + ms.FLIGHT_CORE] == core and first < end and start < first + st[entry + ms.FLIGHT_NBYTES]:
            return True
    return False


@jit
def _add(st, ck, block, start, end, what, clock, site):
    for n in range(ck[block + cs.N_RECORDS]):  # what one pipe does between two releases counts as one
        at = block + cs.RECORDS + n * cs.RECORD_WORDS
        alike = ck[at + 2] == what and ck[at + 3] == clock and not what & ALONE
        if alike and adjoin(st, ck, start, end, ck[at], ck[at + 1]):
            ck[at] = min(ck[at], start)
            ck[at + 1] = max(ck[at + 1], end)
            return
    for reads in range(2):
        if ck[block + cs.N_RECORDS] == cs.RECORDS_MAX:
            _merge(st, ck, block, reads)
    n = ck[block + cs.N_RECORDS]
    if n == cs.RECORDS_MAX:
        ck[cs.LIMIT] = cs.LIMIT_RECORDS
        return
    at = block + cs.RECORDS + n * cs.RECORD_WORDS
    ck[at], ck[at + 1], ck[at + 2], ck[at + 3], ck[at + 4] = start, end, what, clock, site
    ck[block + cs.N_RECORDS] = n + 1


@jit
def _merge(st, ck, block, reads):
    """Make room: make one of adjacent writes to memory that wait for the same quiet, with the clock of the latest.

    And drop what a later record of the same pipe covers.  With ``reads``, make one of adjacent reads of memory by
    the same pipe instead; what conflicts with that leaves no proof.
    """
    n = 0
    while n < ck[block + cs.N_RECORDS]:
        at, m = block + cs.RECORDS + n * cs.RECORD_WORDS, n + 1
        while m < ck[block + cs.N_RECORDS]:
            other = block + cs.RECORDS + m * cs.RECORD_WORDS
            near = adjoin(st, ck, ck[at], ck[at + 1], ck[other], ck[other + 1])
            if near and (_coarse(ck[at + 2], ck[other + 2]) if reads else _alike(ck[at + 2], ck[other + 2])):
                ck[at], ck[at + 1] = min(ck[at], ck[other]), max(ck[at + 1], ck[other + 1])
                ck[at + 3] = max(ck[at + 3], ck[other + 3])
                ck[at + 2] = ck[at + 2] | COARSE if reads else min(ck[at + 2], ck[other + 2])
                _drop(ck, block, m)  # of writes what is left comes before the fewer fences, and is not yet visible
                m = n + 1
            elif not reads and _covers(ck, at, other):
                _drop(ck, block, m)
            elif not reads and _covers(ck, other, at):
                for k in range(cs.RECORD_WORDS):
                    ck[at + k] = ck[other + k]
                _drop(ck, block, m)
                m = n + 1
            else:
                m += 1
        n += 1


@jit
def _coarse(one, other):
    """Return whether two records are reads of memory by one pipe."""
    memory = not one & WRITES and one & IN_MEMORY and one & 15 < AGENT_DMA
    return memory and one | COARSE == other | COARSE


@jit
def _covers(ck, one, other):
    """Does knowing the one of two records imply knowing the other, of the same pipe earlier and within its bytes?"""
    same = ck[one + 2] == ck[other + 2] and ck[one + 2] & 15 < AGENT_DMA and not ck[one + 2] & (ALONE | AWAITED)
    return same and ck[one] <= ck[other] and ck[other + 1] <= ck[one + 1] and ck[one + 3] >= ck[other + 3]


@jit
def _alike(one, other):
    """Return whether two records are writes to memory by one agent, fences and visibility aside."""
    same = (1 << _FENCES) - 1 & ~(VISIBLE | LANDED)
    return one & same == other & same and one & WRITES and one & IN_MEMORY and not one & ALONE


@jit
def _race_inside(ck, core, at, start, nbytes, agent, writes, site):
    if ck[cs.VIOLATION]:
        return
    w = cs.WITNESS
    ck[w], ck[w + 1], ck[w + 2] = core, ck[at + 4], ck[at + 2] & 15
    ck[w + 3], ck[w + 4], ck[w + 5] = ck[at], ck[at + 1] - ck[at], ck[at + 2] >> 4 & 1
    ck[w + 6], ck[w + 7], ck[w + 8] = core, site, agent
    ck[w + 9], ck[w + 10], ck[w + 11] = start, nbytes, 1 if writes else 0
    cs.accuse(ck, cs.RACE_INSIDE, cs.WORDS_OF_RACE)
