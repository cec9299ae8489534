"""The compiled half of `machine.explore`: states expanded, distinguished by fingerprints, put aside and put back."""

import numpy as np

from xccl_emu.lang.requests import SCALAR
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.actions import choices, evicts, nth_choice
from xccl_emu.machine.device.flight import block_of_core, flight
from xccl_emu.machine.device.pipes import entry_of
from xccl_emu.machine.device.policies import n_actors, nth_actor
from xccl_emu.machine.device.single import act_once
from xccl_emu.machine.device.sites import note_came, waits_at
from xccl_emu.machine.device.words import jit

ERROR_WORDS = ms.ERROR_B + 1 - ms.ERROR
STACK, STATES, TRANSITIONS, DEADLOCKS, OUTCOMES, ERRORS, SLICE = range(7)
"""What is counted; `SLICE`: what is left to do."""

ENDED, STACK_FULL, TABLE_FULL, ROWS_FULL, PAUSED = range(5)
"""Why the search stops."""

MEMORY, PLAIN, QUEUE, FLIGHTS, UNHASHED = range(5)
"""Kinds of the parts of the state that can change."""

_SEED_1, _PRIME_1, _SHIFT_1 = np.uint64(0x243F6A8885A308D3), np.uint64(0x9E3779B97F4A7C15), np.uint64(29)
_PLACE = np.uint64(0xD1342543DE82EF95)
_SEED_2, _PRIME_2, _SHIFT_2 = np.uint64(0x13198A2E03707344), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(32)


@jit
def search(space, parts, observed, stack, table, outcomes, errors, counted, sites, max_states):
    """Expand states from the stack until none is left, the limit is met, or something is full.

    Row 0 of the stack is the state that is being expanded; the rows after it wait.
    """
    mem, st, mem64, st64 = space
    actors = n_actors(st)
    while counted[STACK] > 0 and counted[STATES] <= max_states:
        if counted[SLICE] == 0:
            return PAUSED
        counted[SLICE] -= 1
        restore(space, parts, stack, counted[STACK])
        possible = 1
        for a in range(actors):
            possible += choices(st, nth_actor(st, a))
        if counted[STACK] + possible >= stack.shape[0]:
            return STACK_FULL
        if 2 * (counted[STATES] + possible) >= table.shape[0]:
            return TABLE_FULL
        if max(counted[OUTCOMES], counted[ERRORS]) + possible >= outcomes.shape[0]:
            return ROWS_FULL
        counted[STACK] -= 1
        if st[ms.N_LIVE] == 0:
            for i in range(observed.shape[0]):
                word = observed[i, 1]
                outcomes[counted[OUTCOMES], i] = np.int64(mem64[word] if observed[i, 0] else st64[word])
            counted[OUTCOMES] += 1
            continue
        save(space, parts, stack, 0)
        stuck = True
        for a in range(actors):
            actor, able = nth_actor(st, a), False
            for n in range(choices(st, actor)):
                choice = nth_choice(st, actor, n)
                if act_once(mem, st, actor, choice) or st[ms.ERROR] != 0:
                    able = able or not evicts(st, actor, choice)
                    counted[TRANSITIONS] += 1
                    if st[ms.ERROR] == 0:
                        push(space, parts, stack, table, counted)
                    else:
                        for i in range(ERROR_WORDS):
                            errors[counted[ERRORS], i] = st[ms.ERROR + i]
                        counted[ERRORS] += 1
                    restore(space, parts, stack, 0)
            _note_site(st, sites, actor, able)
            stuck = stuck and not able
        if stuck:
            counted[DEADLOCKS] += 1
    return ENDED


@jit
def _note_site(st, sites, actor, able):
    """Note to which site an actor has come, and whether it waits there."""
    core, pipe = actor // ms.ACTORS_PER_CORE, actor % ms.ACTORS_PER_CORE
    if core >= st[ms.N_CORES]:
        return
    base = block_of_core(st, core)
    if st[base + ms.STATUS] == ms.STATUS_RUNNING:
        if pipe == SCALAR:
            note_came(st, base, sites)
        waits = -1 if able else waits_at(st, base, pipe)
        if waits >= 0:
            sites[waits] |= ms.MAY_WAIT


@jit
def push(space, parts, stack, table, counted):
    """Put the present state on the stack if it is new."""
    one, two = fingerprint(space, parts)
    if _add(table, one, two):
        counted[STATES] += 1
        counted[STACK] += 1
        save(space, parts, stack, counted[STACK])


@jit
def save(space, parts, rows, row):
    _, _, mem64, st64 = space
    to = 0
    for p in range(parts.shape[0]):
        words, first, n = mem64 if parts[p, 0] == MEMORY else st64, parts[p, 1], parts[p, 2]
        for i in range(n):
            rows[row, to + i] = words[first + i]
        to += n


@jit
def restore(space, parts, rows, row):
    _, _, mem64, st64 = space
    source = 0
    for p in range(parts.shape[0]):
        words, first, n = mem64 if parts[p, 0] == MEMORY else st64, parts[p, 1], parts[p, 2]
        for i in range(n):
            words[first + i] = rows[row, source + i]
        source += n


