"""A server of a memory pool puts blocks in and evicts them, while clients get them ([CloudMatrix384] 4.4.1, 4.4.2).

A server has an index of buckets and a place for the block of each.  A bucket's word of *pins* counts the clients that
are reading its block; ``CLOSED`` says that there is none to be read.  A client pins a block by a compare-and-swap that
fails while the bucket is closed, and then looks whether its key is the one that it wants; the server closes a bucket by
a compare-and-swap that fails while it is pinned.  So a place is used again only when nobody reads it.

A namespace has keys and places of its own: a key's number says which namespace it is of, and its bucket is among those
of that, so who may read one namespace alone touches no other.

What is evicted is written to a second tier before, if it is not there yet; a client that misses gets it there.
"""

from typing import NamedTuple

from xccl_emu import lang as xl
from xccl_emu.kernels.common import fetch
from xccl_emu.kernels.group import hand_over

FIELD_BYTES = 32
CLOSED = -1
"""Pins of a bucket that has no block, or one that comes or goes; the index begins with it."""


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


def write_block(source, target, p: Pool):
    """Copy a block; the data buffer is free behind the quiet that follows."""
    yield xl.mtu_in(source, 0, p.nbytes)
    yield from hand_over(xl.MTU_IN, xl.MTU_OUT, 0, "block in buffer")
    yield xl.mtu_out(0, target, p.nbytes)


def evict(bucket, key, p: Pool):
    """Close a bucket when nobody reads it, and keep its block in the second tier."""
    pins = p.pins + bucket * FIELD_BYTES
    before = CLOSED
    while before != 0:
        yield xl.poll_eq(pins, 0, sync="no pins")
        before = yield xl.compare_swap(pins, 0, CLOSED, sync="closed")
    yield from write_block(p.blocks + bucket * p.nbytes, p.tier + key * p.nbytes, p)
    yield xl.quiet(sync="tier before stored")
    yield xl.put(p.stored + key * FIELD_BYTES, 1, sync="stored")


@xl.kernel
def serve(values, p: Pool):
    """Put the blocks of keys 0 to ``puts`` - 1, ``values`` [keys], each into the bucket of its key.

    A bucket that is in use is evicted.
    """
    for key in range(p.puts):
        bucket = key // p.each * p.buckets + key % p.each % p.buckets
        if key % p.each >= p.buckets:
            yield from evict(bucket, key - p.buckets, p)
        yield from write_block(values + key * p.nbytes, p.blocks + bucket * p.nbytes, p)
        yield xl.put(p.keys + bucket * FIELD_BYTES, key)
        yield xl.quiet(sync="block before open")
        yield xl.atomic_add(p.pins + bucket * FIELD_BYTES, 1, sync="open")


def pin(pins):
    """Pin a bucket, whoever else does; returns 0 if it is closed."""
    seen = 0
    before = yield xl.compare_swap(pins, 0, 1, sync="pinned")
    while before != seen and before != CLOSED:
        seen = before
        before = yield xl.compare_swap(pins, seen, seen + 1, sync="pinned")
    return before == seen


def look(key, p: Pool):
    """Bring a block to the data buffer; returns 0 if it is in neither tier."""
    bucket = key // p.each * p.buckets + key % p.each % p.buckets
    pins = p.pins + bucket * FIELD_BYTES
    field = p.keys + bucket * FIELD_BYTES
    found = 0
    pinned = yield from pin(pins)
    if pinned:
        yield xl.dcci(field, sync="key line")
        there = yield xl.load(field)
        if there == key:
            yield from fetch(p.blocks + bucket * p.nbytes, 0, p.nbytes, 0, "block read")
            found = 1
        yield xl.atomic_add(pins, -1, sync="unpinned")
    if found == 0:
        yield xl.dcci(p.stored + key * FIELD_BYTES, sync="stored line")
        found = yield xl.load(p.stored + key * FIELD_BYTES, sync="stored in")
        if found:
            yield from fetch(p.tier + key * p.nbytes, 0, p.nbytes, 0, "block read")
    return found


@xl.kernel
def get(wanted, out, p: Pool):
    """Get the blocks of ``wanted`` [gets] keys, each as soon as it has been put."""
    for i in range(p.gets):
        key = yield xl.load(wanted + i * 8)
        found = 0
        while found == 0:
            found = yield from look(key, p)
        yield xl.mtu_out(0, out + i * p.nbytes, p.nbytes)
        yield from hand_over(xl.MTU_OUT, xl.SCALAR, 1, "buffer free")
