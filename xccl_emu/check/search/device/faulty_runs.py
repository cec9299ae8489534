"""Every run in which one thing breaks, by brute force: the actions of the machine, and what breaks among them.

As `machine.device.explore`, whose states these are, with what has broken added.  Nothing is reduced.
"""

from typing import Any, NamedTuple

import numpy as np

from xccl_emu.check.device import fault_actions, fault_codes, results
from xccl_emu.lang.requests import SCALAR
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.actions import choices, evicts, nth_choice
from xccl_emu.machine.device.explore import fingerprint, restore, save
from xccl_emu.machine.device.flight import block_of_core, block_of_die, flight
from xccl_emu.machine.device.policies import n_actors, nth_actor
from xccl_emu.machine.device.single import act_once
from xccl_emu.machine.device.words import call, jit

(
    STACK, STATES, TRANSITIONS, EDGES, SLICE, FOUND, NODE, CODE, RIGHT, BLOCKED, DECLARED, REFUSED, GIVEN_UP, WHICH,
) = range(14)  # fmt: skip
"""What is counted; what was found, after which state and by which action; how runs ended after a fault; which bytes
are wrong."""

ENDED, STACK_FULL, TABLE_FULL, EDGES_FULL, PAUSED = range(5)
"""Why the search stops."""

WRONG_BITS, DEADLOCK, ERROR_FOUND = range(1, 4)
"""What it finds."""

FAULT, FROM, TO, MAY_BLOCK = range(4)
"""Words of what is asked: the kind of fault, its die, the die that is written to, may cores wait for ever?"""


NO_ACTION = 0
"""As a code: the violation is of the state itself.  (Action 0 can be of the first core only, and is no end.)"""


class Asked(NamedTuple):
    """What a search looks for."""

    words: Any
    """What may break: `FAULT` and so on."""
    stops: Any
    """Declared errors."""
    gives_up: Any
    """Errors that a run may end in without a fault too."""
    expected: Any
    """Rows of what must be in memory (`device.results`)."""
    data: Any
    owners: Any


class Graph(NamedTuple):
    """What a search has come by."""

    stack: Any
    """[n, words] states that wait."""
    ids: Any
    """[n] their numbers."""
    table: Any
    """[n, 3] fingerprints."""
    before: Any
    """[n, 2] for each state the one before it, and the action."""
    edges: Any
    """[n, 4] transitions: from, to (-1: an end), actor and choice; if there is room for any."""


@jit
def search(space, parts, asked, graph, counted, max_states):
    """Expand states until none is left, something is found, a limit is met or something is full."""
    mem, st, _, _ = space
    words = asked.words
    stack, ids, table, _, edges = graph
    while counted[STACK] > 0 and counted[STATES] <= max_states and counted[FOUND] == 0:
        if counted[SLICE] == 0:
            return PAUSED
        restore(space, parts, stack, counted[STACK])
        possible = _possible(st, words)
        if counted[STACK] + possible >= stack.shape[0]:
            return STACK_FULL
        if 2 * (counted[STATES] + possible) >= table.shape[0]:
            return TABLE_FULL
        if edges.shape[0] and counted[EDGES] + possible >= edges.shape[0]:
            return EDGES_FULL
        counted[SLICE] -= 1
        node = ids[counted[STACK]]
        counted[STACK] -= 1
        wrong = _wrong(mem, st, asked)
        if wrong:
            _find(counted, WRONG_BITS, node, NO_ACTION)
            counted[WHICH] = wrong - 1
            return ENDED
        save(space, parts, stack, 0)
        if st[ms.N_LIVE] == 0:
            counted[RIGHT] += 1 if st[ms.FAULT_HAPPENED] else 0
            _edge(edges, counted, node, -1, 0)
            if st[ms.FAULT_COPY + ms.FLIGHT_NBYTES]:
                _try(space, parts, asked, graph, counted, node, ~fault_codes.AGAIN)
            continue
        moved = _expand(space, parts, asked, graph, counted, node)
        if not moved and counted[FOUND] == 0 and fault_actions.all_given_up(st):
            counted[GIVEN_UP] += 1
            _edge(edges, counted, node, -1, 0)
        elif not moved and counted[FOUND] == 0:
            if st[ms.FAULT_HAPPENED] and words[MAY_BLOCK]:
                counted[BLOCKED] += 1
            else:
                _find(counted, DEADLOCK, node, NO_ACTION)
        if counted[FOUND] == 0:
            _break(space, parts, asked, graph, counted, node)
    return ENDED


