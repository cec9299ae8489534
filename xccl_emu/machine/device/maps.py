"""What `v_map` computes: one function of each element of the data buffer, or one value of them all.

Each result is rounded by itself to the type of its element; FP16 is computed in FP32, which is as if it were exact.
Sums are made from the first element to the last.  A larger or smaller one is NaN where one of the two is.
"""

import numpy as np

from xccl_emu.lang import maps as mp
from xccl_emu.lang import requests as rq
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.numerics import narrow_bf16, narrow_fp16, widen
from xccl_emu.machine.device.words import bits_of, call, float_of, jit, load_i32, store_u32

_KNOWN = tuple(sorted(mp.KNOWN))
_BYTES = (*mp.ELEMENT_BYTES, 0)  # so that three bits are an index


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
    has_other = kind >= mp.MAP_ADD and kind <= mp.MAP_OR and function >> mp.SCALAR_SHIFT == 0
    return count * source_element_bytes(function) if has_other else 0


@jit
def element_bytes_written(function):
    """Bytes of one element of what comes out."""
    return _BYTES[function >> (mp.TO_SHIFT if kind_of(function) == mp.MAP_CAST else mp.DTYPE_SHIFT) & 7]


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
    if nbytes == 4:
        return np.int64(load_i32(mem, at))
    if nbytes == 2:
        return np.int64(mem[at]) | np.int64(mem[at + 1]) << 8
    return np.int64(mem[at])


@jit
def _store(mem, at, nbytes, bits):
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
def _rounded(value, rounding):
    if rounding == mp.ROUND_FLOOR:
        return np.floor(value)
    if rounding == mp.ROUND_CEIL:
        return np.ceil(value)
    whole = np.trunc(value)
    if rounding == mp.ROUND_TRUNC:
        return whole
    if rounding == mp.ROUND_AWAY:
        return whole + np.copysign(1.0, value) if abs(value - whole) >= 0.5 else whole
    return np.rint(value)


@jit
def _cast(bits, dtype, to, rounding):
    """A value of one type as another; integers at their limits for what is beyond them, and 0 for a NaN."""
    if not _is_float(dtype):
        return _bits(np.float32(_int(bits, dtype)), to)
    value = np.float64(_float(bits, dtype))
    if _is_float(to):
        whole = dtype == to
        return _bits(np.float32(_rounded(value, rounding)) if whole else np.float32(value), to)
    if value != value:
        return np.int64(0)
    most = np.float64(255 if to == mp.UINT8 else (1 << 8 * _BYTES[to] - 1) - 1)
    least = np.float64(0 if to == mp.UINT8 else -most - 1.0)
    return np.int64(max(least, min(most, _rounded(value, rounding))))


@jit
def _of_one(kind, function, dtype, a, i):
    """Compute a result's bits from an element's, or for an index from the first number and how many are before."""
    if kind == mp.MAP_CAST:
        return _cast(a, dtype, function >> mp.TO_SHIFT & 7, function >> mp.ROUNDING_SHIFT & 7)
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
    reads, reads_other = source_bytes(function, 1) > 0, other_bytes(function, 1) > 0
    for i in range(count):
        a = _load(mem, source + i * read, read) if reads else np.int64(other)
        if kind == mp.MAP_KEEP:
            bits = a if mem[ub + other + (i >> 3)] >> (i & 7) & 1 else np.int64(0)
        elif kind == mp.MAP_SPREAD:
            for k in range(ms.GRANULE_BYTES // read):
                _store(mem, target + i * ms.GRANULE_BYTES + k * read, read, a)
            continue
        elif kind >= mp.MAP_ADD:
            b = _load(mem, ub + other + i * read, read) if reads_other else np.int64(other)
            bits = _of_two(kind, dtype, a, b)
        else:
            bits = _of_one(kind, function, dtype, a, i)
        _store(mem, target + i * written, written, bits)
