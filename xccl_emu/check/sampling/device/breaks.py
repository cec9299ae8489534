"""What breaks in a sampled run: when and where, drawn from the schedule's own random numbers."""

from xccl_emu.check.device import fault_actions, fault_codes
from xccl_emu.check.sampling.device.begin import ended
from xccl_emu.check.sampling.device.monitor import layout as ml
from xccl_emu.check.sampling.device.monitor import lives
from xccl_emu.check.sampling.device.monitor.calls import call
from xccl_emu.check.sampling.device.monitor.shadow import save
from xccl_emu.check.sampling.device.policies import draw_below
from xccl_emu.lang import operations as ops
from xccl_emu.lang.abi import REQUEST
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device import memory
from xccl_emu.machine.device.flight import block_of_core, block_of_die, flight
from xccl_emu.machine.device.words import jit

ENDED_RIGHT, ENDED_BLOCKED, ENDED_REFUSED, ENDED_GIVEN_UP, ENDED_DECLARED = range(5)
"""Places of the counts of how runs ended in which something broke: the cores that did not stop returned; some waited
for ever; the machine refused what followed a wrong word; it gave up writes over a cut link, for which alone cores still
waited; and from the last one on, a declared error each."""

NEVER = 1 << 60
LONGER = 8
"""A run in which something broke may take this many times the usual; a core that still looks then waits for ever."""


@jit
def draw_fault(space, run):
    """Draw, at the start of a run, after how many actions something breaks."""
    m = space.m
    m[ml.SEEN], m[ml.STRUCK], m[ml.LATER] = 0, 0, NEVER
    m[ml.MOMENT] = draw_below(run.rng, m[ml.LENGTH])
    if fault_codes.OF_DIE >> m[ml.FAULT] & 1:
        m[ml.MOMENT] = draw_below(run.rng, m[ml.MOMENT] + 1)  # more often early, when more has still to come


@jit
def watched_fault(space, code):
    """Take the action of a negative code under watch; as `watched`."""
    mem, st, m = space.mem, space.st, space.m
    kind = fault_actions.kind_of(code)
    if fault_actions.carries(code):
        if not fault_actions.before_arrival(st, code):
            return ml.NOT_ENABLED
        actor = st[ms.N_CORES] * ms.ACTORS_PER_CORE + (~code >> 4 & 0xFFFF)
        result = call(m[ml.WATCHED], space, actor, ~code >> 20 & 0xFFFF)
        if result == ml.NOT_ENABLED:
            fault_actions.not_arrived(st, code)
            return ml.NOT_ENABLED
        fault_actions.happened(st, kind)
    else:
        if kind == fault_codes.AGAIN and st[ms.FAULT_COPY + ms.FLIGHT_NBYTES] != 0:
            save(space, st[ms.FAULT_COPY + ms.FLIGHT_ADDRESS], st[ms.FAULT_COPY + ms.FLIGHT_NBYTES])
        if kind == fault_codes.LOSE and st[ms.LOST_END] == 0:
            notice = memory.range_of(st, fault_actions.die_of(code), fault_actions.other_of(code))[2]
            if notice >= 0:
                save(space, notice, 8)
        taken = lives.revive(space, code) if kind == fault_codes.REVIVE else fault_actions.act_fault(mem, st, code)
        if not taken and m[ml.STOP] == 0:
            return ml.NOT_ENABLED
        result = m[ml.STOP] if m[ml.STOP] else ml.TAKEN_OK
    if st[ms.FAULT_HAPPENED] & fault_actions.MISLEADING:
        m[ml.JUDGED] = ml.JUDGE_NOTHING
    return result


@jit
def _code(kind, die, other, bit):
    return ~(kind | die << 4 | other << 20 | bit << 36)


@jit
def strike(space, run, n_taken):
    """Make the fault that is due before the next action; returns the code of that action, or 0."""
    m = space.m
    kind, code = m[ml.FAULT], 0
    if kind == fault_codes.F_STALL:
        _release_in_time(m, n_taken)
        return 0
    due = m[ml.SEEN] >= m[ml.FAULT_AT] if m[ml.FAULT_AT] >= 0 else n_taken >= m[ml.MOMENT]
    if n_taken >= m[ml.LATER]:
        m[ml.LATER] = NEVER
        code = (
            _code(fault_codes.AGAIN, 0, 0, 0)
            if kind == fault_codes.F_DUPLICATE
            else _code(fault_codes.CUT, m[ml.FAULT_FROM], fault_codes.ANY_TARGET, 0)
        )
    elif m[ml.STRUCK] == 0 and due and fault_codes.AT_ONCE >> kind & 1:
        m[ml.STRUCK] = 1
        code = _code(fault_codes.ACTIONS[kind], m[ml.FAULT_FROM], m[ml.FAULT_TO], 0)
    if code == 0 or watched_fault(space, code) == ml.NOT_ENABLED:
        return 0
    _note(space, run, n_taken)
    return code


