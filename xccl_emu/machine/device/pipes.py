"""What the pipes of a core do with the instructions queued on them, and the DMA engine with its descriptors.

mtu-in starts its transfers in order but memory answers in any order: transfers between two flags may overtake each
other unless they touch the same granule or the same part of the data buffer.  The vector pipe and mtu-out work in
order, mtu-out granule by granule.  DMA descriptors are independent of each other.

PYTEST_DONT_REWRITE: asserts that pytest has rewritten do not compile, see `xccl_emu.testing.plugin`.
"""

from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REQUEST, REQUEST_WORDS
from xccl_emu.machine.device import flight, maps, memory, numerics, touched
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.access import set_error_at
from xccl_emu.machine.device.memory import read_far
from xccl_emu.machine.device.words import copy_bytes, jit, put

_READ_DONE = -1
"""Progress of an mtu-in transfer that is complete but not yet at the head of its queue."""


@jit
def pipe_of(base, pipe):
    """Index of the first word of a pipe's queue."""
    return base + ms.PIPES + (pipe - 1) * ms.PIPE_WORDS


@jit
def entry_of(st, queue, j):
    """Index of the j-th instruction in a queue."""
    return queue + ms.PIPE_ENTRIES + (st[queue + ms.PIPE_HEAD] + j) % ms.QUEUE_DEPTH * ms.ENTRY_WORDS


@jit
def enqueue(st, base, pipe):
    """Move the core's request to the end of a pipe's queue; False if the queue is full."""
    queue = pipe_of(base, pipe)
    count = st[queue + ms.PIPE_COUNT]
    if count >= ms.QUEUE_DEPTH:
        return False
    entry = entry_of(st, queue, count)
    for i in range(REQUEST_WORDS):
        put(st, entry + i, st[base + REQUEST + i])
    put(st, entry + ms.ENTRY_PROGRESS, 0)
    put(st, queue + ms.PIPE_COUNT, count + 1)
    return True


@jit
def _pop(st, queue):
    """Drop the head of a queue, and the transfers right after it that are already complete."""
    while True:
        entry = entry_of(st, queue, 0)
        for i in range(ms.ENTRY_WORDS):
            put(st, entry + i, 0)
        put(st, queue + ms.PIPE_HEAD, (st[queue + ms.PIPE_HEAD] + 1) % ms.QUEUE_DEPTH)
        put(st, queue + ms.PIPE_COUNT, st[queue + ms.PIPE_COUNT] - 1)
        if st[queue + ms.PIPE_COUNT] == 0:
            put(st, queue + ms.PIPE_HEAD, 0)  # an empty queue looks the same wherever it was
            return
        if st[entry_of(st, queue, 0) + ms.ENTRY_PROGRESS] != _READ_DONE:
            return


@jit
def _flag(st, core, base, queue, entry):
    """Execute set_flag or wait_flag at the head of a queue; False if it has to wait."""
    source, target, event = touched.flag_of(st, entry)
    if ops.EVENT_SETS >> st[entry] & 1:
        flight.set_event(st, core, base, source, target, event, st[entry + ms.ENTRY_SITE])
    elif not take_event(st, base, source, target, event):
        return False
    _pop(st, queue)
    return True


@jit
def take_event(st, base, source, target, event):
    """Consume an event if it is set."""
    word = base + ms.EVENTS + source * ms.N_PIPES + target
    if not st[word] >> event & 1:
        return False
    put(st, word, st[word] & ~(1 << event))
    return True


@jit
def _cut(shift, source, target, i):
    """The i-th place, from the first byte on, where a transfer is cut: wherever its source or target begins a unit."""
    if i == 0:
        return 0
    unit = 1 << shift
    a, b = unit - (source & unit - 1), unit - (target & unit - 1)
    if a == b:
        return a + (i - 1 << shift)
    return (i - 1 >> 1 << shift) + (min(a, b) if i % 2 else max(a, b))


@jit
def _parts(shift, source, target, nbytes):
    """In how many parts the cuts divide a transfer; no part lies in two units of its source or target."""
    parts = (source + nbytes - 1 >> shift) - (source >> shift) + 1
    if (source ^ target) & (1 << shift) - 1 == 0:
        return parts
    return parts + (target + nbytes - 1 >> shift) - (target >> shift)


@jit
def _parts_of_subtransfer(parts):
    """Parts that are copied together, so that a mask of `MAX_SUBTRANSFERS` bits says what of a transfer is done."""
    return (parts + ms.MAX_SUBTRANSFERS - 1) // ms.MAX_SUBTRANSFERS


