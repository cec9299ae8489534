"""The litmus suite: 66 small programs, the outcome asked of each, and which memory orders allow it; and 24 of fences.

Data only, for the explorer beside it and for tests that translate the programs to kernels. Notation, one token an
operation, threads separated by `|`, all memory 0 at the start:

    Wx1    write 1 to x              ("w", "x", 1)
    Rax    read x into register a    ("r", "x", "a")
    F      quiet                     ("f",)
    S      fence                     ("s",)
    Uax1   add 1 to x, old value     ("u", "x", "a", 1)
           into register a
    Cax1>2 if x is 1 make it 2,      ("c", "x", "a", 1, 2)
           old value into register a
    Wx1>y2 copy 1 to x, and then     ("w", "x", 1) and ("w", "y", 2), a signal;
           signal: set y to 2        if it adds to y (Wx1>y+2), ("a", "y", 2)

Behind a write or atomic stands the order that it asks for: `!` strong, `~` no order, `=` relaxed.

An outcome lists registers as `thread:register=value` and final memory as `address=value`. Each expectation is a
letter a column: A, the outcome must be reachable; F, it must never appear. Columns, in the order of COLUMNS:

    sc              every operation at once, in program order
    tso             one FIFO of writes a core, own writes forwarded, atomics wait for them
    c               `relaxed` with scalar reads
    d               `relaxed` with asynchronous reads
    fifo_one        `fifo`, all addresses on one die, scalar reads (each thread on a die of its own, here and below)
    fifo_two        `fifo`, each address on a die of its own, scalar reads
    fifo_one_async  fifo_one with asynchronous reads
    fifo_two_async  fifo_two with asynchronous reads

The first four were computed by others ([Herd]), the last four by the explorer in `model.py`.

A fence orders what goes to one die only, so a test of fences says on which die each address is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

Op = (
    tuple[Literal["w"], str, int]
    | tuple[Literal["r"], str, str]
    | tuple[Literal["a"], str, int]
    | tuple[Literal["f", "s"]]
    | tuple[Literal["u"], str, str, int]
    | tuple[Literal["c"], str, str, int, int]
)
Column = Literal["sc", "tso", "c", "d", "fifo_one", "fifo_two", "fifo_one_async", "fifo_two_async"]
COLUMNS: tuple[Column, ...] = ("sc", "tso", "c", "d", "fifo_one", "fifo_two", "fifo_one_async", "fifo_two_async")
ASKS = {"!": "strong", "~": "no-order", "=": "relaxed"}


@dataclass(frozen=True)
class Litmus:
    """One test: `program[thread]` is its operations, `asked` the outcome."""

    name: str
    program: tuple[tuple[Op, ...], ...]
    asked: dict[str, int]
    allows: dict[str, bool]
    """By column: must the outcome be reachable?  Otherwise it must never appear."""
    home: dict[str, int]
    """The die of each address."""
    asks: tuple[tuple[str, ...], ...]
    """Which order each operation asks for."""
    signals: tuple[tuple[bool, ...], ...]
    """Whether an operation is the signal of the one before it."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses the program touches, sorted."""
        return tuple(sorted({op[1] for thread in self.program for op in thread if op[0] not in ("f", "s")}))


def _op(token: str) -> Op:
    kind, rest = token[0], token[1:]
    if kind == "F":
        return ("f",)
    if kind == "S":
        return ("s",)
    if kind == "W":
        return ("w", rest[0], int(rest[1:]))
    if kind == "R":
        return ("r", rest[1], rest[0])
    if kind == "U":
        return ("u", rest[1], rest[0], int(rest[2:]))
    if kind == "C":
        expected, value = rest[2:].split(">")
        return ("c", rest[1], rest[0], int(expected), int(value))
    raise ValueError(f"token {token!r}: an operation starts with W, R, F, S, U or C")


def _parsed(token: str) -> list[tuple[Op, str, bool]]:
    """The operations of a token, what each asks for, and whether it is a signal."""
    order, token = ASKS.get(token[-1], ""), token.rstrip("!~=")
    if token[0] != "W" or ">" not in token:
        return [(_op(token), order, False)]
    copied, signal = token.split(">")
    return [(_op(copied), order, False), (("a" if "+" in signal else "w", signal[0], int(signal[1:])), order, True)]


