"""The pipes and DMA in time: an instruction begins when it was issued, its pipe is free and its event is set."""

from xccl_emu.lang.requests import (
    DMA,
    MTU_IN,
    MTU_OUT,
    OP_ADD,
    OP_DMA,
    OP_FENCE,
    OP_MTU_IN,
    OP_MTU_OUT,
    OP_PUT,
    OP_SET_FLAG,
    OP_V_QUANTIZE,
    OP_WAIT_FLAG,
    SCALAR,
    SIGNAL_ADD,
    VECTOR,
)
from xccl_emu.machine.device.layout import (
    ACTORS_PER_CORE,
    CHOICE_ALL,
    DIE,
    DMA_SLOTS,
    ENTRY_SITE,
    ENTRY_WORDS,
    GRANULE_BYTES,
    MAX_SUBTRANSFERS,
    N_DMA_SLOTS,
    PIPE_COUNT,
)
from xccl_emu.machine.device.lines import is_line
from xccl_emu.machine.device.pipes import elements, entry_of, pipe_of
from xccl_emu.machine.device.single import act_once
from xccl_emu.machine.device.words import jit
from xccl_emu.timing.device.granules import became_visible, find_granule, line_became_visible
from xccl_emu.timing.device.layout import (
    ALL_VISIBLE,
    C_CORE,
    C_DMA_ENGINES,
    C_DMA_START,
    C_EVENT,
    C_MTU_START,
    C_VECTOR,
    C_VECTOR_START,
    DIE_BASE,
    DIE_WORDS,
    DMA_DONE,
    DMA_ENGINE,
    DMA_MOVES,
    DMA_READY,
    DMA_SLOT,
    FENCE_AT,
    FREE,
    ISSUED,
    LIMIT,
    NOW,
    PASSES,
    POPPED,
    READS_DONE,
    RUN,
    RUNG,
)
from xccl_emu.timing.device.records import later, record, set_time
from xccl_emu.timing.device.scalar import event_at, ring_at
from xccl_emu.timing.device.transfer import FROM_MEMORY, TO_MEMORY, die_at, latency_of, pass_fabric, path_to


@jit
def step_pipe_timed(mem, st, tm, who, log, core, base, row, pipe):
    """Do the next instruction of a pipe: 1 if it was done, 0 if it has to wait, or minus the time to come back at."""
    queue = pipe_of(base, pipe)
    if st[queue + PIPE_COUNT] == 0:
        return 0
    entry = entry_of(st, queue, 0)
    op, a, b, c, site = st[entry], st[entry + 1], st[entry + 2], st[entry + 3], st[entry + ENTRY_SITE]
    n = tm[row + RUN + pipe]
    since = later(tm, row + FREE + pipe, ring_at(row, ISSUED, pipe, n))
    own = pipe == VECTOR or op == OP_SET_FLAG or op == OP_WAIT_FLAG or op == OP_FENCE
    if not own and tm[since] > tm[NOW] + tm[LIMIT]:
        return -tm[since]
    count = elements(st, entry, op) if pipe == VECTOR and op >= OP_V_QUANTIZE else 0
    how = st[entry + 6] if op == OP_MTU_OUT else 0
    signal, added = (st[entry + 4], st[entry + 5] if how == SIGNAL_ADD else 0) if how else (-1, 0)
    entry = _written(mem, tm, op, a, b, c)
    if not act_once(mem, st, core * ACTORS_PER_CORE + pipe, CHOICE_ALL):
        return 0
    tm[row + RUN + pipe] = n + 1
    if op == OP_SET_FLAG or op == OP_WAIT_FLAG:
        _flag(tm, who, log, core, row, pipe, op, a, b, c, site, since)
    elif pipe == VECTOR:
        _compute(tm, who, log, core, row, op, count, site, since)
    elif op == OP_FENCE:
        _fence(tm, who, log, core, row, site, since)
    elif op == OP_MTU_IN:
        _read(st, tm, who, log, core, base, row, a, c, site, since)
    else:
        _write(mem, st, tm, who, log, core, base, row, op, a, b, c, site, since, entry)
        if signal >= 0:
            _signal(mem, st, tm, who, log, core, base, row, signal, added, site)
    popped = ring_at(row, POPPED, pipe, n)
    set_time(tm, who, popped, tm[since], who[row + FREE + pipe] if who.size else 0)
    return 1


@jit
def _written(mem, tm, op, a, b, c):
    """Entry of the granule that an instruction writes by itself, or 0; found before it does, for what was there."""
    if op == OP_MTU_OUT:
        for begin in range(0, c if _is_a_line(b, c) else 0, GRANULE_BYTES):
            find_granule(mem, tm, b + begin)
        return find_granule(mem, tm, b) if c <= GRANULE_BYTES else 0
    return find_granule(mem, tm, a) if op == OP_PUT or op == OP_ADD else 0


