"""The pipes and DMA in time: an instruction begins when it was issued, its pipe is free and its event is set."""

from xccl_emu.lang.requests import (
    DMA,
    MTU_IN,
    MTU_OUT,
    OP_ADD,
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
from xccl_emu.timing.device.records import Moved, cause_of, later, record, record_still, request_at, set_later, set_time
from xccl_emu.timing.device.scalar import event_at, ring_at
from xccl_emu.timing.device.transfer import FROM_MEMORY, TO_MEMORY, die_at, latency_of, pass_fabric, path_to


@jit
def step_pipe_timed(space, core, pipe):
    """Do the next instruction of a pipe: 1 if it was done, 0 if it has to wait, or minus the time to come back at."""
    mem, st, tm, who, _ = space
    queue, free = pipe_of(core.base, pipe), core.row + FREE + pipe
    if st[queue + PIPE_COUNT] == 0:
        return 0
    at = entry_of(st, queue, 0)
    asked = request_at(st, at)
    op, n = asked.op, tm[core.row + RUN + pipe]
    since = later(tm, free, ring_at(core.row, ISSUED, pipe, n))
    own = pipe == VECTOR or op == OP_SET_FLAG or op == OP_WAIT_FLAG or op == OP_FENCE
    if not own and tm[since] > tm[NOW] + tm[LIMIT]:
        return -tm[since]
    count = elements(st, at, op) if pipe == VECTOR and op >= OP_V_QUANTIZE else 0
    entry = _written(mem, tm, asked)
    if not act_once(mem, st, core.number * ACTORS_PER_CORE + pipe, CHOICE_ALL):
        return 0
    tm[core.row + RUN + pipe] = n + 1
    if op == OP_SET_FLAG or op == OP_WAIT_FLAG:
        _flag(space, core, pipe, asked, since)
    elif pipe == VECTOR:
        _compute(space, core, asked, count, since)
    elif op == OP_FENCE:
        _fence(space, core, asked, since)
    else:
        _transfer(space, core, pipe, asked, since, entry)
        if op == OP_MTU_OUT and asked.f:
            _signal(space, core, asked)
    set_time(tm, who, ring_at(core.row, POPPED, pipe, n), tm[since], cause_of(who, free))
    return 1


@jit
def _written(mem, tm, asked):
    """Entry of the granule that an instruction writes by itself, or 0; found before it does, for what was there."""
    op, target, nbytes = asked.op, asked.b, asked.c
    if op == OP_MTU_OUT:
        for begin in range(0, nbytes if _is_a_line(target, nbytes) else 0, GRANULE_BYTES):
            find_granule(mem, tm, target + begin)
        return find_granule(mem, tm, target) if nbytes <= GRANULE_BYTES else 0
    return find_granule(mem, tm, asked.a) if op == OP_PUT or op == OP_ADD else 0


@jit
def _is_a_line(address, nbytes):
    """Return whether this is a line, of more than a granule, that somebody may poll."""
    return nbytes > GRANULE_BYTES and is_line(nbytes) and address & nbytes - 1 == 0


@jit
def _flag(space, core, pipe, asked, since):
    """set_flag of mtu-in waits for the data of all that is before it, but lets the next transfer begin."""
    _, _, tm, who, _ = space
    free, at = core.row + FREE + pipe, event_at(core.row, asked.a, asked.b, asked.c)
    if asked.op == OP_SET_FLAG:
        done = later(tm, since, core.row + READS_DONE) if pipe == MTU_IN else since
        number = record_still(space, core, pipe, asked, done, tm[done])
        set_time(tm, who, at, tm[done], number)
        set_later(tm, who, free, tm[since], number)
        return
    when = later(tm, since, at)
    end = tm[when] + tm[C_EVENT]
    set_time(tm, who, free, end, record_still(space, core, pipe, asked, when, end))


@jit
def _fence(space, core, asked, since):
    """It takes no time: what leaves by one way behind something else, with the same latency, arrives behind it."""
    _, _, tm, who, _ = space
    number = record_still(space, core, MTU_OUT, asked, since, tm[since])
    set_time(tm, who, core.row + FENCE_AT, tm[since], number)
    set_time(tm, who, core.row + FREE + MTU_OUT, tm[since], number)


@jit
def _compute(space, core, asked, count, since):
    _, _, tm, who, _ = space
    end = tm[since] + tm[C_VECTOR_START] + count * tm[PASSES + asked.op] // 16 * tm[C_VECTOR] // 1000
    set_time(tm, who, core.row + FREE + VECTOR, end, record_still(space, core, VECTOR, asked, since, end))


@jit
def _transfer(space, core, pipe, asked, since, entry):
    """mtu-in or mtu-out: what is written is seen from when it is there."""
    mem, _, tm, who, _ = space
    op, begin = asked.op, tm[since] + tm[C_MTU_START]
    address = asked.b if op == OP_MTU_OUT else asked.a
    nbytes = asked.c if op == OP_MTU_IN or op == OP_MTU_OUT else GRANULE_BYTES
    number, visible = _pass(space, core, pipe, asked, since, begin, address, nbytes)
    if entry:
        became_visible(mem, tm, who, entry, address, visible, 1, asked.b if op == OP_ADD else 0, number)
    elif op == OP_MTU_OUT and _is_a_line(address, nbytes):
        line_became_visible(mem, tm, who, address, nbytes, visible, number)


@jit
def _pass(space, core, pipe, asked, since, begin, address, nbytes):
    """Have bytes pass the fabric from a time on: their record, and when they are there.

    The pipe is busy until they have left, or are in; they are all there a latency later.
    """
    _, st, tm, who, _ = space
    write, here, there = pipe == MTU_OUT, st[core.base + DIE], die_at(st, address)
    path, own = path_to(tm, here, there, address), begin + nbytes * tm[C_CORE] // 1000
    if write:
        left = pass_fabric(tm, path, here, there, address, nbytes, True, TO_MEMORY, begin)
    else:
        left = pass_fabric(tm, path, there, here, address, nbytes, False, FROM_MEMORY, begin)
    free = max(own, left)
    done = free + latency_of(tm, path, write)
    read, written = (-1, address) if write else (address, -1)
    moved = Moved(nbytes, there, max(0, left - own), done, read, written)
    number = record(space, core, pipe, asked, since, free, moved)
    set_time(tm, who, core.row + FREE + pipe, free, number)
    set_later(tm, who, core.row + (ALL_VISIBLE if write else READS_DONE), done, number)
    return number, done


@jit
def _signal(space, core, asked):
    """What a request signals leaves right behind what it copies, by the same way, and is visible behind it."""
    mem, st, tm, who, _ = space
    address, since = asked.d, core.row + FREE + MTU_OUT
    entry = find_granule(mem, tm, address)
    if not act_once(mem, st, core.number * ACTORS_PER_CORE + MTU_OUT, CHOICE_ALL):
        return
    number, visible = _pass(space, core, MTU_OUT, asked, since, tm[since], address, 8)
    added = asked.e if asked.f == SIGNAL_ADD else 0
    became_visible(mem, tm, who, entry, address, visible, 1, added, number)


@jit
def step_dma_timed(space, core):
    """Do the next DMA descriptor: as `step_pipe_timed`.

    A core's descriptors are a queue: the next begins when the one before it is done.  Those of all
    cores of a die are started by its engines, each one after the other, the earliest that is ready first; their bytes
    are on the way at the same time.
    """
    mem, st, tm, _, _ = space
    if tm[core.row + DMA_MOVES] == 0:
        ready = _start_dma(space, core)
        if ready <= 0:
            return ready
    begin = tm[core.row + DMA_MOVES]
    if begin > tm[NOW] + tm[LIMIT]:
        return -begin
    k = tm[core.row + DMA_SLOT]
    asked = request_at(st, core.base + DMA_SLOTS + k * ENTRY_WORDS)
    entry = find_granule(mem, tm, asked.b) if asked.c <= GRANULE_BYTES else 0
    if not act_once(mem, st, core.number * ACTORS_PER_CORE + DMA, k | MAX_SUBTRANSFERS << 4):
        return 0
    tm[core.row + DMA_MOVES] = 0
    _copied(space, core, asked, begin, entry)
    return 1


@jit
def _start_dma(space, core):
    """Have the engine start the descriptor that the core rang first: 1 if it does, else as `step_pipe_timed`."""
    _, st, tm, who, _ = space
    row, first = core.row, -1
    for k in range(N_DMA_SLOTS):
        if st[core.base + DMA_SLOTS + k * ENTRY_WORDS] and (first < 0 or tm[row + RUNG + k] < tm[row + RUNG + first]):
            first = k
    if first < 0:
        return 0
    ready = later(tm, row + RUNG + first, row + DMA_DONE)
    if tm[ready] > tm[NOW] + tm[LIMIT]:
        return -tm[ready]
    engine = _next_engine(tm, tm[DIE_BASE] + st[core.base + DIE] * DIE_WORDS + DMA_ENGINE)
    since = later(tm, ready, engine)
    cause = cause_of(who, since)
    set_time(tm, who, row + DMA_READY, tm[since], cause)
    set_time(tm, who, engine, tm[since] + tm[C_DMA_START], cause)
    tm[row + DMA_MOVES], tm[row + DMA_SLOT] = tm[engine], first
    return 1


@jit
def _next_engine(tm, engines):
    """Return the DMA engine of a die that is free first."""
    engine = engines
    for k in range(1, tm[C_DMA_ENGINES]):
        if tm[engines + k] < tm[engine]:
            engine = engines + k
    return engine


@jit
def _copied(space, core, asked, begin, entry):
    mem, st, tm, who, _ = space
    row, source, target, nbytes = core.row, asked.a, asked.b, asked.c
    here, start, end = st[core.base + DIE], die_at(st, source), die_at(st, target)
    write = start == here
    peer, far = (end, target) if write else (start, source)
    path = path_to(tm, start + end - peer, peer, far)
    left = pass_fabric(tm, path, start, end, far, nbytes, write, FROM_MEMORY | TO_MEMORY, begin)
    visible = left + latency_of(tm, path, write)
    number = record(space, core, DMA, asked, row + DMA_READY, left, Moved(nbytes, peer, 0, visible, source, target))
    set_time(tm, who, row + DMA_DONE, visible, number)
    set_time(tm, who, event_at(row, DMA, SCALAR, asked.d), visible, number)
    set_later(tm, who, row + ALL_VISIBLE, visible, number)
    if entry:
        became_visible(mem, tm, who, entry, target, visible, 1, 0, number)
