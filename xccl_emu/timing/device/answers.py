"""What the environment answers in virtual time: a timer says when its time is up; all else is 0, or drawn."""

from xccl_emu.lang import operations as ops
from xccl_emu.machine.device import cache
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.policies import random
from xccl_emu.machine.device.words import jit
from xccl_emu.timing.device import layout as tl


@jit
def answer(st, tm, core, asked):
    """The answer to the core's `choose`; a timer begins with the first question, and with each that is `of` another."""
    n, word = cache.answers(st, core.base), tm[tm[core.row + tl.CORE_SITES] + asked.site]
    if word >> tl.TIMER_SHIFT == 0:
        return random.draw(st, n) if st[ms.DRAWS_ANSWERS] else 0
    timer, now = core.row + tl.TIMERS + 2 * (word >> tl.TIMER_NUMBER & tl.TIMERS_MOST - 1), tm[core.row + tl.SCALAR_AT]
    if tm[timer] == 0 or tm[timer + 1] != asked.words[ops.CHOOSE.of]:
        tm[timer], tm[timer + 1] = 1 + now, asked.words[ops.CHOOSE.of]
    if n == 1 or 1 + now - tm[timer] < word >> tl.TIMER_SHIFT:
        return 0
    tm[timer] = 0
    return 1
