"""Litmus tests of requests that signal behind what they copy.

Notation and homes as in `suite`; a request and its signal go to one die.
"""

from functools import partial

from .suite import Litmus, litmus

COLUMNS = ("relaxed", "unordered")
_test = partial(litmus, COLUMNS)

_ONE = "x@0 y@0"
_THREE = "x@0 y@0 z@0"
_FOUR = "x@0 y@0 z@0 u@0"

# name, program, outcome asked, die of each address, "relaxed unordered"
TESTS: tuple[Litmus, ...] = (
    # Who sees the signal sees what its request has copied, whatever it asks for, and may see that before.
    _test("MP", "Wx1>y1 | Ray Rbx", "1:a=1 1:b=0", _ONE, "FF"),
    _test("MP, adds", "Wx1>y+1 | Ray Rbx", "1:a=1 1:b=0", _ONE, "FF"),
    _test("MP, no order", "Wx1>y1~ | Ray Rbx", "1:a=1 1:b=0", _ONE, "FF"),
    _test("MP, relaxed", "Wx1>y+1= | Ray Rbx", "1:a=1 1:b=0", _ONE, "FF"),
    _test("MP, seen whole", "Wx1>y1 | Ray Rbx", "1:a=1 1:b=1", _ONE, "AA"),
    _test("MP, data first", "Wx1>y1 | Rbx Ray", "1:b=1 1:a=0", _ONE, "AA"),
    # It is behind nothing else: not behind an earlier write, unless that is before a fence, or it is strong.
    _test("MP, earlier write", "Wz1 Wx1>y1 | Ray Rbz", "1:a=1 1:b=0", _THREE, "AA"),
    _test("MP, earlier write, adds", "Wz1 Wx1>y+1 | Ray Rbz", "1:a=1 1:b=0", _THREE, "AA"),
    _test("MP, earlier, fence", "Wz1 S Wx1>y1 | Ray Rbz", "1:a=1 1:b=0", _THREE, "FF"),
    _test("MP, earlier, fence, other die", "Wz1 S Wx1>y1 | Ray Rbz", "1:a=1 1:b=0", "x@0 y@0 z@2", "AA"),
    _test("MP, earlier, quiet, other die", "Wz1 F Wx1>y1 | Ray Rbz", "1:a=1 1:b=0", "x@0 y@0 z@2", "FF"),
    _test("MP, earlier, strong", "Wz1 Wx1>y1! | Ray Rbz", "1:a=1 1:b=0", _THREE, "FF"),
    _test("MP, earlier without, strong", "Wz1~ Wx1>y1! | Ray Rbz", "1:a=1 1:b=0", _THREE, "AA"),
    _test("MP, earlier strong", "Wz1! Wx1>y1 | Ray Rbz", "1:a=1 1:b=0", _THREE, "AA"),
    # Nothing is behind it that a fence or its own order does not put there.
    _test("MP, later write", "Wx1>y1 Wz1 | Raz Rbx", "1:a=1 1:b=0", _THREE, "AA"),
    _test("MP, later write, signal", "Wx1>y1 Wz1 | Raz Rby", "1:a=1 1:b=0", _THREE, "AA"),
    _test("MP, later strong", "Wx1>y1 Wz1! | Raz Rby", "1:a=1 1:b=0", _THREE, "FF"),
    _test("MP, later strong, it without", "Wx1>y1~ Wz1! | Raz Rby", "1:a=1 1:b=0", _THREE, "AA"),
    _test("MP, later, fence", "Wx1>y1~ S Wz1 | Raz Rby", "1:a=1 1:b=0", _THREE, "FF"),
    # Two of one core: each signal has its own data only.
    _test("two, signals", "Wx1>y1 Wz1>u1 | Rau Rby", "1:a=1 1:b=0", _FOUR, "AA"),
    _test("two, signals in order", "Wx1>y1 Wz1>u1 | Ray Rbu", "1:a=1 1:b=0", _FOUR, "AA"),
    _test("two, data of the other", "Wx1>y1 Wz1>u1 | Rau Rbx", "1:a=1 1:b=0", _FOUR, "AA"),
    _test("two, its own data", "Wx1>y1 Wz1>u1 | Rau Rbz", "1:a=1 1:b=0", _FOUR, "FF"),
    _test("two, first's own data", "Wx1>y1 Wz1>u1 | Ray Rbx", "1:a=1 1:b=0", _FOUR, "FF"),
    _test("two, strong", "Wx1>y1! Wz1>u1! | Rau Rby", "1:a=1 1:b=0", _FOUR, "FF"),
    _test("two, fence", "Wx1>y1 S Wz1>u1 | Rau Rbx", "1:a=1 1:b=0", _FOUR, "FF"),
    # One word for two signals: `relaxed` keeps their order, additions count them.
    _test("one word, set", "Wx1>y1 Wz1>y2 | Ray Rbx", "1:a=2 1:b=0", _THREE, "FA"),
    _test("one word, counted", "Wx1>y+1 Wz1>y+1 | Ray Rbx Rcz", "1:a=2 1:b=1 1:c=0", _THREE, "FF"),
    _test("one word, counted, first", "Wx1>y+1 Wz1>y+1 | Ray Rbx", "1:a=1 1:b=0", _THREE, "FA"),
    _test("one word, written over", "Wx1>y1 Wy2 | Ray Rbx", "1:a=2 1:b=0", _ONE, "FA"),
    _test("two cores, counted", "Wx1>y+1 | Wz1>y+1 | Ray Rbx Rcz", "2:a=2 2:b=1 2:c=0", _THREE, "FF"),
    _test("two cores, one counted", "Wx1>y+1 | Wz1>y+1 | Ray Rbx", "2:a=1 2:b=0", _THREE, "AA"),
    # It is no wait for its own core, and is passed on.
    _test("SB", "Wx1>y1 Raz | Wz1>u1 Rbx", "0:a=0 1:b=0", "x@0 y@0 z@0 u@0", "AA"),
    _test("relay", "Wx1>y1 | Ray Wz1 | Rbz Rcx", "1:a=1 2:b=1 2:c=0", "x@0 y@0 z@2", "FF"),
    _test("relay by a signal", "Wx1>y1 | Ray Wz1>u1 | Rbu Rcx", "1:a=1 2:b=1 2:c=0", "x@0 y@0 z@2 u@2", "FF"),
)
