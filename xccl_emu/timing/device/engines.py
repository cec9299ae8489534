"""The pipes and DMA in time: an instruction begins when it was issued, its pipe is free and its event is set."""

from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.pipes import entry_of, pipe_of
from xccl_emu.machine.device.polls import is_line
from xccl_emu.machine.device.single import act_once
from xccl_emu.machine.device.touched import elements
from xccl_emu.machine.device.words import jit
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.device import records, transfer
from xccl_emu.timing.device.granules import became_visible, find_granule, line_became_visible
from xccl_emu.timing.device.scalar import event_at, event_of, ring_at


@jit
def step_pipe_timed(space, core, pipe):
    """Do the next instruction of a pipe: 1 if it was done, 0 if it has to wait, or minus the time to come back at."""
    mem, st, tm, who, _ = space
    queue, free = pipe_of(core.base, pipe), core.row + tl.FREE + pipe
    if st[queue + ms.PIPE_COUNT] == 0:
        return 0
    at = entry_of(st, queue, 0)
    asked = records.request_at(st, at)
    op, n = asked.op, tm[core.row + tl.RUN + pipe]
    since = records.later(tm, free, ring_at(core.row, tl.ISSUED, pipe, n))
    own = pipe == rq.VECTOR or ops.MARKERS >> op & 1 != 0
    if not own and tm[since] > tm[tl.NOW] + tm[tl.LIMIT]:
        return -tm[since]
    count = elements(st, at, op) if ops.VECTORS >> op & 1 else 0
    entry = _written(mem, tm, asked)
    if not act_once(mem, st, core.number * ms.ACTORS_PER_CORE + pipe, ms.CHOICE_ALL):
        return 0
    tm[core.row + tl.RUN + pipe] = n + 1
    if ops.FLAGS >> op & 1:
        _flag(space, core, pipe, asked, since)
    elif pipe == rq.VECTOR:
        _compute(space, core, asked, count, since)
    elif ops.FENCES >> op & 1:
        _fence(space, core, asked, since)
    else:
        _transfer(space, core, pipe, asked, since, entry)
        if op == rq.OP_PUT_SIGNAL:
            _signal(space, core, asked)
    records.set_time(tm, who, ring_at(core.row, tl.POPPED, pipe, n), tm[since], records.cause_of(who, free))
    return 1


@jit
def _written(mem, tm, asked):
    """Entry of the granule that an instruction writes by itself, or 0; found before it does, for what was there."""
    op = asked.op
    if ops.COPIES_OUT >> op & 1:
        target, nbytes = asked.words[ops.OUT.target], asked.words[ops.OUT.nbytes]
        for begin in range(0, nbytes if _is_a_line(target, nbytes) else 0, ms.GRANULE_BYTES):
            find_granule(mem, tm, target + begin)
        return find_granule(mem, tm, target) if nbytes <= ms.GRANULE_BYTES else 0
    return find_granule(mem, tm, asked.words[ops.PUT.target]) if (ops.WRITES & ~ops.COPIES) >> op & 1 else 0


@jit
def _is_a_line(address, nbytes):
    """Return whether this is a line, of more than a granule, that somebody may poll."""
    return nbytes > ms.GRANULE_BYTES and is_line(nbytes) and address & nbytes - 1 == 0


@jit
def _flag(space, core, pipe, asked, since):
    """set_flag of mtu-in waits for the data of all that is before it, but lets the next transfer begin."""
    _, _, tm, who, _ = space
    free, at = core.row + tl.FREE + pipe, event_of(core.row, asked)
    if ops.EVENT_SETS >> asked.op & 1:
        done = records.later(tm, since, core.row + tl.READS_DONE) if pipe == rq.MTU_IN else since
        number = records.record_still(space, core, pipe, asked, done, tm[done])
        records.set_time(tm, who, at, tm[done], number)
        records.set_later(tm, who, free, tm[since], number)
        return
    when = records.later(tm, since, at)
    end = tm[when] + tm[tl.C_EVENT]
    records.set_time(tm, who, free, end, records.record_still(space, core, pipe, asked, when, end))


@jit
def _fence(space, core, asked, since):
    """mtu-out goes on when all that the core wrote is acknowledged; at once where it arrives in order anyway."""
    _, _, tm, who, _ = space
    since = since if tm[tl.ORDERED] else records.later(tm, since, core.row + tl.ALL_ACKED)
    end = tm[since] + tm[tl.C_FENCE]
    number = records.record_still(space, core, rq.MTU_OUT, asked, since, end)
    records.set_time(tm, who, core.row + tl.FENCE_AT, end, number)
    records.set_time(tm, who, core.row + tl.FREE + rq.MTU_OUT, end, number)


