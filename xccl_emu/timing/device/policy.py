"""Virtual time: the core whose next action begins first goes on, until it would be ahead of the others."""

from xccl_emu.lang.abi import REGISTERS
from xccl_emu.lang.requests import DMA, SCALAR
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.flight import block_of_core
from xccl_emu.machine.device.words import jit, prefetch
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.device.engines import step_dma_timed, step_pipe_timed
from xccl_emu.timing.device.granules import room_for_granules
from xccl_emu.timing.device.heap import come_back, pop
from xccl_emu.timing.device.records import Core
from xccl_emu.timing.device.scalar import run_on_buffer_timed, step_scalar_timed

QUANTUM = 512
"""Actions of one core before the others have a look: a scalar unit alone could go on for long."""

_LINE = 8  # words of a line of the cache


@jit
def virtual_time(mem, st, tm, who, log, budget):
    """Take actions until the run is over, ``budget`` of them are taken, or a table is full; returns how it ended."""
    space = mem, st, tm, who, log
    taken = 0
    woken = False
    while True:
        if st[ms.ERROR] != 0:
            return ms.ENDED_ERROR
        if st[ms.N_LIVE] == 0:
            return ms.ENDED_DONE
        if tm[tl.N_RECORDS] + QUANTUM + ms.ACTORS_PER_CORE > tm[tl.RECORD_CAPACITY]:
            return ms.ENDED_LOG_FULL
        if not room_for_granules(tm):
            return tl.ENDED_GRANULES_FULL
        if taken >= budget:
            return ms.ENDED_PAUSED
        if tm[tl.HEAP_COUNT] == 0:
            if woken:
                return ms.ENDED_DEADLOCK
            _wake_all(st, tm)
            woken = True
            continue
        tm[tl.NOW] = tm[tm[tl.HEAP_BASE]]
        core = pop(tm)
        if tm[tl.HEAP_COUNT]:
            _bring(st, tm, tm[tm[tl.HEAP_BASE] + 1])
        moved = _turn(space, core)
        taken += moved
        woken = woken and moved == 0


@jit
def _bring(st, tm, core):
    """Have the words that the core that is probably next works on brought into the cache meanwhile."""
    base, row = block_of_core(st, core), tm[tl.CORE_BASE] + core * tl.CORE_WORDS
    for line in range(base, base + ms.PIPES, 2 * _LINE):
        prefetch(st, line)
    for queue in range(base + ms.PIPES, base + ms.DMA_SLOTS, ms.PIPE_WORDS):
        prefetch(st, queue)
    for line in range(base + ms.WINDOWS, base + ms.WINDOWS + 2 * _LINE, _LINE):
        prefetch(st, line)
    for line in range(base + REGISTERS, base + REGISTERS + 8 * _LINE, _LINE):
        prefetch(st, line)
    for line in range(row, row + tl.RUNG, _LINE):
        prefetch(tm, line)


@jit
def _wake_all(st, tm):
    """Have every core look again: a word that is polled may have been written as part of a larger transfer."""
    for n in range(st[ms.N_ACTIVE]):
        core = st[st[ms.ACTIVE_BASE] + n]
        row = tm[tl.CORE_BASE] + core * tl.CORE_WORDS
        if st[block_of_core(st, core) + ms.STATUS] == ms.STATUS_RUNNING:
            come_back(tm, row, tm[row + tl.SCALAR_AT], core)


@jit
def _turn(space, number):
    """Let a core do what it can without getting ahead; have it come back if there is more."""
    _, st, tm, _, _ = space
    core = Core(number, block_of_core(st, number), tm[tl.CORE_BASE] + number * tl.CORE_WORDS)
    tm[core.row + tl.HEAP_AT] = 0
    moved, before, again = 0, -1, 0
    while moved != before and moved < QUANTUM:
        before = moved
        again = 0
        for engine in range(ms.ACTORS_PER_CORE):
            while moved < QUANTUM and st[ms.ERROR] == 0:
                did = _step(space, core, engine, QUANTUM - moved)
                if did <= 0:
                    again = max(again, did) if again and did else again + did
                    break
                moved += did
    if moved >= QUANTUM:
        again = -max(1, tm[tl.NOW])
    if again:
        come_back(tm, core.row, -again, number)
    return moved


@jit
def _step(space, core, engine, most):
    """Return how many actions of an engine were taken; 0 if it has to wait, minus the time to come back at."""
    if engine == SCALAR:
        taken = run_on_buffer_timed(space, core, most)
        return taken if taken else step_scalar_timed(space, core)
    return step_dma_timed(space, core) if engine == DMA else step_pipe_timed(space, core, engine)
