"""Words that are polled: when a write of one became visible, and which cores wait for it (a hash table by granule)."""

from xccl_emu.machine.device.words import jit
from xccl_emu.timing.device.heap import come_back
from xccl_emu.timing.device.layout import (
    CORE_BASE,
    CORE_WORDS,
    GRANULE_AT,
    GRANULE_BASE,
    GRANULE_KEY,
    GRANULE_SLOTS,
    GRANULE_WAITER,
    GRANULE_WORDS,
    GRANULES_A_DIE,
    GRANULES_USED,
    NEXT_WAITER,
    SCALAR_AT,
    WAITS_AT,
)

_GRANULE_SHIFT = 5
_SPREAD = 7919  # so that equal fields of different dies have different places


@jit
def find_granule(tm, address):
    """Index of a granule's entry, made if it is new; the table is never full (`room_for_granules`)."""
    key = (address >> _GRANULE_SHIFT) + 1
    slots = tm[GRANULE_SLOTS]
    slot = (key + key // tm[GRANULES_A_DIE] * _SPREAD) & (slots - 1)
    while True:
        entry = tm[GRANULE_BASE] + slot * GRANULE_WORDS
        if tm[entry + GRANULE_KEY] == key:
            return entry
        if tm[entry + GRANULE_KEY] == 0:
            tm[entry + GRANULE_KEY] = key
            tm[GRANULES_USED] += 1
            return entry
        slot = (slot + 1) & (slots - 1)


@jit
def room_for_granules(tm):
    """Is the table at most half full?"""
    return 2 * tm[GRANULES_USED] < tm[GRANULE_SLOTS]


@jit
def wait_at(tm, slot, core):
    """Put a core at the head of the list that begins at ``slot``, if it is in none."""
    row = tm[CORE_BASE] + core * CORE_WORDS
    if tm[row + WAITS_AT]:
        return
    tm[row + WAITS_AT] = slot
    tm[row + NEXT_WAITER] = tm[slot]
    tm[slot] = core + 1


@jit
def leave(tm, core):
    """Take a core off the list that it is in: it has got what it waits for without being woken."""
    row = tm[CORE_BASE] + core * CORE_WORDS
    link = tm[row + WAITS_AT]
    while tm[link] != core + 1:
        link = tm[CORE_BASE] + (tm[link] - 1) * CORE_WORDS + NEXT_WAITER
    tm[link] = tm[row + NEXT_WAITER]
    tm[row + NEXT_WAITER] = 0
    tm[row + WAITS_AT] = 0


@jit
def wake(tm, slot, time):
    """Have all cores of the list that begins at ``slot`` look again, at ``time`` or when they can."""
    core = tm[slot] - 1
    tm[slot] = 0
    while core >= 0:
        row = tm[CORE_BASE] + core * CORE_WORDS
        following = tm[row + NEXT_WAITER] - 1
        tm[row + NEXT_WAITER] = 0
        tm[row + WAITS_AT] = 0
        come_back(tm, row, max(time, tm[row + SCALAR_AT]), core)
        core = following


@jit
def became_visible(tm, who, address, time, record):
    """A word was written by itself, visible from ``time`` on."""
    entry = find_granule(tm, address)
    tm[entry + GRANULE_AT] = max(time, tm[entry + GRANULE_AT])
    if who.size:
        who[entry + GRANULE_AT] = record
    if tm[entry + GRANULE_WAITER]:
        wake(tm, entry + GRANULE_WAITER, time)
