"""Reference arithmetic: the two hidden-state types, INT8 rows, and rounding from FP32.

Everything is computed in FP32 with one rounding per operation (half to even); nothing is fused and subnormals are
kept. Token-wise INT8 with one scale per token: [xDeepServe] 3.2 and 4.7, [CloudMatrix384] 4.2.1.
"""

import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike, NDArray

from xccl_emu.base.errors import ConfigError

BF16 = np.dtype(ml_dtypes.bfloat16)
"""Brain float: the upper half of an FP32."""

FP16 = np.dtype(np.float16)
"""IEEE half precision."""

INT8_LIMIT = 127
"""Largest magnitude of a quantized value; -128 is never used."""

FP16_LIMIT = 65504
"""Largest finite FP16; a whole number."""

FP8_BLOCK = 128
"""Elements that share a scale in FP8."""

Hidden = NDArray[Any]
"""Hidden states, BF16 or FP16 (NumPy has no static type for BF16)."""


def hidden_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """`dtype` as a NumPy dtype if hidden states may have it; raises ConfigError for all but BF16 and FP16."""
    try:
        found = np.dtype(dtype)
    except TypeError as error:
        raise ConfigError(f"dtype is {dtype!r}; hidden states are bfloat16 or float16") from error
    if found not in (BF16, FP16):
        raise ConfigError(f"dtype is {found.name}; hidden states are bfloat16 or float16")
    return found


def quantize_int8(x: Hidden) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Quantize each row to INT8 with one scale.

    `x` is [rows, hidden] BF16 or FP16; returns INT8 [rows, hidden] and FP32 scales [rows]. In FP32, per row:
    amax = max |x|; q = rint(x * (127 / amax)), half to even, clamped to ±127; scale = amax / 127. The quotient
    127 / amax is rounded once, then each element is multiplied by it once.

    A row whose 127 / amax is not a finite FP32 becomes zeros with scale 0. That is the all-zero row, and the BF16 row
    with amax below about 3.73e-37, for which the formula has no value (0 * inf).

    Raises ConfigError if `x` is not two-dimensional, has no columns, has another type or holds a NaN or infinity.
    """
    wide, amax = _widened(x)
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.float32(INT8_LIMIT) / amax
    usable = np.isfinite(inverse)
    inverse = np.where(usable, inverse, np.float32(0))
    scales = np.where(usable, amax / np.float32(INT8_LIMIT), np.float32(0))
    with np.errstate(under="ignore"):
        wide *= inverse[:, None]
    np.rint(wide, out=wide)
    np.clip(wide, -INT8_LIMIT, INT8_LIMIT, out=wide)
    return wide.astype(np.int8), scales


def quantize_int8_cann(x: Hidden) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Quantize each row as CANN's public dispatch kernels for the A3 do; shapes as in `quantize_int8`.

    In FP32, per row: factor = 127 / amax; y = x * factor; scale = 1 / factor, a second quotient. y becomes INT32 (half
    to even), FP16, then INT8 (towards zero), and each of the three casts saturates and makes 0 of a NaN.

    Raises ConfigError as `quantize_int8` does.
    """
    wide, amax = _widened(x)
    with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore"):
        factors = np.float32(INT8_LIMIT) / amax
        wide *= factors[:, None]
        scales = np.float32(1) / factors
    whole = _saturated(np.rint(wide), np.iinfo(np.int32)).astype(np.int32)
    half = whole.clip(-FP16_LIMIT, FP16_LIMIT).astype(FP16)
    return _saturated(np.trunc(half), np.iinfo(np.int8)).astype(np.int8), scales


def _saturated(values: NDArray[Any], limits: np.iinfo[Any]) -> NDArray[np.float64]:
    # An FP64 holds both limits of INT32; an FP32 does not.
    return np.nan_to_num(values.astype(np.float64), nan=0.0).clip(limits.min, limits.max)


