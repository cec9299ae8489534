"""What breaks, done to the machine: the actions that `faults.encode` makes codes of.

What has broken is kept in the machine's header (`FAULT_CUT` and so on), so it goes with a snapshot of its state.
"""

from xccl_emu.check.device import fault_codes
from xccl_emu.lang import operations as ops
from xccl_emu.lang.abi import PC, REGISTERS, REQUEST, RESULT
from xccl_emu.machine.device import actions, cache, flight, memory, tentative, words
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.words import jit

MISLEADING = 1 << fault_codes.CORRUPT | 1 << fault_codes.AGAIN
"""Bits of `FAULT_HAPPENED` after which a core may follow a wrong word."""


@jit
def kind_of(code):
    """Kind of a negative code."""
    return ~code & 15


@jit
def die_of(code):
    """Die of a negative code."""
    return ~code >> 4 & 0xFFFF


@jit
def other_of(code):
    """Target die, or place in flight, of a negative code."""
    return ~code >> 20 & 0xFFFF


@jit
def bit_of(code):
    """Bit of a negative code."""
    return ~code >> 36


@jit
def is_cut(st, die, address):
    """Return whether writes from a die to an address are cut off."""
    word = st[ms.FAULT_CUT] - 1
    if word < 0 or word & 0xFFFF != die:
        return False
    target = word >> 16
    return target == fault_codes.ANY_TARGET or target == address >> st[ms.DIE_SHIFT]


@jit
def may_arrive(st, die, k):
    """Return whether the k-th write in flight of a die is not cut off."""
    if st[ms.FAULT_CUT] == 0:
        return True
    return not is_cut(st, die, st[flight.flight(st, flight.block_of_die(st, die), k) + ms.FLIGHT_ADDRESS])


@jit
def atomic_cut(st, base):
    """Does a core wait for an atomic that is cut off?"""
    address = st[base + REQUEST + ops.ATOMIC.address]
    return ops.ATOMICS >> st[base + REQUEST] & 1 != 0 and is_cut(st, st[base + ms.DIE], address)


@jit
def all_given_up(st):
    """In a state in which nothing is possible: is all that the running cores wait for that the machine gives up writes?

    Of a core from whose die a link is cut, what waits for room, for an event of its own pipes or DMA, in a quiet or at
    its return waits for writes over that link and for nothing else, and so does an atomic over it.  A poll or a barrier
    waits for others.
    """
    if st[ms.FAULT_CUT] == 0:
        return False
    source = (st[ms.FAULT_CUT] - 1) & 0xFFFF
    for i in range(st[ms.N_ACTIVE]):
        base = flight.block_of_core(st, st[st[ms.ACTIVE_BASE] + i])
        op = st[base + REQUEST]
        for_others = (ops.POLLS | ops.BARRIERS) >> op & 1 != 0
        for_others = for_others or (ops.ATOMICS >> op & 1 != 0 and not atomic_cut(st, base))
        if st[base + ms.STATUS] == ms.STATUS_RUNNING and (for_others or st[base + ms.DIE] != source):
            return False
    return True


@jit
def carries(code):
    """Does a write become visible with the action, as it would without it?"""
    return kind_of(code) == fault_codes.DUPLICATE or kind_of(code) == fault_codes.CORRUPT


@jit
def before_arrival(st, code):
    """Copy the write that is about to become visible, or flip its bit; False if that cannot be."""
    die, k, bit = die_of(code), other_of(code), bit_of(code)
    if die >= st[ms.N_HOMES]:
        return False
    ring = flight.block_of_die(st, die)
    if k >= st[ring + ms.FLIGHT_COUNT] or not may_arrive(st, die, k):
        return False
    entry = flight.flight(st, ring, k)
    if kind_of(code) == fault_codes.DUPLICATE:
        if st[ms.FAULT_COPY + ms.FLIGHT_NBYTES] != 0:
            return False
        for i in range(st[ms.FLIGHT_WORDS]):
            words.put(st, ms.FAULT_COPY + i, st[entry + i])
        return True
    if bit >= 8 * st[entry + ms.FLIGHT_NBYTES]:
        return False
    words.put(st, entry + ms.FLIGHT_DATA + (bit >> 6), st[entry + ms.FLIGHT_DATA + (bit >> 6)] ^ 1 << (bit & 63))
    return True


@jit
def not_arrived(st, code):
    """Take back `before_arrival`, because the write may not become visible yet."""
    if kind_of(code) == fault_codes.DUPLICATE:
        words.put(st, ms.FAULT_COPY + ms.FLIGHT_NBYTES, 0)
        return
    entry, bit = flight.flight(st, flight.block_of_die(st, die_of(code)), other_of(code)), bit_of(code)
    words.put(st, entry + ms.FLIGHT_DATA + (bit >> 6), st[entry + ms.FLIGHT_DATA + (bit >> 6)] ^ 1 << (bit & 63))


@jit
def act_fault(mem, st, code):
    """Take the action of a negative code; False, and nothing changed, if it is not enabled."""
    kind, taken = kind_of(code), False
    if carries(code):
        taken = before_arrival(st, code)
        if taken and not flight.deliver(mem, st, die_of(code), other_of(code)):
            not_arrived(st, code)
            taken = False
    elif kind == fault_codes.STOP:
        taken = _stop(st, die_of(code))
    elif kind == fault_codes.CUT:
        taken = st[ms.FAULT_CUT] == 0
        if taken:
            words.put(st, ms.FAULT_CUT, 1 + (die_of(code) | other_of(code) << 16))
    elif kind == fault_codes.AGAIN:
        taken = _again(mem, st)
    elif kind == fault_codes.LOSE:
        taken = _lose(mem, st, die_of(code), other_of(code))
    elif kind == fault_codes.REVIVE:
        taken = _revive(mem, st, die_of(code))
    if taken:
        happened(st, kind)
    return taken


