"""How many tokens each rank of a case has, as its user says it."""

import operator
from collections.abc import Iterable
from typing import Any

from xccl_emu.base.errors import ConfigError
from xccl_emu.protocol.case import SIZE_MAX

TOKENS_HELP = 'Tokens of each rank: 2, or "2,0" for each its own.'
EXAMPLES = (1, 3, "2,0", "0,2", "1,3", "0,1,2", "3,0,0")
"""Some of them with nothing to do."""


def as_text(given: Any) -> Any:
    """Numbers with commas between them of a sequence; anything else as it is."""
    if isinstance(given, int | str) or not isinstance(given, Iterable):
        return given
    return ",".join(map(str, given))


def tokens_of(given: Any, ranks: int, none: bool = False) -> tuple[int, ...]:
    """Tokens of each rank; ConfigError for what says something else, or no token at all unless ``none`` are right."""
    try:
        parts = given.split(",") if isinstance(given, str) else given if isinstance(given, Iterable) else [given]
        counts = tuple(int(part) if isinstance(part, str) else operator.index(part) for part in parts)
    except (TypeError, ValueError) as error:
        raise ConfigError("tokens", given, "must be a whole number, or one for each rank") from error
    if len(counts) == 1:
        counts *= ranks
    if len(counts) != ranks or min(counts) < 0 or (max(counts) == 0 and not none):
        raise ConfigError("tokens", given, f"must be one number or {ranks}, none negative and one above 0")
    if max(counts) > SIZE_MAX:
        raise ConfigError("tokens", max(counts), f"must be at most {SIZE_MAX}")
    return counts
