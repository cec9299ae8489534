"""Greedy round-robin: each core in turn does as much as it can, up to a quantum; then each die delivers."""

from xccl_emu.lang.abi import REQUEST
from xccl_emu.lang.requests import OP_CHOOSE, SCALAR
from xccl_emu.machine.device.actions import deliver_some, step_core
from xccl_emu.machine.device.cache import answers
from xccl_emu.machine.device.flight import block_of_core
from xccl_emu.machine.device.layout import (
    ACTIVE_BASE,
    ACTORS_PER_CORE,
    CHOICE_ALL,
    CURSOR,
    DRAWS_ANSWERS,
    ERROR,
    N_ACTIVE,
    N_ACTIVE_DIES,
    N_CORES,
    ORDER,
    ORDER_SC,
    STATUS,
    STATUS_RUNNING,
)
from xccl_emu.machine.device.policies.common import how_it_stands, write_down
from xccl_emu.machine.device.policies.random import draw
from xccl_emu.machine.device.single import act_once
from xccl_emu.machine.device.words import call, jit

QUANTUM = 256
"""Actions of one core before the next has its turn: long enough that its data buffer stays in the cache."""

SHARE = QUANTUM // 4
"""Actions of one pipe before the core's next pipe has its turn, or a scalar unit that never waits would starve them."""


@jit
def round_robin(mem, st, log, budget):
    """See `machine.device.policies`.  Writes in flight become visible in issue order, a whole die's at a time."""
    taken = 0
    idle = 0
    turns = st[N_ACTIVE] + (st[N_ACTIVE_DIES] if st[ORDER] != ORDER_SC else 0)
    while True:
        ended = how_it_stands(st, log, QUANTUM + ACTORS_PER_CORE, taken, budget, idle > turns)
        if ended >= 0:
            return ended
        turn = st[CURSOR] % turns
        st[CURSOR] = turn + 1
        who = st[st[ACTIVE_BASE] + turn]
        moved = _core_turn(mem, st, log, who) if turn < st[N_ACTIVE] else _die_turn(mem, st, log, who)
        taken += moved
        idle = 0 if moved else idle + 1


@jit
def _core_turn(mem, st, log, core):
    base = block_of_core(st, core)
    moved = 0
    before = -1
    while moved != before and moved < QUANTUM and st[base + STATUS] == STATUS_RUNNING:
        before = moved
        for pipe in range(ACTORS_PER_CORE):
            end = min(QUANTUM, moved + SHARE)
            while moved < end and st[ERROR] == 0:
                if step_core(mem, st, core, base, pipe, CHOICE_ALL) or st[ERROR] != 0:
                    write_down(st, log, core * ACTORS_PER_CORE + pipe, CHOICE_ALL)
                elif not (st[DRAWS_ANSWERS] and pipe == SCALAR and _draw_answer(mem, st, log, core, base)):
                    break
                moved += 1
    return moved


@call
def _draw_answer(mem, st, log, core, base):
    """Answer a core's `choose` by the seed; False if it stands at another request."""
    if st[base + REQUEST] != OP_CHOOSE:
        return False
    choice = draw(st, answers(st, base))
    act_once(mem, st, core * ACTORS_PER_CORE + SCALAR, choice)
    write_down(st, log, core * ACTORS_PER_CORE + SCALAR, choice)
    return True


@jit
def _die_turn(mem, st, log, die):
    if not deliver_some(mem, st, die, CHOICE_ALL):
        return 0
    write_down(st, log, st[N_CORES] * ACTORS_PER_CORE + die, CHOICE_ALL)
    return 1
