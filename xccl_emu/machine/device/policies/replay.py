"""Replay: the actions of a recorded schedule, one after the other."""

from xccl_emu.machine.device.actions import choices, nth_choice
from xccl_emu.machine.device.layout import (
    CHOICE_ALL,
    CHOICE_BITS,
    CURSOR,
    ENDED_DEADLOCK,
    ENDED_DONE,
    ENDED_ERROR,
    ENDED_NOT_ENABLED,
    ENDED_PAUSED,
    ERROR,
    N_LIVE,
)
from xccl_emu.machine.device.policies.common import n_actors, nth_actor
from xccl_emu.machine.device.single import act_once
from xccl_emu.machine.device.words import jit


@jit
def replay(mem, st, log, budget):
    """Take the actions in ``log`` from where the cursor stands; `ENDED_NOT_ENABLED` if one cannot be taken."""
    taken = 0
    while st[CURSOR] < log.size:
        if taken >= budget:
            return ENDED_PAUSED
        code = log[st[CURSOR]]
        if not act_once(mem, st, code >> CHOICE_BITS, code & CHOICE_ALL):
            return ENDED_ERROR if st[ERROR] != 0 else ENDED_NOT_ENABLED
        st[CURSOR] += 1
        taken += 1
    if st[ERROR] != 0:
        return ENDED_ERROR
    if st[N_LIVE] == 0:
        return ENDED_DONE
    return ENDED_PAUSED if _can_go_on(mem, st) else ENDED_DEADLOCK


@jit
def _can_go_on(mem, st):
    """Return whether any action is enabled.  It takes one to find out: the schedule ended early, the run is spoilt."""
    for n in range(n_actors(st)):
        actor = nth_actor(st, n)
        for k in range(choices(st, actor)):
            if act_once(mem, st, actor, nth_choice(st, actor, k)) or st[ERROR] != 0:
                return True
    return False
