"""Races, seen in a state: two accesses to the same bytes that are possible or under way together.

`docs/races.md` defines what a race is; the monitor of sampled runs implements the same.

An access is open from the moment in which it can be made until it is complete: a read until it is made; a poll, which
reads again and again, from its issue on; a write until it is visible, and one of shared data, which a search makes
visible at once, until the quiet of its core.  Two open accesses of different cores to the same bytes, one of them a
write, are a race, unless both synchronize.  A search reaches a state in which both are open whenever nothing orders
them: quiets with open writes and reads of shared memory are transitions of their own, taken in every order.  So are two
accesses of one core by different pipes, if the bytes are explored; where they are not, `inside` judges them by clocks.

Plain loads are made early, so that they need no transition of their own: at once when the kernel comes to them, but
they stay open until the scalar unit's next transition, and a write to a flag (or an arrival at a barrier) that comes
after an open load is made a transition.  Others can be ordered behind a load only by such a write; so while another
core could make a conflicting access that is not, there is a state of the search with both open.  So it is with
transfers of shared data by mtu-in: they stay open until a transition that knows of them.

Under `sc` writes need no quiet, and one of shared data, made at once, stays open like a load: until such a release that
comes after it in its core's own order (`clocks`), or a quiet; both are transitions while it is open.  Under `fifo` it
stays open until the quiet; who meets it before may be ordered by a flag behind it, so from then on it keeps its turn.

A local action (`LOCALLY`) closes and releases nothing: nobody can tell when it happened, so nobody is ordered by it.
"""

from xccl_emu.check.device.accesses import (
    AGENT,
    AGENT_DMA,
    FLAGS,
    NBYTES,
    SITE,
    START,
    SYNC,
    WHOLE,
    WRITE,
    accesses,
)
from xccl_emu.check.device.search.checker_state import (
    EXPECTED_BASE,
    EXPECTED_WORDS,
    LIMIT,
    LIMIT_OPEN,
    LOCALLY,
    MARK_WORDS,
    MARKS,
    MASK,
    MEMBERS,
    MEMORY_END,
    N_EXPECTED,
    N_MARKS,
    N_READ,
    RACE,
    READ,
    READ_AGENT,
    READ_WORDS,
    RECORDING,
    TOO_EARLY,
    VIOLATION,
    WITNESS,
    WORDS_OF_BITS,
    WORDS_OF_RACE,
    N,
    accuse,
    drop,
)
from xccl_emu.check.device.search.clocks import block_of, core_of, lane
from xccl_emu.check.device.search.granules import (
    DATA,
    FIELD,
    OWN,
    USE_IN_TURN,
    USE_LATE,
    USE_TORN,
    USE_UNORDERED,
    any_used,
    has_flags,
    see,
    see_bytes,
    worst_class,
)
from xccl_emu.check.device.search.linked import linked
from xccl_emu.check.device.search.spans import all_on_die_of
from xccl_emu.lang.abi import REQUEST
from xccl_emu.lang.requests import (
    DMA,
    MTU_IN,
    MTU_OUT,
    OP_ATOMIC_ADD,
    OP_LOAD,
    OP_MTU_IN,
    OP_POLL,
    OP_POLL_ANY,
    OP_STORE,
    SCALAR,
)
from xccl_emu.machine.device.flight import block_of_core, block_of_die, flight, signals_before, switched_off
from xccl_emu.machine.device.layout import (
    ATOMIC_SHIFT,
    CACHE_LINES,
    CHOICE_ALL,
    DIE,
    DMA_SLOTS,
    ENTRY_PROGRESS,
    ENTRY_WORDS,
    FLIGHT_ADDRESS,
    FLIGHT_CORE,
    FLIGHT_COUNT,
    FLIGHT_KIND,
    FLIGHT_NBYTES,
    FLIGHT_SITE,
    IN_FLIGHT,
    KIND_ADD,
    KIND_DMA,
    KIND_SCALAR,
    LINE_BYTES_MOST,
    N_DMA_SLOTS,
    ORDER,
    ORDER_FIFO,
    ORDER_RELAXED,
    ORDER_SC,
    ORDER_UNORDERED,
    PIPE_COUNT,
    REQUEST_ORDERS,
    SOME_SIGNAL,
    STATUS,
    STATUS_DONE,
    STATUS_RUNNING,
)
from xccl_emu.machine.device.pipes import _may_overtake, entry_of, fence_ahead, pipe_of
from xccl_emu.machine.device.words import call, jit, load_i64

