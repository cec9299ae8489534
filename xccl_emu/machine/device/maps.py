"""What `v_map` computes: one function of each element of the data buffer, or one value of them all.

Each result is rounded by itself to the type of its element; FP16 is computed in FP32, which is as if it were exact.
Sums are made from the first element to the last.  A larger or smaller one is NaN where one of the two is.

A cast rounds once.  What is beyond all numbers of its result is an infinity, or the largest one where that is how it
rounds (IEEE 754); of integers the limit; and 0 for a NaN.  An exponential is computed in FP64 by sums and products in
the order of `_exp`, without a library, so that its bits are the same everywhere, and rounded to FP32.
"""

import numpy as np

from xccl_emu.lang import maps as mp
from xccl_emu.lang import requests as rq
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.numerics import narrow_bf16, narrow_fp16, widen
from xccl_emu.machine.device.words import bits_of, call, float_of, jit, load_i32, load_i64, store_i64, store_u32

_KNOWN = tuple(sorted(mp.KNOWN))
_BYTES = mp.ELEMENT_BYTES
_LEAST = (0, 0, 0, -(1 << 7), -(1 << 15), -(1 << 31), 0, -(1 << 63))
_MOST = (0, 0, 0, (1 << 7) - 1, (1 << 15) - 1, (1 << 31) - 1, (1 << 8) - 1, (1 << 63) - 1)
"""Limits of integers, by element type."""
_DIGITS, _LOWEST, _LARGEST = (8, 11, 24), (-133, -24, -149), (2.0**128 - 2.0**120, 65504.0, 2.0**128 - 2.0**104)
"""How many bits a significand has in BF16, FP16 and FP32, the exponent of the last bit of all, the largest number."""
_DROPPED_MOST = 62
_LN2_HIGH, _LN2_LOW = float.fromhex("0x1.62e42fee0p-1"), float.fromhex("0x1.a39ef35793c76p-33")
_LOG2_E = float.fromhex("0x1.71547652b82fep+0")
_EXP_TERMS = 14


@jit
def is_known(function):
    """Return whether there is a function of this number."""
    for known in _KNOWN:
        if known == function:
            return True
    return False


@jit
def kind_of(function):
    """Return which of `lang.maps.KINDS` the function is."""
    return function & 15 | function >> mp.KIND_SHIFT << 4


@jit
def source_element_bytes(function):
    """Bytes of one of its elements."""
    return _BYTES[function >> mp.DTYPE_SHIFT & 7]


@jit
def source_bytes(function, count):
    """Bytes that it reads where its elements are."""
    kind = kind_of(function)
    return 0 if kind == mp.MAP_FILL or kind == mp.MAP_INDEX else count * source_element_bytes(function)


@jit
def other_bytes(function, count):
    """Bytes that it reads where its second operand is; 0 if that is a scalar, or there is none."""
    kind = kind_of(function)
    if kind == mp.MAP_KEEP:
        return count + 7 >> 3
    if kind == mp.MAP_SORT:
        return 4 * count
    has_other = kind >= mp.MAP_ADD and kind <= mp.MAP_OR and function >> mp.SCALAR_SHIFT == 0
    return count * source_element_bytes(function) if has_other else 0


@jit
def element_bytes_written(function):
    """Bytes of one element of what comes out."""
    if kind_of(function) == mp.MAP_SORT:
        return 8
    return _BYTES[function >> (mp.TO_SHIFT if kind_of(function) == mp.MAP_CAST else mp.DTYPE_SHIFT) & 7]


@jit
def may_be_in_place(function, read, written):
    """May it read and write these sizes from the same address on?  A narrowing cast may: it writes what it has read."""
    return read == written or (kind_of(function) == mp.MAP_CAST and written < read)


@jit
def reduces(function):
    """Return whether one result comes out of all elements."""
    return kind_of(function) >= mp.MAP_SUM and kind_of(function) <= mp.MAP_LEAST_AT


@jit
def _compares(kind):
    return kind == mp.MAP_LESS or kind == mp.MAP_EQUAL


