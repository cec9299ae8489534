"""The log of timed actions, kept where a trace or a critical path is asked for; or of those of chosen sites alone."""

from xccl_emu.machine.device.words import jit
from xccl_emu.timing.device.layout import (
    CHOSEN,
    CORE_BASE,
    CORE_DIE,
    CORE_SITES,
    CORE_WORDS,
    DIE_BASE,
    DIE_WORDS,
    LOGGED,
    N_RECORDS,
    RECORD_CAUSE,
    RECORD_CORE,
    RECORD_END,
    RECORD_ENGINE,
    RECORD_NBYTES,
    RECORD_OP,
    RECORD_PEER,
    RECORD_QUEUED,
    RECORD_READ,
    RECORD_SITE,
    RECORD_START,
    RECORD_VISIBLE,
    RECORD_WORDS,
    RECORD_WRITTEN,
)


@jit
def record(tm, who, log, core, engine, op, site, since, end, nbytes, peer, queued, visible, read, written):
    """Write an action down; ``since`` is the index of the time that let it begin; returns 1 + its number, or 0.

    Left out is what neither is done by a core of a die that the log is kept for nor moves bytes from or to one; and
    where no causes are kept, what is at no chosen site.
    """
    if log.size == 0:
        return 0
    row = tm[CORE_BASE] + core * CORE_WORDS
    if not logged(tm, tm[row + CORE_DIE]) and not (nbytes > 0 and logged(tm, peer)):
        return 0
    if who.size == 0 and not tm[tm[row + CORE_SITES] + site] & CHOSEN:
        return 0
    number = tm[N_RECORDS]
    at = number * RECORD_WORDS
    log[at + RECORD_CORE], log[at + RECORD_ENGINE], log[at + RECORD_OP], log[at + RECORD_SITE] = core, engine, op, site
    log[at + RECORD_START], log[at + RECORD_END] = tm[since], end
    log[at + RECORD_NBYTES], log[at + RECORD_PEER] = nbytes, peer
    log[at + RECORD_CAUSE] = who[since] - 1 if who.size else -1
    log[at + RECORD_QUEUED], log[at + RECORD_VISIBLE] = queued, visible
    log[at + RECORD_READ], log[at + RECORD_WRITTEN] = read, written
    tm[N_RECORDS] = number + 1
    return number + 1


@jit
def logged(tm, die):
    """Is the log kept for a die?"""
    return tm[tm[DIE_BASE] + die * DIE_WORDS + LOGGED]


@jit
def set_time(tm, who, at, time, number):
    """A time, and the record that made it."""
    tm[at] = time
    if who.size:
        who[at] = number


@jit
def later(tm, one, other):
    """Index of the later of two times."""
    return other if tm[other] > tm[one] else one