@jit
def _release_in_time(m, n_taken):
    """Let a stalled link deliver a write after as many actions as a run has: some cores never stop looking."""
    if m[ml.SEEN] != m[ml.MOMENT] or m[ml.LATER] == NEVER:
        m[ml.MOMENT], m[ml.LATER] = m[ml.SEEN], n_taken + m[ml.LENGTH]
    elif n_taken >= m[ml.LATER]:
        m[ml.STRUCK] = 1


@jit
def _note(space, run, n_taken):
    """Something broke: draw what follows, and wake everybody."""
    m, rng = space.m, run.rng
    if m[ml.STRUCK] == 1:
        m[ml.STRUCK] = 2
        if m[ml.FAULT] == fault_codes.F_DUPLICATE or (
            m[ml.FAULT] == fault_codes.F_STOP and m[ml.CAPACITY] and draw_below(rng, 4)
        ):
            m[ml.LATER] = n_taken + (draw_below(rng, m[ml.LENGTH]) >> draw_below(rng, 10))  # soon, or much later
    for a in range(run.asleep.size):
        run.asleep[a] = 0


@jit
def repeat_now(space):
    """Make the copy of a duplicated write visible next; False if there is none."""
    m = space.m
    if m[ml.FAULT] != fault_codes.F_DUPLICATE or m[ml.LATER] == NEVER:
        return False
    m[ml.LATER] = 0
    return True


@jit
def strikes_write(space, candidate, n_taken):
    """Return whether a write in flight, about to become visible, is the one that is duplicated or corrupted."""
    st, m = space.st, space.m
    on_write = m[ml.FAULT] == fault_codes.F_DUPLICATE or m[ml.FAULT] == fault_codes.F_CORRUPT
    if not on_write or m[ml.STRUCK] or not _on_link(st, m, candidate):
        return False
    return m[ml.SEEN] + 1 == m[ml.FAULT_AT] if m[ml.FAULT_AT] >= 0 else n_taken >= m[ml.MOMENT]


@jit
def _on_link(st, m, candidate):
    die = (candidate >> ms.CHOICE_BITS) - st[ms.N_CORES] * ms.ACTORS_PER_CORE
    if die != m[ml.FAULT_FROM]:
        return False
    entry = flight(st, block_of_die(st, die), candidate & ms.CHOICE_ALL)
    return st[entry + ms.FLIGHT_ADDRESS] >> st[ms.DIE_SHIFT] == m[ml.FAULT_TO]


@jit
def deliver_struck(space, run, candidate, n_taken):
    """Let a write become visible, duplicated or corrupted; returns what it came to and its code."""
    st, m = space.st, space.m
    die, k = (candidate >> ms.CHOICE_BITS) - st[ms.N_CORES] * ms.ACTORS_PER_CORE, candidate & ms.CHOICE_ALL
    kind, bit = fault_codes.DUPLICATE, 0
    if m[ml.FAULT] == fault_codes.F_CORRUPT:
        kind = fault_codes.CORRUPT
        bit = draw_below(run.rng, 8 * st[flight(st, block_of_die(st, die), k) + ms.FLIGHT_NBYTES])
    code = _code(kind, die, k, bit)
    result = watched_fault(space, code)
    if result == ml.TAKEN_OK:
        m[ml.STRUCK] = 1
        _note(space, run, n_taken)
    return result, code


