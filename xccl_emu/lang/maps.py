"""What `requests.v_map` does to each element: a number that says which function, on what types, rounded how.

    RELU = maps.function("max", maps.FP16, scalar=True)
    ...
    yield lang.v_map(0, 0, count, RELU, 0)
"""

from xccl_emu.base.errors import ConfigError
from xccl_emu.lang.requests import BF16, FP16, FP32

INT8, INT16, INT32, UINT8, INT64 = range(3, 8)
"""Element types after `BF16`, `FP16` and `FP32`; arithmetic on them wraps around."""
DTYPES = ("bf16", "fp16", "fp32", "int8", "int16", "int32", "uint8", "int64")
ELEMENT_BYTES = (2, 2, 4, 1, 2, 4, 1, 8)

KINDS = (
    "copy", "fill", "index", "abs", "cast", "add", "sub", "mul", "div", "max", "min", "and", "or", "sum", "most",
    "least", "most_at", "least_at", "less", "equal", "keep", "spread", "exp", "sort",
)  # fmt: skip
"""The functions; ``copy`` is no function, but what `requests.v_copy` asks for.

From ``sum`` to ``least_at`` one result comes of all elements; ``most_at`` and ``least_at`` say after the largest or
smallest one where the first of them is, as an integer of an element's size.  ``less`` and ``equal`` leave a bit for
each element, the first one lowest: is it so against the scalar?  ``keep`` reads such bits as its second operand, and
leaves the element or 0.  ``spread`` makes a granule of each element.  ``sort`` has integers of 4 bytes as its second
operand, and leaves 8 bytes for each element, the largest first and of equal ones the first: the element, with zeros up
to 4 bytes, and its integer.
"""
(
    MAP_COPY, MAP_FILL, MAP_INDEX, MAP_ABS, MAP_CAST, MAP_ADD, MAP_SUB, MAP_MUL, MAP_DIV, MAP_MAX, MAP_MIN, MAP_AND,
    MAP_OR, MAP_SUM, MAP_MOST, MAP_LEAST, MAP_MOST_AT, MAP_LEAST_AT,
    MAP_LESS, MAP_EQUAL, MAP_KEEP, MAP_SPREAD, MAP_EXP, MAP_SORT,
) = range(len(KINDS))  # fmt: skip

ROUNDINGS = ("none", "rint", "floor", "ceil", "away", "trunc", "odd")
"""How a cast rounds: not at all or to the nearest, half to even; down; up; half away from zero; towards zero; to the
neighbour whose last bit is set, where it is not exact."""
(ROUND_NONE, ROUND_RINT, ROUND_FLOOR, ROUND_CEIL, ROUND_AWAY, ROUND_TRUNC, ROUND_ODD) = range(len(ROUNDINGS))

DTYPE_SHIFT, TO_SHIFT, ROUNDING_SHIFT, SCALAR_SHIFT, KIND_SHIFT = 4, 7, 10, 13, 14
"""Where in the number the element type is, a cast's result type, its rounding, whether the other is a scalar, and
the high bit of the function, whose low bits are the first four."""

_OF_TWO = KINDS[MAP_ADD : MAP_OR + 1]
_ARITHMETIC = (FP16, FP32, INT16, INT32)
_INTEGERS = (INT16, INT32)
_ROUNDED = range(ROUND_RINT, ROUND_TRUNC + 1)
_ANY = (ROUND_NONE, *_ROUNDED)
_EXACT = [(BF16, FP32), (FP16, FP32), (INT8, FP16), (UINT8, FP16), (INT16, FP32), (INT32, INT64)]
_TO_WHOLE = [(FP32, FP32), (FP32, INT16), (FP32, INT32), (FP32, INT64), (FP16, INT16), (FP16, INT32), (BF16, INT32)]
_TO_NEAR = [(FP32, BF16), (INT16, FP16), (INT32, FP16), (INT32, FP32), (FP16, INT8), (FP16, UINT8)]
CASTS = {
    **dict.fromkeys([*_EXACT, (INT32, INT16), (INT64, INT32)], (ROUND_NONE,)),
    **dict.fromkeys([*_TO_WHOLE, (INT64, FP32)], tuple(_ROUNDED)),
    **dict.fromkeys(_TO_NEAR, _ANY),
    (FP32, FP16): (*_ANY, ROUND_ODD),
}
"""The roundings that a cast may have, by the type of what is cast and of what comes out."""

TYPES = {
    "fill": (BF16, *_ARITHMETIC, INT8, INT64), "index": _ARITHMETIC, "abs": _ARITHMETIC,
    "and": _INTEGERS, "or": _INTEGERS, "div": (FP16, FP32),
    **dict.fromkeys(("sum", "most", "least", "most_at", "least_at"), (FP16, FP32, INT32)),
    **dict.fromkeys(("add", "sub", "mul", "max", "min"), _ARITHMETIC),
    **dict.fromkeys(("less", "equal"), (FP16, FP32, INT32)),
    **dict.fromkeys(("keep", "spread", "exp", "sort"), (FP16, FP32)),
}  # fmt: skip
"""The element types that a function has."""


def function(kind: str, dtype: int, to: int = 0, rounding: int = ROUND_NONE, scalar: bool = False) -> int:
    """The number of a function.

    Parameters
    ----------
    kind: of `KINDS`, but for ``copy``.
    dtype: the type of its elements, of `BF16`, `FP16`, `FP32`, `INT8`, `INT16`, `INT32`, `UINT8` and `INT64`.
    to: of a cast: the type of what comes out.
    rounding: of a cast: an index of `ROUNDINGS`.
    scalar: of those with two operands: is the other one a scalar?

    Raises ConfigError for one that there is not.
    """
    number = _number(kind, dtype, to, rounding, scalar) if kind in KINDS else -1
    if number not in KNOWN:
        asked = f"{kind!r} of dtype={dtype!r}, to={to!r}, rounding={rounding!r}, scalar={scalar!r}"
        raise ConfigError(f"{asked}: no such function")
    return number


def _number(kind: str, dtype: int, to: int = 0, rounding: int = 0, scalar: bool = False) -> int:
    operands = dtype << DTYPE_SHIFT | to << TO_SHIFT | rounding << ROUNDING_SHIFT | scalar << SCALAR_SHIFT
    return KINDS.index(kind) & 15 | KINDS.index(kind) >> 4 << KIND_SHIFT | operands


def text(number: int) -> str:
    """A function as reports name it, for example ``cast fp32 int8``."""
    kind = KINDS[number & 15 | number >> KIND_SHIFT << 4]
    dtype, to = DTYPES[number >> DTYPE_SHIFT & 7], DTYPES[number >> TO_SHIFT & 7]
    return f"{kind} {dtype} {to}" if kind == "cast" else f"{kind} {dtype}"


KNOWN = frozenset(
    _number(kind, dtype, scalar=scalar)
    for kind, dtypes in TYPES.items()
    for dtype in dtypes
    for scalar in ((True,) if kind in ("less", "equal") else (False, True) if kind in _OF_TWO else (False,))
) | frozenset(
    _number("cast", source, to, rounding) for (source, to), roundings in CASTS.items() for rounding in roundings
)
"""The number of each function that there is."""
