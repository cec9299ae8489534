"""Races, seen in a state: two accesses to the same bytes that are possible or under way together.

`docs/machine.md` defines what a race is; the monitor of sampled runs implements the same.

An access is open from the moment in which it can be made until it is complete: a read until it is made; a poll, which
reads again and again, from its issue on; a write until it is visible, and one of shared data, which a search makes
visible at once, until the quiet of its core.  Two open accesses of different cores to the same bytes, one of them a
write, are a race, unless both synchronize.  A search reaches a state in which both are open whenever nothing orders
them: quiets with open writes and reads of shared memory are transitions of their own, taken in every order.  So are two
accesses of one core by different pipes, if the bytes are explored; where they are not, `inside` judges them by clocks.

Plain loads are made early, so that they need no transition of their own: at once when the kernel comes to them, but
they stay open until the scalar unit's next transition, and a write to a flag (or an arrival at a barrier) that comes
after an open load is made a transition.  Others can be ordered after a load only by such a write; so while another
core could make a conflicting access that is not, there is a state of the search with both open.  So it is with
transfers of shared data by mtu-in: they stay open until a transition that knows of them.

Under `sc` writes need no quiet, and one of shared data, made at once, stays open like a load: until such a release that
comes after it in its core's own order (`clocks`), or a quiet; both are transitions while it is open.  Under `fifo` it
stays open until the quiet; who meets it before may be ordered by a flag after it, so from then on it keeps its turn.

A local action (`LOCALLY`) closes and releases nothing: its time is arbitrary, so it orders no other core.
"""

from xccl_emu.check.device import accesses
from xccl_emu.check.device.dependence import DIE, HOME, OUT_OFF, depend
from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device import granules
from xccl_emu.check.search.device.clocks import block_of, core_of, lane
from xccl_emu.check.search.device.linked import linked
from xccl_emu.check.search.device.spans import all_on_die_of
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REQUEST
from xccl_emu.machine.device import flight, pipes
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.words import call, jit, load_i64

_MARK_SITE = (1 << 16) - 1
_MARK_FENCES = 16  # under `relaxed`, in the place of agent and clock: fences that the core has passed since
_FENCES_MASK = (1 << 24) - 1
_MARK_SIGNAL = 40  # above: which of its core's signals to that die releases what a request copies that signals, from 1
FLYING, EARLY, MARKED = 8, 16, 32
"""Further flags of an open access: a write in flight; a load that was made early; a write of shared data that was."""

OPEN = 16
"""First row of the lists of open accesses, `OPEN_MAX` each."""
OPEN_MAX = 64
ROWS = OPEN + 2 * OPEN_MAX + 1


@jit
def _append(ck, rows, at, n, start, nbytes, flags, agent, site):
    if n == OPEN_MAX:
        if not ck[cs.RECORDING]:  # then more is in flight than the search has; what it saw it has seen
            ck[cs.LIMIT] = cs.LIMIT_OPEN
        return n
    row = at + n
    rows[row, accesses.START], rows[row, accesses.NBYTES], rows[row, accesses.FLAGS] = start, nbytes, flags
    rows[row, accesses.AGENT], rows[row, accesses.SITE] = agent, site
    return n + 1


@jit
def mark_of(st, agent, site, vector):
    """Return who has written shared data at once; under `relaxed` the site, and how many fences have come since."""
    return site if st[ms.ORDER] != ms.ORDER_SC else site | agent << cs.MARK_AGENT | lane(vector, agent) << cs.MARK_CLOCK


@jit
def _released(st, ck, at, vector):
    """Does a release with this vector come after a marked write, so that others may be ordered after it?"""
    who = ck[at + 2]
    return st[ms.ORDER] == ms.ORDER_SC and lane(vector, who >> cs.MARK_AGENT & 15) >= who >> cs.MARK_CLOCK


@jit
def any_released(st, ck, block, vector):
    """Return whether a write of shared data is marked that comes before a release with this vector."""
    for n in range(ck[block + cs.N_MARKS]):
        if _released(st, ck, block + cs.MARKS + n * cs.MARK_WORDS, vector):
            return True
    return False


@jit
def release_marks(st, ck, block, vector):
    """Forget the marks that a release with this vector comes after."""
    n = 0
    while n < ck[block + cs.N_MARKS] and not ck[cs.LOCALLY]:
        if _released(st, ck, block + cs.MARKS + n * cs.MARK_WORDS, vector):
            _drop_mark(ck, block, n)
        else:
            n += 1


