"""The search itself: depth first over all states, each once; and random walks of the same moves."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device import edge, frames, run_local
from xccl_emu.check.search.device.clocks import block_of, core_of, forget_all
from xccl_emu.check.search.device.granules import freeze
from xccl_emu.check.search.device.kept import touch_core
from xccl_emu.check.search.device.linked import find_race, run_local_all, transition
from xccl_emu.check.search.device.moves import number_of
from xccl_emu.check.search.device.races import any_before, any_late, any_signalled, first_wrong
from xccl_emu.check.search.device.record import deliver_latent
from xccl_emu.lang import operations as ops
from xccl_emu.lang.abi import REQUEST
from xccl_emu.machine.device import flight, tentative
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.flight import block_of_core
from xccl_emu.machine.device.words import call, jit, load_i64, prefetch

IMPOSSIBLE, ALONE, FOLLOWED = range(3)
"""What a delivery can be: forbidden now by the memory order; all that happens; made, since more may follow."""


@call
def foresee(mem, st, ck, die):
    """Put on the log what each write in flight would lead to, two words each: as above, and the fingerprint.

    Returns where they are.  An entry of the log that puts nothing back holds them, as long as the search is in the
    state or further on.
    """
    n, ahead = st[flight.block_of_die(st, die) + ms.FLIGHT_COUNT], ck[cs.LOG]
    if ahead + 2 * n + 2 > ck[cs.LOG_END]:
        ck[cs.LIMIT] = cs.LIMIT_LOG
        return ahead
    for k in range(n):
        possible, alone = flight.deliverable(st, die, k), _only_delivers(st, ck, die, k)
        ck[ahead + 2 * k] = (ALONE if alone else FOLLOWED) if possible else IMPOSSIBLE
        ck[ahead + 2 * k + 1] = _hash_delivered(mem, st, ck, die, k) if possible and alone else 0
    ck[ahead + 2 * n], ck[ahead + 2 * n + 1] = 0, 2 * n << 4 | cs.NOTHING | cs.RAW
    ck[cs.LOG] = ahead + 2 * n + 2
    return ahead


@jit
def _only_delivers(st, ck, die, k):
    """Does nothing follow when the k-th write in flight becomes visible, and is it of whole words or within one?

    What may follow (`run_local._deliver`): a core goes on, a mark ends, a write comes after its owners' return, or
    meets a tentative read.
    """
    entry = flight.flight(st, flight.block_of_die(st, die), k)
    core, address, nbytes = st[entry + ms.FLIGHT_CORE], st[entry + ms.FLIGHT_ADDRESS], st[entry + ms.FLIGHT_NBYTES]
    base = flight.block_of_core(st, core)
    if st[entry + ms.FLIGHT_KIND] >= ms.KIND_ADD_ROW or (
        st[ms.CACHE_LINES] and st[entry + ms.FLIGHT_KIND] == ms.KIND_SCALAR
    ):
        return False
    if (address | nbytes) & 7 and (address & 7) + nbytes > 8:
        return False
    if st[base + ms.IN_FLIGHT] == 1 and ops.DRAINS >> st[base + REQUEST] & 1:
        return False
    i = number_of(ck, core)
    if st[ms.N_LIVE] < st[ms.N_ACTIVE] and any_late(st, ck, i, address, nbytes):
        return False
    if flight.part_of(st, entry) == ms.IS_SIGNAL:
        number = flight.signals_before(st, flight.block_of_die(st, die), k, core, address) + 1
        if any_signalled(st, ck, block_of(ck, i), address, number):
            return False
    for m in range(ck[cs.N] if st[ms.SOME_TENTATIVE] else 0):
        if tentative.reads(st, flight.block_of_core(st, core_of(ck, ck[ck[cs.MEMBERS] + m])), address, nbytes):
            return False
    return not any_before(st, ck, block_of(ck, i), address, flight.fences_since(st, entry))


@jit
def _hash_delivered(mem, st, ck, die, k):
    """Return the fingerprint after a delivery that nothing follows."""
    ring = flight.block_of_die(st, die)
    entry = flight.flight(st, ring, k)
    left = flight.block_of_core(st, st[entry + ms.FLIGHT_CORE]) + ms.IN_FLIGHT
    hash_ = cs.unsigned(ck[cs.HASH]) + cs.delivered_hash(st, ring, k) + _written(mem, st, entry)
    return cs.signed(hash_ + cs.changed(left << 2 | cs.STATE, st[left], st[left] - 1))


@jit
def _written(mem, st, entry):
    """Return what the bytes of a write change."""
    address, nbytes, data = st[entry + ms.FLIGHT_ADDRESS], st[entry + ms.FLIGHT_NBYTES], entry + ms.FLIGHT_DATA
    if (address | nbytes) & 7:
        before = load_i64(mem, address & ~7)
        return cs.changed(address >> 3 << 2 | cs.MEMORY, before, flight.overlay(before, st[data], address & 7, nbytes))
    change = np.uint64(0)
    for w in range(nbytes >> 3):
        before = load_i64(mem, address + 8 * w)
        after = before + st[data] if st[entry + ms.FLIGHT_KIND] == ms.KIND_ADD else st[data + w]
        change += cs.changed((address >> 3) + w << 2 | cs.MEMORY, before, after)
    return change


# ---- the search


ENDED, PAUSED, TABLE_FULL = range(3)


class StatesKnown(NamedTuple):
    """What a search knows of states; the last two are empty where no transitions are kept."""

    table: NDArray[np.uint64]
    """The hash set of their fingerprints."""
    opened: frames.Opened
    ids: NDArray[np.int64]
    """The number of each state, in its place of the table."""
    edges: NDArray[np.int64]
    """Transitions, [n, `edge.WORDS`]; what spared cores do is left out."""


@jit
def place_of(table, one):
    """Return the place of a fingerprint in the hash set, or the free place where it would be (open addressing)."""
    last = np.uint64(table.size - 1)
    place = one & last
    while table[np.int64(place)] != 0 and table[np.int64(place)] != one:
        place = (place + np.uint64(1)) & last
    return np.int64(place)


@jit
def _is_in(table, hash_):
    """Return whether a fingerprint is in the hash set."""
    one = frames.as_kept(hash_)
    return table[place_of(table, one)] == one


@cs.entry
def begin(mem, st, ck, rows, named):
    """Bring every core of the search to where only transitions are left."""
    ck[cs.TOUCHED] = 0
    everyone = 0
    for m in range(ck[cs.N]):
        i = ck[ck[cs.MEMBERS] + m]
        forget_all(ck, block_of(ck, i))
        everyone |= 1 << i
    for m in range(ck[cs.N]):
        if not run_local.over(ck):
            touch_core(st, ck, ck[ck[cs.MEMBERS] + m])
            run_local_all(mem, st, ck, rows, named, ck[ck[cs.MEMBERS] + m])
    if not ck[cs.LIMIT] and not ck[cs.RESTART]:
        find_race(mem, st, ck, rows, named, everyone)
    ck[cs.DEPTH] = 0
    frames.open_frame(ck)


@jit
def n_processes(st, ck):
    """Pipes of the cores that are searched, then the dies that deliver."""
    return ck[cs.N] * run_local.PER_CORE + (ck[cs.N_DIES_HERE] if st[ms.ORDER] != ms.ORDER_SC else 0)


@cs.entry
def depth_first(mem, st, ck, rows, named, known, budget):
    """Go on with a search for some transitions; `ENDED`, `PAUSED`, or `TABLE_FULL` when ``known`` must grow."""
    taken = 0
    while ck[cs.DEPTH] >= 0 and not run_local.over(ck):
        if known.ids.size and ck[cs.N_EDGES] + edge.ROOM > known.edges.shape[0]:  # ends are kept on the way back too
            return TABLE_FULL
        frame = ck[cs.FRAMES] + ck[cs.DEPTH] * frames.WORDS
        process, n = ck[frame + frames.PROCESS], ck[frame + frames.N]
        if n >= ck[frame + frames.CHOICES]:
            if _next_process(mem, st, ck, named, frame):
                continue
            if not _back(mem, st, ck, known, frame):
                return ENDED
            continue
        if taken >= budget or ck[cs.STATES] > ck[cs.STATES_MAX]:
            return PAUSED
        if 2 * ck[cs.STATES] >= known.table.size or frames.are_many(ck, known.opened):
            return TABLE_FULL
        passed = _pass_known(mem, st, ck, known, frame)
        if passed:
            taken += passed
            continue
        ck[frame + frames.N] = n + 1
        optional = run_local.need_not_happen(st, ck, process, n)
        if not transition(mem, st, ck, rows, named, process, n):
            continue
        taken += 1
        ck[frame + frames.ANY] |= 1 - (optional & 1)
        ck[cs.TRANSITIONS] += 1
        n_states = ck[cs.STATES]
        new = not run_local.over(ck) and find_or_add(known.table, known.ids, ck[cs.HASH], n_states) == n_states
        if new or ck[cs.VIOLATION]:
            run_local.find_races(mem, st, ck, rows, named)
        if run_local.over(ck):
            return ENDED
        if not optional:
            _keep(ck, known, frame, n, ck[cs.HASH])
        if new:
            ck[cs.STATES] = n_states + 1
            ck[cs.DEPTH] += 1
            frames.open_frame(ck)
            frames.enter(ck, known.opened)
        else:
            frames.meet(st, ck, known.opened, frame, ck[cs.HASH])
            cs.step_back(mem, st, ck, ck[frame + frames.MARK])
            ck[cs.HASH] = ck[frame + frames.HASH]
    return ENDED


@cs.entry
def move_all(table, ids, larger, larger_ids):
    """Copy a hash set, and the numbers of states if there are any, into a larger one."""
    for i in range(table.size):
        if table[i] != 0:
            place = place_of(larger, table[i])
            larger[place] = table[i]
            if ids.size:
                larger_ids[place] = ids[i]


@jit
def find_or_add(table, ids, hash_, new):
    """Return the number of a state: ``new`` if it was not known, and is now; of a known one -1 if none are kept."""
    one = frames.as_kept(cs.unsigned(hash_))
    place = place_of(table, one)
    if table[place] == one:
        return ids[place] if ids.size else -1
    table[place] = one
    if ids.size:
        ids[place] = new
    return new


@jit
def _keep(ck, known, frame, choice, hash_):
    """Keep the transition of a frame to a known state, if transitions are kept and no spared core makes it."""
    process = ck[frame + frames.PROCESS]
    m = process // run_local.PER_CORE
    if known.ids.size and (m >= ck[cs.N] or not ck[cs.SPARED] >> ck[ck[cs.MEMBERS] + m] & 1):
        to = known.ids[place_of(known.table, frames.as_kept(cs.unsigned(hash_)))]
        edge.add(ck, known.edges, ck[frame + frames.ID], to, process, choice)


@jit
def keep_ends(st, ck, edges, state, moved):
    """Keep in what ways a run may end in the present state; ``moved`` if something must happen there."""
    if ck[cs.SPARED] and all_done(st, ck, ck[cs.SPARED]):
        edge.add(ck, edges, state, -1, edge.RETURNED, -1)
    if any_gives_up(st, ck, ck[cs.SPARED]):
        edge.add(ck, edges, state, -1, edge.RETURNED if ck[cs.SPARED] else -1, -1)
    if not moved:
        edge.add(ck, edges, state, -1, -1, -1)


@jit
def _next_process(mem, st, ck, named, frame):
    """Go on to the next process of a state that has a choice; False if there is none."""
    process, last, choices = ck[frame + frames.PROCESS] + 1, n_processes(st, ck), 0
    while process < last and choices == 0:
        choices = run_local.n_tried(mem, st, ck, named, process)
        process += 1
    ck[frame + frames.PROCESS], ck[frame + frames.N], ck[frame + frames.CHOICES] = process - 1, 0, choices
    return choices != 0


@jit
def _pass_known(mem, st, ck, known, frame):
    """Go past deliveries, from the frame's choice on, that lead to known states; returns how many choices these are."""
    first, process = ck[frame + frames.N], ck[frame + frames.PROCESS]
    if process < ck[cs.N] * run_local.PER_CORE or ck[cs.JOINING] or ck[cs.RECORDING]:
        return 0
    die = ck[ck[cs.DIES] + process - ck[cs.N] * run_local.PER_CORE]
    if first == 0:
        ck[frame + frames.AHEAD] = foresee(mem, st, ck, die)
        if ck[cs.LIMIT]:  # the log is full, and nothing was foreseen
            return 0
        ck[frame + frames.MARK] = ck[cs.LOG]
    n, end, ahead = first, ck[frame + frames.CHOICES], ck[frame + frames.AHEAD]
    for k in range(n, end):
        prefetch(known.table, ck[ahead + 2 * k + 1] & known.table.size - 1)
    while n < end and ck[ahead + 2 * n] != FOLLOWED:
        if ck[ahead + 2 * n] == ALONE:
            if not _is_in(known.table, cs.unsigned(ck[ahead + 2 * n + 1])):
                break
            ck[frame + frames.ANY] = 1
            ck[cs.TRANSITIONS] += 1
            ck[cs.ACTIONS] += 1
            _keep(ck, known, frame, n, ck[ahead + 2 * n + 1])
            frames.meet(st, ck, known.opened, frame, ck[ahead + 2 * n + 1])
        n += 1
    ck[frame + frames.N] = n
    return n - first