@jit
def place_of(table, one, two):
    """Return where a fingerprint is in the hash set, or would be (open addressing; zeros are free places)."""
    last = table.shape[0] - 1
    place = np.int64(one & np.uint64(last))
    while (table[place, 0] != 0 or table[place, 1] != 0) and (table[place, 0] != one or table[place, 1] != two):
        place = (place + 1) & last
    return place


@jit
def _add(table, one, two):
    """Add a fingerprint to the hash set; False if it is there already."""
    place = place_of(table, one, two)
    if table[place, 0] == one and table[place, 1] == two:
        return False
    table[place, 0] = one
    table[place, 1] = two
    return True


@jit
def add_all(table, larger):
    """The larger hash set, with all that was in the smaller one."""
    for i in range(table.shape[0]):
        if table[i, 0] != 0 or table[i, 1] != 0:
            _add(larger, table[i, 0], table[i, 1])
    return larger


@jit
def _mix(one, two, word):
    """Append a word to both halves of a fingerprint."""
    one = (one ^ word) * _PRIME_1
    two = (two + word) * _PRIME_2
    return one ^ (one >> _SHIFT_1), two ^ (two >> _SHIFT_2)


@jit
def _mix_words(one, two, words, first, n):
    """Append words with their places, but for zeros, which most are."""
    for i in range(first, first + n):
        if words[i] != 0:
            one, two = _mix(one, two, words[i] + np.uint64(i) * _PLACE)
    return one, two


@jit
def fingerprint(space, parts):
    """128 bits of everything that the rest of the run, or its outcome, can depend on."""
    _, st, mem64, st64 = space
    one, two = _SEED_1, _SEED_2
    for p in range(parts.shape[0]):
        kind, first = parts[p, 0], parts[p, 1]
        one, two = _mix(one, two, np.uint64(p))
        if kind == MEMORY:
            one, two = _mix_words(one, two, mem64, first, parts[p, 2])
        elif kind == PLAIN:
            one, two = _mix_words(one, two, st64, first, parts[p, 2])
        elif kind == QUEUE:
            one, two = _mix(one, two, st64[first + ms.PIPE_COUNT])
            for j in range(st[first + ms.PIPE_COUNT]):
                for i in range(ms.ENTRY_WORDS):
                    one, two = _mix(one, two, st64[entry_of(st, first, j) + i])
        elif kind == FLIGHTS:
            sum_1, sum_2 = _flights(st, st64, first)
            one, two = _mix(one, two, sum_1)
            one, two = _mix(one, two, sum_2)
    return one, two


@jit
def _flights(st, st64, ring):
    """Sum over a die's writes in flight: each with how many are older than it, where that matters."""
    sum_1, sum_2 = np.uint64(0), np.uint64(0)
    for k in range(st[ring + ms.FLIGHT_COUNT]):
        entry = flight(st, ring, k)
        rank = 0
        for j in range(k):
            rank += _ordered(st, flight(st, ring, j), entry)
        one, two = _mix(_SEED_2, _SEED_1, np.uint64(rank))
        for i in range(st[ms.FLIGHT_WORDS]):
            if i != ms.FLIGHT_SITE:
                one, two = _mix(one, two, st64[entry + i])
        sum_1 += one
        sum_2 += two
    return sum_1, sum_2


@jit
def _ordered(st, older, younger):
    """1 if it matters which of two writes of a die in flight is older (written again here, not taken from `flight`)."""
    one, other = st[older + ms.FLIGHT_ADDRESS], st[younger + ms.FLIGHT_ADDRESS]
    if st[ms.ORDER] == ms.ORDER_FIFO:
        return 1 if one >> st[ms.DIE_SHIFT] == other >> st[ms.DIE_SHIFT] else 0
    same_die = one >> st[ms.DIE_SHIFT] == other >> st[ms.DIE_SHIFT]
    ordered = st[ms.REQUEST_ORDERS] | st[ms.SOME_SIGNAL]
    if ordered and same_die and st[older + ms.FLIGHT_CORE] == st[younger + ms.FLIGHT_CORE]:
        by_core = max(st[older + ms.FLIGHT_KIND], st[younger + ms.FLIGHT_KIND]) < ms.KIND_DMA
        asked = (st[older + ms.FLIGHT_FENCES] | st[younger + ms.FLIGHT_FENCES]) >> ms.ASKED_SHIFT
        if by_core and asked:
            return 1
    atomic = 1 << st[ms.ATOMIC_SHIFT]
    end, end_other = one + st[older + ms.FLIGHT_NBYTES], other + st[younger + ms.FLIGHT_NBYTES]
    apart = (end - 1) // atomic < other // atomic or (end_other - 1) // atomic < one // atomic
    if apart or st[older + ms.FLIGHT_CORE] != st[younger + ms.FLIGHT_CORE]:
        return 0
    kind, kind_other = st[older + ms.FLIGHT_KIND], st[younger + ms.FLIGHT_KIND]
    if st[ms.ORDER] == ms.ORDER_UNORDERED:  # a load sees the youngest of its core's stores in flight, all the same
        return 1 if kind == ms.KIND_SCALAR and kind_other == ms.KIND_SCALAR else 0
    return 1 if max(kind, ms.KIND_ADD_ROW) == max(kind_other, ms.KIND_ADD_ROW) else 0
