"""Looking at an action before it is taken: what it reads and writes, and whether it may be done as soon as possible."""

from xccl_emu.check.device.accesses import AGENT, AGENT_DMA, FLAGS, NBYTES, SITE, START, WHOLE, WRITE, accesses
from xccl_emu.check.device.accesses import SYNC as SYNC_ACCESS
from xccl_emu.check.device.search import fields
from xccl_emu.check.device.search.checker_state import (
    EVICTS,
    EXPLORED,
    FENCE_VECTOR,
    FULL,
    JOINING,
    LATENT,
    MARK_WORDS,
    MARKS,
    MARKS_MAX,
    MEMBERS,
    MEMORY_END,
    MOST,
    N_MARKS,
    N_READ,
    N_ROWS,
    OWNERS,
    READ_MAX,
    ROWS_CLASS,
    UNIT_GRANULES,
    VECTORS,
    N,
)
from xccl_emu.check.device.search.clocks import (
    any_read,
    block_of,
    core_of,
    joined,
    vector_at,
)
from xccl_emu.check.device.search.granules import (
    DATA,
    FIELD,
    LOCAL,
    OWN,
    STABLE,
    SYNC,
    USE_ADD,
    USE_AT_LEAST,
    USE_BY_OUT,
    USE_BY_SCALAR,
    USE_CACHED,
    USE_EXACT,
    USE_IN_TURN,
    USE_PAST,
    USE_POLL,
    USE_READ,
    USE_TORN,
    USE_UNORDERED,
    USE_UNSTABLE,
    USE_WRITE,
    all_in_flight,
    any_used,
    may_write,
    see_bytes,
    touch,
    worst_class,
)
from xccl_emu.check.device.search.linked import linked
from xccl_emu.check.device.search.races import any_before, any_released
from xccl_emu.check.device.search.spans import any_on_die_of
from xccl_emu.lang.abi import REQUEST
from xccl_emu.lang.requests import (
    CMP_GE,
    CMP_NE,
    MTU_IN,
    MTU_OUT,
    OP_ARRIVE,
    OP_ATOMIC_ADD,
    OP_CHOOSE,
    OP_FENCE,
    OP_LOAD,
    OP_POLL,
    OP_POLL_ANY,
    OP_QUIET,
    OP_RETURN,
    OP_SET_FLAG,
    OP_STORE,
    OP_WAIT_FLAG,
    SCALAR,
    VECTOR,
)
from xccl_emu.machine.device.cache import address_of, answers, through_cache, written_back
from xccl_emu.machine.device.flight import block_of_core, block_of_die, fences_since, flight, goes_to
from xccl_emu.machine.device.layout import (
    CACHE_LINE_BYTES,
    CACHE_LINES,
    CHOICE_ALL,
    DIE,
    DMA_SLOTS,
    ENTRY_WORDS,
    FLIGHT_ADDRESS,
    FLIGHT_CORE,
    FLIGHT_COUNT,
    FLIGHT_SITE,
    GROUP,
    GROUP_BASE,
    GROUP_SIZE,
    GROUP_WORDS,
    IN_FLIGHT,
    KERNEL,
    LINE_BYTES_MOST,
    MAX_SITES,
    ORDER,
    ORDER_FIFO,
    ORDER_RELAXED,
    ORDER_SC,
    SOME_SIGNAL,
    UB_BASE,
    UB_BYTES,
)
from xccl_emu.machine.device.lines import polls_line
from xccl_emu.machine.device.pipes import entry_of, pipe_of, signals_next
from xccl_emu.machine.device.words import jit

NAMED, TAKEN = 1, 2
"""What a search knows of a site: it has a sync name; the kernel takes what is granted."""

NOT, PLAINLY, AT_ONCE = range(3)
"""May an action be done as soon as it is possible?  No; as it is; or so that its writes are visible at once."""


