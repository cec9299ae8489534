"""The reference arithmetic, against hand-computed rows and scalar formulas."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.refused import refuses
from xccl_emu.base.errors import ConfigError
from xccl_emu.oracle import (
    BF16,
    FP16,
    dequantize_int8,
    hidden_dtype,
    quantize_int8,
    quantize_int8_cann,
    round_to,
)
from xccl_emu.oracle.numerics import Quantizer

HIDDEN_TYPES = [BF16, FP16]


def rows(*values: list[float], dtype: np.dtype[Any] = BF16) -> np.ndarray:
    return np.array(values, np.float32).astype(dtype)


def finite_rows(dtype: np.dtype[Any]) -> st.SearchStrategy[np.ndarray]:
    """Any finite rows of a hidden type, drawn by bit pattern so that subnormals are common."""
    bits = hnp.arrays(np.uint16, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6))
    infinity = np.uint16(0x7F80 if dtype == BF16 else 0x7C00)
    return bits.map(lambda b: np.where(b & 0x7FFF < infinity, b, np.uint16(0)).view(dtype))


@pytest.mark.parametrize("dtype", HIDDEN_TYPES)
def test_quantizes_a_row_by_hand(dtype: np.dtype[Any]) -> None:
    """The largest element maps to ±127, the others in proportion, and the scale is a 127th of the largest."""
    q, scales = quantize_int8(rows([1.0, -2.0, 0.5, 0.0], dtype=dtype))
    assert q.tolist() == [[64, -127, 32, 0]]
    assert scales.tolist() == [np.float32(2) / np.float32(127)]
    assert (q.dtype, scales.dtype) == (np.int8, np.float32)


def test_ties_go_to_the_even_value() -> None:
    """Halves are rounded to the even neighbour in both directions."""
    q, _ = quantize_int8(rows([127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5]))
    assert q.tolist() == [[127, 0, 2, 2, 0, -2, -2]]


def test_the_quotient_is_rounded_before_the_product() -> None:
    """On rows where x * 127 / amax or x / (amax / 127) differ, the result is that of x * (127 / amax)."""
    x = rows([2.375, -1.1875], [2.328125, 1.1640625])
    wide = x.astype(np.float32)
    q, scales = quantize_int8(x)
    assert q[:, 1].tolist() == [-63, 64]
    assert np.rint(wide[0] * np.float32(127) / wide[0, 0])[1] == -64
    assert np.rint(wide[1] / scales[1])[1] == 63


@given(x=st.sampled_from(HIDDEN_TYPES).flatmap(finite_rows))
def test_agrees_with_the_scalar_formula(x: np.ndarray) -> None:
    """Each element equals the formula evaluated one FP32 operation at a time, for any finite row."""
    q, scales = quantize_int8(x)
    for i, row in enumerate(x.astype(np.float32)):
        amax = max(abs(value) for value in row)
        with np.errstate(divide="ignore", over="ignore"):
            inverse = np.float32(127) / amax
        if not np.isfinite(inverse):
            assert scales[i] == 0
            assert not q[i].any()
            continue
        expected = [max(-127, min(127, round(float(value * inverse)))) for value in row]
        assert q[i].tolist() == expected
        assert scales[i] == amax / np.float32(127)


@given(x=st.sampled_from(HIDDEN_TYPES).flatmap(finite_rows))
def test_the_error_is_at_most_half_a_step(x: np.ndarray) -> None:
    """A quantized and restored element is off by no more than half a scale and FP32 rounding."""
    q, scales = quantize_int8(x)
    wide = x.astype(np.float64)
    error = np.abs(q * scales.astype(np.float64)[:, None] - wide)
    allowed = scales.astype(np.float64) * (0.5 + 1e-4) + np.where(scales == 0, np.abs(wide).max(axis=1), 0)
    # A subnormal scale is itself rounded by up to 2**-150, times 127.
    assert (error <= allowed[:, None] + 127 * 2.0**-150).all()


def test_a_row_too_small_to_invert_counts_as_zero() -> None:
    """The smallest BF16 with a finite FP32 127/amax is quantized, the next smaller one is a zero row."""
    bits = np.arange(1, 0x7F80, dtype=np.uint16)
    values = bits.view(BF16).astype(np.float64)
    first = int(np.flatnonzero(127 / values <= float(np.finfo(np.float32).max))[0])
    assert values[first] == pytest.approx(3.73e-37, rel=0.02)
    pair = bits[[first - 1, first]].view(BF16)[:, None]
    q, scales = quantize_int8(pair)
    assert q.tolist() == [[0], [127]]
    assert scales[0] == 0
    assert scales[1] == np.float32(values[first]) / np.float32(127) > 0


def test_cann_sends_the_inverse_of_the_rounded_quotient() -> None:
    """Both rules give the same INT8, but where 127 / amax is inexact enough, scales that are neighbours in FP32."""
    x = rows([1.171875, -0.5, 0.25])
    (q, scale), (q_cann, scale_cann) = quantize_int8(x), quantize_int8_cann(x)
    assert q.tolist() == q_cann.tolist() == [[127, -54, 27]]
    assert scale[0] == np.float32(1.171875 / 127)
    assert scale_cann[0] == np.float32(1) / np.float32(127 / 1.171875)
    assert abs(int(scale.view(np.int32)[0]) - int(scale_cann.view(np.int32)[0])) == 1


@given(x=st.sampled_from(HIDDEN_TYPES).flatmap(finite_rows))
def test_cann_agrees_with_the_scalar_formula(x: np.ndarray) -> None:
    """Each element equals the casts made one by one in whole numbers, for any finite row."""
    q, scales = quantize_int8_cann(x)
    for i, row in enumerate(x.astype(np.float32)):
        with np.errstate(divide="ignore", over="ignore"):
            factor = np.float32(127) / max(abs(value) for value in row)
        if not np.isfinite(factor):
            assert scales[i] == 0
            assert q[i].tolist() == [0 if value == 0 else 127 if value > 0 else -128 for value in row]
            continue
        assert q[i].tolist() == [round(float(value * factor)) for value in row]
        assert scales[i] == np.float32(1) / factor


@pytest.mark.parametrize("quantize", [quantize_int8, quantize_int8_cann])
def test_a_zero_row_is_the_same_by_every_rule(quantize: Quantizer) -> None:
    """All-zero rows give zeros and scale +0 by each rule, although CANN's goes through NaNs, and leave others alone."""
    q, scales = quantize(rows([0.0, -0.0], [0.0, 3.0]))
    assert q.tolist() == [[0, 0], [0, 127]]
    assert scales.view(np.uint32)[0] == 0
    assert scales[1] == pytest.approx(3 / 127)


