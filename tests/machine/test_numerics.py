"""What the vector pipe computes, bit for bit against ml_dtypes, NumPy and the oracle; and the moving of bytes."""

import functools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from xccl_emu import oracle
from xccl_emu.lang import kernel, mtu_in, mtu_out, set_flag, wait_flag
from xccl_emu.lang import requests as rq
from xccl_emu.lang.requests import BF16, FP16, FP32, MTU_IN, MTU_OUT, RULE_CANN, RULE_XCCL, VECTOR
from xccl_emu.machine.device import numerics
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod

from .support import vector_operation

UB = 192 << 10
RULES = {RULE_XCCL: oracle.quantize_int8, RULE_CANN: oracle.quantize_int8_cann}
DTYPES = {BF16: np.dtype(ml_dtypes.bfloat16), FP16: np.dtype(np.float16)}
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's own, of infinities and NaNs


@kernel
def compute(op, source, target, nbytes, a, b, c, d, e):
    """Fill the data buffer, do one vector operation on it, and write the buffer back."""
    yield mtu_in(source, 0, nbytes)
    yield set_flag(MTU_IN, VECTOR, 0)
    yield wait_flag(MTU_IN, VECTOR, 0)
    yield from vector_operation(op, a, b, c, d, e)
    yield set_flag(VECTOR, MTU_OUT, 0)
    yield wait_flag(VECTOR, MTU_OUT, 0)
    yield mtu_out(0, target, nbytes)


@functools.cache
def the_pod() -> Pod:
    """A pod of one core with a data buffer of full size."""
    return Pod(small_pod(1, app_bytes=1 << 20, meta_bytes=0, managed_bytes=0, ub_bytes=UB))


def after(op: int, image: NDArray[np.uint8], *operands: int) -> NDArray[np.uint8]:
    """The data buffer after one vector operation on an image of it."""
    pod = the_pod()
    pod.release_app({})
    source, target = pod.put(0, image), pod.alloc(0, image.size)
    names = ("op", "source", "target", "nbytes", "a", "b", "c", "d", "e")
    values = (op, source.address, target.address, image.size, *operands, 0, 0, 0, 0, 0)
    args = dict(zip(names, values, strict=False))
    pod.launch(compute, 0, [0], args, [pod.grant(source, "r"), pod.grant(target, "w")])
    pod.run()
    return pod.view(target).copy()


def image_of(*arrays: NDArray[np.generic]) -> NDArray[np.uint8]:
    """Arrays one after the other, as bytes."""
    return np.concatenate([array.view(np.uint8) for array in arrays])


def same(found: NDArray[np.generic], expected: NDArray[np.generic]) -> bool:
    """Equal bits, except that any NaN equals any NaN."""
    unsigned = {2: np.uint16, 4: np.uint32}[expected.dtype.itemsize]
    nan = np.isnan(expected.astype(np.float32))
    equal = found.view(unsigned) == expected.view(unsigned)
    return bool((equal | (nan & np.isnan(found.astype(np.float32)))).all())


def halves(bits: NDArray[np.uint16], dtype: int) -> NDArray[np.generic]:
    """Bits as BF16 or FP16."""
    return bits.view(DTYPES[dtype])


def floats(bits: list[int]) -> NDArray[np.float32]:
    """Bits as FP32."""
    return np.array(bits, np.uint32).view(np.float32)


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_bit_patterns_widen(dtype: int) -> None:
    """Each of the 65,536 patterns becomes the FP32 value that ml_dtypes or NumPy gives."""
    everything = np.arange(1 << 16, dtype=np.uint16)
    for bits in everything.reshape(4, -1):
        image = image_of(bits, np.zeros(bits.size, np.float32))
        wide = after(rq.OP_V_WIDEN, image, 0, 2 * bits.size, bits.size, dtype)[2 * bits.size :].view(np.float32)
        assert same(wide, halves(bits, dtype).astype(np.float32))


def _boundaries(dtype: int) -> NDArray[np.uint32]:
    """FP32 bits at and around every value of a type and every midpoint between two."""
    values = halves(np.arange(0, 1 << 15, dtype=np.uint16), dtype).astype(np.float32)
    values = values[np.isfinite(values)].view(np.uint32).astype(np.int64)
    midpoints = (values[1:] + values[:-1]) // 2
    near = np.concatenate([values, midpoints])
    near = np.concatenate([near + delta for delta in (-1, 0, 1)] + [near[-4:] * 0 + 0x477FF000])
    return np.concatenate([near, near | 1 << 31]).clip(0, 0xFFFFFFFF).astype(np.uint32)


