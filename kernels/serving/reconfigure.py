"""A redundant expert slot gets other weights while tokens are served ([xDeepServe] 4.5, step 3).

An expert die has a slot for each expert and then a redundant one.  Each source has a map, which says for each
expert to which slots tokens go, by turns of their positions.  The loader, a core of the expert die, publishes a map
without the redundant slot, loads it, and publishes a map with the new expert.

The paper lists these phases.  Between the second and the third there must be a *grace period*: a source that still uses
the old map has tokens on their way to the slot.  A source adopts a map between two iterations, when all its tokens are
back, and says so; maps are numbered, and messages have the number.  No source ever waits for the loader.
"""

from typing import NamedTuple

from xccl_emu import lang as xl
from xccl_emu.kernels.common import fetch
from xccl_emu.kernels.experts.dummy import refuse_stale
from xccl_emu.kernels.group import hand_over

FIELD_BYTES = 32
GONE = 1 << 32
"""What a source adds to its answers at its end: it uses no map any more."""


class Swap(NamedTuple):
    """Addresses and sizes; addresses of a source are on source 0, and on source q they are ``q * pitch`` further on."""

    me: int
    """Number of the source."""
    sources: int
    pitch: int
    maps: int
    """[2 x experts] fields on each source, a table for even and one for odd versions: slots of even and odd tokens."""
    version: int
    """On each source: number of the map."""
    results: int
    """[tokens] fields on each source: iteration + 1, value."""
    messages: int
    """[sources x tokens] fields on the expert die: iteration + 1, slot, token, version of the map."""
    adopted: int
    """[sources] fields on the expert die: version that each source uses."""
    since: int
    """[experts + 1] fields on the expert die: version of the map from which on a slot has its weights."""
    weights: int
    """[experts + 1] slots on the expert die."""
    experts: int
    nbytes: int
    """Bytes of an expert's weights."""
    rounds: int
    tokens: int
    """Tokens of a source in an iteration."""
    swaps: int
    grace: int
    """Does the loader wait until all sources have adopted a map?"""


class _Sources(Swap):
    maps: xl.Own[xl.Reads]
    version: xl.Own[xl.Reads]
    results: xl.Own[xl.Reads]
    messages: xl.Writes
    adopted: xl.Writes


class _Computes(Swap):
    results: xl.Anywhere[xl.Writes]
    messages: xl.Own[xl.Reads]
    since: xl.Own[xl.Reads]
    weights: xl.Own[xl.Reads]


class Reloads(Swap):
    """What the loader touches; on the expert die the redundant slot, and the version that goes with it."""

    maps: xl.Anywhere[xl.Writes]
    version: xl.Anywhere[xl.Writes]
    adopted: xl.Own[xl.Reads]
    since: xl.Writes
    weights: xl.Writes


def adopt(version, s: Swap):
    """Return the newest map's number, and announce it if it is not ``version``, by which nothing is under way."""
    yield xl.dcci(s.version + s.me * s.pitch, sync="version line")
    now = yield xl.load(s.version + s.me * s.pitch, step=2, sync="version in")
    if now > version:
        yield xl.add(s.adopted + s.me * FIELD_BYTES, now - version, step=2, sync="adopted")
    return now


def slot_by(version, expert, t, s: Swap):
    """The slot of an expert for the t-th token, by a map."""
    entry = s.maps + s.me * s.pitch + (version % 2 * s.experts + expert) * FIELD_BYTES
    yield xl.dcci(entry, sync="map line")
    slot = yield xl.load(entry + t % 2 * 8, step=4)
    return slot


def leave(s: Swap):
    """Announce that this source uses no map any more."""
    yield xl.add(s.adopted + s.me * FIELD_BYTES, GONE, step=2, sync="adopted")


