"""Replays part of a schedule, skipping what is not enabled: the compiled half of shrinking.

An action's choice counts from what happens to be queued or in flight, so it means something else once earlier actions
are dropped.  Here an action is named by what it does (`identify`) and found again by that (`locate`): the transfer
by its addresses, the delivery by who wrote where.  Of several alike it means the oldest, which is the only one that can
go first.  The actions of a scalar unit are just its next, or an answer to it.
"""

from xccl_emu.check.device import fault_actions
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REQUEST
from xccl_emu.machine.device import flight
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.pipes import entry_of, pipe_of
from xccl_emu.machine.device.policies import n_actors, nth_actor
from xccl_emu.machine.device.single import act_once
from xccl_emu.machine.device.words import jit

NAME_WORDS = 6
"""Words of an action's name: actor, kind, choice (or sub-transfer), and three on what it is about."""

ACTOR, KIND, CHOICE, WHAT, WHERE, FURTHER = range(6)
"""These words.  What it is about: operation and first operands, addresses and event of a descriptor, core and address
of a write, code of a fault."""

RAW, NEXT, HEAD, TRANSFER, DESCRIPTOR, DELIVERY, FAULT, FAULTY_DELIVERY, ANSWER = range(9)
"""Kinds: the very choice; the actor's next; the head of an in-order queue; a sub-transfer of mtu-in or DMA; a write;
what breaks; a write with which something breaks; an answer, which is no other request's choice."""

NOWHERE = -1
"""No action: as a fault it would be of kind 0, and there is none."""

QUANTUM = 64
"""Actions of one actor before the next has its turn: a kernel that looks again and again must not starve others."""

DONE, FAILED, STUCK, OPEN = range(4)
"""How an attempt ended."""


@jit
def _name(name, actor, kind, choice, what, where, further):
    name[ACTOR], name[KIND], name[CHOICE] = actor, kind, choice
    name[WHAT], name[WHERE], name[FURTHER] = what, where, further


@jit
def identify(st, code, name):
    """Name an action that is about to be taken."""
    if code < 0:
        _identify_fault(st, code, name)
        return
    actor, choice = code >> ms.CHOICE_BITS, code & ms.CHOICE_ALL
    core, pipe = actor // ms.ACTORS_PER_CORE, actor % ms.ACTORS_PER_CORE
    _name(name, actor, NEXT, choice, 0, 0, 0)
    if core >= st[ms.N_CORES]:
        ring = flight.block_of_die(st, actor - st[ms.N_CORES] * ms.ACTORS_PER_CORE)
        if choice < st[ring + ms.FLIGHT_COUNT]:
            entry = flight.flight(st, ring, choice)
            _name(name, actor, DELIVERY, 0, st[entry + ms.FLIGHT_CORE], st[entry + ms.FLIGHT_ADDRESS], 0)
    elif pipe == rq.DMA:
        if choice != ms.CHOICE_ALL and choice & 15 < ms.N_DMA_SLOTS:
            slot = flight.block_of_core(st, core) + ms.DMA_SLOTS + (choice & 15) * ms.ENTRY_WORDS
            source, target, event = st[slot + ops.DMA.source], st[slot + ops.DMA.target], st[slot + ops.DMA.event]
            _name(name, actor, DESCRIPTOR, choice >> 4, source, target, event)
    elif pipe != rq.SCALAR:
        queue = pipe_of(flight.block_of_core(st, core), pipe)
        j = choice & 15 if pipe == rq.MTU_IN and choice != ms.CHOICE_ALL else 0
        if j < st[queue + ms.PIPE_COUNT]:
            entry = entry_of(st, queue, j)
            subtransfer = st[entry] == rq.OP_MTU_IN and choice != ms.CHOICE_ALL
            kind, chosen = (TRANSFER, choice >> 4) if subtransfer else (HEAD, choice)
            _name(name, actor, kind, chosen, st[entry], st[entry + ops.FIRST], st[entry + ops.SECOND])
    elif _is_asked(st, flight.block_of_core(st, core)):
        _name(name, actor, ANSWER, 0 if choice == ms.CHOICE_ALL else choice, 0, 0, 0)


@jit
def _is_asked(st, base):
    """Does a core stand at `choose`?"""
    return st[base + ms.STATUS] == ms.STATUS_RUNNING and st[base + REQUEST] == rq.OP_CHOOSE


@jit
def _identify_fault(st, code, name):
    """Name what breaks; the choice is one that nobody makes coarser."""
    actor = st[ms.N_CORES] * ms.ACTORS_PER_CORE + fault_actions.die_of(code)
    _name(name, actor, FAULT, ms.CHOICE_ALL, code, 0, 0)
    if fault_actions.carries(code):
        ring, k = flight.block_of_die(st, fault_actions.die_of(code)), fault_actions.other_of(code)
        if k < st[ring + ms.FLIGHT_COUNT]:
            entry = flight.flight(st, ring, k)
            word = fault_actions.kind_of(code) | fault_actions.bit_of(code) << 4
            _name(
                name,
                actor,
                FAULTY_DELIVERY,
                ms.CHOICE_ALL,
                st[entry + ms.FLIGHT_CORE],
                st[entry + ms.FLIGHT_ADDRESS],
                word,
            )


@jit
def _oldest(st, die, core, address):
    """Place of the oldest write in flight of a core to an address, or -1."""
    ring, found = flight.block_of_die(st, die), -1
    for k in range(st[ring + ms.FLIGHT_COUNT] - 1, -1, -1):
        entry = flight.flight(st, ring, k)
        if st[entry + ms.FLIGHT_CORE] == core and st[entry + ms.FLIGHT_ADDRESS] == address:
            found = k
    return found


