"""What writes release: kept for each write in flight to a synchronization, until it becomes visible."""

from xccl_emu.check.device import accesses
from xccl_emu.check.sampling.device.monitor import clocks as monitor_clocks
from xccl_emu.check.sampling.device.monitor import layout as ml
from xccl_emu.check.sampling.device.monitor.shadow import delivered, shadow_of, sync_number
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.flight import asked, block_of_die, flight
from xccl_emu.machine.device.words import jit


@jit
def note_sync(space, granule):
    """A granule is used as a synchronization: from now on keep what writes to it release."""
    m, clocks, shadow = space.m, space.clocks, space.shadow
    if sync_number(space, granule):
        return
    number = m[ml.N_SYNC]
    if number >= m[ml.SYNC_MAX]:
        m[ml.STOP] = ml.GROW
        return
    s = shadow_of(space, granule)
    m[ml.N_SYNC] += 1
    m[m[ml.SYNC_GRANULES] + number] = granule
    shadow[s + ml.S_FIXED] |= number + 1 << ml.SYNC_SHIFT
    monitor_clocks.clear_sync(space.st, m, clocks, number)
    if shadow[s + ml.S_WRITTEN] & ml.SAVED and m[ml.STOP] == 0 and m[ml.JUDGED] != ml.JUDGE_NOTHING:
        m[ml.STOP] = ml.RESTART


@jit
def wrote(space, i, base):
    """Keep what the writes of this action release, if they go to synchronizations, and what is visible with them."""
    rows = space.rows
    r = 0 if rows[0, accesses.FLAGS] & accesses.WRITE else 1
    _keep(space, i, base, rows[r, accesses.START], rows[r, accesses.NBYTES])


@jit
def wrote_back(space, i, base, address):
    """Keep what a line releases that its core has written back: that counts as a store of it."""
    m = space.m
    op, issued = m[ml.X_OP], m[ml.X_ISSUED]
    m[ml.X_OP] = rq.OP_STORE
    if m[ml.FENCES]:
        m[ml.X_ISSUED] = monitor_clocks.fence_row(m, i)
    _keep(space, i, base, address, ms.CACHE_LINE_BYTES)
    m[ml.X_OP], m[ml.X_ISSUED] = op, issued
    space.clocks[m[ml.X_KNOWN] + monitor_clocks.engine_word(m, i, rq.SCALAR)] += 1


@jit
def _keep(space, i, base, start, nbytes):
    """Keep what those writes release that this action has put in flight; under `sc` its bytes are visible at once."""
    st, m, clocks, flights = space.st, space.m, space.clocks, space.flights
    if st[ms.ORDER] == ms.ORDER_SC:
        _publish_now(space, i, start, nbytes)
        return
    die = st[base + ms.DIE]
    ring = block_of_die(st, die)
    for k in range(m[ml.X_FLIGHTS], st[ring + ms.FLIGHT_COUNT]):
        entry = flight(st, ring, k)
        address = st[entry + ms.FLIGHT_ADDRESS]
        place = (m[m[ml.DIE_INDEX] + die] * m[ml.CAPACITY] + k) * 2
        flights[place] = 0
        flights[place + 1] = m[ml.SERIAL]
        m[ml.SERIAL] += 1
        for word in range(ml.X_KNOWN, ml.X_ISSUED + 1):
            monitor_clocks.in_order(
                st, m, clocks, i, monitor_clocks.ahead_row(m, i), m[word], address >> st[ms.DIE_SHIFT]
            )
        if _any_sync(space, address, st[entry + ms.FLIGHT_NBYTES]):
            row = _take_row(m, die)
            source = monitor_clocks.released(space, i, address, base, st[entry + ms.FLIGHT_SITE])
            if ops.STORES >> m[ml.X_OP] & 1 and k + 1 < st[ring + ms.FLIGHT_COUNT]:
                _of_one_half(st, m, clocks, i, source, address >> st[ms.DIE_SHIFT])
            loose = ops.RINGS >> m[ml.X_OP] & 1 != 0 or asked(st, entry) == ms.ASKS_NO
            keep_order(space, i, source, address, st[entry + ms.FLIGHT_NBYTES], loose)
            for w in range(m[ml.WORDS]):
                clocks[row + w] = clocks[source + w]
            flights[place] = row + 1


