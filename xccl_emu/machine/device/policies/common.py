"""What all policies share: taking an action and writing it down."""

from xccl_emu.machine.device.layout import (
    ACTIVE_BASE,
    ACTORS_PER_CORE,
    CHOICE_BITS,
    ENDED_DEADLOCK,
    ENDED_DONE,
    ENDED_ERROR,
    ENDED_LOG_FULL,
    ENDED_PAUSED,
    ERROR,
    LOG_COUNT,
    N_ACTIVE,
    N_ACTIVE_DIES,
    N_CORES,
    N_LIVE,
    ORDER,
    ORDER_SC,
)
from xccl_emu.machine.device.words import jit


@jit
def write_down(st, log, actor, choice):
    """Append an action to the log, if one is kept."""
    if log.size:
        log[st[LOG_COUNT]] = actor << CHOICE_BITS | choice
        st[LOG_COUNT] += 1


@jit
def log_full(st, log, margin):
    """Could the next ``margin`` actions overflow the log?"""
    return log.size > 0 and st[LOG_COUNT] + margin > log.size


@jit
def how_it_stands(st, log, margin, taken, budget, stuck):
    """One of `ENDED_*`, or -1 to go on."""
    if st[ERROR] != 0:
        return ENDED_ERROR
    if st[N_LIVE] == 0:
        return ENDED_DONE
    if stuck:
        return ENDED_DEADLOCK
    if log_full(st, log, margin):
        return ENDED_LOG_FULL
    return ENDED_PAUSED if taken >= budget else -1


@jit
def n_actors(st):
    """Actors that take part in this run; under `sc` the dies have nothing to deliver."""
    return st[N_ACTIVE] * ACTORS_PER_CORE + (st[N_ACTIVE_DIES] if st[ORDER] != ORDER_SC else 0)


@jit
def nth_actor(st, n):
    """The n-th actor that takes part in this run."""
    cores = st[N_ACTIVE] * ACTORS_PER_CORE
    if n < cores:
        return st[st[ACTIVE_BASE] + n // ACTORS_PER_CORE] * ACTORS_PER_CORE + n % ACTORS_PER_CORE
    return st[N_CORES] * ACTORS_PER_CORE + st[st[ACTIVE_BASE] + st[N_ACTIVE] + n - cores]
