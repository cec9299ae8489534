"""The search itself: depth first over all states, each once; and random walks of the same moves."""

import numpy as np

from xccl_emu.check.device.search.checker_state import (
    ACTIONS,
    CYCLES,
    DEADLOCK,
    DEPTH,
    DIES,
    EXPECTED_BASE,
    EXPECTED_WORDS,
    FRAMES,
    FRAMES_END,
    HASH,
    JOINING,
    LIMIT,
    LIMIT_DEPTH,
    LOG,
    LOG_BASE,
    MEMBERS,
    N_DIES_HERE,
    N_EXPECTED,
    ON_PATH,
    ON_PATH_WORDS,
    RACE,
    RACE_INSIDE,
    RECORDING,
    RESTART,
    STATES,
    STATES_MAX,
    TOUCHED,
    TRANSITIONS,
    VIOLATION,
    WALK_1,
    WALK_2,
    WITNESS,
    WORDS_OF_BITS,
    WRONG_BITS,
    N,
    accuse,
    entry,
    step_back,
    unsigned,
)
from xccl_emu.check.device.search.clocks import block_of, core_of, forget_all
from xccl_emu.check.device.search.foreseen import ALONE, FOLLOWED, foresee
from xccl_emu.check.device.search.granules import freeze
from xccl_emu.check.device.search.linked import find_race, run_local_all, transition
from xccl_emu.check.device.search.moves import touch_core
from xccl_emu.check.device.search.races import first_wrong
from xccl_emu.check.device.search.record import deliver_latent
from xccl_emu.check.device.search.run_local import PER_CORE, n_choices, need_not_happen, over
from xccl_emu.machine.device.flight import block_of_core, block_of_die
from xccl_emu.machine.device.layout import FLIGHT_COUNT, ORDER, ORDER_SC, STATUS, STATUS_DONE
from xccl_emu.machine.device.words import call, jit, prefetch

FRAME_PROCESS, FRAME_N, FRAME_MARK, FRAME_HASH, FRAME_ANY, FRAME_AHEAD = range(6)
FRAME_ID = FRAME_ANY  # breadth first: the number of the state
FRAME_WORDS = 6

ENDED, PAUSED, TABLE_FULL = range(3)


@jit
def place_of(table, one):
    """Where a fingerprint stands in the hash set, or the free place where it would (open addressing)."""
    last = np.uint64(table.size - 1)
    place = one & last
    while table[np.int64(place)] != 0 and table[np.int64(place)] != one:
        place = (place + np.uint64(1)) & last
    return np.int64(place)


@jit
def as_kept(hash_):
    """A fingerprint as the hash set has it: 0 is a free place."""
    return hash_ if hash_ != 0 else np.uint64(1)


@jit
def add_to(table, hash_):
    """Add a fingerprint to the hash set; False if it is there already."""
    one = as_kept(hash_)
    place = place_of(table, one)
    if table[place] == one:
        return False
    table[place] = one
    return True


@jit
def _is_in(table, hash_):
    """Is a fingerprint in the hash set?"""
    one = as_kept(hash_)
    return table[place_of(table, one)] == one


@entry
def add_all(table, larger):
    """Copy a hash set into a larger one."""
    for i in range(table.size):
        if table[i] != 0:
            add_to(larger, table[i])


@entry
def begin(mem, st, ck, rows, named):
    """Bring every core of the search to where only transitions are left."""
    ck[TOUCHED] = 0
    everyone = 0
    for m in range(ck[N]):
        i = ck[ck[MEMBERS] + m]
        forget_all(ck, block_of(ck, i))
        everyone |= 1 << i
    for m in range(ck[N]):
        if not over(ck):
            touch_core(st, ck, ck[ck[MEMBERS] + m])
            run_local_all(mem, st, ck, rows, named, ck[ck[MEMBERS] + m])
    if not ck[LIMIT] and not ck[RESTART]:
        find_race(mem, st, ck, rows, named, everyone)
    ck[DEPTH] = 0
    open_frame(ck)


