"""One action of the machine, watched: taken by `act`, judged, and its synchronization written into the clocks."""

from xccl_emu.check.accesses import (
    AGENT,
    FLAGS,
    NBYTES,
    SITE,
    START,
    SYNC,
    WRITE,
    accesses,
    switched_off,
)
from xccl_emu.check.monitor_calls import call, part
from xccl_emu.check.monitor_clocks import (
    arrive,
    complete_dma,
    dma_row,
    engine_word,
    event_row,
    group_row,
    in_order,
    index_of,
    issue,
    join_row,
    pass_fence,
    pipe_row,
    publish,
    queue_row,
    released,
    set_event_clock,
    sync_row,
)
from xccl_emu.check.monitor_layout import (
    ACT,
    CAPACITY,
    DIE_INDEX,
    DMA_EPOCHS,
    FLIGHT_ROWS,
    FOUND_ERROR,
    FREE_ROWS,
    GROW,
    IMMEDIATE,
    JUDGE,
    N_SYNC,
    NOT_ENABLED,
    RESTART,
    S_FIXED,
    S_WRITTEN,
    SAVED,
    SERIAL,
    STOP,
    SYNC_MAX,
    SYNC_PIECES,
    SYNC_SHIFT,
    TAKEN_OK,
    WORDS,
    X_A,
    X_B,
    X_C,
    X_DMA,
    X_EVENT,
    X_FLIGHTS,
    X_ISSUED,
    X_KNOWN,
    X_LAST,
    X_OFF,
    X_OP,
    X_ROW,
)
from xccl_emu.check.monitor_shadow import acquired, delivered, save, shadow_of, sync_number, touch
from xccl_emu.lang.abi import REQUEST
from xccl_emu.lang.requests import (
    DMA,
    MTU_IN,
    MTU_OUT,
    OP_ADD,
    OP_ARRIVE,
    OP_ATOMIC_ADD,
    OP_AWAIT_GROUP,
    OP_DMA,
    OP_FENCE,
    OP_LOAD,
    OP_MTU_IN,
    OP_POLL,
    OP_RETURN,
    OP_SET_FLAG,
    OP_STORE,
    OP_V_ADD,
    OP_V_AXPY,
    OP_V_QUANTIZE,
    OP_V_SCALE,
    OP_WAIT_FLAG,
    SCALAR,
    VECTOR,
)
from xccl_emu.machine.flight import block_of_core, block_of_die, flight
from xccl_emu.machine.layout import (
    ACTORS_PER_CORE,
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
    GROUP,
    GROUP_ARRIVED,
    GROUP_BASE,
    GROUP_PHASE,
    GROUP_SIZE,
    GROUP_WORDS,
    IN_FLIGHT,
    KIND_ADD,
    KIND_DMA,
    KIND_SCALAR,
    N_CORES,
    N_DIES,
    N_DMA_SLOTS,
    ORDER,
    ORDER_SC,
    PIECE_BYTES,
    PIPE_COUNT,
    PIPE_HEAD,
    QUEUE_DEPTH,
    STATUS,
    STATUS_RUNNING,
)
from xccl_emu.machine.pipes import entry_of, pipe_of
from xccl_emu.machine.single import act_at
from xccl_emu.machine.words import jit


@part
def watched(space, actor, choice):
    """Take one action under watch: `NOT_ENABLED` (nothing changed), `TAKEN_OK`, or what stops the run.

    `space` is (memory, state, m, clocks, shadow, records, undo, flights, keys, named, rows); see `monitor_layout`.
    """
    st, m, rows = space[1], space[2], space[10]
    core = actor // ACTORS_PER_CORE
    on_core = core < st[N_CORES]
    pipe = actor % ACTORS_PER_CORE
    base, n = 0, 0
    if on_core:
        base = block_of_core(st, core)
        if not _before(space, core, base, pipe, choice):
            return NOT_ENABLED
        n = accesses(st, base, pipe, choice, space[9], rows)
        for r in range(n):
            if rows[r, FLAGS] & WRITE:
                save(space, rows[r, START], rows[r, NBYTES])
    elif not _before_delivery(space, actor - st[N_CORES] * ACTORS_PER_CORE, choice):
        return NOT_ENABLED
    taken = act_at(m[ACT], space[0], st, actor, choice)
    if st[ERROR] != 0:
        m[STOP] = FOUND_ERROR
        return FOUND_ERROR
    if taken == 0:
        return m[STOP] if m[STOP] else NOT_ENABLED
    if not on_core:
        _after_delivery(space, actor - st[N_CORES] * ACTORS_PER_CORE, choice)
        return m[STOP] if m[STOP] else TAKEN_OK
    i = index_of(m, core)
    known = pipe_row(m, i, pipe) if pipe != DMA else m[X_ROW]
    issued = m[X_ROW] if pipe != SCALAR else known
    m[X_KNOWN], m[X_ISSUED] = known, issued
    for r in range(n):
        call(m[JUDGE], space, i, r)
    _after(space, i, core, base, pipe, choice, known, issued)
    return m[STOP] if m[STOP] else TAKEN_OK


