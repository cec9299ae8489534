"""Many runs of a trial, one after the other, each by a policy and under watch; and the replay of one.

`run` is (rng, candidates, candidate keys, candidate serials, actor keys, asleep, loads, changes, log, start, parts,
expected, expected bytes): scratch of the policies, the actions of the run, and what a run begins and ends with.
"""

from xccl_emu.check.monitor_calls import call, part
from xccl_emu.check.monitor_clocks import clear_row, dma_row, engine_word, group_row, index_of, pipe_row, sync_row
from xccl_emu.check.monitor_layout import (
    BAD_ACTION,
    CAPACITY,
    CORE_NUMBER,
    DEPTH,
    DIE_INDEX,
    DMA_EPOCHS,
    FAIR_AFTER,
    FOUND_DEADLOCK,
    FOUND_LIVELOCK,
    FOUND_WRONG,
    FREE_ROWS,
    GENERATION,
    GROW,
    JUDGE_NOTHING,
    JUDGED,
    LENGTH,
    LOWEST,
    N_DMA,
    N_GROUPS,
    N_SYNC,
    N_SYNC_KNOWN,
    N_UNDO,
    NEXT_NUMBER,
    NOT_ENABLED,
    P_PCT,
    P_RANDOM,
    RECORD_FREE,
    RECORD_TOP,
    RESTART,
    RUN_CUT,
    RUN_DONE,
    S_FIXED,
    SCHEDULES,
    SERIAL,
    SHADOW_WORDS,
    STOP,
    SYNC_PIECES,
    SYNC_SHIFT,
    TAKEN,
    TAKEN_OK,
    TOTAL,
    UNDO_WORDS,
    V_AT,
    V_SITE,
    WATCHED,
    X_A,
    X_C,
    X_FLIGHTS,
    X_OP,
)
from xccl_emu.check.policies.draw import draw_below, seed_draws
from xccl_emu.check.policies.pick import draw_key, pick, which
from xccl_emu.lang.abi import REQUEST
from xccl_emu.lang.requests import (
    DMA,
    MTU_IN,
    MTU_OUT,
    OP_ARRIVE,
    OP_ATOMIC_ADD,
    OP_LOAD,
    OP_MTU_IN,
    OP_POLL,
    OP_STORE,
    OP_UB_LOAD,
    SCALAR,
    VECTOR,
)
from xccl_emu.machine.flight import DMA_READ_DONE, block_of_core, block_of_die
from xccl_emu.machine.layout import (
    ACTIVE_BASE,
    ACTORS_PER_CORE,
    CHOICE_ALL,
    CHOICE_BITS,
    DIE,
    DMA_SLOTS,
    ENTRY_PROGRESS,
    ENTRY_WORDS,
    FLIGHT_COUNT,
    N_ACTIVE,
    N_ACTIVE_DIES,
    N_CORES,
    N_DMA_SLOTS,
    N_LIVE,
    ORDER,
    ORDER_SC,
    PIECE_BYTES,
    PIPE_COUNT,
    STATUS,
    STATUS_RUNNING,
)
from xccl_emu.machine.pipes import entry_of, n_grains, pipe_of
from xccl_emu.machine.words import jit, store_i64

SPINNING = 16
"""So many loads of a core's scalar unit, one after the other and nothing else, look like waiting."""

_READ_DONE = -1


# ---- the beginning and the end of a run


