"""A kernel's step function as C++: statement by statement what `Kernel.source` says, which is made of the same blocks.

It is ``word v_step_NAME(Core &core)``, where ``core.words`` are the words of the core (`abi`), and returns what machine
code does: an operation, or a status where arithmetic fails.  What fails first is noted in ``core.status``; the step
returns that before its next statement that may fail, or turn of a loop, and goes on with a zero until then.  C++ must
be compiled so that integers wrap around (``-fwrapv``).
"""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NoReturn

from xccl_emu.base.errors import KernelError
from xccl_emu.lang import abi
from xccl_emu.lang import requests as rq
from xccl_emu.lang._resolve import TURNS
from xccl_emu.lang._source import RESERVED
from xccl_emu.lang._statements import RAISED
from xccl_emu.lang._text import INT, STATE, word
from xccl_emu.lang.kernel import Kernel, Site

_BINARY = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.BitOr: "|", ast.BitAnd: "&", ast.BitXor: "^", ast.LShift: "<<",
    ast.RShift: ">>",
}  # fmt: skip
_CALLED = {ast.FloorDiv: "quotient", ast.Mod: "remainder"}
_UNARY = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~", ast.Not: "!"}
_COMPARED = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_REQUEST = [word(abi.REQUEST + i) for i in range(abi.REQUEST_WORDS)]
_PLACE = f"{RESERVED}place"


def steps(kernels: Sequence[Kernel]) -> str:
    """Return the step functions of some kernels, each with the functions that it calls, in a namespace of its own."""
    return "\n".join(
        f"namespace kernel{number} {{  // {kernel.name}\n{_text(kernel)}\n}}" for number, kernel in enumerate(kernels)
    )


def _text(kernel: Kernel) -> str:
    functions = [f for f in ast.parse(kernel.source).body if isinstance(f, ast.FunctionDef)]
    return "\n\n".join("\n".join(_Function(kernel, f).lines()) for f in functions)


class Writer:
    """Writes statements and operators that mean in C++ what they mean in Python; a subclass has values and the rest."""

    def __init__(self, said: str) -> None:
        self._said = said
        """What is named where something is refused."""
        self._hidden = 0

    def body(self, body: Iterable[ast.stmt], indent: str) -> Iterator[str]:
        """Return lines of statements, one within the other as they are in Python."""
        for statement in body:
            for line in self.statement(statement):
                yield indent + line

    def statement(self, s: ast.stmt) -> Iterator[str]:
        """Return the lines of a statement."""
        match s:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                names = self.hidden(*map(str, range(len(values))))
                yield from (f"auto {n} = {self.value(v)};" for n, v in zip(names, values, strict=True))
                yield from (f"{self.value(t)} = {n};" for n, t in zip(names, targets, strict=True))
            case ast.Assign(targets=targets, value=value):
                yield f"{' = '.join(map(self.value, targets))} = {self.value(value)};"
            case ast.AugAssign(target=target, op=op, value=value):
                yield f"{self.value(target)} = {self.binary(op, target, value)};"
            case ast.If():
                yield from (*self._branches(s), "}")
            case ast.While(test=test, body=body, orelse=[]):
                yield from (f"while ({self.value(test)}) {{", *self.turn(), *self.body(body, "  "), "}")
            case ast.Break() | ast.Continue():
                yield "break;" if isinstance(s, ast.Break) else "continue;"
            case ast.Global() | ast.Pass() | ast.Expr(value=ast.Constant()):
                pass
            case ast.Expr(value=value):
                yield f"(void)({self.value(value)});"
            case _:
                self.refuse(s)

    def _branches(self, s: ast.If) -> Iterator[str]:
        """Return an if and each elif; a step has more of them than Python's stack has room for, one in the other."""
        yield f"if ({self.value(s.test)}) {{"
        yield from self.body(s.body, "  ")
        while len(s.orelse) == 1 and isinstance(following := s.orelse[0], ast.If):
            s = following
            yield f"}} else if ({self.value(s.test)}) {{"
            yield from self.body(s.body, "  ")
        if s.orelse:
            yield from ("} else {", *self.body(s.orelse, "  "))

    def turn(self) -> Sequence[str]:
        """Return what each turn of a loop begins with."""
        return ()

    def hidden(self, *parts: str) -> list[str]:
        """Return names that nothing else has."""
        self._hidden += 1
        return [f"hidden{self._hidden}_{part}" for part in parts]

    def value(self, node: ast.expr) -> str:
        """Return an expression."""
        match node:
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY or type(op) in _CALLED:
                return self.binary(op, left, right)
            case ast.UnaryOp(op=op, operand=operand):
                return f"({_UNARY[type(op)]}{self.value(operand)})"
            case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARED for op in ops):
                return self._compared([left, *others], ops)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return f"({self.value(test)} ? {self.value(body)} : {self.value(orelse)})"
        self.refuse(node)

    def binary(self, op: ast.operator, left: ast.expr, right: ast.expr) -> str:
        """Return what an operator makes of two values; quotients are a subclass's."""
        return f"({self.value(left)} {_BINARY[type(op)]} {self.value(right)})"

    def _compared(self, values: Sequence[ast.expr], ops: Sequence[ast.cmpop]) -> str:
        parts = [
            f"({self.value(a)} {_COMPARED[type(op)]} {self.value(b)})"
            for a, op, b in zip(values, ops, values[1:], strict=False)
        ]
        return parts[0] if len(parts) == 1 else f"({' && '.join(parts)})"

    def refuse(self, node: ast.AST) -> NoReturn:
        """Raise a KernelError that says what C++ is not made of."""
        raise KernelError(f"{self._said}: {ast.unparse(node)!r} is not among what C++ is made of")


