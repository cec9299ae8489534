"""Functions of the emulator's machine as C++: its vector pipe, and what it says of a core's rights.

They are written from the text that Numba compiles, statement by statement, so both compute the same.  Their arguments
are templates, and C++ finds out the types of what is local, as Numba does.  A table is what it is when this is written.
"""

import ast
import functools
import inspect
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from xccl_emu.base.errors import KernelError
from xccl_emu.lang import cpp
from xccl_emu.machine.device import access, pipes, touched, words

_TYPES = {
    np.int64: "word", np.int32: "int", np.int8: "signed char", np.uint32: "unsigned", np.uint16: "unsigned short",
    np.uint64: "unsigned long long", np.uint8: "unsigned char", np.float32: "float", np.float64: "double",
}  # fmt: skip
_CALLED = {max: "larger", min: "smaller", abs: "magnitude", np.rint: "nearest", np.isfinite: "is_finite"}
_OURS = (
    words.load_i32, words.load_i64, words.store_u32, words.store_i64, words.copy_bytes, words.same_bytes,
    words.float_of, words.bits_of, access.set_error_at,
)  # fmt: skip
"""What emulated.h has by the same name."""
_ROOTS = (access.check, access.check_vector, access.check_choice, pipes._compute, touched.elements)


@functools.cache
def text() -> str:
    """Return the functions that machine.h calls, and before each what it calls itself."""
    written: dict[str, str] = {}
    for root in _ROOTS:
        _write(root, written)
    return "\n\n".join(written.values())


def _write(function: Any, written: dict[str, str]) -> None:
    if _named(function) in written:
        return
    writer = _Function(function.py_func)
    lines = "\n".join(writer.lines(_named(function)))
    for each in writer.called:
        _write(each, written)
    written[_named(function)] = lines


def _named(function: Any) -> str:
    """Return the name of a function in C++: two modules may have one of the same name."""
    return f"{function.py_func.__module__.rpartition('.')[2]}_{function.py_func.__name__}"


