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
- Who has heard of an abort leaves its loop, and says nothing of the call.  The cores of a stream, or of an attention
  die, leave together: after each wait they agree (`aborts.agreed`), so that none is left alone at a barrier, and none
  speaks for a core whose share is missing.
- The first core of an attention die, and of a third stream, agrees with the other dies, and the others follow.

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
from xccl_emu.kernels.experts.rounds import next_round, settle
from xccl_emu.kernels.rollback import END, EPOCH, OfRank, RankWords, fails

FIRST, SECOND, THIRD, STREAMS = range(4)
"""The streams of an expert die, and how many they are; an attention die is as a first one."""


class Attempts(NamedTuple):
    """What the streams of a die have to do where calls may be rolled back; words are on die 0."""

    stride: int
    """Distance from the numbers of the calls of an epoch to the numbers of the next epoch."""
    failures: int
    """How many attempts of each attention die may go wrong, whichever: before it sends, or when it is through."""
    settled: int
    """By stream: one more than the epoch in which it has come to rest."""
    given_up: int
    """By stream, the word by which its cores agree to leave a call (`Abort.given_up`); 0 where it has one core."""
    resume: int
    """Word in which the first core that agrees with the other dies gives the die's other cores the call to go on with.
    """


def first_call(word: int, stride: int) -> int:
    """The number of the first call of an attempt."""
    return word // EPOCH * stride + word % EPOCH


def given_up_at(given_up: int, here: int, stream: int) -> int:
    """Return the address of a stream's word, ``here`` bytes after the first die's, if there is one."""
    return given_up + here + stream * FIELD_BYTES if given_up else 0


def follow(word, n: Attempts, r: RankWords):
    """Return where to go on, when the core that agrees with the other dies has written that."""
    here = r.me * r.pitch
    yield xl.poll_ne(n.resume + here, word, sync="told in")
    yield xl.dcci(n.resume + here, sync="told line")
    word = yield xl.load(n.resume + here, sync="told in")
    return word


def rest(core, word, stream, n: Attempts, r: RankWords):
    """Report to the third stream that this one is at rest; returns where to go on."""
    yield from settle()
    if core == 0:
        yield xl.put(n.settled + r.me * r.pitch + stream * FIELD_BYTES, word // EPOCH + 1, sync="at rest")
    word = yield from follow(word, n, r)
    return word


def lead(die, word, c: Group, m: Domains, at: Places, r: RankWords, n: Attempts):
    """Agree with the other dies, when the die is at rest, and give its other cores the call to go on with."""
    here = r.me * r.pitch
    for stream in range(THIRD):
        yield xl.poll_ge(n.settled + here + stream * FIELD_BYTES, word // EPOCH + 1, sync="at rest in")
    word = yield from next_round(
        0, r.iterations - 1, 0, 0, c._replace(cores=1), r, Abort(r.abort + here, word // EPOCH)
    )  # fmt: skip
    if word != END:
        yield from forget(die, first_call(word, n.stride), c, m, at)
    yield xl.put(n.resume + here, word, sync="go on")
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


class _AttendsWords(Attempts):
    given_up: xl.Own[xl.Updates]
    resume: xl.Own[xl.Updates]


class _FollowsWords(Attempts):
    settled: xl.Own[xl.Writes]
    given_up: xl.Own[xl.Updates]
    resume: xl.Own[xl.Reads]


class _LeadsWords(Attempts):
    settled: xl.Own[xl.Reads]
    given_up: xl.Own[xl.Updates]
    resume: xl.Own[xl.Updates]


class _ReturnsAgain(Returns):
    acks: xl.Own[xl.Writes]


@xl.kernel
def attention_again(
    core, calls, batches: xl.Reads, c: Group, b: AttentionBuffers, m: Domains, at: Microbatch, r: OfRank,
    n: _AttendsWords,
):  # fmt: skip
    """An attention die, whose attempts may be aborted; its first core says what goes wrong."""
    word = 0
    left = n.failures
    while word != END:
        here = r.me * r.pitch
        broken = 0
        if core == 0:
            broken = yield from fails(left, r)
            left -= broken
        i = yield from serve(
            1 - broken, core, word % EPOCH, calls, batches, c, b, m, at,
            Abort(
                r.abort + here, word // EPOCH, first_call(word, n.stride), given_up=given_up_at(n.given_up, here, FIRST)
            ),
        )  # fmt: skip
        if core == 0 and not broken:
            broken = yield from fails(left, r)
            left -= broken
        yield from settle()
        word = yield from next_round(
            core, min(i, calls - 1), broken, n.resume + here, c, r, Abort(r.abort + here, word // EPOCH)
        )  # fmt: skip


@xl.kernel
def a2e_again(core, die, c: Group, b: TakenBuffers, m: Domains, at: Takes, r: _Follows, n: _FollowsWords):
    """The first stream, whose attempts may be aborted."""
    word = 0
    while word != END:
        here = r.me * r.pitch
        yield from take_calls(
            core, die, c, b, m, at,
            Abort(
                r.abort + here, word // EPOCH, first_call(word, n.stride), given_up=given_up_at(n.given_up, here, FIRST)
            ),
        )  # fmt: skip
        word = yield from rest(core, word, FIRST, n, r)


@xl.kernel
def compute_again(core, die, c: Group, b: DummyBuffers, m: Domains, at: Computes, r: _Follows, n: _FollowsWords):
    """The second stream, whose attempts may be aborted."""
    word = 0
    while word != END:
        here = r.me * r.pitch
        yield from compute_calls(
            core, die, c, b, m, at,
            Abort(
                r.abort + here, word // EPOCH, first_call(word, n.stride),
                given_up=given_up_at(n.given_up, here, SECOND),
            ),
        )  # fmt: skip
        word = yield from rest(core, word, SECOND, n, r)


@xl.kernel
def e2a_again(
    core, die, c: Group, b: ReturnedBuffers, m: Domains, at: _ReturnsAgain, plan: ReturnPlan, r: OfRank, n: _LeadsWords
):  # fmt: skip
    """The third stream, whose first core agrees with the other dies."""
    word = 0
    while word != END:
        here = r.me * r.pitch
        yield from return_calls(
            core, die, c, b, m, at, plan,
            Abort(
                r.abort + here, word // EPOCH, first_call(word, n.stride), given_up=given_up_at(n.given_up, here, THIRD)
            ),
        )  # fmt: skip
        yield from settle()
        if core == 0:
            word = yield from lead(die, word, c, m, at, r, n)
        else:
            word = yield from follow(word, n, r)