@call
def age_marks(st, ck, block):
    """A core has passed a fence: what it has marked comes before one more."""
    for n in range(ck[block + cs.N_MARKS] if st[ms.ORDER] >= ms.ORDER_RELAXED else 0):
        ck[block + cs.MARKS + n * cs.MARK_WORDS + 2] += 1 << _MARK_FENCES


@jit
def _is_before(st, ck, at, address, fences):
    """Does a marked write come before a fence that a write to this address comes after, on the same die?

    ``fences`` are those that the core has passed since that write took off.
    """
    fenced = st[ms.ORDER] >= ms.ORDER_RELAXED and ck[at + 2] >> _MARK_FENCES & _FENCES_MASK > fences
    return fenced and all_on_die_of(st, ck[at], ck[at + 1], address)


@jit
def any_before(st, ck, block, address, fences):
    """Return whether a write of shared data is marked that is visible when a write to this address is."""
    for n in range(ck[block + cs.N_MARKS]):
        if _is_before(st, ck, block + cs.MARKS + n * cs.MARK_WORDS, address, fences):
            return True
    return False


@call
def release_before(st, ck, block, address, fences):
    """A write to this address is visible: forget the marks that are before a fence before it, to the same die."""
    n = 0
    while n < ck[block + cs.N_MARKS] and not ck[cs.LOCALLY]:
        if _is_before(st, ck, block + cs.MARKS + n * cs.MARK_WORDS, address, fences):
            _drop_mark(ck, block, n)
        else:
            n += 1


@jit
def released_by_next(st, base, core, address, who):
    """Note in a mark that the core's next signal to its die releases it: the one after its signals in flight."""
    if st[ms.ORDER] < ms.ORDER_RELAXED:
        return who
    ring = flight.block_of_die(st, st[base + ms.DIE])
    return who | flight.signals_before(st, ring, st[ring + ms.FLIGHT_COUNT], core, address) + 1 << _MARK_SIGNAL


@call
def see_released_before(st, ck, block, start, nbytes, who):
    """Explore from now on what a signal releases though its request did not copy it: what `relaxed` keeps before that.

    So it is with an earlier write of the core to what becomes visible at once with a part of the copy.
    """
    if st[ms.ORDER] != ms.ORDER_RELAXED or who >> _MARK_SIGNAL == 0:
        return
    shift = max(5, st[ms.ATOMIC_SHIFT])
    for n in range(ck[block + cs.N_MARKS]):
        at = block + cs.MARKS + n * cs.MARK_WORDS
        first, last = max(start, ck[at]) >> shift, min(start + nbytes, ck[at + 1]) - 1 >> shift
        near = start >> shift <= ck[at + 1] - 1 >> shift and ck[at] >> shift <= start + nbytes - 1 >> shift
        if near and ck[at + 2] >> _MARK_SIGNAL != who >> _MARK_SIGNAL:
            for p in range(min(first, last) << shift - 5, max(first, last) + 1 << shift - 5):
                granules.see(ck, p, 0, granules.USE_UNORDERED)


@jit
def _signal_of(st, ck, at, address):
    """Return which signal of its core in flight to the die of an address releases a mark, from 1; 0 for none."""
    return ck[at + 2] >> _MARK_SIGNAL if all_on_die_of(st, ck[at], ck[at + 1], address) else 0


@jit
def any_signalled(st, ck, block, address, number):
    """Return whether a write of shared data is marked that this or a later signal of a core to the die releases."""
    for n in range(ck[block + cs.N_MARKS] if st[ms.SOME_SIGNAL] else 0):
        if _signal_of(st, ck, block + cs.MARKS + n * cs.MARK_WORDS, address) >= number:
            return True
    return False


@call
def release_signalled(st, ck, block, address, number):
    """A signal is visible: forget the marks of what its request has copied; marks of later signals move up."""
    n = 0
    while n < ck[block + cs.N_MARKS] and not ck[cs.LOCALLY]:
        at = block + cs.MARKS + n * cs.MARK_WORDS
        signal = _signal_of(st, ck, at, address)
        if signal > number:
            ck[at + 2] -= 1 << _MARK_SIGNAL
        if signal == number:
            _drop_mark(ck, block, n)
        else:
            n += 1


