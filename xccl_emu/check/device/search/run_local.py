"""Transitions of a search: one action on shared memory, and all that follows from it at once."""

from xccl_emu.check.device.accesses import WHOLE_TRANSFER, instruction_of
from xccl_emu.check.device.search.checker_state import (
    ACTIONS,
    DIES,
    FENCE_VECTOR,
    FULL,
    HASH,
    JOINING,
    LIMIT,
    LIMIT_SPIN,
    LOCALLY,
    LOG,
    MACHINE,
    MEMBERS,
    MEMORY_END,
    N_MARKS,
    NOW,
    OWNERS,
    RAW,
    RECORDING,
    RESTART,
    ROWS_CLASS,
    STATE,
    TOUCHED,
    VECTORS,
    VIOLATION,
    WITNESS,
    N,
    add_hash,
    delivered_hash,
    hash_changes,
    save,
    save_bytes,
    step_back,
)
from xccl_emu.check.device.search.classify import AT_ONCE, NOT, before_its_turn, how, overlaps_itself, written_at_once
from xccl_emu.check.device.search.clocks import block_of, close_reads, completion_of, core_of, note_set
from xccl_emu.check.device.search.granules import DATA, LOCAL, SYNC, USE_CACHED, any_used, may_write, worst_class
from xccl_emu.check.device.search.inside import LANDED, land_before
from xccl_emu.check.device.search.linked import classify, execute, find_race, linked, run_local_all
from xccl_emu.check.device.search.moves import flag_landed, log_touched, number_of, put_back, touch_core
from xccl_emu.check.device.search.races import any_before, any_told, note_late, release_before, release_told
from xccl_emu.check.device.search.record import clear_way, deliver_latent, in_ring, n_latent, write_down
from xccl_emu.check.device.search.waits import note_site
from xccl_emu.lang.abi import REQUEST
from xccl_emu.lang.requests import (
    DMA,
    MTU_IN,
    MTU_OUT,
    OP_AWAIT_GROUP,
    OP_CHOOSE,
    OP_FENCE,
    OP_MTU_IN,
    OP_POLL,
    OP_POLL_ANY,
    OP_QUIET,
    OP_RETURN,
    OP_STORE,
    SCALAR,
    VECTOR,
)
from xccl_emu.machine.device.cache import (
    address_of,
    nth_scalar,
    scalar_choices,
    through_cache,
    written_back,
)
from xccl_emu.machine.device.conditions import can_be_polled, is_awaited
from xccl_emu.machine.device.flight import (
    block_of_core,
    block_of_die,
    deliver,
    deliverable,
    fences_since,
    flight,
    part_of,
    read_word,
    request_site,
    signals_before,
    switched_off,
)
from xccl_emu.machine.device.layout import (
    ACTORS_PER_CORE,
    CACHE_LINE_BYTES,
    CACHE_LINES,
    CAME,
    CHOICE_ALL,
    CHOICE_ANEW,
    CHOICE_EVICT,
    DMA_SLOTS,
    ENTRY_PROGRESS,
    ENTRY_WORDS,
    ERROR,
    FLIGHT_ADDRESS,
    FLIGHT_CORE,
    FLIGHT_COUNT,
    FLIGHT_KIND,
    FLIGHT_NBYTES,
    FLIGHT_WORDS,
    GROUP,
    GROUP_BASE,
    GROUP_PHASE,
    GROUP_WORDS,
    IN_FLIGHT,
    IS_SIGNAL,
    KIND_DMA,
    KIND_SCALAR,
    MAY_WAIT,
    N_ACTIVE,
    N_CORES,
    N_DMA_SLOTS,
    N_LIVE,
    PIPE_COUNT,
    STATUS,
    STATUS_RUNNING,
)
from xccl_emu.machine.device.lines import flags_in, line_part, polls_line
from xccl_emu.machine.device.pipes import can_read, entry_of, n_subtransfers, pipe_of
from xccl_emu.machine.device.scalar import drained, first_that_holds
from xccl_emu.machine.device.sites import word_of_site
from xccl_emu.machine.device.words import call, jit

_SPIN = 1 << 16
"""Local actions in a row after which a kernel is taken to run for ever."""
SPIN_SITES = 10
"""So many sites of its loop are kept."""

PER_CORE = 5
"""Processes of a core: its pipes and its DMA; behind all cores one process a die, which delivers."""


@jit
def over(ck):
    """Is there something to tell, or to begin anew for?"""
    return ck[VIOLATION] | ck[LIMIT] | ck[RESTART]


