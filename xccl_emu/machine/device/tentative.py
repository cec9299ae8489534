"""Tentative reads: what a core has read to its data buffer while others may write it, and not validated yet.

What is held is one range, from the issue of the first transfer on until it is validated, or until one request writes
over all of it.  It changes with the requests of the scalar unit alone, and they are judged as they are issued; so it
does not matter which pipe is how far.  Whether a write has met a transfer of it is one bit: a write of anybody, that
becomes visible while the transfer may be made or is under way.  A transfer over all that is held begins again, and
those before it, which the machine takes first, were in vain.
"""

from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REQUEST
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device import memory, touched
from xccl_emu.machine.device.access import set_error
from xccl_emu.machine.device.words import call, jit, put

_IN_VAIN = 2
"""In the place of the operand ``tentative``: what is read is held no more, so it cannot be validated."""


@jit
def is_held(st, base, ub, nbytes):
    """Does a core hold one of these bytes of its data buffer?"""
    return ub < st[base + ms.HELD_END] and st[base + ms.HELD_START] < ub + nbytes


@jit
def _covers_held(st, base, ub, nbytes):
    return ub <= st[base + ms.HELD_START] and st[base + ms.HELD_END] <= ub + nbytes


@jit
def _entry(st, base, j):
    """Index of the j-th instruction in a core's queue of mtu-in."""
    queue = base + ms.PIPES + (rq.MTU_IN - 1) * ms.PIPE_WORDS
    return queue + ms.PIPE_ENTRIES + (st[queue + ms.PIPE_HEAD] + j) % ms.QUEUE_DEPTH * ms.ENTRY_WORDS


@jit
def _queued(st, base):
    return st[base + ms.PIPES + (rq.MTU_IN - 1) * ms.PIPE_WORDS + ms.PIPE_COUNT]


@jit
def _counts(st, entry):
    """Return whether an entry is a tentative transfer that is not complete, and was not in vain."""
    unread = ops.COPIES_IN >> st[entry] & 1 != 0 and st[entry + ms.ENTRY_PROGRESS] >= 0
    return unread and st[entry + ops.MTU_IN.tentative] == rq.TENTATIVE


@jit
def reads(st, base, address, nbytes):
    """May a core's tentative transfer of some of these bytes be made, or is it under way?"""
    if st[base + ms.HELD_END] == 0:
        return False
    for j in range(_queued(st, base)):
        entry = _entry(st, base, j)
        if not ops.COPIES_IN >> st[entry] & 1:
            return False
        source, size = touched.read_by(st, entry, st[entry])
        if _counts(st, entry) and source < address + nbytes and address < source + size:
            return True
    return False


@call
def _meet(st, address, nbytes):
    for i in range(st[ms.N_ACTIVE]):
        base = st[ms.CORE_BASE] + st[st[ms.ACTIVE_BASE] + i] * st[ms.CORE_WORDS]
        if st[base + ms.RACED] == 0 and reads(st, base, address, nbytes):
            put(st, base + ms.RACED, 1)


@jit
def meet(st, address, nbytes):
    """A write to these bytes becomes visible: note which tentative reads it meets."""
    if st[ms.SOME_TENTATIVE]:
        _meet(st, address, nbytes)


@call
def may_issue(st, core, base, op):
    """May a core that holds something issue its request, which was checked?

    Not if that reads what is held, or reads tentatively apart from it.
    """
    at = base + REQUEST
    if ops.COPIES_IN >> op & 1:
        start, nbytes = touched.filled_by(st, at, op)
        apart = start > st[base + ms.HELD_END] or start + nbytes < st[base + ms.HELD_START]
        together = st[at + ops.MTU_IN.tentative] == 0 or not apart
        return together or set_error(st, core, base, ms.ERR_OPERAND, start, nbytes)
    if ops.COPIES_OUT >> op & 1:
        start, nbytes = touched.taken_by(st, at, op)
        return may_use(st, core, base, start, nbytes)
    if not ops.VECTORS >> op & 1:
        return True
    source, read, target, written = touched.ranges(st, at, op)
    other, more = touched.other_range(st, at, op)
    if ops.ACCUMULATES >> op & 1 and not may_use(st, core, base, target, written):
        return False
    return may_use(st, core, base, source, read) and may_use(st, core, base, other, more)


@jit
def may_use(st, core, base, ub, nbytes):
    """Return whether none of these bytes is held."""
    if nbytes > 0 and is_held(st, base, ub, nbytes):
        return set_error(st, core, base, ms.ERR_UNDEFINED, ub, ms.UNDEFINED_USED)
    return True


@call
def note_issue(st, base, op):
    """A transfer to the data buffer, or a vector instruction, was queued: what is held from now on?"""
    at = base + REQUEST
    if ops.COPIES_IN >> op & 1:
        target, written = touched.filled_by(st, at, op)
    else:
        _, _, target, written = touched.ranges(st, at, op)
    tentative = ops.COPIES_IN >> op & 1 != 0 and st[at + ops.MTU_IN.tentative] != 0
    if _covers_held(st, base, target, written) or st[base + ms.HELD_END] == 0:
        release(st, base)
        for j in range(_queued(st, base) - (ops.COPIES_IN >> op & 1)):
            if _counts(st, _entry(st, base, j)):
                put(st, _entry(st, base, j) + ops.MTU_IN.tentative, _IN_VAIN)
        if tentative:
            put(st, base + ms.HELD_START, target)
            put(st, base + ms.HELD_END, target + written)
    elif tentative:
        put(st, base + ms.HELD_START, min(target, st[base + ms.HELD_START]))
        put(st, base + ms.HELD_END, max(target + written, st[base + ms.HELD_END]))
    if tentative:
        st[ms.SOME_TENTATIVE] = 1
        source, nbytes = touched.read_by(st, at, op)
        if memory.is_lost(st, source, nbytes):
            put(st, base + ms.RACED, 1)


@jit
def release(st, base):
    """Nothing is held any more."""
    for word in range(ms.HELD_START, ms.RACED + 1):
        put(st, base + word, 0)


@call
def validate(st, core, base, ub, nbytes):
    """Take what is held for right; False, and an error recorded, if it is not, or not all of it."""
    if st[base + ms.HELD_END] == 0:
        return True
    if not _covers_held(st, base, ub, nbytes):
        return set_error(st, core, base, ms.ERR_OPERAND, ub, nbytes)
    for j in range(_queued(st, base)):
        if _counts(st, _entry(st, base, j)):
            return set_error(st, core, base, ms.ERR_UNDEFINED, ub, ms.UNDEFINED_UNREAD)
    if st[base + ms.RACED]:
        return set_error(st, core, base, ms.ERR_UNDEFINED, ub, ms.UNDEFINED_RACED)
    release(st, base)
    return True