@jit
def locate(st, name):
    """Return the action of that name in the present state, or `NOWHERE`; it may still not be enabled."""
    actor, kind, choice = name[ACTOR], name[KIND], name[CHOICE]
    core, die, found = actor // ms.ACTORS_PER_CORE, actor - st[ms.N_CORES] * ms.ACTORS_PER_CORE, -1
    if kind == FAULT:
        return name[WHAT]
    if kind == RAW or kind == NEXT:
        found = choice
    elif kind == ANSWER:
        found = choice if _is_asked(st, flight.block_of_core(st, core)) else -1
    elif kind == DELIVERY or kind == FAULTY_DELIVERY:
        found = _oldest(st, die, name[WHAT], name[WHERE])
        if found >= 0 and kind == FAULTY_DELIVERY:
            return ~(name[FURTHER] & 15 | die << 4 | found << 20 | name[FURTHER] >> 4 << 36)
    elif kind == DESCRIPTOR:
        found = _descriptor(st, flight.block_of_core(st, core) + ms.DMA_SLOTS, name)
    else:
        queue = pipe_of(flight.block_of_core(st, core), actor % ms.ACTORS_PER_CORE)
        for j in range(st[queue + ms.PIPE_COUNT] if kind == TRANSFER else min(1, st[queue + ms.PIPE_COUNT])):
            entry = entry_of(st, queue, j)
            same = st[entry] == name[WHAT] and st[entry + ops.FIRST] == name[WHERE]
            same = same and st[entry + ops.SECOND] == name[FURTHER]
            if found < 0 and same and (kind == HEAD or st[entry + ms.ENTRY_PROGRESS] >= 0):
                found = choice if kind == HEAD else j | choice << 4
    return actor << ms.CHOICE_BITS | found if found >= 0 else NOWHERE


@jit
def _descriptor(st, slots, name):
    for k in range(ms.N_DMA_SLOTS):
        slot = slots + k * ms.ENTRY_WORDS
        same = st[slot + ops.DMA.source] == name[WHAT] and st[slot + ops.DMA.target] == name[WHERE]
        same = same and st[slot + ops.DMA.event] == name[FURTHER]
        if st[slot] != 0 and same and st[slot + ms.ENTRY_PROGRESS] != flight.DMA_READ_DONE:
            return k | name[CHOICE] << 4
    return -1


@jit
def _all_deliveries(st, name):
    """Return whether a name means all that a die has in flight, which is taken apart so that each can be dropped."""
    core, whole = name[ACTOR] // ms.ACTORS_PER_CORE, name[KIND] == RAW and name[CHOICE] == ms.CHOICE_ALL
    return whole and core >= st[ms.N_CORES] and st[ms.ORDER] != ms.ORDER_SC


@jit
def _next_of(st, actor):
    """All that an actor can do next; of a die from which something is cut off, the first write that is not."""
    die = actor - st[ms.N_CORES] * ms.ACTORS_PER_CORE
    if st[ms.FAULT_CUT] == 0 or die < 0:
        return actor << ms.CHOICE_BITS | ms.CHOICE_ALL
    for k in range(st[flight.block_of_die(st, die) + ms.FLIGHT_COUNT]):
        if fault_actions.may_arrive(st, die, k) and flight.deliverable(st, die, k):
            return actor << ms.CHOICE_BITS | k
    return NOWHERE


@jit
def _act(mem, st, code):
    """Take an action, if it is enabled and nothing is cut off that it needs."""
    if code < 0:
        return fault_actions.act_fault(mem, st, code)
    actor, choice = code >> ms.CHOICE_BITS, code & ms.CHOICE_ALL
    die = actor - st[ms.N_CORES] * ms.ACTORS_PER_CORE
    if st[ms.FAULT_CUT] and die >= 0:
        if choice >= st[flight.block_of_die(st, die) + ms.FLIGHT_COUNT] or not fault_actions.may_arrive(
            st, die, choice
        ):
            return False
    return act_once(mem, st, actor, choice)


@jit
def attempt(mem, st, names, finish, codes, taken_names):
    """Take the named actions [n, NAME_WORDS] that are enabled when their turn comes, up to a violation.

    With ``finish`` go on after them, each actor as far as it gets, until nothing is enabled.  Puts what it took into
    ``codes`` [m] and ``taken_names`` [m, NAME_WORDS], at most m; returns (how many, how it ended).
    """
    i = taken = idle = turn = stay = 0
    total = n_actors(st)
    while st[ms.ERROR] == 0 and st[ms.N_LIVE] > 0 and taken < codes.size:
        planned = i < len(names)
        if planned:
            code = locate(st, names[i])
            again = _all_deliveries(st, names[i])
            if again:
                code = code & ~ms.CHOICE_ALL
        elif finish and idle < total:
            code = _next_of(st, nth_actor(st, turn % total))
            again = False
        else:
            break
        done = False
        if code != NOWHERE:
            identify(st, code, taken_names[taken])
            done = _act(mem, st, code)
            if done or st[ms.ERROR] != 0:
                codes[taken] = code
                taken += 1
        if planned:
            i += 0 if again and done else 1
        else:
            idle = 0 if done else idle + 1
            stay = stay + 1 if done and stay < QUANTUM else 0
            turn += 1 if stay == 0 else 0
    if st[ms.ERROR] != 0:
        return taken, FAILED
    if st[ms.N_LIVE] == 0:
        return taken, DONE
    return taken, STUCK if finish and idle >= total else OPEN