@jit
def _find(counted, what, node, code):
    counted[FOUND], counted[NODE], counted[CODE] = what, node, code


@jit
def _possible(st, words):
    """Return how many actions are possible at most, what may break among them."""
    possible = 4
    for a in range(n_actors(st)):
        possible += choices(st, nth_actor(st, a))
    if words[FAULT] == fault_codes.F_DUPLICATE or words[FAULT] == fault_codes.F_CORRUPT:
        # An addition is of 8 bytes always
        each = 8 * max(8, 1 << st[ms.ATOMIC_SHIFT]) if words[FAULT] == fault_codes.F_CORRUPT else 1
        possible += each * st[block_of_die(st, words[FROM]) + ms.FLIGHT_COUNT]
    return possible


@jit
def _expand(space, parts, asked, graph, counted, node):
    """Every action of the machine that nothing cuts off; False if there is none, but for evictions."""
    mem, st, _, _ = space
    moved = False
    for a in range(n_actors(st)):
        actor = nth_actor(st, a)
        for n in range(choices(st, actor)):
            choice = nth_choice(st, actor, n)
            if counted[FOUND] or _cut_off(st, actor, choice):
                continue
            if act_once(mem, st, actor, choice) or st[ms.ERROR] != 0:
                moved = moved or not evicts(st, actor, choice)
                code = actor << ms.CHOICE_BITS | choice
                _reached(space, parts, asked, graph, counted, node, code)
                restore(space, parts, graph.stack, 0)
    return moved


@jit
def _cut_off(st, actor, choice):
    """Does an action need a link that is cut?"""
    if st[ms.FAULT_CUT] == 0:
        return False
    core = actor // ms.ACTORS_PER_CORE
    if core >= st[ms.N_CORES]:
        return not fault_actions.may_arrive(st, actor - st[ms.N_CORES] * ms.ACTORS_PER_CORE, choice)
    return actor % ms.ACTORS_PER_CORE == SCALAR and fault_actions.atomic_cut(st, block_of_core(st, core))


@jit
def _break(space, parts, asked, graph, counted, node):
    """Everything that may break here, once in a run, and what follows from it."""
    _, st, _, _ = space
    words = asked.words
    kind, die, to = words[FAULT], words[FROM], words[TO]
    ring = block_of_die(st, die)
    if st[ms.FAULT_COPY + ms.FLIGHT_NBYTES]:
        _try(space, parts, asked, graph, counted, node, ~fault_codes.AGAIN)
    if st[ms.FAULT_HAPPENED] == 0 and fault_codes.AT_ONCE >> kind & 1:
        _try(space, parts, asked, graph, counted, node, ~(fault_codes.ACTIONS[kind] | die << 4 | to << 20))
    elif kind == fault_codes.F_STOP and st[ms.FAULT_CUT] == 0 and st[ring + ms.FLIGHT_COUNT]:
        # What a stopped die has in flight may be lost
        code = ~(fault_codes.CUT | die << 4 | fault_codes.ANY_TARGET << 20)
        _try(space, parts, asked, graph, counted, node, code)
    elif st[ms.FAULT_HAPPENED] == 0:
        for k in range(st[ring + ms.FLIGHT_COUNT]):
            entry = flight(st, ring, k)
            if st[entry + ms.FLIGHT_ADDRESS] >> st[ms.DIE_SHIFT] == to:
                bits = 8 * st[entry + ms.FLIGHT_NBYTES] if kind == fault_codes.F_CORRUPT else 1
                for bit in range(bits):
                    code = ~(
                        (fault_codes.CORRUPT if kind == fault_codes.F_CORRUPT else fault_codes.DUPLICATE)
                        | die << 4
                        | k << 20
                        | bit << 36
                    )
                    _try(space, parts, asked, graph, counted, node, code)


