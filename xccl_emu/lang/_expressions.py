"""Expressions of the kernel language as instructions of LLVM.

Arithmetic has 64 bits and wraps around; division and remainder are Python's.  What fails (a division by zero, a
bad count of a shift) returns its status from the function.
"""

import ast
from collections.abc import Callable, Sequence

from xccl_emu.lang import abi
from xccl_emu.lang._ir import Code, Range, Value, integer, is_literal

OPERATIONS: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor",
    ast.LShift: "shl", ast.RShift: "ashr",
}  # fmt: skip
PREDICATES: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "slt", ast.LtE: "sle", ast.Gt: "sgt", ast.GtE: "sge",
}  # fmt: skip


class Expressions(Code):
    """Code that computes expressions."""

    def call(self, name: str, arguments: Sequence[Value]) -> Value:
        """Call a plain function."""
        raise NotImplementedError

    def value(self, node: ast.expr) -> Value:
        """Compute an expression; TypeError if it is neither an integer nor a tuple nor a range."""
        match node:
            case ast.Constant(value=int(number)):
                return str(int(number))
            case ast.Constant():
                return ()  # the string that a parameter is by default, and that nobody can read
            case ast.Name(id=name):
                return self.read(name)
            case ast.Tuple(elts=elements):
                return tuple(map(self.value, elements))
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(op, self.value(left), self.value(right))
            case ast.UnaryOp(op=ast.Not()) | ast.Compare():
                return self.truth(node)
            case ast.UnaryOp(op=op, operand=operand):
                return self.unary(op, integer(self.value(operand)))
            case ast.BoolOp():
                return self._last_looked_at(node)
            case ast.IfExp():
                return self._chosen(node)
            case ast.Subscript(value=sequence, slice=index):
                return self.element(self.value(sequence), integer(self.value(index)))
            case ast.Call(func=ast.Name(id=name), args=arguments):
                given = [self.value(a) for a in arguments]
                builtin: Callable[..., Value] | None = getattr(self, f"builtin_{name}", None)
                return self.call(name, given) if builtin is None else builtin(*given)
        raise TypeError(f"{ast.unparse(node)!r} cannot be computed")

    # ---- arithmetic

    def unary(self, op: ast.unaryop, value: str) -> str:
        """Compute -x, ~x or +x."""
        if isinstance(op, ast.UAdd):
            return value
        return self.new(f"sub i64 0, {value}" if isinstance(op, ast.USub) else f"xor i64 {value}, -1")

    def binary(self, op: ast.operator, left: Value, right: Value) -> Value:
        """Compute an operation of two values; the count of a shift is already checked."""
        if isinstance(op, ast.Add) and type(left) is type(right) is tuple:
            return left + right
        a, b = integer(left), integer(right)
        if isinstance(op, ast.Pow):
            return self._power(a, int(b))
        if isinstance(op, ast.FloorDiv | ast.Mod):
            return self._divided(a, b, "quotient" if isinstance(op, ast.FloorDiv) else "remainder")
        return self.new(f"{OPERATIONS[type(op)]} i64 {a}, {b}")

    def _power(self, base: str, exponent: int) -> str:
        result = "1"
        for bit in f"{exponent:b}":
            result = self.new(f"mul i64 {result}, {result}")
            if bit == "1":
                result = self.new(f"mul i64 {result}, {base}")
        return result

    def _divided(self, a: str, b: str, function: str) -> str:
        if is_literal(b) and int(b) > 0 and int(b).bit_count() == 1:
            size = int(b)
            return self.new(
                f"ashr i64 {a}, {size.bit_length() - 1}" if function == "quotient" else f"and i64 {a}, {size - 1}"
            )
        self.fail_if(self.new(f"icmp eq i64 {b}, 0"), abi.DIVISION_BY_ZERO)
        return self.new(f"call i64 @{function}(i64 {a}, i64 {b})")

    # ---- truth

    def jump(self, test: ast.expr, yes: str, no: str) -> None:
        """Jump by whether an expression is true, looking no further than Python does."""
        match test:
            case ast.BoolOp(op=op, values=values):
                for v in values[:-1]:
                    further = self.label()
                    self.jump(v, *((further, no) if isinstance(op, ast.And) else (yes, further)))
                    self.begin(further)
                self.jump(values[-1], yes, no)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self.jump(operand, no, yes)
            case ast.Compare():
                self._jump_by_comparison(test, yes, no)
            case _:
                self.branch(self.is_true(self.value(test)), yes, no)

    def _jump_by_comparison(self, test: ast.Compare, yes: str, no: str) -> None:
        left = self.value(test.left)
        for op, node in zip(test.ops[:-1], test.comparators, strict=False):
            further, right = self.label(), self.value(node)
            self.branch(self.compared(op, left, right), further, no)
            self.begin(further)
            left = right
        self.branch(self.compared(test.ops[-1], left, self.value(test.comparators[-1])), yes, no)

    def is_true(self, value: Value) -> str:
        """Return the one bit that says whether a value is true."""
        if isinstance(value, Range):
            value = self.builtin_len(value)
        return self.new(f"icmp ne i64 {value}, 0") if isinstance(value, str) else str(bool(value)).lower()

    def truth(self, test: ast.expr) -> str:
        """Compute 1 or 0 by whether an expression is true."""
        yes, no, after, result = self.label(), self.label(), self.label(), self.slot()
        self.jump(test, yes, no)
        for label, value in ((yes, 1), (no, 0)):
            self.begin(label)
            self.do(f"store i64 {value}, i64* {result}")
            self.go(after)
        self.begin(after)
        return self.new(f"load i64, i64* {result}")

    def _last_looked_at(self, node: ast.BoolOp) -> Value:
        result, after = self.hidden(), self.label()
        for v in node.values[:-1]:
            value, further = self.value(v), self.label()
            self.assign(result, value)
            ways = (further, after) if isinstance(node.op, ast.And) else (after, further)
            self.branch(self.is_true(value), *ways)
            self.begin(further)
        self.assign(result, self.value(node.values[-1]))
        self.begin(after)
        return self.read(result)

    def _chosen(self, node: ast.IfExp) -> Value:
        result, yes, no, after = self.hidden(), self.label(), self.label(), self.label()
        self.jump(node.test, yes, no)
        for label, choice in ((yes, node.body), (no, node.orelse)):
            self.begin(label)
            self.assign(result, self.value(choice))
            self.go(after)
        self.begin(after)
        return self.read(result)

    # ---- comparisons

    def compared(self, op: ast.cmpop, left: Value, right: Value) -> str:
        """Return the one bit of a comparison; tuples are compared element by element."""
        match op:
            case ast.In() | ast.NotIn():
                found = self._contains(right, left)
                return found if isinstance(op, ast.In) else self.new(f"xor i1 {found}, true")
            case ast.Gt() | ast.GtE() if isinstance(left, tuple):
                return self.compared(ast.Lt() if isinstance(op, ast.Gt) else ast.LtE(), right, left)
            case ast.NotEq() if isinstance(left, tuple):
                return self.new(f"xor i1 {self.compared(ast.Eq(), left, right)}, true")
        if isinstance(left, tuple) and isinstance(right, tuple):
            return self._tuples(op, left, right)
        return self.new(f"icmp {PREDICATES[type(op)]} i64 {integer(left)}, {integer(right)}")

    def _tuples(self, op: ast.cmpop, left: tuple[Value, ...], right: tuple[Value, ...]) -> str:
        """Compare two tuples by == or < or <=, from the last element on."""
        equal = isinstance(op, ast.Eq)
        shorter = len(left) < len(right) or (isinstance(op, ast.LtE) and len(left) == len(right))
        result = str(len(left) == len(right) if equal else shorter).lower()
        for a, b in reversed([*zip(left, right, strict=False)]):
            otherwise = "false" if equal else self.compared(ast.Lt(), a, b)
            result = self.new(f"select i1 {self.compared(ast.Eq(), a, b)}, i1 {result}, i1 {otherwise}")
        return result

    def _contains(self, sequence: Value, value: Value) -> str:
        if isinstance(sequence, Range):
            return self.is_true(self.call("in_range", (value, *sequence)))
        if isinstance(sequence, str):
            raise TypeError("`in` looks into a tuple or a range, not into an integer")
        found = "false"
        for element in sequence:
            found = self.new(f"or i1 {found}, {self.compared(ast.Eq(), value, element)}")
        return found

    # ---- tuples and ranges

    def element(self, sequence: Value, index: str) -> Value:
        """Return the element of a tuple or range at an index."""
        if isinstance(sequence, str):
            raise TypeError("an integer has no elements")
        if isinstance(sequence, Range):
            return self.call("range_at", (index, *sequence))
        n = len(sequence)
        if is_literal(index) and -n <= int(index) < n:
            return sequence[int(index)]
        return self._found(sequence, index)

    def _found(self, sequence: tuple[Value, ...], index: str) -> Value:
        n = len(sequence)
        result, bad, after, cases = self.hidden(), self.label(), self.label(), [self.label() for _ in sequence]
        table = " ".join(f"i64 {i}, label %{cases[i]}" for i in range(-n, n))
        self.end(f"switch i64 {index}, label %{bad} [ {table} ]")
        for label, element in zip(cases, sequence, strict=True):
            self.begin(label)
            self.assign(result, element)
            self.go(after)
        self.begin(bad)
        self.fail(abi.BAD_INDEX)
        self.begin(after)
        return self.read(result)

    def builtin_len(self, value: Value) -> Value:
        """Return how many elements a tuple or range has."""
        if isinstance(value, str):
            raise TypeError("an integer has no length")
        return self.call("range_length", value) if isinstance(value, Range) else str(len(value))

    def builtin_range(self, *given: Value) -> Value:
        """Return the range of one to three integers."""
        numbers = [integer(v) for v in given]
        start = numbers[0] if len(numbers) > 1 else "0"
        start, stop, step = (start, numbers[min(1, len(numbers) - 1)], *(numbers[2:] or ["1"]))
        if not is_literal(step) or step == "0":
            self.fail_if(self.new(f"icmp eq i64 {step}, 0"), abi.BAD_VALUE)
        return Range((start, stop, step))

    # ---- other builtins

    def builtin_abs(self, value: Value) -> Value:
        return self.new(f"call i64 @llvm.abs.i64(i64 {integer(value)}, i1 false)")

    def builtin_int(self, value: Value = "0") -> Value:
        return integer(value)

    def builtin_bool(self, value: Value = "0") -> Value:
        return self.new(f"zext i1 {self.is_true(value)} to i64")

    def builtin_divmod(self, left: Value, right: Value) -> Value:
        return self.binary(ast.FloorDiv(), left, right), self.binary(ast.Mod(), left, right)

    def builtin_max(self, *values: Value) -> Value:
        return self._extreme("smax", values)

    def builtin_min(self, *values: Value) -> Value:
        return self._extreme("smin", values)

    def _extreme(self, which: str, values: tuple[Value, ...]) -> Value:
        if len(values) == 1 and type(values[0]) is tuple:
            values = values[0]
        first, *rest = map(integer, values)
        for value in rest:
            first = self.new(f"call i64 @llvm.{which}.i64(i64 {first}, i64 {value})")
        return first
