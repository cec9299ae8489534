"""One action of the machine, watched: taken, judged, and its synchronization written into the clocks."""

from xccl_emu.check.device.accesses import AGENT, FLAGS, NBYTES, SITE, START, SYNC, WHOLE, WRITE, accesses
from xccl_emu.check.device.fault_actions import is_cut
from xccl_emu.check.device.monitor.before import before_core, before_delivery
from xccl_emu.check.device.monitor.calls import call, part
from xccl_emu.check.device.monitor.clocks import (
    arrive,
    behind_fence,
    behind_strong,
    complete_dma,
    dma_row,
    engine_word,
    event_row,
    fence_row,
    group_row,
    in_order,
    index_of,
    issue,
    join_row,
    pass_fence,
    pass_quiet,
    pipe_row,
    publish,
    released,
    set_event_clock,
    sync_row,
)
from xccl_emu.check.device.monitor.layout import (
    CHAINED,
    CORE_NUMBER,
    DMA_EPOCHS,
    ENGINE_DMA,
    FENCED,
    FENCES,
    FOUND_ERROR,
    GROW,
    IMMEDIATE,
    JUDGE,
    LOOSE,
    N_DMA,
    NOT_ENABLED,
    RUNG,
    SIGNALLED,
    SIGNALS,
    STOP,
    TAKEN_OK,
    X_A,
    X_B,
    X_C,
    X_DMA,
    X_EVENT,
    X_ISSUED,
    X_KNOWN,
    X_LAST,
    X_OFF,
    X_OP,
    X_ROW,
    X_SIGNAL,
)
from xccl_emu.check.device.monitor.shadow import acquired, first_together, last_together, save, sync_number, touch
from xccl_emu.check.device.monitor.writes import after_delivery, keep_order, note_sync, wrote
from xccl_emu.lang.abi import REQUEST
from xccl_emu.lang.requests import (
    DMA,
    MTU_OUT,
    OP_ARRIVE,
    OP_ATOMIC_ADD,
    OP_AWAIT_GROUP,
    OP_DMA,
    OP_FENCE,
    OP_LOAD,
    OP_POLL,
    OP_POLL_ANY,
    OP_QUIET,
    OP_SET_FLAG,
    OP_STORE,
    OP_V_ADD,
    OP_V_AXPY,
    OP_V_SCALE,
    OP_WAIT_FLAG,
    SCALAR,
)
from xccl_emu.machine.device.cache import address_of, written_back
from xccl_emu.machine.device.conditions import can_be_polled, condition_at, n_conditions
from xccl_emu.machine.device.flight import asked_at, block_of_core, block_of_die, flight, request_site, switched_off
from xccl_emu.machine.device.layout import (
    ACTORS_PER_CORE,
    ASKS_NO,
    CACHE_LINE_BYTES,
    CACHE_LINES,
    DIE,
    DIE_SHIFT,
    DMA_SLOTS,
    ENTRY_WORDS,
    ERROR,
    FLIGHT_ADDRESS,
    FLIGHT_CORE,
    FLIGHT_COUNT,
    FLIGHT_KIND,
    FLIGHT_NBYTES,
    GRANULE_BYTES,
    GROUP,
    IN_FLIGHT,
    KIND_SCALAR,
    LINE_BYTES_MOST,
    N_CORES,
    N_DMA_SLOTS,
    REQUEST_ORDERS,
    STATUS,
    STATUS_RUNNING,
)
from xccl_emu.machine.device.single import act_once
from xccl_emu.machine.device.words import jit


