"""Many runs of a trial, one after the other, each by a policy and under watch."""

from xccl_emu.check.sampling.device import breaks
from xccl_emu.check.sampling.device.begin import begin, ended, returned
from xccl_emu.check.sampling.device.candidates import drop, gather, try_candidate
from xccl_emu.check.sampling.device.monitor import layout as ml
from xccl_emu.check.sampling.device.monitor.calls import part
from xccl_emu.check.sampling.device.monitor.clocks import index_of
from xccl_emu.check.sampling.device.policies import (
    draw_below,
    draw_dies,
    draw_key,
    is_change,
    lower,
    lower_spinning,
    pick,
    seed_draws,
    which,
)
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REQUEST
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.flight import block_of_core, block_of_die
from xccl_emu.machine.device.words import jit


@jit
def _advance(space, run, policy, n_taken):
    """Take the action that the policy chooses; `FOUND_DEADLOCK` if there is none."""
    m, rng = space.m, run.rng
    candidates, keys_now, serials = run.candidates, run.candidate_keys, run.serials
    if policy == ml.P_SKEW and is_change(run.changes, m[ml.DEPTH] - 1, n_taken):
        draw_dies(space, run)
    n, n_cores = gather(space, run, policy)
    rested = False
    while True:
        if n == 0:
            if rested and not breaks.release_stalled(m):
                return ml.FOUND_DEADLOCK
            rested = True  # all that slept have another try, so that a wake-up too few is no deadlock
            for a in range(run.asleep.size):
                run.asleep[a] = 0
            n, n_cores = gather(space, run, policy)
            continue
        first, end = which(policy, n_cores, n)
        c = pick(policy, rng, keys_now, serials, first, end, n_cores)
        if policy == ml.P_PCT and is_change(run.changes, m[ml.DEPTH] - 1, n_taken):
            lower(space, run, candidates[c], c < n_cores)
            keys_now[c] = m[ml.LOWEST] * 1.0
            c = pick(policy, rng, keys_now, serials, first, end, n_cores)
        of_core = c < n_cores
        if m[ml.FAULT] and not of_core and breaks.strikes_write(space, candidates[c], n_taken):
            code, action = breaks.deliver_struck(space, run, candidates[c], n_taken)
        else:
            code, choice = try_candidate(space, run, candidates[c], of_core)
            action = (candidates[c] << ms.CHOICE_BITS | choice) if of_core else candidates[c]
        if code != ml.NOT_ENABLED:
            run.log[n_taken] = action
            if m[ml.FAULT]:
                breaks.count(space, candidates[c], of_core)
            if code == ml.TAKEN_OK:
                _follow(space, run, policy, candidates[c], of_core)
            return code
        n, n_cores = drop(space, run, c, n, n_cores)


@jit
def _follow(space, run, policy, candidate, of_core):
    """After an action: wake who may go on now, draw keys for new writes, lower a scalar unit that spins."""
    st, m, keys = space.st, space.m, space.keys
    asleep = run.asleep
    if not of_core:
        _wake_after_delivery(space, run)
        return
    core, pipe = candidate // ms.ACTORS_PER_CORE, candidate % ms.ACTORS_PER_CORE
    i, op = index_of(m, core), m[ml.X_OP]
    stores = ops.STORES >> op & 1 or (ops.LOADS >> op & 1 and st[ms.CACHE_LINES])  # a load may crowd out a changed line
    wide = st[ms.ORDER] == ms.ORDER_SC and (pipe == rq.MTU_OUT or pipe == rq.DMA or stores)
    if wide or (pipe == rq.SCALAR and (ops.ATOMICS | ops.ARRIVALS) >> op & 1):
        for a in range(asleep.size):
            asleep[a] = 0
    for p in range(ms.ACTORS_PER_CORE):
        asleep[i * ms.ACTORS_PER_CORE + p] = 0
    if m[ml.CAPACITY]:
        die = st[block_of_core(st, core) + ms.DIE]
        for k in range(m[ml.X_FLIGHTS], st[block_of_die(st, die) + ms.FLIGHT_COUNT]):
            keys[m[m[ml.DIE_INDEX] + die] * m[ml.CAPACITY] + k] = draw_key(policy, run.rng)
    if pipe == rq.SCALAR and policy == ml.P_PCT:
        lower_spinning(space, run, candidate, i, op)


