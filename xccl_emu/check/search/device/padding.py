"""Bytes that nobody has written and that travel, as the padding of a slot does.

A copy by mtu-in, mtu-out or DMA may take them to where nobody has written either.  That place stays never written, and
in memory it is noted that padding is there.  Whatever else reads them uses them, and so does what adds to a place with
padding, or synchronizes by it.  Nothing need order such an access and the copy, so either is a violation after the
other.  Where writes of a core may change places, so is any write to a place with padding.
"""

from xccl_emu.check.device import accesses
from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device import clocks, granules
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REQUEST
from xccl_emu.machine.device import flight, polls
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.words import call, jit

_SYNCHRONIZED = granules.POLLED | granules.USE_EXACT | granules.USE_ADD


@jit
def _bit(ck, address, which):
    """Return the bit of a byte in the first or second word of its granule."""
    return ck[ck[cs.WRITTEN_TABLE] + 2 * (address >> 5) + which] >> (address & 31) & 1


@jit
def _is_expected(ck, address):
    """Return whether a byte is to hold something at the end."""
    for e in range(ck[cs.N_EXPECTED]):
        at = ck[cs.EXPECTED_BASE] + cs.EXPECTED_WORDS * e
        if ck[at] <= address and address < ck[at] + ck[at + 1]:
            return True
    return False


@call
def in_the_way(ck, rows):
    """The first byte that a copy reads and nobody has written, and whose place is written or expected; or -1."""
    source, apart = rows[0, accesses.START], rows[1, accesses.START] - rows[0, accesses.START]
    for at in range(source, source + rows[0, accesses.NBYTES]):
        if not _bit(ck, at, 0) and (_bit(ck, at + apart, 0) or _is_expected(ck, at + apart)):
            return at
    return -1


@call
def met(st, ck, start, nbytes, apart, syncs):
    """The first byte with padding that an access to memory uses, or -1; ``apart``: how far from there it copies, or 0.

    One that synchronizes uses it; where writes of a core may change places, so does each that writes there.
    """
    loose = st[ms.ORDER] == ms.ORDER_UNORDERED or st[ms.REQUEST_ORDERS] != 0
    for p in range(start >> 5, (start + nbytes - 1 >> 5) + 1 if (syncs or loose) and start < ck[cs.MEMORY_END] else 0):
        bits = ck[ck[cs.WRITTEN_TABLE] + 2 * p + 1] & granules.bytes_in(p, start, nbytes)
        for b in range(32 if bits else 0):
            if bits >> b & 1 and (apart == 0 or _bit(ck, (p << 5) + b - apart, 0)):
                return (p << 5) + b
    return -1


@call
def mark_copied(mem, st, ck, rows):
    """Note what a copy with padding has written; returns the first byte with padding that some core polls, or -1."""
    target, nbytes = rows[1, accesses.START], rows[1, accesses.NBYTES]
    apart, found = target - rows[0, accesses.START], -1
    for p in range(target >> 5, (target + nbytes - 1 >> 5) + 1):
        at, written, padding = ck[cs.WRITTEN_TABLE] + 2 * p, 0, 0
        for byte in range(max(target, p << 5), min(target + nbytes, p + 1 << 5)):
            if _bit(ck, byte - apart, 0):
                written |= 1 << (byte & 31)
            elif target < ck[cs.MEMORY_END]:
                padding |= 1 << (byte & 31)
        cs.save(mem, st, ck, cs.CHECKER | cs.NOW, at, 2)
        ck[at] |= written
        ck[at + 1] = (ck[at + 1] | padding) & ~ck[at]
        if padding:
            if ck[granules.granule_of(ck, p << 5) + granules.USES] & _SYNCHRONIZED:
                granules.see(ck, p, 0, granules.USE_UNORDERED)  # when it is there matters to what synchronizes by it
            for m in range(ck[cs.N]):
                polled = polled_padding(st, ck, ck[ck[cs.MEMBERS] + m])
                found = polled if found < 0 else found
    return found


@call
def polled_padding(st, ck, i):
    """The first byte with padding that a core polls, granted or not, or -1."""
    base = flight.block_of_core(st, clocks.core_of(ck, i))
    op = st[base + REQUEST]
    if st[base + ms.STATUS] != ms.STATUS_RUNNING or not ops.POLLS >> op & 1 or flight.switched_off(st, base):
        return -1
    if op == rq.OP_POLL_ANY:
        found = -1
        for k in range(polls.n_conditions(st, base) if polls.can_be_polled(st, base, ck[cs.MEMORY_END]) else 0):
            found = max(found, met(st, ck, st[polls.condition_at(base, k)], 8, 0, 1))
        return found
    address, nbytes = st[base + REQUEST + ops.POLL.address], st[base + REQUEST + ops.POLL.nbytes]
    if nbytes <= 0 or nbytes > ms.LINE_BYTES_MOST or nbytes & nbytes - 1 or address & nbytes - 1:
        return -1  # it will be refused
    if address < 0 or address > ck[cs.MEMORY_END] - nbytes:
        return -1
    return met(st, ck, address, nbytes, 0, 1)
