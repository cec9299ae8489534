"""Statements without yields as instructions of LLVM, and the plain functions that they call."""

import ast
import itertools
from collections.abc import Mapping, Sequence

from xccl_emu.lang import abi
from xccl_emu.lang._expressions import Expressions
from xccl_emu.lang._ir import Value, each, integer, kind, operands
from xccl_emu.lang._resolve import TURNS, definition

RAISED = {"ValueError": abi.BAD_VALUE, "IndexError": abi.BAD_INDEX, "TimeoutError": abi.ENDLESS}


class Statements(Expressions):
    """Code that carries out statements."""

    def __init__(self, program: "PlainFunctions") -> None:
        super().__init__()
        self.program = program
        self._loops: list[tuple[str, str]] = []
        """Where continue and break go."""

    def call(self, name: str, arguments: Sequence[Value]) -> Value:
        called = self.program.function(name, arguments)
        into = each(lambda _: self.slot(), called.result)
        pointers = [*operands(into), integer(self.locals[TURNS])]
        given = [f"i64 {v}" for v in operands(tuple(arguments))] + [f"i64* {s}" for s in pointers]
        status = self.new(f"call i64 @{called.symbol}({', '.join(given)})")
        self.fail_if(self.new(f"icmp ne i64 {status}, 0"), status)
        return each(lambda slot: self.new(f"load i64, i64* {slot}"), into)

    def statements(self, body: Sequence[ast.stmt]) -> None:
        """Carry out statements in order."""
        for s in body:
            self.statement(s)

    def statement(self, s: ast.stmt) -> None:
        """Carry out a statement."""
        match s:
            case ast.Assign(targets=targets, value=value):
                result = self.value(value)
                for target in targets:
                    self._unpack(target, result)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                self.assign(name, self.binary(op, self.read(name), self.value(value)))
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.Expr(value=value):
                self.value(value)
            case ast.If():
                self._if(s)
            case ast.While():
                self._while(s)
            case ast.For():
                self._for(s)
            case ast.Break() | ast.Continue():
                self.go(self._loops[-1][isinstance(s, ast.Break)])
            case ast.Raise(exc=ast.Call(func=ast.Name(id=name))):
                self.fail(RAISED[name])
            case _:
                raise AssertionError(f"{type(s).__name__} was let through")

    def _unpack(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.assign(target.id, value)
            return
        assert isinstance(target, ast.Tuple)
        if isinstance(value, str) or len(value) != len(target.elts):
            raise TypeError(f"{ast.unparse(target)!r} takes {len(target.elts)} values")
        for element, part in zip(target.elts, value, strict=True):
            self._unpack(element, part)

    def _if(self, s: ast.If) -> None:
        yes, no, after = self.label(), self.label(), self.label()
        self.jump(s.test, yes, no)
        self.begin(yes)
        self.statements(s.body)
        self.go(after)
        self.begin(no)
        self.statements(s.orelse)
        self.begin(after)

    def _while(self, s: ast.While) -> None:
        head, body, after = self.label(), self.label(), self.label()
        self.begin(head)
        self.jump(s.test, body, after)
        self.begin(body)
        self._body(s.body, head, after)
        self.go(head)
        self.begin(after)

    def _body(self, body: Sequence[ast.stmt], go_on: str, after: str) -> None:
        self._loops.append((go_on, after))
        self.statements(body)
        self._loops.pop()

    def _for(self, s: ast.For) -> None:
        """Carry out a loop over a range or tuple; it counts elements, so that no step runs over the end of 64 bits."""
        over, number, after = self.value(s.iter), self.hidden(), self.label()
        length, head, body, advance = self.builtin_len(over), self.label(), self.label(), self.label()
        if length == "0":
            return
        self.assign(number, "0")
        self.begin(head)
        index = integer(self.read(number))
        self.branch(self.compared(ast.Lt(), index, length), body, after)
        self.begin(body)
        self._unpack(s.target, self.element(over, index))
        self._body(s.body, advance, after)
        self.begin(advance)
        self.assign(number, self.new(f"add i64 {index}, 1"))
        self.go(head)
        self.begin(after)


class Helper(Statements):
    """The code of a plain function for arguments of certain kinds.

    It returns 0, or the status of what failed, and writes its result where pointers say that it goes.  The turns of its
    loops are taken from those that the step has left, to which the last pointer leads.
    """

    def __init__(
        self, program: "PlainFunctions", tree: ast.FunctionDef, symbol: str, arguments: Sequence[Value]
    ) -> None:
        super().__init__(program)
        self.symbol = symbol
        returns = [n for n in ast.walk(tree) if isinstance(n, ast.Return) and n.value is not None]
        self.result: Value = ()
        """The pointers."""
        self._none = abi.NO_VALUE if returns else 0
        numbers = itertools.count()
        parameters = each(lambda _: f"%a{next(numbers)}", tuple(arguments))
        self.locals[TURNS] = "%turns"
        for parameter, value in zip(tree.args.args, parameters, strict=True):
            self.assign(parameter.arg, value)
        self.statements(tree.body)
        self.end(f"ret i64 {self._none}")
        pointers = [*operands(self.result), "%turns"]
        signature = [f"i64 {p}" for p in operands(parameters)] + [f"i64* noalias {p}" for p in pointers]
        self.head = f"define internal i64 @{symbol}({', '.join(signature)}) nounwind"

    def statement(self, s: ast.stmt) -> None:
        if not isinstance(s, ast.Return):
            super().statement(s)
        elif s.value is None:
            self.end(f"ret i64 {self._none}")
        else:
            self._give(self.value(s.value))

    def _give(self, value: Value) -> None:
        numbers = itertools.count()
        pointers = each(lambda _: f"%r{next(numbers)}", value)
        if self.result not in ((), pointers):
            raise TypeError("a function returns an integer in one place and a tuple in another, or tuples that differ")
        self.result = pointers
        for pointer, operand in zip(operands(pointers), operands(value), strict=True):
            self.do(f"store i64 {operand}, i64* {pointer}")
        self.end("ret i64 0")


def range_length(start: int, stop: int, step: int) -> int:
    """Return how many elements a range has."""
    if step > 0:
        return (stop - start - 1) // step + 1 if start < stop else 0
    return (start - stop - 1) // -step + 1 if start > stop else 0


def range_at(index: int, start: int, stop: int, step: int) -> int:
    """The element of a range at an index."""
    length = range_length(start, stop, step)
    if index < 0:
        index += length
    if not 0 <= index < length:
        raise IndexError("range object index out of range")
    return start + index * step


def in_range(value: int, start: int, stop: int, step: int) -> bool:
    """Return whether a range has a value."""
    if step > 0:
        return start <= value < stop and (value - start) % step == 0
    return stop < value <= start and (start - value) % -step == 0


_OF_RANGES = (range_length, range_at, in_range)
"""What LLVM gets of ranges, in the kernel language itself."""


class PlainFunctions:
    """The plain functions of a kernel, each compiled for the kinds of arguments that it is called with."""

    def __init__(self, trees: Mapping[str, ast.FunctionDef]) -> None:
        self._trees = {**trees, **{f.__name__: definition(f, f.__name__) for f in _OF_RANGES}}
        self.helpers: dict[tuple[str, object], Helper] = {}
        self._symbols = (f"function{i}" for i in itertools.count())

    def function(self, name: str, arguments: Sequence[Value]) -> Helper:
        """Return the function of that name for such arguments."""
        key = name, kind(tuple(arguments))
        if key not in self.helpers:
            self.helpers[key] = Helper(self, self._trees[name], next(self._symbols), arguments)
        return self.helpers[key]