@linked
def classify_action(mem, st, ck, rows, named, i, what):
    """List what an action reads and writes, note who uses these granules, and keep the highest class of them.

    ``what`` is pipe << 16 | choice.
    """
    pipe, choice, base = what >> 16, what & CHOICE_ALL, block_of_core(st, core_of(ck, i))
    n = accesses(st, base, pipe, choice, named, rows)
    worst = LOCAL
    if pipe == SCALAR and not _inside(st, ck, base, rows, n):
        n = 0  # a bad address: let the machine find it
    for r in range(n):
        if rows[r, START] < ck[MEMORY_END]:
            use, start, nbytes = _use(st, ck, rows, named, base, pipe, r), rows[r, START], rows[r, NBYTES]
            if pipe == SCALAR and through_cache(st, base):
                use, start, nbytes = use | USE_CACHED, start & -CACHE_LINE_BYTES, CACHE_LINE_BYTES
            elif st[CACHE_LINES]:
                use |= USE_PAST
            worst = max(worst, touch(ck, i, start, nbytes, use))
    rows[N_ROWS, 0] = n
    rows[ROWS_CLASS, 0] = worst
    return worst


@jit
def _inside(st, ck, base, rows, n):
    """Are words, or a line, in memory or in the core's data buffer?"""
    for r in range(n):
        start, nbytes, ub = rows[r, START], rows[r, NBYTES], st[base + UB_BASE]
        if nbytes <= 0 or nbytes > LINE_BYTES_MOST or start < 0:
            return False
        if start + nbytes > ck[MEMORY_END] and not (ub <= start and start + nbytes <= ub + st[UB_BYTES]):
            return False
    return True


@jit
def _use(st, ck, rows, named, base, pipe, r):
    flags = rows[r, FLAGS]
    if pipe == SCALAR and st[base + REQUEST] == OP_POLL:
        if polls_line(st, base):
            return USE_EXACT if flags & SYNC_ACCESS else USE_READ
        part = st[base + REQUEST + 4] != 8 or st[base + REQUEST + 5] != -1
        taken = named[st[base + KERNEL] * MAX_SITES + rows[r, SITE]] & TAKEN
        compare = st[base + REQUEST + 2]
        kind = USE_EXACT if taken or part or compare == CMP_NE else USE_AT_LEAST if compare == CMP_GE else 0
        return USE_POLL << (rows[r, START] >> 3 & 3) | kind
    if not flags & WRITE:
        return USE_EXACT if flags & SYNC_ACCESS else USE_READ
    if pipe == SCALAR:
        torn = 0 if flags & WHOLE else USE_UNSTABLE
        return USE_WRITE | USE_BY_SCALAR | torn | (USE_EXACT if flags & SYNC_ACCESS else 0)
    if pipe == MTU_OUT and flags & WHOLE:
        tells = USE_EXACT if st[SOME_SIGNAL] and signals_next(st, entry_of(st, pipe_of(base, MTU_OUT), 0)) else 0
        return USE_BY_OUT | (USE_ADD if flags & SYNC_ACCESS else USE_WRITE) | tells
    return USE_WRITE | USE_UNSTABLE | (USE_BY_OUT if pipe == MTU_OUT else USE_TORN)


@jit
def _how_written(st, ck, rows, i, vector):
    """How a write, which the last row tells of, may be done as soon as it is possible."""
    order, block, worst, r = st[ORDER], block_of(ck, i), rows[ROWS_CLASS, 0], rows[N_ROWS, 0] - 1
    flag = worst == OWN or worst == STABLE or worst == FIELD
    full = worst == FIELD and ck[block + N_MARKS] == MARKS_MAX
    if full or (flag and order == ORDER_RELAXED and _behind_fence(st, ck, i, rows[r, START], worst)):
        see_bytes(ck, rows[r, START], rows[r, START] + rows[r, NBYTES], USE_UNORDERED)
        return NOT  # it says when others are visible, so when it becomes so matters
    if order == ORDER_FIFO and not _out_of_turn(st, ck, rows, i):
        return NOT  # its place among the writes of the die matters
    if worst >= STABLE and (any_read(ck, block, vector) or any_released(st, ck, block, vector)):
        return NOT  # others may be ordered by it behind loads or writes that are still open
    if all_in_flight(st, ck):
        return NOT  # likewise
    if worst >= STABLE and any_used(ck, rows[r, START], rows[r, NBYTES], USE_BY_SCALAR | USE_BY_OUT):
        return NOT  # which of the two pipes takes off first is a choice
    if order == ORDER_SC:
        return PLAINLY if worst <= OWN or (ck[FULL] and worst <= STABLE) else NOT
    return AT_ONCE if order == ORDER_FIFO or written_at_once(st, ck, worst) else PLAINLY


