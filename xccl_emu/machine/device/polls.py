"""Polls: what they wait for, in a word, in the first that holds of up to four (`poll_any`), or in a line.

A condition of `poll_any` is three words after the operation: address, comparison, value.  The site lies between the
second and the third, and from there on words are 0 while the request is another (`forget`).

Of a line, data and flags are read together, granule by granule, until the flags are in.  What a spin reads in vain it
drops, so of all its rounds only the last has an effect.  In that one each granule is read at some moment, in any order,
and the flags in it must be in at this moment: so reading a granule is an action by itself, enabled when its own flags
are in, and nothing is ever read again.
"""

from xccl_emu.lang import operations as ops
from xccl_emu.lang.abi import REQUEST, REQUEST_WORDS
from xccl_emu.lang.requests import CMP_EQ, CMP_GE, CMP_NE, CMP_UNUSED, CONDITION_WORDS, CONDITIONS_MOST, OP_POLL, UNUSED
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.memory import move
from xccl_emu.machine.device.words import call, jit, load_i32, put

assert CMP_EQ < CMP_NE < CMP_GE

_BEFORE_SITE = (REQUEST_WORDS - 2) // CONDITION_WORDS


@jit
def is_awaited(value, compare, wanted):
    """Does a poll wait for this value?"""
    if compare == CMP_EQ:
        return value == wanted
    return value >= wanted if compare == CMP_GE else value != wanted


@jit
def awaited_by(st, base):
    """Return how a core's poll of a word compares, with what, and in which bits."""
    request = base + REQUEST
    return st[request + ops.POLL.compare], st[request + ops.POLL.value], st[request + ops.POLL.mask]


@jit
def condition_at(base, k):
    """Return where the k-th condition of a core's `poll_any` begins."""
    return base + REQUEST + ops.POLL_ANY.first + CONDITION_WORDS * k + (1 if k >= _BEFORE_SITE else 0)


@jit
def n_conditions(st, base):
    """Count the conditions of a core's `poll_any`; a comparison that a kernel gets wrong does not end them."""
    n = 0
    while n < CONDITIONS_MOST:
        at = condition_at(base, n)
        if st[at] == UNUSED[0] and st[at + 1] == CMP_UNUSED:
            break
        n += 1
    return n


@jit
def can_be_polled(st, base, end):
    """Return whether a core's `poll_any` will not be refused: words aligned, below ``end``, compared in a known way."""
    for k in range(n_conditions(st, base)):
        address, compare = st[condition_at(base, k)], st[condition_at(base, k) + 1]
        if address < 0 or address > end - 8 or address & 7 or compare < CMP_EQ or compare > CMP_GE:
            return False
    return n_conditions(st, base) > 0


@call
def forget(st, base):
    """Drop the conditions after the site: no other request writes there."""
    for k in range(_BEFORE_SITE, CONDITIONS_MOST):
        for w in range(CONDITION_WORDS):
            put(st, condition_at(base, k) + w, 0)


# ---- lines


@jit
def is_line(nbytes):
    """Return whether this is the size of a line."""
    return nbytes >= ms.LINE_BYTES_LEAST and nbytes <= ms.LINE_BYTES_MOST and nbytes & nbytes - 1 == 0


@jit
def polls_line(st, base):
    """Does the core's request poll a line?"""
    return st[base + REQUEST] == OP_POLL and is_line(st[base + REQUEST + ops.POLL.nbytes])


@jit
def polls_whole_word(st, base):
    """Does the core's request poll a word of 8 bytes, and all bits of it?"""
    request = base + REQUEST
    return st[request] == OP_POLL and st[request + ops.POLL.nbytes] == 8 and st[request + ops.POLL.mask] == -1


@jit
def line_parts(st, base):
    """Count the parts in which the scalar unit carries out its request: the parts of a line, 1 of anything else."""
    if not polls_line(st, base):
        return 1
    return max(1, st[base + REQUEST + ops.POLL.nbytes] >> st[ms.ATOMIC_SHIFT])


@jit
def line_part(st, base, choice):
    """First byte, counted from the line's, and bytes of what a choice reads.

    `CHOICE_ALL` is the whole line if nothing of it has been read, else the first granule that has not been.
    """
    nbytes, done = st[base + REQUEST + ops.POLL.nbytes], st[base + ms.POLLED]
    size = min(1 << st[ms.ATOMIC_SHIFT], nbytes)
    if choice == ms.CHOICE_ALL:
        if done == 0:
            return 0, nbytes
        choice = 0
        while done >> choice & 1:
            choice += 1
    return choice * size, size


@jit
def flags_in(mem, st, base, first, nbytes):
    """Return whether the flags that are among some bytes of a polled line have the values waited for."""
    address = st[base + REQUEST + ops.POLL.address]
    compare, value, flags = awaited_by(st, base)
    for w in range(first >> 2, first + nbytes >> 2):
        if flags >> w & 1:
            wanted = value >> (32 * (w & 1))
            same = (load_i32(mem, address + 4 * w) ^ wanted) & 0xFFFFFFFF == 0
            if same != (compare == CMP_EQ):
                return False
    return True


@jit
def read_line(mem, st, base, choice, off):
    """Read what a choice says of a line that was checked, if its flags are in or it is switched ``off``."""
    first, nbytes = line_part(st, base, choice)
    done = st[base + ms.POLLED]
    size = min(1 << st[ms.ATOMIC_SHIFT], st[base + REQUEST + ops.POLL.nbytes])
    if done >> (first // size) & 1 or not (off or flags_in(mem, st, base, first, nbytes)):
        return False
    source, target = st[base + REQUEST + ops.POLL.address], st[base + ms.UB_BASE] + st[base + REQUEST + ops.POLL.ub]
    move(mem, st, target + first, source + first, nbytes)
    done |= (1 << nbytes // size) - 1 << first // size
    put(st, base + ms.POLLED, 0 if done == (1 << line_parts(st, base)) - 1 else done)
    return True
