"""What breaks in a sampled run: when and where, drawn from the schedule's own random numbers."""

from xccl_emu.check.device.fault_actions import (
    MISLEADING,
    act_fault,
    atomic_cut,
    before_arrival,
    carries,
    happened,
    kind_of,
    may_arrive,
    not_arrived,
)
from xccl_emu.check.device.fault_codes import (
    AGAIN,
    ANY_TARGET,
    CORRUPT,
    CUT,
    DUPLICATE,
    F_CORRUPT,
    F_CUT,
    F_DUPLICATE,
    F_STALL,
    F_STOP,
    STOP,
)
from xccl_emu.check.device.monitor.calls import call
from xccl_emu.check.device.monitor.layout import (
    ASKED,
    CAPACITY,
    FAULT,
    FAULT_AT,
    FAULT_FROM,
    FAULT_TO,
    FAULTS,
    FOUND_DEADLOCK,
    FOUND_ERROR,
    FOUND_LIVELOCK,
    GROW,
    JUDGE_NOTHING,
    JUDGED,
    LATER,
    LENGTH,
    MOMENT,
    NOT_ENABLED,
    RESTART,
    RUN_DONE,
    SEEN,
    STRUCK,
    TAKEN_OK,
    WATCHED,
    X_A,
)
from xccl_emu.check.device.monitor.layout import (
    STOP as STOPPED_BY,
)
from xccl_emu.check.device.monitor.shadow import save
from xccl_emu.check.device.sampling.begin import ended
from xccl_emu.check.device.sampling.policies.draw import draw_below
from xccl_emu.lang.abi import REQUEST
from xccl_emu.lang.requests import OP_ATOMIC_ADD
from xccl_emu.machine.device.flight import block_of_core, block_of_die, flight
from xccl_emu.machine.device.layout import (
    ACTORS_PER_CORE,
    CHOICE_ALL,
    CHOICE_BITS,
    DIE,
    DIE_SHIFT,
    ERR_FAIL,
    ERROR,
    ERROR_A,
    FAULT_COPY,
    FAULT_CUT,
    FAULT_HAPPENED,
    FLIGHT_ADDRESS,
    FLIGHT_NBYTES,
    N_CORES,
)
from xccl_emu.machine.device.words import jit

ENDED_RIGHT, ENDED_BLOCKED, ENDED_REFUSED, ENDED_DECLARED = range(4)
"""Places of the counts of how runs ended in which something broke: the cores that did not stop returned; some waited
for ever; the machine refused what followed a wrong word; and from the last one on, a declared error each."""

NEVER = 1 << 60
LONGER = 8
"""A run in which something broke may take so many times the usual; whoever still looks again then waits for ever."""


@jit
def draw_fault(space, run):
    """What a run draws at its start: after how many actions something breaks."""
    m = space.m
    m[SEEN], m[STRUCK], m[LATER] = 0, 0, NEVER
    m[MOMENT] = draw_below(run.rng, m[LENGTH])
    if m[FAULT] == F_STOP:
        m[MOMENT] = draw_below(run.rng, m[MOMENT] + 1)  # more often early, when more has still to come


@jit
def watched_fault(space, code):
    """Take the action of a negative code under watch; as `watched`."""
    mem, st, m = space.mem, space.st, space.m
    kind = kind_of(code)
    if carries(code):
        if not before_arrival(st, code):
            return NOT_ENABLED
        actor = st[N_CORES] * ACTORS_PER_CORE + (~code >> 4 & 0xFFFF)
        result = call(m[WATCHED], space, actor, ~code >> 20 & 0xFFFF)
        if result == NOT_ENABLED:
            not_arrived(st, code)
            return NOT_ENABLED
        happened(st, kind)
    else:
        if kind == AGAIN and st[FAULT_COPY + FLIGHT_NBYTES] != 0:
            save(space, st[FAULT_COPY + FLIGHT_ADDRESS], st[FAULT_COPY + FLIGHT_NBYTES])
        if not act_fault(mem, st, code):
            return NOT_ENABLED
        result = m[STOPPED_BY] if m[STOPPED_BY] else TAKEN_OK
    if st[FAULT_HAPPENED] & MISLEADING:
        m[JUDGED] = JUDGE_NOTHING
    return result