@jit
def n_subtransfers(st, source, target, nbytes):
    """In how many sub-transfers a transfer is copied; give the source twice where the target is a data buffer."""
    parts = _parts(st[ms.ATOMIC_SHIFT], source, target, nbytes)
    if parts <= ms.MAX_SUBTRANSFERS:
        return parts
    size = _parts_of_subtransfer(parts)
    return (parts + size - 1) // size


@jit
def subtransfers_of(st, at):
    """In how many sub-transfers the instruction of mtu-in, or the DMA descriptor, at ``at`` is copied."""
    source, nbytes = touched.read_by(st, at, st[at])
    return n_subtransfers(st, source, source if ops.COPIES_IN >> st[at] & 1 else st[at + ops.DMA.target], nbytes)


@jit
def subtransfer(st, source, target, nbytes, g):
    """First and last+1 byte, counted from the first of the transfer, of sub-transfer ``g``."""
    shift = st[ms.ATOMIC_SHIFT]
    size = _parts_of_subtransfer(_parts(shift, source, target, nbytes))
    return _cut(shift, source, target, g * size), min(_cut(shift, source, target, (g + 1) * size), nbytes)


@jit
def step_mtu_in(mem, st, core, base, choice):
    """One action of mtu-in: the whole of the head, or the entry and the sub-transfer that the choice names."""
    queue = pipe_of(base, rq.MTU_IN)
    if st[queue + ms.PIPE_COUNT] == 0:
        return False
    j = 0 if choice == ms.CHOICE_ALL else choice & 15
    if j >= st[queue + ms.PIPE_COUNT]:
        return False
    entry = entry_of(st, queue, j)
    if not ops.COPIES_IN >> st[entry] & 1:
        return (j == 0) and (choice == ms.CHOICE_ALL or choice == 0) and _flag(st, core, base, queue, entry)
    if st[entry + ms.ENTRY_PROGRESS] == _READ_DONE or not _may_overtake(st, queue, j):
        return False
    if st[entry + ops.MTU_IN.tentative] == 0 and _is_lost(st, entry):
        return _reads_lost(st, core, base, entry)
    if not _read_subtransfer(mem, st, base, entry, choice):
        return False
    if st[entry + ms.ENTRY_PROGRESS] == _READ_DONE:
        st[ms.BYTES_BY_PIPE + rq.MTU_IN] += st[entry + ops.MTU_IN.nbytes]
        if j == 0:
            _pop(st, queue)
    return True


@jit
def _is_lost(st, at):
    source, nbytes = touched.read_by(st, at, st[at])
    return memory.is_lost(st, source, nbytes)


@jit
def _reads_lost(st, core, base, at):
    """Record that a transfer, under way or about to begin, reads bytes that are lost."""
    source, _ = touched.read_by(st, at, st[at])
    return set_error_at(st, core, base, ms.ERR_UNDEFINED, source, ms.UNDEFINED_LOST, st[at + ms.ENTRY_SITE])


@jit
def can_read(st, base, choice):
    """Can mtu-in take a choice that names a transfer: is it not read yet, and may it overtake what is before it?"""
    queue, j = pipe_of(base, rq.MTU_IN), 0 if choice == ms.CHOICE_ALL else choice & 15
    read = st[entry_of(st, queue, j) + ms.ENTRY_PROGRESS]
    if read == _READ_DONE or not _may_overtake(st, queue, j):
        return False
    return choice == ms.CHOICE_ALL or read >> (choice >> 4) & 1 == 0


@jit
def _read_in(st, entry):
    """Source, place in the data buffer and size of an instruction of mtu-in."""
    return st[entry + ops.MTU_IN.source], st[entry + ops.MTU_IN.ub], st[entry + ops.MTU_IN.nbytes]


@jit
def _may_overtake(st, queue, j):
    """May entry ``j`` run before the unfinished ones ahead of it?"""
    entry = entry_of(st, queue, j)
    source, ub, nbytes = _read_in(st, entry)
    for i in range(j):
        ahead = entry_of(st, queue, i)
        if not ops.COPIES_IN >> st[ahead] & 1:
            return False
        if st[ahead + ms.ENTRY_PROGRESS] == _READ_DONE:
            continue
        other, ub_other, size = _read_in(st, ahead)
        if ub < ub_other + size and ub_other < ub + nbytes:
            return False
        first, last = source >> st[ms.ATOMIC_SHIFT], source + nbytes - 1 >> st[ms.ATOMIC_SHIFT]
        if first <= other + size - 1 >> st[ms.ATOMIC_SHIFT] and other >> st[ms.ATOMIC_SHIFT] <= last:
            return False
    return True


