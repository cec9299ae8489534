"""What the vector pipe computes: casts, INT8 quantization and FP32 accumulation on the data buffer.

Bits are as in IEEE arithmetic in the order written: every product and every sum is rounded by itself (no FMA, no
fastmath), and rounding to BF16 or FP16 is half to even.  All offsets are bytes into memory, multiples of the element
size; ``count`` is in elements.  Loops run over slices from zero: with an offset in the index, Numba's check for
negative indices keeps LLVM from vectorizing (measured: six times slower).
"""

import numpy as np

from xccl_emu.lang import requests as rq
from xccl_emu.machine.device.words import bits_of, float_of, jit, jit_arrays

_INT32_MOST = (1 << 31) - 1
_ONE = np.float32(1.0)
_ONE_TWENTY_SEVEN = np.float32(127.0)
_INFINITY = np.float32(np.inf)
_TWO_TO_112 = np.float32(2.0**112)
_TWO_TO_120 = np.float32(2.0**120)
_E4M3_LIMIT, _E4M3_INVERSE, _LEAST_AMAX = np.float32(448.0), np.float32(1.0) / np.float32(448.0), np.float32(1e-4)
_E4M3_MOST = np.uint32(0x7E)
_E4M3_SUBNORMAL_MAGIC = np.float32(16384.0)  # its last bit is the smallest subnormal of e4m3
_FP16_SUBNORMAL_MAGIC = np.float32(0.5)  # its last bit is the smallest FP16 subnormal, so adding it rounds to FP16


@jit
def widen(bits, dtype):
    """FP32 value of 16 bits of BF16 or FP16; exact."""
    wide = np.uint32(bits)
    if dtype == rq.BF16:
        return float_of(wide << np.uint32(16))
    magnitude = float_of((wide & np.uint32(0x7FFF)) << np.uint32(13)) * _TWO_TO_112
    special = np.uint32(0x7F800000) if (wide & np.uint32(0x7C00)) == np.uint32(0x7C00) else np.uint32(0)
    return float_of(bits_of(magnitude) | special | ((wide & np.uint32(0x8000)) << np.uint32(16)))


@jit
def narrow_bf16(value):
    """BF16 bits of an FP32 value, half to even."""
    bits = bits_of(value)
    if (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000):
        return np.uint16((bits >> np.uint32(16)) & np.uint32(0x8000) | np.uint32(0x7FC0))
    return np.uint16((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))


@jit
def narrow_fp16(value):
    """FP16 bits of an FP32 value, half to even."""
    bits = bits_of(value)
    sign = (bits >> np.uint32(16)) & np.uint32(0x8000)
    bits &= np.uint32(0x7FFFFFFF)
    if bits > np.uint32(0x7F800000):
        return np.uint16(sign | np.uint32(0x7E00))
    if bits >= np.uint32(0x47800000):
        return np.uint16(sign | np.uint32(0x7C00))
    if bits < np.uint32(0x38800000):
        rounded = bits_of(float_of(bits) + _FP16_SUBNORMAL_MAGIC) - bits_of(_FP16_SUBNORMAL_MAGIC)
        return np.uint16(sign | rounded)
    odd = (bits >> np.uint32(13)) & np.uint32(1)
    return np.uint16(sign | ((bits - np.uint32(0x38000000) + np.uint32(0xFFF) + odd) >> np.uint32(13)))


@jit_arrays
def _halves(mem, at, count):
    return mem[at : at + 2 * count].view(np.uint16)


@jit_arrays
def _floats(mem, at, count):
    return mem[at : at + 4 * count].view(np.float32)