_MARK_SITE, _MARK_AGENT, _MARK_CLOCK = (1 << 16) - 1, 16, 20
_MARK_FENCES = 16  # under `relaxed`, in the place of agent and clock: fences that the core has passed since
_FENCES_MASK = (1 << 24) - 1
_MARK_SIGNAL = 40  # above: of what a request copies that signals, which of its core's signals to that die tells, from 1
FLYING, EARLY, MARKED = 8, 16, 32
"""Further flags of an open access: a write in flight; a load that was made early; a write of shared data that was."""

OPEN = 16
"""First row of the lists of open accesses, `OPEN_MAX` each."""
OPEN_MAX = 64
ROWS = OPEN + 2 * OPEN_MAX + 1


@jit
def _append(ck, rows, at, n, start, nbytes, flags, agent, site):
    if n == OPEN_MAX:
        if not ck[RECORDING]:  # then more is in flight than the search has; what it saw it has seen
            ck[LIMIT] = LIMIT_OPEN
        return n
    row = at + n
    rows[row, START], rows[row, NBYTES], rows[row, FLAGS] = start, nbytes, flags
    rows[row, AGENT], rows[row, SITE] = agent, site
    return n + 1


@jit
def mark_of(st, agent, site, vector):
    """Who has written shared data at once; under `relaxed` the site, and how many fences the core has passed since."""
    return site if st[ORDER] != ORDER_SC else site | agent << _MARK_AGENT | lane(vector, agent) << _MARK_CLOCK


@jit
def _released(st, ck, at, vector):
    """Does a release with this vector come after a marked write, so that others may be ordered behind it?"""
    who = ck[at + 2]
    return st[ORDER] == ORDER_SC and lane(vector, who >> _MARK_AGENT & 15) >= who >> _MARK_CLOCK


@jit
def any_released(st, ck, block, vector):
    """Is a write of shared data marked that a release with this vector comes after?"""
    for n in range(ck[block + N_MARKS]):
        if _released(st, ck, block + MARKS + n * MARK_WORDS, vector):
            return True
    return False


@jit
def release_marks(st, ck, block, vector):
    """Forget the marks that a release with this vector comes after."""
    n = 0
    while n < ck[block + N_MARKS] and not ck[LOCALLY]:
        if _released(st, ck, block + MARKS + n * MARK_WORDS, vector):
            _drop_mark(ck, block, n)
        else:
            n += 1


@call
def age_marks(st, ck, block):
    """A core has passed a fence: what it has marked stands before one more."""
    for n in range(ck[block + N_MARKS] if st[ORDER] >= ORDER_RELAXED else 0):
        ck[block + MARKS + n * MARK_WORDS + 2] += 1 << _MARK_FENCES


@jit
def _is_before(st, ck, at, address, fences):
    """Does a marked write stand before a fence that a write to this address is behind, on the same die?

    ``fences`` are those that the core has passed since that write took off.
    """
    behind = st[ORDER] >= ORDER_RELAXED and ck[at + 2] >> _MARK_FENCES & _FENCES_MASK > fences
    return behind and all_on_die_of(st, ck[at], ck[at + 1], address)


@jit
def any_before(st, ck, block, address, fences):
    """Is a write of shared data marked that is visible when a write to this address is?"""
    for n in range(ck[block + N_MARKS]):
        if _is_before(st, ck, block + MARKS + n * MARK_WORDS, address, fences):
            return True
    return False


@call
def release_before(st, ck, block, address, fences):
    """A write to this address is visible: forget the marks that are before a fence before it, to the same die."""
    n = 0
    while n < ck[block + N_MARKS] and not ck[LOCALLY]:
        if _is_before(st, ck, block + MARKS + n * MARK_WORDS, address, fences):
            _drop_mark(ck, block, n)
        else:
            n += 1


@jit
def told_by_next(st, base, core, address, who):
    """Of a mark, that the core's next signal to its die tells of it: the one behind those that are in flight."""
    if st[ORDER] < ORDER_RELAXED:
        return who
    ring = block_of_die(st, st[base + DIE])
    return who | signals_before(st, ring, st[ring + FLIGHT_COUNT], core, address) + 1 << _MARK_SIGNAL


