"""Many runs of a trial, one after the other, each by a policy and under watch.

`run` is (rng, candidates, candidate keys, candidate serials, actor keys, asleep, loads, changes, log, start, parts,
expected, expected bytes, their owners, declared errors, whether it may block, how runs ended): scratch of the
policies, the actions of the run, what a run begins and ends with, and what all came to.
"""

from xccl_emu.check.device.monitor.calls import part
from xccl_emu.check.device.monitor.clocks import index_of
from xccl_emu.check.device.monitor.layout import (
    CAPACITY,
    CORE_NUMBER,
    DEPTH,
    DIE_INDEX,
    FAIR_AFTER,
    FAULT,
    FOUND_DEADLOCK,
    FOUND_LIVELOCK,
    GROW,
    LENGTH,
    LOWEST,
    NEXT_NUMBER,
    NOT_ENABLED,
    P_PCT,
    P_RANDOM,
    P_SKEW,
    RESTART,
    RUN_DONE,
    SCHEDULES,
    TAKEN,
    TAKEN_OK,
    TOTAL,
    X_A,
    X_B,
    X_C,
    X_FLIGHTS,
    X_OP,
)
from xccl_emu.check.device.sampling.begin import begin, ended, returned
from xccl_emu.check.device.sampling.breaks import (
    again_now,
    count,
    count_ending,
    deliver_struck,
    draw_fault,
    forgiven,
    goes_on_for_ever,
    judge_as_asked,
    let_through,
    strike,
    strikes_write,
)
from xccl_emu.check.device.sampling.candidates import drop, gather, try_candidate
from xccl_emu.check.device.sampling.policies.draw import draw_below, is_change, seed_draws
from xccl_emu.check.device.sampling.policies.pct import lower, lower_spinning
from xccl_emu.check.device.sampling.policies.pick import draw_key, pick, which
from xccl_emu.check.device.sampling.policies.skew import draw_dies
from xccl_emu.lang.abi import REQUEST
from xccl_emu.lang.requests import (
    DMA,
    MTU_OUT,
    OP_ARRIVE,
    OP_ATOMIC_ADD,
    OP_POLL,
    OP_STORE,
    SCALAR,
)
from xccl_emu.machine.device.flight import block_of_core, block_of_die
from xccl_emu.machine.device.layout import (
    ACTORS_PER_CORE,
    CHOICE_BITS,
    DIE,
    FLIGHT_COUNT,
    GRANULE_BYTES,
    N_ACTIVE,
    N_LIVE,
    ORDER,
    ORDER_SC,
)
from xccl_emu.machine.device.words import jit


@jit
def _advance(space, run, policy, n_taken):
    """Take the action that the policy chooses; `FOUND_DEADLOCK` if there is none."""
    m, rng = space[2], run[0]
    candidates, keys_now, serials = run[1], run[2], run[3]
    if policy == P_SKEW and is_change(run[7], m[DEPTH] - 1, n_taken):
        draw_dies(space, run)
    n, n_cores = gather(space, run, policy)
    rested = False
    while True:
        if n == 0:
            if rested and not let_through(m):
                return FOUND_DEADLOCK
            rested = True  # whoever slept has another try, so that a wake-up too few is no deadlock
            for a in range(run[5].size):
                run[5][a] = 0
            n, n_cores = gather(space, run, policy)
            continue
        first, end = which(policy, n_cores, n)
        c = pick(policy, rng, keys_now, serials, first, end, n_cores)
        if policy == P_PCT and is_change(run[7], m[DEPTH] - 1, n_taken):
            lower(space, run, candidates[c], c < n_cores)
            keys_now[c] = m[LOWEST] * 1.0
            c = pick(policy, rng, keys_now, serials, first, end, n_cores)
        of_core = c < n_cores
        if m[FAULT] and not of_core and strikes_write(space, candidates[c], n_taken):
            code, action = deliver_struck(space, run, candidates[c], n_taken)
        else:
            code, choice = try_candidate(space, run, candidates[c], of_core)
            action = (candidates[c] << CHOICE_BITS | choice) if of_core else candidates[c]
        if code != NOT_ENABLED:
            run[8][n_taken] = action
            if m[FAULT]:
                count(space, candidates[c], of_core)
            if code == TAKEN_OK:
                _follow(space, run, policy, candidates[c], of_core)
            return code
        n, n_cores = drop(space, run, c, n, n_cores)


