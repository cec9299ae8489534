"""Bugs in the transfer of KV caches from prefill to decode."""

from dataclasses import replace

from xccl_emu.protocols.serving.kv.case import KvCase

from .kinds import FAILED, LOCKED, RACE, TORN, UNWRITTEN, WRONG
from .mutants import Of, bug

PAIR = KvCase(blocks=3, pool=4, slots=4, requests=2)
SMALL = KvCase(blocks=1, pool=2, slots=1, tasks=1)
CORES = replace(PAIR, cores=2)
INSTANCES = KvCase(prefill=2, requests=1, slots=2)
DMA = KvCase(path="dma", slots=2)
PUSH = replace(PAIR, path="push")
LAYERS = KvCase(prefill=2, requests=1, layers=2, blocks=1, slots=2)
PARTS = replace(LAYERS, prefill=1, requests=2)

RING = KvCase(path="sendrecv", prefill=2, requests=1, blocks=1, pool=1, slots=2)

of, by_ring = Of("serving.kv.transfer"), Of("serving.kv.by_ring")

# ---- what stands in the kernels

RUNG = "        if dma:\n            yield from drain_rings(turn)\n"
DONE = (
    "        # mtu-out, which had to wait for each block, comes to this after them all\n"
    '        yield xl.add(k.done + me * FIELD_BYTES, 1, step=8, sync="done")\n'
)
TABLE = '        yield from fetch(table, PLACES * k.room, n * FIELD_BYTES, 7, "table in buffer")\n'
TASK = '        yield xl.quiet(step=3, sync="cache before task")\n'
WINDOW = "            if task - pulled < k.n_tasks and held + n <= k.quota:\n"
FIRST = "\n    if task % k.layers == 0:\n"
ALL = "        rest = yield from claim(k.taken, k.n_slots, n * k.layers, 1)\n"
ONE_BY_ONE = """        rest = 0
        for _ in range(n * k.layers):
            one = yield from claim(k.taken, k.n_slots, 1, 1)
            rest += one
"""
FREED = '        yield xl.add(k.taken, -freed, step=8, sync="slots freed")\n'
STEP = """            for i in range(k.n_slots):
                if mask >> i & 1:
                    yield from move_block(k.slots"""
EARLY = "            yield xl.add(k.taken, -mask)\n"
PAIRED = "    if number != expected:\n        yield xl.fail(PAIRING, number, step=7)\n"
SEEN = "        n = yield xl.load(request + 8)\n        mask = 0\n"
TURNED = "(task + 1) % k.requests"
SWAPPED = (
    of(SEEN, f"        number = yield xl.load(requests + {TURNED} * 16)\n{SEEN}"),
    of("fill_blocks(mask, n, caches, table", f"fill_blocks(mask, n, caches + ({TURNED} - task) * k.nbytes, table"),
)
"""Prefill begins with the second request, of requests of one block each."""

TAKEN = "        yield from take_ring(lock)\n"
ASKED = "        rest = yield from grant_task("
POSTED = '        yield xl.put(posted, task + 1, n, step=6, sync="receive posted")\n'
RECEIVED = "        got = yield from receive_blocks(mask, n, got, c, k)\n"
RELEASED = '        yield xl.add(lock, -1, step=8, sync="ring released")\n'
READY = '        yield xl.add(k.ready, 1, step=8, sync="ready")\n'

KNOWN = (
    bug("kv: done before the blocks are in the data buffer", PAIR, RACE | WRONG | UNWRITTEN | TORN,
        of(DONE, ""), of(TABLE, TABLE + DONE), quick=True),
    bug("kv: ready with no quiet", PAIR, RACE | WRONG | UNWRITTEN, of.without("blocks before ready"), quick=True),
    bug("kv: a fence between the cache and its task, which is on another die", PAIR, RACE | TORN | UNWRITTEN,
        of(TASK, TASK.replace("quiet", "fence")), quick=True),
    bug("kv: one task more than the ring has room for", KvCase(blocks=1, tasks=1), RACE | TORN | WRONG | FAILED,
        of(WINDOW, WINDOW.replace("<", "<=", 1)), quick=True),
    bug("kv: two receivers take slots one by one", INSTANCES, LOCKED, of(FIRST + ALL, FIRST + ONE_BY_ONE), quick=True),
    bug("kv: prefill sends requests in another order", replace(SMALL, requests=2), FAILED, *SWAPPED),
    bug("kv: prefill sends requests in another order, and nobody looks", replace(SMALL, requests=2), WRONG,
        *SWAPPED, of(PAIRED, ""), quick=True),
)  # fmt: skip

OWN = (
    bug("kv: all cores count in one word", replace(CORES, requests=3), RACE | TORN | WRONG | LOCKED | UNWRITTEN,
        of("k.done + me * FIELD_BYTES", "k.done"), of("k.done + core * FIELD_BYTES", "k.done")),
    bug("kv: by DMA, done when it is rung", DMA, RACE | UNWRITTEN | TORN,
        of(DONE, ""), of(RUNG, DONE + RUNG)),
    bug("kv: each part takes its own slots", LAYERS, LOCKED,
        of(FIRST + ALL, "\n    rest = yield from claim(k.taken, k.n_slots, n, 1)\n")),
    bug("kv: decode frees its slots before it reads them", PAIR, RACE | WRONG | UNWRITTEN,
        of(FREED, ""), of(STEP, EARLY + STEP)),
    bug("kv: pushed, ready before the blocks", PUSH, RACE | UNWRITTEN,
        of.without('step=7, sync="blocks before ready"')),
    bug("kv: pushed, an offer that comes before its grant", PUSH, TORN | RACE | UNWRITTEN,
        of.without("grant before offer")),
    bug("kv: a request is complete with its first part", PARTS, RACE | TORN | UNWRITTEN,
        of("(request + 1) * k.layers, step=8", "request * k.layers + 1, step=8")),
    bug("kv: a deferred receive holds the ring of another instance", replace(RING, layers=2), LOCKED,
        by_ring(TAKEN, ""), by_ring(ASKED, TAKEN + ASKED)),
    bug("kv: a receive is posted before it has the ring", RING, RACE | WRONG | UNWRITTEN | FAILED,
        by_ring(TAKEN + POSTED, POSTED + TAKEN)),
    bug("kv: the ring is released when the receive is posted", RING, RACE | WRONG | UNWRITTEN | FAILED,
        by_ring(RELEASED, ""), by_ring(RECEIVED, RELEASED + RECEIVED)),
    bug("kv: a request is ready when its receive is posted", RING, RACE | UNWRITTEN,
        by_ring(READY, ""), by_ring(RECEIVED, READY + RECEIVED)),
    bug("kv: a block is sent before the one before is acknowledged", replace(RING, prefill=1, blocks=2, pool=2),
        RACE | WRONG | FAILED, by_ring.without("all acknowledged")),
)  # fmt: skip
