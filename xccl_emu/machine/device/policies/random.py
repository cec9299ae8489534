"""Seeded random: an actor and a choice drawn uniformly, among those that turn out to be enabled."""

from xccl_emu.machine.device.actions import choices, nth_choice
from xccl_emu.machine.device.layout import ERROR, RANDOM_1, RANDOM_2
from xccl_emu.machine.device.policies import common
from xccl_emu.machine.device.single import act_once
from xccl_emu.machine.device.words import jit


@jit
def draw(st, n):
    """A number from 0 to n-1, of L'Ecuyer's two combined congruential generators (no product exceeds 63 bits)."""
    st[RANDOM_1] = st[RANDOM_1] * 40014 % 2147483563
    st[RANDOM_2] = st[RANDOM_2] * 40692 % 2147483399
    return (st[RANDOM_1] - st[RANDOM_2]) % 2147483562 % n


@jit
def uniform_random(mem, st, log, budget):
    """See `machine.device.policies`.  Transfers go by sub-transfers and writes by granules, in any order."""
    taken = 0
    moved = 1
    while True:
        ended = common.how_it_stands(st, log, 1, taken, budget, moved == 0)
        if ended >= 0:
            return ended
        moved = _try_some(mem, st, log)
        taken += moved


@jit
def _try_some(mem, st, log):
    """Draw until an action is enabled; after many misses try all, from a random place on; 0 if none is enabled."""
    total = common.n_actors(st)
    for _ in range(4 * total):
        actor = common.nth_actor(st, draw(st, total))
        n = choices(st, actor)
        if n and _try(mem, st, log, actor, nth_choice(st, actor, draw(st, n))):
            return 1
    first = draw(st, total)
    for i in range(total):
        actor = common.nth_actor(st, (first + i) % total)
        for n in range(choices(st, actor)):
            if _try(mem, st, log, actor, nth_choice(st, actor, n)):
                return 1
    return 0


@jit
def _try(mem, st, log, actor, choice):
    if not act_once(mem, st, actor, choice) and st[ERROR] == 0:
        return False  # an action that ends in a violation is written down too: the replay ends there
    common.write_down(st, log, actor, choice)
    return True