@call
def _try(space, parts, asked, graph, counted, node, code):
    mem, st, _, _ = space
    if counted[FOUND] == 0 and fault_actions.act_fault(mem, st, code):
        _reached(space, parts, asked, graph, counted, node, code)
    restore(space, parts, graph.stack, 0)


@call
def _reached(space, parts, asked, graph, counted, node, code):
    """An action was taken: judge an error, or put the state aside if it is new."""
    _, st, _, _ = space
    stack, ids, table, tree, edges = graph
    counted[TRANSITIONS] += 1
    if st[ms.ERROR] != 0:
        if not _allowed(st, asked):
            _find(counted, ERROR_FOUND, node, code)
        counted[DECLARED if st[ms.ERROR] == ms.ERR_FAIL else REFUSED] += 1
        _edge(edges, counted, node, -1, code)
        return
    one, two = fingerprint(space, parts)
    to = _number(table, one, two, counted)
    _edge(edges, counted, node, to, code)
    if to == counted[STATES]:
        tree[to, 0], tree[to, 1] = node, code
        counted[STATES] += 1
        counted[STACK] += 1
        ids[counted[STACK]] = to
        save(space, parts, stack, counted[STACK])


@jit
def _number(table, one, two, counted):
    """Return the number of a state; a new one is added, and takes the next number."""
    last = table.shape[0] - 1
    place = np.int64(one & np.uint64(last))
    while table[place, 0] != 0 or table[place, 1] != 0:
        if table[place, 0] == one and table[place, 1] == two:
            return np.int64(table[place, 2])
        place = (place + 1) & last
    table[place, 0], table[place, 1], table[place, 2] = one, two, np.uint64(counted[STATES])
    return counted[STATES]


@jit
def move_all(table, larger):
    """Copy the states of a table into a larger one."""
    last = larger.shape[0] - 1
    for i in range(table.shape[0]):
        if table[i, 0] != 0 or table[i, 1] != 0:
            place = np.int64(table[i, 0] & np.uint64(last))
            while larger[place, 0] != 0 or larger[place, 1] != 0:
                place = (place + 1) & last
            for w in range(3):
                larger[place, w] = table[i, w]
    return larger


@jit
def _edge(edges, counted, node, to, code):
    if edges.shape[0]:
        n = counted[EDGES]
        edges[n, 0], edges[n, 1] = node, to
        edges[n, 2], edges[n, 3] = code >> ms.CHOICE_BITS, code & ms.CHOICE_ALL
        counted[EDGES] = n + 1


@jit
def _allowed(st, asked):
    """Return whether the protocol has declared the error, or the machine has seen it after a wrong word."""
    stops = asked.stops if st[ms.FAULT_HAPPENED] else asked.gives_up
    if st[ms.ERROR] != ms.ERR_FAIL:
        return st[ms.FAULT_HAPPENED] & fault_actions.MISLEADING != 0
    for i in range(stops.size):
        if stops[i] == st[ms.ERROR_A]:
            return True
    return False


@jit
def _wrong(mem, st, asked):
    """Return the expectation, from 1 on, of the first wrong byte whose owners have all returned; 0 if none is wrong.

    Rows of ``asked.owners``: which expectation, and the block of a core that owns it.
    """
    what, owners = asked.expected, asked.owners
    for e in range(what.shape[0]):
        due = True
        for i in range(owners.shape[0]):
            due = due and (owners[i, 0] != what[e, results.NUMBER] or st[owners[i, 1] + ms.STATUS] == ms.STATUS_DONE)
        if due and results.first_wrong(mem, what, asked.data, e) >= 0:
            return what[e, results.NUMBER] + 1
    return 0