@jit
def begin(space, run, forget):
    """Put the trial back to its start; with ``forget``, also what an earlier run found out about synchronizations."""
    undo_writes(space)
    st, m, clocks = space[1], space[2], space[3]
    start, parts = run[9], run[10]
    source = 0
    for p in range(parts.shape[0]):
        for i in range(parts[p, 0], parts[p, 0] + parts[p, 1]):
            st[i] = start[source]
            source += 1
    m[GENERATION] += 1
    m[RECORD_TOP], m[RECORD_FREE], m[STOP], m[SERIAL] = 1, 0, 0, 0
    if forget:
        _forget_syncs(space)
    for number in range(m[N_SYNC]):
        for word in range(4):
            clear_row(m, clocks, sync_row(m, number, word << 3))
    for group in range(m[N_GROUPS]):
        for which_row in range(3):
            clear_row(m, clocks, group_row(m, group, which_row))
    for i in range(st[N_ACTIVE]):
        for pipe in range(SCALAR, MTU_OUT + 1):
            clear_row(m, clocks, pipe_row(m, i, pipe))
            clocks[pipe_row(m, i, pipe) + engine_word(m, i, pipe)] = 1
        for k in range(m[N_DMA]):
            clear_row(m, clocks, dma_row(m, i, k))
            m[m[DMA_EPOCHS] + i * N_DMA_SLOTS + k] = 0
    for d in range(st[N_ACTIVE_DIES]):
        stack = m[FREE_ROWS] + d * (m[CAPACITY] + 1)
        m[stack] = m[CAPACITY]
        for k in range(m[CAPACITY]):
            m[stack + 1 + k] = k


@jit
def undo_writes(space):
    """Put back every piece of memory that the last run has written."""
    mem, m, undo = space[0], space[2], space[6]
    for u in range(m[N_UNDO]):
        place = u * UNDO_WORDS
        for w in range(4):
            store_i64(mem, undo[place] * PIECE_BYTES + 8 * w, undo[place + 1 + w])
    m[N_UNDO] = 0


@jit
def _forget_syncs(space):
    m, shadow = space[2], space[4]
    for number in range(m[N_SYNC_KNOWN], m[N_SYNC]):
        shadow[m[m[SYNC_PIECES] + number] * SHADOW_WORDS + S_FIXED] &= (1 << SYNC_SHIFT) - 1
    m[N_SYNC] = m[N_SYNC_KNOWN]


@jit
def _ended(space, run):
    """All kernels have returned: `RUN_DONE`, or `FOUND_WRONG` with the first wrong byte and which range it is of."""
    mem, m, expected, data = space[0], space[2], run[11], run[12]
    for e in range(expected.shape[0]):
        for b in range(expected[e, 1]):
            if mem[expected[e, 0] + b] != data[expected[e, 2] + b]:
                m[V_AT], m[V_SITE] = expected[e, 0] + b, e
                return FOUND_WRONG
    return RUN_DONE


# ---- one action


@jit
def _live(st, base, pipe):
    """How many grains, or flags, of mtu-in or DMA may be taken now."""
    total = 0
    if pipe == DMA:
        for k in range(N_DMA_SLOTS):
            slot = base + DMA_SLOTS + k * ENTRY_WORDS
            if st[slot] != 0 and st[slot + ENTRY_PROGRESS] != DMA_READ_DONE:
                total += _missing(n_grains(st[slot + 1], st[slot + 2], st[slot + 3]), st[slot + ENTRY_PROGRESS])
        return total
    queue = pipe_of(base, MTU_IN)
    for j in range(st[queue + PIPE_COUNT]):
        entry = entry_of(st, queue, j)
        if st[entry] != OP_MTU_IN:
            return total + (1 if j == 0 else 0)
        if st[entry + ENTRY_PROGRESS] != _READ_DONE:
            total += _missing(n_grains(st[entry + 1], st[entry + 1], st[entry + 3]), st[entry + ENTRY_PROGRESS])
    return total


@jit
def _missing(grains, mask):
    n = grains
    while mask:
        n -= mask & 1
        mask >>= 1
    return n


@jit
def _nth_missing(mask, n):
    g = 0
    while True:
        if not mask >> g & 1:
            if n == 0:
                return g
            n -= 1
        g += 1


