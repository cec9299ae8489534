"""Virtual time: the core whose next action begins first goes on, until it would be ahead of the others."""

from xccl_emu.lang.abi import REGISTERS
from xccl_emu.lang.requests import DMA, SCALAR
from xccl_emu.machine.device.flight import block_of_core
from xccl_emu.machine.device.layout import (
    ACTIVE_BASE,
    ACTORS_PER_CORE,
    DMA_SLOTS,
    ENDED_DEADLOCK,
    ENDED_DONE,
    ENDED_ERROR,
    ENDED_LOG_FULL,
    ENDED_PAUSED,
    ERROR,
    N_ACTIVE,
    N_LIVE,
    PIPE_WORDS,
    PIPES,
    STATUS,
    STATUS_RUNNING,
    WINDOWS,
)
from xccl_emu.machine.device.words import jit, prefetch
from xccl_emu.timing.device.engines import step_dma_timed, step_pipe_timed
from xccl_emu.timing.device.granules import room_for_granules
from xccl_emu.timing.device.heap import come_back, pop
from xccl_emu.timing.device.layout import (
    CORE_BASE,
    CORE_WORDS,
    ENDED_GRANULES_FULL,
    HEAP_AT,
    HEAP_BASE,
    HEAP_COUNT,
    N_RECORDS,
    NOW,
    RECORD_CAPACITY,
    RUNG,
    SCALAR_AT,
)
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
        if st[ERROR] != 0:
            return ENDED_ERROR
        if st[N_LIVE] == 0:
            return ENDED_DONE
        if tm[N_RECORDS] + QUANTUM + ACTORS_PER_CORE > tm[RECORD_CAPACITY]:
            return ENDED_LOG_FULL
        if not room_for_granules(tm):
            return ENDED_GRANULES_FULL
        if taken >= budget:
            return ENDED_PAUSED
        if tm[HEAP_COUNT] == 0:
            if woken:
                return ENDED_DEADLOCK
            _wake_all(st, tm)
            woken = True
            continue
        tm[NOW] = tm[tm[HEAP_BASE]]
        core = pop(tm)
        if tm[HEAP_COUNT]:
            _bring(st, tm, tm[tm[HEAP_BASE] + 1])
        moved = _turn(space, core)
        taken += moved
        woken = woken and moved == 0


@jit
def _bring(st, tm, core):
    """Have the words that the core that is probably next works on brought into the cache meanwhile."""
    base, row = block_of_core(st, core), tm[CORE_BASE] + core * CORE_WORDS
    for line in range(base, base + PIPES, 2 * _LINE):
        prefetch(st, line)
    for queue in range(base + PIPES, base + DMA_SLOTS, PIPE_WORDS):
        prefetch(st, queue)
    for line in range(base + WINDOWS, base + WINDOWS + 2 * _LINE, _LINE):
        prefetch(st, line)
    for line in range(base + REGISTERS, base + REGISTERS + 8 * _LINE, _LINE):
        prefetch(st, line)
    for line in range(row, row + RUNG, _LINE):
        prefetch(tm, line)


@jit
def _wake_all(st, tm):
    """Have every core look again: a word that is polled may have been written as part of a larger transfer."""
    for n in range(st[N_ACTIVE]):
        core = st[st[ACTIVE_BASE] + n]
        row = tm[CORE_BASE] + core * CORE_WORDS
        if st[block_of_core(st, core) + STATUS] == STATUS_RUNNING:
            come_back(tm, row, tm[row + SCALAR_AT], core)


@jit
def _turn(space, number):
    """Let a core do what it can without getting ahead; have it come back if there is more."""
    _, st, tm, _, _ = space
    core = Core(number, block_of_core(st, number), tm[CORE_BASE] + number * CORE_WORDS)
    tm[core.row + HEAP_AT] = 0
    moved, before, again = 0, -1, 0
    while moved != before and moved < QUANTUM:
        before = moved
        again = 0
        for engine in range(ACTORS_PER_CORE):
            while moved < QUANTUM and st[ERROR] == 0:
                did = _step(space, core, engine, QUANTUM - moved)
                if did <= 0:
                    again = max(again, did) if again and did else again + did
                    break
                moved += did
    if moved >= QUANTUM:
        again = -max(1, tm[NOW])
    if again:
        come_back(tm, core.row, -again, number)
    return moved


@jit
def _step(space, core, engine, most):
    """How many actions of an engine, up to so many, were taken; 0 if it has to wait, minus the time to come back at."""
    if engine == SCALAR:
        taken = run_on_buffer_timed(space, core, most)
        return taken if taken else step_scalar_timed(space, core)
    return step_dma_timed(space, core) if engine == DMA else step_pipe_timed(space, core, engine)
