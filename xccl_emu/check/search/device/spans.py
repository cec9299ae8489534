"""Ranges of bytes and the edges of dies: the only place where a search asks on which die a range lies.

Fences, signals and `fifo` order writes to one die and nothing across dies, but the last byte of a die and the first of
the next have adjacent addresses.  So two ranges become one only where they lie on one die (`adjoin`), and what a write
to a die makes known is asked of whole ranges (`all_on_die_of`), never of their first byte.
"""

from xccl_emu.check.search.device.checker_state import MEMORY_END
from xccl_emu.machine.device.layout import DIE_SHIFT
from xccl_emu.machine.device.words import jit


@jit
def adjoin(st, ck, start, end, other, other_end):
    """May two ranges be kept as one?  They touch, and the range that they make lies on one die or in a data buffer."""
    first, last = min(start, other), max(end, other_end) - 1
    one_home = first >= ck[MEMORY_END] or first >> st[DIE_SHIFT] == last >> st[DIE_SHIFT]
    return one_home and start <= other_end and other <= end


@jit
def all_on_die_of(st, start, end, address):
    """Do all bytes of a range lie on the die of an address?"""
    die = address >> st[DIE_SHIFT]
    return start >> st[DIE_SHIFT] == die and end - 1 >> st[DIE_SHIFT] == die


@jit
def any_on_die_of(st, start, end, address):
    """Do some bytes of a range lie on the die of an address?"""
    die = address >> st[DIE_SHIFT]
    return start >> st[DIE_SHIFT] <= die and die <= end - 1 >> st[DIE_SHIFT]