def _literal(value: object) -> str:
    """Return a constant, of the type that it has in Numba."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, np.float32):
        return f"float_of({value.view(np.uint32)}u)"
    if isinstance(value, float):
        return value.hex() if math.isfinite(value) else f"(double){_literal(np.float32(value))}"
    if isinstance(value, np.uint32):
        return f"{value}u"
    if isinstance(value, int | np.integer):
        return f"{value}LL" if value > -(1 << 63) else cpp.LEAST
    raise KernelError(f"{value!r} is not among what C++ is made of")


class _Function(cpp.Writer):
    """Writes one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function.__name__)
        self._globals = function.__globals__
        (self._tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
        assert isinstance(self._tree, ast.FunctionDef)
        self._given = [a.arg for a in self._tree.args.args]
        stored = {n.id for n in ast.walk(self._tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self._local = {*self._given, *stored}
        self._tables: dict[str, str] = {}
        self.called: dict[Any, None] = {}
        """Functions that it calls, in order."""

    def lines(self, name: str) -> Iterator[str]:
        """Return its lines."""
        assert isinstance(self._tree, ast.FunctionDef)
        types = [f"T{i}" for i in range(len(self._given))]
        arguments = ", ".join(f"{kind} v_{a}" for kind, a in zip(types, self._given, strict=True))
        yield f"template <{', '.join(f'class {kind}' for kind in types)}> XCCL_CALLED auto {name}({arguments}) {{"
        made = dict.fromkeys(self._given, "")
        for local, value in self._locals(self._tree.body):
            made.setdefault(local, f"  decltype(copied({value})) v_{local}{{}};")
        body = [*filter(None, made.values()), *self.body(self._tree.body, "  ")]
        yield from (*self._tables.values(), *body, "}")

    def _locals(self, body: Iterable[ast.stmt]) -> Iterator[tuple[str, str]]:
        """Return names and what is first assigned to them, in order."""
        for s in body:
            match s:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    yield name, self.value(value)
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                    yield from ((ast.unparse(n), self.value(v)) for n, v in zip(names, values, strict=True))
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=value):
                    yield from ((ast.unparse(n), f"{self.value(value)}.v{i}") for i, n in enumerate(names))
                case ast.For(target=ast.Name(id=name)):
                    yield name, "0LL"
            for inner in (getattr(s, "body", ()), getattr(s, "orelse", ())):
                yield from self._locals(inner)

    def statement(self, s: ast.stmt) -> Iterator[str]:
        match s:
            case ast.Assign(targets=[ast.Subscript(slice=ast.Slice()) as part], value=value):
                yield f"fill({self.value(part)}, {self.value(value)});"
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Call() as value):
                (result,) = self.hidden("result")
                yield f"auto {result} = {self.value(value)};"
                yield from (f"{self.value(n)} = {result}.v{i};" for i, n in enumerate(names))
            case ast.For(target=target, iter=ast.Call(func=ast.Name(id="range"), args=args), orelse=[]):
                yield from self._for(self.value(target), args, s.body)
            case ast.For(target=target, iter=elements, orelse=[]):
                (each,) = self.hidden("each")
                yield f"for (word {each} : {self._known(elements)}) {{"
                yield from (f"  {self.value(target)} = {each};", *self.body(s.body, "  "), "}")
            case ast.Return(value=None):
                yield "return;"
            case ast.Return(value=ast.expr() as value):
                yield f"return {self.value(value)};"
            case _:
                yield from super().statement(s)

    def _for(self, name: str, args: Sequence[ast.expr], body: Iterable[ast.stmt]) -> Iterator[str]:
        start, stop = ("0", self.value(args[0])) if len(args) == 1 else map(self.value, args[:2])
        step = self.value(args[2]) if len(args) == 3 else "1LL"
        (end,) = self.hidden("end")
        goes_on = f"{step} > 0 ? {name} < {end} : {name} > {end}"
        yield f"for (word {end} = ({name} = {start}, {stop}); {goes_on}; {name} += {step}) {{"
        yield from (*self.body(body, "  "), "}")

    def value(self, node: ast.expr) -> str:
        match node:
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(op, left, right)
            case ast.Constant(value=value):
                return _literal(value)
            case ast.Name(id=name) if name in self._local:
                return f"v_{name}"
            case ast.Name() | ast.Attribute() if not self._is_local(node):
                return self._known(node)
            case ast.Attribute(value=value, attr="size"):
                return f"{self.value(value)}.size"
            case ast.BoolOp(op=op, values=values):
                return f"({(' && ' if isinstance(op, ast.And) else ' || ').join(map(self.value, values))})"
            case ast.Tuple(elts=elements):
                return f"several({', '.join(map(self.value, elements))})"
            case ast.Subscript(value=value, slice=ast.Slice(lower=lower, upper=upper)):
                bounds = [self.value(lower) if lower else "0", *([self.value(upper)] if upper else ())]
                return f"part({', '.join([self.value(value), *bounds])})"
            case ast.Subscript(value=value, slice=ast.Tuple(elts=[i, j])):
                return f"{self.value(value)}[{self.value(i)}][{self.value(j)}]"
            case ast.Subscript(value=value, slice=i):
                return f"{self.value(value)}[{self.value(i)}]"
            case ast.Call(func=ast.Attribute(value=value, attr="view"), args=[kind]):
                return f"as<{_TYPES[self._object(kind)]}>({self.value(value)})"
            case ast.Call(func=function, args=args):
                return self._call(self._object(function), [self.value(a) for a in args])
        return super().value(node)

    def binary(self, op: ast.operator, left: ast.expr, right: ast.expr) -> str:
        if isinstance(op, ast.FloorDiv):
            return f"quotient({self.value(left)}, {self.value(right)})"
        if isinstance(op, ast.Div):
            return f"({self.value(left)} / {self.value(right)})"
        return super().binary(op, left, right)

    def _call(self, function: Any, args: Sequence[str]) -> str:
        if function in _TYPES:
            return f"({_TYPES[function]})({args[0]})"
        if function in _CALLED:
            return f"{_CALLED[function]}({', '.join(args)})"
        if function in _OURS:
            return f"{function.py_func.__name__}({', '.join(args)})"
        self.called[function] = None
        return f"{_named(function)}({', '.join(args)})"

    # ---- what a module has: constants, tables, functions

    def _is_local(self, node: ast.expr) -> bool:
        while isinstance(node, ast.Attribute):
            node = node.value
        return not isinstance(node, ast.Name) or node.id in self._local

    def _object(self, node: ast.expr) -> Any:
        try:
            return eval(ast.unparse(node), self._globals)
        except NameError:
            self.refuse(node)

    def _known(self, node: ast.expr) -> str:
        value = self._object(node)
        if not isinstance(value, (tuple, np.ndarray)):
            return _literal(value)
        name, table = f"table_{re.sub('[^a-z0-9]+', '_', ast.unparse(node).lower())}", np.asarray(value)
        sizes = "".join(f"[{n}]" for n in table.shape)
        kind, elements = "double" if table.dtype.kind == "f" else "word", ", ".join(map(_literal, table.ravel()))
        self._tables[name] = f"  static constexpr {kind} {name}{sizes} = {{{elements}}};"
        return name
