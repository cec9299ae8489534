"""Compiles lowered functions; the only module of the language that imports Numba."""

from collections.abc import Callable, Sequence
from typing import Any

import numba
from numba import types
from numba.core import errors

STEP_SIGNATURE = types.int64(types.int64[::1], types.int64)
"""``step(state, base)``: usable as a first-class function."""


def is_disabled() -> bool:
    """Whether compilation is switched off (NUMBA_DISABLE_JIT)."""
    return bool(vars(numba.config)["DISABLE_JIT"])


def compile_step(functions: dict[str, Callable[..., Any]], helpers: Sequence[str], step: str) -> Callable[..., int]:
    """Compile a step function and the helpers that it calls, which share its globals.

    Raises:
        TypeError: if a value in it is not an integer, with Numba's message.
    """
    namespace = functions[step].__globals__
    # The "python" error model raises ZeroDivisionError where the "numpy" one would silently give 0.
    for name in helpers:
        namespace[name] = numba.njit(error_model="python")(functions[name])
    try:
        compiled: Callable[..., int] = numba.njit(STEP_SIGNATURE, cache=True, error_model="python")(functions[step])
    except errors.NumbaError as error:
        raise TypeError(str(error)) from error
    return compiled