@jit
def _read_subtransfer(mem, st, base, entry, choice):
    """Copy a sub-transfer, or all that is left, to the data buffer; False if it is done or does not exist."""
    source, ub, nbytes = _read_in(st, entry)
    ub += st[base + ms.UB_BASE]
    mask = st[entry + ms.ENTRY_PROGRESS]
    subtransfers = n_subtransfers(st, source, source, nbytes)
    if choice == ms.CHOICE_ALL and mask == 0:
        read_far(mem, st, ub, source, nbytes)
        put(st, entry + ms.ENTRY_PROGRESS, _READ_DONE)
        return True
    moved = False
    first, last = (0, subtransfers) if choice == ms.CHOICE_ALL else (choice >> 4, (choice >> 4) + 1)
    for g in range(first, min(last, subtransfers)):
        if not mask >> g & 1:
            start, end = subtransfer(st, source, source, nbytes, g)
            memory.move(mem, st, ub + start, source + start, end - start)
            mask, moved = mask | 1 << g, True
    put(st, entry + ms.ENTRY_PROGRESS, _READ_DONE if mask == (1 << subtransfers) - 1 else mask)
    return moved


@jit
def step_vector(mem, st, core, base, choice):
    """One action of the vector pipe: its next instruction, whole."""
    queue = pipe_of(base, rq.VECTOR)
    if st[queue + ms.PIPE_COUNT] == 0 or (choice != ms.CHOICE_ALL and choice != 0):
        return False
    entry = entry_of(st, queue, 0)
    op = st[entry]
    if ops.FLAGS >> op & 1:
        return _flag(st, core, base, queue, entry)
    ub = st[base + ms.UB_BASE]
    if not st[ms.SPARSE] or not memory.leaves_zeros(mem, st, ub, entry, op):
        _, _, target, written = touched.ranges(st, entry, op)
        memory.mark(mem, st, ub + target, written)
        _compute(mem, st, ub, entry, op)
    st[ms.BYTES_BY_PIPE + rq.VECTOR] += touched.elements(st, entry, op)
    _pop(st, queue)
    return True


@jit
def _compute(mem, st, ub, at, op):
    count, target = touched.elements(st, at, op), ub + st[at + ops.FILLED[op, 0]]
    source = ub + st[at + ops.TAKEN[op, 0]]
    if op == rq.OP_V_QUANTIZE:
        _quantize(mem, source, target, count, touched.dtype_of(st, at, op), st[at + ops.QUANTIZE.rule])
    elif op == rq.OP_V_AXPY:
        numerics.axpy(mem, source, target, st[at + ops.AXPY.weight], count, touched.dtype_of(st, at, op))
    elif op == rq.OP_V_ADD:
        numerics.accumulate(mem, source, target, count, touched.dtype_of(st, at, op))
    elif op == rq.OP_V_NARROW:
        numerics.narrow_row(mem, source, target, count, touched.dtype_of(st, at, op))
    elif op == rq.OP_V_WIDEN:
        numerics.widen_row(mem, source, target, count, touched.dtype_of(st, at, op))
    elif op == rq.OP_V_DEQUANTIZE:
        _dequantize(mem, source, target, count, ub + st[at + ops.DEQUANTIZE.scale_ub], st[at + ops.DEQUANTIZE.rule])
    elif op == rq.OP_V_SCALE:
        numerics.scale_row(mem, target, count, st[at + ops.SCALE.factor])
    elif op == rq.OP_V_COPY and st[at + ops.COPY.function]:
        maps.apply(mem, source, target, count, st[at + ops.COPY.function], st[at + ops.COPY.other], ub)
    elif op == rq.OP_V_COPY:
        copy_bytes(mem, target, source, count)
    elif op == rq.OP_V_FILL:
        numerics.fill(mem, target, count, st[at + ops.FILL.byte] & 0xFF)
    elif op == rq.OP_V_COUNT:
        memory.count(mem, st, source, target, count, st[at + ops.COUNT.low], st[at + ops.COUNT.high])


@jit
def _quantize(mem, source, target, count, dtype, rule):
    if touched.is_fp8(rule):
        numerics.quantize_fp8(mem, source, target, count, dtype, rule)
    else:
        numerics.quantize_int8(mem, source, target, count, dtype, rule)


@jit
def _dequantize(mem, source, target, count, scales, rule):
    if touched.is_fp8(rule):
        numerics.dequantize_fp8(mem, source, target, count, scales)
    else:
        numerics.dequantize(mem, source, target, count, scales)


