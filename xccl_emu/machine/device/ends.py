"""The compiled half of `machine.ends`: the graph of a machine, and what each of its states can come to."""

import numpy as np

from xccl_emu.machine.device import explore
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.actions import choices, evicts, nth_choice
from xccl_emu.machine.device.flight import block_of_core
from xccl_emu.machine.device.policies import n_actors, nth_actor
from xccl_emu.machine.device.single import act_once
from xccl_emu.machine.device.words import jit

WAITING, STATES, EDGES, ENDS = range(4)
"""What is counted."""

END, DEADLOCK, ERROR = range(3)
"""Kinds of ends."""

FULL, ENDED = range(2)
"""Why a graph grows no more."""


@jit
def meet(space, parts, graph):
    """The number of the present state, from 1 on; one that was not met before waits to be expanded."""
    rows, numbers, table, _, _, counted = graph
    one, two = explore.fingerprint(space, parts)
    place = explore.place_of(table, one, two)
    if table[place, 2] == 0:
        counted[STATES] += 1
        counted[WAITING] += 1
        table[place, 0], table[place, 1], table[place, 2] = one, two, np.uint64(counted[STATES])
        explore.save(space, parts, rows, counted[WAITING])
        numbers[counted[WAITING]] = counted[STATES]
    return np.int64(table[place, 2])


@jit
def meet_all(space, parts, graph, given, met):
    """`meet` each of some states, and write down their numbers."""
    for k in range(given.shape[0]):
        explore.restore(space, parts, given, k)
        met[k] = meet(space, parts, graph)


@jit
def expand(space, parts, graph, observed):
    """Expand states until none waits; `FULL` if there is no room for what one more may lead to.

    Row 0 is the state that is being expanded.  An edge is (from, to), an end (state, kind, words).
    """
    mem, st, _, _ = space
    rows, numbers, table, edges, ends, counted = graph
    actors = n_actors(st)
    while counted[WAITING] > 0:
        explore.restore(space, parts, rows, counted[WAITING])
        possible = 1
        for a in range(actors):
            possible += choices(st, nth_actor(st, a))
        if counted[WAITING] + possible >= rows.shape[0] or 2 * (counted[STATES] + possible) >= table.shape[0]:
            return FULL
        if counted[EDGES] + possible >= edges.shape[0] or counted[ENDS] + possible >= ends.shape[0]:
            return FULL
        state = numbers[counted[WAITING]]
        counted[WAITING] -= 1
        if _returned(st):
            _note_end(space, graph, observed, state, END)
            continue
        explore.save(space, parts, rows, 0)
        stuck = True
        for a in range(actors):
            actor = nth_actor(st, a)
            for n in range(choices(st, actor)):
                choice = nth_choice(st, actor, n)
                if act_once(mem, st, actor, choice) or st[ms.ERROR] != 0:
                    stuck = stuck and evicts(st, actor, choice)
                    if st[ms.ERROR] != 0:
                        _note_end(space, graph, observed, state, ERROR)
                    else:
                        edges[counted[EDGES], 0], edges[counted[EDGES], 1] = state, meet(space, parts, graph)
                        counted[EDGES] += 1
                    explore.restore(space, parts, rows, 0)
        if stuck:
            _note_end(space, graph, observed, state, DEADLOCK)
    return ENDED


@jit
def _returned(st):
    """Have all cores returned?  A search of a part of them does not count who is alive."""
    for a in range(st[ms.N_ACTIVE]):
        if st[block_of_core(st, st[st[ms.ACTIVE_BASE] + a]) + ms.STATUS] != ms.STATUS_DONE:
            return False
    return True


@jit
def _note_end(space, graph, observed, state, kind):
    _, st, mem64, st64 = space
    _, _, _, _, ends, counted = graph
    end = ends[counted[ENDS]]
    end[:] = 0
    end[0], end[1] = state, kind
    if kind == END:
        for i in range(observed.shape[0]):
            word = observed[i, 1]
            end[2 + i] = np.int64(mem64[word] if observed[i, 0] else st64[word])
    elif kind == ERROR:
        for i in range(explore.ERROR_WORDS):
            end[2 + i] = st[ms.ERROR + i]
    counted[ENDS] += 1


@jit
def spread(edges, n, sets):
    """Give each state, by number, the bits of all that its edges lead to."""
    changed = True
    while changed:
        changed = False
        for e in range(n - 1, -1, -1):
            for w in range(sets.shape[1]):
                both = sets[edges[e, 0], w] | sets[edges[e, 1], w]
                changed = changed or both != sets[edges[e, 0], w]
                sets[edges[e, 0], w] = both
