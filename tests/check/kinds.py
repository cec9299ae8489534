"""Kinds of violations as sets, for tables that say what a bug or a trap may show itself as: ``RACE | WRONG``."""

from xccl_emu.check import verdict as kinds

RACE, TORN = frozenset({kinds.DATA_RACE}), frozenset({kinds.TORN_METADATA})
UNWRITTEN, WRONG = frozenset({kinds.UNWRITTEN_READ}), frozenset({kinds.WRONG_BITS})
LOCKED, LIVELOCK = frozenset({kinds.DEADLOCK}), frozenset({kinds.LIVELOCK})
FAILED, AREA = frozenset({kinds.ASSERTION}), frozenset({kinds.AREA_VIOLATION})
RIGHT = frozenset({kinds.MISSING_RIGHT})
UNDEFINED = frozenset({kinds.UNDEFINED})
EVENTS, LEFTOVER = frozenset({kinds.BAD_INSTRUCTION}), frozenset({kinds.LEFTOVER})