# ---- before an action: what is not to be seen any more afterwards


@jit
def _before(space, core, base, pipe, choice):
    """Take down what the core's pipe is about to do; False if there is nothing."""
    st, m = space[1], space[2]
    i = index_of(m, core)
    m[X_FLIGHTS] = st[block_of_die(st, st[base + DIE]) + FLIGHT_COUNT]
    m[X_OFF] = 0
    if pipe == SCALAR:
        return st[base + STATUS] == STATUS_RUNNING and _before_scalar(space, i, base)
    if pipe == DMA:
        slot = base + DMA_SLOTS + (choice & 15) * ENTRY_WORDS
        if choice & 15 >= N_DMA_SLOTS or st[slot] == 0:
            return False
        m[X_DMA], m[X_EVENT] = choice & 15, st[slot + 4]
        m[X_OP] = OP_DMA
        m[X_ROW] = dma_row(m, i, choice & 15)
        return True
    queue = pipe_of(base, pipe)
    j = choice & 15 if pipe == MTU_IN else 0
    if j >= st[queue + PIPE_COUNT]:
        return False
    entry = entry_of(st, queue, j)
    m[X_OP], m[X_A], m[X_B], m[X_C] = st[entry], st[entry + 1], st[entry + 2], st[entry + 3]
    m[X_ROW] = queue_row(m, i, pipe, (st[queue + PIPE_HEAD] + j) % QUEUE_DEPTH)
    return True


@jit
def _before_scalar(space, i, base):
    st, m = space[1], space[2]
    op, a, b = st[base + REQUEST], st[base + REQUEST + 1], st[base + REQUEST + 2]
    m[X_OP], m[X_A], m[X_B], m[X_C] = op, a, b, st[base + REQUEST + 3]
    m[X_OFF] = 1 if op != OP_RETURN and switched_off(st, base) else 0
    m[X_ROW] = -1
    pipe = SCALAR
    if op >= OP_V_QUANTIZE:
        pipe = VECTOR
    elif op >= OP_MTU_IN:
        pipe = MTU_IN if op == OP_MTU_IN else MTU_OUT
    elif op == OP_SET_FLAG:
        pipe = a
    elif op == OP_WAIT_FLAG:
        pipe = b
    if pipe > SCALAR and pipe <= MTU_OUT:
        queue = pipe_of(base, pipe)
        m[X_ROW] = queue_row(m, i, pipe, (st[queue + PIPE_HEAD] + st[queue + PIPE_COUNT]) % QUEUE_DEPTH)
    elif op == OP_DMA:
        k = 0
        while k < N_DMA_SLOTS - 1 and st[base + DMA_SLOTS + k * ENTRY_WORDS] != 0:
            k += 1
        m[X_DMA] = k
    elif op == OP_ARRIVE:
        group = st[GROUP_BASE] + st[base + GROUP] * GROUP_WORDS
        m[X_B] = st[group + GROUP_PHASE]
        m[X_LAST] = 1 if st[group + GROUP_ARRIVED] + 1 == st[group + GROUP_SIZE] else 0
    return True


@jit
def _before_delivery(space, die, k):
    """Take down which write in flight is about to become visible."""
    st, m = space[1], space[2]
    if die >= st[N_DIES]:
        return False
    ring = block_of_die(st, die)
    if k < 0 or k >= st[ring + FLIGHT_COUNT]:
        return False
    entry = flight(st, ring, k)
    m[X_OP] = st[entry + FLIGHT_KIND]
    m[X_A], m[X_B], m[X_C] = st[entry + FLIGHT_ADDRESS], st[entry + FLIGHT_NBYTES], st[entry + FLIGHT_CORE]
    if m[X_OP] >= KIND_DMA:
        slot = block_of_core(st, m[X_C]) + DMA_SLOTS + (m[X_OP] - KIND_DMA) * ENTRY_WORDS
        m[X_DMA], m[X_EVENT] = slot, st[slot + 4]
    return True


# ---- after it