@jit
def _compute(space, core, asked, count, since):
    _, _, tm, who, _ = space
    end = tm[since] + tm[tl.C_VECTOR_START] + count * tm[tl.PASSES + asked.op] // 16 * tm[tl.C_VECTOR] // 1000
    records.set_time(
        tm, who, core.row + tl.FREE + rq.VECTOR, end, records.record_still(space, core, rq.VECTOR, asked, since, end)
    )


@jit
def _transfer(space, core, pipe, asked, since, entry):
    """mtu-in or mtu-out: what is written is seen from when it is there."""
    mem, _, tm, who, _ = space
    op, begin = asked.op, tm[since] + tm[tl.C_MTU_START]
    address = asked.words[ops.WRITTEN[op, 0] if pipe == rq.MTU_OUT else ops.MTU_IN.source]
    nbytes = asked.words[ops.OUT.nbytes] if ops.COPIES >> op & 1 else ms.GRANULE_BYTES
    number, visible = _pass(space, core, pipe, asked, since, begin, address, nbytes)
    if entry:
        added = asked.words[ops.ADD.value] if (ops.ADDS & ~ops.COPIES) >> op & 1 else 0
        became_visible(mem, tm, who, entry, address, visible, 1, added, number)
    elif ops.COPIES_OUT >> op & 1 and _is_a_line(address, nbytes):
        line_became_visible(mem, tm, who, address, nbytes, visible, number)


@jit
def _pass(space, core, pipe, asked, since, begin, address, nbytes):
    """Have bytes pass the fabric from a time on: their record, and when they are there.

    The pipe is busy until they have left, or are in; they are all there a latency later.
    """
    _, st, tm, who, _ = space
    write, here, there = pipe == rq.MTU_OUT, st[core.base + ms.DIE], transfer.die_at(st, address)
    path, own = transfer.path_to(tm, here, there, address), begin + nbytes * tm[tl.C_CORE] // 1000
    if write:
        left = transfer.pass_fabric(tm, path, here, there, address, nbytes, True, transfer.TO_MEMORY, begin)
    else:
        left = transfer.pass_fabric(tm, path, there, here, address, nbytes, False, transfer.FROM_MEMORY, begin)
    free = max(own, left)
    done = free + transfer.latency_of(tm, path, write)
    if not write and asked.words[ops.MTU_IN.tentative]:
        # It may have bytes that are on their way, and a later look must see that: it waits
        done = max(done, tm[transfer.written_by(tm, there)])
    read, written = (-1, address) if write else (address, -1)
    moved = records.Moved(nbytes, there, max(0, left - own), done, read, written)
    number = records.record(space, core, pipe, asked, since, free, moved)
    records.set_time(tm, who, core.row + tl.FREE + pipe, free, number)
    if write:
        transfer.acknowledge(tm, who, core.row, path, done, number)
        records.set_later(tm, who, transfer.written_by(tm, there), done, number)
    else:
        records.set_later(tm, who, core.row + tl.READS_DONE, done, number)
    return number, done


@jit
def _signal(space, core, asked):
    """Send a request's signal: it leaves right after what it copies, by the same way, and is visible after it."""
    mem, st, tm, who, _ = space
    address, since = asked.words[ops.PUT_SIGNAL.signal], core.row + tl.FREE + rq.MTU_OUT
    entry = find_granule(mem, tm, address)
    if not act_once(mem, st, core.number * ms.ACTORS_PER_CORE + rq.MTU_OUT, ms.CHOICE_ALL):
        return
    number, visible = _pass(space, core, rq.MTU_OUT, asked, since, tm[since], address, 8)
    added = asked.words[ops.PUT_SIGNAL.value] if asked.words[ops.PUT_SIGNAL.how] == rq.SIGNAL_ADD else 0
    became_visible(mem, tm, who, entry, address, visible, 1, added, number)