@jit
def _code(kind, die, other, bit):
    return ~(kind | die << 4 | other << 20 | bit << 36)


@jit
def strike(space, run, n_taken):
    """Let break what is due before the next action: the code of that action, or 0."""
    m = space.m
    kind, code = m[FAULT], 0
    if kind == F_STALL:
        _let_through_in_time(m, n_taken)
        return 0
    due = m[SEEN] >= m[FAULT_AT] if m[FAULT_AT] >= 0 else n_taken >= m[MOMENT]
    if n_taken >= m[LATER]:
        m[LATER] = NEVER
        code = _code(AGAIN, 0, 0, 0) if kind == F_DUPLICATE else _code(CUT, m[FAULT_FROM], ANY_TARGET, 0)
    elif m[STRUCK] == 0 and due and (kind == F_STOP or kind == F_CUT):
        m[STRUCK] = 1
        code = _code(STOP, m[FAULT_FROM], 0, 0)
        if kind == F_CUT:
            code = _code(CUT, m[FAULT_FROM], m[FAULT_TO], 0)
    if code == 0 or watched_fault(space, code) == NOT_ENABLED:
        return 0
    _note(space, run, n_taken)
    return code


@jit
def _let_through_in_time(m, n_taken):
    """A stalled link lets a write through after as many actions as a run has, because some cores never stop looking."""
    if m[SEEN] != m[MOMENT] or m[LATER] == NEVER:
        m[MOMENT], m[LATER] = m[SEEN], n_taken + m[LENGTH]
    elif n_taken >= m[LATER]:
        m[STRUCK] = 1


@jit
def _note(space, run, n_taken):
    """Something broke: draw what follows, and wake everybody."""
    m, rng = space.m, run.rng
    if m[STRUCK] == 1:
        m[STRUCK] = 2
        if m[FAULT] == F_DUPLICATE or (m[FAULT] == F_STOP and m[CAPACITY] and draw_below(rng, 4)):
            m[LATER] = n_taken + (draw_below(rng, m[LENGTH]) >> draw_below(rng, 10))  # soon, or much later
    for a in range(run.asleep.size):
        run.asleep[a] = 0


@jit
def again_now(space):
    """If a copy is still to become visible, let it do so next; False if there is none."""
    m = space.m
    if m[FAULT] != F_DUPLICATE or m[LATER] == NEVER:
        return False
    m[LATER] = 0
    return True


@jit
def strikes_write(space, candidate, n_taken):
    """Return whether a write in flight, about to become visible, is the one that is duplicated or corrupted."""
    st, m = space.st, space.m
    if m[FAULT] < F_DUPLICATE or m[STRUCK] or not _on_link(st, m, candidate):
        return False
    return m[SEEN] + 1 == m[FAULT_AT] if m[FAULT_AT] >= 0 else n_taken >= m[MOMENT]


@jit
def _on_link(st, m, candidate):
    die = (candidate >> CHOICE_BITS) - st[N_CORES] * ACTORS_PER_CORE
    if die != m[FAULT_FROM]:
        return False
    entry = flight(st, block_of_die(st, die), candidate & CHOICE_ALL)
    return st[entry + FLIGHT_ADDRESS] >> st[DIE_SHIFT] == m[FAULT_TO]


@jit
def deliver_struck(space, run, candidate, n_taken):
    """Let a write become visible, duplicated or corrupted; returns what it came to and its code."""
    st, m = space.st, space.m
    die, k = (candidate >> CHOICE_BITS) - st[N_CORES] * ACTORS_PER_CORE, candidate & CHOICE_ALL
    kind, bit = DUPLICATE, 0
    if m[FAULT] == F_CORRUPT:
        kind = CORRUPT
        bit = draw_below(run.rng, 8 * st[flight(st, block_of_die(st, die), k) + FLIGHT_NBYTES])
    code = _code(kind, die, k, bit)
    result = watched_fault(space, code)
    if result == TAKEN_OK:
        m[STRUCK] = 1
        _note(space, run, n_taken)
    return result, code


