"""What instructions of the vector pipe read and write, in the data buffer."""

from xccl_emu.lang import requests as rq
from xccl_emu.machine.device import maps
from xccl_emu.machine.device.words import jit


@jit
def element_bytes(dtype):
    """Return the size of an element type in bytes."""
    return 4 if dtype == rq.FP32 else 2


@jit
def is_fp8(rule):
    """Does a rule make e4m3, with a scale for each block?"""
    return rule == rq.RULE_FP8 or rule == rq.RULE_FP8_UE8M0


@jit
def fp8_scale_bytes(count):
    """Return the bytes that the scales of a row take, with zeros after them up to whole granules."""
    return (4 * (count // rq.FP8_BLOCK) + 31) // 32 * 32


@jit
def ranges(op, a, b, c, d, e):
    """Return what a vector instruction reads and what it writes: first byte in the data buffer, and bytes, of both.

    A sum reads what it writes, and a row is scaled where it is; `other_range` says what else is read.
    """
    if op == rq.OP_V_FILL:
        return a, 0, a, b
    if op == rq.OP_V_SCALE:
        return a, 0, a, 4 * b
    if op == rq.OP_V_COPY:
        return a, maps.source_bytes(d, c) if d else c, b, maps.target_bytes(d, c) if d else c
    if op == rq.OP_V_COUNT:
        return a, 4 * c, b, 4
    if op == rq.OP_V_QUANTIZE:  # scales follow the row
        return a, 2 * c, b, c + (fp8_scale_bytes(c) if is_fp8(e) else 4)
    if op == rq.OP_V_DEQUANTIZE:
        return a, c, b, 4 * c
    if op == rq.OP_V_NARROW:
        return a, 4 * c, b, 2 * c
    count, dtype = (d, e) if op == rq.OP_V_AXPY else (c, d)
    return a, element_bytes(dtype) * count, b, 4 * count


@jit
def alignments(op, d):
    """Return what the addresses of a vector instruction must be multiples of, where it reads and where it writes."""
    if op == rq.OP_V_COPY and d:
        return maps.source_element_bytes(d), maps.element_bytes_written(d)
    return (1, 1) if op == rq.OP_V_COPY or op == rq.OP_V_FILL else (4, 4)


@jit
def accumulates(op):
    """Does a vector instruction read what it writes to?"""
    return op == rq.OP_V_AXPY or op == rq.OP_V_ADD or op == rq.OP_V_SCALE


@jit
def other_range(op, c, d, e):
    """Return what else a vector instruction reads: a scale, or a second operand; first byte, and bytes, perhaps 0."""
    if op == rq.OP_V_DEQUANTIZE:
        return d, 4 * (c // rq.FP8_BLOCK) if is_fp8(e) else 4
    return (e, maps.other_bytes(d, c)) if op == rq.OP_V_COPY and d else (0, 0)