def litmus(columns: Sequence[str], name: str, program: str, asked: str, homes: str, letters: str) -> Litmus:
    """A row of a table: its columns, and what it has in each; addresses without a home are all on one die."""
    threads = [[op for token in thread.split() for op in _parsed(token)] for thread in program.split("|")]
    ops, asks, signals = (tuple(tuple(op[k] for op in thread) for thread in threads) for k in range(3))
    wanted = {key: int(value) for key, value in (item.split("=") for item in asked.split())}
    allows = {column: {"A": True, "F": False}[letter] for column, letter in zip(columns, letters, strict=True)}
    home = {address: int(die) for address, die in (item.split("@") for item in homes.split())}
    test = Litmus(name, ops, wanted, allows, home, asks, signals)
    return test if home else replace(test, home=dict.fromkeys(test.addresses, 0))


def _test(name: str, program: str, asked: str, published: str, derived: str) -> Litmus:
    return litmus(COLUMNS, name, program, asked, "", published + derived)


# name, program, outcome asked, "sc tso c d", "fifo_one fifo_two fifo_one_async fifo_two_async"
TESTS: tuple[Litmus, ...] = (
    # Message passing: data, then a flag.
    _test("MP", "Wx1 Wy1 | Ray Rbx", "1:a=1 1:b=0", "FFAA", "FAAA"),
    _test("MP+f+po", "Wx1 F Wy1 | Ray Rbx", "1:a=1 1:b=0", "FFFA", "FFAA"),
    _test("MP+po+f", "Wx1 Wy1 | Ray F Rbx", "1:a=1 1:b=0", "FFAA", "FAFA"),
    _test("MP+f+f", "Wx1 F Wy1 | Ray F Rbx", "1:a=1 1:b=0", "FFFF", "FFFF"),
    _test("MP2w+f", "Wx1 Wz1 F Wy1 | Ray Rbx Rcz", "1:a=1 1:b=1 1:c=0", "FFFA", "FFAA"),
    _test("MP2w", "Wx1 Wz1 Wy1 | Ray Rbx Rcz", "1:a=1 1:b=1 1:c=0", "FFAA", "FAAA"),  # two data words, one of them late
    # Two words that belong together.
    _test("TEAR", "Wx1 Wz1 | Rax Rbz", "1:a=1 1:b=0", "AAAA", "AAAA"),  # even sc
    _test("TEARr", "Wx1 Wz1 | Raz Rbx", "1:a=1 1:b=0", "FFAA", "FAAA"),  # read in the opposite order
    # Store buffering: write mine, read yours.
    _test("SB", "Wx1 Ray | Wy1 Rbx", "0:a=0 1:b=0", "FAAA", "AAAA"),
    _test("SB+f+po", "Wx1 F Ray | Wy1 Rbx", "0:a=0 1:b=0", "FAAA", "AAAA"),
    _test("SB+f+f", "Wx1 F Ray | Wy1 F Rbx", "0:a=0 1:b=0", "FFFF", "FFFF"),
    _test("SB+rfi+rfi", "Wx1 Rcx Ray | Wy1 Rdy Rbx", "0:c=1 0:a=0 1:d=1 1:b=0", "FAAA", "AAAA"),  # forwarding
    _test("n6", "Wx1 Rax Rby | Wy2 Wx2", "0:a=1 0:b=0 x=1", "FAAA", "AAAA"),
    # Load buffering: only late reads can show it.
    _test("LB", "Rax Wy1 | Rby Wx1", "0:a=1 1:b=1", "FFFA", "FFAA"),
    _test("LB+f+f", "Rax F Wy1 | Rby F Wx1", "0:a=1 1:b=1", "FFFF", "FFFF"),
    # A read or a write of one thread against two writes of another.
    _test("S", "Wx2 Wy1 | Ray Wx1", "1:a=1 x=2", "FFAA", "FAAA"),
    _test("S+f+po", "Wx2 F Wy1 | Ray Wx1", "1:a=1 x=2", "FFFA", "FFAA"),
    _test("R", "Wx1 Wy1 | Wy2 Rax", "1:a=0 y=2", "FAAA", "AAAA"),
    _test("R+f+po", "Wx1 F Wy1 | Wy2 Rax", "1:a=0 y=2", "FAAA", "AAAA"),
    _test("R+po+f", "Wx1 Wy1 | Wy2 F Rax", "1:a=0 y=2", "FFAA", "FAFA"),
    _test("R+f+f", "Wx1 F Wy1 | Wy2 F Rax", "1:a=0 y=2", "FFFF", "FFFF"),
    # Two writes each, in opposite order.
    _test("2+2W", "Wx1 Wy2 | Wy1 Wx2", "x=1 y=1", "FFAA", "FAFA"),
    _test("2+2W+f+po", "Wx1 F Wy2 | Wy1 Wx2", "x=1 y=1", "FFAA", "FAFA"),
    _test("2+2W+f+f", "Wx1 F Wy2 | Wy1 F Wx2", "x=1 y=1", "FFFF", "FFFF"),
    # Three threads: a value seen, then passed on.
    _test("WRC", "Wx1 | Rax Wy1 | Rby Rcx", "1:a=1 2:b=1 2:c=0", "FFFA", "FFAA"),
    _test("WRC+f+f", "Wx1 | Rax F Wy1 | Rby F Rcx", "1:a=1 2:b=1 2:c=0", "FFFF", "FFFF"),
    _test("WWC", "Wx2 | Rax Wy1 | Rby Wx1", "1:a=2 2:b=1 x=2", "FFFA", "FFAA"),
    _test("RWC", "Wx1 | Rax Rby | Wy1 Rcx", "1:a=1 1:b=0 2:c=0", "FAAA", "AAAA"),
    _test("RWC+po+f", "Wx1 | Rax Rby | Wy1 F Rcx", "1:a=1 1:b=0 2:c=0", "FFFA", "FFAA"),
    # Two readers disagree on the order of two writes (one home copy: only late reads do).
    _test("IRIW", "Wx1 | Wy1 | Rax Rby | Rcy Rdx", "2:a=1 2:b=0 3:c=1 3:d=0", "FFFA", "FFAA"),
    _test("IRIW+f+f", "Wx1 | Wy1 | Rax F Rby | Rcy F Rdx", "2:a=1 2:b=0 3:c=1 3:d=0", "FFFF", "FFFF"),
    # Relays over three threads.
    _test("ISA2", "Wx1 Wy1 | Ray Wz1 | Rbz Rcx", "1:a=1 2:b=1 2:c=0", "FFAA", "FAAA"),
    _test("ISA2+f", "Wx1 F Wy1 | Ray Wz1 | Rbz Rcx", "1:a=1 2:b=1 2:c=0", "FFFA", "FFAA"),
    _test("W+RWC", "Wx1 Wy1 | Ray Rbz | Wz1 Rcx", "1:a=1 1:b=0 2:c=0", "FAAA", "AAAA"),
    _test("W+RWC+f+po+f", "Wx1 F Wy1 | Ray Rbz | Wz1 F Rcx", "1:a=1 1:b=0 2:c=0", "FFFA", "FFAA"),
    _test("Z6.0", "Wx1 Wy1 | Wy2 Wz1 | Raz Rbx", "2:a=1 2:b=0 y=2", "FFAA", "FAAA"),
    _test("Z6.0+f+f", "Wx1 F Wy1 | Wy2 F Wz1 | Raz Rbx", "2:a=1 2:b=0 y=2", "FFFA", "FFAA"),
    # Cycles of three.
    _test("3.SB", "Wx1 Ray | Wy1 Rbz | Wz1 Rcx", "0:a=0 1:b=0 2:c=0", "FAAA", "AAAA"),
    _test("3.SB+f", "Wx1 F Ray | Wy1 F Rbz | Wz1 F Rcx", "0:a=0 1:b=0 2:c=0", "FFFF", "FFFF"),
    _test("3.2W", "Wx1 Wy2 | Wy1 Wz2 | Wz1 Wx2", "x=1 y=1 z=1", "FFAA", "FAFA"),
    _test("3.2W+f", "Wx1 F Wy2 | Wy1 F Wz2 | Wz1 F Wx2", "x=1 y=1 z=1", "FFFF", "FFFF"),
    # Coherence of one address: the same in every order.
    _test("CoRR", "Wx1 | Rax Rbx", "1:a=1 1:b=0", "FFFF", "FFFF"),
    _test("CoRR2", "Wx1 | Wx2 | Rax Rbx | Rcx Rdx", "2:a=1 2:b=2 3:c=2 3:d=1", "FFFF", "FFFF"),
    _test("CoWW", "Wx1 Wx2", "x=1", "FFFF", "FFFF"),
    _test("CoWR", "Wx1 Rax | Wx2", "0:a=2 x=1", "FFFF", "FFFF"),
    _test("CoWR0", "Wx1 Rax", "0:a=0", "FFFF", "FFFF"),
    _test("CoRW1", "Rax Wx1", "0:a=1", "FFFF", "FFFF"),
    _test("CoRW2", "Rax Wx1 | Wx2", "0:a=2 x=2", "FFFF", "FFFF"),
    _test("CoTail", "Wx1 Wx2 | Rax Rbx", "1:a=2 1:b=1", "FFFF", "FFFF"),  # a counter never steps back
    # fetch_add against itself and against plain accesses.
    _test("INC+INC", "Uax1 | Ubx1", "x=1", "FFFF", "FFFF"),
    _test("INC-rw", "Rax Wx1 | Rbx Wx1", "0:a=0 1:b=0 x=1", "AAAA", "AAAA"),  # lost update
    _test("INC+W", "Uax1 | Wx2", "0:a=0 x=1", "FFFF", "FFFF"),
    _test("INC-uniq", "Uax1 | Ubx1", "0:a=0 1:b=0", "FFFF", "FFFF"),
    # fetch_add is not a quiet, except for its own channel.
    _test("MP+rmwflag", "Wx1 Uay1 | Ray Rbx", "1:a=1 1:b=0", "FFAA", "FAAA"),  # atomic as the flag
    _test("MP+f+rmwflag", "Wx1 F Uay1 | Ray Rbx", "1:a=1 1:b=0", "FFFA", "FFAA"),
    _test("MP+rmwdata", "Uax1 Wy1 | Ray Rbx", "1:a=1 1:b=0", "FFFA", "FFAA"),  # atomic as the data
    _test("MP+rmwother", "Wx1 Ucz1 Wy1 | Ray Rbx", "1:a=1 1:b=0", "FFAA", "FAAA"),  # atomic on a third address
    _test("MP+rmwsame", "Wx1 Ucx0 Wy1 | Ray Rbx", "1:a=1 1:b=0", "FFFA", "FFAA"),  # adding 0 flushes the data word
    _test("SB+rmw", "Ucx1 Ray | Udy1 Rbx", "0:a=0 1:b=0", "FFFF", "FFFF"),
    _test("SB+rmwother", "Wx1 Ucz1 Ray | Wy1 Udz1 Rbx", "0:a=0 1:b=0", "FFAA", "FAFA"),
    _test("2+2W+rmw", "Uax0 Wy2 | Wy1 Wx2", "0:a=2 y=1", "FFAA", "FAFA"),
    # Counter barrier of two.
    _test("BAR2", "Wx1 Uay1 Rcz | Wz1 Uby1 Rdx", "0:a=1 1:b=0 0:c=0", "FFAA", "FAFA"),  # last to arrive reads old data
    _test("BAR2+f", "Wx1 F Uay1 Rcz | Wz1 F Uby1 Rdx", "0:a=1 1:b=0 0:c=0", "FFFF", "FFFF"),
    # Slot reuse after an acknowledgement.
    _test("ACK", "Wx1 F Wy1 Raz Wx2 | Rby Rcx Wz1", "0:a=1 1:b=1 1:c=2", "FFFA", "FFAA"),
    _test("ACKearly", "Wx1 F Wy1 Raz Wx2 | Rby Wz1 Rcx", "0:a=1 1:b=1 1:c=2", "AAAA", "AAAA"),  # ack too early
    _test("ACKwait-f", "Wx1 Wy1 Raz Wx2 Wy2 | Rby Wz1 Rcy Rdx", "0:a=1 1:b=1 1:c=2 1:d=1", "FFAA", "FAAA"),
)


