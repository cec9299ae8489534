"""Litmus tests of what a memory order keeps of writes to one address, and what fences and atomics bring back of it.

Notation and homes as in `suite`; each expectation is a letter for each of COLUMNS.  Threads are on dies of their own.
"""

from functools import partial

from .suite import Litmus, litmus

COLUMNS = ("sc", "fifo", "relaxed", "unordered")
_test = partial(litmus, COLUMNS)

# name, program, outcome asked, die of each address, "sc fifo relaxed unordered"
TESTS: tuple[Litmus, ...] = (
    # Two writes of a thread to one address: the older one may overwrite the newer.
    _test("CoWW", "Wx1 Wx2", "x=1", "x@0", "FFFA"),
    _test("CoWW+f", "Wx1 F Wx2", "x=1", "x@0", "FFFF"),
    _test("CoWW+s", "Wx1 S Wx2", "x=1", "x@0", "FFFF"),
    _test("CoWW+s before", "S Wx1 Wx2", "x=1", "x@0", "FFFA"),
    _test("CoWW3+s, first", "Wx1 S Wx2 Wx3", "x=1", "x@0", "FFFF"),
    _test("CoWW3+s, second", "Wx1 S Wx2 Wx3", "x=2", "x@0", "FFFA"),
    _test("CoWW+other", "Wx1 Wy1 Wx2", "x=1", "x@0 y@1", "FFFA"),
    # Seen from outside: a counter that is written steps back; behind a fence, or as an addition, it does not.
    _test("CoTail", "Wx1 Wx2 | Rax Rbx", "1:a=2 1:b=1", "x@0", "FFFA"),
    _test("CoTail+s", "Wx1 S Wx2 | Rax Rbx", "1:a=2 1:b=1", "x@0", "FFFF"),
    _test("CoTail, added", "Uax1 Ubx1 | Rcx Rdx", "1:c=2 1:d=1", "x@0", "FFFF"),
    _test("CoRR", "Wx1 | Rax Rbx", "1:a=1 1:b=0", "x@0", "FFFF"),
    _test("CoRR2", "Wx1 Wx2 | Rax Rbx | Rcx Rdx", "1:a=1 1:b=2 2:c=2 2:d=1", "x@0", "FFFF"),
    # A thread looks at what it has written: the youngest of its stores in flight, then memory.
    _test("CoWR", "Wx1 Wx2 Rax", "0:a=1", "x@0", "FFFA"),
    _test("CoWR+s", "Wx1 S Wx2 Rax", "0:a=1", "x@0", "FFFF"),
    _test("CoWR0", "Wx1 Wx2 Rax", "0:a=0", "x@0", "FFFF"),
    _test("CoWRR", "Wx1 Wx2 Rax Rbx", "0:a=2 0:b=1", "x@0", "FFFA"),
    # An atomic overtakes its thread's writes to its word, unless they are before a fence.
    _test("W+U", "Wx5 Uax1", "0:a=0", "x@0", "FFFA"),
    _test("W+U, lost", "Wx5 Uax1", "x=5", "x@0", "FFFA"),
    _test("W+s+U", "Wx5 S Uax1", "0:a=0", "x@0", "FFFF"),
    _test("W+f+U", "Wx5 F Uax1", "0:a=0", "x@0", "FFFF"),
    _test("U+W", "Uax1 Wx5", "0:a=5", "x@0", "FFFF"),
    _test("MP+rmwsame", "Wx1 Ucx0 Wy1 | Ray Rbx", "1:a=1 1:b=0", "x@0 y@0", "FFFA"),
    # A head that is written twice, one message behind each: the older overwrites the newer, whoever waits for it waits.
    _test("head", "Wx1 Wy1 S Wx2 | Rax Rby", "1:a=2 1:b=0", "x@0 y@0", "FFFF"),
    _test("head, in the end", "Wx1 Wy1 Wx2", "x=1", "x@0 y@0", "FFFA"),
    _test("head, added", "Uax1 Wy1 Ubx1", "x=1", "x@0 y@0", "FFFF"),
    # What does not depend on writes of one thread to one address is as under relaxed.
    _test("MP", "Wx1 Wy1 | Ray Rbx", "1:a=1 1:b=0", "x@0 y@0", "FFAA"),
    _test("MP+s", "Wx1 S Wy1 | Ray Rbx", "1:a=1 1:b=0", "x@0 y@0", "FFFF"),
    _test("MP+s, two dies", "Wx1 S Wy1 | Ray Rbx", "1:a=1 1:b=0", "x@0 y@2", "FAAA"),
    _test("2+2W one address", "Wx1 | Wx2", "x=1", "x@0", "AAAA"),
)
