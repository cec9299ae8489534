"""Blocks of a model in a memory pool: versions of all, and a Put that is done once ([CloudMatrix384] 4.4.2, 4.4.3).

A model is many blocks, and a load wants all of one version.  So one word has the version of all of them, odd while any
is written; a load reads them tentatively between two looks at it.

A block that many put is written by the first who claims it, by a compare-and-swap of its word; the others find it
claimed, and wait, or go on without it.
"""

from typing import NamedTuple

from xccl_emu import lang as xl
from xccl_emu.kernels.common import fetch
from xccl_emu.kernels.group import hand_over

MIXED = 1
"""A load has blocks of two versions; the value is the second one."""
CLAIMED, READY = 1, 2
"""Word of a block that is being written, and of one that is there; 0 before."""


class CachedModel(NamedTuple):
    """Where a model is, and its sizes."""

    word: int
    """Version of all blocks."""
    home: int
    """[blocks] of the model; each begins with the number of its version."""
    nbytes: int
    """Bytes of a block."""
    blocks: int
    """How many a version has."""
    versions: int
    """How many are published, one after the other."""
    mask: int
    """Bits of the word that count."""


class _Publishes(CachedModel):
    word: xl.Writes
    home: xl.Writes


class _TakesIn(CachedModel):
    word: xl.Updates
    home: xl.Reads


@xl.kernel
def publish(values: xl.Reads, m: _Publishes):
    """Write the versions of ``values`` [versions, blocks], each between an odd word and the next even one."""
    for v in range(m.versions):
        yield xl.put(m.word, 2 * v + 1 & m.mask, step=1, sync="odd")
        yield xl.fence(step=1, sync="odd before blocks")
        yield xl.mtu_in(values + v * m.blocks * m.nbytes, 0, m.blocks * m.nbytes)
        yield from hand_over(xl.MTU_IN, xl.MTU_OUT, 0, "blocks in buffer")
        for b in range(m.blocks):
            yield xl.mtu_out(b * m.nbytes, m.home + b * m.nbytes, m.nbytes)
        yield xl.fence(step=1, sync="blocks before even")
        yield xl.put(m.word, 2 * v + 2 & m.mask, step=1, sync="even")
        yield xl.quiet(step=1, sync="even before odd")


def load_version(m: CachedModel):
    """Bring all blocks of the version that there is to the data buffer; returns its word, or 0 if none is whole."""
    yield xl.dcci(m.word, step=2, sync="first line")
    before = yield xl.load(m.word, step=2, sync="first look")
    if before == 0 or before & 1:
        return 0
    for b in range(m.blocks):
        yield xl.mtu_in(m.home + b * m.nbytes, b * m.nbytes, m.nbytes, tentative=True)
    yield from hand_over(xl.MTU_IN, xl.SCALAR, 0, "blocks read")
    yield xl.dcci(m.word, step=2, sync="second line")
    after = yield xl.load(m.word, step=2, sync="second look")
    if before != after:
        yield xl.v_fill(0, m.blocks * m.nbytes)  # drop all of it: else what comes next counts as more of the same
        yield from hand_over(xl.VECTOR, xl.MTU_IN, 0, "blocks dropped")
        return 0
    yield xl.validate(0, m.blocks * m.nbytes, step=2, sync="validated")
    return before


@xl.kernel
def load(out: xl.Writes, m: _TakesIn):
    """Load the model again and again until the last version is there, and keep that; each is of one version."""
    got = 0
    while got != (2 * m.versions & m.mask):
        if got:
            yield xl.poll_ne(m.word, got, step=2, sync="another version")
        got = yield from load_version(m)
        if got:
            first = yield xl.ub_load(0, 8)
            for b in range(1, m.blocks):
                other = yield xl.ub_load(b * m.nbytes, 8)
                if other != first:
                    yield xl.fail(MIXED, other)
    yield xl.mtu_out(0, out, m.blocks * m.nbytes)


@xl.kernel
def put_once(value: xl.Reads, word: xl.Updates, block: xl.Updates, nbytes, waits, out: xl.Writes):
    """Put a block that others put too, unless somebody has; then get it, from there if it is there."""
    before = yield xl.compare_swap(word, 0, CLAIMED, step=3, sync="claimed")
    source = block
    if before == 0:
        yield from fetch(value, 0, nbytes, 0, "value in buffer")
        yield xl.mtu_out(0, block, nbytes)
        yield xl.quiet(step=3, sync="block before ready")
        yield xl.put(word, READY, step=3, sync="ready")
    elif before == CLAIMED and waits:
        yield xl.poll_eq(word, READY, step=3, sync="there")
    elif before == CLAIMED:
        source = value
    yield from fetch(source, 0, nbytes, 0, "block read")
    yield xl.mtu_out(0, out, nbytes)
