"""Prefills that look a prompt up in a memory pool of several servers, compute the rest, and store it
([CloudMatrix384] 4.4.1, 4.4.2).

A block is known by its *key*, a hash of its tokens and of all before them, which is its first word.  Servers have
points on a ring, and a block is that server's whose point is the next one from its key on.  A server puts a block into
its volume of the persistent tier and then into its DRAM, each time between an odd version of the place and the next
even one; nobody else writes there.

A client reads a place tentatively between two looks at its version, and then looks whose block it is.  It asks the
server of the key, then the volumes of all servers; what is in none of them, or not whole, it computes, as it does with
all blocks after it.  What it has computed goes to an inbox of the server, to a place of its own.  So no client ever
waits for a server, and a server that stops takes nothing with it but what it had not stored.

A server may leave the ring: the controller says to each client who is on it, at any moment.  From then on the next
servers have its keys.
"""

from typing import NamedTuple

from xccl_emu import lang as xl
from xccl_emu.kernels.common import fetch
from xccl_emu.kernels.group import hand_over

FIELD_BYTES = 32
WORDS = 4
"""Words of a granule."""
POINT_BYTES = 16
"""A point of the ring: its position, and its server."""
ENDS = -1
"""In place of a key: a client has no more blocks."""
MASK = (1 << 31) - 1


class Cache(NamedTuple):
    """Where the state of all servers is, and the sizes; of server s it is ``s * pitch`` further on than of server 0."""

    blocks: int
    """[places] in the DRAM of a server."""
    versions: int
    """[places] fields there."""
    volumes: int
    """[servers, volume_places] blocks of the persistent tier; in a server's own launch its volume alone."""
    volume_versions: int
    """[servers, volume_places] fields there."""
    inbox: int
    """[messages] blocks on a server."""
    tails: int
    """[messages] fields there: has the block come, and its key."""
    tickets: int
    """A word there: how many messages have a place."""
    view: int
    """A word on each client: a bit for each server that is on the ring."""
    points: int
    """[points] of the ring, by position, on each client."""
    n_points: int
    servers: int
    pitch: int
    places: int
    volume_places: int
    nbytes: int
    """Bytes of a block."""
    clients: int
    requests: int
    """Prompts of a client."""
    length: int
    """Blocks of a prompt."""


class _Serves(Cache):
    blocks: xl.Own[xl.Updates]
    versions: xl.Own[xl.Updates]
    volumes: xl.Updates
    volume_versions: xl.Updates
    inbox: xl.Own[xl.Reads]
    tails: xl.Own[xl.Reads]


class _Prefills(Cache):
    blocks: xl.Reads
    versions: xl.Reads
    volumes: xl.Reads
    volume_versions: xl.Reads
    inbox: xl.Writes
    tails: xl.Writes
    tickets: xl.Updates
    view: xl.Own[xl.Reads]
    points: xl.Reads


class _Controls(Cache):
    view: xl.Writes


def mixed(word):
    """Hash a word to 31 bits, never 0."""
    word = (word & MASK) * 73244475 & MASK
    word = (word >> 15 ^ word) * 295559667 & MASK
    return (word >> 14 ^ word) & MASK | 1


def key_of(before, tokens):
    """Key of the block with these tokens after the block of another key; 0: it is the first."""
    return mixed(mixed(before) ^ tokens)


# ---- a server


def put_block(key, version, block, c: Cache):
    """Write the block in the data buffer to a place, unless it is there."""
    yield xl.dcci(version, sync="version line")
    before = yield xl.load(version, step=3)
    there = 0
    if before > 0:
        yield xl.dcci(block, sync="header line")
        there = yield xl.load(block, step=3)
    if there != key:
        yield xl.put(version, before + 1, step=3, sync="odd")
        yield xl.fence(step=3, sync="odd before block")
        yield xl.mtu_out(0, block, c.nbytes, step=3)
        yield xl.fence(step=3, sync="block before even")
        yield xl.put(version, before + 2, step=3, sync="even")
        yield xl.quiet(step=3, sync="even before odd")