@jit
def _drop_mark(ck, block, n):
    cs.drop(ck, block + cs.N_MARKS, block + cs.MARKS, cs.MARK_WORDS, n)


@call
def open_accesses(st, ck, rows, named, i, at):
    """List the open accesses of a core to memory that it shares; returns how many."""
    core = core_of(ck, i)
    base, block = flight.block_of_core(st, core), block_of(ck, i)
    n = 0
    if st[base + ms.IN_FLIGHT]:
        n = _flying(st, ck, rows, core, base, at, n)
    for k in range(ck[block + cs.N_MARKS]):
        m = block + cs.MARKS + k * cs.MARK_WORDS
        n = _append(
            ck, rows, at, n, ck[m], ck[m + 1] - ck[m], accesses.WRITE | MARKED, rq.MTU_OUT, ck[m + 2] & _MARK_SITE
        )
    for k in range(ck[block + cs.N_READ]):
        r = block + cs.READ + k * cs.READ_WORDS
        n = _append(ck, rows, at, n, ck[r], ck[r + 1], EARLY, ck[r + 2] >> cs.READ_AGENT, ck[r + 2] & _MARK_SITE)
    if st[base + ms.STATUS] == ms.STATUS_RUNNING:
        op = st[base + REQUEST]
        polls = op == rq.OP_POLL and (flight.switched_off(st, base) or _torn_under(st, ck, base))
        cached = ops.STORES >> op & 1 != 0 and st[ms.CACHE_LINES] != 0
        writes = cached or (ops.SCALAR_WRITES >> op & 1 != 0 and not pipes.fence_ahead(st, base))
        if ops.LOADS >> op & 1 or writes or polls or op == rq.OP_POLL_ANY:
            n = _append_shared(st, ck, rows, named, base, rq.SCALAR, ms.CHOICE_ALL, at, n)
    queue = pipes.pipe_of(base, rq.MTU_IN)
    for j in range(st[queue + ms.PIPE_COUNT]):
        entry = pipes.entry_of(st, queue, j)
        if st[entry] != rq.OP_MTU_IN:
            break
        if st[entry + ms.ENTRY_PROGRESS] >= 0 and (j == 0 or pipes._may_overtake(st, queue, j)):
            n = _append_shared(st, ck, rows, named, base, rq.MTU_IN, 0xFFF << 4 | j, at, n)
    if st[pipes.pipe_of(base, rq.MTU_OUT) + ms.PIPE_COUNT]:
        n = _append_shared(st, ck, rows, named, base, rq.MTU_OUT, ms.CHOICE_ALL, at, n)
    for k in range(ms.N_DMA_SLOTS):
        slot = base + ms.DMA_SLOTS + k * ms.ENTRY_WORDS
        if st[slot] and st[slot + ms.ENTRY_PROGRESS] >= 0:
            n = _append_shared(st, ck, rows, named, base, rq.DMA, 0xFFF << 4 | k, at, n)
    return n


@jit
def _flying(st, ck, rows, core, base, at, n):
    ring = flight.block_of_die(st, st[base + ms.DIE])
    for k in range(st[ring + ms.FLIGHT_COUNT]):
        entry = flight.flight(st, ring, k)
        if st[entry + ms.FLIGHT_CORE] == core and not (
            st[ms.CACHE_LINES] and st[entry + ms.FLIGHT_KIND] == ms.KIND_SCALAR
        ):
            kind, nbytes = st[entry + ms.FLIGHT_KIND], st[entry + ms.FLIGHT_NBYTES]
            flags = (
                accesses.WRITE
                | FLYING
                | (accesses.WHOLE if kind < ms.KIND_DMA else 0)
                | (accesses.SYNC if kind == ms.KIND_ADD or kind == ms.KIND_ADD_ROW else 0)
            )
            agent = (
                kind - ms.KIND_DMA + 4 if kind >= ms.KIND_DMA else rq.SCALAR if kind == ms.KIND_SCALAR else rq.MTU_OUT
            )
            n = _append(
                ck, rows, at, n, st[entry + ms.FLIGHT_ADDRESS], nbytes, flags, agent, st[entry + ms.FLIGHT_SITE]
            )
    return n