@jit
def _back(mem, st, ck, known, frame):
    """Leave a state that is done with, and judge it if it is an end; False if that is wrong."""
    if not ck[frame + frames.ANY]:
        judge_end(mem, st, ck)
    if ck[cs.VIOLATION]:
        return False
    if known.ids.size:
        keep_ends(st, ck, known.edges, ck[frame + frames.ID], ck[frame + frames.ANY])
    frames.leave(ck, known.opened, frame, not ck[frame + frames.ANY] or any_gives_up(st, ck, 0))
    if ck[cs.DEPTH] >= 0:
        before = frame - frames.WORDS
        cs.step_back(mem, st, ck, ck[before + frames.MARK])
        ck[cs.HASH] = ck[before + frames.HASH]
    return True


@call
def all_done(st, ck, spared):
    """Return whether all cores that are searched have returned, but for some: a bit of ``spared`` each."""
    for m in range(ck[cs.N]):
        i = ck[ck[cs.MEMBERS] + m]
        if not spared >> i & 1 and st[block_of_core(st, core_of(ck, i)) + ms.STATUS] != ms.STATUS_DONE:
            return False
    return True


@call
def any_gives_up(st, ck, spared):
    """Has a core that is searched come to a failure that ends the run without blame, but for some, a bit each?"""
    for m in range(ck[cs.N] if ck[cs.GIVES_UP] else 0):
        i = ck[ck[cs.MEMBERS] + m]
        if not spared >> i & 1 and run_local.gives_up(st, ck, block_of_core(st, core_of(ck, i))):
            return True
    return False