FENCE_COLUMNS = ("sc", "relaxed", "fifo")
_fences = partial(litmus, FENCE_COLUMNS)

# name, program, outcome asked, die of each address, "sc relaxed fifo"
FENCE_TESTS: tuple[Litmus, ...] = (
    # Message passing: to one die in order, to two dies not; a quiet beside it covers both.
    _fences("MP+s", "Wx1 S Wy1 | Ray Rbx", "1:a=1 1:b=0", "x@0 y@0", "FFF"),
    _fences("MP+s, two dies", "Wx1 S Wy1 | Ray Rbx", "1:a=1 1:b=0", "x@0 y@2", "FAA"),
    _fences("MP+f+s, two dies", "Wx1 F S Wy1 | Ray Rbx", "1:a=1 1:b=0", "x@0 y@2", "FFF"),
    _fences("MP+s+f, two dies", "Wx1 S F Wy1 | Ray Rbx", "1:a=1 1:b=0", "x@0 y@2", "FFF"),
    _fences("MP2w+s, other word elsewhere", "Wx1 Wz1 S Wy1 | Ray Rbx", "1:a=1 1:b=0", "x@0 y@0 z@2", "FFF"),
    _fences("MP2w+s, asked elsewhere", "Wx1 Wz1 S Wy1 | Ray Rcz", "1:a=1 1:c=0", "x@0 y@0 z@2", "FAA"),
    _fences("MP+s before all", "S Wx1 Wy1 | Ray Rbx", "1:a=1 1:b=0", "x@0 y@0", "FAF"),
    _fences("MP+s behind all", "Wx1 Wy1 S | Ray Rbx", "1:a=1 1:b=0", "x@0 y@0", "FAF"),
    _fences("MP+po+s", "Wx1 Wy1 | Ray S Rbx", "1:a=1 1:b=0", "x@0 y@0", "FAF"),
    _fences("MP, fence of another", "Wx1 Wy1 | Ray Rbx | S Wz1 S", "1:a=1 1:b=0", "x@0 y@0 z@2", "FAF"),
    # Two in a row, and over another die.
    _fences("MP3+s+s", "Wx1 S Wz1 S Wy1 | Ray Rbx", "1:a=1 1:b=0", "x@0 y@0 z@2", "FFF"),
    _fences("MP3+s+s, middle", "Wx1 S Wz1 S Wy1 | Ray Rbz", "1:a=1 1:b=0", "x@0 y@0 z@2", "FAA"),
    _fences("MP+s+s", "Wx1 S S Wy1 | Ray Rbx", "1:a=1 1:b=0", "x@0 y@0", "FFF"),
    _fences("MP+s, again", "Wx1 S Wy1 S Wx2 | Rax Rby", "1:a=2 1:b=0", "x@0 y@0", "FFF"),
    # It is no wait: a read behind it may come first.
    _fences("SB+s+s", "Wx1 S Ray | Wy1 S Rbx", "0:a=0 1:b=0", "x@0 y@0", "FAA"),
    _fences("R+s+s", "Wx1 S Wy1 | Wy2 S Rax", "1:a=0 y=2", "x@0 y@0", "FAA"),
    # Two writes each.
    _fences("2+2W+s+s", "Wx1 S Wy2 | Wy1 S Wx2", "x=1 y=1", "x@0 y@0", "FFF"),
    _fences("2+2W+s+s, two dies", "Wx1 S Wy2 | Wy1 S Wx2", "x=1 y=1", "x@0 y@2", "FAA"),
    _fences("S+s", "Wx2 S Wy1 | Ray Wx1", "1:a=1 x=2", "x@0 y@0", "FFF"),
    # A relay over a second die.
    _fences("ISA2+s", "Wx1 S Wy1 | Ray Wz1 | Rbz Rcx", "1:a=1 2:b=1 2:c=0", "x@0 y@0 z@2", "FFF"),
    _fences("ISA2+s, two dies", "Wx1 S Wy1 | Ray Wz1 | Rbz Rcx", "1:a=1 2:b=1 2:c=0", "x@0 y@2 z@0", "FAA"),
    # Atomics are writes too.
    _fences("MP+s+rmwflag", "Wx1 S Uay1 | Ray Rbx", "1:a=1 1:b=0", "x@0 y@0", "FFF"),
    _fences("MP+s+rmwflag, two dies", "Wx1 S Uay1 | Ray Rbx", "1:a=1 1:b=0", "x@0 y@2", "FAA"),
    # A slot used again after its acknowledgement.
    _fences("ACK+s", "Wx1 S Wy1 Raz Wx2 | Rby Rcx Wz1", "0:a=1 1:b=1 1:c=2", "x@0 y@0 z@2", "FFF"),
)