@xl.kernel
def serve(c: _Serves):
    """Put the blocks that come in, in their order, until all clients have ended."""
    ended = 0
    ticket = 0
    while ended < c.clients:
        yield xl.poll_eq(c.tails + ticket * FIELD_BYTES, 1, step=3, sync="block in")
        yield xl.dcci(c.tails + ticket * FIELD_BYTES, sync="tail line")
        key = yield xl.load(c.tails + ticket * FIELD_BYTES + 8, step=3)
        if key == ENDS:
            ended += 1
        else:
            yield from fetch(c.inbox + ticket * c.nbytes, 0, c.nbytes, 3, "block in buffer")
            at = key % c.volume_places
            yield from put_block(key, c.volume_versions + at * FIELD_BYTES, c.volumes + at * c.nbytes, c)
            at = key % c.places
            yield from put_block(key, c.versions + at * FIELD_BYTES, c.blocks + at * c.nbytes, c)
        ticket += 1


# ---- a client


def server_of(key, c: Cache):
    """The server of a key: of those on the ring, whose point is the first from the key on, or the first of all."""
    yield xl.dcci(c.view, sync="view line")
    view = yield xl.load(c.view, step=1, sync="view in")
    first = -1
    found = -1
    for i in range(c.n_points):
        position = yield xl.load(c.points + i * POINT_BYTES, step=1)
        server = yield xl.load(c.points + i * POINT_BYTES + 8, step=1)
        if view >> server & 1:
            if first < 0:
                first = server
            if found < 0 and position >= key:
                found = server
    if found < 0:
        found = first
    return found


def look(key, version, block, c: Cache):
    """Bring the block at a place to the data buffer; returns 0 if it is another one, or not whole."""
    found = 0
    yield xl.dcci(version, step=2, sync="first line")
    before = yield xl.load(version, step=2, sync="first look")
    if before > 0 and before & 1 == 0:
        yield xl.mtu_in(block, 0, c.nbytes, tentative=True, step=2)
        yield from hand_over(xl.MTU_IN, xl.SCALAR, 0, "block read")
        yield xl.dcci(version, step=2, sync="second line")
        after = yield xl.load(version, step=2, sync="second look")
        if before == after:
            yield xl.validate(0, c.nbytes, step=2, sync="validated")
            there = yield xl.ub_load(0, step=2)
            found = there == key
    return found


def find(key, server, c: Cache):
    """Bring a block to the data buffer from its server's DRAM, or from any volume; returns 0 if it is nowhere."""
    at = key % c.places
    of = server * c.pitch
    found = yield from look(key, c.versions + of + at * FIELD_BYTES, c.blocks + of + at * c.nbytes, c)
    for n in range(c.servers):
        if found == 0:
            at = n * c.volume_places + key % c.volume_places
            found = yield from look(key, c.volume_versions + at * FIELD_BYTES, c.volumes + at * c.nbytes, c)
    return found


def write_block(key, target, c: Cache):
    """Compute a block: its key, then a word of each place."""
    for g in range(c.nbytes // FIELD_BYTES):
        i = WORDS * g
        first = mixed(key + i)
        if g == 0:
            first = key
        yield xl.put(target + g * FIELD_BYTES, first, mixed(key + i + 1), mixed(key + i + 2), mixed(key + i + 3))


def send(key, server, c: Cache):
    """Send a block to a server, or `ENDS`, without waiting for anything."""
    of = server * c.pitch
    ticket = yield xl.atomic_add(c.tickets + of, 1, step=3, sync="ticket")
    if key != ENDS:
        yield from write_block(key, c.inbox + of + ticket * c.nbytes, c)
    yield xl.fence(step=3, sync="block before tail")
    yield xl.put(c.tails + of + ticket * FIELD_BYTES, 1, key, step=3, sync="tail")


@xl.kernel
def prefill(prompts: xl.Reads, out: xl.Writes, c: _Prefills):
    """Leave the blocks of each prompt at ``out`` [requests, length]; ``prompts`` [requests, length] are tokens."""
    for request in range(c.requests):
        key = 0
        found = 1
        for i in range(request * c.length, (request + 1) * c.length):
            tokens = yield xl.load(prompts + i * 8, step=1)
            key = key_of(key, tokens)
            server = yield from server_of(key, c)
            if found:
                found = yield from find(key, server, c)
            if found:
                yield xl.mtu_out(0, out + i * c.nbytes, c.nbytes, step=2)
                yield from hand_over(xl.MTU_OUT, xl.SCALAR, 1, "buffer free")
            else:
                yield from write_block(key, out + i * c.nbytes, c)
                yield from send(key, server, c)
    for server in range(c.servers):
        yield from send(ENDS, server, c)


# ---- the controller


@xl.kernel
def change_view(view, c: _Controls):
    """Say to each client which servers are on the ring from now on."""
    for client in range(c.clients):
        yield xl.put(c.view + client * c.pitch, view, step=1, sync="view")