@call
def see_told_before(st, ck, block, start, nbytes, who):
    """Explore from now on what a signal tells of though its request did not copy it: what `relaxed` keeps before that.

    So it is with an earlier write of the core to what becomes visible at once with a part of the copy.
    """
    if st[ORDER] != ORDER_RELAXED or who >> _MARK_SIGNAL == 0:
        return
    shift = max(5, st[ATOMIC_SHIFT])
    for n in range(ck[block + N_MARKS]):
        at = block + MARKS + n * MARK_WORDS
        first, last = max(start, ck[at]) >> shift, min(start + nbytes, ck[at + 1]) - 1 >> shift
        near = start >> shift <= ck[at + 1] - 1 >> shift and ck[at] >> shift <= start + nbytes - 1 >> shift
        if near and ck[at + 2] >> _MARK_SIGNAL != who >> _MARK_SIGNAL:
            for p in range(min(first, last) << shift - 5, max(first, last) + 1 << shift - 5):
                see(ck, p, 0, USE_UNORDERED)


@jit
def _told_by(st, ck, at, address):
    """Which of the signals of its core in flight to the die of an address tells of a mark, from 1; 0 for none."""
    return ck[at + 2] >> _MARK_SIGNAL if all_on_die_of(st, ck[at], ck[at + 1], address) else 0


@jit
def any_told(st, ck, block, address, number):
    """Is a write of shared data marked that this signal of a core, or a later one to the same die, tells of?"""
    for n in range(ck[block + N_MARKS] if st[SOME_SIGNAL] else 0):
        if _told_by(st, ck, block + MARKS + n * MARK_WORDS, address) >= number:
            return True
    return False


@call
def release_told(st, ck, block, address, number):
    """A signal is visible: forget the marks of what its request has copied; those of later signals move up."""
    n = 0
    while n < ck[block + N_MARKS] and not ck[LOCALLY]:
        at = block + MARKS + n * MARK_WORDS
        told = _told_by(st, ck, at, address)
        if told > number:
            ck[at + 2] -= 1 << _MARK_SIGNAL
        if told == number:
            _drop_mark(ck, block, n)
        else:
            n += 1


@jit
def _drop_mark(ck, block, n):
    drop(ck, block + N_MARKS, block + MARKS, MARK_WORDS, n)


@call
def open_accesses(st, ck, rows, named, i, at):
    """List the open accesses of a core to memory that it shares; returns how many."""
    core = core_of(ck, i)
    base, block = block_of_core(st, core), block_of(ck, i)
    n = 0
    if st[base + IN_FLIGHT]:
        n = _flying(st, ck, rows, core, base, at, n)
    for k in range(ck[block + N_MARKS]):
        m = block + MARKS + k * MARK_WORDS
        n = _append(ck, rows, at, n, ck[m], ck[m + 1] - ck[m], WRITE | MARKED, MTU_OUT, ck[m + 2] & _MARK_SITE)
    for k in range(ck[block + N_READ]):
        r = block + READ + k * READ_WORDS
        n = _append(ck, rows, at, n, ck[r], ck[r + 1], EARLY, ck[r + 2] >> READ_AGENT, ck[r + 2] & _MARK_SITE)
    if st[base + STATUS] == STATUS_RUNNING:
        op = st[base + REQUEST]
        polls = op == OP_POLL and (switched_off(st, base) or _torn_under(st, ck, base))
        cached = op == OP_STORE and st[CACHE_LINES] != 0
        writes = cached or ((op == OP_STORE or op == OP_ATOMIC_ADD) and not fence_ahead(st, base))
        if op == OP_LOAD or writes or polls or op == OP_POLL_ANY:
            n = _append_shared(st, ck, rows, named, base, SCALAR, CHOICE_ALL, at, n)
    queue = pipe_of(base, MTU_IN)
    for j in range(st[queue + PIPE_COUNT]):
        entry = entry_of(st, queue, j)
        if st[entry] != OP_MTU_IN:
            break
        if st[entry + ENTRY_PROGRESS] >= 0 and (j == 0 or _may_overtake(st, queue, j)):
            n = _append_shared(st, ck, rows, named, base, MTU_IN, 0xFFF << 4 | j, at, n)
    if st[pipe_of(base, MTU_OUT) + PIPE_COUNT]:
        n = _append_shared(st, ck, rows, named, base, MTU_OUT, CHOICE_ALL, at, n)
    for k in range(N_DMA_SLOTS):
        slot = base + DMA_SLOTS + k * ENTRY_WORDS
        if st[slot] and st[slot + ENTRY_PROGRESS] >= 0:
            n = _append_shared(st, ck, rows, named, base, DMA, 0xFFF << 4 | k, at, n)
    return n