@call
def _append_shared(st, ck, rows, named, base, pipe, choice, at, n):
    """Append those accesses of an action that are to shared memory."""
    m = accesses.accesses(st, base, pipe, choice, named, rows)
    for r in range(m):
        start, nbytes = rows[r, accesses.START], rows[r, accesses.NBYTES]
        inside = nbytes > 0 and start >= 0 and start + nbytes <= ck[cs.MEMORY_END]
        inside = inside and not rows[r, accesses.FLAGS] & accesses.TENTATIVE
        if inside and granules.worst_class(ck, start, nbytes) > granules.OWN:
            n = _append(
                ck, rows, at, n, start, nbytes, rows[r, accesses.FLAGS], rows[r, accesses.AGENT], rows[r, accesses.SITE]
            )
    return n


@jit
def _torn_under(st, ck, base):
    """Does somebody write to the word that a core polls in another way than at once?  Other writes it may meet."""
    address, nbytes = st[base + REQUEST + ops.POLL.address], st[base + REQUEST + ops.POLL.nbytes]
    if nbytes <= 0 or nbytes > ms.LINE_BYTES_MOST or address < 0 or address > ck[cs.MEMORY_END] - nbytes:
        return False
    if nbytes & nbytes - 1 or address & nbytes - 1:
        return False  # it is refused, and reads nothing
    return granules.any_used(ck, address, nbytes, granules.USE_TORN)


@jit
def _synchronizes(rows, r):
    """Return whether an access synchronizes, or may be half of one that does: a write at once, which may be a flag."""
    return rows[r, accesses.FLAGS] & accesses.SYNC != 0 or (
        rows[r, accesses.FLAGS] & accesses.WRITE != 0 and rows[r, accesses.AGENT] < accesses.AGENT_DMA
    )


@jit
def _meet(rows, a, b):
    """Do two accesses share a byte, and does one of them write?"""
    overlap = (
        rows[a, accesses.START] < rows[b, accesses.START] + rows[b, accesses.NBYTES]
        and rows[b, accesses.START] < rows[a, accesses.START] + rows[a, accesses.NBYTES]
    )
    return overlap and (rows[a, accesses.FLAGS] | rows[b, accesses.FLAGS]) & accesses.WRITE != 0


@jit
def _conflict(ck, rows, a, b):
    """Return whether two accesses meet in a granule where both would have to synchronize, and they do not."""
    first = max(rows[a, accesses.START], rows[b, accesses.START])
    end = min(rows[a, accesses.START] + rows[a, accesses.NBYTES], rows[b, accesses.START] + rows[b, accesses.NBYTES])
    either = rows[a, accesses.FLAGS] | rows[b, accesses.FLAGS]
    both = _synchronizes(rows, a) and _synchronizes(rows, b)
    two_writes = rows[a, accesses.FLAGS] & rows[b, accesses.FLAGS] & accesses.WRITE != 0 and not either & accesses.SYNC
    for p in range(first >> 5, (end - 1 >> 5) + 1):
        if granules.worst_class(ck, p << 5, 32) == granules.FIELD:
            granules.see(ck, p, 0, granules.USE_UNORDERED)
        elif two_writes and granules.has_flags(ck, p) and granules.worst_class(ck, p << 5, 32) <= granules.DATA:
            granules.see(ck, p, 0, granules.USE_UNORDERED)  # marks do not say whether they were at once: explore them
        elif not both or (two_writes and not granules.has_flags(ck, p)):
            return True
    return False


@jit
def _taken_back(st, ck, rows, a, b):
    """Under `fifo` a mark may outlast its write's being in flight: then such writes keep their turn from now on."""
    if st[ms.ORDER] != ms.ORDER_FIFO or not (rows[a, accesses.FLAGS] | rows[b, accesses.FLAGS]) & MARKED:
        return False
    end = min(rows[a, accesses.START] + rows[a, accesses.NBYTES], rows[b, accesses.START] + rows[b, accesses.NBYTES])
    granules.see_bytes(ck, max(rows[a, accesses.START], rows[b, accesses.START]), end, granules.USE_IN_TURN)
    return True


@jit
def _conflict_inside(st, ck, rows, a, b):
    """Do two open accesses of one core conflict?  Its writes to a granule keep the order in which they take off."""
    either = rows[a, accesses.FLAGS] | rows[b, accesses.FLAGS]
    if (
        either & EARLY
        or rows[a, accesses.AGENT] == rows[b, accesses.AGENT]
        or granules.worst_class(ck, rows[a, accesses.START], rows[a, accesses.NBYTES]) <= granules.DATA
    ):
        return False
    kept = st[ms.ORDER] == ms.ORDER_FIFO or (
        rows[a, accesses.AGENT] < accesses.AGENT_DMA and rows[b, accesses.AGENT] < accesses.AGENT_DMA
    )
    if (kept and _one_flies(rows, a, b)) or _covered(st, rows, a, b):
        return False
    return _conflict(ck, rows, a, b)


