"""What breaks, done to the machine: the actions that `faults.encode` makes codes of.

What has broken is kept in the machine's header (`FAULT_CUT` and so on), so it goes with a snapshot of its state.
"""

from xccl_emu.check.device.fault_codes import AGAIN, ANY_TARGET, CORRUPT, CUT, DUPLICATE, STOP
from xccl_emu.lang.abi import REQUEST
from xccl_emu.lang.requests import OP_ATOMIC_ADD
from xccl_emu.machine.device.flight import block_of_core, block_of_die, deliver, flight, note_writer
from xccl_emu.machine.device.layout import (
    ACTIVE_BASE,
    DIE,
    DIE_SHIFT,
    DMA_SLOTS,
    ENTRY_WORDS,
    FAULT_COPY,
    FAULT_CUT,
    FAULT_HAPPENED,
    FLIGHT_ADDRESS,
    FLIGHT_CORE,
    FLIGHT_COUNT,
    FLIGHT_DATA,
    FLIGHT_KIND,
    FLIGHT_NBYTES,
    FLIGHT_SITE,
    FLIGHT_WORDS,
    KIND_ADD,
    N_ACTIVE,
    N_DIES,
    N_DMA_SLOTS,
    N_LIVE,
    PIPE_COUNT,
    PIPE_WORDS,
    PIPES,
    STATUS,
    STATUS_RUNNING,
    STATUS_STOPPED,
)
from xccl_emu.machine.device.words import jit, load_i64, put, store_i64, words_to_bytes

MISLEADING = 1 << CORRUPT | 1 << AGAIN
"""Bits of `FAULT_HAPPENED` behind which a core may follow a wrong word."""


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
    word = st[FAULT_CUT] - 1
    if word < 0 or word & 0xFFFF != die:
        return False
    target = word >> 16
    return target == ANY_TARGET or target == address >> st[DIE_SHIFT]


@jit
def may_arrive(st, die, k):
    """Return whether the k-th write in flight of a die is not cut off."""
    if st[FAULT_CUT] == 0:
        return True
    return not is_cut(st, die, st[flight(st, block_of_die(st, die), k) + FLIGHT_ADDRESS])


@jit
def atomic_cut(st, base):
    """Does a core wait for an atomic that is cut off?"""
    return st[base + REQUEST] == OP_ATOMIC_ADD and is_cut(st, st[base + DIE], st[base + REQUEST + 1])


@jit
def carries(code):
    """Does a write become visible with the action, as it would without it?"""
    return kind_of(code) == DUPLICATE or kind_of(code) == CORRUPT


@jit
def before_arrival(st, code):
    """Copy the write that is about to become visible, or flip its bit; False if that cannot be."""
    die, k, bit = die_of(code), other_of(code), bit_of(code)
    if die >= st[N_DIES]:
        return False
    ring = block_of_die(st, die)
    if k >= st[ring + FLIGHT_COUNT] or not may_arrive(st, die, k):
        return False
    entry = flight(st, ring, k)
    if kind_of(code) == DUPLICATE:
        if st[FAULT_COPY + FLIGHT_NBYTES] != 0:
            return False
        for i in range(st[FLIGHT_WORDS]):
            put(st, FAULT_COPY + i, st[entry + i])
        return True
    if bit >= 8 * st[entry + FLIGHT_NBYTES]:
        return False
    put(st, entry + FLIGHT_DATA + (bit >> 6), st[entry + FLIGHT_DATA + (bit >> 6)] ^ 1 << (bit & 63))
    return True


@jit
def not_arrived(st, code):
    """Take back `before_arrival`, because the write may not become visible yet."""
    if kind_of(code) == DUPLICATE:
        put(st, FAULT_COPY + FLIGHT_NBYTES, 0)
        return
    entry, bit = flight(st, block_of_die(st, die_of(code)), other_of(code)), bit_of(code)
    put(st, entry + FLIGHT_DATA + (bit >> 6), st[entry + FLIGHT_DATA + (bit >> 6)] ^ 1 << (bit & 63))


@jit
def act_fault(mem, st, code):
    """Take the action of a negative code; False, and nothing changed, if it is not enabled."""
    kind, taken = kind_of(code), False
    if carries(code):
        taken = before_arrival(st, code)
        if taken and not deliver(mem, st, die_of(code), other_of(code)):
            not_arrived(st, code)
            taken = False
    elif kind == STOP:
        taken = _stop(st, die_of(code))
    elif kind == CUT:
        taken = st[FAULT_CUT] == 0
        if taken:
            put(st, FAULT_CUT, 1 + (die_of(code) | other_of(code) << 16))
    elif kind == AGAIN:
        taken = _again(mem, st)
    if taken:
        happened(st, kind)
    return taken


@jit
def happened(st, kind):
    """Note that something broke."""
    put(st, FAULT_HAPPENED, st[FAULT_HAPPENED] | 1 << kind)


@jit
def _stop(st, die):
    """Stop all running cores of a die; False if there are none."""
    stopped = False
    for i in range(st[N_ACTIVE]):
        base = block_of_core(st, st[st[ACTIVE_BASE] + i])
        if st[base + DIE] != die or st[base + STATUS] != STATUS_RUNNING:
            continue
        stopped = True
        put(st, base + STATUS, STATUS_STOPPED)
        st[N_LIVE] -= 1
        for pipe in range(3):
            put(st, base + PIPES + pipe * PIPE_WORDS + PIPE_COUNT, 0)
        for word in range(N_DMA_SLOTS * ENTRY_WORDS):
            put(st, base + DMA_SLOTS + word, 0)
    return stopped


@jit
def _again(mem, st):
    """The copy becomes visible."""
    if st[FAULT_COPY + FLIGHT_NBYTES] == 0:
        return False
    address = st[FAULT_COPY + FLIGHT_ADDRESS]
    if st[FAULT_COPY + FLIGHT_KIND] == KIND_ADD:
        store_i64(mem, address, load_i64(mem, address) + st[FAULT_COPY + FLIGHT_DATA])
    else:
        words_to_bytes(mem, address, st, FAULT_COPY + FLIGHT_DATA, st[FAULT_COPY + FLIGHT_NBYTES])
    note_writer(st, address, st[FAULT_COPY + FLIGHT_CORE], st[FAULT_COPY + FLIGHT_SITE])
    put(st, FAULT_COPY + FLIGHT_NBYTES, 0)
    return True


@jit
def forget_cut(st):
    """Take what is cut off out of the rings, so that what is left there can become visible; for a last look."""
    for die in range(st[N_DIES]):
        ring = block_of_die(st, die)
        kept = 0
        for k in range(st[ring + FLIGHT_COUNT]):
            if may_arrive(st, die, k):
                entry, to = flight(st, ring, k), flight(st, ring, kept)
                for i in range(st[FLIGHT_WORDS]):
                    st[to + i] = st[entry + i]
                kept += 1
        st[ring + FLIGHT_COUNT] = kept