@jit
def _flying(st, ck, rows, core, base, at, n):
    ring = block_of_die(st, st[base + DIE])
    for k in range(st[ring + FLIGHT_COUNT]):
        entry = flight(st, ring, k)
        if st[entry + FLIGHT_CORE] == core and not (st[CACHE_LINES] and st[entry + FLIGHT_KIND] == KIND_SCALAR):
            kind, nbytes = st[entry + FLIGHT_KIND], st[entry + FLIGHT_NBYTES]
            flags = WRITE | FLYING | (WHOLE if kind < KIND_DMA else 0) | (SYNC if kind == KIND_ADD else 0)
            agent = kind - KIND_DMA + 4 if kind >= KIND_DMA else SCALAR if kind == KIND_SCALAR else MTU_OUT
            n = _append(ck, rows, at, n, st[entry + FLIGHT_ADDRESS], nbytes, flags, agent, st[entry + FLIGHT_SITE])
    return n


@call
def _append_shared(st, ck, rows, named, base, pipe, choice, at, n):
    """Append those accesses of an action that are to shared memory."""
    m = accesses(st, base, pipe, choice, named, rows)
    for r in range(m):
        start, nbytes = rows[r, START], rows[r, NBYTES]
        inside = nbytes > 0 and start >= 0 and start + nbytes <= ck[MEMORY_END]
        if inside and worst_class(ck, start, nbytes) > OWN:
            n = _append(ck, rows, at, n, start, nbytes, rows[r, FLAGS], rows[r, AGENT], rows[r, SITE])
    return n


@jit
def _torn_under(st, ck, base):
    """Does somebody write to the word that a core polls in another way than at once?  Other writes it may meet."""
    address, nbytes = st[base + REQUEST + 1], st[base + REQUEST + 4]
    if nbytes <= 0 or nbytes > LINE_BYTES_MOST or address < 0 or address > ck[MEMORY_END] - nbytes:
        return False
    if nbytes & nbytes - 1 or address & nbytes - 1:
        return False  # it is refused, and reads nothing
    return any_used(ck, address, nbytes, USE_TORN)


@jit
def _synchronizes(rows, r):
    """Is an access a synchronization, or may it be half of one: a write at once, which may be a flag?"""
    return rows[r, FLAGS] & SYNC != 0 or (rows[r, FLAGS] & WRITE != 0 and rows[r, AGENT] < AGENT_DMA)


@jit
def _meet(rows, a, b):
    """Do two accesses share a byte, and does one of them write?"""
    overlap = rows[a, START] < rows[b, START] + rows[b, NBYTES] and rows[b, START] < rows[a, START] + rows[a, NBYTES]
    return overlap and (rows[a, FLAGS] | rows[b, FLAGS]) & WRITE != 0


@jit
def _conflict(ck, rows, a, b):
    """Is there a granule in which two accesses that meet are no race only if both synchronize, and they do not?"""
    first = max(rows[a, START], rows[b, START])
    end = min(rows[a, START] + rows[a, NBYTES], rows[b, START] + rows[b, NBYTES])
    either = rows[a, FLAGS] | rows[b, FLAGS]
    both = _synchronizes(rows, a) and _synchronizes(rows, b)
    two_writes = rows[a, FLAGS] & rows[b, FLAGS] & WRITE != 0 and not either & SYNC
    for p in range(first >> 5, (end - 1 >> 5) + 1):
        if worst_class(ck, p << 5, 32) == FIELD:
            see(ck, p, 0, USE_UNORDERED)
        elif two_writes and has_flags(ck, p) and worst_class(ck, p << 5, 32) <= DATA:
            see(ck, p, 0, USE_UNORDERED)  # marks do not say whether they were at once: explore them
        elif not both or (two_writes and not has_flags(ck, p)):
            return True
    return False