class _Function(Writer):
    """Writes one function: the step, or a plain function that it calls."""

    def __init__(self, kernel: Kernel, tree: ast.FunctionDef) -> None:
        super().__init__(kernel.name)
        self._kernel, self._tree = kernel, tree
        self._is_step = tree.name == f"step_{kernel.name}"
        self._asked = rq.OP_RETURN
        """The operation whose request is being written."""
        self._ended = f"core.ended(0, {_name(_PLACE)})" if self._is_step else "0"
        """What it returns where its arithmetic has failed."""

    def lines(self) -> Iterator[str]:
        """Return its lines."""
        given = [] if self._is_step else [a.arg for a in self._tree.args.args]
        stored = {n.id for n in ast.walk(self._tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        own = sorted(stored - set(given) - {TURNS}) + ([_PLACE] if self._is_step and _PLACE not in stored else [])
        arguments = ["Core &core", *(f"word {_name(a)}" for a in given)]
        yield f"XCCL_DEVICE word {_name(self._tree.name)}({', '.join(arguments)}) {{"
        if own:
            yield f"  word {', '.join(f'{_name(n)} = 0' for n in own)};"
        yield from self.body(self._tree.body, "  ")
        yield f"  return {self._ended};"
        yield "}"

    def statement(self, s: ast.stmt) -> Iterator[str]:
        match s:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == _PLACE:
                yield f"if (core.status) return {self._ended};"
                yield f"{_name(_PLACE)} = {self.value(value)};"
            case ast.Assign(targets=[ast.Subscript()]):
                yield from (line + self._remark(s) for line in super().statement(s))
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=args), orelse=[]):
                yield from self._for(_name(name), [self.value(a) for a in args], s.body)
            case ast.Return(value=value):
                result = "0" if value is None else self.value(value)
                yield f"return core.ended({result}, {_name(_PLACE)});" if self._is_step else f"return {result};"
            case ast.Raise(exc=ast.Call(func=ast.Name(id=name))):
                yield f"core.fails({RAISED[name]});"
                yield f"return {self._ended};"
            case _:
                yield from super().statement(s)

    def turn(self) -> Sequence[str]:
        return (f"  if (core.status) return {self._ended};",)

    def _for(self, name: str, given: Sequence[str], body: Iterable[ast.stmt]) -> Iterator[str]:
        start, stop, step, k, n = self.hidden("start", "stop", "step", "k", "n")
        values = ("0", given[0], "1") if len(given) == 1 else (*given, "1")[:3]
        yield f"word {', '.join(f'{n} = {v}' for n, v in zip((start, stop, step), values, strict=True))};"
        yield f"for (word {k} = 0, {n} = core.turns_of({start}, {stop}, {step}); {k} < {n}; {k}++) {{"
        yield from self.turn()
        yield f"  {name} = {start} + {k} * {step};"
        yield from self.body(body, "  ")
        yield "}"

    def _remark(self, s: ast.Assign) -> str:
        """Say of a word of a request what it is: the operation, an operand, or the site with its line in Python."""
        said = self._said_of(ast.unparse(s.targets[0]), s.value)
        return f"  // {said}" if said else ""

    def _said_of(self, target: str, value: ast.expr) -> str:
        if target not in _REQUEST:
            return ""
        place = _REQUEST.index(target)
        if place == 0 and isinstance(value, ast.Constant):
            self._asked = int(str(value.value))
            return rq.OPERATIONS[self._asked]
        operands = rq.TABLE[self._asked].operands.split()
        if place <= len(operands):
            return operands[place - 1]
        sites: Sequence[Site] = self._kernel.sites
        if place < len(_REQUEST) - 1 or not isinstance(value, ast.Constant) or self._asked == rq.OP_RETURN:
            return ""
        site = sites[int(str(value.value))]
        return f"{site.file.rpartition('/')[2]}:{site.line}" + (f" ({site.sync!a})" if site.sync else "")

    # ---- expressions

    def value(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=int(number)):
                return str(int(number)) + ("" if abs(number) < 1 << 31 else "LL") if number > -(1 << 63) else LEAST
            case ast.Constant(value=None):
                return "0"
            case ast.Name(id=name):
                return "core.turns" if name == TURNS else _name(name)
            case ast.BoolOp(op=op, values=values):
                return self._last_looked_at(isinstance(op, ast.And), [self.value(v) for v in values])
            case ast.Subscript(value=ast.Name(id=name), slice=ast.BinOp(right=ast.Constant(value=int(offset)))):
                assert name == STATE
                return f"core.words[{offset}]"
            case ast.Subscript(value=ast.Tuple(elts=elements), slice=index):
                return self._element([self.value(e) for e in elements], self.value(index))
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return self._call(name, [self.value(a) for a in arguments])
        return super().value(node)

    def _element(self, elements: Sequence[str], index: str) -> str:
        found = "core.bad_index()"
        for i, element in reversed([*enumerate(elements)]):
            found = f"({index} == {i} || {index} == {i - len(elements)} ? {element} : {found})"
        return found

    def binary(self, op: ast.operator, left: ast.expr, right: ast.expr) -> str:
        a, b = self.value(left), self.value(right)
        if type(op) in _CALLED:
            return f"core.{_CALLED[type(op)]}({a}, {b})"
        if isinstance(op, ast.BitOr) and b == "0":
            return a  # in Python it refuses a float
        return f"(word({a}) {_BINARY[type(op)]} {b})"

    def _last_looked_at(self, is_and: bool, values: Sequence[str]) -> str:
        """Return the value that Python returns; looking at one twice changes nothing."""
        *before, result = values
        for value in reversed(before):
            result = f"({value} ? {result} : 0)" if is_and else f"({value} ? {value} : {result})"
        return result

    def _call(self, name: str, given: Sequence[str]) -> str:
        if name in (INT, "int"):
            return given[0]
        if name in ("min", "max"):
            result = given[0]
            for value in given[1:]:
                result = f"{'least' if name == 'min' else 'greatest'}({result}, {value})"
            return result
        if name == "abs":
            return f"greatest({given[0]}, -{given[0]})"
        if not name.startswith(RESERVED):
            raise KernelError(f"{self._kernel.name}: {name} is not among what C++ is made of")
        return f"{_name(name)}({', '.join(['core', *given])})"


LEAST = "(-9223372036854775807LL - 1)"
"""The least number of 64 bits."""


def _name(name: str) -> str:
    """Return the name of a local or function in C++: no author's name is a word of C++ or one of ours."""
    return f"k_{name.removeprefix(RESERVED)}" if name.startswith(RESERVED) else f"v_{name}"


def constants(values: Mapping[str, int]) -> str:
    """Return constants of C++ with these names and values."""
    return "\n".join(f"constexpr word {name} = {value};" for name, value in values.items())
