"""Replay: the actions of a recorded schedule, one after the other."""

from xccl_emu.machine.actions import act
from xccl_emu.machine.layout import (
    CHOICE_ALL,
    CHOICE_BITS,
    CURSOR,
    ENDED_DONE,
    ENDED_ERROR,
    ENDED_NOT_ENABLED,
    ENDED_PAUSED,
    ERROR,
    N_LIVE,
)
from xccl_emu.machine.words import jit


@jit
def replay(mem, st, log, budget):
    """Take the actions in ``log`` from where the cursor stands; `ENDED_NOT_ENABLED` if one cannot be taken."""
    taken = 0
    while st[CURSOR] < log.size:
        if taken >= budget:
            return ENDED_PAUSED
        code = log[st[CURSOR]]
        if not act(mem, st, code >> CHOICE_BITS, code & CHOICE_ALL):
            return ENDED_ERROR if st[ERROR] != 0 else ENDED_NOT_ENABLED
        st[CURSOR] += 1
        taken += 1
    return ENDED_DONE if st[N_LIVE] == 0 else ENDED_PAUSED
