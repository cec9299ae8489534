"""What all policies share: taking an action and writing it down."""

from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.words import jit


@jit
def write_down(st, log, actor, choice):
    """Append an action to the log, if one is kept."""
    if log.size:
        log[st[ms.LOG_COUNT]] = actor << ms.CHOICE_BITS | choice
        st[ms.LOG_COUNT] += 1


@jit
def log_full(st, log, margin):
    """Could the next ``margin`` actions overflow the log?"""
    return log.size > 0 and st[ms.LOG_COUNT] + margin > log.size


@jit
def how_it_stands(st, log, margin, taken, budget, stuck):
    """One of `ENDED_*`, or -1 to go on."""
    if st[ms.ERROR] != 0:
        return ms.ENDED_ERROR
    if st[ms.N_LIVE] == 0:
        return ms.ENDED_DONE
    if stuck:
        return ms.ENDED_DEADLOCK
    if log_full(st, log, margin):
        return ms.ENDED_LOG_FULL
    return ms.ENDED_PAUSED if taken >= budget else -1


@jit
def n_actors(st):
    """Actors that take part in this run; under `sc` the dies have nothing to deliver."""
    return st[ms.N_ACTIVE] * ms.ACTORS_PER_CORE + (st[ms.N_ACTIVE_DIES] if st[ms.ORDER] != ms.ORDER_SC else 0)


@jit
def nth_actor(st, n):
    """The n-th actor that takes part in this run."""
    cores = st[ms.N_ACTIVE] * ms.ACTORS_PER_CORE
    if n < cores:
        return st[st[ms.ACTIVE_BASE] + n // ms.ACTORS_PER_CORE] * ms.ACTORS_PER_CORE + n % ms.ACTORS_PER_CORE
    return st[ms.N_CORES] * ms.ACTORS_PER_CORE + st[st[ms.ACTIVE_BASE] + st[ms.N_ACTIVE] + n - cores]
