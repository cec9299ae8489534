"""What writes release: kept beside each write in flight to a synchronization, until it becomes visible."""

from xccl_emu.check.device.accesses import FLAGS, NBYTES, START, WRITE
from xccl_emu.check.device.monitor.clocks import (
    ahead_row,
    clear_sync,
    complete_dma,
    engine_word,
    in_order,
    index_of,
    keeps_order,
    kept_row,
    publish,
    released,
    strong_word,
    visible_word,
)
from xccl_emu.check.device.monitor.layout import (
    CAPACITY,
    DIE_INDEX,
    FLIGHT_ROWS,
    FREE_ROWS,
    GROW,
    JUDGE_NOTHING,
    JUDGED,
    N_SYNC,
    PER_CORE,
    RESTART,
    S_FIXED,
    S_WRITTEN,
    SAVED,
    SERIAL,
    STOP,
    SYNC_GRANULES,
    SYNC_MAX,
    SYNC_SHIFT,
    WORDS,
    X_A,
    X_ADDS,
    X_B,
    X_C,
    X_DMA,
    X_EVENT,
    X_FLIGHTS,
    X_ISSUED,
    X_KNOWN,
    X_OP,
)
from xccl_emu.check.device.monitor.shadow import delivered, shadow_of, sync_number
from xccl_emu.lang.requests import MTU_OUT, OP_DMA, OP_STORE, SCALAR
from xccl_emu.machine.device.flight import asked, block_of_die, flight
from xccl_emu.machine.device.layout import (
    ASKS_NO,
    ASKS_SOME_STRONG,
    ATOMIC_SHIFT,
    DIE,
    DIE_SHIFT,
    FLIGHT_ADDRESS,
    FLIGHT_COUNT,
    FLIGHT_NBYTES,
    FLIGHT_SITE,
    GRANULE_BYTES,
    KIND_ADD,
    KIND_DMA,
    KIND_SCALAR,
    ORDER,
    ORDER_SC,
    REQUEST_ORDERS,
)
from xccl_emu.machine.device.words import jit


@jit
def note_sync(space, granule):
    """A granule is used as a synchronization: from now on keep what writes to it release."""
    m, clocks, shadow = space.m, space.clocks, space.shadow
    if sync_number(space, granule):
        return
    number = m[N_SYNC]
    if number >= m[SYNC_MAX]:
        m[STOP] = GROW
        return
    s = shadow_of(space, granule)
    m[N_SYNC] += 1
    m[m[SYNC_GRANULES] + number] = granule
    shadow[s + S_FIXED] |= number + 1 << SYNC_SHIFT
    clear_sync(space.st, m, clocks, number)
    if shadow[s + S_WRITTEN] & SAVED and m[STOP] == 0 and m[JUDGED] != JUDGE_NOTHING:
        m[STOP] = RESTART


@jit
def wrote(space, i, base):
    """Keep what the writes of this action release, if they go to synchronizations, and what is visible with them."""
    st, m, clocks, rows, flights = space.st, space.m, space.clocks, space.rows, space.flights
    if st[ORDER] == ORDER_SC:
        r = 0 if rows[0, FLAGS] & WRITE else 1
        _publish_now(space, i, rows[r, START], rows[r, NBYTES])
        return
    die = st[base + DIE]
    ring = block_of_die(st, die)
    for k in range(m[X_FLIGHTS], st[ring + FLIGHT_COUNT]):
        entry = flight(st, ring, k)
        address = st[entry + FLIGHT_ADDRESS]
        place = (m[m[DIE_INDEX] + die] * m[CAPACITY] + k) * 2
        flights[place] = 0
        flights[place + 1] = m[SERIAL]
        m[SERIAL] += 1
        for word in range(X_KNOWN, X_ISSUED + 1):
            in_order(st, m, clocks, i, ahead_row(m, i), m[word], address >> st[DIE_SHIFT])
        if _any_sync(space, address, st[entry + FLIGHT_NBYTES]):
            row = _take_row(m, die)
            source = released(space, i, address, base, st[entry + FLIGHT_SITE])
            if m[X_OP] == OP_STORE and k + 1 < st[ring + FLIGHT_COUNT]:
                _of_one_half(st, m, clocks, i, source, address >> st[DIE_SHIFT])
            loose = m[X_OP] == OP_DMA or asked(st, entry) == ASKS_NO
            keep_order(space, i, source, address, st[entry + FLIGHT_NBYTES], loose)
            for w in range(m[WORDS]):
                clocks[row + w] = clocks[source + w]
            flights[place] = row + 1


