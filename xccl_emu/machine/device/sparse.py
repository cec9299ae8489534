"""Memory that stays sparse: what would change nothing is left out, so that no page is committed that holds zeros.

A run without data is a run whose payload is zeros, with this switched on (`layout.SPARSE`).  Every byte ends as it
would otherwise, control words and payload alike: no rule says which is which, so none can be wrong.
"""

from xccl_emu.lang.requests import (
    OP_V_ADD,
    OP_V_AXPY,
    OP_V_COPY,
    OP_V_DEQUANTIZE,
    OP_V_FILL,
    OP_V_NARROW,
    OP_V_QUANTIZE,
    OP_V_SCALE,
    OP_V_WIDEN,
)
from xccl_emu.machine.device.layout import SPARSE
from xccl_emu.machine.device.numerics import element_bytes
from xccl_emu.machine.device.words import copy_bytes, jit, load_i32, same_bytes

_CHUNK = 512  # of a copy that leaves out what is there already; a message's slot is one


@jit
def copy_changed(mem, target, source, nbytes):
    """`copy_bytes`, but without the chunks that are there already."""
    if same_bytes(mem, target, source, nbytes):
        return
    done = 0
    while done < nbytes:
        size = min(_CHUNK, nbytes - done)
        if not same_bytes(mem, target + done, source + done, size):
            copy_bytes(mem, target + done, source + done, size)
        done += size


@jit
def all_zero(mem, start, nbytes):
    """Is there nothing but zeros in a range of at least one byte?"""
    return mem[start] == 0 and same_bytes(mem, start, start + 1, nbytes - 1)


@jit
def move(mem, st, target, source, nbytes):
    """Copy within memory; where it is sparse, only what changes something."""
    if st[SPARSE]:
        copy_changed(mem, target, source, nbytes)
    else:
        copy_bytes(mem, target, source, nbytes)


@jit
def leaves_zeros(mem, ub, op, a, b, c, d, e):
    """Would a vector instruction change nothing: make zeros of zeros where zeros are, or copy what is there already?

    Not all that would are found; a count, for one, decides where things go, and is always made.
    """
    if op == OP_V_FILL:
        return c & 0xFF == 0 and all_zero(mem, ub + a, b)
    if op == OP_V_SCALE:
        return _harmless(c) and all_zero(mem, ub + a, 4 * b)
    if op == OP_V_AXPY:
        return _harmless(c) and all_zero(mem, ub + a, element_bytes(e) * d) and all_zero(mem, ub + b, 4 * d)
    if op == OP_V_ADD or op == OP_V_WIDEN:
        return all_zero(mem, ub + a, element_bytes(d) * c) and all_zero(mem, ub + b, 4 * c)
    if op == OP_V_NARROW:
        return all_zero(mem, ub + a, 4 * c) and all_zero(mem, ub + b, 2 * c)
    if op == OP_V_QUANTIZE:  # its scale, behind it, is zero then, too
        return all_zero(mem, ub + a, 2 * c) and all_zero(mem, ub + b, c + 4)
    if op == OP_V_DEQUANTIZE:
        return _harmless(load_i32(mem, ub + d)) and all_zero(mem, ub + a, c) and all_zero(mem, ub + b, 4 * c)
    return op == OP_V_COPY and same_bytes(mem, ub + b, ub + a, c)


@jit
def _harmless(bits):
    """Is zero times the FP32 value with these bits a positive zero?"""
    return bits & 0x80000000 == 0 and bits & 0x7F800000 != 0x7F800000