@call
def run_local(mem, st, ck, rows, named, i):
    """Do everything of a core that is local to it, until nothing local is left."""
    base = block_of_core(st, core_of(ck, i))
    taken, before = 0, -1
    while taken != before and not over(ck):
        before = taken
        for pipe in range(SCALAR, DMA):
            while not over(ck) and st[base + STATUS] == STATUS_RUNNING:
                if not _local(mem, st, ck, rows, named, i, pipe, 0):
                    break
                taken += 1
                if taken > _SPIN:
                    _note_spin(st, ck, i, taken - _SPIN - 1)
        for k in range(N_DMA_SLOTS):
            slot = base + DMA_SLOTS + k * ENTRY_WORDS
            if st[slot] and st[slot + ENTRY_PROGRESS] >= 0 and not over(ck):
                taken += 1 if _local(mem, st, ck, rows, named, i, DMA, k) else 0


@jit
def _note_spin(st, ck, i, n):
    """A kernel is taken to run for ever: keep where it comes by, and stop."""
    base = block_of_core(st, core_of(ck, i))
    ck[WITNESS], ck[WITNESS + 1], ck[WITNESS + 2 + n] = core_of(ck, i), n + 1, request_site(st, base)
    if n + 1 == SPIN_SITES:
        ck[LIMIT] = LIMIT_SPIN


@call
def _local(mem, st, ck, rows, named, i, pipe, k):
    """Take the next action of a pipe if it is local; False if there is none that is possible."""
    base, choice = block_of_core(st, core_of(ck, i)), WHOLE_TRANSFER | k if pipe == DMA else CHOICE_ALL
    entry = instruction_of(st, base, pipe, choice)
    if entry < 0:
        return False
    op, off = st[entry], pipe == SCALAR and st[entry] != OP_RETURN and switched_off(st, base)
    waits = pipe == SCALAR and _polls(op) and not off and not _granted(mem, st, ck, i, choice)
    classify(mem, st, ck, rows, named, i, pipe << 16 | choice)  # that it is polled must be known in any case
    if pipe != DMA and not off and op != OP_RETURN:  # that has no site
        word = word_of_site(st, base, pipe, entry)
        if waits:
            named[word] |= CAME | MAY_WAIT
        elif named[word] & MAY_WAIT == 0:
            note_site(st, ck, rows, named, i, pipe)
    if waits:
        return False
    way = how(st, ck, rows, i, base, pipe, op, off)
    if way == NOT or ck[RESTART]:
        return False
    ck[LOCALLY] = 1
    done = execute(mem, st, ck, rows, named, i, (1 << 24 if way == AT_ONCE else 0) | pipe << 16 | choice)
    ck[LOCALLY] = 0
    return done != 0


@jit
def _polls(op):
    """Does a request wait for what is in memory?"""
    return op == OP_POLL or op == OP_POLL_ANY


@jit
def _granted(mem, st, ck, i, choice):
    """Would the poll that a core is at be granted now, or of a line what the choice says?"""
    base = block_of_core(st, core_of(ck, i))
    if st[base + REQUEST] == OP_POLL_ANY:
        return not can_be_polled(st, base, ck[MEMORY_END]) or first_that_holds(mem, st, core_of(ck, i), base) >= 0
    address, nbytes = st[base + REQUEST + 1], st[base + REQUEST + 4]
    line = polls_line(st, base)
    if nbytes <= 0 or (nbytes > 8 and not line) or nbytes & nbytes - 1:
        return True  # let the machine refuse it
    if address < 0 or address > ck[MEMORY_END] - nbytes or address & nbytes - 1:
        return True
    if line:
        first, size = line_part(st, base, choice)
        return flags_in(mem, st, base, first, size)
    value, mask = read_word(mem, st, core_of(ck, i), base, address, nbytes), st[base + REQUEST + 5]
    return is_awaited(value & mask, st[base + REQUEST + 2], st[base + REQUEST + 3] & mask)


@linked
def run_local_of_all(mem, st, ck, rows, named, i, _):
    """Settle a core, then all others that this lets go on: at a barrier, or at a poll that may be granted at once."""
    run_local(mem, st, ck, rows, named, i)
    again = True
    while again and not over(ck):
        again = False
        for m in range(ck[N]):
            j = ck[ck[MEMBERS] + m]
            if not over(ck) and _can_wake(mem, st, ck, rows, named, j):
                touch_core(st, ck, j)
                run_local(mem, st, ck, rows, named, j)
                again = True
    return 0


