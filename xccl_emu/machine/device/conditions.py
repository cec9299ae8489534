"""What polls wait for: the condition of one word, or the first that holds of up to four (`poll_any`).

A condition of `poll_any` is three words after the operation: address, comparison, value.  The site lies between the
second and the third, and from there on words are 0 while the request is another (`forget`).
"""

from xccl_emu.lang import operations as ops
from xccl_emu.lang.abi import REQUEST, REQUEST_WORDS
from xccl_emu.lang.requests import CMP_EQ, CMP_GE, CMP_NE, CMP_UNUSED, CONDITION_WORDS, CONDITIONS_MOST, UNUSED
from xccl_emu.machine.device.words import call, jit, put

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


assert CMP_EQ < CMP_NE < CMP_GE