@jit
def _count(ck, change):
    ck[ck[ON_PATH] + (ck[HASH] & ON_PATH_WORDS - 1)] += change


@jit
def open_frame(ck):
    frame = ck[FRAMES] + ck[DEPTH] * FRAME_WORDS
    if frame + 2 * FRAME_WORDS > ck[FRAMES_END]:
        ck[LIMIT] = LIMIT_DEPTH
        return
    ck[frame + FRAME_PROCESS], ck[frame + FRAME_N], ck[frame + FRAME_ANY] = 0, 0, 0
    ck[frame + FRAME_MARK], ck[frame + FRAME_HASH] = ck[LOG], ck[HASH]
    _count(ck, 1)


@jit
def n_processes(st, ck):
    """Pipes of the cores that are searched, then the dies that deliver."""
    return ck[N] * PER_CORE + (ck[N_DIES_HERE] if st[ORDER] != ORDER_SC else 0)


@entry
def depth_first(mem, st, ck, rows, named, table, budget):
    """Go on with a search for some transitions; `ENDED`, `PAUSED`, or `TABLE_FULL` when the hash set must grow."""
    taken = 0
    while ck[DEPTH] >= 0 and not over(ck):
        frame = ck[FRAMES] + ck[DEPTH] * FRAME_WORDS
        process, n = ck[frame + FRAME_PROCESS], ck[frame + FRAME_N]
        if process == n_processes(st, ck):
            if not ck[frame + FRAME_ANY]:
                judge_end(mem, st, ck)
                if ck[VIOLATION]:
                    return ENDED
            _back(mem, st, ck)
            continue
        if n >= n_choices(st, ck, process):
            ck[frame + FRAME_PROCESS], ck[frame + FRAME_N] = process + 1, 0
            continue
        if taken >= budget or ck[STATES] > ck[STATES_MAX]:
            return PAUSED
        if 2 * ck[STATES] >= table.size:
            return TABLE_FULL
        passed = _pass_known(mem, st, ck, table, frame)
        if passed:
            taken += passed
            continue
        ck[frame + FRAME_N] = n + 1
        optional = need_not_happen(st, ck, process, n) & 1
        if not transition(mem, st, ck, rows, named, process, n):
            continue
        taken += 1
        ck[frame + FRAME_ANY] |= 1 - optional
        ck[TRANSITIONS] += 1
        if over(ck):
            return ENDED
        if add_to(table, unsigned(ck[HASH])):
            ck[STATES] += 1
            ck[DEPTH] += 1
            open_frame(ck)
        else:
            _note_cycle(ck, ck[HASH])
            step_back(mem, st, ck, ck[frame + FRAME_MARK])
            ck[HASH] = ck[frame + FRAME_HASH]
    return ENDED


@jit
def _pass_known(mem, st, ck, table, frame):
    """Go past deliveries, from the frame's choice on, that lead to known states; returns how many choices these are."""
    first, process = ck[frame + FRAME_N], ck[frame + FRAME_PROCESS]
    if process < ck[N] * PER_CORE or ck[JOINING] or ck[RECORDING]:
        return 0
    die = ck[ck[DIES] + process - ck[N] * PER_CORE]
    if first == 0:
        ck[frame + FRAME_AHEAD] = foresee(mem, st, ck, die)
        if ck[LIMIT]:  # the log is full, and nothing was foreseen
            return 0
        ck[frame + FRAME_MARK] = ck[LOG]
    n, end, ahead = first, st[block_of_die(st, die) + FLIGHT_COUNT], ck[frame + FRAME_AHEAD]
    for k in range(n, end):
        prefetch(table, ck[ahead + 2 * k + 1] & table.size - 1)
    while n < end and ck[ahead + 2 * n] != FOLLOWED:
        if ck[ahead + 2 * n] == ALONE:
            if not _is_in(table, unsigned(ck[ahead + 2 * n + 1])):
                break
            ck[frame + FRAME_ANY] = 1
            ck[TRANSITIONS] += 1
            ck[ACTIONS] += 1
            _note_cycle(ck, ck[ahead + 2 * n + 1])
        n += 1
    ck[frame + FRAME_N] = n
    return n - first


