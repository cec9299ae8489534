"""Litmus tests of requests that signal behind what they copy.

Notation and homes as in `requests`; `Wx1>y2` copies 1 to x and then sets y to 2, `Wx1>y+2` adds 2 to it; x and y are on
one die.
"""

from dataclasses import dataclass

from .requests import ASKS
from .suite import Op, _op

COLUMNS = ("relaxed", "unordered")


@dataclass(frozen=True)
class SignalTest:
    """A test: what each operation asks for, if it is a signal, the die of each address, a letter for each column."""

    name: str
    program: tuple[tuple[Op, ...], ...]
    asks: tuple[tuple[str, ...], ...]
    signals: tuple[tuple[bool, ...], ...]
    asked: dict[str, int]
    home: dict[str, int]
    expected: str


def _parsed(token: str) -> list[tuple[Op, str, bool]]:
    """The operations of a token: of a request that signals what it copies, and the signal."""
    order, token = ASKS.get(token[-1], ""), token.rstrip("!~=")
    if token[0] != "W" or ">" not in token:
        return [(_op(token), order, False)]
    copied, signal = token.split(">")
    adds = signal[1] == "+"
    return [(_op(copied), order, False), (("a" if adds else "w", signal[0], int(signal[1 + adds :])), order, True)]


def _signal_test(name: str, program: str, asked: str, homes: str, expected: str) -> SignalTest:
    threads = [[op for token in thread.split() for op in _parsed(token)] for thread in program.split("|")]
    ops, asks, signals = (tuple(tuple(op[k] for op in thread) for thread in threads) for k in range(3))
    wanted = {key: int(value) for key, value in (item.split("=") for item in asked.split())}
    home = {address: int(die) for address, die in (item.split("@") for item in homes.split())}
    return SignalTest(name, ops, asks, signals, wanted, home, expected)


_ONE = "x@0 y@0"
_THREE = "x@0 y@0 z@0"
_FOUR = "x@0 y@0 z@0 u@0"

