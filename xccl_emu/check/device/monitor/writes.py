"""What writes release: kept beside each write in flight to a synchronization, until it becomes visible."""

from xccl_emu.check.device.accesses import FLAGS, NBYTES, START, WRITE
from xccl_emu.check.device.monitor.clocks import (
    ahead_row,
    complete_dma,
    engine_word,
    in_order,
    index_of,
    publish,
    released,
    sync_row,
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
    RESTART,
    S_FIXED,
    S_WRITTEN,
    SAVED,
    SERIAL,
    SEVERAL,
    SIGNALS,
    STOP,
    SYNC_GRANULES,
    SYNC_MAX,
    SYNC_SHIFT,
    SYNC_WRITERS,
    WORDS,
    X_A,
    X_ADDS,
    X_B,
    X_C,
    X_DMA,
    X_EVENT,
    X_FLIGHTS,
    X_LAST,
    X_OP,
)
from xccl_emu.check.device.monitor.shadow import delivered, shadow_of, sync_number
from xccl_emu.lang.requests import MTU_OUT, SCALAR
from xccl_emu.machine.device.flight import block_of_die, flight
from xccl_emu.machine.device.layout import (
    ASKS_SOME_STRONG,
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
    ORDER_RELAXED,
    ORDER_SC,
    REQUEST_ORDERS,
)
from xccl_emu.machine.device.words import jit


@jit
def note_sync(space, granule):
    """A granule is used as a synchronization: from now on keep what writes to it release."""
    m, clocks, shadow = space[2], space[3], space[4]
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
    for word in range(4):
        row = sync_row(m, number, word << 3)
        m[m[SYNC_WRITERS] + 4 * number + word] = 0
        for w in range(m[WORDS]):
            clocks[row + w] = 0
    if shadow[s + S_WRITTEN] & SAVED and m[STOP] == 0 and m[JUDGED] != JUDGE_NOTHING:
        m[STOP] = RESTART


@jit
def wrote(space, i, base, known, issued):
    """Keep what the writes of this action release, if they go to synchronizations, and what is visible with them."""
    st, m, clocks, rows, flights = space[1], space[2], space[3], space[10], space[7]
    if st[ORDER] == ORDER_SC:
        r = 0 if rows[0, FLAGS] & WRITE else 1
        _publish_now(space, i, known, issued, rows[r, START], rows[r, NBYTES])
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
        for row in range(2):
            in_order(st, m, clocks, i, ahead_row(m, i), issued if row else known, address >> st[DIE_SHIFT])
        if _any_sync(space, address, st[entry + FLIGHT_NBYTES]):
            row = _take_row(m, die)
            source = released(st, m, clocks, i, known, issued, address, base, st[flight(st, ring, k) + FLIGHT_SITE])
            for w in range(m[WORDS]):
                clocks[row + w] = clocks[source + w]
            flights[place] = row + 1


@jit
def _any_sync(space, start, nbytes):
    """Is one of the granules of a write in flight known as a synchronization?"""
    for granule in range(start // GRANULE_BYTES, (start + nbytes - 1) // GRANULE_BYTES + 1):
        if sync_number(space, granule):
            return True
    return False


@jit
def _publish_now(space, i, known, issued, start, nbytes):
    """Under `sc`: a write is visible at once."""
    st, m, clocks = space[1], space[2], space[3]
    for granule in range(start // GRANULE_BYTES, (start + nbytes - 1) // GRANULE_BYTES + 1):
        number = sync_number(space, granule)
        if number:
            first, end = max(start, granule * GRANULE_BYTES), min(start + nbytes, (granule + 1) * GRANULE_BYTES)
            row = released(st, m, clocks, i, known, issued, first, 0, 0)
            publish(m, clocks, number - 1, first, end - first, row, m[X_ADDS] != 0)


@jit
def _publish(space, number, start, nbytes, row):
    """A write is visible that was in flight: what it released can be acquired.

    Of a core's writes to one word `relaxed` keeps the order, so whoever sees a later one is behind the earlier too.
    """
    st, m, clocks = space[1], space[2], space[3]
    adds = m[X_OP] == KIND_ADD
    tells = st[REQUEST_ORDERS] == ASKS_SOME_STRONG or m[SIGNALS] != 0
    if not tells or st[ORDER] != ORDER_RELAXED:
        publish(m, clocks, number, start, nbytes, row, adds)
        return
    writer = m[X_C] + 1 if m[X_OP] < KIND_DMA and not m[X_LAST] else 0
    for word in range(start >> 3, (start + nbytes - 1 >> 3) + 1):
        first, end = max(start, word << 3), min(start + nbytes, word + 1 << 3)
        last = m[SYNC_WRITERS] + 4 * number + (word & 3)
        same = writer != 0 and m[last] == writer
        publish(m, clocks, number, first, end - first, row, adds or same)
        m[last] = writer if writer and (same or not adds or m[last] == 0) else SEVERAL


@jit
def _take_row(m, die):
    """A free row for a write in flight of a die; there is one for each place of its ring."""
    stack = m[FREE_ROWS] + m[m[DIE_INDEX] + die] * (m[CAPACITY] + 1)
    m[stack] -= 1
    return m[FLIGHT_ROWS] + (m[m[DIE_INDEX] + die] * m[CAPACITY] + m[stack + 1 + m[stack]]) * m[WORDS]


@jit
def after_delivery(space, die, k):
    """A write has become visible: what it released can be acquired, and the places behind it move up."""
    st, m, clocks, flights, keys = space[1], space[2], space[3], space[7], space[8]
    first = m[m[DIE_INDEX] + die] * m[CAPACITY]
    row = flights[(first + k) * 2] - 1
    if row >= 0:
        word = engine_word(m, index_of(m, m[X_C]), SCALAR if m[X_OP] == KIND_SCALAR else MTU_OUT)
        for granule in range(m[X_A] // GRANULE_BYTES, (m[X_A] + m[X_B] - 1) // GRANULE_BYTES + 1):
            number = sync_number(space, granule)
            start, end = max(m[X_A], granule * GRANULE_BYTES), min(m[X_A] + m[X_B], (granule + 1) * GRANULE_BYTES)
            if number:
                _publish(space, number - 1, start, end - start, row)
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
