"""The log of timed actions, kept where a trace or a critical path is asked for."""

from xccl_emu.machine.words import jit
from xccl_emu.timing.device.layout import (
    N_RECORDS,
    RECORD_CAUSE,
    RECORD_CORE,
    RECORD_END,
    RECORD_ENGINE,
    RECORD_NBYTES,
    RECORD_OP,
    RECORD_PEER,
    RECORD_QUEUED,
    RECORD_SITE,
    RECORD_START,
    RECORD_VISIBLE,
    RECORD_WIRE,
    RECORD_WORDS,
)


@jit
def record(tm, who, log, core, engine, op, site, since, end, nbytes, peer, queued, visible, wire):
    """Write an action down; ``since`` is the index of the time that let it begin; returns 1 + its number, or 0."""
    if log.size == 0:
        return 0
    number = tm[N_RECORDS]
    at = number * RECORD_WORDS
    log[at + RECORD_CORE], log[at + RECORD_ENGINE], log[at + RECORD_OP], log[at + RECORD_SITE] = core, engine, op, site
    log[at + RECORD_START], log[at + RECORD_END] = tm[since], end
    log[at + RECORD_NBYTES], log[at + RECORD_PEER], log[at + RECORD_CAUSE] = nbytes, peer, who[since] - 1
    log[at + RECORD_QUEUED], log[at + RECORD_VISIBLE], log[at + RECORD_WIRE] = queued, visible, wire
    tm[N_RECORDS] = number + 1
    return number + 1


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