@jit_arrays
def quantize_int8(mem, source, target, count, dtype, rule):
    """Make INT8 of a row at ``target``, and its FP32 scale after it: q = rint(x * (127 / amax)).

    The scale is amax / 127 by XCCL's rule, 1 / (127 / amax) by CANN's, each quotient rounded by itself. Where
    127 / amax is not finite, in a row of zeros or one too small, the scale is 0; XCCL's q are zeros then, CANN's what
    saturating casts make of infinities.  A row with an infinity or a NaN becomes zeros with amax for a scale, so that
    every element of it is NaN when it is widened again.
    """
    x = _halves(mem, source, count)
    q = mem[target : target + count].view(np.int8)
    top = np.uint16(0)
    for i in range(x.size):
        top = max(top, x[i] & np.uint16(0x7FFF))  # magnitudes order as integers
    amax = widen(np.uint16(top), dtype)
    factor = _ONE_TWENTY_SEVEN / amax if top > 0 else _INFINITY
    scale = np.float32(0.0)
    if not np.isfinite(amax):
        q[:] = 0
        scale = amax
    elif np.isfinite(factor):
        _multiply_and_round(x, q, factor, dtype)
        scale = _ONE / factor if rule == rq.RULE_CANN else amax / _ONE_TWENTY_SEVEN
    elif rule == rq.RULE_CANN:
        _saturate(x, q)
    else:
        q[:] = 0
    _floats(mem, target + count, 1)[0] = scale


@jit_arrays
def _multiply_and_round(x, q, factor, dtype):
    """To the nearest integer, half to even. None exceeds 127, so CANN's way through INT32 and FP16 changes nothing."""
    if dtype == rq.BF16:  # two loops, so that each is vectorized
        for i in range(x.size):
            q[i] = np.int8(np.int32(np.rint(widen(x[i], 0) * factor)))
    else:
        for i in range(x.size):
            q[i] = np.int8(np.int32(np.rint(widen(x[i], 1) * factor)))


@jit_arrays
def _saturate(x, q):
    """Write what casts make of x times infinity: the limits of INT8, and 0 of the NaN that a zero gives."""
    for i in range(x.size):
        if x[i] & np.uint16(0x7FFF) == 0:
            q[i] = 0
        else:
            q[i] = -128 if x[i] & np.uint16(0x8000) else 127


@jit_arrays
def dequantize(mem, source, target, count, scale_at):
    """FP32 value of each INT8, times the FP32 at ``scale_at``."""
    scale = _floats(mem, scale_at, 1)[0]
    q = mem[source : source + count].view(np.int8)
    acc = _floats(mem, target, count)
    for i in range(q.size):
        acc[i] = np.float32(q[i]) * scale


@jit
def narrow_e4m3(value):
    """Bits of e4m3 (no infinities) of an FP32 value, half to even; what is too large becomes 448, or -448."""
    bits = bits_of(value)
    sign = (bits >> np.uint32(24)) & np.uint32(0x80)
    bits &= np.uint32(0x7FFFFFFF)
    if bits > np.uint32(0x7F800000):
        return np.uint8(sign | np.uint32(0x7F))
    if bits < np.uint32(0x3C800000):
        return np.uint8(sign | (bits_of(float_of(bits) + _E4M3_SUBNORMAL_MAGIC) - bits_of(_E4M3_SUBNORMAL_MAGIC)))
    odd = (bits >> np.uint32(20)) & np.uint32(1)
    return np.uint8(sign | min((bits - np.uint32(0x3C000000) + np.uint32(0x7FFFF) + odd) >> np.uint32(20), _E4M3_MOST))


@jit
def widen_e4m3(bits):
    """FP32 value of e4m3; exact."""
    wide = np.uint32(bits)
    sign, magnitude = (wide & np.uint32(0x80)) << np.uint32(24), wide & np.uint32(0x7F)
    if magnitude == np.uint32(0x7F):
        return float_of(sign | np.uint32(0x7FC00000))
    value = float_of(magnitude << np.uint32(20)) * _TWO_TO_120
    return float_of(bits_of(value) | sign)