@part
def judge(space, i, r):
    """Judge one access of the action, and make its piece known if it is used as a synchronization."""
    st, m, rows = space[1], space[2], space[10]
    start, nbytes, flags, engine = rows[r, START], rows[r, NBYTES], rows[r, FLAGS], rows[r, AGENT]
    known, issued = m[X_KNOWN], m[X_ISSUED]
    if flags & SYNC:
        _note_sync(space, start // PIECE_BYTES)
    if m[X_OP] == OP_ATOMIC_ADD:
        flags |= IMMEDIATE
        in_order(st, m, space[3], i, known, start >> st[DIE_SHIFT])  # it had to wait for them
    times = 1
    if flags & WRITE and (m[X_OP] == OP_V_AXPY or m[X_OP] == OP_V_ADD or m[X_OP] == OP_V_SCALE):
        times = 2  # an accumulator is read too
    for t in range(times):
        what = flags & ~WRITE if t + 1 < times else flags
        touch(space, i, engine, known, issued, start, nbytes, what, rows[r, SITE])
    return 0


@jit
def _note_sync(space, piece):
    """A piece is used as a synchronization: from now on keep what writes to it release."""
    m, clocks, shadow = space[2], space[3], space[4]
    if sync_number(space, piece):
        return
    number = m[N_SYNC]
    if number >= m[SYNC_MAX]:
        m[STOP] = GROW
        return
    s = shadow_of(space, piece)
    m[N_SYNC] += 1
    m[m[SYNC_PIECES] + number] = piece
    shadow[s + S_FIXED] |= number + 1 << SYNC_SHIFT
    for word in range(4):
        row = sync_row(m, number, word << 3)
        for w in range(m[WORDS]):
            clocks[row + w] = 0
    if shadow[s + S_WRITTEN] & SAVED and m[STOP] == 0:
        m[STOP] = RESTART


@jit
def _after(space, i, core, base, pipe, choice, known, issued):
    """Bring the clocks up to date."""
    st, m, clocks = space[1], space[2], space[3]
    op = m[X_OP]
    if pipe == SCALAR:
        if op == OP_LOAD or not m[X_OFF]:
            _after_scalar(space, i, core, base, op)
        return
    if op == OP_SET_FLAG:
        set_event_clock(m, clocks, i, pipe, issued, event_row(m, i, m[X_A], m[X_B], m[X_C]))
    elif op == OP_WAIT_FLAG:
        join_row(m, clocks, known, event_row(m, i, m[X_A], m[X_B], m[X_C]))
    elif pipe == MTU_OUT or pipe == DMA:
        _wrote(space, i, base, known, issued)
        if pipe == MTU_OUT:
            clocks[known + engine_word(m, i, MTU_OUT)] += 1
        elif st[base + DMA_SLOTS + m[X_DMA] * ENTRY_WORDS] == 0:
            complete_dma(m, clocks, i, m[X_DMA], m[X_EVENT])


@jit
def _after_scalar(space, i, core, base, op):
    st, m, clocks = space[1], space[2], space[3]
    own = pipe_row(m, i, SCALAR)
    if m[X_ROW] >= 0:
        issue(m, clocks, i, m[X_ROW])
    elif op == OP_SET_FLAG:
        set_event_clock(m, clocks, i, SCALAR, own, event_row(m, i, m[X_A], m[X_B], m[X_C]))
    elif op == OP_WAIT_FLAG:
        join_row(m, clocks, own, event_row(m, i, m[X_A], m[X_B], m[X_C]))
    elif op == OP_POLL or op == OP_LOAD:
        _acquire(space, i, core, base)
    elif op == OP_STORE:
        _wrote(space, i, base, own, own)
        clocks[own + engine_word(m, i, SCALAR)] += 1
    elif op == OP_ATOMIC_ADD:
        _acquire(space, i, core, base)
        number = sync_number(space, m[X_A] // PIECE_BYTES)
        if number:
            publish(m, clocks, number - 1, m[X_A], 8, released(st, m, clocks, i, own, own, m[X_A]), True)
        clocks[own + engine_word(m, i, SCALAR)] += 1
    elif op == OP_FENCE:
        pass_fence(m, clocks, i)
    elif op == OP_DMA:
        m[m[DMA_EPOCHS] + i * N_DMA_SLOTS + m[X_DMA]] += 1
        issue(m, clocks, i, dma_row(m, i, m[X_DMA]))
    elif op == OP_ARRIVE:
        arrive(m, clocks, i, st[base + GROUP], m[X_B], m[X_LAST])
    elif op == OP_AWAIT_GROUP:
        join_row(m, clocks, own, group_row(m, st[base + GROUP], 1 + (m[X_A] & 1)))


@jit
def _acquire(space, i, core, base):
    """What a poll, atomic or synchronizing load has read is known, and with it what its writes released."""
    m, clocks, rows = space[2], space[3], space[10]
    if not rows[0, FLAGS] & SYNC:
        return
    number = sync_number(space, m[X_A] // PIECE_BYTES)
    if number and not _saw_own_store(space, core, base, m[X_A]):
        row = sync_row(m, number - 1, m[X_A])
        join_row(m, clocks, pipe_row(m, i, SCALAR), row)
        acquired(space, m[X_A] // PIECE_BYTES, row)


@jit
def _saw_own_store(space, core, base, address):
    """Did a load see a store of its own core that is still in flight?"""
    st = space[1]
    if st[base + IN_FLIGHT] == 0:
        return False
    ring = block_of_die(st, st[base + DIE])
    for k in range(st[ring + FLIGHT_COUNT]):
        entry = flight(st, ring, k)
        if st[entry + FLIGHT_CORE] == core and st[entry + FLIGHT_KIND] == KIND_SCALAR:
            if st[entry + FLIGHT_ADDRESS] >> 3 == address >> 3:
                return True
    return False


@jit
def _wrote(space, i, base, known, issued):
    """Keep what the writes of this action release, if they go to synchronizations."""
    st, m, clocks, rows, flights = space[1], space[2], space[3], space[10], space[7]
    if st[ORDER] == ORDER_SC:
        r = 0 if rows[0, FLAGS] & WRITE else 1
        _publish_now(space, i, known, issued, rows[r, START], rows[r, NBYTES])
        return
    die = st[base + DIE]
    ring = block_of_die(st, die)
    for k in range(m[X_FLIGHTS], st[ring + FLIGHT_COUNT]):
        address = st[flight(st, ring, k) + FLIGHT_ADDRESS]
        place = (m[m[DIE_INDEX] + die] * m[CAPACITY] + k) * 2
        flights[place] = 0
        flights[place + 1] = m[SERIAL]
        m[SERIAL] += 1
        if sync_number(space, address // PIECE_BYTES):
            row = _take_row(m, die)
            source = released(st, m, clocks, i, known, issued, address)
            for w in range(m[WORDS]):
                clocks[row + w] = clocks[source + w]
            flights[place] = row + 1


@jit
def _publish_now(space, i, known, issued, start, nbytes):
    """Under `sc`: a write is visible at once."""
    st, m, clocks = space[1], space[2], space[3]
    for piece in range(start // PIECE_BYTES, (start + nbytes - 1) // PIECE_BYTES + 1):
        number = sync_number(space, piece)
        if number:
            first, end = max(start, piece * PIECE_BYTES), min(start + nbytes, (piece + 1) * PIECE_BYTES)
            row = released(st, m, clocks, i, known, issued, first)
            publish(m, clocks, number - 1, first, end - first, row, m[X_OP] == OP_ADD)


@jit
def _take_row(m, die):
    """A free row for a write in flight of a die; there is one for each place of its ring."""
    stack = m[FREE_ROWS] + m[m[DIE_INDEX] + die] * (m[CAPACITY] + 1)
    m[stack] -= 1
    return m[FLIGHT_ROWS] + (m[m[DIE_INDEX] + die] * m[CAPACITY] + m[stack + 1 + m[stack]]) * m[WORDS]


@jit
def _after_delivery(space, die, k):
    """A write has become visible: what it released can be acquired, and the places behind it move up."""
    st, m, clocks, flights, keys = space[1], space[2], space[3], space[7], space[8]
    first = m[m[DIE_INDEX] + die] * m[CAPACITY]
    row = flights[(first + k) * 2] - 1
    if row >= 0:
        number = sync_number(space, m[X_A] // PIECE_BYTES)
        publish(m, clocks, number - 1, m[X_A], m[X_B], row, m[X_OP] == KIND_ADD)
        word = engine_word(m, index_of(m, m[X_C]), SCALAR if m[X_OP] == KIND_SCALAR else MTU_OUT)
        delivered(space, m[X_A] // PIECE_BYTES, word, clocks[row + word])
        stack = m[FREE_ROWS] + m[m[DIE_INDEX] + die] * (m[CAPACITY] + 1)
        m[stack + 1 + m[stack]] = (row - m[FLIGHT_ROWS]) // m[WORDS] - first
        m[stack] += 1
    for j in range(k, st[block_of_die(st, die) + FLIGHT_COUNT]):
        flights[(first + j) * 2] = flights[(first + j + 1) * 2]
        flights[(first + j) * 2 + 1] = flights[(first + j + 1) * 2 + 1]
        keys[first + j] = keys[first + j + 1]
    if m[X_OP] >= KIND_DMA and st[m[X_DMA]] == 0:
        complete_dma(m, clocks, index_of(m, m[X_C]), m[X_OP] - KIND_DMA, m[X_EVENT])