@jit
def _nth_live(st, base, pipe, n):
    """The choice that is the n-th of `_live`."""
    queue = pipe_of(base, MTU_IN)
    for j in range(N_DMA_SLOTS if pipe == DMA else st[queue + PIPE_COUNT]):
        entry = base + DMA_SLOTS + j * ENTRY_WORDS if pipe == DMA else entry_of(st, queue, j)
        if pipe == MTU_IN and st[entry] != OP_MTU_IN:
            return j
        if st[entry] == 0 or st[entry + ENTRY_PROGRESS] == _READ_DONE:
            continue
        target = st[entry + 2] if pipe == DMA else st[entry + 1]
        missing = _missing(n_grains(st[entry + 1], target, st[entry + 3]), st[entry + ENTRY_PROGRESS])
        if n < missing:
            return j | _nth_missing(st[entry + ENTRY_PROGRESS], n) << 4
        n -= missing
    return 0


@jit
def _gather(space, run, policy):
    """List the candidates; returns how many, and how many of them are of cores."""
    st, m, flights, keys = space[1], space[2], space[7], space[8]
    candidates, keys_now, serials, actor_keys, asleep = run[1], run[2], run[3], run[4], run[5]
    n = 0
    for i in range(st[N_ACTIVE]):
        base = block_of_core(st, m[m[CORE_NUMBER] + i])
        for pipe in range(ACTORS_PER_CORE):
            a = i * ACTORS_PER_CORE + pipe
            if asleep[a] or not _busy(st, m, base, pipe):
                continue
            candidates[n] = m[m[CORE_NUMBER] + i] * ACTORS_PER_CORE + pipe
            keys_now[n] = actor_keys[a]
            n += 1
    n_cores = n
    for d in range(st[N_ACTIVE_DIES] if m[CAPACITY] else 0):
        die = st[st[ACTIVE_BASE] + st[N_ACTIVE] + d]
        for k in range(st[block_of_die(st, die) + FLIGHT_COUNT]):
            candidates[n] = (st[N_CORES] * ACTORS_PER_CORE + die) << CHOICE_BITS | k
            keys_now[n] = keys[d * m[CAPACITY] + k]
            serials[n] = flights[(d * m[CAPACITY] + k) * 2 + 1]
            n += 1
    return n, n_cores


@jit
def _busy(st, m, base, pipe):
    """May a pipe have something to do?"""
    if pipe == SCALAR:
        return st[base + STATUS] == STATUS_RUNNING
    if pipe == DMA:
        for k in range(m[N_DMA]):
            if st[base + DMA_SLOTS + k * ENTRY_WORDS]:
                return True
        return False
    return st[pipe_of(base, pipe) + PIPE_COUNT] != 0


@jit
def _advance(space, run, policy, n_taken):
    """Take the action that the policy chooses; `FOUND_DEADLOCK` if there is none."""
    m, rng = space[2], run[0]
    candidates, keys_now, serials = run[1], run[2], run[3]
    n, n_cores = _gather(space, run, policy)
    rested = False
    while True:
        if n == 0:
            if rested:
                return FOUND_DEADLOCK
            rested = True  # whoever slept has another try, so that a wake-up too few is no deadlock
            for a in range(run[5].size):
                run[5][a] = 0
            n, n_cores = _gather(space, run, policy)
            continue
        first, end = which(policy, n_cores, n)
        c = pick(policy, rng, keys_now, serials, first, end, n_cores)
        if policy == P_PCT and _is_change(run[7], m[DEPTH] - 1, n_taken):
            _lower(space, run, candidates[c], c < n_cores)
            keys_now[c] = m[LOWEST] * 1.0
            c = pick(policy, rng, keys_now, serials, first, end, n_cores)
        code, choice = _try(space, run, candidates[c], c < n_cores)
        if code != NOT_ENABLED:
            run[8][n_taken] = (candidates[c] << CHOICE_BITS | choice) if c < n_cores else candidates[c]
            if code == TAKEN_OK:
                _follow(space, run, policy, candidates[c], c < n_cores)
            return code
        n, n_cores = _drop(space, run, c, n, n_cores)


@jit
def _is_change(changes, n, at):
    """Is this one of the steps at which `pct` lowers a priority?  Each counts once."""
    for c in range(n):
        if changes[c] == at:
            changes[c] = -1
            return True
    return False


