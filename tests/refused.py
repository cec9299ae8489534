"""Tests that are tables: calls that are refused, and what the error says."""

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

import pytest

from xccl_emu.base.errors import ConfigError


def refuses(
    call: Callable[..., object], *rows: tuple[Any, str]
) -> Callable[[Callable[[], None]], Callable[[Any, str], None]]:
    """Make a function that has nothing but its sentence a test of each row (arguments, message).

    Given the arguments, a dict by name, a tuple by position and anything else alone, `call` raises a ConfigError with a
    message that has this pattern.
    """

    def test_of(sentence: Callable[[], None]) -> Callable[[Any, str], None]:
        @pytest.mark.parametrize(("arguments", "message"), rows, ids=[message for _, message in rows])
        def test(arguments: Any, message: str) -> None:
            by_name = arguments if isinstance(arguments, dict) else {}
            alone = () if isinstance(arguments, dict) else (arguments,)
            with pytest.raises(ConfigError, match=message):
                call(*arguments if isinstance(arguments, tuple) else alone, **by_name)

        marks = [*test.pytestmark, *getattr(sentence, "pytestmark", [])]  # type: ignore[attr-defined]
        update_wrapper(test, sentence)
        del test.__wrapped__  # type: ignore[attr-defined]  # or pytest would take its parameters
        test.pytestmark = marks  # type: ignore[attr-defined]
        return test

    return test_of


def itself(call: Callable[[], object]) -> object:
    """For rows that have a call of their own."""
    return call()