@jit
def _covered(st, rows, load, b):
    """Does a scalar unit see, in place of a whole write of its core in flight, a later store of its own?

    That one comes after it, unless something may overtake in a granule.  (What is in flight is listed first, the oldest
    in front.)
    """
    loads = (
        rows[load, accesses.AGENT] == rq.SCALAR
        and rows[load, accesses.FLAGS] & (accesses.WRITE | accesses.SYNC) == 0
        and rows[load, accesses.NBYTES] <= 8
    )
    flies = rows[b, accesses.AGENT] == rq.MTU_OUT and rows[b, accesses.FLAGS] & FLYING != 0
    if not loads or not flies or st[ms.ORDER] == ms.ORDER_UNORDERED or st[ms.REQUEST_ORDERS]:
        return False
    end = rows[b, accesses.START] + rows[b, accesses.NBYTES]
    for c in range(b + 1, load):
        if rows[c, accesses.FLAGS] & FLYING and rows[c, accesses.AGENT] == rq.SCALAR:
            if (
                rows[c, accesses.START] <= rows[b, accesses.START]
                and end <= rows[c, accesses.START] + rows[c, accesses.NBYTES]
            ):
                return True
    return False


@jit
def _one_flies(rows, a, b):
    """Has one of two writes taken off?  If nothing orders them there is another state in which neither has."""
    either = rows[a, accesses.FLAGS] | rows[b, accesses.FLAGS]
    return (
        rows[a, accesses.FLAGS] & rows[b, accesses.FLAGS] & accesses.WRITE != 0
        and either & FLYING != 0
        and not either & MARKED
    )


@jit
def _conflict_between(st, ck, rows, i, a, j, b):
    """Do two open accesses of two cores conflict?  Under `fifo` the writes of a die keep their order, like a core's."""
    one_die = (
        st[flight.block_of_core(st, core_of(ck, i)) + ms.DIE] == st[flight.block_of_core(st, core_of(ck, j)) + ms.DIE]
    )
    kept = one_die and depend(OUT_OFF, OUT_OFF, DIE | HOME, st[ms.ORDER]) and _one_flies(rows, a, b)
    return not kept and _conflict(ck, rows, a, b)


@jit
def _report(ck, rows, i, a, j, b):
    for side in range(2):
        row = a if side == 0 else b
        w = cs.WITNESS + 6 * side
        ck[w], ck[w + 1], ck[w + 2] = (
            core_of(ck, i if side == 0 else j),
            rows[row, accesses.SITE],
            rows[row, accesses.AGENT],
        )
        ck[w + 3], ck[w + 4], ck[w + 5] = (
            rows[row, accesses.START],
            rows[row, accesses.NBYTES],
            rows[row, accesses.FLAGS] & accesses.WRITE,
        )
    cs.accuse(ck, cs.RACE, cs.WORDS_OF_RACE)


@linked
def find_race_of(mem, st, ck, rows, named, cores, _):
    """Report a race of one of some cores (a mask) with itself or any other one, if there is one.

    It goes before any other violation that was just found: where there is a race, data may not be what they seem.
    """
    found, ck[cs.VIOLATION] = ck[cs.VIOLATION], 0
    for m in range(ck[cs.N]):
        i = ck[ck[cs.MEMBERS] + m]
        if not cores >> i & 1:
            continue
        mine = open_accesses(st, ck, rows, named, i, OPEN)
        for a in range(OPEN, OPEN + mine):
            for b in range(OPEN, a):
                if ck[cs.VIOLATION] == 0 and _meet(rows, a, b) and _conflict_inside(st, ck, rows, a, b):
                    _report(ck, rows, i, a, i, b)
        for k in range(ck[cs.N] if mine else 0):
            j = ck[ck[cs.MEMBERS] + k]
            if j == i or (cores >> j & 1 and j < i):
                continue
            theirs = open_accesses(st, ck, rows, named, j, OPEN + OPEN_MAX)
            for a in range(OPEN, OPEN + mine):
                for b in range(OPEN + OPEN_MAX, OPEN + OPEN_MAX + theirs):
                    if ck[cs.VIOLATION] == 0 and _meet(rows, a, b) and _conflict_between(st, ck, rows, i, a, j, b):
                        if not _taken_back(st, ck, rows, a, b):
                            _report(ck, rows, i, a, j, b)
    if ck[cs.VIOLATION] == 0:
        ck[cs.VIOLATION] = found
    return ck[cs.VIOLATION]


