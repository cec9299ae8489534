"""Bugs in the memory pool."""

from dataclasses import replace

from xccl_emu.protocols.serving.memory_pool import MemoryPoolCase, ModelCase, PutCase
from xccl_emu.protocols.serving.memory_pool.context import ContextCase

from .kinds import AREA, EVENTS, FAILED, LEFTOVER, LIVELOCK, LOCKED, RACE, TORN, UNDEFINED, UNWRITTEN, WRONG
from .mutants import Of, bug

PAIR = MemoryPoolCase()
SPACES = MemoryPoolCase(clients=2, spaces=2, gets=1)

UNPINNED = MemoryPoolCase(unpinned=1)
MODEL, PUT = ModelCase(), PutCase()

TWICE, USED_AGAIN = ContextCase(length=1), ContextCase(length=1, shared=0, volume=1, requests=3)
AGAIN_AND_AGAIN = ContextCase(servers=1, length=1, shared=0, volume=1, requests=4)
CLIENTS = ContextCase(clients=2, requests=1, length=1)

of, of_models, of_servers = Of("serving.memory_pool"), Of("serving.model_cache"), Of("serving.context_cache")

# ---- what stands in the kernels

PINNED = """    seen = 0
    before = yield xl.compare_swap(pins, 0, 1, step=2, sync="pinned")
    while before != seen and before != CLOSED:
        seen = before
        before = yield xl.compare_swap(pins, seen, seen + 1, step=2, sync="pinned")
    return before == seen
"""
BY_STORE = """    seen = yield xl.load(pins, step=2, sync="pinned")
    if seen != CLOSED:
        yield xl.store(pins, seen + 1, step=2, sync="pinned")
    return seen != CLOSED
"""
CLOSE = """    before = CLOSED
    while before != 0:
        yield xl.poll_eq(pins, 0, step=3, sync="no pins")
        before = yield xl.compare_swap(pins, 0, CLOSED, step=3, sync="closed")
"""
ONCE = """    yield xl.poll_eq(pins, 0, step=3, sync="no pins")
    yield xl.atomic_add(pins, CLOSED, step=3, sync="closed")
"""
COMMIT = """        yield xl.quiet(step=1, sync="block before open")
        yield xl.atomic_add(p.pins + bucket * FIELD_BYTES, 1, step=1, sync="open")
"""
EARLY = """        yield xl.atomic_add(p.pins + bucket * FIELD_BYTES, 1, step=1, sync="open")
        yield xl.quiet(step=1, sync="block before open")
"""
LOOKED_UP = """    bucket = key // p.each * p.buckets + key % p.each % p.buckets
    pins ="""
COMPARED = """        if before == after:
            yield xl.validate"""
SENT = """                yield from send(key, server, c)
"""
AWAITED = SENT + """                at = server * c.pitch + key % c.places * FIELD_BYTES
                yield xl.poll_ge(c.versions + at, 2, step=3, sync="put")
"""
WAITS = of_servers(SENT, AWAITED)
"""No bug while nothing stops: a client waits until what it has sent is in the server's DRAM."""
BROKEN = RACE | WRONG | TORN | UNWRITTEN | LOCKED | LIVELOCK

