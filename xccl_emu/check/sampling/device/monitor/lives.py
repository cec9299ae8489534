"""The kernels of a die begin again: what its cores know then, and what nothing is kept of any more."""

from xccl_emu.check.device import fault_actions
from xccl_emu.check.sampling.device.monitor import clocks as monitor_clocks
from xccl_emu.check.sampling.device.monitor import layout as ml
from xccl_emu.check.sampling.device.monitor.shadow import save, shadow_of
from xccl_emu.check.sampling.device.monitor.step import poll_begins
from xccl_emu.lang import requests as rq
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.flight import block_of_core
from xccl_emu.machine.device.words import jit


@jit
def revive(space, code):
    """Take the action under watch; False, and nothing changed, if it is not enabled or an array is too small.

    Each core of the die knows all that any of them has done, and that what could become visible of it is visible: what
    was in flight never will be, and else their lives would race with each other.
    """
    st, m, die = space.st, space.m, fault_actions.die_of(code)
    if die >= st[ms.N_HOMES] or not fault_actions.runs(st, die):
        return False
    _of_buffers(space, die, True)
    if m[ml.STOP] or not fault_actions.act_fault(space.mem, st, code):
        return False
    _of_buffers(space, die, False)
    _drop_flights(m, die)
    known = m[ml.SCRATCH_ROW]
    monitor_clocks.clear_row(m, space.clocks, known)
    for i in range(st[ms.N_ACTIVE]):
        if m[m[ml.CORE_DIE] + i] == die:
            _learn(st, m, space.clocks, i, known)
    for i in range(st[ms.N_ACTIVE]):
        if m[m[ml.CORE_DIE] + i] == die:
            _begin(space, i, known)
    for i in range(st[ms.N_ACTIVE]):
        if m[m[ml.CORE_DIE] + i] == die:
            poll_begins(space, i, block_of_core(st, m[m[ml.CORE_NUMBER] + i]))
    return True


@jit
def _of_buffers(space, die, before):
    """Keep what the data buffers of a die held, ``before``, or note that nobody has written there since the start."""
    st, m = space.st, space.m
    for i in range(st[ms.N_ACTIVE]):
        start = st[block_of_core(st, m[m[ml.CORE_NUMBER] + i]) + ms.UB_BASE]
        if m[m[ml.CORE_DIE] + i] != die:
            continue
        if before:
            save(space, start, st[ms.UB_BYTES])
            continue
        for granule in range(start // ms.GRANULE_BYTES, (start + st[ms.UB_BYTES]) // ms.GRANULE_BYTES):
            s = shadow_of(space, granule)
            filled = space.shadow[s + ml.S_FIXED] & ml.ALL_BYTES
            space.shadow[s + ml.S_WRITTEN] = space.shadow[s + ml.S_WRITTEN] & ~ml.ALL_BYTES | filled


@jit
def _drop_flights(m, die):
    """Free the rows of all writes in flight of a die."""
    stack = m[ml.FREE_ROWS] + m[m[ml.DIE_INDEX] + die] * (m[ml.CAPACITY] + 1)
    m[stack] = m[ml.CAPACITY]
    for k in range(m[ml.CAPACITY]):
        m[stack + 1 + k] = k


@jit
def _learn(st, m, clocks, i, row):
    """Extend a row by all that a core knows and has done, and by what has become visible of that, or never will."""
    for pipe in range(rq.SCALAR, rq.MTU_OUT + 1):
        monitor_clocks.join_row(m, clocks, row, monitor_clocks.pipe_row(m, i, pipe))
    for event in range(m[ml.N_DMA]):
        clocks[row + monitor_clocks.engine_word(m, i, ml.ENGINE_DMA + event)] = m[monitor_clocks.dma_epoch(m, i, event)]
    for die in range(m[ml.TARGETS]):
        monitor_clocks.see_writes(m, clocks, row, i, die, row)
        if st[ms.REQUEST_ORDERS] == ms.ASKS_SOME_STRONG:
            for engine in range(rq.SCALAR, rq.MTU_OUT + 1, rq.MTU_OUT - rq.SCALAR):
                word = row + monitor_clocks.engine_word(m, i, engine)
                clocks[row + monitor_clocks.strong_word(m, i, engine, die)] = clocks[word]
    sent = m[m[ml.SIGNALLED] + i]
    for number in range(max(1, sent + 1 - m[ml.SIGNALS]), sent + 1 if m[ml.SIGNALS] else 0):
        clocks[row + monitor_clocks.signal_word(m, i, number)] = number


@jit
def _begin(space, i, known):
    """A core begins again, with what a row knows, in a new epoch of each of its engines."""
    st, m, clocks = space.st, space.m, space.clocks
    for pipe in range(rq.SCALAR, rq.MTU_OUT + 1):
        row = monitor_clocks.pipe_row(m, i, pipe)
        monitor_clocks.copy_row(m, clocks, row, known)
        clocks[row + monitor_clocks.engine_word(m, i, pipe)] += 1
    monitor_clocks.forget_seen(m, clocks, i)
    if m[ml.FENCES]:
        monitor_clocks.copy_row(m, clocks, monitor_clocks.fence_row(m, i), known)
    if st[ms.ORDER] == ms.ORDER_FIFO:
        monitor_clocks.copy_row(m, clocks, monitor_clocks.ahead_row(m, i), known)
    for k in range(ms.N_DMA_SLOTS):
        m[monitor_clocks.dma_ring(m, i, k)] = 0
    for k in range(i * st[ms.CACHE_LINES], (i + 1) * st[ms.CACHE_LINES]):
        m[m[ml.LINES] + 2 * k] = 0
    for k in range(m[ml.SIGNALS]):
        m[m[ml.CHAINED] + i * m[ml.SIGNALS] + k] = 0
    group = st[block_of_core(st, m[m[ml.CORE_NUMBER] + i]) + ms.GROUP]
    for which in range(3):
        monitor_clocks.clear_row(m, clocks, monitor_clocks.group_row(m, group, which))
