"""Send and receive between two dies: the steps 1 to 8 of xDeepServe 3.1, on each core of the two sides.

Channel i is the i-th core of the sender and the i-th core of the receiver; they talk to each other alone.  A channel
has ``slots`` slots of ``slot_bytes`` in the ring that the receiver keeps for this sender, and two 32-byte metadata
fields:

    =======  =============  ========  ========  ==============  =============================================
    field    on the die of  word 0    word 1    word 2          word 3
    =======  =============  ========  ========  ==============  =============================================
    tail     the receiver   event ID  chunk ID  tailPtr         shape of the payload (`SHAPE_UNIT`)
    ack      the sender     event ID  chunk ID  acknowledged    where the sender writes: the channel's first slot
    =======  =============  ========  ========  ==============  =============================================

tailPtr and acknowledged count chunks, of all transfers on this channel since its fields were empty; chunk n lies in
slot n % slots.  ``base`` of a channel is the count before this transfer: what the field says that this side writes.
A field is written whole, by one put, so its words belong together; to acknowledge a chunk that is not the last adds
one to the count.

A tail follows its chunk behind a fence: on the receiver's die it becomes visible after the data, and nobody waits for
the way there.  So a tail may be on its way while the next chunk is.  By DMA the fence keeps it after the tail before.
Acknowledgments on their way need no order, since they add up.

The payload is acknowledged once, after the copy-out, as in the paper: `send` returns when it is in the receiver's app
data area.  Where it has more chunks than the ring has slots, or on request, or by passes of `irecv` (whose memory the
ack field is), each chunk before the last is acknowledged too, as soon as its slot has been read.  Through the data
buffer this is before its copy-out is visible, or has begun: such an acknowledgment frees a slot and says no more.

Every put of a field, addition, poll, quiet, fence and flag has a name (`sync`) by which a run can switch it off; a
name means one thing.  A load with a name is a synchronizing load.  It may meet the put of the next chunk's field, which
does no harm: a field is one granule, its count and chunk ID only grow, and its other words stay the same during a
transfer.  Like a poll it acquires what was visible before the put that it sees.  A load without a name is a plain one:
no put to its field can be under way.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.channel import Channel
from xccl_emu.kernels.common import copy_through_buffer
from xccl_emu.kernels.group import hand_over

EVENT, CHUNK, COUNT, WHERE = 0, 8, 16, 24
"""Byte offsets of the words in a field."""

SHAPE = WHERE
"""The word that the tail field has where the ack field has an address."""

SHAPE_UNIT = 1 << 16
"""The shape of a payload is its bytes, all channels together, times this plus the number of channels."""

WRONG_EVENT, WRONG_SHAPE, WRONG_CHUNK = 1, 2, 3
"""Codes of `fail`; the value is the event ID, the shape or the chunk ID that the other side gave."""

TRANSFERS_MAX = 4
"""Most copies by DMA that a core has under way."""

ZERO_COPY_COUNTS = 2
"""What a zero-copy transfer adds to the counts of a channel: the offer of the target, and the payload."""


def count_chunks(nbytes: int, slot_bytes: int) -> int:
    """Number of chunks of a channel's part of the payload."""
    return (nbytes + slot_bytes - 1) // slot_bytes


def chunk_bytes(i, nbytes, slot_bytes):
    """Bytes of chunk ``i``; the last one may be shorter."""
    return min(slot_bytes, nbytes - i * slot_bytes)


def slot_of(count, ring, slots, slot_bytes):
    """Address of the slot of the chunk that follows ``count`` others."""
    return ring + count % slots * slot_bytes