@jit
def _wake_after_delivery(space, run):
    """A write became visible: polls of its granule may go on, and all on the writer's die (room, quiets)."""
    st, m, asleep = space.st, space.m, run.asleep
    die = st[block_of_core(st, m[ml.X_CORE]) + ms.DIE]
    for i in range(st[ms.N_ACTIVE]):
        base = block_of_core(st, m[m[ml.CORE_NUMBER] + i])
        if st[base + ms.DIE] == die:
            for p in range(ms.ACTORS_PER_CORE):
                asleep[i * ms.ACTORS_PER_CORE + p] = 0
        elif st[base + REQUEST] == rq.OP_POLL_ANY or _polls_there(st, m, base):
            asleep[i * ms.ACTORS_PER_CORE] = 0


@jit
def _polls_there(st, m, base):
    """Does a core poll a granule that the write touches which has become visible?"""
    if st[base + REQUEST] != rq.OP_POLL:
        return False
    address, nbytes = st[base + REQUEST + ops.POLL.address], st[base + REQUEST + ops.POLL.nbytes]
    written, last = m[ml.X_ADDRESS], m[ml.X_ADDRESS] + m[ml.X_NBYTES] - 1
    before = address // ms.GRANULE_BYTES <= last // ms.GRANULE_BYTES
    return before and written // ms.GRANULE_BYTES <= (address + nbytes - 1) // ms.GRANULE_BYTES


@jit
def _draw_start(space, run, policy, seed, number):
    """Draw, at the start of a run by a policy, the keys of the actors, and when `pct` lowers one."""
    st, m, rng = space.st, space.m, run.rng
    seed_draws(rng, seed, policy, number)
    for a in range(st[ms.N_ACTIVE] * ms.ACTORS_PER_CORE):
        run.actor_keys[a] = draw_key(policy, rng)
        run.asleep[a] = 0
    for i in range(st[ms.N_ACTIVE]):
        run.loads[i] = 0
    if policy == ml.P_SKEW:
        draw_dies(space, run)
    m[ml.LOWEST] = 0
    for c in range(m[ml.DEPTH] - 1):
        run.changes[c] = draw_below(rng, m[ml.LENGTH])
    if m[ml.FAULT]:
        breaks.draw_fault(space, run)


@jit
def _one_run(space, run, policy, seed, number, forget):
    """One run by a policy; the actions are in the log, ``m[TAKEN]`` of them.  A run that gets long goes on fairly.

    One that has paused goes on where it was.
    """
    st, m = space.st, space.m
    taken, m[ml.PAUSED] = m[ml.PAUSED], 0
    if taken == 0:
        begin(space, run, forget)
        breaks.judge_as_asked(m)
        _draw_start(space, run, policy, seed, number)
    code = ml.TAKEN_OK
    while code == ml.TAKEN_OK:
        if taken and m[ml.TOTAL] + taken >= m[ml.PAUSE_AT]:
            m[ml.PAUSED] = taken
            return ml.RUN_PAUSED
        if taken < run.log.size and m[ml.FAULT]:
            broken = breaks.strike(space, run, taken)
            if broken:
                run.log[taken] = broken
                taken += 1
                continue
        if st[ms.N_LIVE] == 0:
            code = ended(space, run)
        elif taken == run.log.size or breaks.runs_too_long(space, run, taken):
            code = ml.FOUND_LIVELOCK
        else:
            live = st[ms.N_LIVE]
            code = _advance(space, run, policy if taken < m[ml.FAIR_AFTER] else ml.P_RANDOM, taken)
            if code == ml.TAKEN_OK:
                code = returned(space, run, live)
            if code != ml.FOUND_DEADLOCK:
                taken += 1
            elif breaks.repeat_now(space):
                code = ml.TAKEN_OK
    m[ml.TAKEN] = taken
    result = breaks.allowed(space, run, code)
    breaks.count_ending(space, run, code, result)
    return result


@part
def many_runs(space, run, policy, seed, end, forgets):
    """Runs number ``m[NEXT_NUMBER]`` to ``end`` - 1, up to one that finds something, needs larger arrays or pauses;
    returns its code.

    Each forgets what the one before has found out about synchronizations, if ``forgets``.  ``m[NEXT_NUMBER]`` is the
    number of that run, ``m[SCHEDULES]`` counts those that are finished and ``m[TOTAL]`` their actions.
    """
    m = space.m
    for number in range(m[ml.NEXT_NUMBER], end):
        m[ml.NEXT_NUMBER] = number
        code, forget = ml.RESTART, forgets
        while code == ml.RESTART:
            code = _one_run(space, run, policy, seed, number, forget)
            forget = False
        if code == ml.GROW or code == ml.RUN_PAUSED:
            return code
        m[ml.SCHEDULES] += 1
        m[ml.TOTAL] += m[ml.TAKEN]
        if code != ml.RUN_DONE:
            return code
    m[ml.NEXT_NUMBER] = end
    return ml.RUN_DONE
