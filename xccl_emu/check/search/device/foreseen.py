"""What a delivery leads to, found before it is made: most lead to states that are known, and need not be made then.

A fingerprint is a sum over words.  When a delivery changes nothing but its bytes and the writes in flight, the sum
after it follows from the one before; nothing has to be logged, changed and put back to look it up.
"""

import numpy as np

from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device.clocks import block_of, core_of
from xccl_emu.check.search.device.moves import number_of
from xccl_emu.check.search.device.races import any_before, any_late, any_signalled
from xccl_emu.lang import operations as ops
from xccl_emu.lang.abi import REQUEST
from xccl_emu.machine.device import flight, tentative
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.words import call, jit, load_i64

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