# name, program, outcome asked, die of each address, "relaxed unordered"
TESTS: tuple[SignalTest, ...] = (
    # Who sees the signal sees what its request has copied, whatever it asks for, and may see that before.
    _signal_test("MP", "Wx1>y1 | Ray Rbx", "1:a=1 1:b=0", _ONE, "FF"),
    _signal_test("MP, adds", "Wx1>y+1 | Ray Rbx", "1:a=1 1:b=0", _ONE, "FF"),
    _signal_test("MP, no order", "Wx1>y1~ | Ray Rbx", "1:a=1 1:b=0", _ONE, "FF"),
    _signal_test("MP, relaxed", "Wx1>y+1= | Ray Rbx", "1:a=1 1:b=0", _ONE, "FF"),
    _signal_test("MP, seen whole", "Wx1>y1 | Ray Rbx", "1:a=1 1:b=1", _ONE, "AA"),
    _signal_test("MP, data first", "Wx1>y1 | Rbx Ray", "1:b=1 1:a=0", _ONE, "AA"),
    # It is behind nothing else: not behind an earlier write, unless that is before a fence, or it is strong.
    _signal_test("MP, earlier write", "Wz1 Wx1>y1 | Ray Rbz", "1:a=1 1:b=0", _THREE, "AA"),
    _signal_test("MP, earlier write, adds", "Wz1 Wx1>y+1 | Ray Rbz", "1:a=1 1:b=0", _THREE, "AA"),
    _signal_test("MP, earlier, fence", "Wz1 S Wx1>y1 | Ray Rbz", "1:a=1 1:b=0", _THREE, "FF"),
    _signal_test("MP, earlier, fence, other die", "Wz1 S Wx1>y1 | Ray Rbz", "1:a=1 1:b=0", "x@0 y@0 z@2", "AA"),
    _signal_test("MP, earlier, quiet, other die", "Wz1 F Wx1>y1 | Ray Rbz", "1:a=1 1:b=0", "x@0 y@0 z@2", "FF"),
    _signal_test("MP, earlier, strong", "Wz1 Wx1>y1! | Ray Rbz", "1:a=1 1:b=0", _THREE, "FF"),
    _signal_test("MP, earlier without, strong", "Wz1~ Wx1>y1! | Ray Rbz", "1:a=1 1:b=0", _THREE, "AA"),
    _signal_test("MP, earlier strong", "Wz1! Wx1>y1 | Ray Rbz", "1:a=1 1:b=0", _THREE, "AA"),
    # Nothing is behind it that a fence or its own order does not put there.
    _signal_test("MP, later write", "Wx1>y1 Wz1 | Raz Rbx", "1:a=1 1:b=0", _THREE, "AA"),
    _signal_test("MP, later write, signal", "Wx1>y1 Wz1 | Raz Rby", "1:a=1 1:b=0", _THREE, "AA"),
    _signal_test("MP, later strong", "Wx1>y1 Wz1! | Raz Rby", "1:a=1 1:b=0", _THREE, "FF"),
    _signal_test("MP, later strong, it without", "Wx1>y1~ Wz1! | Raz Rby", "1:a=1 1:b=0", _THREE, "AA"),
    _signal_test("MP, later, fence", "Wx1>y1~ S Wz1 | Raz Rby", "1:a=1 1:b=0", _THREE, "FF"),
    # Two of one core: each signal has its own data only.
    _signal_test("two, signals", "Wx1>y1 Wz1>u1 | Rau Rby", "1:a=1 1:b=0", _FOUR, "AA"),
    _signal_test("two, signals in order", "Wx1>y1 Wz1>u1 | Ray Rbu", "1:a=1 1:b=0", _FOUR, "AA"),
    _signal_test("two, data of the other", "Wx1>y1 Wz1>u1 | Rau Rbx", "1:a=1 1:b=0", _FOUR, "AA"),
    _signal_test("two, its own data", "Wx1>y1 Wz1>u1 | Rau Rbz", "1:a=1 1:b=0", _FOUR, "FF"),
    _signal_test("two, first's own data", "Wx1>y1 Wz1>u1 | Ray Rbx", "1:a=1 1:b=0", _FOUR, "FF"),
    _signal_test("two, strong", "Wx1>y1! Wz1>u1! | Rau Rby", "1:a=1 1:b=0", _FOUR, "FF"),
    _signal_test("two, fence", "Wx1>y1 S Wz1>u1 | Rau Rbx", "1:a=1 1:b=0", _FOUR, "FF"),
    # One word for two signals: `relaxed` keeps their order, additions count them.
    _signal_test("one word, set", "Wx1>y1 Wz1>y2 | Ray Rbx", "1:a=2 1:b=0", _THREE, "FA"),
    _signal_test("one word, counted", "Wx1>y+1 Wz1>y+1 | Ray Rbx Rcz", "1:a=2 1:b=1 1:c=0", _THREE, "FF"),
    _signal_test("one word, counted, first", "Wx1>y+1 Wz1>y+1 | Ray Rbx", "1:a=1 1:b=0", _THREE, "FA"),
    _signal_test("one word, written over", "Wx1>y1 Wy2 | Ray Rbx", "1:a=2 1:b=0", _ONE, "FA"),
    _signal_test("two cores, counted", "Wx1>y+1 | Wz1>y+1 | Ray Rbx Rcz", "2:a=2 2:b=1 2:c=0", _THREE, "FF"),
    _signal_test("two cores, one counted", "Wx1>y+1 | Wz1>y+1 | Ray Rbx", "2:a=1 2:b=0", _THREE, "AA"),
    # It is no wait for its own core, and is passed on.
    _signal_test("SB", "Wx1>y1 Raz | Wz1>u1 Rbx", "0:a=0 1:b=0", "x@0 y@0 z@0 u@0", "AA"),
    _signal_test("relay", "Wx1>y1 | Ray Wz1 | Rbz Rcx", "1:a=1 2:b=1 2:c=0", "x@0 y@0 z@2", "FF"),
    _signal_test("relay by a signal", "Wx1>y1 | Ray Wz1>u1 | Rbu Rcx", "1:a=1 2:b=1 2:c=0", "x@0 y@0 z@2 u@2", "FF"),
)