@jit_arrays
def quantize_fp8(mem, source, target, count, dtype, rule):
    """Make e4m3 of a row at ``target``, and after it an FP32 scale for each block, and zeros up to whole granules.

    The scale of a block is amax * (1 / 448), with amax at least 1e-4, and elements are multiplied by 448 / amax; with
    UE8M0 the scale is the power of two from there on up, and elements are multiplied by its inverse ([DeepEP]).
    """
    x, blocks = _halves(mem, source, count), count // rq.FP8_BLOCK
    q, scales = mem[target : target + count], _floats(mem, target + count, (blocks + 7) // 8 * 8)
    scales[:] = np.float32(0.0)
    for block in range(blocks):
        row, made = x[block * rq.FP8_BLOCK :], q[block * rq.FP8_BLOCK :]
        amax = _LEAST_AMAX
        for i in range(rq.FP8_BLOCK):
            amax = max(amax, widen(np.uint16(row[i] & 0x7FFF), dtype))
        factor, scale = _E4M3_LIMIT / amax, amax * _E4M3_INVERSE
        if rule == rq.RULE_FP8_UE8M0:
            up = (bits_of(scale) + np.uint32(0x7FFFFF)) & np.uint32(0x7F800000)  # its power of two, or the next
            scale, factor = float_of(up), float_of(np.uint32(0x7F000000) - up)
        scales[block] = scale
        for i in range(rq.FP8_BLOCK):
            made[i] = narrow_e4m3(widen(row[i], dtype) * factor)


@jit_arrays
def dequantize_fp8(mem, source, target, count, scale_at):
    """FP32 value of each e4m3, times the FP32 of its block at ``scale_at``."""
    scales, q = _floats(mem, scale_at, count // rq.FP8_BLOCK), mem[source : source + count]
    acc = _floats(mem, target, count)
    for i in range(q.size):
        acc[i] = widen_e4m3(q[i]) * scales[i // rq.FP8_BLOCK]


@jit_arrays
def widen_row(mem, source, target, count, dtype):
    """FP32 value of each element."""
    x, acc = _halves(mem, source, count), _floats(mem, target, count)
    for i in range(x.size):
        acc[i] = widen(x[i], dtype)


@jit_arrays
def axpy(mem, source, target, weight_bits, count, dtype):
    """Accumulator += weight * element: the product is rounded, then the sum."""
    weight = float_of(np.uint64(weight_bits & 0xFFFFFFFF))
    acc = _floats(mem, target, count)
    if dtype == rq.FP32:
        wide = _floats(mem, source, count)
        for i in range(wide.size):
            acc[i] += weight * wide[i]
        return
    x = _halves(mem, source, count)
    if dtype == rq.BF16:
        for i in range(x.size):
            acc[i] += weight * widen(x[i], 0)
    else:
        for i in range(x.size):
            acc[i] += weight * widen(x[i], 1)


@jit_arrays
def accumulate(mem, source, target, count, dtype):
    """Accumulator += element."""
    acc = _floats(mem, target, count)
    if dtype == rq.FP32:
        wide = _floats(mem, source, count)
        for i in range(wide.size):
            acc[i] += wide[i]
        return
    x = _halves(mem, source, count)
    for i in range(x.size):
        acc[i] += widen(x[i], dtype)


@jit_arrays
def scale_row(mem, target, count, factor_bits):
    """Accumulator *= factor."""
    factor = float_of(np.uint64(factor_bits & 0xFFFFFFFF))
    acc = _floats(mem, target, count)
    for i in range(acc.size):
        acc[i] *= factor


@jit_arrays
def narrow_row(mem, source, target, count, dtype):
    """Round FP32 values to BF16 or FP16."""
    acc, y = _floats(mem, source, count), _halves(mem, target, count)
    if dtype == rq.BF16:
        for i in range(y.size):
            y[i] = narrow_bf16(acc[i])
    else:
        for i in range(y.size):
            y[i] = narrow_fp16(acc[i])


@jit_arrays
def fill(mem, target, nbytes, byte):
    """Set bytes."""
    mem[target : target + nbytes] = byte


@jit_arrays
def count_between(mem, source, target, count, low, high):
    """Write how many of ``count`` signed 4-byte integers are at least ``low`` and below ``high``, as one more."""
    x = mem[source : source + 4 * count].view(np.int32)
    found = 0
    if low <= _INT32_MOST and high > -_INT32_MOST - 1:  # compared as what they are: twice as many at once
        least, most = np.int32(max(low, -_INT32_MOST - 1)), np.int32(min(high - 1, _INT32_MOST))
        for i in range(x.size):
            found += least <= x[i] <= most
    mem[target : target + 4].view(np.int32)[0] = found