@pytest.mark.parametrize("dtype", DTYPES)
def test_narrowing_at_every_boundary(dtype: int) -> None:
    """Every value of the type, every midpoint, and their neighbours in FP32 round half to even."""
    bits = _boundaries(dtype)
    count = 32 << 10
    for part in np.array_split(bits, -(-bits.size // count)):
        image = image_of(part, np.zeros(part.size, np.uint16))
        found = after(rq.OP_V_NARROW, image, 0, 4 * part.size, part.size, dtype)[4 * part.size :].view(DTYPES[dtype])
        assert same(found, part.view(np.float32).astype(DTYPES[dtype]))


SPECIAL = [0, 1, 0x7FFFFF, 0x800000, 0x33000000, 0x33000001, 0x387FFFFF, 0x38800000, 0x477FEFFF, 0x477FF000, 0x47800000]
SPECIAL += [0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0x80000000, 0xFF800000, 0xFFFFFFFF]
bits32 = st.one_of(st.sampled_from(SPECIAL), st.integers(0, (1 << 32) - 1))
SPECIAL_16 = [0, 1, 0x8000, 0x3F80, 0x7C00, 0x7F80, 0x7BFF, 0x03FF]
bits16 = st.one_of(st.sampled_from(SPECIAL_16), st.integers(0, (1 << 16) - 1))
dtypes = st.sampled_from(sorted(DTYPES))
ADDERS = st.sampled_from([rq.OP_V_AXPY, rq.OP_V_ADD])


@given(st.lists(bits32, min_size=1, max_size=80), dtypes)
def test_narrowing_of_any_bits(bits: list[int], dtype: int) -> None:
    """Any FP32 bits round as ml_dtypes and NumPy round them."""
    x = np.array(bits, np.uint32)
    image = image_of(x, np.zeros(x.size, np.uint16))
    found = after(rq.OP_V_NARROW, image, 0, 4 * x.size, x.size, dtype)[4 * x.size :].view(DTYPES[dtype])
    assert same(found, x.view(np.float32).astype(DTYPES[dtype]))


@settings(max_examples=100)
@given(st.integers(1, 40), bits32, st.sampled_from([*DTYPES, FP32]), ADDERS, st.data())
def test_accumulation_rounds_each_product_and_each_sum(
    pairs: int, factor: int, dtype: int, op: int, data: st.DataObject
) -> None:
    """Multiply-add gives NumPy's bits of a product, then a sum, both in FP32, and adding those of a sum: of BF16, FP16
    and of FP32, which was widened before."""
    x, acc = (
        data.draw(st.lists(bits, min_size=2 * pairs, max_size=2 * pairs))
        for bits in (bits32 if dtype == FP32 else bits16, bits32)
    )
    x = floats(x) if dtype == FP32 else halves(np.array(x, np.uint16), dtype)
    acc, weight = floats(acc), np.uint32(factor).view(np.float32)
    operands = (factor, x.size, dtype) if op == rq.OP_V_AXPY else (x.size, dtype)
    found = after(op, image_of(x, acc), 0, x.nbytes, *operands)[x.nbytes :].view(np.float32)
    wide = x.astype(np.float32)
    assert same(found, acc + weight * wide if op == rq.OP_V_AXPY else acc + wide)


@pytest.mark.parametrize("rule", [RULE_XCCL, RULE_CANN])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_row_that_cannot_be_quantized_is_nan_when_widened(value: float, rule: int) -> None:
    """With an infinity or a NaN in it a row becomes zeros, and its scale what makes a NaN of each of them."""
    x = np.array([1.5, value, 0.0, 2.0], np.float32).astype(DTYPES[BF16])
    found = after(rq.OP_V_QUANTIZE, image_of(x, np.ones(8, np.uint8)), 0, 8, 4, BF16, rule)[8:]
    assert (found[:4] == 0).all()
    assert not np.isfinite(found[4:].view(np.float32)[0])


def test_products_are_not_fused() -> None:
    """Where a product is inexact, subtracting it rounded leaves 0; a fused multiply-add would leave the error."""
    x = np.full(8, 1 + 2.0**-7, np.float32).astype(DTYPES[BF16])
    weight = np.float32(1 + 2.0**-23)
    product = weight * x.astype(np.float32)
    assert float(product[0]) != float(weight) * float(x[0])
    found = after(rq.OP_V_AXPY, image_of(x, -product), 0, 16, int(weight.view(np.uint32)), 8, BF16)[16:]
    assert (found.view(np.float32) == 0).all()


@pytest.mark.boundscheck
@settings(max_examples=40)
@given(st.integers(1, 30), st.integers(0, 2**32 - 1), dtypes, st.sampled_from(sorted(RULES)), st.floats(-30, 30))
def test_quantization_equals_the_oracle(quarter: int, seed: int, dtype: int, rule: int, exponent: float) -> None:
    """A row of any magnitude has the oracle's INT8 bytes and scale, and comes back as the oracle widens it."""
    count = 4 * quarter
    x = np.random.default_rng(seed).standard_normal(count) * 2.0 ** (exponent if dtype == BF16 else exponent / 3)
    _quantize_like_the_oracle(x.astype(np.float32).astype(DTYPES[dtype]), dtype, rule)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("value", [0.0, -0.0, 1e-40, 3.6e-37, 3.8e-37, 1.0, 3e38])
def test_quantization_of_rows_of_one_magnitude(value: float, rule: int) -> None:
    """Zeros, subnormals, values around the smallest that has a factor, and the largest: all as the oracle says."""
    x = np.array([value, -value, value, 0.0], np.float32).astype(DTYPES[BF16])
    _quantize_like_the_oracle(x, BF16, rule)


@pytest.mark.boundscheck
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_quantization_with_every_largest_element(dtype: int, rule: int) -> None:
    """Each finite pattern as a row's largest magnitude, with others below it: the oracle's bytes and scales."""
    _quantize_rows(_rows_under(np.arange(0x7F80 if dtype == BF16 else 0x7C00, dtype=np.uint16)), dtype, rule)


@pytest.mark.nojit
@pytest.mark.parametrize("rule", RULES)
@given(st.data(), dtypes)
def test_quantization_of_any_patterns(rule: int, data: st.DataObject, dtype: int) -> None:
    """Rows whose largest magnitudes are any finite patterns have the oracle's bytes and scales, compiled or not."""
    largest = st.integers(0, 0x7F7F if dtype == BF16 else 0x7BFF)
    _quantize_rows(_rows_under(np.array(data.draw(st.lists(largest, min_size=1, max_size=8)), np.uint16)), dtype, rule)


def _rows_under(largest: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """[rows, 8] patterns of any sign, two of them with the row's largest magnitude and one with none."""
    rng = np.random.default_rng(largest.size)
    bits = rng.integers(0, largest[:, None].astype(np.int64) + 1, (largest.size, 8)).astype(np.uint16)
    bits[:, 1] = bits[:, 6] = largest
    bits[:, 3] = 0
    return bits | (rng.integers(0, 2, bits.shape) << 15).astype(np.uint16)


def _quantize_rows(bits: NDArray[np.uint16], dtype: int, rule: int) -> None:
    """Each row alone, by the function behind the instruction, against all at once by the oracle."""
    n_rows, count = bits.shape
    q, scales = RULES[rule](bits.view(DTYPES[dtype]))
    memory = np.zeros((n_rows, 3 * count + 4), np.uint8)
    memory[:, : 2 * count] = bits.view(np.uint8)
    for row in memory:
        numerics.quantize_int8(row, 0, 2 * count, count, dtype, rule)
    assert (memory[:, 2 * count : 3 * count].view(np.int8) == q).all()
    assert same(np.ascontiguousarray(memory[:, 3 * count :]).view(np.float32)[:, 0], scales)


def _quantize_like_the_oracle(x: NDArray[np.generic], dtype: int, rule: int = RULE_XCCL) -> None:
    q, scale = RULES[rule](x[None, :])
    n = x.size
    image = image_of(x, np.zeros(n + 4, np.uint8), np.zeros(n, np.float32))
    buffer = after(rq.OP_V_QUANTIZE, image, 0, 2 * n, n, dtype, rule)
    assert (buffer[2 * n : 3 * n].view(np.int8) == q[0]).all()
    assert same(buffer[3 * n : 3 * n + 4].view(np.float32), scale)
    wide = after(rq.OP_V_DEQUANTIZE, buffer, 2 * n, 3 * n + 4, n, 3 * n)[3 * n + 4 :].view(np.float32)
    assert same(wide, oracle.dequantize_int8(q, scale)[0])


@pytest.mark.nojit
@pytest.mark.boundscheck
@settings(max_examples=30)
@given(st.integers(1, 3), st.integers(0, 2**32 - 1), dtypes, st.booleans(), st.floats(-20, 100))
def test_fp8_equals_the_oracle(blocks: int, seed: int, dtype: int, power: bool, exponent: float) -> None:
    """Rows of any magnitudes have the oracle's e4m3 and scales, zeros behind them, and come back as it widens them."""
    n, rng = 128 * blocks, np.random.default_rng(seed)
    x = rng.standard_normal(n) * 2.0 ** (rng.uniform(-20, exponent if dtype == BF16 else min(exponent, 12), n))
    row = x.astype(np.float32).astype(DTYPES[dtype])
    q, scales = oracle.quantize_fp8(row[None], power=power)
    rule = rq.RULE_FP8_UE8M0 if power else rq.RULE_FP8
    image = image_of(row, np.full(n + 32, 7, np.uint8), np.zeros(n, np.float32))
    buffer = after(rq.OP_V_QUANTIZE, image, 0, 2 * n, n, dtype, rule)
    assert (buffer[2 * n : 3 * n] == q[0].view(np.uint8)).all()
    found = buffer[3 * n : 3 * n + 32].view(np.float32)
    assert same(found[:blocks], scales[0])
    assert (found[blocks:] == 0).all()
    wide = after(rq.OP_V_DEQUANTIZE, buffer, 2 * n, 3 * n + 32, n, 3 * n, rule)[3 * n + 32 :].view(np.float32)
    assert same(wide, oracle.dequantize_fp8(q, scales)[0])


@pytest.mark.nojit
def test_e4m3_is_that_of_ml_dtypes() -> None:
    """All 256 patterns widen as ml_dtypes says, and values between, at and around them round as it says, to 448."""
    bits = np.arange(256, dtype=np.uint8)
    wide = bits.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    found = np.array([numerics.widen_e4m3(b) for b in bits], np.float32)
    assert same(found[np.isfinite(wide)], wide[np.isfinite(wide)])
    assert (np.isnan(found) == np.isnan(wide)).all()
    levels = np.sort(wide[np.isfinite(wide)])
    halves_between = (levels[1:] + levels[:-1]) / 2
    beside = [np.nextafter(halves_between, np.float32(end)) for end in (-1e9, 1e9)]
    near = np.concatenate([levels, halves_between, *beside])
    rounded = np.array([numerics.narrow_e4m3(value) for value in near], np.uint8)
    assert (rounded == near.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)).all()
    limits = [numerics.narrow_e4m3(np.float32(value)) for value in (1e9, -1e9, np.nan)]
    assert [*map(int, limits)] == [0x7E, 0xFE, 0x7F]


@given(st.lists(bits32, min_size=2, max_size=60))
def test_scaling_is_one_product(words: list[int]) -> None:
    """Scaling multiplies each FP32 by the factor once."""
    x = np.array(words[1:], np.uint32).view(np.float32)
    found = after(rq.OP_V_SCALE, image_of(x), 0, x.size, words[0]).view(np.float32)
    assert same(found, x * np.uint32(words[0]).view(np.float32))


@pytest.mark.nojit
@pytest.mark.boundscheck
@given(st.integers(1, 200), st.integers(0, 255), st.integers(0, 200), st.integers(-300, 300))
def test_copy_and_fill_touch_only_their_bytes(nbytes: int, start: int, gap: int, byte: int) -> None:
    """Copying and filling change exactly the bytes asked for, at any alignment."""
    image = np.random.default_rng(nbytes).integers(0, 256, 700).astype(np.uint8)
    copied, filled = image.copy(), image.copy()
    target = start + nbytes + gap if start + 2 * nbytes + gap <= 700 else start + nbytes
    copied[target : target + nbytes] = image[start : start + nbytes]
    filled[start : start + nbytes] = byte & 0xFF
    assert (after(rq.OP_V_COPY, image, start, target, nbytes) == copied).all()
    assert (after(rq.OP_V_FILL, image, start, nbytes, byte) == filled).all()


@pytest.mark.nojit
@pytest.mark.boundscheck
@given(st.lists(st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(-2, 5), min_size=1, max_size=80), st.data())
def test_counting_takes_the_low_end_and_not_the_high_one(numbers: list[int], data: st.DataObject) -> None:
    """What is counted is what NumPy counts, and nothing but the count is written; an empty range has none."""
    x = np.array(numbers, np.int32)
    ends = st.integers(-3, 6) | st.sampled_from(numbers) | st.sampled_from([-(1 << 63), (1 << 63) - 1])
    low, high = data.draw(ends), data.draw(ends)
    image = image_of(x, np.full(3, -1, np.int32))
    found = after(rq.OP_V_COUNT, image, 0, 4 * x.size + 4, x.size, low, high)
    image[4 * x.size + 4 : 4 * x.size + 8].view(np.int32)[0] = sum(low <= number < high for number in numbers)
    assert (found == image).all()


@pytest.mark.nojit
@pytest.mark.parametrize("dtype", DTYPES)
def test_arithmetic_in_plain_python(dtype: int) -> None:
    """Without the JIT, a row is quantized, accumulated and narrowed to the same bits."""
    x = np.array([1.5, -2.25, 0.0, 100.0], np.float32).astype(DTYPES[dtype])
    _quantize_like_the_oracle(x, dtype)
    acc = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    weight = np.float32(0.7)
    found = after(rq.OP_V_AXPY, image_of(x, acc), 0, 8, int(weight.view(np.uint32)), 4, dtype)[8:].view(np.float32)
    expected = acc + weight * x.astype(np.float32)
    assert same(found, expected)
    narrow = after(rq.OP_V_NARROW, image_of(expected, np.zeros(4, np.uint16)), 0, 16, 4, dtype)[16:].view(DTYPES[dtype])
    assert same(narrow, expected.astype(DTYPES[dtype]))