@part
def watched(space, actor, choice):
    """Take one action under watch: `NOT_ENABLED` (nothing changed), `TAKEN_OK`, or what stops the run.

    `space` is (memory, state, m, clocks, shadow, records, undo, flights, keys, named, rows); see `layout`.
    """
    st, m, rows = space.st, space.m, space.rows
    core = actor // ACTORS_PER_CORE
    on_core = core < st[N_CORES]
    pipe = actor % ACTORS_PER_CORE
    base, n, line = 0, 0, -1
    if on_core:
        base = block_of_core(st, core)
        if not before_core(space, core, base, pipe, choice):
            return NOT_ENABLED
        n = accesses(st, base, pipe, choice, space.sites, rows)
        if pipe == SCALAR and st[CACHE_LINES]:
            line = before_back(space, core, base, choice)
        for r in range(n):
            if rows[r, FLAGS] & WRITE:
                save(space, rows[r, START], rows[r, NBYTES])
    else:
        die = actor - st[N_CORES] * ACTORS_PER_CORE
        if not before_delivery(space, die, choice) or is_cut(st, die, m[X_A]):
            return NOT_ENABLED
    taken = act_once(space.mem, st, actor, choice)
    if st[ERROR] != 0:
        m[STOP] = FOUND_ERROR
        return FOUND_ERROR
    if not taken:
        return m[STOP] if m[STOP] else NOT_ENABLED
    if not on_core:
        after_delivery(space, actor - st[N_CORES] * ACTORS_PER_CORE, choice)
        return m[STOP] if m[STOP] else TAKEN_OK
    i = index_of(m, core)
    known = pipe_row(m, i, pipe) if pipe != DMA else m[X_ROW]
    issued = m[X_ROW] if pipe != SCALAR else known
    if m[FENCES] and pipe == SCALAR and (m[X_OP] == OP_STORE or m[X_OP] == OP_ATOMIC_ADD):
        issued = fence_row(m, i)  # it was granted when mtu-out had passed the fence
        if not m[X_OFF] and (m[X_OP] == OP_ATOMIC_ADD or not st[CACHE_LINES]):
            join_row(m, space.clocks, known, issued)  # and so is all that its scalar unit does from now on
    m[X_KNOWN], m[X_ISSUED] = known, issued
    if line >= 0:  # what it has released is what its core knows now
        wrote(space, i, base)
        clocks = space.clocks
        clocks[known + engine_word(m, i, SCALAR)] += 1
        return m[STOP] if m[STOP] else TAKEN_OK
    for r in range(n):
        call(m[JUDGE], space, i, r)
    _after(space, i, core, base, pipe)
    if pipe == SCALAR:
        poll_begins(space, i, base)
    return m[STOP] if m[STOP] else TAKEN_OK


@jit
def before_back(space, core, base, choice):
    """Which line of its cache a scalar unit is about to write back, or -1; it counts as a store of the line."""
    st, m, rows = space.st, space.m, space.rows
    line = written_back(st, core, base, choice)
    if line >= 0:
        rows[0, START], rows[0, NBYTES], rows[0, FLAGS] = address_of(st, core, line), CACHE_LINE_BYTES, WRITE
        save(space, rows[0, START], CACHE_LINE_BYTES)
        m[X_OP] = OP_STORE
    return line


@jit
def poll_begins(space, i, base):
    """A poll reads from its issue on, again and again: whoever writes there otherwise than at once may be met."""
    st = space.st
    polls_any = st[base + REQUEST] == OP_POLL_ANY
    if st[base + STATUS] != STATUS_RUNNING or (st[base + REQUEST] != OP_POLL and not polls_any):
        return
    if switched_off(st, base):
        return
    if polls_any:
        for k in range(n_conditions(st, base) if can_be_polled(st, base, space.mem.size) else 0):
            _poll_word(space, i, base, st[condition_at(base, k)], 8)
        return
    address, nbytes = st[base + REQUEST + 1], st[base + REQUEST + 4]
    if nbytes <= 0 or nbytes > LINE_BYTES_MOST or nbytes & nbytes - 1:
        return  # it will be refused
    if address >= 0 and address <= space.mem.size - nbytes and address & nbytes - 1 == 0:
        _poll_word(space, i, base, address, nbytes)