@jit
def _note_cycle(ck, hash_):
    """Is a state that is known on the path to the present one, or this one itself?  Then the states have a cycle."""
    if ck[CYCLES] or ck[ck[ON_PATH] + (hash_ & ON_PATH_WORDS - 1)] == 0:
        return
    for d in range(ck[DEPTH] + 1):
        if ck[ck[FRAMES] + d * FRAME_WORDS + FRAME_HASH] == hash_:
            ck[CYCLES] = 1


@jit
def _back(mem, st, ck):
    """Leave a state that is done with."""
    _count(ck, -1)
    ck[DEPTH] -= 1
    if ck[DEPTH] >= 0:
        frame = ck[FRAMES] + ck[DEPTH] * FRAME_WORDS
        step_back(mem, st, ck, ck[frame + FRAME_MARK])
        ck[HASH] = ck[frame + FRAME_HASH]


@call
def judge_end(mem, st, ck):
    """Nothing can go on: are all kernels done, and is what they should have left in memory there?"""
    for m in range(ck[N]):
        if st[block_of_core(st, core_of(ck, ck[ck[MEMBERS] + m])) + STATUS] != STATUS_DONE:
            accuse(ck, DEADLOCK, 0)
            return
    for e in range(ck[N_EXPECTED]):
        wrong = first_wrong(mem, ck, ck[EXPECTED_BASE] + EXPECTED_WORDS * e)
        if wrong >= 0:
            ck[WITNESS], ck[WITNESS + 1] = e, wrong
            accuse(ck, WRONG_BITS, WORDS_OF_BITS)
            return


@entry
def walk(mem, st, ck, rows, named, budget):
    """Take random transitions until nothing can go on: to learn who uses what."""
    for _ in range(budget):
        if ck[VIOLATION] == RACE or ck[VIOLATION] == RACE_INSIDE:
            ck[VIOLATION], ck[RESTART] = 0, 1  # behind it, somebody may synchronize on these bytes
        if ck[VIOLATION] or ck[LIMIT]:
            return
        ck[LOG] = ck[LOG_BASE]
        while ck[RESTART]:  # something new was seen: go on with what is local now
            freeze(st, ck)
            ck[RESTART], ck[TOUCHED] = 0, 0
            for m in range(ck[N]):
                touch_core(st, ck, ck[ck[MEMBERS] + m])
                run_local_all(mem, st, ck, rows, named, ck[ck[MEMBERS] + m])
            ck[LOG] = ck[LOG_BASE]
        processes = n_processes(st, ck)
        first, moved = _draw(ck, processes), False
        for k in range(processes):
            process = (first + k) % processes
            n = n_choices(st, ck, process)
            start = _draw(ck, n) if n else 0
            for c in range(n):
                if transition(mem, st, ck, rows, named, process, (start + c) % n):
                    moved = True
                    break
            if moved:
                break
        if not moved and ck[RESTART] == 0:
            return


@jit
def _draw(ck, n):
    """A number from 0 to n-1 (two combined congruential generators)."""
    ck[WALK_1] = ck[WALK_1] * 40014 % 2147483563
    ck[WALK_2] = ck[WALK_2] * 40692 % 2147483399
    return (ck[WALK_1] - ck[WALK_2]) % 2147483562 % n


@entry
def follow(mem, st, ck, rows, named, path):
    """Take the transitions of a path, [n, 2] process and choice; returns how many could be taken."""
    for k in range(path.shape[0]):
        ck[LOG] = ck[LOG_BASE]
        if not transition(mem, st, ck, rows, named, path[k, 0], path[k, 1]):
            return k
        if over(ck):
            return k + 1
    return path.shape[0]


@entry
def judge_here(mem, st, ck):
    """`judge_end` of the state in which a path ends."""
    judge_end(mem, st, ck)


@entry
def make_visible(mem, st, ck):
    """While a path is recorded: make visible what the search took to be so."""
    for m in range(ck[N]):
        deliver_latent(mem, st, ck, core_of(ck, ck[ck[MEMBERS] + m]))