@jit
def _lower(space, run, candidate, of_core):
    """Give a candidate a priority below all others."""
    st, m, keys = space[1], space[2], space[8]
    m[LOWEST] -= 1
    if of_core:
        core, pipe = candidate // ACTORS_PER_CORE, candidate % ACTORS_PER_CORE
        run[4][index_of(m, core) * ACTORS_PER_CORE + pipe] = m[LOWEST] * 1.0
    else:
        die = (candidate >> CHOICE_BITS) - st[N_CORES] * ACTORS_PER_CORE
        keys[m[m[DIE_INDEX] + die] * m[CAPACITY] + (candidate & 0xFFFF)] = m[LOWEST] * 1.0


@jit
def _try(space, run, candidate, of_core):
    """Let a candidate act; returns the code and the choice. The grains of a transfer go in any order."""
    st, m = space[1], space[2]
    actor, choice, choices = candidate, 0, 1
    base, pipe = 0, SCALAR
    if of_core:
        base, pipe = block_of_core(st, candidate // ACTORS_PER_CORE), candidate % ACTORS_PER_CORE
        if pipe == MTU_IN or pipe == DMA:
            choices = _live(st, base, pipe)
    else:
        actor, choice = candidate >> CHOICE_BITS, candidate & 0xFFFF
    first = draw_below(run[0], choices) if choices > 1 else 0
    for c in range(choices):
        if pipe == MTU_IN or pipe == DMA:
            choice = _nth_live(st, base, pipe, (first + c) % choices)
        code = call(m[WATCHED], space, actor, choice)
        if code != NOT_ENABLED:
            return code, choice
    if of_core:
        run[5][index_of(m, candidate // ACTORS_PER_CORE) * ACTORS_PER_CORE + pipe] = 1
    return NOT_ENABLED, 0


@jit
def _drop(space, run, c, n, n_cores):
    """Strike a candidate that cannot act."""
    candidates, keys_now, serials = run[1], run[2], run[3]
    hole = c
    if c < n_cores:
        n_cores -= 1
        candidates[c], keys_now[c] = candidates[n_cores], keys_now[n_cores]
        hole = n_cores
    n -= 1
    candidates[hole], keys_now[hole], serials[hole] = candidates[n], keys_now[n], serials[n]
    return n, n_cores


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
    if pipe == SCALAR:
        run[6][i] = run[6][i] + 1 if op == OP_LOAD or op == OP_UB_LOAD else 0
        if run[6][i] >= SPINNING and policy == P_PCT:
            run[6][i] = 0
            _lower(space, run, candidate, True)


@jit
def _wake_after_delivery(space, run):
    """A write became visible: whoever polls its piece may go on, and all on the writer's die (room, fences)."""
    st, m, asleep = space[1], space[2], run[5]
    die = st[block_of_core(st, m[X_C]) + DIE]
    for i in range(st[N_ACTIVE]):
        base = block_of_core(st, m[m[CORE_NUMBER] + i])
        if st[base + DIE] == die:
            for p in range(ACTORS_PER_CORE):
                asleep[i * ACTORS_PER_CORE + p] = 0
        elif st[base + REQUEST] == OP_POLL and st[base + REQUEST + 1] // PIECE_BYTES == m[X_A] // PIECE_BYTES:
            asleep[i * ACTORS_PER_CORE] = 0


# ---- runs


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
    m[LOWEST] = 0
    for c in range(m[DEPTH] - 1):
        run[7][c] = draw_below(rng, m[LENGTH])


@jit
def _one_run(space, run, policy, seed, number, forget):
    """One run by a policy; the actions are in the log, ``m[TAKEN]`` of them.  A run that gets long goes on fairly."""
    st, m = space[1], space[2]
    begin(space, run, forget)
    _draw_start(space, run, policy, seed, number)
    taken = 0
    code = TAKEN_OK
    while code == TAKEN_OK:
        if st[N_LIVE] == 0:
            code = _ended(space, run)
        elif taken == run[8].size:
            code = FOUND_LIVELOCK
        else:
            code = _advance(space, run, policy if taken < m[FAIR_AFTER] else P_RANDOM, taken)
            if code != FOUND_DEADLOCK:
                taken += 1
    m[TAKEN] = taken
    return code


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


@part
def replay_run(space, run, actions):
    """Take recorded actions, up to one that finds something; `BAD_ACTION` if one is not enabled.

    Where they end, the run has ended too, or is stuck, or could go on (`RUN_CUT`, or livelock if it is that long);
    to find out, an action more is taken, if there is one.
    """
    m = space[2]
    code, forget = RESTART, True
    while code == RESTART:
        code = _replay(space, run, actions, forget)
        forget = False
    if code != TAKEN_OK:
        return code
    if space[1][N_LIVE] == 0:
        return _ended(space, run)
    if m[TAKEN] >= run[8].size:
        return FOUND_LIVELOCK
    judged, m[JUDGED] = m[JUDGED], JUDGE_NOTHING
    seed_draws(run[0], 0, 0, 0)
    for a in range(run[5].size):
        run[5][a] = 0
    n, n_cores = _gather(space, run, P_RANDOM)
    code = NOT_ENABLED
    for c in range(n):
        if code == NOT_ENABLED:
            code, _ = _try(space, run, run[1][c], c < n_cores)
    m[JUDGED] = judged
    return FOUND_DEADLOCK if code == NOT_ENABLED else RUN_CUT


@jit
def _replay(space, run, actions, forget):
    m = space[2]
    begin(space, run, forget)
    m[TAKEN] = 0
    for a in range(actions.size):
        code = _take(space, actions[a] >> CHOICE_BITS, actions[a] & CHOICE_ALL)
        if code == NOT_ENABLED:
            return BAD_ACTION
        m[TAKEN] = a + 1
        if code != TAKEN_OK:
            return code
    return TAKEN_OK


@jit
def _take(space, actor, choice):
    """One action; one that stands for all of a transfer, or all of a die's writes, as the actions it stands for."""
    st, m = space[1], space[2]
    if actor < 0:
        return NOT_ENABLED
    pipe = actor % ACTORS_PER_CORE
    of_core = actor < st[N_CORES] * ACTORS_PER_CORE
    whole = choice == CHOICE_ALL and not (of_core and (pipe == SCALAR or pipe == VECTOR))
    first, last, step = choice, choice, 1
    queue, count = -1, 0
    if whole:
        first, last = 0, 0 if of_core else 1 << 30
        base = block_of_core(st, actor // ACTORS_PER_CORE) if of_core else 0
        if of_core and pipe == MTU_OUT:
            queue = pipe_of(base, MTU_OUT)
            count, last = st[queue + PIPE_COUNT], 1 << 30
        elif of_core:
            first, last = _grains_left(st, base, pipe)
            step = 16
    code = NOT_ENABLED
    c = first
    while c <= last and (code == NOT_ENABLED or code == TAKEN_OK):
        more = call(m[WATCHED], space, actor, c if step > 1 or not whole else 0)
        if more != NOT_ENABLED:
            code = more
        elif step == 1:
            break
        if queue >= 0 and st[queue + PIPE_COUNT] != count:
            break
        c += step
    return code


@jit
def _grains_left(st, base, pipe):
    """First and last choice for all that is left of the transfer that comes next."""
    if pipe == MTU_IN:
        queue = pipe_of(base, MTU_IN)
        entry = entry_of(st, queue, 0)
        if st[queue + PIPE_COUNT] == 0 or st[entry] != OP_MTU_IN:
            return 0, 0
        return 0, n_grains(st[entry + 1], st[entry + 1], st[entry + 3]) - 1 << 4
    for k in range(N_DMA_SLOTS):
        slot = base + DMA_SLOTS + k * ENTRY_WORDS
        if st[slot] != 0 and st[slot + ENTRY_PROGRESS] != DMA_READ_DONE:
            return k, k | n_grains(st[slot + 1], st[slot + 2], st[slot + 3]) - 1 << 4
    return 0, 0
