"""What the tests of the machine share: a kernel that issues any one request, and pods to run it on."""

from collections.abc import Iterable
from typing import Any

from xccl_emu.guards.campaign.programs import Small, program
from xccl_emu.lang import kernel
from xccl_emu.lang import requests as rq
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod

ORDERS = ("sc", "fifo", "relaxed", "unordered")


def vector_operation(op, a, b, c, d, e):
    """Issue one instruction of the vector pipe given by its code and operands."""
    if op == rq.OP_V_QUANTIZE:
        yield rq.v_quantize(a, b, c, d, e)
    elif op == rq.OP_V_DEQUANTIZE:
        yield rq.v_dequantize(a, b, c, d, e)
    elif op == rq.OP_V_COPY:
        if d == 0:
            yield rq.v_copy(a, b, c)
        else:
            yield rq.v_map(a, b, c, d, e)
    elif op == rq.OP_V_FILL:
        yield rq.v_fill(a, b, c)
    elif op == rq.OP_V_WIDEN:
        yield rq.v_widen(a, b, c, d)
    elif op == rq.OP_V_AXPY:
        yield rq.v_axpy(a, b, c, d, e)
    elif op == rq.OP_V_ADD:
        yield rq.v_add(a, b, c, d)
    elif op == rq.OP_V_SCALE:
        yield rq.v_scale(a, b, c)
    elif op == rq.OP_V_NARROW:
        yield rq.v_narrow(a, b, c, d)
    elif op == rq.OP_V_COUNT:
        yield rq.v_count(a, b, c, d, e)


@kernel
def issue(op, a, b, c, d, e):
    """Issue one request given by its code and operands, and return what it returns."""
    result = 0
    if op == rq.OP_LOAD:
        result = yield rq.load(a, b)
    elif op == rq.OP_STORE:
        yield rq.store(a, b, c)
    elif op == rq.OP_LOAD_LINE:
        result = yield rq.load_line(a)
    elif op == rq.OP_STORE_LINE:
        yield rq.store_line(a, b, c)
    elif op == rq.OP_ATOMIC_ADD:
        result = yield rq.atomic_add(a, b)
    elif op == rq.OP_COMPARE_SWAP:
        result = yield rq.compare_swap(a, c, b)
    elif op == rq.OP_POLL:
        if b == rq.CMP_EQ and d > 8:
            yield rq.poll_line_eq(a, 0, d, e, c)
        elif b == rq.CMP_EQ:
            result = yield rq.poll_eq(a, c, d, e)
        elif b == rq.CMP_NE and d > 8:
            yield rq.poll_line_ne(a, 0, d, e, c)
        elif b == rq.CMP_NE:
            result = yield rq.poll_ne(a, c, d, e)
        else:
            result = yield rq.poll_ge(a, c, d, e)
    elif op == rq.OP_UB_LOAD:
        result = yield rq.ub_load(a, b)
    elif op == rq.OP_VALIDATE:
        yield rq.validate(a, b)
    elif op == rq.OP_UB_STORE:
        yield rq.ub_store(a, b, c)
    elif op == rq.OP_SET_FLAG:
        yield rq.set_flag(a, b, c)
    elif op == rq.OP_WAIT_FLAG:
        yield rq.wait_flag(a, b, c)
    elif op == rq.OP_DCCI:
        yield rq.dcci(a)
    elif op == rq.OP_CHOOSE:
        result = yield rq.choose(a, b)
    elif op == rq.OP_POLL_ANY:
        result = yield rq.poll_any((a, b, c))
    elif op == rq.OP_DMA:
        yield rq.dma(a, b, c, d)
    elif op == rq.OP_MTU_IN:
        yield rq.mtu_in(a, b, c)
    elif op == rq.OP_MTU_OUT:
        yield rq.mtu_out(a, b, c)
    elif op == rq.OP_MTU_ADD:
        yield rq.mtu_add(a, b, c)
    elif op == rq.OP_PUT_SIGNAL:
        yield rq.put_signal(a, b, c, d, e)
    elif op == rq.OP_PUT:
        yield rq.put(a, b, c, d, e)
    elif op == rq.OP_ADD:
        yield rq.add(a, b)
    elif op == rq.OP_FENCE:
        yield rq.fence()
    else:
        yield from vector_operation(op, a, b, c, d, e)
    return result


def issue_args(op: int, operands: Iterable[int]) -> dict[str, int]:
    """Arguments of `issue`; operands that are not given are 0."""
    return dict(zip(("op", "a", "b", "c", "d", "e"), (op, *operands, 0, 0, 0, 0, 0), strict=False))


def issue_on(pod: Pod, op: int, *operands: int) -> int:
    """Issue one request on core 0 of die 0, which may touch all metadata, and return what it returned."""
    launch = pod.launch(issue, 0, [0], issue_args(op, operands), [pod.grant_meta("rw")])
    pod.run()
    return launch.results[0]


def small(text: str, **more: Any) -> Small:
    """Programs of cores, divided by ``|``."""
    return Small(tuple(map(program, text.split("|"))), **more)


def tiny_pod(dies: int, order: str = "sc", cores: int = 1, **more: object) -> Pod:
    """A pod small enough to explore: 256 bytes of metadata and a 64-byte data buffer, no other areas."""
    spec = small_pod(dies, cores, app_bytes=0, meta_bytes=256, managed_bytes=0, ub_bytes=64, flight_granules=8)
    return Pod(spec, order=order, **more)  # type: ignore[arg-type]