def test_cann_saturates_rows_too_small_to_invert() -> None:
    """Where 127/amax is infinite, elements become the limits of INT8, -128 among them, with scale 0."""
    q, scales = quantize_int8_cann(rows([1e-37, -1e-40, 0.0]))
    assert q.tolist() == [[127, -128, 0]]
    assert scales[0] == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("quantize", [quantize_int8, quantize_int8_cann])
def test_refuses_what_is_not_finite(bad: float, quantize: Quantizer) -> None:
    """A NaN or infinity is refused by its position."""
    with pytest.raises(ConfigError, match=r"x\[1, 2\] is (nan|inf|-inf)"):
        quantize(rows([1, 2, 3], [1, 2, bad]))


SIGNALING = [np.array([[0, bits]], np.uint16).view(dtype) for dtype, bits in ((BF16, 0x7F81), (FP16, 0x7C01))]


@refuses(quantize_int8, *((x, r"x\[0, 1\] is nan") for x in SIGNALING))
def test_refuses_a_signaling_nan() -> None:
    """The NaN that floating-point units warn of is refused like any other, without a warning."""


@refuses(quantize_int8, *((np.zeros(shape, BF16), r"must be \[rows, hidden\]") for shape in [(3,), (2, 0), (1, 2, 3)]))
def test_refuses_other_shapes() -> None:
    """Only rows of at least one element are quantized."""


@refuses(hidden_dtype, *((dtype, "bfloat16 or float16") for dtype in ("float32", "int8", "no such type")))
def test_refuses_other_types() -> None:
    """Hidden states are BF16 or FP16 and nothing else."""


def test_no_rows_are_fine() -> None:
    """A rank without tokens has no rows and no scales."""
    q, scales = quantize_int8(np.zeros((0, 4), BF16))
    assert q.shape == (0, 4)
    assert scales.shape == (0,)


def test_restoring_multiplies_each_row_by_its_scale() -> None:
    """Restored values are FP32 products of integer and scale."""
    q = np.array([[3, -4], [5, 0]], np.int8)
    scales = np.array([0.1, 2.0], np.float32)
    restored = dequantize_int8(q, scales)
    assert restored.dtype == np.float32
    assert restored.tolist() == [[np.float32(3) * scales[0], np.float32(-4) * scales[0]], [10.0, 0.0]]


@pytest.mark.parametrize("dtype", HIDDEN_TYPES)
def test_rounding_keeps_every_value_of_the_type(dtype: np.dtype[Any]) -> None:
    """All 65,536 patterns but NaNs survive the way to FP32 and back."""
    patterns = np.arange(1 << 16, dtype=np.uint16)
    patterns = patterns[patterns & 0x7FFF <= (0x7F80 if dtype == BF16 else 0x7C00)]
    back = round_to(patterns.view(dtype).astype(np.float32), dtype)
    assert np.array_equal(back.view(np.uint16), patterns)


@pytest.mark.parametrize("dtype", HIDDEN_TYPES)
def test_rounding_takes_midpoints_to_even(dtype: np.dtype[Any]) -> None:
    """The FP32 halfway between two neighbours becomes the one with the even pattern."""
    top = 0x7F00 if dtype == BF16 else 0x7800
    lower = np.arange(0, top, dtype=np.uint16)
    wide = lower.view(dtype).astype(np.float64)
    upper = (lower + np.uint16(1)).view(dtype).astype(np.float64)
    middle = ((wide + upper) / 2).astype(np.float32)
    assert np.array_equal(round_to(middle, dtype).view(np.uint16), lower + lower % 2)


@given(bits=hnp.arrays(np.uint32, 16))
def test_bf16_rounding_is_integer_arithmetic_on_the_bits(bits: np.ndarray) -> None:
    """Any FP32 but NaN rounds as adding half a unit, and the odd bit, to its pattern would."""
    bits = np.where((bits & 0x7FFFFFFF) > 0x7F800000, np.uint32(0), bits)
    expected = (bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16
    rounded = round_to(bits.view(np.float32), ml_dtypes.bfloat16)
    assert np.array_equal(rounded.view(np.uint16), expected.astype(np.uint16))


def test_rounding_refuses_double_precision() -> None:
    """A wider accumulator would be rounded twice, so it is refused."""
    with pytest.raises(ConfigError, match="float64"):
        round_to(np.zeros(2), BF16)  # type: ignore[arg-type]