@jit
def _can_wake(mem, st, ck, rows, named, j):
    base = block_of_core(st, core_of(ck, j))
    if st[base + STATUS] != STATUS_RUNNING:
        return False
    op = st[base + REQUEST]
    if (op == OP_QUIET or op == OP_RETURN) and ck[TOUCHED] >> j & 1:  # its last mark may have ended
        if ck[block_of(ck, j) + N_MARKS] or st[CACHE_LINES] or (op == OP_RETURN and ck[OWNERS] >> j & 1):
            return False
        if ck[RECORDING]:
            deliver_latent(mem, st, ck, core_of(ck, j))
        return drained(st, base)
    if op == OP_AWAIT_GROUP:
        group = st[GROUP_BASE] + st[base + GROUP] * GROUP_WORDS
        return st[group + GROUP_PHASE] != st[base + REQUEST + 1] and not switched_off(st, base)
    if op != OP_POLL or switched_off(st, base) or not _granted(mem, st, ck, j, CHOICE_ALL):
        return False
    classify(mem, st, ck, rows, named, j, SCALAR << 16 | CHOICE_ALL)
    return how(st, ck, rows, j, base, SCALAR, op, False) != NOT and not ck[RESTART]


# ---- what can happen in a state


@jit
def n_choices(st, ck, process):
    """How many transitions of a process there may be: each is then tried."""
    m = process // PER_CORE
    if m >= ck[N]:
        die = ck[ck[DIES] + process - ck[N] * PER_CORE]
        return st[block_of_die(st, die) + FLIGHT_COUNT]
    base, pipe = block_of_core(st, core_of(ck, ck[ck[MEMBERS] + m])), process % PER_CORE
    if st[base + STATUS] != STATUS_RUNNING:
        return 0
    if pipe == SCALAR:
        return scalar_choices(st, base)
    if pipe == VECTOR:
        return 0
    i, total = ck[ck[MEMBERS] + m], 0
    count = N_DMA_SLOTS if pipe == DMA else st[pipe_of(base, pipe) + PIPE_COUNT]
    if pipe == MTU_OUT or count == 0 or (pipe == MTU_IN and _all_whole(st, ck, i, base)):
        return min(count, 1)
    for j in range(count):
        total += _n_parts(st, ck, i, base, pipe, j)
    return total


@jit
def _n_parts(st, ck, i, base, pipe, j):
    """In how many parts the j-th transfer of mtu-in, or of a DMA descriptor, is made; none if there is none."""
    entry = base + DMA_SLOTS + j * ENTRY_WORDS if pipe == DMA else entry_of(st, pipe_of(base, MTU_IN), j)
    if st[entry] == 0 or (pipe == MTU_IN and st[entry] != OP_MTU_IN):
        return 0
    if pipe == DMA and _copied_whole(st, ck, i, base, j):
        return 1
    return n_subtransfers(st, st[entry + 1], st[entry + 2 if pipe == DMA else entry + 1], st[entry + 3])


