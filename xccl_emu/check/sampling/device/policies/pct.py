"""`pct`: probabilistic concurrency testing, after [PCT].

Every actor, and every write while it is in flight, has a random priority, and the candidate with the highest goes next.
At ``depth - 1`` steps, drawn over the length of a run, the priority of the one that would go next is lowered below all
others.  In the paper a run of depth d meets a bug that takes d orderings with a probability of at least 1/(n k^(d-1)),
of n actors and k steps.  Beyond it, writes in flight have priorities too, and a scalar unit that does nothing but load
is lowered as if it were blocked.
"""

from xccl_emu.check.sampling.device.monitor.clocks import index_of
from xccl_emu.check.sampling.device.monitor.layout import CAPACITY, DIE_INDEX, LOWEST
from xccl_emu.lang import operations as ops
from xccl_emu.lang.requests import OP_CHOOSE
from xccl_emu.machine.device.layout import ACTORS_PER_CORE, CHOICE_BITS, N_CORES
from xccl_emu.machine.device.words import jit

SPINNING = 16
"""This many loads of a core's scalar unit, one after the other and nothing else, look like waiting."""


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
