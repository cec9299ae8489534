"""Bugs in send and receive."""

from xccl_emu.protocols.sendrecv.case import AsyncCase, BothWaysCase, SendRecvCase

from .kinds import AREA, EVENTS, FAILED, LEFTOVER, LOCKED, RACE, TORN, UNWRITTEN, WRONG
from .mutants import Of, bug

RING = SendRecvCase(slots=2, chunks=5, granules=2)
FITS = SendRecvCase(slots=3, chunks=3, granules=2)
LONG_DMA = SendRecvCase(slots=3, chunks=5, granules=2, path="dma")
SMALL = SendRecvCase(slots=2, chunks=3, granules=2)
CHANNELS = SendRecvCase(cores=2, slots=2, chunks=3, granules=2)
DMA = SendRecvCase(slots=2, chunks=3, granules=2, path="dma")
ZERO_COPY = SendRecvCase(slots=2, chunks=3, granules=2, path="zero-copy")
BOTH = BothWaysCase(slots=2, chunks=3, granules=2)
ASYNC = AsyncCase(slots=2, chunks=4, granules=2)

edit = Of("sendrecv")
"""The kernels, to be changed."""

# ---- what stands in the kernels

DATA = "    yield xl.mtu_out(half * c.slot_bytes, slot, chunk_bytes(i, nbytes, c.slot_bytes), step=2)\n"
SENT = '    if more:\n        yield xl.set_flag(xl.MTU_OUT, xl.MTU_IN, half, step=2, sync="half sent")\n'
FENCE = '    yield xl.fence(step=3, sync="data before tail")\n'
TAIL = '    yield xl.put(c.tail, c.event, i, c.base + i + 1, c.shape, step=3, sync="tail")\n'
FREE = '        yield xl.poll_ge(c.ack + COUNT, c.base + i + 1 - c.slots, step=4, sync="slot free")\n'
IN_BUFFER = '    yield xl.wait_flag(xl.MTU_IN, xl.MTU_OUT, half, step=2, sync="chunk in buffer")\n'
SLOT = "    return ring + count % slots * slot_bytes\n"
DMA_SENT = '    yield xl.wait_flag(xl.DMA, xl.SCALAR, i % transfers(c.slots), step=3, sync="DMA before tail")\n'
DMA_TAIL = '    yield xl.fence(step=3, sync="tails in order")\n' + TAIL
DMA_DRAINED = '    yield xl.wait_flag(xl.DMA, xl.SCALAR, i % transfers(c.slots), step=6, sync="DMA before ack")\n'
PULL = "    yield xl.mtu_in(slot_of(c.base + i, c.ring, c.slots, c.slot_bytes), half * c.slot_bytes, size, step=6)\n"
IF_ACK = "    if ack:\n"
CHUNK_READ = '    yield xl.set_flag(xl.MTU_IN, xl.MTU_OUT, half, step=6, sync="chunk read")\n' + IF_ACK
READ = '        yield from hand_over(xl.MTU_IN, xl.SCALAR, 0, "slot read", step=6)\n'
ACK = '        yield xl.add(c.ack + COUNT, 1, step=7, sync="slot ack")\n'
PUT_ACK = '        yield xl.put(c.ack, c.event, i, c.base + i + 1, c.ring, step=7, sync="ack")\n'
OUT = '    yield xl.quiet(step=7, sync="payload out")\n'
LAST_ACK = '    yield xl.put(c.ack, c.event, chunks - 1, c.base + chunks, c.ring, step=7, sync="ack")\n'
IN_TAIL = '        yield xl.poll_ge(c.tail + COUNT, c.base + i + 1, step=5, sync="tail in")\n'
IN_TAIL_MODULO = IN_TAIL.replace("poll_ge", "poll_ne").replace("c.base + i + 1", "(c.base + i) % c.slots")
AGAIN = '    if again:\n        yield xl.wait_flag(xl.MTU_OUT, xl.MTU_IN, half, step=6, sync="half free")\n'
MORE = '    if more:\n        yield xl.set_flag(xl.MTU_OUT, xl.MTU_IN, half, step=6, sync="half free")\n'
EACH_TURN = "    for i in range(max(outgoing, incoming)):\n"
ALL_FIRST = "    for j in range(outgoing + incoming):\n        i = j if j < outgoing else j - outgoing\n"
OFFER_IN = '    yield xl.poll_ge(c.ack + COUNT, c.base + 1, step=2, sync="offer in")\n'
FRESH = (
    '    yield xl.dcci(c.ack, step=2, sync="ack line")  # a scalar unit with a cache has it from the transfer before\n'
)
GIVEN = "    given = yield xl.load(c.ack + EVENT, step=2)\n"
ZERO_COPY_TAIL = '    yield xl.put(c.tail, c.event, 0, c.base + ZERO_COPY_COUNTS, c.shape, step=3, sync="tail")\n'
ACKNOWLEDGED = '    yield xl.poll_ge(c.ack + COUNT, c.base + chunks, step=8, sync="all acknowledged")\n'
ACKNOWLEDGED_MODULO = ACKNOWLEDGED.replace("poll_ge", "poll_eq").replace(
    "c.base + chunks", "(c.base + chunks) % c.slots"
)
ALL_PULLED = "    yield from pull(target, nbytes, c, 0, chunks, 1, acks_each(c.ack_each, chunks, c.slots))\n"
STORES = """\
    yield xl.store(c.tail + COUNT, c.base + i + 1, step=3, sync="tail")
    yield xl.store(c.tail + CHUNK, i, step=3, sync="tail")
    yield xl.store(c.tail + EVENT, c.event, step=3, sync="tail")
    yield xl.store(c.tail + SHAPE, c.shape, step=3, sync="tail")
"""


