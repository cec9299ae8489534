"""Python twins of the kernels of examples/ascendc: the same requests in the same order, queues told as events."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from xccl_emu import lang
from xccl_emu.doors.ascendc import AscendKernel
from xccl_emu.lang import maps
from xccl_emu.machine.pod import Pod

ADD_ONE, ONE = maps.function("add", lang.FP32, scalar=True), 0x3F800000
IN, OUT, BARRIER = 8, 10, 29
"""Events of both queues, two each, and of a barrier that empties the pipes."""
HOW = {"none": 0, "visible": 1, "empty": 2, "visible, dsb": 5, "empty, dsb": 6}


def through_queues(target, source, nbytes, i):
    """Chunk i: in, one added, and out."""
    k = i % 2
    if i >= 2:
        yield lang.wait_flag(lang.VECTOR, lang.MTU_IN, IN + k, sync="in freed")
    yield lang.mtu_in(source, k * nbytes, nbytes)
    yield lang.set_flag(lang.MTU_IN, lang.VECTOR, IN + k, sync="in filled")
    yield lang.wait_flag(lang.MTU_IN, lang.VECTOR, IN + k, sync="in filled")
    if i >= 2:
        yield lang.wait_flag(lang.MTU_OUT, lang.VECTOR, OUT + k, sync="out freed")
    yield lang.v_map(k * nbytes, (2 + k) * nbytes, nbytes // 4, ADD_ONE, ONE)
    yield lang.set_flag(lang.VECTOR, lang.MTU_OUT, OUT + k, sync="out filled")
    yield lang.set_flag(lang.VECTOR, lang.MTU_IN, IN + k, sync="in freed")
    yield lang.wait_flag(lang.VECTOR, lang.MTU_OUT, OUT + k, sync="out filled")
    yield lang.mtu_out((2 + k) * nbytes, target, nbytes)
    yield lang.set_flag(lang.MTU_OUT, lang.VECTOR, OUT + k, sync="out freed")


def end_queues(chunks):
    """Wait for what is freed."""
    for k in range(min(2, chunks)):
        yield lang.wait_flag(lang.MTU_OUT, lang.VECTOR, OUT + k, sync="out freed")
    for k in range(min(2, chunks)):
        yield lang.wait_flag(lang.VECTOR, lang.MTU_IN, IN + k, sync="in freed")


def barrier_of(how):
    """All that was issued is visible, or the pipes are empty, or neither; then a `dsb`, or none."""
    if how & 3 == 1:
        yield lang.quiet(sync="barrier")
    if how & 3 == 2:
        for pipe in range(lang.MTU_IN, lang.MTU_OUT + 1):
            yield lang.set_flag(pipe, lang.SCALAR, BARRIER, sync="barrier")
        for pipe in range(lang.MTU_IN, lang.MTU_OUT + 1):
            yield lang.wait_flag(pipe, lang.SCALAR, BARRIER, sync="barrier")
    if how & 4:
        yield lang.quiet(sync="dsb")


@lang.kernel
def send(block_idx, block_num, own, slots, tail, tiling, how):
    """Each chunk into its slot, and the tail behind it."""
    sizes = yield lang.load(tiling)
    chunks, nbytes = sizes & 0xFFFFFFFF, 4 * (sizes >> 32)
    for i in range(chunks):
        yield from through_queues(slots + i * nbytes, own + i * nbytes, nbytes, i)
        yield from barrier_of(how)
        yield lang.store(tail, i + 1)
        yield lang.dcci(tail, sync="told")
    yield from end_queues(chunks)


@lang.kernel
def receive(block_idx, block_num, out, slots, tail, tiling, how):
    """Each chunk out of its slot once the tail has come so far."""
    sizes = yield lang.load(tiling)
    chunks, nbytes = sizes & 0xFFFFFFFF, 4 * (sizes >> 32)
    for i in range(chunks):
        yield lang.dcci(tail, sync="dropped")
        seen = -1
        while seen < i + 1:
            seen = yield lang.load(tail, sync="awaited")
            if seen < i + 1:
                seen = -1
                yield lang.dcci(tail, sync="dropped again")
        yield from through_queues(out + i * nbytes, slots + i * nbytes, nbytes, i)
    yield from end_queues(chunks)


LOW = 0xFFFFFFFF


def set_counter(word, value):
    """Write it, and clean its line."""
    yield lang.store(word, value)
    yield lang.dcci(word)


def await_counter(word, wanted):
    """Wait until it is at least so much, and return what it is."""
    seen = wanted - 1
    while seen < wanted:
        yield lang.dcci(word)
        seen = yield lang.load(word, sync="awaited")
        if seen < wanted:
            seen = wanted - 1
    return seen


def handed_over(source, target, event, sync):
    """What one pipe has done, before the next one goes on."""
    yield lang.set_flag(source, target, event, sync=sync)
    yield lang.wait_flag(source, target, event, sync=sync)


@lang.kernel
def all_gather(
    block_idx, block_num, own, out, inbox, tail, ack, rightInbox, rightTail, leftAck, tiling, how  # noqa: N803
):  # fmt: skip
    """Pass on what came last, own chunk first."""
    pair = yield lang.load(tiling)
    me, dies = pair & LOW, pair >> 32
    pair = yield lang.load(tiling + 8)
    slots, n = pair & LOW, pair >> 32
    yield lang.mtu_in(own, 0, 4 * n)
    yield from handed_over(lang.MTU_IN, lang.MTU_OUT, 0, "chunk in")
    yield lang.mtu_out(0, out + me * 4 * n, 4 * n)
    for i in range(dies - 1):
        slot = i % slots * 4 * n
        yield from await_counter(ack, i + 1 - slots)
        yield lang.mtu_out(0, rightInbox + slot, 4 * n)
        yield from barrier_of(how)
        yield from set_counter(rightTail, i + 1)
        yield from await_counter(tail, i + 1)
        yield lang.mtu_in(inbox + slot, 0, 4 * n)
        yield lang.set_flag(lang.MTU_IN, lang.SCALAR, 1, sync="slot read")
        yield from handed_over(lang.MTU_IN, lang.MTU_OUT, 0, "chunk in")
        yield lang.mtu_out(0, out + (me + dies - 1 - i) % dies * 4 * n, 4 * n)
        yield lang.wait_flag(lang.MTU_IN, lang.SCALAR, 1, sync="slot read")
        yield from set_counter(leftAck, i + 1)


NARROW, WIDEN = maps.function("cast", lang.FP32, lang.FP16), maps.function("cast", lang.FP16, lang.FP32)


def cast_begins(source, i, hidden, wide, narrow, function):
    """Row i comes in, of elements of so many bytes, is cast, and may go out."""
    k = i % 2
    if i >= 2:
        yield lang.wait_flag(lang.VECTOR, lang.MTU_IN, IN + k, sync="in freed")
    yield lang.mtu_in(source, k * wide * hidden, wide * hidden)
    yield from handed_over(lang.MTU_IN, lang.VECTOR, IN + k, "in filled")
    if i >= 2:
        yield lang.wait_flag(lang.MTU_OUT, lang.VECTOR, OUT + k, sync="out freed")
    yield lang.v_map(k * wide * hidden, (2 * wide + k * narrow) * hidden, hidden, function)
    yield lang.set_flag(lang.VECTOR, lang.MTU_OUT, OUT + k, sync="out filled")
    yield lang.set_flag(lang.VECTOR, lang.MTU_IN, IN + k, sync="in freed")
    yield lang.wait_flag(lang.VECTOR, lang.MTU_OUT, OUT + k, sync="out filled")
    return (2 * wide + k * narrow) * hidden


@lang.kernel
def dispatch(block_idx, block_num, x, experts, windows, counts, tiling, how):
    """Each token to its experts in half precision, and behind all of them how many."""
    pair = yield lang.load(tiling)
    me, ranks = pair & LOW, pair >> 32
    pair = yield lang.load(tiling + 8)
    tokens, top_k = pair & LOW, pair >> 32
    pair = yield lang.load(tiling + 16)
    hidden = pair & LOW
    stride = yield lang.load(tiling + 24)
    sent = 0
    for t in range(tokens):
        row = yield from cast_begins(x + t * 4 * hidden, t, hidden, 4, 2, NARROW)
        for j in range(top_k):
            expert = yield lang.load(experts + 4 * (t * top_k + j), 4)
            slot = me * tokens + (sent >> 8 * expert & 255)
            sent += 1 << 8 * expert
            yield lang.mtu_out(row, windows + expert * stride + slot * 2 * hidden, 2 * hidden)
        yield lang.set_flag(lang.MTU_OUT, lang.VECTOR, OUT + t % 2, sync="out freed")
    yield from barrier_of(how)
    for rank in range(ranks):
        yield from set_counter(counts + rank * stride + me * 64, (sent >> 8 * rank & 255) + 1)
    yield from end_queues(tokens)


@lang.kernel
def receive_rows(block_idx, block_num, out, window, counts, tiling, how):
    """What every rank has sent, in single precision."""
    pair = yield lang.load(tiling)
    ranks = pair >> 32
    pair = yield lang.load(tiling + 8)
    tokens = pair & LOW
    pair = yield lang.load(tiling + 16)
    hidden = pair & LOW
    yield lang.load(tiling + 24)
    row = 0
    for rank in range(ranks):
        seen = yield from await_counter(counts + rank * 64, 1)
        for i in range(seen - 1):
            wide = yield from cast_begins(window + (rank * tokens + i) * 2 * hidden, row, hidden, 2, 4, WIDEN)
            yield lang.mtu_out(wide, out + row * 4 * hidden, 4 * hidden)
            yield lang.set_flag(lang.MTU_OUT, lang.VECTOR, OUT + row % 2, sync="out freed")
            row += 1
    yield from end_queues(row)


@lang.kernel
def give_back(block_idx, block_num, rows, routes, windows, flags, tiling, how):
    """Each row to where its token came from, and behind all of them a flag of each."""
    yield lang.load(tiling)
    yield lang.load(tiling + 8)
    pair = yield lang.load(tiling + 16)
    hidden, n = pair & LOW, pair >> 32
    stride = yield lang.load(tiling + 24)
    for i in range(n):
        if i > 0:
            yield lang.wait_flag(lang.MTU_OUT, lang.MTU_IN, 1, sync="stage is free")
        yield lang.mtu_in(rows + i * 2 * hidden, 0, 2 * hidden)
        yield lang.set_flag(lang.MTU_IN, lang.MTU_OUT, 0, sync="row in stage")
        rank = yield lang.load(routes + 8 * i, 4)
        place = yield lang.load(routes + 8 * i + 4, 4)
        yield lang.wait_flag(lang.MTU_IN, lang.MTU_OUT, 0, sync="row in stage")
        yield lang.mtu_out(0, windows + rank * stride + place * 2 * hidden, 2 * hidden)
        if i + 1 < n:
            yield lang.set_flag(lang.MTU_OUT, lang.MTU_IN, 1, sync="stage is free")
    yield from barrier_of(how)
    for i in range(n):
        rank = yield lang.load(routes + 8 * i, 4)
        place = yield lang.load(routes + 8 * i + 4, 4)
        yield from set_counter(flags + rank * stride + place * 64, 1)


ZERO, WEIGH = maps.function("fill", lang.FP32), maps.function("mul", lang.FP32, scalar=True)
ADD = maps.function("add", lang.FP32)
FROM_BF16 = maps.function("cast", lang.BF16, lang.FP32)
TO_BF16 = maps.function("cast", lang.FP32, lang.BF16, maps.ROUND_RINT)


@lang.kernel
def combine(block_idx, block_num, out, scales, window, flags, tiling, how):
    """Each token is the weighted sum of its contributions."""
    yield lang.load(tiling)
    pair = yield lang.load(tiling + 8)
    tokens, top_k = pair & LOW, pair >> 32
    pair = yield lang.load(tiling + 16)
    hidden = pair & LOW
    yield lang.load(tiling + 24)
    wide, total = 8 * hidden, 12 * hidden
    for t in range(tokens):
        yield lang.v_map(0, total, hidden, ZERO, 0)
        for place in range(t * top_k, (t + 1) * top_k):
            yield from await_counter(flags + place * 64, 1)
            k = place % 2
            if place >= 2:
                yield lang.wait_flag(lang.VECTOR, lang.MTU_IN, IN + k, sync="in freed")
            yield lang.mtu_in(window + place * 2 * hidden, k * 2 * hidden, 2 * hidden)
            yield from handed_over(lang.MTU_IN, lang.VECTOR, IN + k, "in filled")
            yield lang.v_map(k * 2 * hidden, wide, hidden, FROM_BF16)
            yield lang.set_flag(lang.VECTOR, lang.MTU_IN, IN + k, sync="in freed")
            weight = yield lang.load(scales + 4 * place, 4)
            yield lang.v_map(wide, wide, hidden, WEIGH, weight & 0xFFFFFFFF)
            yield lang.v_map(total, total, hidden, ADD, wide)
        k = t % 2
        if t >= 2:
            yield lang.wait_flag(lang.MTU_OUT, lang.VECTOR, OUT + k, sync="out freed")
        yield lang.v_map(total, (4 + 2 * k) * hidden, hidden, TO_BF16)
        yield from handed_over(lang.VECTOR, lang.MTU_OUT, OUT + k, "out filled")
        yield lang.mtu_out((4 + 2 * k) * hidden, out + t * 2 * hidden, 2 * hidden)
        yield lang.set_flag(lang.MTU_OUT, lang.VECTOR, OUT + k, sync="out freed")
    for k in range(min(2, tokens)):
        yield lang.wait_flag(lang.MTU_OUT, lang.VECTOR, OUT + k, sync="out freed")
    for k in range(min(2, tokens * top_k)):
        yield lang.wait_flag(lang.VECTOR, lang.MTU_IN, IN + k, sync="in freed")


TWINS = {
    "sendrecv": (send, receive), "ring": (all_gather,), "moe": (dispatch, receive_rows, give_back, combine),
}  # fmt: skip
"""The twins of a source, in the order of its kernels."""


def instead(patch: pytest.MonkeyPatch, how: str) -> None:
    """Have twins launched in the place of kernels in Ascend C, with a barrier of `HOW`."""
    launch = Pod.launch

    def launched(
        pod: Pod, kernel: Any, die: int, cores: Sequence[int], args: Mapping[str, Any], *grants: Any, **more: Any
    ) -> Any:
        assert isinstance(kernel, AscendKernel)
        names = re.findall(r"__global__ __aicore__ void (\w+)", kernel.text)
        twin = TWINS[kernel.file.stem][names.index(kernel.name)]
        return launch(pod, twin, die, cores, {**args, "how": HOW[how]}, *grants, **more)

    patch.setattr(Pod, "launch", launched)
