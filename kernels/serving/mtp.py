"""Multi-token prediction, whose metadata is prepared ahead ([CloudMatrix384] 4.2.4, [xDeepServe] 4.6).

In each decode step several draft graphs each predict a token; the validation graph decides how many of them are right,
and adds one of its own.  Where the next step's tokens go depends on that.  The host prepares the metadata of a step,
one block for each graph, before that is known: positions relative to the length.  The length itself is one word on the
die, which the sampler writes and the graphs of the next step read: the number of steps that are through, and the
length, so that none of them takes the length of an earlier step for its own.

Steps: 1 the host prepares all metadata of a step; 2 draft graphs predict tokens; 3 the validation graph reads them and
decides; 4 the sampler writes the tokens that are accepted, and the word.

Metadata is in two tables by parity of the step: the host rewrites one when the word says that the step two earlier
is through.  Drafts are read before the word of their step is written, so one set of them is enough.
"""

from typing import NamedTuple

from xccl_emu import lang as xl

FIELD_BYTES = 32
STEP = 1 << 32
"""The word is ``steps * STEP + length``."""


class Decode(NamedTuple):
    """Addresses and sizes."""

    length: int
    """A word: steps that are through, and tokens that there are."""
    metadata: int
    """[2, drafts + 1] fields by parity of the step and graph: where its token goes, from the length on."""
    prepared: int
    """A word: steps whose metadata is there."""
    drafts: int
    """[n] fields: predicted tokens."""
    drafted: int
    """A word: steps whose drafts are there."""
    tokens: int
    """[positions] fields."""
    n: int
    """Draft graphs of a step."""
    steps: int


class _Prepares(Decode):
    length: xl.Reads
    metadata: xl.Writes
    prepared: xl.Writes


class _Drafts(Decode):
    length: xl.Reads
    metadata: xl.Reads
    prepared: xl.Reads
    tokens: xl.Reads
    drafts: xl.Writes
    drafted: xl.Writes


class _Validates(Decode):
    length: xl.Updates
    metadata: xl.Reads
    drafts: xl.Reads
    drafted: xl.Reads
    tokens: xl.Writes


@xl.kernel
def prepare(d: _Prepares):
    """The host writes the metadata of each step; numbers of steps are in it, so that no block is like another."""
    for step in range(d.steps):
        if step >= 2:
            yield xl.poll_ge(d.length, (step - 1) * STEP, step=1, sync="table free")
        for graph in range(d.n + 1):
            yield xl.put(d.metadata + (step % 2 * (d.n + 1) + graph) * FIELD_BYTES, 16 * step + graph, step=1)
        yield xl.fence(step=1, sync="metadata before prepared")
        yield xl.put(d.prepared, step + 1, step=1, sync="prepared")


def block(step, graph, d: Decode):
    """Return the metadata of a graph."""
    address = d.metadata + (step % 2 * (d.n + 1) + graph) * FIELD_BYTES
    yield xl.dcci(address, sync="metadata line")
    there = yield xl.load(address)
    return there


def current(d: Decode):
    """Return the length."""
    yield xl.dcci(d.length, sync="length line")
    word = yield xl.load(d.length)
    return word % STEP


@xl.kernel
def draft(d: _Drafts):
    """Predict tokens from the last one, in each step."""
    for step in range(d.steps):
        yield xl.poll_ge(d.prepared, step + 1, step=2, sync="prepared in")
        yield xl.poll_ge(d.length, step * STEP, step=2, sync="length in")
        length = yield from current(d)
        last = d.tokens + (length - 1) * FIELD_BYTES
        yield xl.dcci(last, sync="token line")
        token = yield xl.load(last, step=2)
        for graph in range(d.n):
            at = yield from block(step, graph, d)
            token = token * 3 + length + at
            yield xl.put(d.drafts + graph * FIELD_BYTES, token, step=2)
        yield xl.fence(step=2, sync="drafts before drafted")
        yield xl.put(d.drafted, step + 1, step=2, sync="drafted")


@xl.kernel
def validate(accepts: xl.Reads, d: _Validates):
    """Keep the first ``accepts`` [steps] drafts of each step, and sample one token more."""
    for step in range(d.steps):
        yield xl.poll_ge(d.drafted, step + 1, step=3, sync="drafted in")
        length = yield from current(d)
        accepted = yield xl.load(accepts + step * 8, step=3)
        for i in range(accepted):
            yield xl.dcci(d.drafts + i * FIELD_BYTES, sync="draft line")
            token = yield xl.load(d.drafts + i * FIELD_BYTES, step=3)
            yield xl.put(d.tokens + (length + i) * FIELD_BYTES, token, step=4)
        at = yield from block(step, d.n, d)
        yield xl.put(d.tokens + (length + accepted) * FIELD_BYTES, length * 7 + at, step=4)
        yield xl.fence(step=4, sync="tokens before length")
        yield xl.put(d.length, (step + 1) * STEP + length + accepted + 1, step=4, sync="length")