@jit
def _taken_back(st, ck, rows, a, b):
    """Under `fifo` a mark may outlast its write's being in flight: then such writes keep their turn from now on."""
    if st[ORDER] != ORDER_FIFO or not (rows[a, FLAGS] | rows[b, FLAGS]) & MARKED:
        return False
    end = min(rows[a, START] + rows[a, NBYTES], rows[b, START] + rows[b, NBYTES])
    see_bytes(ck, max(rows[a, START], rows[b, START]), end, USE_IN_TURN)
    return True


@jit
def _conflict_inside(st, ck, rows, a, b):
    """Do two open accesses of one core conflict?  Its writes to a granule keep the order in which they take off."""
    either = rows[a, FLAGS] | rows[b, FLAGS]
    if either & EARLY or rows[a, AGENT] == rows[b, AGENT] or worst_class(ck, rows[a, START], rows[a, NBYTES]) <= DATA:
        return False
    kept = st[ORDER] == ORDER_FIFO or (rows[a, AGENT] < AGENT_DMA and rows[b, AGENT] < AGENT_DMA)
    if (kept and _one_flies(rows, a, b)) or _covered(st, rows, a, b):
        return False
    return _conflict(ck, rows, a, b)


@jit
def _covered(st, rows, load, b):
    """Does a scalar unit see, in place of a whole write of its core in flight, a later store of its own?

    That one is behind it, unless something may overtake in a granule.  (What is in flight is listed first, the oldest
    in front.)
    """
    loads = rows[load, AGENT] == SCALAR and rows[load, FLAGS] & (WRITE | SYNC) == 0 and rows[load, NBYTES] <= 8
    flies = rows[b, AGENT] == MTU_OUT and rows[b, FLAGS] & FLYING != 0
    if not loads or not flies or st[ORDER] == ORDER_UNORDERED or st[REQUEST_ORDERS]:
        return False
    end = rows[b, START] + rows[b, NBYTES]
    for c in range(b + 1, load):
        if rows[c, FLAGS] & FLYING and rows[c, AGENT] == SCALAR:
            if rows[c, START] <= rows[b, START] and end <= rows[c, START] + rows[c, NBYTES]:
                return True
    return False


@jit
def _one_flies(rows, a, b):
    """Has one of two writes taken off?  If nothing orders them there is another state in which neither has."""
    either = rows[a, FLAGS] | rows[b, FLAGS]
    return rows[a, FLAGS] & rows[b, FLAGS] & WRITE != 0 and either & FLYING != 0 and not either & MARKED


@jit
def _conflict_between(st, ck, rows, i, a, j, b):
    """Do two open accesses of two cores conflict?  Under `fifo` the writes of a die keep their order, as of a core."""
    one_die = st[block_of_core(st, core_of(ck, i)) + DIE] == st[block_of_core(st, core_of(ck, j)) + DIE]
    kept = st[ORDER] == ORDER_FIFO and one_die and _one_flies(rows, a, b)
    return not kept and _conflict(ck, rows, a, b)


@jit
def _report(ck, rows, i, a, j, b):
    for side in range(2):
        row = a if side == 0 else b
        w = WITNESS + 6 * side
        ck[w], ck[w + 1], ck[w + 2] = core_of(ck, i if side == 0 else j), rows[row, SITE], rows[row, AGENT]
        ck[w + 3], ck[w + 4], ck[w + 5] = rows[row, START], rows[row, NBYTES], rows[row, FLAGS] & WRITE
    accuse(ck, RACE, WORDS_OF_RACE)