@jit
def _poll_word(space, i, base, address, nbytes):
    """A core begins to poll a word, or a line."""
    m = space.m
    _note_syncs(space, address, nbytes)
    m[X_KNOWN] = m[X_ISSUED] = pipe_row(m, i, SCALAR)
    touch(space, i, SCALAR, address, nbytes, SYNC | WHOLE, request_site(space.st, base))


@jit
def _note_syncs(space, start, nbytes):
    """All granules that become visible at once with some bytes: who sees these sees what was written there before."""
    for granule in range(first_together(space.st, start), last_together(space.st, start + nbytes - 1) + 1):
        note_sync(space, granule)


@part
def judge(space, i, r):
    """Judge one access of the action, and make its granule known if it is used as a synchronization."""
    st, m, rows = space.st, space.m, space.rows
    start, nbytes, flags, engine = rows[r, START], rows[r, NBYTES], rows[r, FLAGS], rows[r, AGENT]
    known = m[X_KNOWN]
    base = block_of_core(st, m[m[CORE_NUMBER] + i])
    if st[REQUEST_ORDERS] and flags & WRITE and engine < ENGINE_DMA and asked_at(st, base, rows[r, SITE]) == ASKS_NO:
        flags |= LOOSE
    if flags & SYNC:
        _note_syncs(space, start, nbytes)
    if m[X_OP] == OP_ATOMIC_ADD:
        flags |= IMMEDIATE
        in_order(st, m, space.clocks, i, known, known, start >> st[DIE_SHIFT])  # it had to wait for them
        behind_fence(st, m, space.clocks, i, known, start >> st[DIE_SHIFT])
        behind_strong(st, m, space.clocks, i, known, start >> st[DIE_SHIFT], base, rows[r, SITE])
    times = 1
    if flags & WRITE and (m[X_OP] == OP_V_AXPY or m[X_OP] == OP_V_ADD or m[X_OP] == OP_V_SCALE):
        times = 2  # an accumulator is read too
    for t in range(times):
        what = flags & ~WRITE if t + 1 < times else flags
        touch(space, i, engine, start, nbytes, what, rows[r, SITE])
    return 0


@jit
def _after(space, i, core, base, pipe):
    """Bring the clocks up to date."""
    st, m, clocks = space.st, space.m, space.clocks
    op, known, issued = m[X_OP], m[X_KNOWN], m[X_ISSUED]
    if pipe == SCALAR:
        if op == OP_LOAD or not m[X_OFF]:
            _after_scalar(space, i, core, base, op)
        return
    if op == OP_SET_FLAG:
        set_event_clock(m, clocks, i, pipe, issued, event_row(m, i, m[X_A], m[X_B], m[X_C]))
    elif op == OP_WAIT_FLAG:
        join_row(m, clocks, known, event_row(m, i, m[X_A], m[X_B], m[X_C]))
    elif op == OP_FENCE:
        _pass_fence(m, clocks, i, known, issued)
    elif pipe == MTU_OUT or pipe == DMA:
        wrote(space, i, base)
        if pipe == MTU_OUT:
            clocks[known + engine_word(m, i, MTU_OUT)] += 1
            if m[X_SIGNAL]:
                _signalled(m, i)
        elif st[base + DMA_SLOTS + m[X_DMA] * ENTRY_WORDS] == 0:
            complete_dma(m, clocks, i, m[X_DMA], m[X_EVENT])


@jit
def _signalled(m, i):
    """A core has sent a signal."""
    m[m[SIGNALLED] + i] += 1
    for k in range(m[SIGNALS]):
        m[m[CHAINED] + i * m[SIGNALS] + k] = 0


@jit
def _pass_fence(m, clocks, i, known, issued):
    m[FENCED] = 1
    if m[FENCES]:
        pass_fence(m, clocks, i, known, issued)
    else:  # none was passed while the monitor learned
        m[STOP] = GROW