@xl.kernel
def serve(tokens: xl.Reads, out: xl.Writes, s: _Sources):
    """Send each token to its expert and store what comes back; ``tokens`` are [rounds x tokens] of expert and value."""
    version = 0
    results = s.results + s.me * s.pitch
    for i in range(s.rounds):
        version = yield from adopt(version, s)
        for t in range(s.tokens):
            expert = yield xl.load(tokens + (i * s.tokens + t) * 16)
            value = yield xl.load(tokens + (i * s.tokens + t) * 16 + 8)
            slot = yield from slot_by(version, expert, t, s)
            message = s.messages + (s.me * s.tokens + t) * FIELD_BYTES
            yield xl.put(message, i + 1, slot, value, version, step=4, sync="token")
        for t in range(s.tokens):
            yield xl.poll_ge(results + t * FIELD_BYTES, i + 1, sync="result in")
            yield xl.dcci(results + t * FIELD_BYTES, sync="result line")
            value = yield xl.load(results + t * FIELD_BYTES + 8)
            yield xl.store(out + (i * s.tokens + t) * 8, value)
    yield from leave(s)


@xl.kernel
def compute(s: _Computes):
    """The experts: a token and the first word of the weights are added up."""
    for i in range(s.rounds):
        for n in range(s.sources * s.tokens):
            message = s.messages + n * FIELD_BYTES
            yield xl.poll_ge(message, i + 1, sync="token in")
            yield xl.dcci(message, sync="token line")
            slot = yield xl.load(message + 8)
            value = yield xl.load(message + 16)
            version = yield xl.load(message + 24)
            yield from refuse_stale(slot, version, s.since)
            yield from fetch(s.weights + slot * s.nbytes, 0, s.nbytes, 0, "weights in buffer")
            weight = yield xl.ub_load(0, 8)
            result = s.results + n // s.tokens * s.pitch + n % s.tokens * FIELD_BYTES
            yield xl.put(result, i + 1, value + weight, sync="result")


def home_of(expert: int, between: int) -> int:
    """Return the first slot of an expert, where ``between`` are between two redundant slots."""
    return expert + expert // between


def publish(version, expert, slot, between, s: Swap):
    """Write a map to the table that no source uses, then its number.  Odd tokens of an expert, if it is one, go to a
    redundant slot."""
    for q in range(s.sources):
        for e in range(s.experts):
            entry = s.maps + q * s.pitch + (version % 2 * s.experts + e) * FIELD_BYTES
            home = home_of(e, between)
            second = home
            if e == expert:
                second = slot
            yield xl.put(entry, home, second, step=2)
        yield xl.fence(step=2, sync="map before version")
        yield xl.put(s.version + q * s.pitch, version, step=2, sync="version")


def await_adopted(version, s: Swap):
    """Wait until no source uses an older map."""
    for q in range(s.sources):
        yield xl.poll_ge(s.adopted + q * FIELD_BYTES, version, step=2, sync="all adopted")


def swap_in(i, expert, slot, between, storage, s: Swap):
    """Give a redundant slot to an expert, as the change of number ``i``; ``storage`` are the weights of [experts]."""
    yield xl.mtu_in(storage + expert * s.nbytes, 0, s.nbytes, step=1)
    if i > 0:
        yield from await_adopted(2 * i, s)
    yield from publish(2 * i + 1, s.experts, slot, between, s)
    if s.grace:
        yield from await_adopted(2 * i + 1, s)
    yield from hand_over(xl.MTU_IN, xl.MTU_OUT, 0, "weights prefetched", step=1)
    yield xl.put(s.since + slot * FIELD_BYTES, 2 * i + 2, step=3, sync="slot version")
    yield xl.mtu_out(0, s.weights + slot * s.nbytes, s.nbytes, step=3)
    yield xl.quiet(step=3, sync="weights before map")
    yield from publish(2 * i + 2, expert, slot, between, s)


@xl.kernel
def reload(storage: xl.Reads, s: Reloads):
    """Give the redundant slot, which comes after all experts', to the next expert, ``swaps`` times."""
    for i in range(s.swaps):
        yield from swap_in(i, (i + 1) % s.experts, s.experts, s.experts, storage, s)