@jit
def _follow(space, run, policy, candidate, of_core):
    """After an action: wake who may go on now, draw keys for new writes, lower a scalar unit that spins."""
    st, m, keys = space[1], space[2], space[8]
    asleep = run[5]
    if not of_core:
        _wake_after_delivery(space, run)
        return
    core, pipe = candidate // ACTORS_PER_CORE, candidate % ACTORS_PER_CORE
    i, op = index_of(m, core), m[X_OP]
    wide = st[ORDER] == ORDER_SC and (pipe == MTU_OUT or pipe == DMA or op == OP_STORE)
    if wide or (pipe == SCALAR and (op == OP_ATOMIC_ADD or op == OP_ARRIVE)):
        for a in range(asleep.size):
            asleep[a] = 0
    for p in range(ACTORS_PER_CORE):
        asleep[i * ACTORS_PER_CORE + p] = 0
    if m[CAPACITY]:
        die = st[block_of_core(st, core) + DIE]
        for k in range(m[X_FLIGHTS], st[block_of_die(st, die) + FLIGHT_COUNT]):
            keys[m[m[DIE_INDEX] + die] * m[CAPACITY] + k] = draw_key(policy, run[0])
    if pipe == SCALAR and policy == P_PCT:
        lower_spinning(space, run, candidate, i, op)


@jit
def _wake_after_delivery(space, run):
    """A write became visible: whoever polls its granule may go on, and all on the writer's die (room, quiets)."""
    st, m, asleep = space[1], space[2], run[5]
    die = st[block_of_core(st, m[X_C]) + DIE]
    for i in range(st[N_ACTIVE]):
        base = block_of_core(st, m[m[CORE_NUMBER] + i])
        if st[base + DIE] == die:
            for p in range(ACTORS_PER_CORE):
                asleep[i * ACTORS_PER_CORE + p] = 0
        elif st[base + REQUEST] == OP_POLL and _in_one_granule(st[base + REQUEST + 1], st[base + REQUEST + 4], m):
            asleep[i * ACTORS_PER_CORE] = 0


@jit
def _in_one_granule(address, nbytes, m):
    """Do a poll and the write that has become visible touch the same granule?"""
    last, written = (address + nbytes - 1) // GRANULE_BYTES, (m[X_A] + m[X_B] - 1) // GRANULE_BYTES
    return address // GRANULE_BYTES <= written and m[X_A] // GRANULE_BYTES <= last


@jit
def _draw_start(space, run, policy, seed, number):
    """What a run by a policy draws at its start: the keys of the actors, and when `pct` lowers one."""
    st, m, rng = space[1], space[2], run[0]
    seed_draws(rng, seed, policy, number)
    for a in range(st[N_ACTIVE] * ACTORS_PER_CORE):
        run[4][a] = draw_key(policy, rng)
        run[5][a] = 0
    for i in range(st[N_ACTIVE]):
        run[6][i] = 0
    if policy == P_SKEW:
        draw_dies(space, run)
    m[LOWEST] = 0
    for c in range(m[DEPTH] - 1):
        run[7][c] = draw_below(rng, m[LENGTH])
    if m[FAULT]:
        draw_fault(space, run)


@jit
def _one_run(space, run, policy, seed, number, forget):
    """One run by a policy; the actions are in the log, ``m[TAKEN]`` of them.  A run that gets long goes on fairly."""
    st, m = space[1], space[2]
    begin(space, run, forget)
    judge_as_asked(m)
    _draw_start(space, run, policy, seed, number)
    taken = 0
    code = TAKEN_OK
    while code == TAKEN_OK:
        if taken < run[8].size and m[FAULT]:
            broken = strike(space, run, taken)
            if broken:
                run[8][taken] = broken
                taken += 1
                continue
        if st[N_LIVE] == 0:
            code = ended(space, run)
        elif taken == run[8].size or goes_on_for_ever(space, run, taken):
            code = FOUND_LIVELOCK
        else:
            live = st[N_LIVE]
            code = _advance(space, run, policy if taken < m[FAIR_AFTER] else P_RANDOM, taken)
            if code == TAKEN_OK:
                code = returned(space, run, live)
            if code != FOUND_DEADLOCK:
                taken += 1
            elif again_now(space):
                code = TAKEN_OK
    m[TAKEN] = taken
    result = forgiven(space, run, code)
    count_ending(space, run, code, result)
    return result


@part
def many_runs(space, run, policy, seed, first, end, forgets):
    """Runs number ``first`` to ``end`` - 1, up to one that finds something or needs larger arrays; returns its code.

    Each forgets what the one before has found out about synchronizations, if ``forgets``.  ``m[NEXT_NUMBER]`` is the
    number of that run, ``m[SCHEDULES]`` counts those that are finished and ``m[TOTAL]`` their actions.
    """
    m = space[2]
    for number in range(first, end):
        m[NEXT_NUMBER] = number
        code, forget = RESTART, forgets
        while code == RESTART:
            code = _one_run(space, run, policy, seed, number, forget)
            forget = False
        if code == GROW:
            return code
        m[SCHEDULES] += 1
        m[TOTAL] += m[TAKEN]
        if code != RUN_DONE:
            return code
    m[NEXT_NUMBER] = end
    return RUN_DONE
