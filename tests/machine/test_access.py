"""Bad addresses, sizes and operands are errors that name their place; nothing is carried out, nothing crashes."""

import functools
import re
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from xccl_emu.base.errors import AccessError, DeadlockError, RunError
from xccl_emu.lang import maps
from xccl_emu.lang import requests as rq
from xccl_emu.lang.requests import OPERATIONS
from xccl_emu.machine import report
from xccl_emu.machine.launch import Grant
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod

from .support import issue, issue_args

UB, DIE = 1 << 10, 1 << 12
WINDOWS = (Grant(0, 0, 256, "rw"), Grant(0, 512, 520, "r"), Grant(1, 1024, 1152, "w"), Grant(None, 3072, 3136, "rw"))
GRANTED = ("rw", "r", "w", "rw")
NOT_ISSUED = ("return", "quiet", "arrive", "await_group", "fail")
ISSUED = tuple(op for op, name in enumerate(OPERATIONS) if name not in NOT_ISSUED)

NASTY = [-(1 << 63), -(1 << 40), -8, -1, 0, 1, 4, 7, 8, 12, 31, 32, 64, 255, 256, 512, 516, 1016, 1020, 1024, 1152]
NASTY += [3072, 3136, DIE, DIE + 1024, DIE + 1088, DIE + 3072, 2 * DIE, 2 * DIE + 3072, 9 * DIE + 3104]
NASTY += [1 << 31, (1 << 40) + 3072, (1 << 61) + 3072, (1 << 62) - 1, (1 << 63) - 32, (1 << 63) - 1]
operand = st.one_of(st.sampled_from(NASTY), st.integers(0, 3 * DIE), st.integers(-(1 << 63), (1 << 63) - 1))
likely = st.sampled_from([0, 1, 4, 8, 16, 32, 64, 256, 3072, DIE + 1024])
operands = st.one_of(st.tuples(*[likely] * 5), st.tuples(*[st.one_of(likely, operand)] * 5), st.tuples(*[operand] * 5))
requests = st.tuples(st.sampled_from(ISSUED), operands)


@functools.cache
def the_pod(order: str) -> Pod:
    """A pod of two dies whose data buffers are nearly all that follows their memory."""
    return Pod(small_pod(2, app_bytes=DIE, meta_bytes=0, managed_bytes=0, ub_bytes=UB), order=order)


def _memory(address: int, nbytes: int, right: str, alignment: int = 1) -> bool:
    die, start = divmod(address, DIE)
    if nbytes <= 0 or not 0 <= die < 2 or address % alignment:
        return False
    windows = zip(WINDOWS, GRANTED, strict=True)
    return any(
        window.die in (die, None) and window.start <= start and start + nbytes <= window.end and right in rights
        for window, rights in windows
    )


def _buffer(ub: int, nbytes: int, alignment: int = 1) -> bool:
    return nbytes > 0 and ub >= 0 and ub + nbytes <= UB and ub % alignment == 0


def _pollable(a: int, b: int, nbytes: int, mask: int) -> bool:
    """A word, with any mask; or, for equal and unequal, a line with flags in it, and the beginning of the buffer."""
    if nbytes in (16, 32, 64, 128) and b in (rq.CMP_EQ, rq.CMP_NE):
        return 0 < mask < 1 << nbytes // 4 and _memory(a, nbytes, "r", nbytes)
    return nbytes in (1, 2, 4, 8) and _memory(a, nbytes, "r", nbytes)


def _apart(a: int, b: int, nbytes: int) -> bool:
    return abs(a - b) >= nbytes