@jit
def step_dma_timed(space, core):
    """Do the next DMA descriptor: as `step_pipe_timed`.

    A core's descriptors are a queue: one begins when an earlier one is done, and their bytes leave one after the
    other.  The descriptors of all cores of a die are started by its engines, each one after the other, the
    earliest that is ready first; the bytes of several cores are on the way at the same time.
    """
    mem, st, tm, _, _ = space
    if tm[core.row + tl.DMA_MOVES] == 0:
        ready = _start_dma(space, core)
        if ready <= 0:
            return ready
    begin = tm[core.row + tl.DMA_MOVES]
    if begin > tm[tl.NOW] + tm[tl.LIMIT]:
        return -begin
    k = tm[core.row + tl.DMA_SLOT]
    asked = records.request_at(st, core.base + ms.DMA_SLOTS + k * ms.ENTRY_WORDS)
    copies_one = asked.words[ops.DMA.nbytes] <= ms.GRANULE_BYTES
    entry = find_granule(mem, tm, asked.words[ops.DMA.target]) if copies_one else 0
    if not act_once(mem, st, core.number * ms.ACTORS_PER_CORE + rq.DMA, k | ms.MAX_SUBTRANSFERS << 4):
        return 0
    tm[core.row + tl.DMA_MOVES] = 0
    _copied(space, core, asked, begin, entry)
    return 1


@jit
def _start_dma(space, core):
    """Have the engine start the descriptor that the core rang first: 1 if it does, else as `step_pipe_timed`."""
    _, st, tm, who, _ = space
    row, first = core.row, -1
    for k in range(ms.N_DMA_SLOTS):
        if st[core.base + ms.DMA_SLOTS + k * ms.ENTRY_WORDS] and (
            first < 0 or tm[row + tl.RUNG + k] < tm[row + tl.RUNG + first]
        ):
            first = k
    if first < 0:
        return 0
    before = row + tl.DMA_DONE + (tm[row + tl.DMA_STARTED] - tm[tl.C_DMA_IN_FLIGHT]) % ms.N_DMA_SLOTS
    ready = records.later(tm, row + tl.RUNG + first, before)
    if tm[ready] > tm[tl.NOW] + tm[tl.LIMIT]:
        return -tm[ready]
    engine = _next_engine(tm, tm[tl.DIE_BASE] + st[core.base + ms.DIE] * tl.DIE_WORDS + tl.DMA_ENGINE)
    since = records.later(tm, ready, engine)
    cause = records.cause_of(who, since)
    records.set_time(tm, who, row + tl.DMA_READY, tm[since], cause)
    records.set_time(tm, who, engine, tm[since] + tm[tl.C_DMA_START], cause)
    tm[row + tl.DMA_MOVES], tm[row + tl.DMA_SLOT] = tm[engine], first
    tm[row + tl.DMA_STARTED] += 1
    return 1


@jit
def _next_engine(tm, engines):
    """Return the DMA engine of a die that is free first."""
    engine = engines
    for k in range(1, tm[tl.C_DMA_ENGINES]):
        if tm[engines + k] < tm[engine]:
            engine = engines + k
    return engine


@jit
def _copied(space, core, asked, begin, entry):
    mem, st, tm, who, _ = space
    row, words = core.row, asked.words
    source, target, nbytes = words[ops.DMA.source], words[ops.DMA.target], words[ops.DMA.nbytes]
    here, start, end = st[core.base + ms.DIE], transfer.die_at(st, source), transfer.die_at(st, target)
    write = start == here
    peer, far = (end, target) if write else (start, source)
    path = transfer.path_to(tm, start + end - peer, peer, far)
    own = max(begin, tm[row + tl.DMA_FREE]) + nbytes * tm[tl.C_DMA] // 1000
    left = transfer.pass_fabric(
        tm, path, start, end, far, nbytes, write, transfer.FROM_MEMORY | transfer.TO_MEMORY, begin
    )
    left = tm[row + tl.DMA_FREE] = max(own, left)
    visible = left + transfer.round_trips(tm, path)
    number = records.record(
        space, core, rq.DMA, asked, row + tl.DMA_READY, left, records.Moved(nbytes, peer, 0, visible, source, target)
    )
    done = row + tl.DMA_DONE + (tm[row + tl.DMA_STARTED] - 1) % ms.N_DMA_SLOTS
    records.set_time(tm, who, done, visible, number)
    records.set_time(tm, who, event_at(row, rq.DMA, rq.SCALAR, words[ops.DMA.event]), visible, number)
    records.set_later(tm, who, row + tl.ALL_ACKED, visible, number)
    records.set_later(tm, who, transfer.written_by(tm, end), visible, number)
    if entry:
        became_visible(mem, tm, who, entry, target, visible, 1, 0, number)
