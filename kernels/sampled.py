"""Tokens and a KV cache in iterations that may be rolled back (xDeepServe 6.2, stage 3: token recomputation).

In an iteration a rank appends the entry of its last token to its cache, attends to all entries, and samples the next
token from what that makes and from the last tokens of all others; a remainder is in place of both.  Its *state* is how
many entries the cache has and which token is the last one.  An abort may come between the two, and a rank may be an
iteration ahead of the one that all go back to.  So the state is taken back to that iteration's, by the tokens that were
sampled before; the entry that does not count is written again, and its token sampled again.
"""

from typing import NamedTuple

from xccl_emu import lang as xl
from xccl_emu.kernels.common import fetch

ENTRY_BYTES = 32
"""An entry of the cache: the token and its position."""
VOCABULARY = 1 << 15
TOKEN_AT = 8
"""Where a row's header has the sender's last token."""


class Decoding(NamedTuple):
    """What a rank decodes; addresses are own app data."""

    prompt: int
    """Entries of the cache before the first iteration; 0: there is none, and no tokens."""
    state: xl.Updates
    """Words: entries of the cache, and the last token."""
    sampled: xl.Updates
    """[iterations + 1] words: the last token of the prompt, and those that are sampled."""
    cache: xl.Updates
    """[prompt + iterations] entries."""
    work: int
    """Where the data buffer has room for them."""


def attend(header, t: Decoding):
    """Append the last token's entry, leave the token in a row's header, and return what attention makes of them all."""
    length = yield xl.load(t.state, step=1)
    token = yield xl.load(t.state + 8, step=1)
    yield xl.put(t.cache + length * ENTRY_BYTES, token, length, step=1)
    yield xl.ub_store(header + TOKEN_AT, token, 8, step=1)
    yield xl.quiet(step=1, sync="entry in cache")
    # The quiet is also between this store and the one that has taken the length back: they might land in any order.
    yield xl.store(t.state, length + 1, step=1)
    yield from fetch(t.cache, t.work, (length + 1) * ENTRY_BYTES, 1, "cache in buffer")
    made = 0
    for k in range(length + 1):
        token = yield xl.ub_load(t.work + k * ENTRY_BYTES, 8, step=1)
        made = (3 * made + token) % VOCABULARY
    return made


def mix(made, row):
    """Return what a row's token makes of what there is."""
    token = yield xl.ub_load(row + TOKEN_AT, 8, step=3)
    return (5 * made + token) % VOCABULARY


def sample(i, made, t: Decoding):
    """Sample the token of an iteration, which is the last one then."""
    yield xl.store(t.sampled + (i + 1) * 8, made + 1, step=3)
    yield xl.store(t.state + 8, made + 1, step=3)


def go_back(i, t: Decoding):
    """Take the state back to where an iteration begins."""
    token = yield xl.load(t.sampled + i * 8, step=5)
    yield xl.store(t.state, t.prompt + i, step=5)
    yield xl.store(t.state + 8, token, step=5)
