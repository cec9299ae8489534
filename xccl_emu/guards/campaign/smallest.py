"""The smallest programs, all of them: two requests of one core, one of each of two, or two of one and one of another.

A request that is new to the machine is one more line of `interpreter.ALPHABET`.  Programs by hand, that show what two
requests do not, come first.  Memory and data buffers hold other values at each place, so a copy shows where it comes
from; where two requests add, sums carry from one half of a word to the other.
"""

from typing import Any

from xccl_emu.guards.campaign.generate import ProgramCase
from xccl_emu.guards.campaign.interpreter import ALPHABET
from xccl_emu.guards.campaign.programs import DATA, Instruction, Small, program

BY_HAND: tuple[tuple[str, dict[str, Any]], ...] = (
    # two cores of a die write to another die; what the second writes keeps its turn, and the third reads both
    ("store 1.0 1; store 0.0 1 | ge 0.0 1; out m1.0 1 2; quiet; store 0.4 1 | ge 0.4 1; load_named 1.0; load m1.0",
     {"cores_per_die": 2}),
    # two granules become visible at once
    ("put m0.4 1; put m0.0 1 | ge m0.0 1; load_named m0.4", {"atomic_bytes": 64}),
    # a line that is cached, and the same bytes past the cache
    ("store 0.0 5; atomic_taken 0.1 1", {"scalar_cache": 5}),
    ("store 0.0 5; in 0.0 8; set 1; wait 1; ub_load 0 8", {"scalar_cache": 5}),
    # fields: a copy under way that reads one, two writes and a poll for the first, a value that may have passed by
    ("dma 0.0 1.4; ge 0.0 1; wait 4 | put 0.0 1", {}),
    ("put 0.0 1; put 0.0 2 | ge 0.0 1; load 0.2", {}),
    ("load 0.1; put 1.0 1; eq 0.0 1 | ge 1.0 1; put 0.0 1; load_named 1.4; put 0.0 2 | put 1.4 1", {}),
    # a window of flags that another core writes
    ("in 0.0 8; set 1; wait 1; ub_load 0 8 | put 0.0 1", {"flags": True}),
    # lines: one that is cached twice, an old one that is cached, and the second half of one that is polled
    ("store 0.0 5 | store 0.4 1", {"scalar_cache": 5}),
    ("load 0.4; ge 1.4 1; load 0.0 | put 0.0 5; quiet; put 1.4 1", {"scalar_cache": 5}),
    ("line m0.0 0 2; ub_load 0 28 | put m0.4 1", {"cores_per_die": 2}),
)  # fmt: skip
"""Programs of cores, divided by ``|``, and what is not as usual of their pods."""

PAIRS = len(BY_HAND) + 2 * len(ALPHABET) ** 2
"""Programs by hand, and all of two requests."""
TOTAL = PAIRS + len(ALPHABET) ** 3

_ADDS = ("add", "add_out", "atomic_taken")
_CARRIES = 0x7FFF_FFFF_FFFF_FFFF
_MEMORY = {DATA | k: 0x1_0000_0003 * (k + 2) for k in range(4)} | {12: 0x7000_0000_0009}


def smallest(number: int) -> ProgramCase:
    """The program of a number below `TOTAL`."""
    if number < len(BY_HAND):
        text, more = BY_HAND[number]
        return ProgramCase(Small(_programs(text), dies=2, filled=True, **more))
    programs = _programs(_enumerated(number - len(BY_HAND)))
    adds = sum(one.name in _ADDS or (one.name == "signal" and one.c > 0) for each in programs for one in each)
    memory = _MEMORY | ({0: _CARRIES} if adds > 1 else {})
    return ProgramCase(Small(programs, dies=2, memory=memory, filled=True))


def _programs(text: str) -> tuple[tuple[Instruction, ...], ...]:
    return tuple(map(program, text.split("|")))


def _enumerated(number: int) -> str:
    """Two requests of one core, one of each of two, or two of one and one of another."""
    n = len(ALPHABET)
    if number >= 2 * n * n:
        pair, z = divmod(number - 2 * n * n, n)
        return f"{ALPHABET[pair // n]}; {ALPHABET[pair % n]} | {ALPHABET[z]}"
    x, y = (ALPHABET[k] for k in divmod(number % (n * n), n))
    return f"{x}; {y}" if number < n * n else f"{x} | {y}"
