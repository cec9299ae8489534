"""Litmus tests of requests that ask for an order.

Notation and homes as in `suite`; each expectation is a letter for each of COLUMNS: `sc` and `fifo` keep all in order,
whatever is asked for.
"""

from functools import partial

from .suite import Litmus, litmus

COLUMNS = ("relaxed", "unordered")
_test = partial(litmus, COLUMNS)

# name, program, outcome asked, die of each address, "relaxed unordered"
TESTS: tuple[Litmus, ...] = (
    # A strong flag is behind relaxed and strong data of its core and die, not behind data without an order.
    _test("MP, strong flag", "Wx1 Wy1! | Ray Rbx", "1:a=1 1:b=0", "x@0 y@0", "FF"),
    _test("MP, relaxed data", "Wx1= Wy1! | Ray Rbx", "1:a=1 1:b=0", "x@0 y@0", "FF"),
    _test("MP, strong data", "Wx1! Wy1! | Ray Rbx", "1:a=1 1:b=0", "x@0 y@0", "FF"),
    _test("MP, data without", "Wx1~ Wy1! | Ray Rbx", "1:a=1 1:b=0", "x@0 y@0", "AA"),
    _test("MP, only data strong", "Wx1! Wy1 | Ray Rbx", "1:a=1 1:b=0", "x@0 y@0", "AA"),
    _test("MP, flag relaxed", "Wx1 Wy1= | Ray Rbx", "1:a=1 1:b=0", "x@0 y@0", "AA"),
    _test("MP, flag without", "Wx1! Wy1~ | Ray Rbx", "1:a=1 1:b=0", "x@0 y@0", "AA"),
    _test("MP, strong, two dies", "Wx1 Wy1! | Ray Rbx", "1:a=1 1:b=0", "x@0 y@2", "AA"),
    # A strong write is no fence: what comes behind it does not wait.
    _test("MP3, strong between", "Wx1 Wz1! Wy1 | Ray Rbx", "1:a=1 1:b=0", "x@0 y@0 z@0", "AA"),
    _test("MP3, fence between", "Wx1 S Wz1 Wy1 | Ray Rbx", "1:a=1 1:b=0", "x@0 y@0 z@0", "FF"),
    _test("MP3, two strong", "Wx1 Wz1! Wy1! | Ray Rbx", "1:a=1 1:b=0", "x@0 y@0 z@0", "FF"),
    _test("MP3, strong elsewhere", "Wx1 Wz1! Wy1! | Ray Rbx", "1:a=1 1:b=0", "x@0 y@0 z@2", "FF"),
    _test("MP3, one without", "Wx1~ Wz1 Wy1! | Ray Rbz", "1:a=1 1:b=0", "x@0 y@0 z@0", "FF"),
    # Fences and quiets order what asks for nothing too.
    _test("MP+s, no orders", "Wx1~ S Wy1~ | Ray Rbx", "1:a=1 1:b=0", "x@0 y@0", "FF"),
    _test("MP+f, no orders", "Wx1~ F Wy1~ | Ray Rbx", "1:a=1 1:b=0", "x@0 y@2", "FF"),
    # One address: without an order a granule is not kept either.
    _test("CoWW", "Wx1 Wx2", "x=1", "x@0", "FA"),
    _test("CoWW, first without", "Wx1~ Wx2", "x=1", "x@0", "AA"),
    _test("CoWW, second without", "Wx1 Wx2~", "x=1", "x@0", "AA"),
    _test("CoWW, strong", "Wx1 Wx2!", "x=1", "x@0", "FF"),
    _test("CoWW, first strong", "Wx1! Wx2", "x=1", "x@0", "FA"),
    _test("CoWW, relaxed", "Wx1= Wx2=", "x=1", "x@0", "FA"),
    _test("CoWW, strong over without", "Wx1~ Wx2!", "x=1", "x@0", "AA"),
    _test("CoTail, strong", "Wx1! Wx2! | Rax Rbx", "1:a=2 1:b=1", "x@0", "FF"),
    _test("CoTail, without", "Wx1~ Wx2~ | Rax Rbx", "1:a=2 1:b=1", "x@0", "AA"),
    # Strong writes of two cores are in two queues.
    _test("2+2W, strong", "Wx1 Wy2! | Wy1 Wx2!", "x=1 y=1", "x@0 y@0", "FF"),
    _test("2+2W, one side", "Wx1 Wy2! | Wy1 Wx2", "x=1 y=1", "x@0 y@0", "AA"),
    _test("2+2W, two dies", "Wx1 Wy2! | Wy1 Wx2!", "x=1 y=1", "x@0 y@2", "AA"),
    _test("S, strong", "Wx2 Wy1! | Ray Wx1!", "1:a=1 x=2", "x@0 y@0", "FF"),
    # It does not wait for anything to be visible before the next read.
    _test("SB, strong", "Wx1! Ray | Wy1! Rbx", "0:a=0 1:b=0", "x@0 y@0", "AA"),
    _test("R, strong", "Wx1 Wy1! | Wy2! Rax", "1:a=0 y=2", "x@0 y@0", "AA"),
    # A relay over a second die.
    _test("ISA2, strong", "Wx1 Wy1! | Ray Wz1! | Rbz Rcx", "1:a=1 2:b=1 2:c=0", "x@0 y@0 z@2", "FF"),
    _test("ISA2, strong, two dies", "Wx1 Wy1! | Ray Wz1! | Rbz Rcx", "1:a=1 2:b=1 2:c=0", "x@0 y@2 z@0", "AA"),
    # Atomics.
    _test("MP, strong atomic", "Wx1 Uay1! | Ray Rbx", "1:a=1 1:b=0", "x@0 y@0", "FF"),
    _test("MP, atomic without", "Wx1 Uay1~ | Ray Rbx", "1:a=1 1:b=0", "x@0 y@0", "AA"),
    _test("MP, strong atomic, data without", "Wx1~ Uay1! | Ray Rbx", "1:a=1 1:b=0", "x@0 y@0", "AA"),
    _test("W+U, strong", "Wx5 Uax1!", "0:a=0", "x@0", "FF"),
    _test("W+U", "Wx5 Uax1", "0:a=0", "x@0", "FA"),
    _test("W+U, without", "Wx5 Uax1~", "0:a=0", "x@0", "AA"),
    _test("W+U, write without", "Wx5~ Uax1", "0:a=0", "x@0", "AA"),
    _test("W+s+U, without", "Wx5~ S Uax1~", "0:a=0", "x@0", "FF"),
    # Compare-and-swap: one of two wins, it comes behind a fence, it is no fence, and it may overtake as atomics do.
    _test("C+C, both win", "Cax0>1 | Cbx0>2", "0:a=0 1:b=0", "x@0", "FF"),
    _test("C+C, chain", "Cax0>1 | Cbx1>2", "x=2 0:a=0 1:b=1", "x@0", "AA"),
    _test("C+C, last", "Cax0>1 | Cbx1>2", "x=1 1:b=1", "x@0", "FF"),
    _test("C, fails", "Wx3 | Cax1>2", "1:a=3 x=2", "x@0", "FF"),
    _test("C+W", "Cax0>1 | Wx2", "0:a=0 x=1", "x@0", "FF"),
    _test("W+C", "Wx1 Cax1>2", "0:a=0", "x@0", "FA"),
    _test("W+C, lost", "Wx1 Cax1>2", "x=1", "x@0", "FA"),
    _test("W+C, strong", "Wx1 Cax1>2!", "0:a=0", "x@0", "FF"),
    _test("W+s+C", "Wx1 S Cax1>2", "0:a=0", "x@0", "FF"),
    _test("MP, swapped flag", "Wx1 Cay0>1 | Rby Rcx", "1:b=1 1:c=0", "x@0 y@0", "AA"),
    _test("MP+s, swapped flag", "Wx1 S Cay0>1 | Rby Rcx", "1:b=1 1:c=0", "x@0 y@0", "FF"),
    _test("MP, strong swapped flag", "Wx1 Cay0>1! | Rby Rcx", "1:b=1 1:c=0", "x@0 y@0", "FF"),
    _test("lock", "Cax0>1 Wy1 | Cbx0>1 Wy2", "0:a=0 1:b=0", "x@0 y@0", "FF"),
    _test("SB, swaps", "Cax0>1 Rcy | Cby0>1 Rdx", "0:c=0 1:d=0", "x@0 y@0", "FF"),
)