@jit
def happened(st, kind):
    """Note that something broke."""
    words.put(st, ms.FAULT_HAPPENED, st[ms.FAULT_HAPPENED] | 1 << kind)


@jit
def _stop(st, die):
    """Stop all running cores of a die; False if there are none."""
    stopped = False
    for i in range(st[ms.N_ACTIVE]):
        base = flight.block_of_core(st, st[st[ms.ACTIVE_BASE] + i])
        if st[base + ms.DIE] != die or st[base + ms.STATUS] != ms.STATUS_RUNNING:
            continue
        stopped = True
        words.put(st, base + ms.STATUS, ms.STATUS_STOPPED)
        st[ms.N_LIVE] -= 1
        for pipe in range(3):
            words.put(st, base + ms.PIPES + pipe * ms.PIPE_WORDS + ms.PIPE_COUNT, 0)
        for word in range(ms.N_DMA_SLOTS * ms.ENTRY_WORDS):
            words.put(st, base + ms.DMA_SLOTS + word, 0)
    return stopped


@jit
def _again(mem, st):
    """The copy becomes visible."""
    if st[ms.FAULT_COPY + ms.FLIGHT_NBYTES] == 0:
        return False
    address = st[ms.FAULT_COPY + ms.FLIGHT_ADDRESS]
    tentative.meet(st, address, st[ms.FAULT_COPY + ms.FLIGHT_NBYTES])
    flight.land(mem, st, ms.FAULT_COPY)
    flight.note_writer(st, address, st[ms.FAULT_COPY + ms.FLIGHT_CORE], st[ms.FAULT_COPY + ms.FLIGHT_SITE])
    words.put(st, ms.FAULT_COPY + ms.FLIGHT_NBYTES, 0)
    return True


@jit
def _lose(mem, st, die, number):
    """Lose bytes, and set the word that reports it; return False if some were lost before, or there are none."""
    start, end, notice = memory.range_of(st, die, number)
    if st[ms.LOST_END] or start >= end:
        return False
    words.put(st, ms.LOST_START, start)
    words.put(st, ms.LOST_END, end)
    tentative.meet(st, start, end - start)
    if notice >= 0:
        tentative.meet(st, notice, 8)
        words.store_i64(mem, notice, 1)
    return True


@jit
def runs(st, die):
    """Return whether a core of a die runs, or did when the die stopped."""
    for i in range(st[ms.N_ACTIVE]):
        base = flight.block_of_core(st, st[st[ms.ACTIVE_BASE] + i])
        status = st[base + ms.STATUS]
        if st[base + ms.DIE] == die and (status == ms.STATUS_RUNNING or status == ms.STATUS_STOPPED):
            return True
    return False


@jit
def _revive(mem, st, die):
    """Let all kernels of a die begin again, also those that have returned; False if all have.

    Nothing of it is in flight, queued, set or cached, and its data buffers hold zeros; what is in its memory is there.
    """
    if not runs(st, die):
        return False
    ring = flight.block_of_die(st, die)
    for word in range(st[ms.DIE_WORDS]):
        words.put(st, ring + word, 0)
    for i in range(st[ms.N_ACTIVE]):
        core = st[st[ms.ACTIVE_BASE] + i]
        base = flight.block_of_core(st, core)
        if st[base + ms.DIE] == die:
            st[ms.N_LIVE] += 0 if st[base + ms.STATUS] == ms.STATUS_RUNNING else 1
            _launch_again(mem, st, core, base)
    words.put(st, ms.REVIVED, 1 + die)
    actions.start(st)
    return True


@jit
def _launch_again(mem, st, core, base):
    """Let a core be as its launch left it."""
    for word in (PC, ms.STATUS, RESULT, ms.IN_FLIGHT):
        words.put(st, base + word, 0)
    for word in range(ms.HELD_START, ms.WINDOWS):  # what is read tentatively, the request, events, queues, descriptors
        words.put(st, base + word, 0)
    registers = st[ms.CORE_WORDS] - REGISTERS
    for k in range(registers):
        words.put(st, base + REGISTERS + k, st[st[ms.LAUNCHED] + core * registers + k])
    for word in range(st[ms.CACHE_WORDS]):
        words.put(st, cache.place_of(st, core, 0) + word, 0)
    group = st[ms.GROUP_BASE] + st[base + ms.GROUP] * ms.GROUP_WORDS
    words.put(st, group + ms.GROUP_ARRIVED, 0)
    words.put(st, group + ms.GROUP_PHASE, 0)
    for at in range(st[base + ms.UB_BASE], st[base + ms.UB_BASE] + st[ms.UB_BYTES], 8):
        words.store_i64(mem, at, 0)


@jit
def forget_cut(st):
    """Take what is cut off out of the rings, so that what is left there can become visible; for a last look."""
    for die in range(st[ms.N_HOMES]):
        ring = flight.block_of_die(st, die)
        kept = 0
        for k in range(st[ring + ms.FLIGHT_COUNT]):
            if may_arrive(st, die, k):
                entry, to = flight.flight(st, ring, k), flight.flight(st, ring, kept)
                for i in range(st[ms.FLIGHT_WORDS]):
                    st[to + i] = st[entry + i]
                kept += 1
        st[ring + ms.FLIGHT_COUNT] = kept
