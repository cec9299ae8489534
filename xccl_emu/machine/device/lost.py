"""Bytes that are lost from some moment on, as a check has it: nobody can say what a read of them brings.

So a plain read of them ends the run.  A tentative one is as one that a write has met: what it brings may be dropped,
and never validated.  What may be lost by name is in the header, with a word that a loss sets to 1 at once.
"""

from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.words import jit

OF_DIE = 4
"""Numbers below it are areas: all of a die's memory, its app data, metadata and managed data; then what has a name."""


@jit
def is_lost(st, address, nbytes):
    """Return whether one of these bytes is lost."""
    return st[ms.LOST_END] != 0 and address < st[ms.LOST_END] and st[ms.LOST_START] < address + nbytes


@jit
def range_of(st, die, number):
    """Return first byte and last+1 of what may be lost, and the word that reports it, or -1."""
    if number >= OF_DIE:
        row = ms.LOSSES + (number - OF_DIE) * ms.LOSS_WORDS
        known = number < OF_DIE + ms.LOSSES_MOST
        return (st[row], st[row + 1], st[row + 2]) if known else (0, 0, -1)
    first, size = die << st[ms.DIE_SHIFT], 1 << st[ms.DIE_SHIFT]
    start = st[ms.SIGNALS_START] if number == 2 else st[ms.SIGNALS_END] if number == 3 else 0
    end = st[ms.SIGNALS_START] if number == 1 else st[ms.SIGNALS_END] if number == 2 else size
    return first + start, first + end, -1