@jit
def _out_of_turn(st, ck, rows, i):
    """Under `fifo`: may a write be visible at once, though others of its die go before it?  If not, that is noted."""
    worst, r = rows[ROWS_CLASS, 0], rows[N_ROWS, 0] - 1
    start, nbytes = rows[r, START], rows[r, NBYTES]
    if not before_its_turn(st, ck, rows):
        return False
    if worst == STABLE:
        waits, use = _any_before_it(st, ck, i, start), USE_UNORDERED
    else:
        full = worst == DATA and ck[block_of(ck, i) + N_MARKS] == MARKS_MAX
        core = core_of(ck, i)
        die = st[block_of_core(st, core) + DIE]
        waits, use = full or _flies_before_it(st, core, die, start, nbytes), USE_IN_TURN
    if waits:
        see_bytes(ck, start, start + nbytes, use)
    return not waits


@jit
def _any_before_it(st, ck, i, address):
    """Has the die of a core anything in flight, or data marked, to the die of this address?"""
    die = st[block_of_core(st, core_of(ck, i)) + DIE]
    if _flies_before_it(st, -1, die, address, 1):
        return True
    for m in range(ck[N]):
        j = ck[ck[MEMBERS] + m]
        block = block_of(ck, j)
        for n in range(ck[block + N_MARKS] if st[block_of_core(st, core_of(ck, j)) + DIE] == die else 0):
            at = block + MARKS + n * MARK_WORDS
            if any_on_die_of(st, ck[at], ck[at + 1], address):
                return True
    return False


@jit
def _flies_before_it(st, core, die, start, nbytes):
    """Has another core of a die something in flight to the same die, or anybody to the same granules?"""
    ring = block_of_die(st, die)
    for k in range(st[ring + FLIGHT_COUNT]):
        entry = flight(st, ring, k)
        address = st[entry + FLIGHT_ADDRESS]
        other = st[entry + FLIGHT_CORE] != core and any_on_die_of(st, start, start + nbytes, address)
        if st[entry + FLIGHT_SITE] < LATENT:
            if other or (start >> 5 <= address >> 5 and address >> 5 <= start + nbytes - 1 >> 5):
                return True
    return False


@jit
def _behind_fence(st, ck, i, address, worst):
    """Does a write stand behind a fence, and before it, to the same die, one in flight or of marked data?"""
    core = core_of(ck, i)
    base = block_of_core(st, core)
    if worst != OWN and any_before(st, ck, block_of(ck, i), address, 0):
        return True
    ring = block_of_die(st, st[base + DIE])
    for k in range(st[ring + FLIGHT_COUNT] if st[base + IN_FLIGHT] else 0):
        entry = flight(st, ring, k)
        if st[entry + FLIGHT_CORE] == core and fences_since(st, entry):
            if goes_to(st, entry, address):
                return True
    return False


@jit
def written_at_once(st, ck, worst):
    """Does the search make writes to this class visible with the instruction that makes them?"""
    early = st[ORDER] >= ORDER_RELAXED and not all_in_flight(st, ck)
    return early and (worst <= OWN or worst == STABLE or worst == FIELD or (worst == DATA and ck[FULL]))


@jit
def before_its_turn(st, ck, rows):
    """Does it so under `fifo` with the write that the last row tells of?"""
    worst, r = rows[ROWS_CLASS, 0], rows[N_ROWS, 0] - 1
    early = st[ORDER] == ORDER_FIFO and ck[FULL] and not ck[JOINING] and worst <= STABLE and r >= 0
    return early and ck[UNIT_GRANULES] == 1 and not any_used(ck, rows[r, START], rows[r, NBYTES], USE_IN_TURN)


@jit
def overlaps_itself(st, base, k):
    """Does a DMA transfer write to what it reads?  Then the order of its sub-transfers matters."""
    slot = base + DMA_SLOTS + k * ENTRY_WORDS
    return abs(st[slot + 1] - st[slot + 2]) < st[slot + 3]