@call
def judge_return(mem, st, ck, i):
    """A core has returned: is what it owns, alone or with others, there?

    A marked write of somebody else may not be there yet, though the search has it in memory: then nothing is said, and
    it is explored from now on.
    """
    for e in range(ck[cs.N_EXPECTED]):
        at = ck[cs.EXPECTED_BASE] + cs.EXPECTED_WORDS * e
        cores = ck[at + 3] & ck[cs.MASK]
        if cores >> i & 1 and ck[cs.VIOLATION] == 0 and _all_done(st, ck, cores):
            _explore_marked(ck, ck[at], ck[at] + ck[at + 1])
            wrong = first_wrong(mem, ck, at)
            if wrong >= 0:
                ck[cs.WITNESS], ck[cs.WITNESS + 1] = e, wrong
                cs.accuse(ck, cs.TOO_EARLY, cs.WORDS_OF_BITS)


@jit
def _explore_marked(ck, start, end):
    """From now on explore the bytes from ``start`` to ``end`` that somebody has written at once and not awaited."""
    for m in range(ck[cs.N]):
        block = block_of(ck, ck[ck[cs.MEMBERS] + m])
        for k in range(ck[block + cs.N_MARKS]):
            mark = block + cs.MARKS + k * cs.MARK_WORDS
            granules.see_bytes(ck, max(start, ck[mark]), min(end, ck[mark + 1]), granules.USE_UNORDERED)


@jit
def _comes_late(st, ck, i, e, start, nbytes):
    """Does a core write to some of the e-th expected bytes when their owners, others, have returned?"""
    at = ck[cs.EXPECTED_BASE] + cs.EXPECTED_WORDS * e
    cores = ck[at + 3] & ck[cs.MASK]
    if start >= ck[at] + ck[at + 1] or ck[at] >= start + nbytes or not cores or cores >> i & 1:
        return False
    return _all_done(st, ck, cores)


@jit
def any_late(st, ck, i, start, nbytes):
    """Does a core write to bytes whose owners, others, have returned?"""
    for e in range(ck[cs.N_EXPECTED]):
        if _comes_late(st, ck, i, e, start, nbytes):
            return True
    return False


@call
def note_late(st, ck, i, start, nbytes):
    """Note if a core writes to bytes whose owners, others, have returned: the write might have come before that."""
    for e in range(ck[cs.N_EXPECTED]):
        if _comes_late(st, ck, i, e, start, nbytes):
            at = ck[cs.EXPECTED_BASE] + cs.EXPECTED_WORDS * e
            granules.see_bytes(ck, max(start, ck[at]), min(start + nbytes, ck[at] + ck[at + 1]), granules.USE_LATE)


@jit
def _all_done(st, ck, cores):
    for m in range(ck[cs.N]):
        i = ck[ck[cs.MEMBERS] + m]
        if cores >> i & 1 and st[flight.block_of_core(st, core_of(ck, i)) + ms.STATUS] != ms.STATUS_DONE:
            return False
    return True


@jit
def first_wrong(mem, ck, at):
    """The first expected byte that is not there, or -1; of several ranges, and contents, those that end with a row."""
    ranges, wrong = ck[at + 4], 0 if ck[at + 4] else -1
    for c in range(ck[at + 5]):
        wrong = -1
        for r in range(ranges):
            wrong = max(wrong, _differs(mem, ck, at - r * cs.EXPECTED_WORDS, c))
        if wrong < 0:
            return wrong
    return wrong


@jit
def _differs(mem, ck, at, c):
    """The first byte of a range that is not in the c-th content, or -1."""
    address, place = ck[at], ck[at + 2] + c * (ck[at + 1] + 7 >> 3)
    words = ck[at + 1] >> 3 if address & 7 == 0 else 0
    w = 0
    while w < words and load_i64(mem, address + 8 * w) == ck[place + w]:
        w += 1
    for b in range(8 * w, ck[at + 1]):
        if mem[address + b] != (ck[place + (b >> 3)] >> (8 * (b & 7)) & 255):
            return b
    return -1
