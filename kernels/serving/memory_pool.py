"""A server of a memory pool puts blocks in and evicts them, while clients get them ([CloudMatrix384] 4.4.1, 4.4.2).

A server has an index of buckets and a place for the block of each.  A bucket's word of *pins* counts the clients that
are reading its block; ``CLOSED`` says that there is none to be read.  A client pins a block by a compare-and-swap that
fails while the bucket is closed, and then looks whether its key is the one that it wants; the server closes a bucket by
a compare-and-swap that fails while it is pinned.  So a place is used again only when nobody reads it.

A namespace has keys and places of its own: a key's number says which namespace it is of, and its bucket is among those
of that, so who may read one namespace alone touches no other.

What is evicted is written to a second tier before, if it is not there yet; a client that misses gets it there.

A client may also get a block without a pin (`get_unpinned`): it looks which key and version a bucket has, reads the
block tentatively, and looks again.  The version is odd while its block is written, and the server waits for nobody.
"""

from typing import NamedTuple

from xccl_emu import lang as xl
from xccl_emu.kernels.common import fetch
from xccl_emu.kernels.group import hand_over

FIELD_BYTES = 32
CLOSED = -1
"""Pins of a bucket that has no block, or one that comes or goes; the index begins with it."""
VERSION_BITS = 32
"""Bits of the version in a bucket's word, where blocks are read unpinned; 0 before any block. The key is above."""


class Pool(NamedTuple):
    """Where the state of a server is, and the sizes."""

    blocks: int
    """[buckets] on the server."""
    pins: int
    """[buckets] words on the server."""
    keys: int
    """[buckets] fields on the server: key of the block, version."""
    tier: int
    """[keys] blocks of the second tier."""
    stored: int
    """[keys] words on the server: is the block in the second tier?"""
    buckets: int
    """Places of a namespace."""
    nbytes: int
    """Bytes of a block."""
    puts: int
    """Blocks that are put, in all."""
    each: int
    """Keys of a namespace."""
    gets: int
    """Gets of each client."""
    by_dma: int
    """Does the server copy by DMA, as one on a CPU has to?"""


class _Keeps(Pool):
    blocks: xl.Updates
    pins: xl.Updates
    keys: xl.Writes
    tier: xl.Writes
    stored: xl.Writes


class Gets(Pool):
    """What a client touches: what is of its namespace."""

    blocks: xl.Reads
    pins: xl.Updates
    keys: xl.Reads
    tier: xl.Reads
    stored: xl.Reads


def write_index(word, value, p: Pool, step, sync):
    """Write a word of the index, past the cache; on a CPU, which has none, by the scalar unit."""
    if p.by_dma:
        yield xl.store(word, value, step=step, sync=sync)
    else:
        yield xl.put(word, value, step=step, sync=sync)


def write_block(source, target, p: Pool):
    """Copy a block; the data buffer is free after the quiet that follows."""
    if p.by_dma:
        yield xl.dma(source, target, p.nbytes, 0)
        yield xl.wait_flag(xl.DMA, xl.SCALAR, 0, sync="block copied")
    else:
        yield xl.mtu_in(source, 0, p.nbytes)
        yield from hand_over(xl.MTU_IN, xl.MTU_OUT, 0, "block in buffer")
        yield xl.mtu_out(0, target, p.nbytes)


def keep(bucket, key, p: Pool):
    """Keep the block of a bucket in the second tier."""
    yield from write_block(p.blocks + bucket * p.nbytes, p.tier + key * p.nbytes, p)
    yield xl.quiet(step=4, sync="tier before stored")
    yield from write_index(p.stored + key * FIELD_BYTES, 1, p, 4, "stored")


def evict(bucket, key, p: Pool):
    """Close a bucket when nobody reads it, and keep its block in the second tier."""
    pins = p.pins + bucket * FIELD_BYTES
    before = CLOSED
    while before != 0:
        yield xl.poll_eq(pins, 0, step=3, sync="no pins")
        before = yield xl.compare_swap(pins, 0, CLOSED, step=3, sync="closed")
    yield from keep(bucket, key, p)


@xl.kernel
def serve(values: xl.Reads, p: _Keeps):
    """Put the blocks of keys 0 to ``puts`` - 1, ``values`` [keys], each into the bucket of its key.

    A bucket that is in use is evicted.
    """
    for key in range(p.puts):
        bucket = key // p.each * p.buckets + key % p.each % p.buckets
        if key % p.each >= p.buckets:
            yield from evict(bucket, key - p.buckets, p)
        yield from write_block(values + key * p.nbytes, p.blocks + bucket * p.nbytes, p)
        yield from write_index(p.keys + bucket * FIELD_BYTES, key, p, 1, "")
        yield xl.quiet(step=1, sync="block before open")
        yield xl.atomic_add(p.pins + bucket * FIELD_BYTES, 1, step=1, sync="open")


