"""The replay of a schedule under watch."""

from xccl_emu.check.sampling.device import breaks
from xccl_emu.check.sampling.device.begin import begin, ended, returned
from xccl_emu.check.sampling.device.candidates import gather, try_candidate
from xccl_emu.check.sampling.device.monitor import layout as ml
from xccl_emu.check.sampling.device.monitor.calls import call, part
from xccl_emu.check.sampling.device.policies import seed_draws
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device import pipes
from xccl_emu.machine.device.flight import DMA_READ_DONE, block_of_core
from xccl_emu.machine.device.words import jit


@part
def replay_run(space, run, actions, stop):
    """Take recorded actions, up to one that finds something; `BAD_ACTION` if one is not enabled.

    Where they end, the run has ended too, or is stuck, or could go on (`RUN_CUT`, or livelock if it is that long);
    to find out, an action more is taken, if there is one.  With ``stop`` none is: the run stays where they end.
    """
    m = space.m
    code, forget = ml.RESTART, True
    while code == ml.RESTART:
        code = _replay(space, run, actions, forget)
        forget = False
    if code != ml.TAKEN_OK:
        return breaks.allowed(space, run, code)
    if space.st[ms.N_LIVE] == 0 or not breaks.whole_so_far(space, run):
        return ended(space, run)
    if stop:
        return ml.RUN_CUT
    if m[ml.TAKEN] >= run.log.size:
        return breaks.allowed(space, run, ml.FOUND_LIVELOCK)
    judged, m[ml.JUDGED] = m[ml.JUDGED], ml.JUDGE_NOTHING
    seed_draws(run.rng, 0, 0, 0)
    for a in range(run.asleep.size):
        run.asleep[a] = 0
    n, n_cores = gather(space, run, ml.P_RANDOM)
    code = ml.NOT_ENABLED
    for c in range(n):
        if code == ml.NOT_ENABLED:
            code, _ = try_candidate(space, run, run.candidates[c], c < n_cores)
    m[ml.JUDGED] = judged
    return breaks.allowed(space, run, ml.FOUND_DEADLOCK) if code == ml.NOT_ENABLED else ml.RUN_CUT


@jit
def _replay(space, run, actions, forget):
    m = space.m
    begin(space, run, forget)
    breaks.judge_as_asked(m)
    m[ml.TAKEN] = 0
    for a in range(actions.size):
        live = space.st[ms.N_LIVE]
        if actions[a] < 0:
            code = breaks.watched_fault(space, actions[a])
        else:
            code = _take(space, actions[a] >> ms.CHOICE_BITS, actions[a] & ms.CHOICE_ALL)
        if code == ml.NOT_ENABLED:
            return ml.BAD_ACTION
        m[ml.TAKEN] = a + 1
        if code == ml.TAKEN_OK:
            code = returned(space, run, live)
        if code != ml.TAKEN_OK:
            return code
    return ml.TAKEN_OK


@jit
def _take(space, actor, choice):
    """Take one action; one for all of a transfer, or all of a die's writes, is taken as the actions it consists of."""
    st, m = space.st, space.m
    pipe = actor % ms.ACTORS_PER_CORE
    of_core = actor < st[ms.N_CORES] * ms.ACTORS_PER_CORE
    whole = choice == ms.CHOICE_ALL and not (of_core and (pipe == rq.SCALAR or pipe == rq.VECTOR))
    first, last, step = choice, choice, 1
    queue, count = -1, 0
    if whole and not of_core and st[ms.FAULT_CUT]:  # it would be all but what is cut off: let it be said one by one
        return ml.NOT_ENABLED
    if whole:
        first, last = 0, 0 if of_core else 1 << 30
        base = block_of_core(st, actor // ms.ACTORS_PER_CORE) if of_core else 0
        if of_core and pipe == rq.MTU_OUT:
            queue = pipes.pipe_of(base, rq.MTU_OUT)
            count, last = st[queue + ms.PIPE_COUNT], 1 << 30
        elif of_core:
            first, last = _subtransfers_left(st, base, pipe)
            step = 16
    code = ml.NOT_ENABLED
    c = first
    while c <= last and (code == ml.NOT_ENABLED or code == ml.TAKEN_OK):
        more = call(m[ml.WATCHED], space, actor, c if step > 1 or not whole else 0)
        if more != ml.NOT_ENABLED:
            code = more
        elif step == 1:
            break
        if queue >= 0 and (st[queue + ms.PIPE_COUNT] != count or pipes.signals_next(st, pipes.entry_of(st, queue, 0))):
            break  # what it copies is on its way; its signal is another action
        c += step
    return code


@jit
def _subtransfers_left(st, base, pipe):
    """First and last choice for all that is left of the transfer that comes next."""
    if pipe == rq.MTU_IN:
        queue = pipes.pipe_of(base, rq.MTU_IN)
        entry = pipes.entry_of(st, queue, 0)
        if st[queue + ms.PIPE_COUNT] == 0 or not ops.COPIES_IN >> st[entry] & 1:
            return 0, 0
        return 0, pipes.subtransfers_of(st, entry) - 1 << 4
    for k in range(ms.N_DMA_SLOTS):
        slot = base + ms.DMA_SLOTS + k * ms.ENTRY_WORDS
        if st[slot] != 0 and st[slot + ms.ENTRY_PROGRESS] != DMA_READ_DONE:
            return k, k | pipes.subtransfers_of(st, slot) - 1 << 4
    return 0, 0