@jit
def how(st, ck, rows, i, base, pipe, op, off):
    """May the action that was looked at be done as soon as it is possible, and how?"""
    worst, block = rows[ROWS_CLASS, 0], block_of(ck, i)
    if ck[EVICTS] >> i & 1 and (op == OP_FENCE or (op == OP_WAIT_FLAG and pipe == SCALAR and st[ORDER] == ORDER_SC)):
        return NOT  # a line that is evicted waits for neither, and may go before or behind it
    if op == OP_SET_FLAG or op == OP_WAIT_FLAG or op == OP_FENCE:
        return PLAINLY
    if pipe == SCALAR:
        return _how_scalar(st, ck, rows, i, base, block, op, off)
    if pipe == MTU_IN:
        return PLAINLY if worst <= OWN or _read_early(ck, rows, i, worst) else NOT
    if pipe == VECTOR:
        return PLAINLY
    if pipe == MTU_OUT:
        return _how_written(st, ck, rows, i, vector_at(st, ck, block, base, MTU_OUT, 0))
    if worst > OWN or overlaps_itself(st, base, rows[0, AGENT] - AGENT_DMA):
        return NOT
    return PLAINLY if st[ORDER] == ORDER_SC else AT_ONCE if written_at_once(st, ck, LOCAL) else NOT


@jit
def _read_early(ck, rows, i, worst):
    """May mtu-in read shared data as soon as it can, and the read stay open until its core tells somebody?

    Not where flags are explored: then what is open when makes more states than it saves.
    """
    if ck[FULL] != MOST or ck[EXPLORED] or ck[block_of(ck, i) + N_READ] == READ_MAX:
        return False
    return worst == DATA or (worst == FIELD and not may_write(ck, i, rows[0, START], rows[0, NBYTES]))


@jit
def how_back(st, ck, core, line):
    """May a line be written back as soon as it is possible, and how?  If nobody else can tell."""
    if worst_class(ck, address_of(st, core, line), CACHE_LINE_BYTES) > LOCAL or st[ORDER] == ORDER_FIFO:
        return NOT
    return PLAINLY if st[ORDER] == ORDER_SC else AT_ONCE


@jit
def _how_scalar(st, ck, rows, i, base, block, op, off):
    worst = rows[ROWS_CLASS, 0]
    if off and op != OP_LOAD and rows[N_ROWS, 0] == 0:
        return PLAINLY
    if st[CACHE_LINES]:
        if (op == OP_LOAD or op == OP_STORE) and worst == SYNC:
            return NOT
        if op == OP_STORE:
            return PLAINLY
        line = written_back(st, core_of(ck, i), base, CHOICE_ALL)
        if line >= 0:
            return how_back(st, ck, core_of(ck, i), line)
    if op == OP_RETURN and ck[OWNERS] >> i & 1:
        return NOT  # what it owns is judged then: the moment matters
    if op == OP_RETURN or op == OP_QUIET:
        return PLAINLY if ck[block + N_MARKS] == 0 else NOT
    if op == OP_ARRIVE:
        alone = ck[FULL] == MOST and st[st[GROUP_BASE] + st[base + GROUP] * GROUP_WORDS + GROUP_SIZE] == 1
        told = ck[block + N_READ] or any_released(st, ck, block, ck[block + VECTORS])
        return PLAINLY if alone or not told else NOT
    if op == OP_LOAD:
        # A synchronizing load that nobody answers yet is no local matter: kernels go round and round with them.
        plain = rows[N_ROWS, 0] == 0 or not rows[0, FLAGS] & SYNC_ACCESS
        early = worst <= OWN or (ck[FULL] and ck[block + N_READ] < READ_MAX)
        own = worst >= FIELD and may_write(ck, i, rows[0, START], rows[0, NBYTES])  # perhaps in flight
        return PLAINLY if plain and early and not own else NOT
    if op == OP_ATOMIC_ADD:
        return PLAINLY if worst <= OWN else NOT
    if op == OP_POLL:
        address, compare = st[base + REQUEST + 1], st[base + REQUEST + 2]
        if worst == FIELD:
            return PLAINLY if fields.polled_at_once(st, ck, i, base, address, compare) else NOT
        return PLAINLY if worst <= OWN or (worst == STABLE and compare == CMP_GE) else NOT
    if op == OP_STORE and rows[N_ROWS, 0]:
        return _how_written(st, ck, rows, i, joined(ck[block + VECTORS], ck[block + FENCE_VECTOR]))
    return NOT if (op == OP_CHOOSE and answers(st, base) > 1) or op == OP_POLL_ANY else PLAINLY