@jit
def need_not_happen(st, ck, process, n):
    """Is the n-th transition of a process one that need never happen: that a line is evicted, or fetched anew?

    Returned as two bits: 1 for an eviction, 2 for a load that might see its line as it is instead.
    """
    if not st[CACHE_LINES] or process % PER_CORE != SCALAR or process // PER_CORE >= ck[N]:
        return 0
    base = block_of_core(st, core_of(ck, ck[ck[MEMBERS] + process // PER_CORE]))
    choice = nth_scalar(st, base, n)
    if choice >= CHOICE_EVICT:
        return 1
    return 2 if choice == CHOICE_ANEW and through_cache(st, base) else 0


@jit
def _read_whole(ck, i, source, nbytes):
    """May bytes be read in one go?  Not if a core may have own writes to flags among them in flight meanwhile."""
    inside = source >= 0 and nbytes > 0 and source + nbytes <= ck[MEMORY_END]
    if not ck[FULL] or not inside:
        return ck[FULL] != 0
    worst = worst_class(ck, source, nbytes)
    if worst == SYNC and any_used(ck, source, nbytes, USE_CACHED):
        return False  # what is written back is no race, but may be met halfway
    return worst < SYNC or not may_write(ck, i, source, nbytes)


@jit
def _copied_whole(st, ck, i, base, k):
    """May a DMA transfer be made in one go?  Of flags the order matters in which they are copied."""
    slot = base + DMA_SLOTS + k * ENTRY_WORDS
    source, target, nbytes = st[slot + 1], st[slot + 2], st[slot + 3]
    if overlaps_itself(st, base, k) or worst_class(ck, target, nbytes) > DATA:
        return False
    return _read_whole(ck, i, source, nbytes)


@jit
def _all_whole(st, ck, i, base):
    """May every queued transfer of mtu-in be read in one go?"""
    queue = pipe_of(base, MTU_IN)
    for j in range(st[queue + PIPE_COUNT]):
        entry = entry_of(st, queue, j)
        if st[entry] == OP_MTU_IN and not _read_whole(ck, i, st[entry + 1], st[entry + 3]):
            return False
    return ck[FULL] != 0


@jit
def _choice(st, ck, i, base, pipe, n):
    """The n-th choice of a pipe."""
    if pipe == SCALAR:
        return nth_scalar(st, base, n)
    if pipe == MTU_OUT:
        return 0
    if pipe == MTU_IN and _all_whole(st, ck, i, base):
        return CHOICE_ALL
    for j in range(N_DMA_SLOTS if pipe == DMA else st[pipe_of(base, MTU_IN) + PIPE_COUNT]):
        parts = _n_parts(st, ck, i, base, pipe, j)
        if n < parts:
            return WHOLE_TRANSFER | j if pipe == DMA and _copied_whole(st, ck, i, base, j) else j | n << 4
        n -= parts
    return 0


@linked
def make_transition(mem, st, ck, rows, named, process, n):
    """Make the n-th transition of a process, with all that follows from it; False, and nothing changed, if it is none.

    What changed is logged; the fingerprint is up to date.  A violation, a limit or the wish to begin anew is in the
    checker state.
    """
    mark, before = ck[LOG], ck[HASH]
    ck[TOUCHED] = 0
    m = process // PER_CORE
    if m >= ck[N]:
        done = _deliver(mem, st, ck, rows, named, ck[ck[DIES] + process - ck[N] * PER_CORE], n)
    else:
        done = _act(mem, st, ck, rows, named, ck[ck[MEMBERS] + m], process % PER_CORE, n)
    if not done and not ck[VIOLATION]:
        put_back(st, ck)
        step_back(mem, st, ck, mark)
        ck[HASH] = before
        return 0
    log_touched(st, ck)
    if ck[TOUCHED] and not ck[LIMIT] and not ck[RESTART]:
        find_race(mem, st, ck, rows, named, ck[TOUCHED])
    return 1


@jit
def _act(mem, st, ck, rows, named, i, pipe, n):
    """Take the n-th choice of a pipe, with what follows from it."""
    choice = _choice(st, ck, i, block_of_core(st, core_of(ck, i)), pipe, n)
    evicts = pipe == SCALAR and choice >= CHOICE_EVICT
    if evicts:
        what = SCALAR << 16 | choice if _may_evict(st, ck, i, choice) else -1
    else:
        what = _possible(mem, st, ck, rows, named, i, pipe, choice)
    if what < 0:
        return False
    touch_core(st, ck, i)
    asks = pipe == SCALAR and st[block_of_core(st, core_of(ck, i)) + REQUEST] == OP_CHOOSE  # this orders nothing
    if pipe == SCALAR and not evicts and not asks:  # what was loaded early is long complete
        close_reads(ck, block_of(ck, i), ck[block_of(ck, i) + VECTORS])
    if evicts or (pipe == MTU_OUT and what & CHOICE_ALL != CHOICE_ALL):
        classify(mem, st, ck, rows, named, i, pipe << 16 | choice)
    if not execute(mem, st, ck, rows, named, i, what):
        return False
    run_local_all(mem, st, ck, rows, named, i)
    return True


@jit
def _possible(mem, st, ck, rows, named, i, pipe, choice):
    """What `execute` is to take for a choice of a pipe; -1 if that cannot be, or is local."""
    base = block_of_core(st, core_of(ck, i))
    entry, off = instruction_of(st, base, pipe, choice), False
    if pipe == SCALAR:
        off = st[entry] != OP_RETURN and switched_off(st, base)
        if _polls(st[entry]) and not off and not _granted(mem, st, ck, i, choice):
            named[word_of_site(st, base, pipe, entry)] |= MAY_WAIT
            return -1
        back = st[CACHE_LINES] != 0 and written_back(st, core_of(ck, i), base, choice) >= 0
        if not back and (st[entry] == OP_QUIET or st[entry] == OP_RETURN):
            if ck[RECORDING]:
                deliver_latent(mem, st, ck, core_of(ck, i))
            if not drained(st, base):
                return -1
    elif pipe == DMA and st[entry + ENTRY_PROGRESS] < 0:
        return -1
    # Whether it is local is asked of all that is left of a transfer, as `_local` asks it.
    classify(mem, st, ck, rows, named, i, pipe << 16 | (CHOICE_ALL if pipe == MTU_OUT else choice))
    waits = pipe == SCALAR and polls_line(st, base)  # not as a whole, or it had been done; other parts may be read
    if (how(st, ck, rows, i, base, pipe, st[entry], off) != NOT and not waits) or ck[RESTART]:
        return -1  # local: it was done, or it cannot be
    if pipe == MTU_IN and not can_read(st, base, choice):
        return -1
    worst, at_once = rows[ROWS_CLASS, 0], False
    if ck[FULL] and worst == DATA and pipe == MTU_OUT:
        choice = CHOICE_ALL
    if pipe == DMA:
        at_once = ck[FULL] and worst <= DATA and written_at_once(st, ck, worst)
        at_once = at_once and not overlaps_itself(st, base, choice & 15)
    elif (pipe == MTU_OUT and st[entry] != OP_FENCE) or (pipe == SCALAR and st[entry] == OP_STORE):
        at_once = written_at_once(st, ck, worst) or before_its_turn(st, ck, rows)
    return (1 << 24 if at_once else 0) | pipe << 16 | choice


@jit
def _may_evict(st, ck, i, choice):
    """Is there a changed line in this place of a core's cache that others may see?"""
    core = core_of(ck, i)
    line = written_back(st, core, block_of_core(st, core), choice) if st[CACHE_LINES] else -1
    return line >= 0 and worst_class(ck, address_of(st, core, line), CACHE_LINE_BYTES) > LOCAL


@jit
def _deliver(mem, st, ck, rows, named, die, k):
    """Make a write in flight visible."""
    if ck[RECORDING]:
        k = clear_way(mem, st, ck, die, in_ring(st, die, k))
    if not deliverable(st, die, k):
        return False
    ring = block_of_die(st, die)
    entry = flight(st, ring, k)
    core, kind, address = st[entry + FLIGHT_CORE], st[entry + FLIGHT_KIND], st[entry + FLIGHT_ADDRESS]
    i, base, mark = number_of(ck, core), block_of_core(st, core), ck[LOG]
    first = flight(st, ring, 0)
    if entry >= first:
        save(mem, st, ck, STATE | RAW, first, entry - first + st[FLIGHT_WORDS])
    else:
        for j in range(k + 1):
            save(mem, st, ck, STATE | RAW, flight(st, ring, j), st[FLIGHT_WORDS])
    save(mem, st, ck, STATE | RAW, ring, 2)
    save_bytes(mem, st, ck, address, st[entry + FLIGHT_NBYTES])
    waits = st[base + REQUEST] == OP_QUIET or st[base + REQUEST] == OP_RETURN
    fences = fences_since(st, entry)
    lands = ck[JOINING] and ck[block_of(ck, i) + FENCE_VECTOR]
    releases = kind < KIND_DMA and (lands or any_before(st, ck, block_of(ck, i), address, fences))
    signal = signals_before(st, ring, k, core, address) + 1 if part_of(st, entry) == IS_SIGNAL else 0
    releases = releases or (signal > 0 and any_told(st, ck, block_of(ck, i), address, signal))
    fetches = st[CACHE_LINES] != 0 and kind == KIND_SCALAR  # its core may wait for the line
    drains = waits and st[base + IN_FLIGHT] - n_latent(st, ck, core) == 1
    last = kind >= KIND_DMA or releases or fetches or drains
    if last:
        touch_core(st, ck, i)
    else:
        save(mem, st, ck, STATE | NOW, base + IN_FLIGHT, 1)
    if ck[JOINING]:
        flag_landed(mem, st, ck, i, die, k)
    if st[N_LIVE] < st[N_ACTIVE]:
        note_late(st, ck, i, address, st[entry + FLIGHT_NBYTES])
    add_hash(ck, delivered_hash(st, ring, k))
    slot = base + DMA_SLOTS + (kind - KIND_DMA) * ENTRY_WORDS
    event = st[slot + 4] if kind >= KIND_DMA else 0
    if ck[RECORDING]:
        write_down(ck, st[N_CORES] * ACTORS_PER_CORE + die, k)
    deliver(mem, st, die, k)
    if releases and signal:
        release_told(st, ck, block_of(ck, i), address, signal)
    if releases:
        release_before(st, ck, block_of(ck, i), address, fences)
        land_before(st, ck, block_of(ck, i), address, fences, LANDED)
    ck[ACTIONS] += 1
    if st[ERROR] != 0:
        ck[VIOLATION] = MACHINE
    hash_changes(mem, st, ck, mark)
    if kind >= KIND_DMA and st[slot] == 0:
        note_set(ck, block_of(ck, i), DMA, SCALAR, event, completion_of(ck, block_of(ck, i), kind - KIND_DMA))
    if last:
        run_local_all(mem, st, ck, rows, named, i)
    return True
