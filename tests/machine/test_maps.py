"""What `v_map` computes, bit for bit against NumPy and ml_dtypes; what it reads and writes, for races."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.machine.test_numerics import after
from xccl_emu.base import errors
from xccl_emu.lang import maps
from xccl_emu.lang import requests as rq

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's own, of infinities and NaNs
KINDS = (ml_dtypes.bfloat16, np.float16, np.float32, np.int8, np.int16, np.int32, np.uint8, np.int64)
DTYPES = [np.dtype(each) for each in KINDS]
TWO = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "max": lambda a, b: np.where((a > b) | (a != a), a, b),
    "min": lambda a, b: np.where((a < b) | (a != a), a, b),
}  # fmt: skip
REDUCING = {"sum": "add", "most": "max", "least": "min"}
PLACES = {"most_at": np.argmax, "least_at": np.argmin}
NAMES = sorted(TWO) + sorted(REDUCING) + sorted(PLACES) + ["abs", "fill", "index"]


def same(found: NDArray[np.generic], wanted: NDArray[np.generic]) -> bool:
    """Equal bits, but any NaN equals any NaN."""
    return bool(((found.view(np.uint8) == wanted.view(np.uint8)).reshape(found.size, -1).all(1) | (
        (found != found) & (wanted != wanted))).all())  # fmt: skip


def drawn(data: st.DataObject, dtype: int, n: int) -> NDArray[np.generic]:
    """Any bits as elements, small whole numbers among them."""
    kind = DTYPES[dtype]
    bits = st.one_of(st.integers(0, 2 ** (8 * kind.itemsize) - 1), st.integers(-9, 9).map(lambda i: _bits(i, kind)))
    values = data.draw(st.lists(bits, min_size=n, max_size=n))
    return np.array(values, f"u{kind.itemsize}").view(kind)


def _bits(value: int, kind: np.dtype) -> int:
    return int(np.array([value]).astype(kind).view(f"u{kind.itemsize}")[0])


def padded(x: NDArray[np.generic]) -> NDArray[np.uint8]:
    """Its bytes, and zeros behind them to a multiple of 8."""
    return np.pad(x.view(np.uint8), (0, -x.nbytes % 8))


@settings(max_examples=300, deadline=None)
@given(data=st.data(), n=st.integers(1, 9), name=st.sampled_from(NAMES), in_place=st.booleans())
@pytest.mark.boundscheck
def test_functions_are_those_of_numpy(data: st.DataObject, n: int, name: str, in_place: bool) -> None:
    """Each function leaves the bits that NumPy makes of the same elements, in place or behind them."""
    dtype = data.draw(st.sampled_from(maps.TYPES[name]))
    scalar = name in TWO and data.draw(st.booleans())
    a, b = drawn(data, dtype, n), drawn(data, dtype, 1 if scalar else n)
    number = maps.function(name, dtype, scalar=scalar)
    first, size = padded(a), padded(a).size
    image = np.concatenate([first, padded(b), np.zeros(max(size, 8), np.uint8)])
    target = 0 if in_place else size + padded(b).size
    if name in TWO:
        wanted = TWO[name](a, b).astype(a.dtype)
    elif name in REDUCING:
        wanted = a[:1]
        for i in range(1, n):
            wanted = TWO[REDUCING[name]](wanted, a[i : i + 1]).astype(a.dtype)
    elif name in PLACES:
        place = PLACES[name](a)
        wanted = np.append(a[place], np.array([place], f"u{a.itemsize}").view(a.dtype))
    elif name == "abs":
        wanted = np.abs(a)
    else:
        wanted = np.repeat(b[:1], n)
        if name == "index":
            steps = np.arange(n).astype(np.float32 if a.dtype.kind != "i" else a.dtype)
            wanted = (wanted.astype(steps.dtype) + steps).astype(a.dtype)
    is_bits = scalar or name in ("fill", "index")
    other = int(b[:1].view(f"u{a.dtype.itemsize}")[0]) if is_bits else size
    found = after(rq.OP_V_COPY, image, 0, target, n, number, other)
    assert same(found[target : target + wanted.nbytes].view(a.dtype), wanted)
    rest = np.ones(image.size, bool)
    rest[target : target + wanted.nbytes] = False
    assert (found[rest] == image[rest]).all()


def whole_of(x: Fraction, rounding: str) -> int:
    """A whole number near a number, or the number itself if it is whole."""
    down = math.floor(x)
    if rounding in ("none", "rint"):
        return round(x)
    away = math.floor(abs(x) + Fraction(1, 2)) * (-1 if x < 0 else 1)
    odd = down if x == down or down % 2 else down + 1
    return {"floor": down, "ceil": math.ceil(x), "trunc": math.trunc(x), "away": away, "odd": odd}[rounding]


def float_near(x: Fraction, kind: np.dtype, rounding: str) -> NDArray[np.generic]:
    """A float near a number, by the numbers of that type below and above it: their bits follow each other."""
    bits_of, size = f"u{kind.itemsize}", abs(x)
    most = ml_dtypes.finfo(kind).max
    infinite = int(np.array([np.inf]).astype(kind).view(bits_of)[0])

    def value(bits: int) -> Fraction:
        held = np.array([bits], bits_of).view(kind).astype(np.float64)[0]
        return Fraction(float(held)) if bits < infinite else 2 * Fraction(float(most)) - value(infinite - 2)

    below = int(np.array([min(float(size), float(most))]).astype(kind).view(bits_of)[0])
    while value(below) > size:
        below -= 1
    while below + 1 < infinite and value(below + 1) <= size:
        below += 1
    step, sign = value(below + 1) - value(below), -1 if x < 0 else 1
    if value(below) != size:
        part = min((size - value(below)) / step, Fraction(99, 100))  # more than that is beyond all numbers
        below += min(1, sign * whole_of(sign * (below % 2 + part), rounding) - below % 2)
    made = np.array([below], bits_of).view(kind)
    return -made if x < 0 else made


def cast_by_numpy(x: NDArray[np.generic], to: int, rounding: int) -> NDArray[np.generic]:
    """Elements as another type, of exact numbers: rounded once as it says, integers at their limits, NaNs as 0."""
    kind, name = DTYPES[to], maps.ROUNDINGS[rounding]
    made = np.zeros(x.size, kind)
    for i, value in enumerate(x.tolist() if x.dtype.kind in "iu" else x.astype(np.float64).tolist()):
        is_number = math.isfinite(value)
        if kind.kind in "iu":
            limits = np.iinfo(kind)
            whole = whole_of(Fraction(value), name) if is_number else 0
            most = {math.inf: limits.max, -math.inf: limits.min}
            made[i] = min(limits.max, max(limits.min, whole)) if is_number else most.get(value, 0)
        elif not is_number or value == 0:
            made[i] = np.array([value]).astype(kind)[0]
        elif x.dtype == kind:
            made[i] = math.copysign(whole_of(Fraction(value), name), value)
        else:
            made[i] = float_near(Fraction(value), kind, name)[0]
    return made


def exp_by_numpy(x: NDArray[np.generic]) -> NDArray[np.generic]:
    """E to the power of each element in double precision, rounded to FP32, and then to its type."""
    return np.exp(x.astype(np.float64)).astype(np.float32).astype(x.dtype)


def sorted_by_python(x: NDArray[np.generic], index: NDArray[np.uint32]) -> list[int]:
    """Pairs as words of 8 bytes, largest first and NaNs in front of all; equal ones stay as they are."""
    values, bits = x.astype(np.float64), x.view(f"u{x.itemsize}")
    order = sorted(range(x.size), key=lambda i: (0, 0) if values[i] != values[i] else (1, -values[i]))
    return [int(index[i]) << 32 | int(bits[i]) for i in order]


@settings(max_examples=200, deadline=None)
@given(data=st.data(), n=st.integers(1, 9), pair=st.sampled_from(sorted(maps.CASTS)))
@pytest.mark.boundscheck
def test_casts_are_those_of_numpy(data: st.DataObject, n: int, pair: tuple[int, int]) -> None:
    """Each cast leaves the bits of numbers rounded once, with each rounding that it has, and in place if they fit."""
    rounding = data.draw(st.sampled_from(maps.CASTS[pair]))
    x = drawn(data, pair[0], n)
    if pair[0] == rq.FP32:  # halves between whole numbers
        x = np.where(data.draw(st.booleans()), x, np.float32(0.5) * np.arange(-n, n, 2, np.float32))
    wanted = cast_by_numpy(x, pair[1], rounding)
    in_place = wanted.nbytes <= x.nbytes and data.draw(st.booleans())
    image, target = np.concatenate([padded(x), padded(wanted) * 0]), 0 if in_place else padded(x).size
    found = after(rq.OP_V_COPY, image, 0, target, n, maps.function("cast", *pair, rounding))
    assert same(found[target:][: wanted.nbytes].view(wanted.dtype), wanted)
    rest = np.ones(image.size, bool)
    rest[target : target + wanted.nbytes] = False
    assert (found[rest] == image[rest]).all()


@settings(max_examples=60, deadline=None)
@given(data=st.data(), n=st.integers(1, 9), dtype=st.sampled_from(maps.TYPES["exp"]))
@pytest.mark.boundscheck
def test_exponentials_are_those_of_double_precision(data: st.DataObject, n: int, dtype: int) -> None:
    """The bits are those of NumPy's exponential in double precision, rounded; of its own in FP32 they are 3 off."""
    near = st.floats(-104, 89, width=32).map(lambda v: int(np.float32(v).astype(DTYPES[dtype]).view(f"u{size}")))
    size = DTYPES[dtype].itemsize
    x = drawn(data, dtype, n)
    if data.draw(st.booleans()):
        x = np.array(data.draw(st.lists(near, min_size=n, max_size=n)), f"u{size}").view(DTYPES[dtype])
    found = after(rq.OP_V_COPY, padded(x), 0, 0, n, maps.function("exp", dtype))[: x.nbytes].view(x.dtype)
    assert same(found, exp_by_numpy(x))
    if dtype == rq.FP32:
        off = np.abs(found.view(np.int32).astype(np.int64) - np.exp(x).view(np.int32))
        assert (off[found == found] <= 3).all()