def transfers(slots: int) -> int:
    """Return how many chunks are copied by DMA at once: as many slots are left for the other side to work on."""
    return min((slots + 1) // 2, TRANSFERS_MAX)


# ---- the sender's side


def load_chunk(i, half, source, nbytes, c: Channel, again):
    """Step 1: chunk ``i`` into a half of the data buffer, asynchronously; ``again`` after another one in that half."""
    if again:
        yield xl.wait_flag(xl.MTU_OUT, xl.MTU_IN, half, step=1, sync="half sent")
    yield xl.mtu_in(source + i * c.slot_bytes, half * c.slot_bytes, chunk_bytes(i, nbytes, c.slot_bytes), step=1)
    yield xl.set_flag(xl.MTU_IN, xl.MTU_OUT, half, step=1, sync="chunk in buffer")


def push_chunk(i, half, nbytes, ring, c: Channel, wait, more):
    """Send chunk ``i``, which is on its way into a half of the data buffer; ``more`` chunks will follow it there."""
    if wait:
        yield xl.poll_ge(c.ack + COUNT, c.base + i + 1 - c.slots, step=4, sync="slot free")
    yield xl.wait_flag(xl.MTU_IN, xl.MTU_OUT, half, step=2, sync="chunk in buffer")
    slot = slot_of(c.base + i, ring, c.slots, c.slot_bytes)
    yield xl.mtu_out(half * c.slot_bytes, slot, chunk_bytes(i, nbytes, c.slot_bytes), step=2)
    if more:
        yield xl.set_flag(xl.MTU_OUT, xl.MTU_IN, half, step=2, sync="half sent")
    yield xl.fence(step=3, sync="data before tail")
    yield xl.put(c.tail, c.event, i, c.base + i + 1, c.shape, step=3, sync="tail")


def start_chunk_dma(i, source, nbytes, ring, c: Channel, wait):
    """Have chunk ``i`` copied by the DMA engine, past the data buffer."""
    if wait:
        yield xl.poll_ge(c.ack + COUNT, c.base + i + 1 - c.slots, step=4, sync="slot free")
    slot = slot_of(c.base + i, ring, c.slots, c.slot_bytes)
    size = chunk_bytes(i, nbytes, c.slot_bytes)
    yield xl.dma(source + i * c.slot_bytes, slot, size, i % transfers(c.slots), step=2)


def finish_chunk_dma(i, c: Channel):
    """Publish chunk ``i`` when its copy is complete, which says that it is visible: a fence covers tails, not DMA."""
    yield xl.wait_flag(xl.DMA, xl.SCALAR, i % transfers(c.slots), step=3, sync="DMA before tail")
    yield xl.fence(step=3, sync="tails in order")
    yield xl.put(c.tail, c.event, i, c.base + i + 1, c.shape, step=3, sync="tail")


def push(source, nbytes, c: Channel, first, last, wait):
    """Send chunks ``first`` to ``last - 1``; with ``wait`` (a literal) poll for free slots."""
    ring = yield xl.load(c.ack + WHERE, step=2, sync="ring address")
    if c.by_dma:
        ahead = transfers(c.slots)
        for i in range(first, last + ahead):
            if i - ahead >= first:
                yield from finish_chunk_dma(i - ahead, c)
            if i < last:
                yield from start_chunk_dma(i, source, nbytes, ring, c, wait)
    else:
        if first < last:
            yield from load_chunk(first, first % 2, source, nbytes, c, 0)
        for i in range(first, last):
            if i + 1 < last:
                yield from load_chunk(i + 1, (i + 1) % 2, source, nbytes, c, i > first)
            yield from push_chunk(i, i % 2, nbytes, ring, c, wait, i + 2 < last)


@xl.kernel
def send(source, nbytes, c: Channel):
    """Send ``nbytes`` at ``source`` on one channel and return when all is acknowledged; nothing to do for no bytes."""
    if nbytes == 0:
        return 0
    chunks = count_chunks(nbytes, c.slot_bytes)
    yield xl.dcci(c.ack, step=2, sync="ack line")  # a scalar unit with a cache may have a zero-copy offer in it
    yield from push(source, nbytes, c, 0, chunks, 1)
    yield xl.poll_ge(c.ack + COUNT, c.base + chunks, step=8, sync="all acknowledged")
    return chunks


@xl.kernel
def isend(source, nbytes, c: Channel, done):
    """Do one pass of an asynchronous send: fill the slots that are free now, without waiting for any.

    ``done`` is what the passes before have published, in chunks.  Returns what is published now, and one more when all
    is acknowledged.
    """
    if nbytes == 0:
        return 1
    chunks = count_chunks(nbytes, c.slot_bytes)
    yield xl.dcci(c.ack, step=4, sync="ack line")  # or from the pass before
    acknowledged = yield xl.load(c.ack + COUNT, step=4, sync="acknowledged")
    if acknowledged == c.base + chunks:
        return chunks + 1
    last = min(chunks, acknowledged - c.base + c.slots)
    yield from push(source, nbytes, c, done, last, 0)
    return last


@xl.kernel
def send_zero_copy(source, nbytes, c: Channel, half_bytes):
    """Write straight into the receiver's app data area, at the address that its offer holds; one tail at the end."""
    if nbytes == 0:
        return 0
    yield xl.poll_ge(c.ack + COUNT, c.base + 1, step=2, sync="offer in")
    yield xl.dcci(c.ack, step=2, sync="ack line")  # a scalar unit with a cache has it from the transfer before
    given = yield xl.load(c.ack + EVENT, step=2)
    if given != c.event:
        yield xl.fail(WRONG_EVENT, given, step=2)
    given = yield xl.load(c.ack + CHUNK, step=2)
    if given != c.shape:
        yield xl.fail(WRONG_SHAPE, given, step=2)
    target = yield xl.load(c.ack + WHERE, step=2)
    yield from copy_through_buffer(source, target, nbytes, half_bytes, 2)
    yield xl.fence(step=3, sync="data before tail")
    yield xl.put(c.tail, c.event, 0, c.base + ZERO_COPY_COUNTS, c.shape, step=3, sync="tail")
    yield xl.poll_ge(c.ack + COUNT, c.base + ZERO_COPY_COUNTS, step=8, sync="all acknowledged")
    return 1


# ---- the receiver's side


def check(c: Channel):
    """Stop the run if what arrives is not what this side was called for; both words stand still during a transfer."""
    given = yield xl.load(c.tail + EVENT, step=5, sync="event")
    if given != c.event:
        yield xl.fail(WRONG_EVENT, given, step=5)
    given = yield xl.load(c.tail + SHAPE, step=5, sync="shape")
    if given != c.shape:
        yield xl.fail(WRONG_SHAPE, given, step=5)


def await_chunk(i, chunks, c: Channel, wait, first):
    """Step 5: with ``wait`` poll for chunk ``i``; that the sides agree is seen by the ``first``, and by chunk IDs."""
    if wait:
        yield xl.poll_ge(c.tail + COUNT, c.base + i + 1, step=5, sync="tail in")
    yield xl.dcci(c.tail, step=5, sync="tail line")  # a scalar unit with a cache has it from the chunk before
    if first:
        yield from check(c)
    given = yield xl.load(c.tail + CHUNK, step=5, sync="chunk ID")  # of this chunk, or of one that came after it
    if given < i or given >= chunks:
        yield xl.fail(WRONG_CHUNK, given, step=5)


def acks_each(asked, chunks, slots):
    """Return whether each chunk is acknowledged.  If not, only the last one is, when all is copied out."""
    return asked > 0 or chunks > slots


def pull_chunk(i, half, target, nbytes, c: Channel, again, more, ack):
    """Receive chunk ``i`` through a half of the data buffer, in which ``again`` another one was, and ``more`` will be.

    With ``ack``, say that the slot has been read.
    """
    if again:
        yield xl.wait_flag(xl.MTU_OUT, xl.MTU_IN, half, step=6, sync="half free")
    size = chunk_bytes(i, nbytes, c.slot_bytes)
    yield xl.mtu_in(slot_of(c.base + i, c.ring, c.slots, c.slot_bytes), half * c.slot_bytes, size, step=6)
    yield xl.set_flag(xl.MTU_IN, xl.MTU_OUT, half, step=6, sync="chunk read")
    if ack:
        yield from hand_over(xl.MTU_IN, xl.SCALAR, 0, "slot read", step=6)
        yield xl.add(c.ack + COUNT, 1, step=7, sync="slot ack")
    yield xl.wait_flag(xl.MTU_IN, xl.MTU_OUT, half, step=6, sync="chunk read")
    yield xl.mtu_out(half * c.slot_bytes, target + i * c.slot_bytes, size, step=6)
    if more:
        yield xl.set_flag(xl.MTU_OUT, xl.MTU_IN, half, step=6, sync="half free")


def drain_chunk_dma(i, target, nbytes, c: Channel):
    """Have chunk ``i`` copied out by the DMA engine, past the data buffer."""
    slot = slot_of(c.base + i, c.ring, c.slots, c.slot_bytes)
    size = chunk_bytes(i, nbytes, c.slot_bytes)
    yield xl.dma(slot, target + i * c.slot_bytes, size, i % transfers(c.slots), step=6)


def drained_chunk_dma(i, c: Channel, ack):
    """Wait until chunk ``i`` is copied out; with ``ack``, say so."""
    yield xl.wait_flag(xl.DMA, xl.SCALAR, i % transfers(c.slots), step=6, sync="DMA before ack")
    if ack:
        yield xl.add(c.ack + COUNT, 1, step=7, sync="slot ack")


def acknowledge(chunks, c: Channel):
    """Step 7: all chunks are copied out, and the sender may know."""
    yield xl.quiet(step=7, sync="payload out")
    yield xl.put(c.ack, c.event, chunks - 1, c.base + chunks, c.ring, step=7, sync="ack")


def pull(target, nbytes, c: Channel, first, last, wait, each):
    """Receive the chunks ``first`` to ``last - 1``; with ``wait`` (a literal) poll for each.

    While mtu-out writes a chunk to the app data area, the next one comes in on the other half.  With ``each`` all
    chunks but the payload's last one are acknowledged by themselves; that one when all is copied out.
    """
    chunks = count_chunks(nbytes, c.slot_bytes)
    if c.by_dma:
        ahead = transfers(c.slots)
        for i in range(first, last + ahead):
            if i - ahead >= first:
                yield from drained_chunk_dma(i - ahead, c, each and i - ahead < chunks - 1)
            if i < last:
                yield from await_chunk(i, chunks, c, wait, i == first)
                yield from drain_chunk_dma(i, target, nbytes, c)
    else:
        for i in range(first, last):
            yield from await_chunk(i, chunks, c, wait, i == first)
            ack = each and i < chunks - 1
            yield from pull_chunk(i, i % 2, target, nbytes, c, i >= first + 2, i + 2 < last, ack)
    if first < last and last == chunks:
        yield from acknowledge(chunks, c)


@xl.kernel
def recv(target, nbytes, c: Channel):
    """Receive ``nbytes`` to ``target`` on one channel; nothing to do for no bytes."""
    if nbytes == 0:
        return 0
    chunks = count_chunks(nbytes, c.slot_bytes)
    yield from pull(target, nbytes, c, 0, chunks, 1, acks_each(c.ack_each, chunks, c.slots))
    return chunks


@xl.kernel
def irecv(target, nbytes, c: Channel, done):
    """Do one pass of an asynchronous receive: empty the slots that are full now, without waiting for any.

    ``done`` is what the passes before have acknowledged, in chunks; returns what is acknowledged now.
    """
    if nbytes == 0:
        return 0
    yield xl.dcci(c.tail, step=5, sync="tail line")
    published = yield xl.load(c.tail + COUNT, step=5, sync="published")
    last = published - c.base
    yield from pull(target, nbytes, c, done, last, 0, 1)
    return last


@xl.kernel
def recv_zero_copy(target, nbytes, c: Channel):
    """Offer ``target`` to the sender, wait until it is full, and give the sender the address of the ring back."""
    if nbytes == 0:
        return 0
    yield xl.put(c.ack, c.event, c.shape, c.base + 1, target, step=5, sync="offer")
    yield xl.poll_ge(c.tail + COUNT, c.base + ZERO_COPY_COUNTS, step=5, sync="tail in")
    yield xl.put(c.ack, c.event, 0, c.base + ZERO_COPY_COUNTS, c.ring, step=7, sync="ack")
    return 1


# ---- both sides on one core, and passes one after the other


@xl.kernel
def exchange(source, sent, c: Channel, target, received, back: Channel):
    """Send ``sent`` bytes on one channel and receive ``received`` on another (``back``), chunk by chunk in turn.

    A core that sent all its chunks before it received any would wait forever if the other side did so too, as soon as
    there are more chunks than slots.  In turn, the slot that chunk i waits for is freed by the other side before its
    own turn i.

    What is sent goes through the first half of the data buffer, what is received through the second.
    """
    outgoing = count_chunks(sent, c.slot_bytes)
    incoming = count_chunks(received, back.slot_bytes)
    each = acks_each(back.ack_each, incoming, back.slots)
    there = 0
    if outgoing > 0:
        yield xl.dcci(c.ack, step=2, sync="ack line")
        there = yield xl.load(c.ack + WHERE, step=2, sync="ring address")
        if not c.by_dma:
            yield from load_chunk(0, 0, source, sent, c, 0)
    for i in range(max(outgoing, incoming)):
        if i < outgoing:
            if c.by_dma:
                yield from start_chunk_dma(i, source, sent, there, c, 1)
                yield from finish_chunk_dma(i, c)
            else:
                yield from push_chunk(i, 0, sent, there, c, 1, i + 1 < outgoing)
                if i + 1 < outgoing:
                    yield from load_chunk(i + 1, 0, source, sent, c, 1)
        if i < incoming:
            yield from await_chunk(i, incoming, back, 1, i == 0)
            ack = each and i < incoming - 1
            if back.by_dma:
                yield from drain_chunk_dma(i, target, received, back)
                yield from drained_chunk_dma(i, back, ack)
            else:
                yield from pull_chunk(i, 1, target, received, back, i > 0, i + 1 < incoming, ack)
            if i + 1 == incoming:
                yield from acknowledge(incoming, back)
    if outgoing > 0:
        yield xl.poll_ge(c.ack + COUNT, c.base + outgoing, step=8, sync="all acknowledged")
    return outgoing


@xl.kernel
def isend_all(source, nbytes, c: Channel, done):
    """Passes of `isend` until all is acknowledged; between two of them the quiet frees the data buffer."""
    chunks = count_chunks(nbytes, c.slot_bytes)
    while done <= chunks:
        done = yield from isend(source, nbytes, c, done)
        yield xl.quiet(step=3, sync="buffer free")
    return done


@xl.kernel
def irecv_all(target, nbytes, c: Channel, done):
    """Passes of `irecv` until all is received; between two of them the quiet frees the data buffer."""
    chunks = count_chunks(nbytes, c.slot_bytes)
    while done < chunks:
        done = yield from irecv(target, nbytes, c, done)
        yield xl.quiet(step=6, sync="buffer free")
    return done