KNOWN = (
    bug("tail published with no fence after the data words", RING, RACE,
        edit(SENT + FENCE + TAIL, SENT + TAIL), quick=True),
    bug("tail published before the data, fence after both", RING, RACE | UNWRITTEN,
        edit(DATA + SENT + FENCE + TAIL, TAIL + DATA + SENT + FENCE)),
    bug("tail published before the fence", RING, RACE, edit(FENCE + TAIL, TAIL + FENCE)),
    bug("producer's free test is i - ack < S + 1", RING, RACE,
        edit.at(FREE + IN_BUFFER, "+ 1 - c.slots", "- c.slots")),
    bug("consumer sends the ack before it reads the slot", RING, RACE,
        edit(PULL + CHUNK_READ + READ + ACK, IF_ACK + ACK + PULL + CHUNK_READ + READ)),
    bug("producer publishes tail i + 2 after writing chunk i only", RING, WRONG | RACE | FAILED,
        edit.at(FENCE + TAIL, "i + 1", "i + 2")),
    bug("both dies send all chunks before receiving any", BOTH, LOCKED,
        edit(EACH_TURN + "        if i < outgoing:\n", ALL_FIRST + "        if j < outgoing:\n"),
        edit("        if i < incoming:\n", "        if j >= outgoing:\n"), quick=True),
    bug("tail and ack kept modulo S", RING, RACE,
        edit.at(FENCE + TAIL, "c.base + i + 1", "(c.base + i + 1) % c.slots"),
        edit.at(OUT + LAST_ACK, "c.base + chunks", "(c.base + chunks) % c.slots"),
        edit(FREE + IN_BUFFER, "        yield xl.poll_ge(c.ack + COUNT, 0, step=4)\n" + IN_BUFFER),
        edit(IN_TAIL, IN_TAIL_MODULO),
        edit(READ + ACK, READ + PUT_ACK.replace("c.base + i + 1", "(c.base + i + 1) % c.slots")),
        edit(ACKNOWLEDGED, ACKNOWLEDGED_MODULO)),
)  # fmt: skip

