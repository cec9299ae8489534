"""One action of the machine, watched: taken, judged, and its synchronization written into the clocks."""

from xccl_emu.check.device import accesses
from xccl_emu.check.device.fault_actions import is_cut
from xccl_emu.check.sampling.device.monitor import clocks as monitor_clocks
from xccl_emu.check.sampling.device.monitor import layout as ml
from xccl_emu.check.sampling.device.monitor import shadow, writes
from xccl_emu.check.sampling.device.monitor.calls import call, part
from xccl_emu.check.sampling.device.monitor.clocks import dma_row, index_of, queue_row
from xccl_emu.check.sampling.device.monitor.shadow import sync_number
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REQUEST
from xccl_emu.machine.device import flight, pipes, polls, touched
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.cache import LINE_SHIFT, address_of, crowded_out, is_hit, through_cache, written_back
from xccl_emu.machine.device.scalar import which_holds
from xccl_emu.machine.device.single import act_once
from xccl_emu.machine.device.words import jit, load_i64


@jit
def before_core(space, core, base, pipe, choice):
    """Take down what the core's pipe is about to do; False if there is nothing."""
    st, m = space.st, space.m
    i = index_of(m, core)
    m[ml.X_FLIGHTS] = st[flight.block_of_die(st, st[base + ms.DIE]) + ms.FLIGHT_COUNT]
    m[ml.X_OFF] = m[ml.X_PAYLOAD] = m[ml.X_SIGNAL] = m[ml.X_ADDS] = 0
    m[ml.X_SITE] = flight.request_site(st, base)
    if pipe == rq.SCALAR:
        return st[base + ms.STATUS] == ms.STATUS_RUNNING and _before_scalar(space, i, base, choice)
    if pipe == rq.DMA:
        slot = base + ms.DMA_SLOTS + (choice & 15) * ms.ENTRY_WORDS
        if choice & 15 >= ms.N_DMA_SLOTS or st[slot] == 0:
            return False
        m[ml.X_DMA], m[ml.X_EVENT], m[ml.X_SITE] = choice & 15, st[slot + ops.DMA.event], st[slot + ms.ENTRY_SITE]
        m[ml.X_OP] = st[slot]
        m[ml.X_ROW] = dma_row(m, i, choice & 15)
        return True
    queue = pipes.pipe_of(base, pipe)
    j = choice & 15 if pipe == rq.MTU_IN else 0
    if j >= st[queue + ms.PIPE_COUNT]:
        return False
    entry = pipes.entry_of(st, queue, j)
    m[ml.X_OP] = st[entry]
    m[ml.X_SOURCE], m[ml.X_TARGET], m[ml.X_NUMBER] = touched.flag_of(st, entry)
    m[ml.X_ROW] = queue_row(m, i, pipe, (st[queue + ms.PIPE_HEAD] + j) % ms.QUEUE_DEPTH)
    m[ml.X_SITE] = st[entry + ms.ENTRY_SITE]
    m[ml.X_ADDS] = ops.ADDS >> m[ml.X_OP] & 1
    if m[ml.X_OP] == rq.OP_PUT_SIGNAL:
        signals = pipes.signals_next(st, entry)
        m[ml.X_SIGNAL if signals else ml.X_PAYLOAD] = m[m[ml.SIGNALLED] + i] + 1
        m[ml.X_ADDS] = 1 if signals and st[entry + ops.PUT_SIGNAL.how] == rq.SIGNAL_ADD else 0
    return True


