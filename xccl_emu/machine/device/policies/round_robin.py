"""Greedy round-robin: each core in turn does as much as it can, up to a quantum; then each die delivers."""

from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REQUEST
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.actions import deliver_some, step_core
from xccl_emu.machine.device.cache import answers
from xccl_emu.machine.device.flight import block_of_core
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
