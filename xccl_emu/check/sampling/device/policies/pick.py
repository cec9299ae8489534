"""The policies: how keys are drawn, and which candidate they choose.

    =======  ===========================================================================================
    random   every candidate alike
    weights  a candidate with probability in proportion to its key, drawn once, 10^-U(0, 3)
    pct      the candidate with the highest key; at some steps the highest is lowered below all others
    eager    a write in flight, whenever there is one that may become visible; else as weights
    late     a write in flight only when no core can go on, any of them; else as weights
    lifo     as late, the youngest write first
    skew     as weights, but all cores of a die have one factor more
    =======  ===========================================================================================

A blocked poll is no candidate, so no priority makes it spin.  What a policy does beyond that is in `pct` and `skew`.
"""

from xccl_emu.check.sampling.device.monitor import layout as ml
from xccl_emu.check.sampling.device.policies.draw import draw_below, draw_unit, draw_weight
from xccl_emu.machine.device.words import jit


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
