"""What calls are given, checked before anything changes: numbers, offsets, and one item for each of something."""

import operator
from collections.abc import Collection
from typing import Any

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import must_be_one_of
from xccl_emu.kernels.experts.counts import FIELD_BYTES
from xccl_emu.machine.spec import whole


def number_in(name: str, value: Any, low: int, high: int) -> int:
    """The value as a Python integer (a NumPy one would overflow later).

    Raises ConfigError for what is no whole number from ``low`` to ``high``, and for True and False.
    """
    if not isinstance(value, bool):
        try:
            number = operator.index(value)
        except TypeError:
            number = low - 1
        if low <= number <= high:
            return number
    must = f"a whole number, {low} to {high}" if low <= high else "one of those that there are, and there are none"
    raise ConfigError(name, value, f"must be {must}")


def integer(name: str, value: Any) -> int:
    """The value as a Python integer of 64 bits; raises ConfigError as `number_in` does."""
    return number_in(name, value, -(1 << 63), (1 << 63) - 1)


def one_of(name: str, value: Any, known: Collection[str]) -> str:
    """The value, which is one of some names; ConfigError for anything else, also for what cannot be compared."""
    if isinstance(value, str) and value in known:
        return value
    raise ConfigError(name, value, must_be_one_of(value, known))


def index_of(name: str, value: Any, count: int) -> int:
    """Return an index below ``count``; ConfigError for none of them, also for a negative one."""
    return number_in(name, value, 0, count - 1)


def offset_in_area(name: str, value: Any) -> int:
    """Return where in an area regions or fields begin; ConfigError for what is no place for one."""
    offset = whole(name, value)
    if offset < 0 or offset % FIELD_BYTES:
        raise ConfigError(name, offset, f"must be a multiple of {FIELD_BYTES} and not negative")
    return offset


def listed(name: str, given: Any, must: str) -> list[Any]:
    """The items of anything that can be gone through, a generator too; ConfigError, saying what it must be."""
    try:
        return list(given)
    except TypeError as error:
        raise ConfigError(name, given, f"must be {must}") from error


def one_for_each(name: str, given: Any, count: int, owners: str) -> list[Any]:
    """Return an array for each of ``count`` ``owners`` ("ranks"); ConfigError for another number, or for no list."""
    items = listed(name, given, f"{count} arrays, for {count} {owners}")
    if len(items) != count:
        raise ConfigError(f"{name}: {len(items)} arrays for {count} {owners}")
    return items