KNOWN = (
    bug("memory pool: pinned by a load and a store", PAIR, BROKEN, of(PINNED, BY_STORE), quick=True),
    bug("memory pool: committed before a quiet", PAIR, BROKEN, of(COMMIT, EARLY), quick=True),
    bug("memory pool: the evictor looks at pins once", PAIR, BROKEN, of(CLOSE, ONCE), quick=True),
    bug("memory pool: stored before the second tier has it", PAIR, RACE | UNWRITTEN | WRONG,
        of.without("tier before stored"), quick=True),
    bug("memory pool unpinned: no second look", UNPINNED, UNDEFINED | WRONG,
        of(COMPARED, COMPARED.replace("before == after", "1")), quick=True),
    bug("memory pool unpinned: no fence between the odd version and the block", UNPINNED, UNDEFINED | WRONG,
        of.without("odd before block"), quick=True),
    bug("memory pool unpinned: no fence between the block and the even version", UNPINNED,
        UNDEFINED | WRONG | UNWRITTEN, of.without("block before even")),
    bug("memory pool unpinned: not validated", UNPINNED, UNDEFINED, of.without("validated")),
    bug("model cache: a load across a change of version", MODEL, UNDEFINED | WRONG | FAILED,
        of_models("    if before != after:\n", "    if after & 1:\n"), quick=True),
    bug("pool put: claimed by a load and a put", PUT, BROKEN,
        of_models('    before = yield xl.compare_swap(word, 0, CLAIMED, step=3, sync="claimed")\n',
                  '    before = yield xl.load(word, step=3, sync="claimed")\n    if before == 0:\n'
                  '        yield xl.put(word, CLAIMED)\n'), quick=True),
    bug("pool put: ready before the block is", PUT, BROKEN, of_models.without("block before ready")),
    bug("pool of servers: no second look", USED_AGAIN, UNDEFINED | WRONG | RACE,
        of_servers("        if before == after:\n", "        if 1:\n"), quick=True),
    bug("pool of servers: the tail before its block", TWICE, RACE | WRONG | UNWRITTEN,
        of_servers.without("block before tail"), quick=True),
    bug("pool of servers: places of the inbox drawn by a load and a store", CLIENTS, BROKEN,
        of_servers('    ticket = yield xl.atomic_add(c.tickets + of, 1, step=3, sync="ticket")\n',
                   '    ticket = yield xl.load(c.tickets + of, step=3, sync="ticket")\n'
                   '    yield xl.store(c.tickets + of, ticket + 1, step=3, sync="ticket")\n'), quick=True),
)  # fmt: skip

OWN = (
    bug("memory pool: nobody looks whose block it is", PAIR, WRONG | RACE,
        of("        if there == key:\n", "        if 1:\n")),
    bug("memory pool: a block is evicted and not kept", PAIR, LIVELOCK | LOCKED | WRONG | UNWRITTEN,
        of.without("stored")),
    bug("memory pool unpinned: nobody looks whose block it is", UNPINNED, WRONG,
        of("    if before >> VERSION_BITS == key and before", "    if before")),
    bug("memory pool unpinned: looked at whether it is even, not which it is", UNPINNED, UNDEFINED | WRONG,
        of(COMPARED, COMPARED.replace("before == after", "after & 1 == 0"))),
    bug("memory pool on a CPU: the version is not odd for certain when DMA copies", replace(UNPINNED, cpu=1),
        UNDEFINED | WRONG, of.without("odd before copy")),
    bug("memory pool on a CPU: open before DMA has copied", replace(PAIR, cpu=1), BROKEN | EVENTS | LEFTOVER,
        of.without("block copied")),
    bug("memory pool unpinned: no odd version", UNPINNED, UNDEFINED | WRONG, of.without("odd")),
    bug("model cache: no odd version", MODEL, UNDEFINED | WRONG | FAILED, of_models.without("odd")),
    bug("pool of servers: nobody looks whose block it is", USED_AGAIN, WRONG,
        of_servers("            found = there == key\n", "            found = 1\n")),
    bug("pool of servers: no fence between the odd version and the block", AGAIN_AND_AGAIN, UNDEFINED | WRONG | RACE,
        of_servers.without("odd before block")),
    bug("pool of servers: no fence between the block and the even version", AGAIN_AND_AGAIN,
        UNDEFINED | WRONG | UNWRITTEN | RACE, of_servers.without("block before even")),
    bug("pool of servers: not validated", TWICE, UNDEFINED, of_servers.without("validated")),
    bug("pool of servers: a key of its own tokens alone", ContextCase(), WRONG,
        of_servers("    return mixed(mixed(before) ^ tokens)\n", "    return mixed(tokens)\n")),
    bug("pool put: a block that is claimed is read without waiting", PUT, BROKEN, of_models.without("there")),
    bug("memory pool: a client's hash leaves the namespace out", SPACES, AREA,
        of(LOOKED_UP, LOOKED_UP.replace("key // p.each * p.buckets + ", ""))),
)  # fmt: skip