@jit
def step_mtu_out(mem, st, core, base, choice):
    """One action of mtu-out: a granule of its next instruction, or with `CHOICE_ALL` all that there is room for."""
    queue = pipe_of(base, rq.MTU_OUT)
    if st[queue + ms.PIPE_COUNT] == 0 or (choice != ms.CHOICE_ALL and choice != 0):
        return False
    entry = entry_of(st, queue, 0)
    op = st[entry]
    if ops.FLAGS >> op & 1:
        return _flag(st, core, base, queue, entry)
    if ops.FENCES >> op & 1:
        flight.pass_fence(st, core, base)
        _pop(st, queue)
        return True
    if not flight.room_for_writes(st, base, 1):
        return False
    if (ops.ADDS & ~ops.COPIES) >> op & 1:
        target, value = st[entry + ops.ADD.target], st[entry + ops.ADD.value]
        flight.write_word(mem, st, core, base, ms.KIND_ADD, target, 8, value, st[entry + ms.ENTRY_SITE])
        st[ms.BYTES_BY_PIPE + rq.MTU_OUT] += 8
        _pop(st, queue)
    else:
        _step_out(mem, st, core, base, queue, entry, choice)
    return True


@jit
def signals_next(st, entry):
    """Return whether a `put_signal`'s data are on their way and its signal is not, which is an action of its own."""
    return st[entry] == rq.OP_PUT_SIGNAL and st[entry + ms.ENTRY_PROGRESS] == st[entry + ops.PUT_SIGNAL.nbytes]


@jit
def _step_out(mem, st, core, base, queue, entry, choice):
    """Write a unit of an mtu-out or a put or all of it, or if that is done, signal."""
    ring, op = flight.block_of_die(st, st[base + ms.DIE]), st[entry]
    _, nbytes = touched.written_by(st, entry, op)
    before, signals = st[ring + ms.FLIGHT_COUNT], signals_next(st, entry)
    if signals:
        kind = ms.KIND_ADD if st[entry + ops.PUT_SIGNAL.how] == rq.SIGNAL_ADD else ms.KIND_MTU
        word, value = st[entry + ops.PUT_SIGNAL.signal], st[entry + ops.PUT_SIGNAL.value]
        flight.write_word(mem, st, core, base, kind, word, 8, value, st[entry + ms.ENTRY_SITE])
        st[ms.BYTES_BY_PIPE + rq.MTU_OUT] += 8
    else:
        _write_out(mem, st, core, base, entry, choice)
        st[ms.BYTES_BY_PIPE + rq.MTU_OUT] += nbytes if st[entry + ms.ENTRY_PROGRESS] == nbytes else 0
    if op == rq.OP_PUT_SIGNAL:
        flight.mark_parts(st, base, before, ms.IS_SIGNAL if signals else ms.IS_PAYLOAD)
    if st[entry + ms.ENTRY_PROGRESS] == nbytes and (signals or op != rq.OP_PUT_SIGNAL):
        _pop(st, queue)


@jit
def fence_ahead(st, base):
    """Return whether mtu-out has yet to reach a fence.  If so, no later store may take off."""
    queue = pipe_of(base, rq.MTU_OUT)
    for j in range(st[queue + ms.PIPE_COUNT]):
        if ops.FENCES >> st[entry_of(st, queue, j)] & 1:
            return True
    return False


@jit
def _write_out(mem, st, core, base, entry, choice):
    """Write the next unit, or all that there is room for: of an mtu-out from the data buffer, of a put its words."""
    words, done, site = not ops.COPIES >> st[entry] & 1, st[entry + ms.ENTRY_PROGRESS], st[entry + ms.ENTRY_SITE]
    target, nbytes = touched.written_by(st, entry, st[entry])
    source = 8 * (entry + ops.PUT.word0) if words else st[base + ms.UB_BASE] + st[entry + ops.OUT.ub]
    at_once, atomic = choice == ms.CHOICE_ALL and st[ms.ORDER] == ms.ORDER_SC and not words, 1 << st[ms.ATOMIC_SHIFT]
    kind = ms.KIND_ADD_ROW if ops.ADDS >> st[entry] & 1 else ms.KIND_MTU
    while True:
        size = nbytes - done if at_once else min(atomic - (target + done) % atomic, nbytes - done)
        if words:
            flight.write_unit(mem, st, core, base, ms.KIND_MTU, target + done, source + done, size, site)
        else:
            flight.write_bytes(mem, st, core, base, kind, target + done, source + done, size, site)
        done += size
        if choice != ms.CHOICE_ALL or done == nbytes or not flight.room_for_writes(st, base, 1):
            break
    put(st, entry + ms.ENTRY_PROGRESS, done)


