"""A2E and E2A that may be rolled back: an abort can come at any moment, and all dies go back to the same call.

The streams are those that are launched elsewhere, from a call on and not only from the first; an attempt is all of them
from there to the end, or to where an abort is heard.  What makes it safe to go back:

- Calls are numbered on from epoch to epoch, ``stride`` numbers apart, which is more than there are calls and takes
  turns, ``depth`` and ``depth + 1`` evenly.  So no field of an aborted attempt is taken for one of the next, and what
  is by ``call % depth`` stays where it was.
- A die announces that it has come to an epoch when all three of its streams are at rest: each reports to the third
  one, by a word, when all that it issued is done.  Nobody begins before all dies have announced the epoch, so by then
  no slot, inbox, row or staging is in use, and no arrival is under way.
- Only then the third stream sets what is counted up and not numbered: arrivals to none, acknowledgments, and the calls
  sent back and relayed, to those before the call.  It signals the other two when that is done.  A die adds to these
  words only after the die's own first stream has sent it something, so not before.
- Slots of the first call of an epoch are free; slots of a later call are when the trampoline says so, in that epoch.
- Who has heard of an abort leaves its loop, and says nothing of the call.

An attention die goes back to the first call whose sums it has not written.  An expert die has nothing to say of where
to go on, so it says the last call, until the end has come to its third stream.
"""

from typing import NamedTuple

from xccl_emu import lang as xl
from xccl_emu.kernels.a2e.attention import AttentionBuffers, serve
from xccl_emu.kernels.a2e.e2a import ReturnedBuffers, Returns, return_calls
from xccl_emu.kernels.a2e.expert import Computes, TakenBuffers, Takes, compute_calls, take_calls
from xccl_emu.kernels.a2e.parameters import Domains, Microbatch, Places, ReturnPlan
from xccl_emu.kernels.aborts import Abort
from xccl_emu.kernels.experts.counts import FIELD_BYTES
from xccl_emu.kernels.experts.dummy import DummyBuffers
from xccl_emu.kernels.experts.parameters import Group
from xccl_emu.kernels.experts.rounds import next_round
from xccl_emu.kernels.rollback import END, EPOCH, OfRank, RankWords, fails

FIRST, SECOND, STREAMS = range(3)
"""The streams that the third one waits for, and how many they are."""


class Attempts(NamedTuple):
    """What the streams of a die have to do where calls may be rolled back; words are on die 0."""

    stride: int
    """Distance from the numbers of the calls of an epoch to the numbers of the next epoch."""
    failures: int
    """How many attempts of each attention die may go wrong, whichever: before it sends, or when it is through."""
    settled: int
    """By stream: one more than the epoch in which it has come to rest."""
    resume: int
    """Word in which the third stream gives the others the call that they continue with."""


def first_call(word: int, stride: int) -> int:
    """The number of the first call of an attempt."""
    return word // EPOCH * stride + word % EPOCH


def rest(word, stream, n: Attempts, r: RankWords):
    """Report to the third stream that this one is at rest; returns where to go on."""
    here = r.me * r.pitch
    yield xl.quiet(sync="attempt over")
    yield xl.put(n.settled + here + stream * FIELD_BYTES, word // EPOCH + 1, sync="at rest")
    yield xl.poll_ne(n.resume + here, word, sync="told in")
    yield xl.dcci(n.resume + here, sync="told line")
    word = yield xl.load(n.resume + here, sync="told in")
    return word


def forget(die, call, c: Group, m: Domains, at: Places):
    """Count from ``call`` on: all that was sent before has arrived, and is of no use."""
    here = die * c.die_bytes
    yield xl.put(at.sent + here, call, sync="rows forgotten")
    if die < m.trampolines:
        yield xl.put(at.relayed + here, call, sync="staging forgotten")
        yield xl.put(at.acks + here, c.n_ranks * call, sync="acknowledgments forgotten")
        for i in range(m.depth * m.fan_in * m.e2a_parts):
            yield xl.put(at.arrivals + here + i * FIELD_BYTES, 0, sync="arrivals forgotten")
    yield xl.quiet(sync="all forgotten")


class _Follows(RankWords):
    abort: xl.Own[xl.Reads]


class _FollowsWords(Attempts):
    settled: xl.Own[xl.Writes]
    resume: xl.Own[xl.Reads]


class _LeadsWords(Attempts):
    settled: xl.Own[xl.Reads]
    resume: xl.Own[xl.Writes]


class _ReturnsAgain(Returns):
    acks: xl.Own[xl.Writes]


@xl.kernel
def attention_again(
    core, calls, batches: xl.Reads, c: Group, b: AttentionBuffers, m: Domains, at: Microbatch, r: OfRank, n: Attempts
):  # fmt: skip
    """An attention die, whose attempts may be aborted."""
    word = 0
    left = n.failures
    while word != END:
        abort = r.abort + r.me * r.pitch
        i = word % EPOCH
        broken = yield from fails(left, r)
        left -= broken
        if not broken:
            i = yield from serve(
                core, i, calls, batches, c, b, m, at, Abort(abort, word // EPOCH, first_call(word, n.stride))
            )  # fmt: skip
            broken = yield from fails(left, r)
            left -= broken
        yield xl.quiet(sync="attempt over")
        word = yield from next_round(core, min(i, calls - 1), broken, 0, c, r, Abort(abort, word // EPOCH))


@xl.kernel
def a2e_again(core, die, c: Group, b: TakenBuffers, m: Domains, at: Takes, r: _Follows, n: _FollowsWords):
    """The first stream, whose attempts may be aborted."""
    word = 0
    while word != END:
        abort = r.abort + r.me * r.pitch
        yield from take_calls(core, die, c, b, m, at, Abort(abort, word // EPOCH, first_call(word, n.stride)))
        word = yield from rest(word, FIRST, n, r)


@xl.kernel
def compute_again(core, die, c: Group, b: DummyBuffers, m: Domains, at: Computes, r: _Follows, n: _FollowsWords):
    """The second stream, whose attempts may be aborted."""
    word = 0
    while word != END:
        abort = r.abort + r.me * r.pitch
        yield from compute_calls(core, die, c, b, m, at, Abort(abort, word // EPOCH, first_call(word, n.stride)))
        word = yield from rest(word, SECOND, n, r)


@xl.kernel
def e2a_again(
    core, die, c: Group, b: ReturnedBuffers, m: Domains, at: _ReturnsAgain, plan: ReturnPlan, r: OfRank, n: _LeadsWords
):  # fmt: skip
    """The third stream, which agrees with the other dies and gives the first two the call to go on with."""
    word = 0
    while word != END:
        abort = r.abort + r.me * r.pitch
        yield from return_calls(core, die, c, b, m, at, plan, Abort(abort, word // EPOCH, first_call(word, n.stride)))
        yield xl.quiet(sync="attempt over")
        for stream in range(STREAMS):
            settled = n.settled + r.me * r.pitch + stream * FIELD_BYTES
            yield xl.poll_ge(settled, word // EPOCH + 1, sync="at rest in")
        word = yield from next_round(core, r.iterations - 1, 0, 0, c, r, Abort(abort, word // EPOCH))
        if word != END:
            yield from forget(die, first_call(word, n.stride), c, m, at)
        yield xl.put(n.resume + r.me * r.pitch, word, sync="go on")
