"""The instructions of one function for LLVM, as text: values, locals, labels.

A value is an operand of 64 bits (a truth is 1 or 0, as in Python), or a tuple of values, which is taken apart here and
not by LLVM.  A local is a slot on the stack for each of its operands; LLVM keeps them in registers.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import TypeAlias

Value: TypeAlias = "str | tuple[Value, ...]"


class Range(tuple[Value, ...]):
    """A range: its start, stop and step."""


def each(f: Callable[[str], str], value: Value) -> Value:
    """Return a value with every operand replaced."""
    return f(value) if isinstance(value, str) else type(value)(each(f, v) for v in value)


def operands(value: Value) -> Iterator[str]:
    """Yield the operands of a value."""
    if isinstance(value, str):
        yield value
    else:
        for v in value:
            yield from operands(v)


def kind(value: Value) -> object:
    """Return what two values that stand for one local have in common."""
    return 0 if isinstance(value, str) else (type(value), *map(kind, value))


def integer(value: Value) -> str:
    """Return the operand of an integer; TypeError if the value is a tuple or a range."""
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__.lower()} is given where an integer is needed")
    return value


def is_literal(operand: str) -> bool:
    """Return whether an operand is a number."""
    return not operand.startswith("%")


class Code:
    """Instructions and locals of one function; what follows a jump, up to the next label, is dropped."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.slots: list[str] = []
        self.locals: dict[str, Value] = {}
        self._open = True
        self._numbers = itertools.count()

    def do(self, instruction: str) -> None:
        """Append an instruction."""
        if self._open:
            self.lines.append(f"  {instruction}")

    def new(self, instruction: str) -> str:
        """Append an instruction that has a result; return the result's name."""
        name = f"%v{next(self._numbers)}"
        self.do(f"{name} = {instruction}")
        return name

    # ---- control

    def label(self) -> str:
        """Return a new label."""
        return f"l{next(self._numbers)}"

    def begin(self, label: str) -> None:
        """Put a label here, to which control comes from above too."""
        self.go(label)
        self.lines.append(f"{label}:")
        self._open = True

    def end(self, instruction: str) -> None:
        """Append an instruction that control does not go past."""
        self.do(instruction)
        self._open = False

    def go(self, label: str) -> None:
        """Jump."""
        self.end(f"br label %{label}")

    def branch(self, test: str, yes: str, no: str) -> None:
        """Jump by a truth of one bit."""
        self.end(f"br i1 {test}, label %{yes}, label %{no}")

    def fail_if(self, test: str, status: int | str) -> None:
        """Return a status that says what failed."""
        bad, good = self.label(), self.label()
        self.branch(test, bad, good)
        self.begin(bad)
        self.fail(status)
        self.begin(good)

    def fail(self, status: int | str) -> None:
        """Return a status."""
        self.end(f"ret i64 {status}")

    # ---- locals

    def slot(self) -> str:
        """Return a new word on the stack."""
        name = f"%s{next(self._numbers)}"
        self.slots.append(f"  {name} = alloca i64")
        return name

    def hidden(self) -> str:
        """Return the name of a new local that no author can name."""
        return f"%{next(self._numbers)}"

    def assign(self, name: str, value: Value) -> None:
        """Write a local; TypeError if it held a value of another kind elsewhere."""
        slots = self.locals.setdefault(name, each(lambda _: self.slot(), value))
        if kind(slots) != kind(value):
            what = "a value" if name.startswith("%") else repr(name)
            raise TypeError(f"{what} is an integer in one place and a tuple in another, or tuples that differ")
        for slot, operand in zip(operands(slots), operands(value), strict=True):
            self.do(f"store i64 {operand}, i64* {slot}")

    def read(self, name: str) -> Value:
        """Return what a local holds."""
        if name not in self.locals:  # only where control never comes
            self.locals[name] = self.slot()
        return each(lambda slot: self.new(f"load i64, i64* {slot}"), self.locals[name])
