"""Waits that an abort ends, for kernels of iterations that may be rolled back (xDeepServe 6.2, stage 3).

An abort is a word of each rank that only grows, the *epoch*.  Whoever waits for another rank hears of a later one, and
goes on as if there were nothing to wait for: it leaves out what it has waited for, and comes to its end with all
barriers and flags as they are without an abort.  So the cores of a rank need not agree on where they have heard of it.
What they have written then is of no use, and what they tell others has to be true all the same.

A kernel that nothing aborts is given `Abort()`; then its waits are those that it would have without this, to the bit.
"""

from typing import NamedTuple

from xccl_emu import lang as xl


class Abort(NamedTuple):
    """How a core hears that what it does is aborted."""

    word: int = 0
    """Address of the own rank's epoch; 0: there is no abort."""
    epoch: int = 0
    """In which it runs: a later one in that word is the abort."""
    first: int = 0
    """Event ID of the first round of the epoch; nobody reads any more what was written before."""


def until(going, word, how, value, x: Abort, step, sync):
    """Wait until a word is as it should be, and return 1; 0 if an abort came sooner, or without ``going`` before.

    ``how`` is a literal.
    """
    if x.word:
        came = -1
        if going:
            came = yield xl.poll_any((word, how, value), (x.word, xl.CMP_GE, x.epoch + 1), step=step, sync=sync)
        return came == 0
    elif how == xl.CMP_EQ:
        yield xl.poll_eq(word, value, step=step, sync=sync)
    else:
        yield xl.poll_ge(word, value, step=step, sync=sync)
    return 1


def until_free(acked, event, x: Abort, step, sync):
    """Wait until a peer has read what it was offered in the round before, as it says in ``acked``; 0 on an abort."""
    least = event - 1
    if x.word:
        least = least * (event != x.first)
    free = yield from until(1, acked, xl.CMP_GE, least, x, step, sync)
    return free


def unaborted(x: Abort, step):
    """Whether no core of the rank has heard of an abort before the last barrier."""
    if x.word == 0:
        return 1
    yield xl.dcci(x.word, step=step, sync="abort line")
    seen = yield xl.load(x.word, step=step, sync="abort in")
    return seen <= x.epoch
