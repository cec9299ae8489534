"""Requests whose blocks are in on-chip memory, where one may be lost ([xDeepServe] 6.2): a map of blocks masks it.

The memory itself says which block is lost: a word of the map is set then.  A request reads its blocks without looking,
tentatively, and looks at the map when they are all there.  So a block that is lost before, or while it is read, is not
used: the request ends in an error of its own, and the others go on.

Steps: 1 read all blocks of a request; 2 look at the map; 3 take them for right, and copy them out; 4 or drop them; 5
say how the request ended.
"""

from typing import NamedTuple

from xccl_emu import lang as xl
from xccl_emu.kernels.group import hand_over

FIELD_BYTES = 32
RIGHT, LOST = 1, 2
"""How a request ended: its bytes are copied, or one of its blocks is lost."""


class Blocks(NamedTuple):
    """Where everything is, and the sizes."""

    pool: xl.Reads
    """[blocks] in the managed area."""
    map: xl.Reads
    """[blocks] words: is the block lost?"""
    table: xl.Reads
    """[requests, each] words: number of the block."""
    out: xl.Writes
    """[requests, each] blocks."""
    ended: xl.Writes
    """[requests] words."""
    requests: int
    each: int
    """Blocks of a request."""
    nbytes: int
    """Bytes of a block."""
    cores: int


@xl.kernel
def serve(core, b: Blocks):
    """Serve each of the core's requests, which it shares out with others by number."""
    size = b.each * b.nbytes
    for turn in range((b.requests - core + b.cores - 1) // b.cores):
        r = core + turn * b.cores
        row = b.table + r * b.each * 8
        for k in range(b.each):
            block = yield xl.load(row + k * 8, step=1)
            yield xl.mtu_in(b.pool + block * b.nbytes, k * b.nbytes, b.nbytes, tentative=1, step=1)
        yield from hand_over(xl.MTU_IN, xl.SCALAR, 0, "blocks read", step=1)
        lost = 0
        for k in range(b.each):
            block = yield xl.load(row + k * 8, step=2)
            yield xl.dcci(b.map + block * FIELD_BYTES, step=2, sync="map line")
            gone = yield xl.load(b.map + block * FIELD_BYTES, step=2, sync="map")
            lost = lost | gone
        if lost == 0:
            yield xl.validate(0, size, step=3)
            yield xl.mtu_out(0, b.out + r * size, size, step=3)
            yield from hand_over(xl.MTU_OUT, xl.MTU_IN, 1, "buffer free", step=3)
        else:
            yield xl.v_fill(0, size, step=4)
            yield from hand_over(xl.VECTOR, xl.MTU_IN, 1, "buffer dropped", step=4)
        yield xl.store(b.ended + r * 8, RIGHT + lost, step=5)