@jit
def target_bytes(function, count):
    """Bytes that it writes."""
    if reduces(function):
        return element_bytes_written(function) * (2 if kind_of(function) >= mp.MAP_MOST_AT else 1)
    if _compares(kind_of(function)):
        return count + 7 >> 3
    return ms.GRANULE_BYTES * count if kind_of(function) == mp.MAP_SPREAD else element_bytes_written(function) * count


@jit
def _load(mem, at, nbytes):
    if nbytes == 8:
        return np.int64(load_i64(mem, at))
    if nbytes == 4:
        return np.int64(load_i32(mem, at))
    if nbytes == 2:
        return np.int64(mem[at]) | np.int64(mem[at + 1]) << 8
    return np.int64(mem[at])


@jit
def _store(mem, at, nbytes, bits):
    if nbytes == 8:
        store_i64(mem, at, bits)
        return
    if nbytes == 4:
        store_u32(mem, at, bits & 0xFFFFFFFF)
        return
    mem[at] = bits & 0xFF
    if nbytes == 2:
        mem[at + 1] = bits >> 8 & 0xFF


@jit
def _is_float(dtype):
    return dtype <= rq.FP32


@jit
def _float(bits, dtype):
    """FP32 value of an element."""
    if dtype == rq.FP32:
        return float_of(np.uint64(bits & 0xFFFFFFFF))  # of the type that `widen` has, so that it is compiled once
    return widen(np.uint16(bits & 0xFFFF), dtype)


@jit
def _int(bits, dtype):
    """Value of an integer."""
    if dtype == mp.UINT8:
        return np.int64(bits) & 255
    unused = 64 - 8 * _BYTES[dtype]
    return np.int64(bits) << unused >> unused


@jit
def _bits(value, dtype):
    """An FP32 value as an element, rounded half to even."""
    if dtype == rq.FP32:
        return np.int64(bits_of(value))
    return np.int64(narrow_bf16(value)) if dtype == rq.BF16 else np.int64(narrow_fp16(value))


@jit
def _of_floats(kind, a, b):
    if kind == mp.MAP_ADD or kind == mp.MAP_SUM:
        return a + b
    if kind == mp.MAP_SUB:
        return a - b
    if kind == mp.MAP_MUL:
        return a * b
    if kind == mp.MAP_DIV:
        return a / b
    if kind == mp.MAP_MAX or kind == mp.MAP_MOST:
        return a if a > b or a != a else b
    return a if a < b or a != a else b


@jit
def _of_ints(kind, a, b):
    if kind == mp.MAP_ADD or kind == mp.MAP_SUM:
        return a + b
    if kind == mp.MAP_SUB:
        return a - b
    if kind == mp.MAP_MUL:
        return a * b
    if kind == mp.MAP_AND:
        return a & b
    if kind == mp.MAP_OR:
        return a | b
    if kind == mp.MAP_MAX or kind == mp.MAP_MOST:
        return max(a, b)
    return min(a, b)


@jit
def _of_two(kind, dtype, a, b):
    """Compute the bits of a result from the bits of two elements."""
    if _is_float(dtype):
        return _bits(_of_floats(kind, _float(a, dtype), _float(b, dtype)), dtype)
    return _of_ints(kind, _int(a, dtype), _int(b, dtype))


@jit
def _is_ahead(kind, dtype, a, b):
    """Return whether the second of two elements is the larger or smaller one that is asked for, or the first NaN."""
    if _is_float(dtype):
        x, y = _float(a, dtype), _float(b, dtype)
        return x == x and (y != y or (y > x if kind == mp.MAP_MOST_AT else y < x))
    return _int(b, dtype) > _int(a, dtype) if kind == mp.MAP_MOST_AT else _int(b, dtype) < _int(a, dtype)


@jit
def _power(exponent):
    """FP32 power of two, from 2**-126 to 2**127."""
    return float_of(np.uint64(exponent + 127 << 23))