def _mapped(a: int, b: int, c: int, d: int, e: int) -> bool:
    """Whether a v_map is permitted: ranges in the buffer, and none that is read overlaps the results in part."""
    if d not in maps.KNOWN or c <= 0:
        return False
    kind, dtype = maps.KINDS[d & 15 | d >> 14 << 4], maps.DTYPES[d >> 4 & 7]
    reduces = maps.KINDS.index(kind) > 12
    size = {"bf16": 2, "fp16": 2, "fp32": 4, "int8": 1, "int16": 2, "int32": 4}
    of_result = size[maps.DTYPES[d >> 7 & 7] if kind == "cast" else dtype]
    written = of_result * (2 if kind in ("most_at", "least_at") else 1 if reduces else c)
    reads = [] if kind in ("fill", "index") else [a]
    reads += [e] if kind in ("add", "sub", "mul", "div", "max", "min", "and", "or") and not d >> 13 & 1 else []
    n = size[dtype] * c
    fine = all(_buffer(at, n, size[dtype]) for at in reads) and _buffer(b, written, of_result)
    return fine and (reduces or all((at, n) == (b, written) or at + n <= b or b + written <= at for at in reads))


def _legal(op: int, a: int, b: int, c: int, d: int, e: int) -> bool:
    """Whether a request is permitted, written from the documentation of the requests."""
    half = d in (rq.BF16, rq.FP16)
    wide = {rq.BF16: 2, rq.FP16: 2, rq.FP32: 4}
    fp8 = e in (rq.RULE_FP8, rq.RULE_FP8_UE8M0)
    ruled = c % 128 == 0 if fp8 else e in (rq.RULE_XCCL, rq.RULE_CANN)
    scales = c // 128 * 4 if fp8 else 4
    rules = {
        "load": lambda: b in (1, 2, 4, 8) and _memory(a, b, "r", b),
        "store": lambda: c in (1, 2, 4, 8) and _memory(a, c, "w", c),
        "load_line": lambda: _memory(a, 16, "r", 16),
        "store_line": lambda: _memory(a, 16, "w", 16),
        "atomic_add": lambda: _memory(a, 8, "r", 8) and _memory(a, 8, "w", 8),
        "compare_swap": lambda: _memory(a, 8, "r", 8) and _memory(a, 8, "w", 8),
        "poll": lambda: _pollable(a, b, d, e),
        "ub_load": lambda: b in (1, 2, 4, 8) and _buffer(a, b, b),
        "validate": lambda: _buffer(a, b),  # nothing was read tentatively
        "ub_store": lambda: c in (1, 2, 4, 8) and _buffer(a, c, c),
        "set_flag": lambda: 0 <= a <= 3 and 0 <= b <= 3 and 0 <= c < 32,
        "wait_flag": lambda: ((0 <= a <= 3 and 0 <= b <= 3) or (a, b) == (4, 0)) and 0 <= c < 32,
        "dcci": lambda: True,  # passed over: these pods have no cache
        "poll_any": lambda: b in (rq.CMP_EQ, rq.CMP_NE, rq.CMP_GE) and _memory(a, 8, "r", 8),
        "choose": lambda: 1 <= a <= 64,
        "dma": lambda: 0 <= d < 32 and _memory(a, c, "r") and _memory(b, c, "w") and _apart(a, b, c),
        "mtu_in": lambda: _memory(a, c, "r") and _buffer(b, c),
        "mtu_out": lambda: _buffer(a, c) and _memory(b, c, "w"),
        "mtu_add": lambda: _buffer(a, c) and _memory(b, c, "w") and (a | b | c) % 4 == 0,
        "put_signal": lambda: False,  # these pods have no metadata
        "put": lambda: _memory(a, 32, "w", 32),
        "add": lambda: _memory(a, 8, "w", 8),
        "fence": lambda: True,
        "v_quantize": lambda: (
            half and ruled and c > 0 and c % 4 == 0 and _buffer(a, 2 * c, 4)
            and _buffer(b, c + (-(-scales // 32) * 32 if fp8 else 4), 4)
        ),
        "v_dequantize": lambda: ruled and _buffer(a, c, 4) and _buffer(b, 4 * c, 4) and _buffer(d, scales, 4),
        "v_copy": lambda: _buffer(a, c) and _buffer(b, c) and _apart(a, b, c) if d == 0 else _mapped(a, b, c, d, e),
        "v_fill": lambda: _buffer(a, b),
        "v_widen": lambda: half and _buffer(a, 2 * c, 4) and _buffer(b, 4 * c, 4),
        "v_axpy": lambda: e in wide and _buffer(a, wide[e] * d, 4) and _buffer(b, 4 * d, 4),
        "v_add": lambda: d in wide and _buffer(a, wide[d] * c, 4) and _buffer(b, 4 * c, 4),
        "v_scale": lambda: _buffer(a, 4 * b, 4),
        "v_narrow": lambda: half and _buffer(a, 4 * c, 4) and _buffer(b, 2 * c, 4),
        "v_count": lambda: _buffer(a, 4 * c, 4) and _buffer(b, 4, 4),
    }
    return bool(rules[OPERATIONS[op]]())


def _check(order: str, op: int, operands: tuple[int, ...]) -> None:
    pod = the_pod(order)
    before = pod.memory.copy()
    error = _error_of(op, operands, order)
    assert isinstance(error, AccessError) == (not _legal(op, *operands)), error
    if isinstance(error, AccessError):
        assert (pod.memory == before).all()
        assert f"die 0 core 0, kernel issue ({issue.generator.__code__.co_filename}:" in str(error)
        name = "v_map" if op == rq.OP_V_COPY and operands[3] else OPERATIONS[op]
        assert f"yield rq.{name}"[:15] in str(error)
    elif error is not None:  # nobody waits for the event that is set
        assert OPERATIONS[op] in ("poll", "poll_any", "wait_flag", "set_flag", "dma")
        assert isinstance(error, DeadlockError) == (OPERATIONS[op] in ("poll", "poll_any", "wait_flag"))
    pod.memory[:] = 0


def _error_of(
    op: int, operands: tuple[int, ...], order: str = "sc", grants: Sequence[Grant] = WINDOWS
) -> RunError | None:
    """What a run of one request ends with; afterwards the pod can be used again."""
    pod = the_pod(order)
    pod.launch(issue, 0, [0], issue_args(op, operands), grants)
    try:
        pod.run()
    except RunError as error:
        pod.clear()
        return error
    return None


@settings(max_examples=600)
@given(requests, st.sampled_from(["sc", "relaxed"]))
@example((rq.OP_LOAD, (2 * DIE + 3072, 8, 0, 0, 0)), "sc")  # behind the last die: data buffers
@example((rq.OP_STORE, ((1 << 61) + 3072, 1, 8, 0, 0)), "sc")  # far outside of the mapping
@example((rq.OP_V_COPY, ((1 << 63) - 1, (1 << 63) - 1, 8, 0, 0)), "sc")
@example((rq.OP_V_COPY, (0, 64, 8, maps.function("add", rq.FP32), 32)), "sc")
@example((rq.OP_V_COPY, (0, 64, 8, maps.function("add", rq.FP32), 48)), "sc")
@example((rq.OP_V_COPY, (0, 0, 8, maps.function("add", rq.FP16), UB - 16)), "sc")
@example((rq.OP_V_COPY, (0, 0, 8, maps.function("add", rq.FP16), UB - 12)), "sc")
@example((rq.OP_V_COPY, (-1, 0, 8, maps.function("fill", rq.FP16), -1)), "sc")
@example((rq.OP_V_COPY, (0, 0, 8, maps.function("sum", rq.FP32), 0)), "sc")
@example((rq.OP_V_COPY, (0, 0, 8, maps.function("cast", rq.FP16, rq.FP32), 0)), "sc")
@example((rq.OP_V_COPY, (0, 0, 8, 1 << 20, 0)), "sc")
@example((rq.OP_V_AXPY, (0, 0, 0, 1 << 62, 0)), "sc")
@example((rq.OP_V_QUANTIZE, (0, 64, 16, rq.BF16, rq.RULE_CANN)), "sc")
@example((rq.OP_V_QUANTIZE, (0, 64, 16, rq.BF16, rq.RULE_FP8)), "sc")
@example((rq.OP_V_QUANTIZE, (0, 256, 128, rq.BF16, rq.RULE_FP8)), "sc")
@example((rq.OP_V_QUANTIZE, (0, 64, 16, rq.BF16, rq.RULE_FP8_UE8M0 + 1)), "sc")
@example((rq.OP_V_DEQUANTIZE, (0, 64, 16, 32, -1)), "sc")
@pytest.mark.boundscheck
def test_any_operands_are_carried_out_or_refused(request_: tuple[int, tuple[int, ...]], order: str) -> None:
    """Whatever the operands: a request runs if the documentation permits it, otherwise it is an error in its place."""
    op, operands = request_
    _check(order, op, operands)


@pytest.mark.nojit
@pytest.mark.boundscheck
@pytest.mark.parametrize("op", ISSUED, ids=[OPERATIONS[op] for op in ISSUED])
def test_extreme_operands(op: int) -> None:
    """Every operation refuses operands at both ends of int64, negative ones, and zero sizes."""
    for value in (-(1 << 63), -1, (1 << 63) - 1, 1 << 62):
        for i in range(3):
            operands = [0, 0, 0, 0, 0]
            operands[i] = value
            _check("sc", op, tuple(operands))
        _check("sc", op, (value,) * 5)


@pytest.mark.parametrize(("size", "fits"), [(UB, True), (UB + 1, False)])
def test_last_byte_of_the_buffer_is_usable_and_the_next_is_not(size: int, fits: bool) -> None:
    """mtu-in fills the data buffer to its end; one byte more is refused."""
    pod = the_pod("sc")
    pod.launch(issue, 0, [0], issue_args(rq.OP_MTU_IN, (0, 0, size)), [Grant(0, 0, DIE, "r")])
    if fits:
        assert pod.run().bytes_by_pipe["mtu-in"] == UB
        return
    with pytest.raises(AccessError, match="outside of the data buffer"):
        pod.run()
    pod.clear()


@pytest.mark.parametrize(
    ("op", "operands", "said"),
    [
        (rq.OP_LOAD, (DIE + 64, 8), "load of 8 bytes at die1.app+0x40 is not permitted; it has rw die 0"),
        (rq.OP_LOAD, (-1, 8), "no die"),
        (rq.OP_SET_FLAG, (rq.MTU_IN, rq.VECTOR, -1), "operand out of range (-1, 32)"),
        (rq.OP_SET_FLAG, (rq.MTU_IN, rq.VECTOR, 32), "(32, 32)"),
    ],
)
def test_errors_name_area_and_grants_or_the_operand(op: int, operands: tuple[int, ...], said: str) -> None:
    """An access error gives the address by die and area, and what the core may touch; or the event that is out of
    range, and not the pipes, which are right."""
    assert said in str(_error_of(op, operands))


@pytest.mark.parametrize(
    ("op", "rights", "said"),
    [
        (rq.OP_ATOMIC_ADD, "w", "an atomic_add takes 'rw'; it has w die0.bell"),
        (rq.OP_ATOMIC_ADD, "r", "an atomic_add takes 'rw'; it has r die0.bell"),
        (rq.OP_LOAD, "w", "a load takes 'r'; it has w die0.bell"),
        (rq.OP_STORE, "r", "a store takes 'w'; it has r die0.bell"),
    ],
)
def test_the_right_that_is_missing_is_named(op: int, rights: str, said: str) -> None:
    """Where a grant holds the bytes the error says which right is missing, and names what is granted."""
    pod = Pod(small_pod(1), order="sc")
    pod.labels.add([("die0.bell", 0, 64)])
    operands = {rq.OP_LOAD: (0, 8), rq.OP_STORE: (0, 1, 8)}.get(op, (0, 1))
    pod.launch(issue, 0, [0], issue_args(op, operands), [Grant(0, 0, 64, rights)])
    with pytest.raises(AccessError, match=re.escape(f"of 8 bytes at die0.bell is not permitted: {said}")):
        pod.run()
    assert report.lacks_right(pod)


def test_several_windows_do_not_join() -> None:
    """An access across two adjacent windows is refused, since each window is a permission of its own."""
    halves = Grant(0, 0, 64, "r"), Grant(0, 64, 128, "r")
    assert isinstance(_error_of(rq.OP_MTU_IN, (32, 0, 64), grants=halves), AccessError)
