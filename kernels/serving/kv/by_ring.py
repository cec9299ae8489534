"""Blocks of a KV cache go by send and receive, through a ring that all instances of a decode die share.

[xDeepServe] 5.1, steps 6 and 7: decode posts a receive when it has slots, else it defers it.  A task is sent when its
receive is posted; a block is one send of 3.1, on a channel that the pair has for itself.  XCCL's buffers on a decode
die are shared: a receiver has them from its receive on until all blocks of the task are copied out.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels import sendrecv
from xccl_emu.kernels.channel import Channel
from xccl_emu.kernels.common import fetch
from xccl_emu.kernels.serving.kv.pair import FIELD_BYTES, Pair
from xccl_emu.kernels.serving.kv.transfer import Receiver, await_grant, grant_task, nth


class _SendChannel(Channel):
    ack: xl.Reads
    tail: xl.Writes
    ring: xl.Writes


class _Sends(Pair):
    blocks: xl.Reads
    tables: xl.Reads


@xl.kernel
def send(posted: xl.Reads, c: _SendChannel, k: _Sends):
    """Send the blocks of each task whose receive is posted: ``posted`` has task + 1, and how many blocks."""
    chunks = sendrecv.count_chunks(k.nbytes, c.slot_bytes)
    sent = 0
    for task in range(k.first * k.layers, (k.first + k.requests) * k.layers):
        yield xl.poll_ge(posted, task + 1, step=7, sync="receive posted")
        yield xl.dcci(posted, step=7, sync="receive line")
        n = yield xl.load(posted + 8, step=7)
        table = k.tables + task % k.n_tasks * k.table_bytes
        yield from fetch(table, 2 * c.slot_bytes, n * FIELD_BYTES, 7, "table in buffer")
        for block in range(n):
            before = sent * c.slot_bytes  # a channel counts chunks on, from block to block
            source = yield xl.ub_load(2 * c.slot_bytes + block * FIELD_BYTES, 8)
            yield from sendrecv.push(source - before, before + k.nbytes, c, sent, sent + chunks, 1)
            sent += chunks
            yield xl.poll_ge(c.ack + sendrecv.COUNT, c.base + sent, step=7, sync="all acknowledged")


class _ReceiveChannel(Channel):
    ack: xl.Writes
    tail: xl.Reads
    ring: xl.Reads


def take_ring(lock):
    """Take the ring of a decode die, which one receiver has at a time."""
    before = 1
    while before:
        yield xl.poll_ne(lock, 1, step=6, sync="ring free")
        before = yield xl.compare_swap(lock, 0, 1, step=6, sync="ring taken")


def receive_blocks(mask, n, got, c: Channel, k: Pair):
    """Receive n blocks to the slots of a mask, after ``got`` chunks; returns chunks that have been received so far."""
    chunks = sendrecv.count_chunks(k.nbytes, c.slot_bytes)
    each = sendrecv.acks_each(c.ack_each, chunks, c.slots)
    for block in range(n):
        before = got * c.slot_bytes
        slot = k.slots + nth(mask, k.n_slots, block) * k.nbytes
        yield from sendrecv.pull(slot - before, before + k.nbytes, c, got, got + chunks, 1, each)
        got += chunks
    return got


@xl.kernel
def receive(requests: xl.Reads, posted: xl.Writes, lock: xl.Updates, c: _ReceiveChannel, k: Receiver):
    """Post a receive for each task when there are slots for it; ``requests`` are those that are expected."""
    rest = 0
    got = 0
    yield xl.put(c.ack, c.event, 0, c.base, c.ring, step=6, sync="ring address")
    yield xl.fence(step=6, sync="address before receive")
    for task in range(k.first * k.layers, (k.first + k.requests) * k.layers):
        expected = yield xl.load(requests + (task // k.layers - k.first) * 16)
        rest = yield from grant_task(task, expected, rest, k)
        field = yield from await_grant(task, k)
        mask = yield xl.load(field + 8)
        n = yield xl.load(field + 24)
        yield from take_ring(lock)
        yield xl.put(posted, task + 1, n, step=6, sync="receive posted")
        got = yield from receive_blocks(mask, n, got, c, k)
        yield xl.add(lock, -1, step=8, sync="ring released")
        yield xl.add(k.done, 1, step=8, sync="done")
        yield xl.add(k.ready, 1, step=8, sync="ready")