@jit
def _is_a_line(address, nbytes):
    """Is it a line, of more than a granule, that somebody may poll?"""
    return nbytes > GRANULE_BYTES and is_line(nbytes) and address & nbytes - 1 == 0


@jit
def _flag(tm, who, log, core, row, pipe, op, source, target, event, site, since):
    """set_flag of mtu-in waits for the data of all that is before it, but lets the next transfer begin."""
    at = event_at(row, source, target, event)
    if op == OP_SET_FLAG:
        done = later(tm, since, row + READS_DONE) if pipe == MTU_IN else since
        number = record(tm, who, log, core, pipe, op, site, done, tm[done], 0, -1, 0, tm[done], -1, -1)
        set_time(tm, who, at, tm[done], number)
        if tm[since] > tm[row + FREE + pipe]:
            set_time(tm, who, row + FREE + pipe, tm[since], number)
        return
    when = later(tm, since, at)
    end = tm[when] + tm[C_EVENT]
    number = record(tm, who, log, core, pipe, op, site, when, end, 0, -1, 0, end, -1, -1)
    set_time(tm, who, row + FREE + pipe, end, number)


@jit
def _fence(tm, who, log, core, row, site, since):
    """It takes no time: what leaves by one way behind something else, with the same latency, arrives behind it."""
    number = record(tm, who, log, core, MTU_OUT, OP_FENCE, site, since, tm[since], 0, -1, 0, tm[since], -1, -1)
    set_time(tm, who, row + FENCE_AT, tm[since], number)
    set_time(tm, who, row + FREE + MTU_OUT, tm[since], number)


@jit
def _compute(tm, who, log, core, row, op, count, site, since):
    end = tm[since] + tm[C_VECTOR_START] + count * tm[PASSES + op] // 16 * tm[C_VECTOR] // 1000
    number = record(tm, who, log, core, VECTOR, op, site, since, end, 0, -1, 0, end, -1, -1)
    set_time(tm, who, row + FREE + VECTOR, end, number)


@jit
def _read(st, tm, who, log, core, base, row, address, nbytes, site, since):
    """mtu-in: the pipe is busy while the bytes come in; they are all there a latency later."""
    here, there = st[base + DIE], die_at(st, address)
    path = path_to(tm, here, there, address)
    begin = tm[since] + tm[C_MTU_START]
    own = begin + nbytes * tm[C_CORE] // 1000
    left = pass_fabric(tm, path, there, here, address, nbytes, False, FROM_MEMORY, begin)
    free = max(own, left)
    done = free + latency_of(tm, path, False)
    late = max(0, left - own)
    number = record(tm, who, log, core, MTU_IN, OP_MTU_IN, site, since, free, nbytes, there, late, done, address, -1)
    set_time(tm, who, row + FREE + MTU_IN, free, number)
    if done > tm[row + READS_DONE]:
        set_time(tm, who, row + READS_DONE, done, number)


@jit
def _write(mem, st, tm, who, log, core, base, row, op, a, b, c, site, since, entry):
    """mtu-out: the pipe is busy until the bytes have left; they are visible a latency later."""
    address, nbytes = (b, c) if op == OP_MTU_OUT else (a, GRANULE_BYTES)
    here, there = st[base + DIE], die_at(st, address)
    path = path_to(tm, here, there, address)
    begin = tm[since] + tm[C_MTU_START]
    own = begin + nbytes * tm[C_CORE] // 1000
    left = pass_fabric(tm, path, here, there, address, nbytes, True, TO_MEMORY, begin)
    free = max(own, left)
    visible = free + latency_of(tm, path, True)
    late = max(0, left - own)
    number = record(tm, who, log, core, MTU_OUT, op, site, since, free, nbytes, there, late, visible, -1, address)
    set_time(tm, who, row + FREE + MTU_OUT, free, number)
    if visible > tm[row + ALL_VISIBLE]:
        set_time(tm, who, row + ALL_VISIBLE, visible, number)
    if entry:
        became_visible(mem, tm, who, entry, address, visible, 1, b if op == OP_ADD else 0, number)
    elif _is_a_line(address, nbytes):
        line_became_visible(mem, tm, who, address, nbytes, visible, number)