@jit
def _after_scalar(space, i, core, base, op):
    st, m, clocks = space.st, space.m, space.clocks
    own = pipe_row(m, i, SCALAR)
    if m[X_ROW] >= 0:
        issue(m, clocks, i, m[X_ROW])
    elif op == OP_SET_FLAG:
        set_event_clock(m, clocks, i, SCALAR, own, event_row(m, i, m[X_A], m[X_B], m[X_C]))
    elif op == OP_WAIT_FLAG:
        join_row(m, clocks, own, event_row(m, i, m[X_A], m[X_B], m[X_C]))
    elif op == OP_POLL or op == OP_LOAD:
        _acquire(space, i, core, base, 0)
    elif op == OP_POLL_ANY:
        for r in range(m[X_LAST] + 1):
            _acquire(space, i, core, base, r)
    elif op == OP_STORE and not st[CACHE_LINES]:
        wrote(space, i, base)
        clocks[own + engine_word(m, i, SCALAR)] += 1
    elif op == OP_ATOMIC_ADD:
        _acquire(space, i, core, base, 0)
        number = sync_number(space, m[X_A] // GRANULE_BYTES)
        if number and m[X_LAST]:
            row = released(space, i, m[X_A], base, space.rows[0, SITE])
            keep_order(space, i, row, m[X_A], 8, asked_at(st, base, space.rows[0, SITE]) == ASKS_NO)
            publish(m, clocks, number - 1, m[X_A], 8, row, True)
        clocks[own + engine_word(m, i, SCALAR)] += 1
    elif op == OP_QUIET:
        pass_quiet(st, m, clocks, i)
    elif op == OP_DMA:
        if m[N_DMA] == 0:  # none was rung while the monitor learned
            m[STOP] = GROW
        m[RUNG] = 1
        m[m[DMA_EPOCHS] + i * N_DMA_SLOTS + m[X_DMA]] += 1
        issue(m, clocks, i, dma_row(m, i, m[X_DMA]))
    elif op == OP_ARRIVE:
        arrive(m, clocks, i, st[base + GROUP], m[X_B], m[X_LAST])
    elif op == OP_AWAIT_GROUP:
        join_row(m, clocks, own, group_row(m, st[base + GROUP], 1 + (m[X_A] & 1)))


@jit
def _acquire(space, i, core, base, r):
    """What a poll, atomic or synchronizing load has read in a row is known, and with it what its writes released.

    A line, which is not read at once, sees no store that is in flight.
    """
    m, clocks, rows = space.m, space.clocks, space.rows
    if not rows[r, FLAGS] & SYNC:
        return
    start, nbytes = rows[r, START], rows[r, NBYTES]
    for word in range(start >> 3, (start + nbytes - 1 >> 3) + 1):
        granule = (word << 3) // GRANULE_BYTES
        number = sync_number(space, granule)
        if number and (not rows[r, FLAGS] & WHOLE or not _saw_own_stores(space, core, base, start, nbytes)):
            row = sync_row(m, number - 1, word << 3)
            join_row(m, clocks, pipe_row(m, i, SCALAR), row)
            acquired(space, word << 3, row)


@jit
def _saw_own_stores(space, core, base, address, nbytes):
    """Did a load see nothing but stores of its own core that are still in flight?"""
    st, seen = space.st, 0
    if st[base + IN_FLIGHT] == 0 or st[CACHE_LINES]:  # past a cache it sees memory
        return False
    ring = block_of_die(st, st[base + DIE])
    for k in range(st[ring + FLIGHT_COUNT]):
        entry = flight(st, ring, k)
        first = st[entry + FLIGHT_ADDRESS]
        if st[entry + FLIGHT_CORE] == core and st[entry + FLIGHT_KIND] == KIND_SCALAR and first >> 3 == address >> 3:
            seen |= (1 << st[entry + FLIGHT_NBYTES]) - 1 << (first & 7)
    read = (1 << nbytes) - 1 << (address & 7)
    return seen & read == read