@jit
def _before_scalar(space, i, base, choice):
    st, m = space.st, space.m
    op = m[ml.X_OP] = st[base + REQUEST]
    m[ml.X_OFF] = 1 if flight.switched_off(st, base) else 0
    m[ml.X_ROW] = -1
    source, target, event = touched.flag_of(st, base + REQUEST)
    pipe = touched.queued_on(op, source, target)
    if pipe > rq.SCALAR and pipe <= rq.MTU_OUT:
        queue = pipes.pipe_of(base, pipe)
        m[ml.X_ROW] = queue_row(m, i, pipe, (st[queue + ms.PIPE_HEAD] + st[queue + ms.PIPE_COUNT]) % ms.QUEUE_DEPTH)
    elif through_cache(st, base):
        hits = is_hit(st, m[m[ml.CORE_NUMBER] + i], st[base + REQUEST + ops.FIRST], choice)
        m[ml.X_FETCHES] = 0 if hits else 1
    elif ops.FLAGS >> op & 1:
        m[ml.X_SOURCE], m[ml.X_TARGET], m[ml.X_NUMBER] = source, target, event
    elif ops.RINGS >> op & 1:
        m[ml.X_DMA] = max(0, pipes.free_descriptor(st, base))  # if none is free the core does not get that far
        m[ml.X_EVENT] = st[base + REQUEST + ops.DMA.event]
    elif ops.ATOMICS >> op & 1:  # does it change its word?  A swap that fails releases nothing.
        address = m[ml.X_ADDRESS] = st[base + REQUEST + ops.ATOMIC.address]
        expected = st[base + REQUEST + ops.COMPARE_SWAP.expected]
        there = op == rq.OP_COMPARE_SWAP and address >= 0 and address <= space.mem.size - 8 and address & 7 == 0
        m[ml.X_LAST] = 0 if there and load_i64(space.mem, address) != expected else 1
    elif op == rq.OP_POLL_ANY:
        m[ml.X_LAST] = 0  # which of its accesses is the one that it sees
        if choice == ms.CHOICE_ALL and polls.can_be_polled(st, base, space.mem.size):
            m[ml.X_LAST] = which_holds(space.mem, st, m[m[ml.CORE_NUMBER] + i], base, choice)
    elif ops.GROUP_WAITS >> op & 1:
        m[ml.X_PHASE] = st[base + REQUEST + ops.AWAIT.phase]
    elif ops.ARRIVALS >> op & 1:
        group = st[ms.GROUP_BASE] + st[base + ms.GROUP] * ms.GROUP_WORDS
        m[ml.X_PHASE] = st[group + ms.GROUP_PHASE]
        m[ml.X_LAST] = 1 if st[group + ms.GROUP_ARRIVED] + 1 == st[group + ms.GROUP_SIZE] else 0
    return True


@jit
def before_delivery(space, die, k):
    """Take down which write in flight is about to become visible."""
    st, m = space.st, space.m
    if die >= st[ms.N_HOMES]:
        return False
    ring = flight.block_of_die(st, die)
    if k < 0 or k >= st[ring + ms.FLIGHT_COUNT]:
        return False
    entry = flight.flight(st, ring, k)
    m[ml.X_OP] = st[entry + ms.FLIGHT_KIND]
    m[ml.X_LAST] = 1 if flight.asked(st, entry) == ms.ASKS_NO else 0
    m[ml.X_ADDRESS], m[ml.X_NBYTES], m[ml.X_CORE] = (
        st[entry + ms.FLIGHT_ADDRESS],
        st[entry + ms.FLIGHT_NBYTES],
        st[entry + ms.FLIGHT_CORE],
    )
    if m[ml.X_OP] >= ms.KIND_DMA:
        slot = flight.block_of_core(st, m[ml.X_CORE]) + ms.DMA_SLOTS + (m[ml.X_OP] - ms.KIND_DMA) * ms.ENTRY_WORDS
        m[ml.X_DMA], m[ml.X_SITE] = slot, st[slot + ms.ENTRY_SITE]
        m[ml.X_EVENT] = st[slot + ops.DMA.event] if st[slot] else -1
    return True


# ---- lines in caches


_HALVES = ms.CACHE_LINE_BYTES // 4


@jit
def _place(space, i, address):
    """Return which of a core's places is of the line with this address, or else is free."""
    st, m, found = space.st, space.m, -1
    core, lines = m[m[ml.CORE_NUMBER] + i], st[ms.CACHE_LINES]
    for k in range(i * lines, (i + 1) * lines):
        line = m[m[ml.LINES] + 2 * k] - 1
        if line == address >> LINE_SHIFT:
            return k
        if line < 0 or not is_hit(st, core, line << LINE_SHIFT, 0):
            found = k
    return found


@jit
def _half_row(m, k, address):
    """Return the row of 4 bytes of the line in a place."""
    return m[ml.LINE_ROWS] + (k * _HALVES + (address >> 2) % _HALVES) * m[ml.WORDS]