@jit
def _any_sync(space, start, nbytes):
    """Return whether one of the granules of a write in flight is known as a synchronization."""
    for granule in range(start // GRANULE_BYTES, (start + nbytes - 1) // GRANULE_BYTES + 1):
        if sync_number(space, granule):
            return True
    return False


@jit
def _publish_now(space, i, start, nbytes):
    """Under `sc`: a write is visible at once."""
    m, clocks = space.m, space.clocks
    for granule in range(start // GRANULE_BYTES, (start + nbytes - 1) // GRANULE_BYTES + 1):
        number = sync_number(space, granule)
        if number:
            first, end = max(start, granule * GRANULE_BYTES), min(start + nbytes, (granule + 1) * GRANULE_BYTES)
            row = released(space, i, first, 0, 0)
            publish(m, clocks, number - 1, first, end - first, row, m[X_ADDS] != 0)


@jit
def keep_order(space, i, row, address, nbytes, loose):
    """Keep the order of a core's writes to what is visible at once, under `relaxed`: whoever sees the one that releases
    what is in this row knows of the signals, and of what strong writes tell of, that stood before it there."""
    st, m, clocks = space.st, space.m, space.clocks
    if loose or not keeps_order(st, m):
        return
    shift = st[ATOMIC_SHIFT]
    for done in range(2):  # an addition may be to two units of 4: it knows of both, and both are behind it
        for unit in range(address >> shift, (address + nbytes - 1 >> shift) + 1):
            number = sync_number(space, (unit << shift) // GRANULE_BYTES)
            kept = kept_row(m, number - 1, unit << shift)
            for w in range(strong_word(m, i, SCALAR, 0), (i + 1) * m[PER_CORE] if number else 0):
                if done:
                    clocks[kept + w] = clocks[row + w]
                else:
                    clocks[row + w] = max(clocks[row + w], clocks[kept + w])


@jit
def _of_one_half(st, m, clocks, i, row, die):
    """The first half of a store that goes in two tells what was before it, and not that the second is visible."""
    before = clocks[row + engine_word(m, i, SCALAR)] - 1
    word = visible_word(m, i, SCALAR, die)
    clocks[row + word] = min(clocks[row + word], before)
    if st[REQUEST_ORDERS] == ASKS_SOME_STRONG:
        word = strong_word(m, i, SCALAR, die)
        clocks[row + word] = min(clocks[row + word], before)


@jit
def _take_row(m, die):
    """A free row for a write in flight of a die; there is one for each place of its ring."""
    stack = m[FREE_ROWS] + m[m[DIE_INDEX] + die] * (m[CAPACITY] + 1)
    m[stack] -= 1
    return m[FLIGHT_ROWS] + (m[m[DIE_INDEX] + die] * m[CAPACITY] + m[stack + 1 + m[stack]]) * m[WORDS]


@jit
def after_delivery(space, die, k):
    """A write has become visible: what it released can be acquired, and the places behind it move up."""
    st, m, clocks, flights, keys = space.st, space.m, space.clocks, space.flights, space.keys
    first = m[m[DIE_INDEX] + die] * m[CAPACITY]
    row = flights[(first + k) * 2] - 1
    if row >= 0:
        word = engine_word(m, index_of(m, m[X_C]), SCALAR if m[X_OP] == KIND_SCALAR else MTU_OUT)
        for granule in range(m[X_A] // GRANULE_BYTES, (m[X_A] + m[X_B] - 1) // GRANULE_BYTES + 1):
            number = sync_number(space, granule)
            start, end = max(m[X_A], granule * GRANULE_BYTES), min(m[X_A] + m[X_B], (granule + 1) * GRANULE_BYTES)
            if number:
                publish(m, clocks, number - 1, start, end - start, row, m[X_OP] == KIND_ADD)
                delivered(space, granule, m[X_A], m[X_B], word, clocks[row + word])
        stack = m[FREE_ROWS] + m[m[DIE_INDEX] + die] * (m[CAPACITY] + 1)
        m[stack + 1 + m[stack]] = (row - m[FLIGHT_ROWS]) // m[WORDS] - first
        m[stack] += 1
    for j in range(k, st[block_of_die(st, die) + FLIGHT_COUNT]):
        flights[(first + j) * 2] = flights[(first + j + 1) * 2]
        flights[(first + j) * 2 + 1] = flights[(first + j + 1) * 2 + 1]
        keys[first + j] = keys[first + j + 1]
    if m[X_OP] >= KIND_DMA and st[m[X_DMA]] == 0:
        i = index_of(m, m[X_C])
        row = complete_dma(m, clocks, i, m[X_OP] - KIND_DMA, m[X_EVENT])
        in_order(st, m, clocks, i, row, row, m[X_A] >> st[DIE_SHIFT])
