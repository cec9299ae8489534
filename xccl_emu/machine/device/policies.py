"""Who goes next: the policies of runs, all with one interface.

A policy is ``policy(mem, st, log, budget)``: it takes actions until the run is over or ``budget`` of them are
taken, appends each to ``log`` if that has room for any (``actor << CHOICE_BITS | choice``), and returns how it ended
(`ENDED_*`).  Called again, it goes on where it was.
"""

from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REQUEST
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.actions import choices, deliver_some, nth_choice, step_core
from xccl_emu.machine.device.cache import answers
from xccl_emu.machine.device.flight import block_of_core
from xccl_emu.machine.device.single import act_once
from xccl_emu.machine.device.words import call, jit

QUANTUM = 256
"""Actions of one core before the next has its turn: long enough that its data buffer stays in the cache."""

SHARE = QUANTUM // 4
"""Actions of one pipe before the core's next pipe has its turn, or a scalar unit that never waits would starve them."""


# ---- what they share


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


# ---- seeded random: an actor and a choice drawn uniformly, among those that turn out to be enabled


@jit
def draw(st, n):
    """A number from 0 to n-1, of L'Ecuyer's two combined congruential generators (no product exceeds 63 bits)."""
    st[ms.RANDOM_1] = st[ms.RANDOM_1] * 40014 % 2147483563
    st[ms.RANDOM_2] = st[ms.RANDOM_2] * 40692 % 2147483399
    return (st[ms.RANDOM_1] - st[ms.RANDOM_2]) % 2147483562 % n


@jit
def uniform_random(mem, st, log, budget):
    """Transfers go by sub-transfers and writes by granules, in any order."""
    taken = 0
    moved = 1
    while True:
        ended = how_it_stands(st, log, 1, taken, budget, moved == 0)
        if ended >= 0:
            return ended
        moved = _try_some(mem, st, log)
        taken += moved


@jit
def _try_some(mem, st, log):
    """Draw until an action is enabled; after many misses try all, from a random place on; 0 if none is enabled."""
    total = n_actors(st)
    for _ in range(4 * total):
        actor = nth_actor(st, draw(st, total))
        n = choices(st, actor)
        if n and _try(mem, st, log, actor, nth_choice(st, actor, draw(st, n))):
            return 1
    first = draw(st, total)
    for i in range(total):
        actor = nth_actor(st, (first + i) % total)
        for n in range(choices(st, actor)):
            if _try(mem, st, log, actor, nth_choice(st, actor, n)):
                return 1
    return 0


@jit
def _try(mem, st, log, actor, choice):
    if not act_once(mem, st, actor, choice) and st[ms.ERROR] == 0:
        return False  # an action that ends in a violation is written down too: the replay ends there
    write_down(st, log, actor, choice)
    return True


# ---- replay: the actions of a recorded schedule, one after the other


@jit
def replay(mem, st, log, budget):
    """Take the actions in ``log`` from the cursor on; `ENDED_NOT_ENABLED` if one cannot be taken."""
    taken = 0
    while st[ms.CURSOR] < log.size:
        if taken >= budget:
            return ms.ENDED_PAUSED
        code = log[st[ms.CURSOR]]
        if not act_once(mem, st, code >> ms.CHOICE_BITS, code & ms.CHOICE_ALL):
            return ms.ENDED_ERROR if st[ms.ERROR] != 0 else ms.ENDED_NOT_ENABLED
        st[ms.CURSOR] += 1
        taken += 1
    if st[ms.ERROR] != 0:
        return ms.ENDED_ERROR
    if st[ms.N_LIVE] == 0:
        return ms.ENDED_DONE
    return ms.ENDED_PAUSED if _can_go_on(mem, st) else ms.ENDED_DEADLOCK


@jit
def _can_go_on(mem, st):
    """Return whether any action is enabled.  It takes one to find out: the schedule ended early, the run is spoilt."""
    for n in range(n_actors(st)):
        actor = nth_actor(st, n)
        for k in range(choices(st, actor)):
            if act_once(mem, st, actor, nth_choice(st, actor, k)) or st[ms.ERROR] != 0:
                return True
    return False


# ---- greedy round-robin: each core in turn does as much as it can, up to a quantum; then each die delivers


@jit
def round_robin(mem, st, log, budget):
    """Writes in flight become visible in issue order, a whole die's at a time."""
    taken = 0
    idle = 0
    turns = st[ms.N_ACTIVE] + (st[ms.N_ACTIVE_DIES] if st[ms.ORDER] != ms.ORDER_SC else 0)
    while True:
        ended = how_it_stands(st, log, QUANTUM + ms.ACTORS_PER_CORE, taken, budget, idle > turns)
        if ended >= 0:
            return ended
        turn = st[ms.CURSOR] % turns
        st[ms.CURSOR] = turn + 1
        who = st[st[ms.ACTIVE_BASE] + turn]
        moved = _core_turn(mem, st, log, who) if turn < st[ms.N_ACTIVE] else _die_turn(mem, st, log, who)
        taken += moved
        idle = 0 if moved else idle + 1


@jit
def _core_turn(mem, st, log, core):
    base = block_of_core(st, core)
    moved = 0
    before = -1
    while moved != before and moved < QUANTUM and st[base + ms.STATUS] == ms.STATUS_RUNNING:
        before = moved
        for pipe in range(ms.ACTORS_PER_CORE):
            end = min(QUANTUM, moved + SHARE)
            while moved < end and st[ms.ERROR] == 0:
                if step_core(mem, st, core, base, pipe, ms.CHOICE_ALL) or st[ms.ERROR] != 0:
                    write_down(st, log, core * ms.ACTORS_PER_CORE + pipe, ms.CHOICE_ALL)
                elif not (st[ms.DRAWS_ANSWERS] and pipe == rq.SCALAR and _draw_answer(mem, st, log, core, base)):
                    break
                moved += 1
    return moved


@call
def _draw_answer(mem, st, log, core, base):
    """Answer a core's `choose` by the seed; False if it is at another request."""
    if st[base + REQUEST] != rq.OP_CHOOSE:
        return False
    choice = draw(st, answers(st, base))
    act_once(mem, st, core * ms.ACTORS_PER_CORE + rq.SCALAR, choice)
    write_down(st, log, core * ms.ACTORS_PER_CORE + rq.SCALAR, choice)
    return True


@jit
def _die_turn(mem, st, log, die):
    if not deliver_some(mem, st, die, ms.CHOICE_ALL):
        return 0
    write_down(st, log, st[ms.N_CORES] * ms.ACTORS_PER_CORE + die, ms.CHOICE_ALL)
    return 1
