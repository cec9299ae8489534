"""`skew`: hosts launch apart.

All cores of a die have one factor more, 10^-U(0, 9), so that some die hardly goes on as long as others can; at some
steps the factors are drawn again.
"""

import math

from xccl_emu.check.sampling.device.monitor.layout import CORE_NUMBER
from xccl_emu.check.sampling.device.policies.draw import draw_unit, draw_weight
from xccl_emu.machine.device.flight import block_of_core
from xccl_emu.machine.device.layout import ACTORS_PER_CORE, DIE, N_ACTIVE
from xccl_emu.machine.device.words import jit

_DECADES = 9 * 2.302585092994046


@jit
def draw_dies(space, run):
    """Draw the keys of the actors, with one more factor for each die; cores are in order of their dies."""
    st, m, rng = space.st, space.m, run.rng
    die, apart = -1, 1.0
    for i in range(st[N_ACTIVE]):
        on = st[block_of_core(st, m[m[CORE_NUMBER] + i]) + DIE]
        if on != die:
            die, apart = on, math.exp(-_DECADES * draw_unit(rng))
        for p in range(ACTORS_PER_CORE):
            run.actor_keys[i * ACTORS_PER_CORE + p] = draw_weight(rng) * apart