@jit
def row_of(space, i, address):
    """Return the row of what had been released in 4 bytes when their line was fetched, or -1 if nothing had."""
    m, k = space.m, _place(space, i, address)
    return _half_row(m, k, address) if m[m[ml.LINES] + 2 * k + 1] >> (address >> 2) % _HALVES & 1 else -1


@jit
def went_through(space, i):
    """A load or store has gone through a core's cache: keep what is released in a line that it has fetched.

    Who reads bytes that it has stored itself learns nothing.
    """
    m, address, nbytes = space.m, space.rows[0, accesses.START], space.rows[0, accesses.NBYTES]
    k = _place(space, i, address)
    if m[ml.X_FETCHES]:
        _fetch(space, k, address >> LINE_SHIFT)
    if ops.STORES >> m[ml.X_OP] & 1:
        for half in range(address + 3 >> 2, address + nbytes >> 2):
            m[m[ml.LINES] + 2 * k + 1] &= ~(1 << half % _HALVES)


@jit
def _fetch(space, k, line):
    """Keep what has been released in a line by now."""
    m = space.m
    m[m[ml.LINES] + 2 * k], m[m[ml.LINES] + 2 * k + 1] = line + 1, 0
    for address in range(line << LINE_SHIFT, line + 1 << LINE_SHIFT, 4):
        number = sync_number(space, address // ms.GRANULE_BYTES)
        row = monitor_clocks.released_row(m, number - 1, address) if number else -1
        if row >= 0:
            monitor_clocks.copy_row(m, space.clocks, _half_row(m, k, address), row)
            m[m[ml.LINES] + 2 * k + 1] |= 1 << (address >> 2) % _HALVES


# ---- an action


@part
def watched(space, actor, choice):
    """Take one action under watch: `NOT_ENABLED` (nothing changed), `TAKEN_OK`, or what stops the run.

    `space` is (memory, state, m, clocks, shadow, records, undo, flights, keys, named, rows); see `layout`.
    """
    st, m, rows = space.st, space.m, space.rows
    core = actor // ms.ACTORS_PER_CORE
    on_core = core < st[ms.N_CORES]
    pipe = actor % ms.ACTORS_PER_CORE
    base, n, back = 0, 0, -1
    if on_core:
        base = flight.block_of_core(st, core)
        if not before_core(space, core, base, pipe, choice):
            return ml.NOT_ENABLED
        n = accesses.accesses(st, base, pipe, choice, space.sites, rows)
        if pipe == rq.SCALAR and st[ms.CACHE_LINES]:
            back = _before_back(space, core, base, choice)
        for r in range(n):
            if rows[r, accesses.FLAGS] & accesses.WRITE:
                shadow.save(space, rows[r, accesses.START], rows[r, accesses.NBYTES])
    else:
        die = actor - st[ms.N_CORES] * ms.ACTORS_PER_CORE
        if not before_delivery(space, die, choice) or is_cut(st, die, m[ml.X_ADDRESS]):
            return ml.NOT_ENABLED
    taken = act_once(space.mem, st, actor, choice)
    if st[ms.ERROR] != 0:
        m[ml.STOP] = ml.FOUND_ERROR
        return ml.FOUND_ERROR
    if not taken:
        return m[ml.STOP] if m[ml.STOP] else ml.NOT_ENABLED
    if not on_core:
        writes.after_delivery(space, actor - st[ms.N_CORES] * ms.ACTORS_PER_CORE, choice)
        return m[ml.STOP] if m[ml.STOP] else ml.TAKEN_OK
    i = monitor_clocks.index_of(m, core)
    known = monitor_clocks.pipe_row(m, i, pipe) if pipe != rq.DMA else m[ml.X_ROW]
    issued = m[ml.X_ROW] if pipe != rq.SCALAR else known
    if m[ml.FENCES] and pipe == rq.SCALAR and ops.SCALAR_WRITES >> m[ml.X_OP] & 1:
        issued = monitor_clocks.fence_row(m, i)  # it was granted when mtu-out had passed the fence
        if not m[ml.X_OFF] and (ops.ATOMICS >> m[ml.X_OP] & 1 or not st[ms.CACHE_LINES]):
            # And so is all that its scalar unit does from now on
            monitor_clocks.join_row(m, space.clocks, known, issued)
    m[ml.X_KNOWN], m[ml.X_ISSUED] = known, issued
    if back >= 0:  # what it has released is what its core knows now
        writes.wrote_back(space, i, base, back)
    if back < 0 or n:  # else it has done no more
        for r in range(n):
            call(m[ml.JUDGE], space, i, r)
        _after(space, i, core, base, pipe)
    if pipe == rq.SCALAR:
        poll_begins(space, i, base)
    return m[ml.STOP] if m[ml.STOP] else ml.TAKEN_OK


@jit
def _before_back(space, core, base, choice):
    """Return the address of the line that a scalar unit is about to write back, alone or to make room for the one that
    it loads from or stores to; or -1."""
    st = space.st
    line = written_back(st, core, base, choice)
    if line >= 0:
        space.m[ml.X_OP] = rq.OP_STORE
    else:
        line = crowded_out(st, core, base, choice)
    if line < 0:
        return -1
    address = address_of(st, core, line)
    shadow.save(space, address, ms.CACHE_LINE_BYTES)
    return address


@jit
def poll_begins(space, i, base):
    """A poll reads from its issue on, again and again: it may meet a write there that is not at once."""
    st = space.st
    polls_any = st[base + REQUEST] == rq.OP_POLL_ANY
    waits = st[base + ms.STATUS] == ms.STATUS_RUNNING and ops.POLLS >> st[base + REQUEST] & 1 != 0
    if not waits or flight.switched_off(st, base):
        return
    if polls_any:
        for k in range(polls.n_conditions(st, base) if polls.can_be_polled(st, base, space.mem.size) else 0):
            _poll_word(space, i, base, st[polls.condition_at(base, k)], 8)
        return
    address, nbytes = st[base + REQUEST + ops.POLL.address], st[base + REQUEST + ops.POLL.nbytes]
    if nbytes <= 0 or nbytes > ms.LINE_BYTES_MOST or nbytes & nbytes - 1:
        return  # it will be refused
    if address >= 0 and address <= space.mem.size - nbytes and address & nbytes - 1 == 0:
        _poll_word(space, i, base, address, nbytes)


@jit
def _poll_word(space, i, base, address, nbytes):
    """A core begins to poll a word, or a line."""
    m, site = space.m, flight.request_site(space.st, base)
    _note_syncs(space, address, nbytes)
    m[ml.X_KNOWN] = m[ml.X_ISSUED] = monitor_clocks.pipe_row(m, i, rq.SCALAR)
    shadow.touch(space, i, rq.SCALAR, address, nbytes, accesses.SYNC | accesses.WHOLE, site)


@jit
def _note_syncs(space, start, nbytes):
    """All granules that become visible at once with some bytes: who sees these sees what was written there before."""
    for granule in range(
        shadow.first_together(space.st, start), shadow.last_together(space.st, start + nbytes - 1) + 1
    ):
        writes.note_sync(space, granule)


@part
def judge(space, i, r):
    """Judge one access of the action, and make its granule known if it is used as a synchronization."""
    st, m, rows = space.st, space.m, space.rows
    start, nbytes, flags, engine = (
        rows[r, accesses.START],
        rows[r, accesses.NBYTES],
        rows[r, accesses.FLAGS],
        rows[r, accesses.AGENT],
    )
    if engine >= ml.ENGINE_DMA:
        engine = ml.ENGINE_DMA + m[ml.X_EVENT]
    if r == 0:
        m[ml.X_PADDING] = 1 if accesses.carries(rows, m[ml.X_OP]) else 0
        m[ml.X_APART] = rows[1, accesses.START] - start
    known = m[ml.X_KNOWN]
    base = flight.block_of_core(st, m[m[ml.CORE_NUMBER] + i])
    if (
        st[ms.REQUEST_ORDERS]
        and flags & accesses.WRITE
        and engine < ml.ENGINE_DMA
        and flight.asked_at(st, base, rows[r, accesses.SITE]) == ms.ASKS_NO
    ):
        flags |= ml.LOOSE
    if flags & accesses.SYNC:
        _note_syncs(space, start, nbytes)
    if ops.ATOMICS >> m[ml.X_OP] & 1:
        flags |= ml.IMMEDIATE
        # It had to wait for them
        monitor_clocks.in_order(st, m, space.clocks, i, known, known, start >> st[ms.DIE_SHIFT])
        monitor_clocks.behind_fence(st, m, space.clocks, i, known, start >> st[ms.DIE_SHIFT])
        monitor_clocks.behind_strong(
            st, m, space.clocks, i, known, start >> st[ms.DIE_SHIFT], base, rows[r, accesses.SITE]
        )
    times = 1
    if flags & accesses.WRITE and ops.ACCUMULATES >> m[ml.X_OP] & 1:
        times = 2  # an accumulator is read too
    for t in range(times):
        what = flags & ~accesses.WRITE if t + 1 < times else flags
        shadow.touch(space, i, engine, start, nbytes, what, rows[r, accesses.SITE])
    return 0


@jit
def _after(space, i, core, base, pipe):
    """Bring the clocks up to date."""
    st, m, clocks = space.st, space.m, space.clocks
    op, known, issued = m[ml.X_OP], m[ml.X_KNOWN], m[ml.X_ISSUED]
    if pipe == rq.SCALAR:
        if ops.LOADS >> op & 1 or not m[ml.X_OFF]:
            _after_scalar(space, i, core, base, op)
        return
    if ops.EVENT_SETS >> op & 1:
        monitor_clocks.set_event_clock(m, clocks, i, pipe)
    elif ops.EVENT_WAITS >> op & 1:
        monitor_clocks.consume_event(m, clocks, i, pipe)
    elif ops.FENCES >> op & 1:
        _pass_fence(m, clocks, i, known, issued)
    elif ops.COPIES_IN >> op & 1 and accesses.is_of_flags(space.rows):
        _acquire(space, i, core, base, 0)
    elif pipe == rq.MTU_OUT or pipe == rq.DMA:
        writes.wrote(space, i, base)
        if pipe == rq.MTU_OUT:
            clocks[known + monitor_clocks.engine_word(m, i, rq.MTU_OUT)] += 1
            if m[ml.X_SIGNAL]:
                _signalled(m, i)
        elif st[base + ms.DMA_SLOTS + m[ml.X_DMA] * ms.ENTRY_WORDS] == 0:
            monitor_clocks.complete_dma(m, clocks, i, m[ml.X_DMA], m[ml.X_EVENT])


@jit
def _signalled(m, i):
    """A core has sent a signal."""
    m[m[ml.SIGNALLED] + i] += 1
    for k in range(m[ml.SIGNALS]):
        m[m[ml.CHAINED] + i * m[ml.SIGNALS] + k] = 0


@jit
def _pass_fence(m, clocks, i, known, issued):
    m[ml.FENCED] = 1
    if m[ml.FENCES]:
        monitor_clocks.pass_fence(m, clocks, i, known, issued)
    else:  # none was passed while the monitor learned
        m[ml.STOP] = ml.GROW


@jit
def _after_scalar(space, i, core, base, op):
    st, m, clocks = space.st, space.m, space.clocks
    own = monitor_clocks.pipe_row(m, i, rq.SCALAR)
    if ops.CACHED >> op & 1 and st[ms.CACHE_LINES]:
        went_through(space, i)
    if m[ml.X_ROW] >= 0:
        monitor_clocks.issue(m, clocks, i, m[ml.X_ROW])
    elif ops.EVENT_SETS >> op & 1:
        monitor_clocks.set_event_clock(m, clocks, i, rq.SCALAR)
    elif ops.EVENT_WAITS >> op & 1:
        monitor_clocks.consume_event(m, clocks, i, rq.SCALAR)
    elif ops.LOOKS >> op & 1:
        _acquire(space, i, core, base, m[ml.X_LAST] if op == rq.OP_POLL_ANY else 0)
    elif ops.STORES >> op & 1 and not st[ms.CACHE_LINES]:
        writes.wrote(space, i, base)
        clocks[own + monitor_clocks.engine_word(m, i, rq.SCALAR)] += 1
    elif ops.ATOMICS >> op & 1:
        _acquire(space, i, core, base, 0)
        number = shadow.sync_number(space, m[ml.X_ADDRESS] // ms.GRANULE_BYTES)
        if number and m[ml.X_LAST]:
            row = monitor_clocks.released(space, i, m[ml.X_ADDRESS], base, space.rows[0, accesses.SITE])
            writes.keep_order(
                space, i, row, m[ml.X_ADDRESS], 8, flight.asked_at(st, base, space.rows[0, accesses.SITE]) == ms.ASKS_NO
            )
            monitor_clocks.publish(m, clocks, number - 1, m[ml.X_ADDRESS], 8, row, True)
        clocks[own + monitor_clocks.engine_word(m, i, rq.SCALAR)] += 1
    elif op == rq.OP_QUIET:
        monitor_clocks.pass_quiet(st, m, clocks, i, base)
    elif ops.RINGS >> op & 1:
        m[ml.RUNG] = max(m[ml.RUNG], m[ml.X_EVENT] + 1)
        if m[ml.RUNG] > m[ml.N_DMA]:  # none was rung to set this event while the monitor learned
            m[ml.STOP] = ml.GROW
        monitor_clocks.ring(m, clocks, i, m[ml.X_DMA], m[ml.X_EVENT])
    elif ops.ARRIVALS >> op & 1:
        monitor_clocks.arrive(m, clocks, i, st[base + ms.GROUP], m[ml.X_PHASE], m[ml.X_LAST])
    elif ops.GROUP_WAITS >> op & 1:
        group = monitor_clocks.group_row(m, st[base + ms.GROUP], 1 + (m[ml.X_PHASE] & 1))
        monitor_clocks.join_row(m, clocks, own, group)


@jit
def _acquire(space, i, core, base, r):
    """Add what a poll, atomic or read of flags has seen in a row, with what its writes released, to its pipe's clock.

    A line or transfer, which is not read at once, sees no store that is in flight.
    """
    m, clocks, rows = space.m, space.clocks, space.rows
    if not rows[r, accesses.FLAGS] & accesses.SYNC:
        return
    start, nbytes = rows[r, accesses.START], rows[r, accesses.NBYTES]
    whole = rows[r, accesses.FLAGS] & accesses.WHOLE
    for half in range(start >> 2, (start + nbytes - 1 >> 2) + 1):
        word = max(start, half << 2 & ~7)
        if whole and _saw_own_stores(space, core, base, word, min(start + nbytes - word, 8)):
            continue
        row = _released_row(space, i, half << 2)
        if row >= 0:
            is_loose = not monitor_clocks.acquires(space.st, m, base, rows[r, accesses.SITE])
            if is_loose:
                monitor_clocks.note_seen(m, clocks, i, row, rows[r, accesses.SITE])
            else:
                monitor_clocks.join_row(m, clocks, monitor_clocks.pipe_row(m, i, rows[r, accesses.AGENT]), row)
            shadow.acquired(space, half << 2, row, i if is_loose else -1)


@jit
def _released_row(space, i, address):
    """Return the row of what was released in 4 bytes that are read, or -1: through a cache, until they were fetched."""
    if ops.CACHED >> space.m[ml.X_OP] & 1 and space.st[ms.CACHE_LINES]:
        return row_of(space, i, address)
    number = shadow.sync_number(space, address // ms.GRANULE_BYTES)
    return monitor_clocks.released_row(space.m, number - 1, address) if number else -1


@jit
def _saw_own_stores(space, core, base, address, nbytes):
    """Did a load see, of a word or a part of one, nothing but stores of its own core that are still in flight?"""
    st, seen = space.st, 0
    if st[base + ms.IN_FLIGHT] == 0 or st[ms.CACHE_LINES]:  # past a cache it sees memory
        return False
    ring = flight.block_of_die(st, st[base + ms.DIE])
    for k in range(st[ring + ms.FLIGHT_COUNT]):
        entry = flight.flight(st, ring, k)
        first, size = st[entry + ms.FLIGHT_ADDRESS], st[entry + ms.FLIGHT_NBYTES]
        if (
            st[entry + ms.FLIGHT_CORE] == core
            and st[entry + ms.FLIGHT_KIND] == ms.KIND_SCALAR
            and first >> 3 <= address >> 3 <= first + size - 1 >> 3
        ):
            seen |= (1 << min(size, 8)) - 1 << (first & 7)
    read = (1 << nbytes) - 1 << (address & 7)
    return seen & read == read
