"""Cores by the time at which they go on: a heap of (time, core) in the array of times.

Each entry has four below it, which stand in one line of the cache (`array.Times` places them so): with ten thousands of
cores it is the way down that takes time.
"""

from xccl_emu.machine.device.words import jit
from xccl_emu.timing.device import layout as tl


@jit
def push(tm, time, core):
    """Add a core."""
    base, i = tm[tl.HEAP_BASE], tm[tl.HEAP_COUNT]
    tm[tl.HEAP_COUNT] = i + 1
    while i > 0:
        parent = (i - 1) >> 2
        if not _before(tm, time, core, base + 2 * parent):
            break
        tm[base + 2 * i], tm[base + 2 * i + 1] = tm[base + 2 * parent], tm[base + 2 * parent + 1]
        i = parent
    tm[base + 2 * i], tm[base + 2 * i + 1] = time, core


@jit
def pop(tm):
    """Take the earliest core off; of several, that with the lowest number, so that a run can be repeated."""
    base, n = tm[tl.HEAP_BASE], tm[tl.HEAP_COUNT] - 1
    core = tm[base + 1]
    tm[tl.HEAP_COUNT] = n
    time, last = tm[base + 2 * n], tm[base + 2 * n + 1]
    i = 0
    while True:
        child = 4 * i + 1
        if child >= n:
            break
        for other in range(child + 1, min(child + 4, n)):
            if _before(tm, tm[base + 2 * other], tm[base + 2 * other + 1], base + 2 * child):
                child = other
        if _before(tm, time, last, base + 2 * child):
            break
        tm[base + 2 * i], tm[base + 2 * i + 1] = tm[base + 2 * child], tm[base + 2 * child + 1]
        i = child
    tm[base + 2 * i], tm[base + 2 * i + 1] = time, last
    return core


@jit
def come_back(tm, row, time, core):
    """Have a core go on at ``time``, unless it is to go on earlier anyway; it may be in the heap more than once."""
    if tm[row + tl.HEAP_AT] and (tm[row + tl.HEAP_AT] <= time + 1 or tm[tl.HEAP_COUNT] >= tm[tl.HEAP_SLOTS]):
        return
    tm[row + tl.HEAP_AT] = time + 1
    push(tm, time, core)


@jit
def _before(tm, time, core, other):
    return time < tm[other] or (time == tm[other] and core < tm[other + 1])
