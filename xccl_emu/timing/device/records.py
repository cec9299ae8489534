"""The log of timed actions, kept where a trace or a critical path is asked for; or of chosen sites alone.

What functions of a timed run hand to each other is here too.  Its arrays travel as a ``space``: memory, state, times,
what made these, and the log.
"""

from typing import NamedTuple

from xccl_emu.lang.abi import REQUEST_WORDS
from xccl_emu.machine.device.words import jit
from xccl_emu.timing.device import layout as tl


class Core(NamedTuple):
    """A core: its number, its first word of state, and its first word of times."""

    number: int
    base: int
    row: int


class Request(NamedTuple):
    """What a core asks for, or what of that is queued, as it was before it is done."""

    op: int
    words: tuple[int, int, int, int, int, int, int]
    """Operation and operands, by their places."""
    site: int


class Moved(NamedTuple):
    """Bytes that an action moves: to or from which die, how long they waited on the way, when they are there, where
    they were read, and where written (or -1)."""

    nbytes: int
    peer: int
    queued: int
    visible: int
    read: int
    written: int


@jit
def request_at(st, at):
    """The request at a place: of a scalar unit, of a queue, or of a DMA descriptor."""
    words = (st[at], st[at + 1], st[at + 2], st[at + 3], st[at + 4], st[at + 5], st[at + 6])
    return Request(st[at], words, st[at + REQUEST_WORDS - 1])


@jit
def record(space, core, engine, asked, since, end, moved):
    """Write an action down; ``since`` is the index of the time that let it begin; returns 1 + its number, or 0.

    Left out is what neither is done by a core of a die that the log is kept for nor moves bytes from or to one; and
    where no causes are kept, what is at no chosen site.
    """
    _, _, tm, who, log = space
    if log.size == 0:
        return 0
    if not logged(tm, tm[core.row + tl.CORE_DIE]) and not (moved.nbytes > 0 and logged(tm, moved.peer)):
        return 0
    if who.size == 0 and not tm[tm[core.row + tl.CORE_SITES] + asked.site] & tl.CHOSEN:
        return 0
    number = tm[tl.N_RECORDS]
    at = number * tl.RECORD_WORDS
    log[at + tl.RECORD_CORE], log[at + tl.RECORD_ENGINE] = core.number, engine
    log[at + tl.RECORD_OP], log[at + tl.RECORD_SITE] = asked.op, asked.site
    log[at + tl.RECORD_START], log[at + tl.RECORD_END] = tm[since], end
    log[at + tl.RECORD_NBYTES], log[at + tl.RECORD_PEER] = moved.nbytes, moved.peer
    log[at + tl.RECORD_CAUSE] = cause_of(who, since) - 1
    log[at + tl.RECORD_QUEUED], log[at + tl.RECORD_VISIBLE] = moved.queued, moved.visible
    log[at + tl.RECORD_READ], log[at + tl.RECORD_WRITTEN] = moved.read, moved.written
    tm[tl.N_RECORDS] = number + 1
    return number + 1


@jit
def record_still(space, core, engine, asked, since, end):
    """`record` of what moves no bytes."""
    return record(space, core, engine, asked, since, end, Moved(0, -1, 0, end, -1, -1))


@jit
def logged(tm, die):
    """Return whether the log is kept for a die."""
    return tm[tm[tl.DIE_BASE] + die * tl.DIE_WORDS + tl.LOGGED]


@jit
def cause_of(who, at):
    """The record that made a time, or 0."""
    return who[at] if who.size else 0


@jit
def set_time(tm, who, at, time, number):
    """A time, and the record that made it."""
    tm[at] = time
    if who.size:
        who[at] = number


@jit
def set_later(tm, who, at, time, number):
    """`set_time`, unless the entry is as late."""
    if time > tm[at]:
        set_time(tm, who, at, time, number)


@jit
def later(tm, one, other):
    """Index of the later of two times."""
    return other if tm[other] > tm[one] else one
