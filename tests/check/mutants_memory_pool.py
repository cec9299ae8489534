"""Bugs in the memory pool."""

from xccl_emu.protocols.memory_pool.case import MemoryPoolCase

from .kinds import AREA, LIVELOCK, LOCKED, RACE, TORN, UNWRITTEN, WRONG
from .mutants import Of, bug

PAIR = MemoryPoolCase()
SPACES = MemoryPoolCase(clients=2, spaces=2, gets=1)

of = Of("memory_pool")

# ---- what stands in the kernels

PINNED = """    seen = 0
    before = yield xl.compare_swap(pins, 0, 1, sync="pinned")
    while before != seen and before != CLOSED:
        seen = before
        before = yield xl.compare_swap(pins, seen, seen + 1, sync="pinned")
    return before == seen
"""
BY_STORE = """    seen = yield xl.load(pins, sync="pinned")
    if seen != CLOSED:
        yield xl.store(pins, seen + 1, sync="pinned")
    return seen != CLOSED
"""
CLOSE = """    before = CLOSED
    while before != 0:
        yield xl.poll_eq(pins, 0, sync="no pins")
        before = yield xl.compare_swap(pins, 0, CLOSED, sync="closed")
"""
ONCE = """    yield xl.poll_eq(pins, 0, sync="no pins")
    yield xl.atomic_add(pins, CLOSED, sync="closed")
"""
COMMIT = """        yield xl.quiet(sync="block before open")
        yield xl.atomic_add(p.pins + bucket * FIELD_BYTES, 1, sync="open")
"""
EARLY = """        yield xl.atomic_add(p.pins + bucket * FIELD_BYTES, 1, sync="open")
        yield xl.quiet(sync="block before open")
"""
LOOKED_UP = """    bucket = key // p.each * p.buckets + key % p.each % p.buckets
    pins ="""
BROKEN = RACE | WRONG | TORN | UNWRITTEN | LOCKED | LIVELOCK

KNOWN = (
    bug("memory pool: pinned by a load and a store", PAIR, BROKEN, of(PINNED, BY_STORE), quick=True),
    bug("memory pool: committed before a quiet", PAIR, BROKEN, of(COMMIT, EARLY), quick=True),
    bug("memory pool: the evictor looks at pins once", PAIR, BROKEN, of(CLOSE, ONCE), quick=True),
    bug("memory pool: stored before the second tier has it", PAIR, RACE | UNWRITTEN | WRONG,
        of.without("tier before stored"), quick=True),
)  # fmt: skip

OWN = (
    bug("memory pool: nobody looks whose block it is", PAIR, WRONG | RACE,
        of("        if there == key:\n", "        if 1:\n")),
    bug("memory pool: a block is evicted and not kept", PAIR, LIVELOCK | LOCKED | WRONG | UNWRITTEN,
        of('    yield xl.put(p.stored + key * FIELD_BYTES, 1, sync="stored")\n', "")),
    bug("memory pool: a client's hash leaves the namespace out", SPACES, AREA,
        of(LOOKED_UP, LOOKED_UP.replace("key // p.each * p.buckets + ", ""))),
)  # fmt: skip