@jit
def count(space, candidate, of_core):
    """Count an action of the die that is to stop, or a write over the link."""
    st, m = space.st, space.m
    if of_core:
        if m[FAULT] == F_STOP and st[block_of_core(st, candidate // ACTORS_PER_CORE) + DIE] == m[FAULT_FROM]:
            m[SEEN] += 1
    else:
        die = (candidate >> CHOICE_BITS) - st[N_CORES] * ACTORS_PER_CORE
        if die == m[FAULT_FROM] and m[X_A] >> st[DIE_SHIFT] == m[FAULT_TO]:
            m[SEEN] += 1
            if m[FAULT] == F_STALL:
                m[STRUCK] = 0


@jit
def holds(st, m):
    """Return whether anything is held back now, by a cut or a stalled link."""
    return st[FAULT_CUT] != 0 or (m[FAULT] == F_STALL and m[STRUCK] == 0)


@jit
def held(st, m, die, k):
    """Return whether the k-th write in flight of a die is held back."""
    if m[FAULT] == F_STALL and m[STRUCK] == 0:
        return _on_link(st, m, (st[N_CORES] * ACTORS_PER_CORE + die) << CHOICE_BITS | k)
    return not may_arrive(st, die, k)


@jit
def atomic_held(st, m, base):
    """Does a core wait for an atomic that is held back?"""
    if m[FAULT] == F_STALL and m[STRUCK] == 0:
        there = st[base + DIE] == m[FAULT_FROM] and st[base + REQUEST] == OP_ATOMIC_ADD
        return there and st[base + REQUEST + 1] >> st[DIE_SHIFT] == m[FAULT_TO]
    return atomic_cut(st, base)


@jit
def let_through(m):
    """Nothing else can go on: a stalled link lets one write through. False if there is none, or it has its turn."""
    if m[FAULT] != F_STALL or m[STRUCK]:
        return False
    m[STRUCK] = 1
    return True


@jit
def goes_on_for_ever(space, run, n_taken):
    """Something broke, and the run is far longer than others; where none may block it must show for certain."""
    m, may_block = space.m, run.may_block[0]
    broken = m[FAULT] != 0 and m[FAULT] != F_STALL and m[STRUCK] == 2
    return may_block and broken and n_taken > LONGER * m[LENGTH] + 1000


@jit
def forgiven(space, run, code):
    """What a run comes to in which something broke: a declared error, or a core that may wait, is no violation."""
    st = space.st
    if st[FAULT_HAPPENED] == 0:
        return code
    waits = (code == FOUND_DEADLOCK or code == FOUND_LIVELOCK) and run.may_block[0]
    if waits or (code == FOUND_ERROR and _seen_error(st, run)):
        return ended(space, run)
    return code


@jit
def count_ending(space, run, code, result):
    """Count how a run ended in which something broke: by what stopped it, and what that came to (`forgiven`)."""
    st, m, stops, endings = space.st, space.m, run.stops, run.endings
    if result == RESTART or result == GROW:
        return
    if st[FAULT_HAPPENED]:
        m[FAULTS] += 1
    elif m[FAULT] != F_STALL:
        return
    if result != RUN_DONE:
        return
    if code == RUN_DONE:
        endings[ENDED_RIGHT] += 1
    elif code != FOUND_ERROR:
        endings[ENDED_BLOCKED] += 1
    elif st[ERROR] != ERR_FAIL:
        endings[ENDED_REFUSED] += 1
    else:
        for i in range(stops.size):
            if stops[i] == st[ERROR_A]:
                endings[ENDED_DECLARED + i] += 1


@jit
def _seen_error(st, run):
    """Return whether the run ended in a declared error, or one that the machine has seen behind a wrong word."""
    if st[ERROR] != ERR_FAIL:
        return st[FAULT_HAPPENED] & MISLEADING != 0
    stops = run.stops
    for i in range(stops.size):  # a bare array has no iterator
        if stops[i] == st[ERROR_A]:
            return True
    return False


@jit
def whole_so_far(space, run):
    """Return whether all is right of which the answering cores have returned."""
    return space.st[FAULT_HAPPENED] == 0 or ended(space, run) == RUN_DONE


@jit
def judge_as_asked(m):
    """Judge all that was asked for again, at the start of a run."""
    m[JUDGED] = m[ASKED]