@jit
def _exp(value):
    """Raise e to the power of an FP32 value: twice ln 2 is taken off by parts, a series of the rest is summed up."""
    if value != value:
        return value
    x = max(-150.0, min(150.0, np.float64(value)))  # beyond them it is 0 or infinite, too
    twos = np.int64(np.rint(x * _LOG2_E))
    rest = x - twos * _LN2_HIGH - twos * _LN2_LOW
    result = 1.0
    for i in range(_EXP_TERMS, 0, -1):
        result = 1.0 + result * rest / i
    half = twos >> 1
    return np.float32(result * np.float64(_power(half)) * np.float64(_power(twos - half)))


@jit
def _length(magnitude):
    """Count the bits of a whole number."""
    n = 0
    for shift in (32, 16, 8, 4, 2, 1):
        if magnitude >> shift:
            magnitude, n = magnitude >> shift, n + shift
    return n + magnitude


@jit
def _dropped(magnitude, n, rounding, negative):
    """Drop the last ``n`` bits of a magnitude, and round what is left."""
    if n <= 0:
        return magnitude
    n = min(n, _DROPPED_MOST)
    half, kept = np.int64(1) << n - 1, magnitude >> n
    rest = magnitude & (half << 1) - 1
    if rounding == mp.ROUND_TRUNC or (rounding == mp.ROUND_FLOOR and not negative) or (
        rounding == mp.ROUND_CEIL and negative
    ):
        return kept
    if rounding == mp.ROUND_FLOOR or rounding == mp.ROUND_CEIL:
        return kept + (1 if rest > 0 else 0)
    if rounding == mp.ROUND_ODD:
        return kept | (1 if rest > 0 else 0)
    up = rest > half or (rest == half and (rounding == mp.ROUND_AWAY or kept & 1 == 1))
    return kept + (1 if up else 0)


@jit
def _taken_apart(bits, dtype):
    """A finite value as magnitude, exponent of the magnitude's last bit, and whether it is negative."""
    if _is_float(dtype):
        wide = np.int64(bits_of(_float(bits, dtype)))
        biased = wide >> 23 & 255
        magnitude = wide & 0x7FFFFF | (0x800000 if biased else 0)
        return magnitude, max(biased, 1) - 150, wide >> 31 & 1 == 1
    value = _int(bits, dtype)
    if value == _LEAST[mp.INT64]:  # it has no opposite
        return np.int64(1) << 62, np.int64(1), True
    return abs(value), np.int64(0), value < 0


@jit
def _as_int(magnitude, exponent, negative, to):
    if magnitude == 0:
        return np.int64(0)
    if _length(magnitude) + exponent > 63:
        return np.int64(_LEAST[to] if negative else _MOST[to])
    value = magnitude << exponent
    return max(_LEAST[to], min(_MOST[to], -value if negative else value))


@jit
def _as_float(magnitude, exponent, negative, to, rounding):
    """Bits of a value that a float has exactly, or that is larger than all."""
    first = max(exponent, -100)
    value = np.float32(magnitude) * _power(first) * _power(exponent - first)
    if value > _LARGEST[to]:
        down = rounding == mp.ROUND_TRUNC or rounding == mp.ROUND_ODD
        down = down or rounding == (mp.ROUND_CEIL if negative else mp.ROUND_FLOOR)
        value = np.float32(_LARGEST[to] if down else np.inf)
    return _bits(-value if negative else value, to)


@jit
def _cast(bits, dtype, to, rounding):
    """A value of one type as another one, rounded once; of one type it is rounded to a whole number."""
    if _is_float(dtype):
        value = _float(bits, dtype)
        is_number = np.isfinite(value)
        if _is_float(to) and (not is_number or (dtype != to and rounding <= mp.ROUND_RINT)):
            return _bits(value, to)  # half to even, as arithmetic rounds
        if not is_number:
            return np.int64(0) if value != value else np.int64(_LEAST[to] if value < 0 else _MOST[to])
    magnitude, exponent, negative = _taken_apart(bits, dtype)
    n = -exponent
    if _is_float(to) and dtype != to:
        n = max(_LOWEST[to] - exponent, _length(magnitude) - _DIGITS[to])
    magnitude = _dropped(magnitude, n, rounding, negative)
    exponent += max(n, 0)
    if _is_float(to):
        return _as_float(magnitude, exponent, negative, to, rounding)
    return _as_int(magnitude, exponent, negative, to)


