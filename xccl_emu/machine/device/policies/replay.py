"""Replay: the actions of a recorded schedule, one after the other."""

from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.actions import choices, nth_choice
from xccl_emu.machine.device.policies.common import n_actors, nth_actor
from xccl_emu.machine.device.single import act_once
from xccl_emu.machine.device.words import jit


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
