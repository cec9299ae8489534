"""The replay of a schedule under watch."""

from xccl_emu.check.device.monitor.calls import call, part
from xccl_emu.check.device.monitor.layout import (
    BAD_ACTION,
    FOUND_DEADLOCK,
    FOUND_LIVELOCK,
    JUDGE_NOTHING,
    JUDGED,
    NOT_ENABLED,
    P_RANDOM,
    RESTART,
    RUN_CUT,
    TAKEN,
    TAKEN_OK,
    WATCHED,
)
from xccl_emu.check.device.sampling.begin import begin, ended, returned
from xccl_emu.check.device.sampling.breaks import forgiven, judge_as_asked, watched_fault, whole_so_far
from xccl_emu.check.device.sampling.candidates import gather, try_candidate
from xccl_emu.check.device.sampling.policies.draw import seed_draws
from xccl_emu.lang.requests import MTU_IN, MTU_OUT, OP_MTU_IN, SCALAR, VECTOR
from xccl_emu.machine.device.flight import DMA_READ_DONE, block_of_core
from xccl_emu.machine.device.layout import (
    ACTORS_PER_CORE,
    CHOICE_ALL,
    CHOICE_BITS,
    DMA_SLOTS,
    ENTRY_PROGRESS,
    ENTRY_WORDS,
    FAULT_CUT,
    N_CORES,
    N_DMA_SLOTS,
    N_LIVE,
    PIPE_COUNT,
)
from xccl_emu.machine.device.pipes import entry_of, n_subtransfers, pipe_of, signals_next
from xccl_emu.machine.device.words import jit


@part
def replay_run(space, run, actions, stop):
    """Take recorded actions, up to one that finds something; `BAD_ACTION` if one is not enabled.

    Where they end, the run has ended too, or is stuck, or could go on (`RUN_CUT`, or livelock if it is that long);
    to find out, an action more is taken, if there is one.  With ``stop`` none is: it stands where they end.
    """
    m = space.m
    code, forget = RESTART, True
    while code == RESTART:
        code = _replay(space, run, actions, forget)
        forget = False
    if code != TAKEN_OK:
        return forgiven(space, run, code)
    if space.st[N_LIVE] == 0 or not whole_so_far(space, run):
        return ended(space, run)
    if stop:
        return RUN_CUT
    if m[TAKEN] >= run.log.size:
        return forgiven(space, run, FOUND_LIVELOCK)
    judged, m[JUDGED] = m[JUDGED], JUDGE_NOTHING
    seed_draws(run.rng, 0, 0, 0)
    for a in range(run.asleep.size):
        run.asleep[a] = 0
    n, n_cores = gather(space, run, P_RANDOM)
    code = NOT_ENABLED
    for c in range(n):
        if code == NOT_ENABLED:
            code, _ = try_candidate(space, run, run.candidates[c], c < n_cores)
    m[JUDGED] = judged
    return forgiven(space, run, FOUND_DEADLOCK) if code == NOT_ENABLED else RUN_CUT


@jit
def _replay(space, run, actions, forget):
    m = space.m
    begin(space, run, forget)
    judge_as_asked(m)
    m[TAKEN] = 0
    for a in range(actions.size):
        live = space.st[N_LIVE]
        if actions[a] < 0:
            code = watched_fault(space, actions[a])
        else:
            code = _take(space, actions[a] >> CHOICE_BITS, actions[a] & CHOICE_ALL)
        if code == NOT_ENABLED:
            return BAD_ACTION
        m[TAKEN] = a + 1
        if code == TAKEN_OK:
            code = returned(space, run, live)
        if code != TAKEN_OK:
            return code
    return TAKEN_OK


@jit
def _take(space, actor, choice):
    """One action; one that stands for all of a transfer, or all of a die's writes, as the actions it stands for."""
    st, m = space.st, space.m
    pipe = actor % ACTORS_PER_CORE
    of_core = actor < st[N_CORES] * ACTORS_PER_CORE
    whole = choice == CHOICE_ALL and not (of_core and (pipe == SCALAR or pipe == VECTOR))
    first, last, step = choice, choice, 1
    queue, count = -1, 0
    if whole and not of_core and st[FAULT_CUT]:  # it would be all but what is cut off: let it be said one by one
        return NOT_ENABLED
    if whole:
        first, last = 0, 0 if of_core else 1 << 30
        base = block_of_core(st, actor // ACTORS_PER_CORE) if of_core else 0
        if of_core and pipe == MTU_OUT:
            queue = pipe_of(base, MTU_OUT)
            count, last = st[queue + PIPE_COUNT], 1 << 30
        elif of_core:
            first, last = _subtransfers_left(st, base, pipe)
            step = 16
    code = NOT_ENABLED
    c = first
    while c <= last and (code == NOT_ENABLED or code == TAKEN_OK):
        more = call(m[WATCHED], space, actor, c if step > 1 or not whole else 0)
        if more != NOT_ENABLED:
            code = more
        elif step == 1:
            break
        if queue >= 0 and (st[queue + PIPE_COUNT] != count or signals_next(st, entry_of(st, queue, 0))):
            break  # what it copies is on its way; its signal is another action
        c += step
    return code


@jit
def _subtransfers_left(st, base, pipe):
    """First and last choice for all that is left of the transfer that comes next."""
    if pipe == MTU_IN:
        queue = pipe_of(base, MTU_IN)
        entry = entry_of(st, queue, 0)
        if st[queue + PIPE_COUNT] == 0 or st[entry] != OP_MTU_IN:
            return 0, 0
        return 0, n_subtransfers(st, st[entry + 1], st[entry + 1], st[entry + 3]) - 1 << 4
    for k in range(N_DMA_SLOTS):
        slot = base + DMA_SLOTS + k * ENTRY_WORDS
        if st[slot] != 0 and st[slot + ENTRY_PROGRESS] != DMA_READ_DONE:
            return k, k | n_subtransfers(st, st[slot + 1], st[slot + 2], st[slot + 3]) - 1 << 4
    return 0, 0