@settings(max_examples=60, deadline=None)
@given(data=st.data(), n=st.integers(1, 12), dtype=st.sampled_from(maps.TYPES["sort"]))
@pytest.mark.boundscheck
def test_elements_are_sorted_with_their_integers(data: st.DataObject, n: int, dtype: int) -> None:
    """Pairs come largest first, equal ones as they were, NaNs in front; what is read stays."""
    x, index = drawn(data, dtype, n), np.array(data.draw(st.lists(st.integers(0, 2**32 - 1), min_size=n, max_size=n)))
    image = np.concatenate([padded(x), padded(index.astype(np.uint32)), np.zeros(8 * n, np.uint8)])
    target = image.size - 8 * n
    found = after(rq.OP_V_COPY, image, 0, target, n, maps.function("sort", dtype), padded(x).size)
    assert found[target:].view(np.uint64).tolist() == sorted_by_python(x, index.astype(np.uint32))
    assert (found[:target] == image[:target]).all()


@settings(max_examples=200, deadline=None)
@given(data=st.data(), n=st.integers(1, 20), name=st.sampled_from(("less", "equal", "keep", "spread")))
@pytest.mark.boundscheck
def test_bits_of_elements_are_those_of_numpy(data: st.DataObject, n: int, name: str) -> None:
    """Elements are compared to bits, the first one lowest; kept by bits; and each spread over a granule."""
    dtype = data.draw(st.sampled_from(maps.TYPES[name]))
    a, scalar = drawn(data, dtype, n), drawn(data, dtype, 1)
    if data.draw(st.booleans()):
        scalar = a[-1:]
    bits = data.draw(st.binary(min_size=4, max_size=4))
    other = np.frombuffer(bits, np.uint8)
    image = np.concatenate([padded(a), other, np.full(32 * n + 32, 7, np.uint8)])
    target = -(-(padded(a).size + 4) // 32) * 32
    if name == "keep":
        held = np.unpackbits(other, bitorder="little")[:n]
        wanted = np.where(held, a.view(f"u{a.itemsize}"), 0).astype(f"u{a.itemsize}").view(np.uint8)
    elif name == "spread":
        wanted = np.repeat(a.view(f"u{a.itemsize}"), 32 // a.itemsize).view(np.uint8)
    else:
        wanted = np.packbits(a < scalar if name == "less" else a == scalar, bitorder="little")
    number = maps.function(name, dtype, scalar=name in ("less", "equal"))
    second = padded(a).size if name == "keep" else int(scalar.view(f"u{a.itemsize}")[0])
    found = after(rq.OP_V_COPY, image, 0, target, n, number, second)
    assert (found[target:][: wanted.size] == wanted).all()
    rest = np.ones(image.size, bool)
    rest[target : target + wanted.size] = False
    assert (found[rest] == image[rest]).all()


def test_functions_that_there_are_not() -> None:
    """A function on types that it does not have is refused by name, with what was asked for."""
    for asked in (("div", maps.INT32), ("cast", maps.INT8), ("cast", rq.FP32, maps.INT8, 1), ("exp", maps.INT32)):
        with pytest.raises(errors.ConfigError, match=f"'{asked[0]}' of dtype={asked[1]}.* no such function"):
            maps.function(*asked)
    assert maps.text(maps.function("cast", rq.FP32, rq.BF16)) == "cast fp32 bf16"