OWN = (
    bug("consumer acknowledges one chunk too many", RING, RACE,
        edit.at(READ + ACK, "COUNT, 1", "COUNT, 1 + (i == 0)")),
    bug("consumer acknowledges one chunk too few", RING, LOCKED,
        edit.at(LAST_ACK, "base + chunks", "base + chunks - 1")),
    bug("consumer acknowledges before all is copied out", RING, WRONG | RACE,
        edit(OUT + LAST_ACK, LAST_ACK + OUT), quick=True),
    bug("consumer acknowledges a payload that fits the ring before it is copied out", FITS, WRONG | RACE,
        edit(OUT + LAST_ACK, LAST_ACK + OUT)),
    bug("consumer never acknowledges a chunk by itself", RING, LOCKED,
        edit("    return asked > 0 or chunks > slots\n", "    return asked > 0\n")),
    bug("producer uses a half of its buffer again before it has left", RING, RACE, edit.without("half sent")),
    bug("producer numbers its chunks from one", RING, FAILED,
        edit.at(FENCE + TAIL, "c.event, i,", "c.event, i + 1,")),
    bug("both sides go round one slot too few", RING, WRONG | RACE, edit.at(SLOT, "% slots", "% (slots - 1)")),
    bug("both sides go round one slot too many", RING, AREA, edit.at(SLOT, "% slots", "% (slots + 1)")),
    bug("consumer goes round one slot too few", RING, WRONG | RACE, edit.at(PULL, "c.slots,", "c.slots - 1,")),
    bug("ack as soon as the read is issued", RING, RACE,
        edit(READ + ACK, ACK + READ), quick=True),
    bug("consumer uses a half of its buffer again before it has left", RING, RACE, edit(AGAIN, ""), edit(MORE, "")),
    bug("consumer waits for the other half's event", RING, EVENTS | LOCKED,
        edit.at(AGAIN, "half, step", "1 - half, step")),
    bug("consumer frees a half that nobody will take again", RING, LEFTOVER, edit.at(MORE, "    if more:\n    ", "")),
    bug("producer waits for the event of the chunk that it has just asked for", RING, EVENTS | RACE | LOCKED,
        edit.at(IN_BUFFER, "half, step", "1 - half, step")),
    bug("field of the tail written word by word, the count first", RING, FAILED | TORN,
        edit(FENCE + TAIL, FENCE + STORES)),
    bug("tail put to the next channel's field", CHANNELS, AREA,
        edit.at(FENCE + TAIL, "xl.put(c.tail,", "xl.put(c.tail + 32,")),
    bug("receiver returns without all chunks", SMALL, LOCKED | WRONG,
        edit.at(ALL_PULLED, "chunks, 1,", "chunks - 1, 1,")),
    bug("DMA: tail without waiting for the completion", DMA, WRONG | RACE,
        edit(DMA_SENT + DMA_TAIL, DMA_TAIL + DMA_SENT)),
    bug("DMA: a completion that nobody takes", DMA, LEFTOVER | RACE,
        edit(DMA_SENT, '    if i < 2:\n    ' + DMA_SENT)),
    bug("DMA: quiet in place of the completion", DMA, EVENTS, edit(DMA_SENT, '    yield xl.quiet(step=3)\n')),
    bug("DMA: fence in place of the completion", DMA, RACE | EVENTS, edit(DMA_SENT, FENCE)),
    bug("DMA: acknowledged before the copy-out is complete", LONG_DMA, RACE,
        edit(DMA_DRAINED + IF_ACK + ACK, IF_ACK + ACK + DMA_DRAINED)),
    bug("zero-copy: tail before the fence", ZERO_COPY, RACE | WRONG,
        edit(FENCE + ZERO_COPY_TAIL, ZERO_COPY_TAIL + FENCE)),
    bug("zero-copy: the offer's words read before the offer is there", ZERO_COPY, TORN | FAILED,
        edit(OFFER_IN + FRESH + GIVEN, GIVEN + OFFER_IN)),
    bug("zero-copy: receiver does not wait for the tail", ZERO_COPY, FAILED | TORN | RACE | WRONG,
        edit.without('xl.poll_ge(c.tail + COUNT, c.base + ZERO_COPY_COUNTS, step=5, sync="tail in")')),
    bug("asynchronous: one free slot too many", ASYNC, RACE,
        edit.at("last = min(chunks, acknowledged - c.base + c.slots)", "+ c.slots)", "+ c.slots + 1)")),
    bug("both ways: what is received uses the half of what is sent", BOTH, WRONG | RACE | EVENTS,
        edit.at("pull_chunk(i, 1, target, received,", "(i, 1,", "(i, 0,")),
)  # fmt: skip