@jit
def free_descriptor(st, base):
    """The DMA descriptor that the core's request would take, -1 if none is free; the one of its event ID comes first.

    So a core that waits for an event before it uses it again also knows what the descriptor did before.
    """
    for i in range(ms.N_DMA_SLOTS):
        k = (st[base + REQUEST + ops.DMA.event] + i) % ms.N_DMA_SLOTS
        if st[base + ms.DMA_SLOTS + k * ms.ENTRY_WORDS] == 0:
            return k
    return -1


@jit
def ring_dma(st, base):
    """Hand the core's request to a free DMA descriptor; False if there is none."""
    k = free_descriptor(st, base)
    if k < 0:
        return False
    slot = base + ms.DMA_SLOTS + k * ms.ENTRY_WORDS
    for i in range(REQUEST_WORDS):
        put(st, slot + i, st[base + REQUEST + i])
    return True


@jit
def step_dma(mem, st, core, base, choice):
    """One action of a core's DMA: a sub-transfer of the chosen descriptor, or all that there is room for of the first.

    In place of a sub-transfer's number `MAX_SUBTRANSFERS` says all of the chosen descriptor.
    """
    for k in range(ms.N_DMA_SLOTS):
        slot = base + ms.DMA_SLOTS + k * ms.ENTRY_WORDS
        chosen = choice == ms.CHOICE_ALL or k == (choice & 15)
        if chosen and st[slot] != 0 and st[slot + ms.ENTRY_PROGRESS] != flight.DMA_READ_DONE:
            if _is_lost(st, slot):
                return _reads_lost(st, core, base, slot)
            if _copy_subtransfer(mem, st, core, base, slot, k, choice):
                flight.finish_dma(st, core, base, slot)
                return True
    return False


@jit
def _copy_subtransfer(mem, st, core, base, slot, k, choice):
    """Read and write a sub-transfer of DMA, cut at the granules of the source and of the target."""
    source, target, nbytes = st[slot + ops.DMA.source], st[slot + ops.DMA.target], st[slot + ops.DMA.nbytes]
    mask = st[slot + ms.ENTRY_PROGRESS]
    subtransfers = subtransfers_of(st, slot)
    whole = choice == ms.CHOICE_ALL or choice >> 4 == ms.MAX_SUBTRANSFERS
    if whole and st[ms.ORDER] == ms.ORDER_SC and mask == 0:
        flight.write_bytes(mem, st, core, base, ms.KIND_DMA + k, target, source, nbytes, st[slot + ms.ENTRY_SITE])
        put(st, slot + ms.ENTRY_PROGRESS, flight.DMA_READ_DONE)
        return True
    moved = False
    first, last = (0, subtransfers) if whole else (choice >> 4, (choice >> 4) + 1)
    for g in range(first, min(last, subtransfers)):
        if mask >> g & 1 or not _may_copy(st, base, slot, g):
            continue
        moved = True
        if _copy_granules(mem, st, core, base, slot, k, g):
            mask |= 1 << g
    put(st, slot + ms.ENTRY_PROGRESS, flight.DMA_READ_DONE if mask == (1 << subtransfers) - 1 else mask)
    return moved


@jit
def _may_copy(st, base, slot, g):
    """Return whether there is room for a granule, and no other sub-transfer is half copied."""
    cut = st[slot + ms.ENTRY_CUT]
    return (cut == 0 or cut >> 32 == g + 1) and flight.room_for_writes(st, base, 1)


@jit
def _copy_granules(mem, st, core, base, slot, k, g):
    """Copy a sub-transfer from where it was cut off, until it is done (True) or there is no more room."""
    source, target, site = st[slot + ops.DMA.source], st[slot + ops.DMA.target], st[slot + ms.ENTRY_SITE]
    atomic = 1 << st[ms.ATOMIC_SHIFT]
    start, end = subtransfer(st, source, target, st[slot + ops.DMA.nbytes], g)
    start += st[slot + ms.ENTRY_CUT] & 0xFFFFFFFF
    begin = start
    while start < end and flight.room_for_writes(st, base, 1):
        size = min(atomic - (source + start) % atomic, atomic - (target + start) % atomic, end - start)
        flight.write_bytes(mem, st, core, base, ms.KIND_DMA + k, target + start, source + start, size, site)
        if st[ms.ORDER] != ms.ORDER_SC:
            put(st, slot + ms.ENTRY_IN_FLIGHT, st[slot + ms.ENTRY_IN_FLIGHT] + 1)
        start += size
    done = start == end
    put(st, slot + ms.ENTRY_CUT, 0 if done else (g + 1 << 32) | (st[slot + ms.ENTRY_CUT] & 0xFFFFFFFF) + start - begin)
    return done