@jit
def _of_one(kind, function, dtype, a, i):
    """Compute a result's bits from an element's, or for an index from the first number and how many are before."""
    if kind == mp.MAP_CAST:
        return _cast(a, dtype, function >> mp.TO_SHIFT & 7, function >> mp.ROUNDING_SHIFT & 7)
    if kind == mp.MAP_EXP:
        return _bits(_exp(_float(a, dtype)), dtype)
    if kind == mp.MAP_FILL:
        return a
    if kind == mp.MAP_INDEX:
        return _bits(_float(a, dtype) + np.float32(i), dtype) if _is_float(dtype) else a + i
    if _is_float(dtype):
        return a & ~(np.int64(1) << 8 * _BYTES[dtype] - 1)
    return abs(_int(a, dtype))


@jit
def _compare(mem, source, target, count, function, other):
    """Write a bit for each element: is it less than the scalar, or equal to it?  Zeros follow the last."""
    kind, dtype = kind_of(function), function >> mp.DTYPE_SHIFT & 7
    read, byte = _BYTES[dtype], 0
    for i in range(count):
        a = _load(mem, source + i * read, read)
        if _is_float(dtype):
            x, y = _float(a, dtype), _float(np.int64(other), dtype)
            holds = x < y if kind == mp.MAP_LESS else x == y
        else:
            holds = _int(a, dtype) < _int(other, dtype) if kind == mp.MAP_LESS else _int(a, dtype) == _int(other, dtype)
        byte |= (1 if holds else 0) << (i & 7)
        if i & 7 == 7 or i == count - 1:
            mem[target + (i >> 3)] = byte
            byte = 0


@jit
def _sort(mem, source, target, count, dtype, indices):
    """Write pairs of an element and its integer, the largest element first; each is put where it belongs."""
    read = _BYTES[dtype]
    for i in range(count):
        element, at = _load(mem, source + i * read, read), target + 8 * i
        while at > target and _is_ahead(mp.MAP_MOST_AT, dtype, _load(mem, at - 8, read), element):
            store_i64(mem, at, load_i64(mem, at - 8))
            at -= 8
        bits = element & (np.int64(1) << 8 * read) - 1
        store_i64(mem, at, np.int64(load_i32(mem, indices + 4 * i)) << 32 | bits)


@call
def apply(mem, source, target, count, function, other, ub):
    """Carry out a `v_map`: addresses in memory; ``other`` is a scalar's bits, or an offset from ``ub``."""
    kind, dtype = kind_of(function), function >> mp.DTYPE_SHIFT & 7
    read, written = _BYTES[dtype], element_bytes_written(function)
    if reduces(function):
        value, at = _load(mem, source, read), np.int64(0)
        for i in range(1, count):
            element = _load(mem, source + i * read, read)
            if kind < mp.MAP_MOST_AT:
                value = _of_two(kind, dtype, value, element)
            elif _is_ahead(kind, dtype, value, element):
                value, at = element, np.int64(i)
        _store(mem, target, written, value)
        if kind >= mp.MAP_MOST_AT:
            _store(mem, target + written, written, at)
        return
    if _compares(kind):
        _compare(mem, source, target, count, function, other)
        return
    if kind == mp.MAP_SORT:
        _sort(mem, source, target, count, dtype, ub + other)
        return
    reads, reads_other = source_bytes(function, 1) > 0, other_bytes(function, 1) > 0
    for i in range(count):
        a = _load(mem, source + i * read, read) if reads else np.int64(other)
        if kind == mp.MAP_KEEP:
            bits = a if mem[ub + other + (i >> 3)] >> (i & 7) & 1 else np.int64(0)
        elif kind == mp.MAP_SPREAD:
            for k in range(ms.GRANULE_BYTES // read):
                _store(mem, target + i * ms.GRANULE_BYTES + k * read, read, a)
            continue
        elif kind >= mp.MAP_ADD and kind <= mp.MAP_OR:
            b = _load(mem, ub + other + i * read, read) if reads_other else np.int64(other)
            bits = _of_two(kind, dtype, a, b)
        else:
            bits = _of_one(kind, function, dtype, a, i)
        _store(mem, target + i * written, written, bits)
