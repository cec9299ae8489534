"""Who goes next in a sampled run: how keys are drawn, and which candidate a policy chooses.

Every policy chooses among the same candidates: each pipe of each core that may have something to do, and each write in
flight.  A candidate has a key; how keys are drawn and which candidate is taken is the policy.

    =======  ===========================================================================================
    random   every candidate alike
    weights  a candidate with probability in proportion to its key, drawn once, 10^-U(0, 3)
    pct      the candidate with the highest key; at some steps the highest is lowered below all others
    eager    a write in flight, whenever there is one that may become visible; else as weights
    late     a write in flight only when no core can go on, any of them; else as weights
    lifo     as late, the youngest write first
    skew     as weights, but all cores of a die have one factor more
    =======  ===========================================================================================

A blocked poll is no candidate, so no priority makes it spin.
"""

import math

import numpy as np

from xccl_emu.check.sampling.device.monitor import layout as ml
from xccl_emu.check.sampling.device.monitor.clocks import index_of
from xccl_emu.check.sampling.device.monitor.layout import CAPACITY, CORE_NUMBER, DIE_INDEX, LOWEST
from xccl_emu.lang import operations as ops
from xccl_emu.lang.requests import OP_CHOOSE
from xccl_emu.machine.device.flight import block_of_core
from xccl_emu.machine.device.layout import ACTORS_PER_CORE, CHOICE_BITS, DIE, N_ACTIVE, N_CORES
from xccl_emu.machine.device.words import jit

_A, _B, _C = np.uint64(13), np.uint64(7), np.uint64(17)
_HALF = np.uint64(32)
_DECADES, _DECADES_APART = 3 * 2.302585092994046, 9 * 2.302585092994046
SPINNING = 16
"""This many loads of a core's scalar unit, one after the other and nothing else, look like waiting."""


# ---- what is drawn: one generator for each run, seeded by the check's seed and the number of the run


@jit
def seed_draws(state, seed, policy, number):
    """Begin the sequence of one run; equal arguments give an equal sequence."""
    state[0] = np.uint64(0x9E3779B97F4A7C15)
    for word in (seed & 0x7FFFFFFF, seed >> 31 & 0x7FFFFFFF, policy + 1, number + 1):
        state[0] = state[0] ^ (np.uint64(word) << np.uint64(21))
        for _ in range(8):
            _step(state)


@jit
def _step(state):
    """Marsaglia's xorshift of 64 bits."""
    x = state[0]
    x = x ^ (x << _A)
    x = x ^ (x >> _B)
    x = x ^ (x << _C)
    state[0] = x
    return x


@jit
def draw_below(state, n):
    """A number from 0 to n-1; n below 2^31."""
    return np.int64(_step(state) >> _HALF) * n >> 32


@jit
def draw_unit(state):
    """A number from 0 up to 1."""
    return np.float64(np.int64(_step(state) >> _HALF)) / 4294967296.0


@jit
def draw_weight(rng):
    """A weight, 10^-U(0, 3)."""
    return math.exp(-_DECADES * draw_unit(rng))


@jit
def is_change(changes, n, at):
    """Return whether this is one of the first n steps at which a policy changes its mind.  Each counts once."""
    for c in range(n):
        if changes[c] == at:
            changes[c] = -1
            return True
    return False


# ---- which candidate


@jit
def draw_key(policy, rng):
    """Key of an actor for a run, or of a write while it is in flight."""
    if policy == ml.P_RANDOM:
        return 1.0
    if policy == ml.P_PCT:
        return 1.0 + draw_unit(rng)
    return draw_weight(rng)


@jit
def which(policy, n_cores, n):
    """Return the range of candidates to choose from now, as (first, end): cores come first, then the writes."""
    if policy == ml.P_EAGER and n > n_cores:
        return n_cores, n
    if (policy == ml.P_LATE or policy == ml.P_LIFO) and n_cores > 0:
        return 0, n_cores
    return 0, n


@jit
def pick(policy, rng, keys, serials, first, end, n_cores):
    """Place of the chosen candidate among those from ``first`` to ``end`` - 1."""
    if policy == ml.P_PCT:
        return _largest(keys, first, end)
    if policy == ml.P_LIFO and first == n_cores:
        return _largest(serials, first, end)
    if policy == ml.P_RANDOM or (policy == ml.P_LATE and first == n_cores):
        return first + draw_below(rng, end - first)
    return _weighted(rng, keys, first, end)


@jit
def _largest(values, first, end):
    best = first
    for c in range(first + 1, end):
        if values[c] > values[best]:
            best = c
    return best


@jit
def _weighted(rng, keys, first, end):
    total = 0.0
    for c in range(first, end):
        total += keys[c]
    left = draw_unit(rng) * total
    for c in range(first, end - 1):
        left -= keys[c]
        if left < 0.0:
            return c
    return end - 1


# ---- pct: probabilistic concurrency testing, after [PCT]
# Every actor, and every write while it is in flight, has a random priority, and the candidate with the highest goes
# next.  At ``depth - 1`` steps, drawn over the length of a run, the priority of the one that would go next is lowered
# below all others.  In the paper a run of depth d meets a bug that takes d orderings with a probability of at least
# 1/(n k^(d-1)), of n actors and k steps.  Beyond it, writes in flight have priorities too, and a scalar unit that does
# nothing but load is lowered as if it were blocked.


@jit
def lower(space, run, candidate, of_core):
    """Give a candidate a priority below all others."""
    st, m, keys = space.st, space.m, space.keys
    m[LOWEST] -= 1
    if of_core:
        core, pipe = candidate // ACTORS_PER_CORE, candidate % ACTORS_PER_CORE
        run.actor_keys[index_of(m, core) * ACTORS_PER_CORE + pipe] = m[LOWEST] * 1.0
    else:
        die = (candidate >> CHOICE_BITS) - st[N_CORES] * ACTORS_PER_CORE
        keys[m[m[DIE_INDEX] + die] * m[CAPACITY] + (candidate & 0xFFFF)] = m[LOWEST] * 1.0


@jit
def lower_spinning(space, run, candidate, i, op):
    """After an operation of the i-th core's scalar unit: lower it if it has long done nothing but load."""
    run.loads[i] = run.loads[i] + 1 if (ops.LOADS | ops.BUFFER_READS) >> op & 1 or op == OP_CHOOSE else 0
    if run.loads[i] >= SPINNING:
        run.loads[i] = 0
        lower(space, run, candidate, True)


# ---- skew: hosts launch apart
# All cores of a die have one factor more, 10^-U(0, 9), so that some die hardly goes on as long as others can; at some
# steps the factors are drawn again.


@jit
def draw_dies(space, run):
    """Draw the keys of the actors, with one more factor for each die; cores are in order of their dies."""
    st, m, rng = space.st, space.m, run.rng
    die, apart = -1, 1.0
    for i in range(st[N_ACTIVE]):
        on = st[block_of_core(st, m[m[CORE_NUMBER] + i]) + DIE]
        if on != die:
            die, apart = on, math.exp(-_DECADES_APART * draw_unit(rng))
        for p in range(ACTORS_PER_CORE):
            run.actor_keys[i * ACTORS_PER_CORE + p] = draw_weight(rng) * apart