@xl.kernel
def serve_unpinned(values: xl.Reads, p: _Keeps):
    """Serve clients that pin nothing: other than in `serve`, a block is written between an odd version and the next."""
    for key in range(p.puts):
        bucket = key // p.each * p.buckets + key % p.each % p.buckets
        word = p.keys + bucket * FIELD_BYTES
        version = (key << VERSION_BITS) + 2 * (key % p.each // p.buckets)
        if key % p.each >= p.buckets:
            yield from keep(bucket, key - p.buckets, p)
        yield from write_index(word, version + 1, p, 1, "odd")
        if p.by_dma:
            yield xl.quiet(step=1, sync="odd before copy")  # a fence holds no DMA back
        else:
            yield xl.fence(step=1, sync="odd before block")
        yield from write_block(values + key * p.nbytes, p.blocks + bucket * p.nbytes, p)
        yield xl.fence(step=1, sync="block before even")
        yield from write_index(word, version + 2, p, 1, "even")
        yield xl.quiet(step=1, sync="even before odd")


def pin(pins):
    """Pin a bucket, even if others do; returns 0 if it is closed."""
    seen = 0
    before = yield xl.compare_swap(pins, 0, 1, step=2, sync="pinned")
    while before != seen and before != CLOSED:
        seen = before
        before = yield xl.compare_swap(pins, seen, seen + 1, step=2, sync="pinned")
    return before == seen


def look(key, p: Pool):
    """Bring a block to the data buffer; returns 0 if it is in neither tier."""
    bucket = key // p.each * p.buckets + key % p.each % p.buckets
    pins = p.pins + bucket * FIELD_BYTES
    field = p.keys + bucket * FIELD_BYTES
    found = 0
    pinned = yield from pin(pins)
    if pinned:
        yield xl.dcci(field, step=2, sync="key line")
        there = yield xl.load(field, step=2)
        if there == key:
            yield from fetch(p.blocks + bucket * p.nbytes, 0, p.nbytes, 0, "block read")
            found = 1
        yield xl.atomic_add(pins, -1, step=2, sync="unpinned")
    if found == 0:
        found = yield from look_in_tier(key, p)
    return found


def look_in_tier(key, p: Pool):
    """Bring a block that was evicted to the data buffer; returns 0 if it was not."""
    yield xl.dcci(p.stored + key * FIELD_BYTES, step=4, sync="stored line")
    found = yield xl.load(p.stored + key * FIELD_BYTES, step=4, sync="stored in")
    if found:
        yield from fetch(p.tier + key * p.nbytes, 0, p.nbytes, 0, "block read")
    return found


def look_twice(key, p: Pool):
    """Look as `look` does, but the block is right if its bucket's word is the same before and after it was read."""
    bucket = key // p.each * p.buckets + key % p.each % p.buckets
    word = p.keys + bucket * FIELD_BYTES
    found = 0
    yield xl.dcci(word, step=2, sync="first line")
    before = yield xl.load(word, step=2, sync="first look")
    if before >> VERSION_BITS == key and before & 1 == 0 and before & (1 << VERSION_BITS) - 1 > 0:
        yield xl.mtu_in(p.blocks + bucket * p.nbytes, 0, p.nbytes, tentative=True, step=2)
        yield from hand_over(xl.MTU_IN, xl.SCALAR, 0, "block read")
        yield xl.dcci(word, step=2, sync="second line")
        after = yield xl.load(word, step=2, sync="second look")
        if before == after:
            yield xl.validate(0, p.nbytes, step=2, sync="validated")
            found = 1
    if found == 0:
        found = yield from look_in_tier(key, p)
    return found


def hand_out(target, p: Pool):
    """Write the block in the data buffer to its place; then the buffer is free."""
    yield xl.mtu_out(0, target, p.nbytes)
    yield from hand_over(xl.MTU_OUT, xl.SCALAR, 1, "buffer free")


@xl.kernel
def get_unpinned(wanted: xl.Reads, out: xl.Writes, p: Gets):
    """Get as `get` does, without pins."""
    for i in range(p.gets):
        key = yield xl.load(wanted + i * 8)
        found = 0
        while found == 0:
            found = yield from look_twice(key, p)
        yield from hand_out(out + i * p.nbytes, p)


@xl.kernel
def get(wanted: xl.Reads, out: xl.Writes, p: Gets):
    """Get the blocks of ``wanted`` [gets] keys, each as soon as it has been put."""
    for i in range(p.gets):
        key = yield xl.load(wanted + i * 8)
        found = 0
        while found == 0:
            found = yield from look(key, p)
        yield from hand_out(out + i * p.nbytes, p)