@call
def judge_end(mem, st, ck):
    """Nothing can go on: has a core given up, or are all kernels done, and is what they should have left there?"""
    if any_gives_up(st, ck, 0):
        return
    if not all_done(st, ck, 0):
        cs.accuse(ck, cs.DEADLOCK, 0)
        return
    for e in range(ck[cs.N_EXPECTED]):
        wrong = first_wrong(mem, ck, ck[cs.EXPECTED_BASE] + cs.EXPECTED_WORDS * e)
        if wrong >= 0:
            ck[cs.WITNESS], ck[cs.WITNESS + 1] = e, wrong
            cs.accuse(ck, cs.WRONG_BITS, cs.WORDS_OF_BITS)
            return


@cs.entry
def walk(mem, st, ck, rows, named, budget):
    """Take random transitions, ``budget`` at most: to learn who uses what.  Returns whether it can go on."""
    for _ in range(budget):
        violation = ck[cs.VIOLATION]
        if violation == cs.RACE or violation == cs.RACE_INSIDE or violation == cs.TOO_EARLY:
            ck[cs.VIOLATION], ck[cs.RESTART] = 0, 1  # after it, somebody may synchronize on these bytes, or use others
        if ck[cs.VIOLATION] or ck[cs.LIMIT]:
            return False
        ck[cs.LOG] = ck[cs.LOG_BASE]
        while ck[cs.RESTART]:  # something new was seen: go on with what is local now
            freeze(st, ck)
            ck[cs.RESTART], ck[cs.TOUCHED] = 0, 0
            for m in range(ck[cs.N]):
                touch_core(st, ck, ck[ck[cs.MEMBERS] + m])
                run_local_all(mem, st, ck, rows, named, ck[ck[cs.MEMBERS] + m])
            ck[cs.LOG] = ck[cs.LOG_BASE]
        processes = n_processes(st, ck)
        first, moved = _draw(ck, processes), False
        for k in range(processes):
            process = (first + k) % processes
            n = run_local.n_choices(st, ck, process)
            start = _draw(ck, n) if n else 0
            for c in range(n):
                if run_local.go(mem, st, ck, rows, named, process, (start + c) % n):
                    moved = True
                    break
            if moved:
                break
        if not moved and ck[cs.RESTART] == 0:
            return False
    return True


@jit
def _draw(ck, n):
    """A number from 0 to n-1 (two combined congruential generators)."""
    ck[cs.WALK_1] = ck[cs.WALK_1] * 40014 % 2147483563
    ck[cs.WALK_2] = ck[cs.WALK_2] * 40692 % 2147483399
    return (ck[cs.WALK_1] - ck[cs.WALK_2]) % 2147483562 % n


@cs.entry
def follow(mem, st, ck, rows, named, path):
    """Take the transitions of a path, [n, 2] process and choice; returns how many could be taken."""
    for k in range(path.shape[0]):
        ck[cs.LOG] = ck[cs.LOG_BASE]
        if not run_local.go(mem, st, ck, rows, named, path[k, 0], path[k, 1]):
            return k
        if run_local.over(ck):
            return k + 1
    return path.shape[0]


@cs.entry
def judge_here(mem, st, ck):
    """`judge_end` of the state in which a path ends."""
    judge_end(mem, st, ck)


@cs.entry
def make_visible(mem, st, ck):
    """While a path is recorded: make visible what the search took to be so."""
    for m in range(ck[cs.N]):
        deliver_latent(mem, st, ck, core_of(ck, ck[ck[cs.MEMBERS] + m]))
