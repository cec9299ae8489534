"""Python twins of the kernels of examples/ascendc: the same requests in the same order, queues told as events."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from xccl_emu import lang
from xccl_emu.ascendc import AscendKernel
from xccl_emu.lang import maps
from xccl_emu.machine.pod import Pod

ADD_ONE, ONE = maps.function("add", lang.FP32, scalar=True), 0x3F800000
IN, OUT, BARRIER = 8, 10, 29
"""Events of both queues, two each, and of a barrier that empties the pipes."""
HOW = {"none": 0, "visible": 1, "empty": 2}


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
    """All that was issued is visible, or the pipes are empty, or neither."""
    if how == 1:
        yield lang.quiet(sync="barrier")
    if how == 2:
        for pipe in range(lang.MTU_IN, lang.MTU_OUT + 1):
            yield lang.set_flag(pipe, lang.SCALAR, BARRIER, sync="barrier")
        for pipe in range(lang.MTU_IN, lang.MTU_OUT + 1):
            yield lang.wait_flag(pipe, lang.SCALAR, BARRIER, sync="barrier")


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


def instead(patch: pytest.MonkeyPatch, how: str) -> None:
    """Have twins launched in the place of kernels in Ascend C, with a barrier of `HOW`."""
    launch = Pod.launch

    def launched(
        pod: Pod, kernel: Any, die: int, cores: Sequence[int], args: Mapping[str, Any], grants: Sequence[Any]
    ) -> Any:
        assert isinstance(kernel, AscendKernel)
        twin = {"send": send, "receive": receive}[kernel.name]
        return launch(pod, twin, die, cores, {**args, "how": HOW[how]}, grants)

    patch.setattr(Pod, "launch", launched)