@jit
def count(space, candidate, of_core):
    """Count an action of the die that is to stop, or a write over the link."""
    st, m = space.st, space.m
    if of_core:
        if (
            fault_codes.OF_DIE >> m[ml.FAULT] & 1
            and st[block_of_core(st, candidate // ms.ACTORS_PER_CORE) + ms.DIE] == m[ml.FAULT_FROM]
        ):
            m[ml.SEEN] += 1
    else:
        die = (candidate >> ms.CHOICE_BITS) - st[ms.N_CORES] * ms.ACTORS_PER_CORE
        if die == m[ml.FAULT_FROM] and m[ml.X_ADDRESS] >> st[ms.DIE_SHIFT] == m[ml.FAULT_TO]:
            m[ml.SEEN] += 1
            if m[ml.FAULT] == fault_codes.F_STALL:
                m[ml.STRUCK] = 0


@jit
def holds(st, m):
    """Return whether anything is held back now, by a cut or a stalled link."""
    return st[ms.FAULT_CUT] != 0 or (m[ml.FAULT] == fault_codes.F_STALL and m[ml.STRUCK] == 0)


@jit
def held(st, m, die, k):
    """Return whether the k-th write in flight of a die is held back."""
    if m[ml.FAULT] == fault_codes.F_STALL and m[ml.STRUCK] == 0:
        return _on_link(st, m, (st[ms.N_CORES] * ms.ACTORS_PER_CORE + die) << ms.CHOICE_BITS | k)
    return not fault_actions.may_arrive(st, die, k)


@jit
def atomic_held(st, m, base):
    """Return whether a core waits for an atomic that is held back."""
    if m[ml.FAULT] == fault_codes.F_STALL and m[ml.STRUCK] == 0:
        there = st[base + ms.DIE] == m[ml.FAULT_FROM] and ops.ATOMICS >> st[base + REQUEST] & 1 != 0
        return there and st[base + REQUEST + ops.ATOMIC.address] >> st[ms.DIE_SHIFT] == m[ml.FAULT_TO]
    return fault_actions.atomic_cut(st, base)


@jit
def release_stalled(m):
    """Let a stalled link deliver one write, as nothing else can go on; False if there is none to do so."""
    if m[ml.FAULT] != fault_codes.F_STALL or m[ml.STRUCK]:
        return False
    m[ml.STRUCK] = 1
    return True


@jit
def runs_too_long(space, run, n_taken):
    """Return whether something broke and the run is far longer than others; where none may block, False."""
    m = space.m
    broken = m[ml.FAULT] != 0 and m[ml.FAULT] != fault_codes.F_STALL and m[ml.STRUCK] == 2
    return broken and n_taken > LONGER * m[ml.LENGTH] + 1000 and _may_wait(space.st, run)


@jit
def _may_wait(st, run):
    """May cores wait for ever after what has broken?"""
    die = st[ms.REVIVED] - 1
    may_wait = run.may_block[0] != 0 and (die < 0 or run.may_block[1 + die] != 0)
    for i in range(st[ms.N_ACTIVE]):
        base = block_of_core(st, st[st[ms.ACTIVE_BASE] + i])
        may_wait = may_wait and (st[base + ms.STATUS] != ms.STATUS_STOPPED or run.may_block[1 + st[base + ms.DIE]] != 0)
    return may_wait


@jit
def allowed(space, run, code):
    """Return how a run counts in which something broke: a declared error, or a core that may wait, is no violation."""
    st = space.st
    if st[ms.FAULT_HAPPENED] == 0:
        given_up = code == ml.FOUND_ERROR and st[ms.ERROR] == ms.ERR_FAIL and _is_among(st[ms.ERROR_A], run.gives_up)
        return ml.RUN_DONE if given_up else code
    waits = (code == ml.FOUND_DEADLOCK or code == ml.FOUND_LIVELOCK) and _may_wait(st, run)
    waits = waits or (code == ml.FOUND_DEADLOCK and fault_actions.all_given_up(st))
    if waits or (code == ml.FOUND_ERROR and _seen_error(st, run)):
        return ended(space, run)
    return code


@jit
def count_ending(space, run, code, result):
    """Count how a run ended in which something broke: by what stopped it, and what that came to (`allowed`)."""
    st, m, stops, endings = space.st, space.m, run.stops, run.endings
    if result == ml.RESTART or result == ml.GROW:
        return
    if st[ms.FAULT_HAPPENED]:
        m[ml.FAULTS] += 1
    elif m[ml.FAULT] != fault_codes.F_STALL:
        return
    if result != ml.RUN_DONE:
        return
    if code == ml.RUN_DONE:
        endings[ENDED_RIGHT] += 1
    elif code != ml.FOUND_ERROR:
        given_up = code == ml.FOUND_DEADLOCK and fault_actions.all_given_up(st)
        endings[ENDED_GIVEN_UP if given_up else ENDED_BLOCKED] += 1
    elif st[ms.ERROR] != ms.ERR_FAIL:
        endings[ENDED_REFUSED] += 1
    else:
        for i in range(stops.size):
            if stops[i] == st[ms.ERROR_A]:
                endings[ENDED_DECLARED + i] += 1


@jit
def _seen_error(st, run):
    """Return whether the run ended in a declared error, or one that the machine has seen after a wrong word."""
    if st[ms.ERROR] != ms.ERR_FAIL:
        return st[ms.FAULT_HAPPENED] & fault_actions.MISLEADING != 0
    return _is_among(st[ms.ERROR_A], run.stops)


@jit
def _is_among(code, codes):
    for i in range(codes.size):  # a bare array has no iterator
        if codes[i] == code:
            return True
    return False


@jit
def whole_so_far(space, run):
    """Return whether every range is right whose owners have all returned."""
    return space.st[ms.FAULT_HAPPENED] == 0 or ended(space, run) == ml.RUN_DONE


@jit
def judge_as_asked(m):
    """Judge all that was asked for again, at the start of a run."""
    m[ml.JUDGED] = m[ml.ASKED]
