"""What the tests of the machine share: a kernel that issues any one request, and pods to run it on."""

from collections.abc import Iterable

from xccl_emu.lang import (
    add,
    atomic_add,
    dma,
    kernel,
    load,
    mtu_in,
    mtu_out,
    poll_eq,
    poll_ge,
    poll_ne,
    put,
    set_flag,
    store,
    ub_load,
    ub_store,
    v_add,
    v_axpy,
    v_copy,
    v_count,
    v_dequantize,
    v_fill,
    v_narrow,
    v_quantize,
    v_scale,
    v_widen,
    wait_flag,
)
from xccl_emu.lang.requests import (
    CMP_EQ,
    CMP_NE,
    OP_ADD,
    OP_ATOMIC_ADD,
    OP_DMA,
    OP_LOAD,
    OP_MTU_IN,
    OP_MTU_OUT,
    OP_POLL,
    OP_PUT,
    OP_SET_FLAG,
    OP_STORE,
    OP_UB_LOAD,
    OP_UB_STORE,
    OP_V_ADD,
    OP_V_AXPY,
    OP_V_COPY,
    OP_V_COUNT,
    OP_V_DEQUANTIZE,
    OP_V_FILL,
    OP_V_NARROW,
    OP_V_QUANTIZE,
    OP_V_SCALE,
    OP_V_WIDEN,
    OP_WAIT_FLAG,
)
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod

ORDERS = ("sc", "fifo", "relaxed")


def vector_operation(op, a, b, c, d, e):
    """Issue one instruction of the vector pipe given by its code and operands."""
    if op == OP_V_QUANTIZE:
        yield v_quantize(a, b, c, d, e)
    elif op == OP_V_DEQUANTIZE:
        yield v_dequantize(a, b, c, d)
    elif op == OP_V_COPY:
        yield v_copy(a, b, c)
    elif op == OP_V_FILL:
        yield v_fill(a, b, c)
    elif op == OP_V_WIDEN:
        yield v_widen(a, b, c, d)
    elif op == OP_V_AXPY:
        yield v_axpy(a, b, c, d, e)
    elif op == OP_V_ADD:
        yield v_add(a, b, c, d)
    elif op == OP_V_SCALE:
        yield v_scale(a, b, c)
    elif op == OP_V_NARROW:
        yield v_narrow(a, b, c, d)
    elif op == OP_V_COUNT:
        yield v_count(a, b, c, d, e)


@kernel
def issue(op, a, b, c, d, e):
    """Issue one request given by its code and operands, and return what it returns."""
    result = 0
    if op == OP_LOAD:
        result = yield load(a, b)
    elif op == OP_STORE:
        yield store(a, b, c)
    elif op == OP_ATOMIC_ADD:
        result = yield atomic_add(a, b)
    elif op == OP_POLL:
        if b == CMP_EQ:
            result = yield poll_eq(a, c)
        elif b == CMP_NE:
            result = yield poll_ne(a, c)
        else:
            result = yield poll_ge(a, c)
    elif op == OP_UB_LOAD:
        result = yield ub_load(a, b)
    elif op == OP_UB_STORE:
        yield ub_store(a, b, c)
    elif op == OP_SET_FLAG:
        yield set_flag(a, b, c)
    elif op == OP_WAIT_FLAG:
        yield wait_flag(a, b, c)
    elif op == OP_DMA:
        yield dma(a, b, c, d)
    elif op == OP_MTU_IN:
        yield mtu_in(a, b, c)
    elif op == OP_MTU_OUT:
        yield mtu_out(a, b, c)
    elif op == OP_PUT:
        yield put(a, b, c, d, e)
    elif op == OP_ADD:
        yield add(a, b)
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


def tiny_pod(dies: int, order: str = "sc", cores: int = 1, **more: object) -> Pod:
    """A pod small enough to explore: 256 bytes of metadata and a 64-byte data buffer, no other areas."""
    spec = small_pod(dies, cores, app_bytes=0, meta_bytes=256, managed_bytes=0, ub_bytes=64, flight_pieces=8)
    return Pod(spec, order=order, **more)  # type: ignore[arg-type]