def quantize_fp8(x: Hidden, *, power: bool = False) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Quantize each 128 elements to e4m3 as [DeepEP]'s low-latency dispatch does.

    `x` is [rows, hidden] BF16 or FP16; returns float8_e4m3fn [rows, hidden] and FP32 scales [rows, hidden / 128]. In
    FP32: amax = max(1e-4, max |x|); scale = amax * (1 / 448); q = x * (448 / amax), half to even. With `power`, as for
    UE8M0, the scale is the least power of two from there on up, and q = x / scale.

    Raises ConfigError as `quantize_int8` does, and for rows that are not of whole blocks.
    """
    wide, _ = _widened(x)
    if wide.shape[1] % FP8_BLOCK:
        raise ConfigError(f"x has {wide.shape[1]} columns; FP8 takes a multiple of {FP8_BLOCK}")
    blocks = wide.reshape(len(wide), wide.shape[1] // FP8_BLOCK, FP8_BLOCK)
    amax = np.maximum(np.abs(blocks).max(axis=2), np.float32(1e-4))
    scales = amax * (np.float32(1) / np.float32(448))
    factors = np.float32(448) / amax
    if power:
        fraction, exponent = np.frexp(scales)  # scales = fraction * 2^exponent, fraction from 0.5 to below 1
        scales = np.ldexp(np.float32(1), np.where(fraction == 0.5, exponent - 1, exponent))
        factors = np.float32(1) / scales
    q = (blocks * factors[:, :, None]).astype(ml_dtypes.float8_e4m3fn)
    return q.reshape(wide.shape), scales


def dequantize_fp8(q: NDArray[Any], scales: NDArray[np.float32]) -> NDArray[np.float32]:
    """FP32(q) * scale of its block: the inverse of `quantize_fp8`; FP32 [rows, hidden]."""
    wide = q.astype(np.float32).reshape(*scales.shape, FP8_BLOCK) * scales[:, :, None]
    return wide.reshape(q.shape)


Quantizer = Callable[[Hidden], tuple[NDArray[Any], NDArray[np.float32]]]

QUANTIZERS: dict[str, Quantizer] = {
    "xccl": quantize_int8, "cann": quantize_int8_cann, "fp8": quantize_fp8,
    "fp8-ue8m0": functools.partial(quantize_fp8, power=True),
}  # fmt: skip
"""Rules for INT8 and FP8 rows, by name."""


def _widened(x: Hidden) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """`x` [rows, hidden] and its largest magnitudes [rows], in FP32; ConfigError for what cannot be quantized."""
    hidden_dtype(x.dtype)
    if x.ndim != 2 or x.shape[1] == 0:
        raise ConfigError(f"x has shape {x.shape}; it must be [rows, hidden] with hidden of at least 1")
    # A signaling NaN would warn before it is refused.
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float32)
        amax: NDArray[np.float32] = np.abs(wide).max(axis=1)
    _refuse_non_finite(amax, wide)
    return wide, amax


def _refuse_non_finite(amax: NDArray[np.float32], wide: NDArray[np.float32]) -> None:
    # The maximum of a row is NaN or infinite exactly when one of its elements is.
    bad = np.flatnonzero(~np.isfinite(amax))
    if bad.size:
        row = int(bad[0])
        column = int(np.flatnonzero(~np.isfinite(wide[row]))[0])
        raise ConfigError(f"x[{row}, {column}] is {wide[row, column]}; only finite hidden states can be quantized")


def dequantize_int8(q: NDArray[np.int8], scales: NDArray[np.float32]) -> NDArray[np.float32]:
    """FP32(q) * scale per row: `q` is INT8 [rows, hidden], `scales` FP32 [rows]; returns FP32 [rows, hidden]."""
    wide = q.astype(np.float32)
    wide *= scales[:, None]
    return wide


def round_to(acc: NDArray[np.float32], dtype: DTypeLike) -> Hidden:
    """Round FP32 values to BF16 or FP16, half to even; same shape as `acc`.

    Too large a value becomes an infinity, as in IEEE 754. Raises ConfigError for another `dtype` or if `acc` is not
    FP32.
    """
    if acc.dtype != np.float32:
        raise ConfigError(f"acc has dtype {acc.dtype.name}; only float32 is rounded")
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return acc.astype(hidden_dtype(dtype))