@jit
def _any_sync(space, start, nbytes):
    """Return whether one of the granules of a write in flight is known as a synchronization."""
    for granule in range(start // ms.GRANULE_BYTES, (start + nbytes - 1) // ms.GRANULE_BYTES + 1):
        if sync_number(space, granule):
            return True
    return False


@jit
def _publish_now(space, i, start, nbytes):
    """Under `sc`: a write is visible at once."""
    m, clocks = space.m, space.clocks
    for granule in range(start // ms.GRANULE_BYTES, (start + nbytes - 1) // ms.GRANULE_BYTES + 1):
        number = sync_number(space, granule)
        if number:
            first, end = max(start, granule * ms.GRANULE_BYTES), min(start + nbytes, (granule + 1) * ms.GRANULE_BYTES)
            row = monitor_clocks.released(space, i, first, 0, 0)
            monitor_clocks.publish(m, clocks, number - 1, first, end - first, row, m[ml.X_ADDS] != 0)


@jit
def keep_order(space, i, row, address, nbytes, loose):
    """Keep the order of a core's writes to what is visible at once, under `relaxed`: a reader of the one that releases
    what is in this row knows of the signals, and of what strong writes release, that came before it there."""
    st, m, clocks = space.st, space.m, space.clocks
    if loose or not monitor_clocks.keeps_order(st, m):
        return
    shift = st[ms.ATOMIC_SHIFT]
    for done in range(2):  # an addition may be to two units of 4: it knows of both, and both come after it
        for unit in range(address >> shift, (address + nbytes - 1 >> shift) + 1):
            number = sync_number(space, (unit << shift) // ms.GRANULE_BYTES)
            kept = monitor_clocks.kept_row(m, number - 1, unit << shift)
            for w in range(monitor_clocks.strong_word(m, i, rq.SCALAR, 0), (i + 1) * m[ml.PER_CORE] if number else 0):
                if done:
                    clocks[kept + w] = clocks[row + w]
                else:
                    clocks[row + w] = max(clocks[row + w], clocks[kept + w])


@jit
def _of_one_half(st, m, clocks, i, row, die):
    """The first half of a store that goes in two releases what was before it, and not that the second is visible."""
    before = clocks[row + monitor_clocks.engine_word(m, i, rq.SCALAR)] - 1
    word = monitor_clocks.visible_word(m, i, rq.SCALAR, die)
    clocks[row + word] = min(clocks[row + word], before)
    if st[ms.REQUEST_ORDERS] == ms.ASKS_SOME_STRONG:
        word = monitor_clocks.strong_word(m, i, rq.SCALAR, die)
        clocks[row + word] = min(clocks[row + word], before)


@jit
def _take_row(m, die):
    """A free row for a write in flight of a die; there is one for each place of its ring."""
    stack = m[ml.FREE_ROWS] + m[m[ml.DIE_INDEX] + die] * (m[ml.CAPACITY] + 1)
    m[stack] -= 1
    return m[ml.FLIGHT_ROWS] + (m[m[ml.DIE_INDEX] + die] * m[ml.CAPACITY] + m[stack + 1 + m[stack]]) * m[ml.WORDS]


@jit
def after_delivery(space, die, k):
    """A write has become visible: what it released can be acquired, and the places after it move up."""
    st, m, clocks, flights, keys = space.st, space.m, space.clocks, space.flights, space.keys
    first = m[m[ml.DIE_INDEX] + die] * m[ml.CAPACITY]
    row = flights[(first + k) * 2] - 1
    if row >= 0:
        word = monitor_clocks.engine_word(
            m, monitor_clocks.index_of(m, m[ml.X_CORE]), rq.SCALAR if m[ml.X_OP] == ms.KIND_SCALAR else rq.MTU_OUT
        )
        adds = m[ml.X_OP] == ms.KIND_ADD or m[ml.X_OP] == ms.KIND_ADD_ROW
        address, nbytes = m[ml.X_ADDRESS], m[ml.X_NBYTES]
        for granule in range(address // ms.GRANULE_BYTES, (address + nbytes - 1) // ms.GRANULE_BYTES + 1):
            number = sync_number(space, granule)
            start = max(address, granule * ms.GRANULE_BYTES)
            end = min(address + nbytes, (granule + 1) * ms.GRANULE_BYTES)
            if number:
                monitor_clocks.publish(m, clocks, number - 1, start, end - start, row, adds)
                delivered(space, granule, address, nbytes, word, clocks[row + word])
        stack = m[ml.FREE_ROWS] + m[m[ml.DIE_INDEX] + die] * (m[ml.CAPACITY] + 1)
        m[stack + 1 + m[stack]] = (row - m[ml.FLIGHT_ROWS]) // m[ml.WORDS] - first
        m[stack] += 1
    for j in range(k, st[block_of_die(st, die) + ms.FLIGHT_COUNT]):
        flights[(first + j) * 2] = flights[(first + j + 1) * 2]
        flights[(first + j) * 2 + 1] = flights[(first + j + 1) * 2 + 1]
        keys[first + j] = keys[first + j + 1]
    if m[ml.X_OP] >= ms.KIND_DMA and st[m[ml.X_DMA]] == 0 and m[ml.X_EVENT] >= 0:  # of a stopped core none is set
        i = monitor_clocks.index_of(m, m[ml.X_CORE])
        row = monitor_clocks.complete_dma(m, clocks, i, m[ml.X_OP] - ms.KIND_DMA, m[ml.X_EVENT])
        monitor_clocks.in_order(st, m, clocks, i, row, row, m[ml.X_ADDRESS] >> st[ms.DIE_SHIFT])
