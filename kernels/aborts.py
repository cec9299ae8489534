"""Waits that an abort ends, for kernels of rounds that may be rolled back (xDeepServe 6.2, stage 3).

An abort is a word of each rank that only grows, the *epoch*.  Who waits for what another rank has to send hears of a
later one, leaves out what has not come, and goes on to the end, with all barriers and flags as without an abort; so the
cores of a rank need not agree on where they have heard of it.  What a core has made then is of no use, and is not
offered.  But it acknowledges what it was offered: who has begun a round comes to its end, and nobody else waits for
that in vain.

A rank may also leave for good (6.2, stage 2).  Then the abort is the word that says which one.  The others send nothing
to it in the new epoch, and wait for nothing of it: no counts, no rows, no acknowledgments.  One that it owes in the old
epoch may never come, so these waits end too; a block that is not free is not written, and then nothing is offered.

Where the cores of a rank would leave a loop, or a barrier, they do agree, by another word (``given_up``): a core that
has heard writes it before they meet, and all read it before they meet again.

Without an abort, `Abort()`, the waits are what they would be without this, to the bit.
"""

from typing import NamedTuple

from xccl_emu import lang as xl
from xccl_emu.kernels.group import barrier

NOBODY = -1
"""As the rank that has left: none can."""


class Abort(NamedTuple):
    """How a core hears that what it does is aborted."""

    word: int = 0
    """Address of the own rank's epoch; 0: there is no abort."""
    epoch: int = 0
    """In which it runs: a later one in that word is the abort."""
    first: int = 0
    """Event ID of the first round of the epoch."""
    left: int = NOBODY
    """The rank that has left for good; no rank's number if none has, but one may."""
    given_up: int = 0
    """Address of the word by which cores that run this together agree to leave; 0: there is one, or they need not."""


def unless(going, word, compare, value, x: Abort, step, sync):
    """Wait until a word is as it should be, and return 1; 0 if an abort came sooner, or had before (``going``)."""
    came = -1
    if going:
        came = yield xl.poll_any((word, compare, value), (x.word, xl.CMP_GE, x.epoch + 1), step=step, sync=sync)
    return came == 0


def until(going, field, event, x: Abort, step, sync):
    """Wait until a field has come to an event, or an abort; returns what `unless` returns."""
    if x.word:
        came = yield from unless(going, field, xl.CMP_EQ, event, x, step, sync)
        return came
    yield xl.poll_eq(field, event, step=step, sync=sync)
    return 1


def until_least(going, word, least, x: Abort, step, sync):
    """Wait until a word is at least ``least``, or for an abort; returns what `unless` returns."""
    if x.word:
        came = yield from unless(going, word, xl.CMP_GE, least, x, step, sync)
        return came
    yield xl.poll_ge(word, least, step=step, sync=sync)
    return 1


def meet(going, x: Abort, step, sync):
    """Meet the other cores; returns whether all of them go on, which is 0 if one has heard of an abort before.

    They meet twice: a core that went on at once might hear of an abort at its next wait, and write that, before another
    one has read the word.
    """
    if x.given_up:
        if not going:
            yield xl.put(x.given_up, x.epoch + 1, step=step, sync="given up")
            yield xl.quiet(step=step, sync="given up before all meet")
    yield from barrier(step, sync)
    if x.given_up:
        yield xl.dcci(x.given_up, step=step, sync="given up line")
        seen = yield xl.load(x.given_up, step=step)
        yield from barrier(step, "all cores agree")
        return seen <= x.epoch
    return going


def agreed(going, x: Abort, step):
    """Return whether all cores that run this together go on; a core alone does as it likes."""
    if x.given_up:
        going = yield from meet(going, x, step, "all cores have waited")
    return going


def until_first(core, going, word, least, x: Abort, step, sync):
    """Wait until a word is at least ``least``, or for an abort; where cores agree, the first one waits for all."""
    if core == 0 or x.given_up == 0:
        going = yield from until_least(going, word, least, x, step, sync)
    return going


def until_all(core, going, word, least, x: Abort, step, sync):
    """Wait so, and agree: all cores return the same."""
    going = yield from until_first(core, going, word, least, x, step, sync)
    going = yield from agreed(going, x, step)
    return going


def until_free(acknowledged, peer, event, x: Abort, step, sync):
    """Wait until a peer has acknowledged the event before this one; then its block may be written again.

    Not in the first round of an epoch: it begins when all that was offered before is read, or never will be.
    Returns 0 if the peer has left, or may have and an abort came sooner.
    """
    least = event - 1
    if x.word:
        least = least * (event > x.first)
    if x.left != NOBODY:
        if peer == x.left:
            return 0
        came = yield from unless(1, acknowledged, xl.CMP_GE, least, x, step, sync)
        return came
    yield xl.poll_ge(acknowledged, least, step=step, sync=sync)
    return 1


def unaborted(x: Abort):
    """Return whether no core of the rank had heard of an abort at the last barrier."""
    if x.word == 0:
        return 1
    yield xl.dcci(x.word, sync="abort line")
    seen = yield xl.load(x.word, sync="abort in")
    return seen <= x.epoch


def may_offer(x: Abort):
    """Return whether what is offered is whole: a core may have left out what was for a block that was not free."""
    if x.left == NOBODY:
        return 1
    whole = yield from unaborted(x)
    return whole