@jit
def _signal(mem, st, tm, who, log, core, base, row, address, added, site):
    """What a request signals leaves right behind what it copies, by the same way, and is visible behind it."""
    here, there = st[base + DIE], die_at(st, address)
    path, since = path_to(tm, here, there, address), row + FREE + MTU_OUT
    entry = find_granule(mem, tm, address)
    if not act_once(mem, st, core * ACTORS_PER_CORE + MTU_OUT, CHOICE_ALL):
        return
    own = tm[since] + 8 * tm[C_CORE] // 1000
    left = pass_fabric(tm, path, here, there, address, 8, True, TO_MEMORY, tm[since])
    free = max(own, left)
    visible, late = free + latency_of(tm, path, True), max(0, left - own)
    number = record(tm, who, log, core, MTU_OUT, OP_MTU_OUT, site, since, free, 8, there, late, visible, -1, address)
    set_time(tm, who, since, free, number)
    if visible > tm[row + ALL_VISIBLE]:
        set_time(tm, who, row + ALL_VISIBLE, visible, number)
    became_visible(mem, tm, who, entry, address, visible, 1, added, number)


@jit
def step_dma_timed(mem, st, tm, who, log, core, base, row):
    """Do the next DMA descriptor: as `step_pipe_timed`.

    A core's descriptors are a queue: the next begins when the one before it is done.  Those of all
    cores of a die are started by its engines, each one after the other, the earliest that is ready first; their bytes
    are on the way at the same time.
    """
    if tm[row + DMA_MOVES] == 0:
        ready = _start_dma(st, tm, who, core, base, row)
        if ready <= 0:
            return ready
    begin = tm[row + DMA_MOVES]
    if begin > tm[NOW] + tm[LIMIT]:
        return -begin
    k = tm[row + DMA_SLOT]
    slot = base + DMA_SLOTS + k * ENTRY_WORDS
    source, target, nbytes, event = st[slot + 1], st[slot + 2], st[slot + 3], st[slot + 4]
    site = st[slot + ENTRY_SITE]
    entry = find_granule(mem, tm, target) if nbytes <= GRANULE_BYTES else 0
    if not act_once(mem, st, core * ACTORS_PER_CORE + DMA, k | MAX_SUBTRANSFERS << 4):
        return 0
    tm[row + DMA_MOVES] = 0
    _copied(mem, st, tm, who, log, core, base, row, source, target, nbytes, event, site, begin, entry)
    return 1


@jit
def _start_dma(st, tm, who, core, base, row):
    """Have the engine start the descriptor that the core rang first: 1 if it does, else as `step_pipe_timed`."""
    first = -1
    for k in range(N_DMA_SLOTS):
        if st[base + DMA_SLOTS + k * ENTRY_WORDS] and (first < 0 or tm[row + RUNG + k] < tm[row + RUNG + first]):
            first = k
    if first < 0:
        return 0
    ready = later(tm, row + RUNG + first, row + DMA_DONE)
    if tm[ready] > tm[NOW] + tm[LIMIT]:
        return -tm[ready]
    engine = _next_engine(tm, tm[DIE_BASE] + st[base + DIE] * DIE_WORDS + DMA_ENGINE)
    since = later(tm, ready, engine)
    cause = who[since] if who.size else 0
    set_time(tm, who, row + DMA_READY, tm[since], cause)
    set_time(tm, who, engine, tm[since] + tm[C_DMA_START], cause)
    tm[row + DMA_MOVES], tm[row + DMA_SLOT] = tm[engine], first
    return 1


@jit
def _next_engine(tm, engines):
    """That of a die's DMA engines which is free first."""
    engine = engines
    for k in range(1, tm[C_DMA_ENGINES]):
        if tm[engines + k] < tm[engine]:
            engine = engines + k
    return engine


@jit
def _copied(mem, st, tm, who, log, core, base, row, source, target, nbytes, event, site, begin, entry):
    here, start, end = st[base + DIE], die_at(st, source), die_at(st, target)
    write = start == here
    peer, far = (end, target) if write else (start, source)
    path = path_to(tm, start + end - peer, peer, far)
    left = pass_fabric(tm, path, start, end, far, nbytes, write, FROM_MEMORY | TO_MEMORY, begin)
    visible, since = left + latency_of(tm, path, write), row + DMA_READY
    number = record(tm, who, log, core, DMA, OP_DMA, site, since, left, nbytes, peer, 0, visible, source, target)
    set_time(tm, who, row + DMA_DONE, visible, number)
    set_time(tm, who, event_at(row, DMA, SCALAR, event), visible, number)
    if visible > tm[row + ALL_VISIBLE]:
        set_time(tm, who, row + ALL_VISIBLE, visible, number)
    if entry:
        became_visible(mem, tm, who, entry, target, visible, 1, 0, number)
