"""What no batch may be: of [4, 64] in BF16 with 2 choices of 6 slots for each token, one thing at a time is wrong."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Change = Callable[[Any], Any]
NAN, INF = float("nan"), float("inf")


def changed(arrays: list[Any], rank: int, change: Change) -> list[Any]:
    """The arrays of all ranks, that of one of them changed."""
    return [change(array.copy()) if i == rank else array for i, array in enumerate(arrays)]


def put(index: Any, value: Any) -> Change:
    """Puts a value into an array."""

    def change(array: Any) -> Any:
        array[index] = value
        return array

    return change


REFUSED: list[tuple[str, Change, str]] = [
    ("tokens", lambda x: x.astype(np.float32), r": \[4, 64\] float32, must be \[tokens, 64\] bf16"),
    ("tokens", lambda x: x.astype(np.float16), r": \[4, 64\] float16, must be"),
    ("tokens", lambda x: x[:, :32], r": \[4, 32\] bfloat16, must be \[tokens, 64\] bf16"),
    ("tokens", lambda x: x[0], r": \[64\] bfloat16, must be"),
    ("tokens", lambda x: np.concatenate([x, x]), ": 8 exceed tokens_max=4"),
    ("tokens", put((1, 5), NAN), ", token 1, column 5: nan cannot be quantized"),
    ("tokens", put((3, 63), INF), ", token 3, column 63: inf cannot be quantized"),
    ("tokens", put((0, 0), -INF), ", token 0, column 0: -inf cannot be quantized"),
    ("topk", lambda t: t.astype(np.float32), r": \[4, 2\] float32, must be \[4, 2\] integers"),
    ("topk", lambda t: t[:2], r": \[2, 2\] int32, must be \[4, 2\] integers"),
    ("topk", lambda t: t[:, :1], r": \[4, 1\] int32, must be \[4, 2\] integers"),
    ("topk", lambda t: [[0, 1], [0]], ": is no array"),
    ("topk", put((2, 1), 6), ", token 2: 6 must be -1 or a slot below 6"),
    ("topk", put((0, 0), -2), ", token 0: -2 must be -1 or a slot below 6"),
    ("topk", put((1, slice(None)), 3), ", token 1: expert slot 3 is chosen twice"),
]
EACH = pytest.mark.parametrize(("part", "change", "message"), REFUSED)
"""The part that is wrong, what makes it so, and the message behind the part and its rank."""