@linked
def find_race_of(mem, st, ck, rows, named, cores, _):
    """Report a race of one of some cores (a mask) with itself or any other one, if there is one.

    It goes before any other violation that was just found: where there is a race, data may not be what they seem.
    """
    found, ck[VIOLATION] = ck[VIOLATION], 0
    for m in range(ck[N]):
        i = ck[ck[MEMBERS] + m]
        if not cores >> i & 1:
            continue
        mine = open_accesses(st, ck, rows, named, i, OPEN)
        for a in range(OPEN, OPEN + mine):
            for b in range(OPEN, a):
                if ck[VIOLATION] == 0 and _meet(rows, a, b) and _conflict_inside(st, ck, rows, a, b):
                    _report(ck, rows, i, a, i, b)
        for k in range(ck[N] if mine else 0):
            j = ck[ck[MEMBERS] + k]
            if j == i or (cores >> j & 1 and j < i):
                continue
            theirs = open_accesses(st, ck, rows, named, j, OPEN + OPEN_MAX)
            for a in range(OPEN, OPEN + mine):
                for b in range(OPEN + OPEN_MAX, OPEN + OPEN_MAX + theirs):
                    if ck[VIOLATION] == 0 and _meet(rows, a, b) and _conflict_between(st, ck, rows, i, a, j, b):
                        if not _taken_back(st, ck, rows, a, b):
                            _report(ck, rows, i, a, j, b)
    if ck[VIOLATION] == 0:
        ck[VIOLATION] = found
    return ck[VIOLATION]


@call
def judge_return(mem, st, ck, i):
    """A core has returned: is what it owns, alone or with others, there?

    A marked write of somebody else may not be there yet, though the search has it in memory: then nothing is said, and
    it is explored from now on.
    """
    for e in range(ck[N_EXPECTED]):
        at = ck[EXPECTED_BASE] + EXPECTED_WORDS * e
        cores = ck[at + 3] & ck[MASK]
        if cores >> i & 1 and ck[VIOLATION] == 0 and _all_done(st, ck, cores):
            _explore_marked(ck, ck[at], ck[at] + ck[at + 1])
            wrong = first_wrong(mem, ck, at)
            if wrong >= 0:
                ck[WITNESS], ck[WITNESS + 1] = e, wrong
                accuse(ck, TOO_EARLY, WORDS_OF_BITS)


@jit
def _explore_marked(ck, start, end):
    """Explore those of some bytes from now on that somebody has written at once and not awaited."""
    for m in range(ck[N]):
        block = block_of(ck, ck[ck[MEMBERS] + m])
        for k in range(ck[block + N_MARKS]):
            mark = block + MARKS + k * MARK_WORDS
            see_bytes(ck, max(start, ck[mark]), min(end, ck[mark + 1]), USE_UNORDERED)


@jit
def _comes_late(st, ck, i, e, start, nbytes):
    """Does a core write to some of the e-th expected bytes when their owners, others, have returned?"""
    at = ck[EXPECTED_BASE] + EXPECTED_WORDS * e
    cores = ck[at + 3] & ck[MASK]
    if start >= ck[at] + ck[at + 1] or ck[at] >= start + nbytes or not cores or cores >> i & 1:
        return False
    return _all_done(st, ck, cores)


@jit
def any_late(st, ck, i, start, nbytes):
    """Does a core write to bytes whose owners, others, have returned?"""
    for e in range(ck[N_EXPECTED]):
        if _comes_late(st, ck, i, e, start, nbytes):
            return True
    return False


@call
def note_late(st, ck, i, start, nbytes):
    """Note if a core writes to bytes whose owners, others, have returned: the write might have come before that."""
    for e in range(ck[N_EXPECTED]):
        if _comes_late(st, ck, i, e, start, nbytes):
            at = ck[EXPECTED_BASE] + EXPECTED_WORDS * e
            see_bytes(ck, max(start, ck[at]), min(start + nbytes, ck[at] + ck[at + 1]), USE_LATE)


@jit
def _all_done(st, ck, cores):
    for m in range(ck[N]):
        i = ck[ck[MEMBERS] + m]
        if cores >> i & 1 and st[block_of_core(st, core_of(ck, i)) + STATUS] != STATUS_DONE:
            return False
    return True


@jit
def first_wrong(mem, ck, at):
    """The first expected byte that is not there, or -1."""
    address, place = ck[at], ck[at + 2]
    words = ck[at + 1] >> 3 if address & 7 == 0 else 0
    w = 0
    while w < words and load_i64(mem, address + 8 * w) == ck[place + w]:
        w += 1
    for b in range(8 * w, ck[at + 1]):
        if mem[address + b] != (ck[place + (b >> 3)] >> (8 * (b & 7)) & 255):
            return b
    return -1
