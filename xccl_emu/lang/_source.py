"""The source of a function of the kernel language: its syntax tree, its local names, and what it may not contain."""

import ast
import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeGuard

from xccl_emu.base.errors import KernelError
from xccl_emu.lang import _flow
from xccl_emu.lang.loader import KeepingLoader
from xccl_emu.lang.rights import records_of

RESERVED = "_xk_"
"""Prefix of every generated name; no name of an author may begin with it."""

BUILTINS = frozenset({"abs", "bool", "divmod", "int", "len", "max", "min", "range"})
"""Builtins that mean the same in plain Python and compiled."""

_REFUSED_STATEMENTS: dict[type[ast.stmt], str] = {
    ast.Try: "try", ast.TryStar: "try", ast.With: "with", ast.AsyncWith: "async with", ast.AsyncFor: "async for",
    ast.FunctionDef: "a nested function", ast.AsyncFunctionDef: "a nested function", ast.ClassDef: "a class",
    ast.Global: "global", ast.Nonlocal: "nonlocal", ast.Delete: "del", ast.Import: "import",
    ast.ImportFrom: "import", ast.Match: "match", ast.Raise: "raise (a kernel stops a run with `yield fail(code)`)",
    ast.Assert: "assert (a kernel stops a run with `yield fail(code)`)",
}  # fmt: skip

_REFUSED_EXPRESSIONS: dict[type[ast.expr], str] = {
    ast.Lambda: "lambda", ast.ListComp: "a comprehension", ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension", ast.GeneratorExp: "a comprehension", ast.Starred: "star-arguments",
    ast.NamedExpr: "an assignment inside an expression", ast.JoinedStr: "a string", ast.List: "a list",
    ast.Dict: "a dict", ast.Set: "a set", ast.Await: "await", ast.Slice: "a slice",
}  # fmt: skip

_EXPRESSIONS = (
    ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Compare, ast.Call, ast.Constant, ast.Name, ast.Tuple,
    ast.Subscript, ast.Attribute,
)  # fmt: skip


@dataclass(frozen=True)
class Source:
    """One function of the kernel language, checked; ``tree`` has the line numbers of ``file``."""

    function: FunctionType
    file: str
    tree: ast.FunctionDef
    lines: Sequence[str]
    """Lines of the file."""
    parameters: tuple[str, ...]
    stored: frozenset[str]
    """Names that the body assigns; a parameter may be among them."""
    records: Mapping[str, type]
    """The class of each parameter that is a record."""

    @property
    def local(self) -> frozenset[str]:
        """Every local name."""
        return self.stored | frozenset(self.parameters)

    def refuse(self, node: ast.AST, reason: str) -> KernelError:
        """Return the error that says that ``node`` cannot be lowered."""
        return KernelError(f"{self.file}:{getattr(node, 'lineno', self.tree.lineno)}: {reason}")

    def line(self, number: int) -> str:
        """Return one line of the file, stripped."""
        return self.lines[number - 1].strip()


def read(function: FunctionType) -> Source:
    """Read, parse and check a function.

    Raises:
        KernelError: if the source is missing or contains what the kernel language does not have.
    """
    # A decorator runs before its function can change, but a reloaded module makes a new function: key on the code.
    return _read(function)


@functools.lru_cache(maxsize=512)
def _read(function: FunctionType) -> Source:
    file = function.__code__.co_filename
    where = f"{file}:{function.__code__.co_firstlineno}: {function.__name__!r}"
    try:
        whole, first = _lines(inspect.unwrap(function))
        lines = inspect.getblock(whole[first - 1 :])
    except (OSError, TypeError) as error:
        raise KernelError(f"{where} has no source to lower; write it to a file") from error
    indented = lines[0][:1].isspace()
    try:
        module = ast.parse(("if 1:\n" if indented else "") + "".join(lines))
    except SyntaxError as error:
        raise KernelError(f"{where} is not a function of its own lines; write it with def") from error
    ast.increment_lineno(module, first - (2 if indented else 1))
    tree = module.body[0]
    if isinstance(tree, ast.If):
        tree = tree.body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise KernelError(f"{where} is not a plain function; write it with def")
    a = tree.args
    parameters = tuple(x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs))
    stored = {n.id for s in tree.body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    source = Source(function, file, tree, whole, parameters, frozenset(stored), records_of(function))
    _Check(source).run()
    return source


def _lines(function: Any) -> tuple[list[str], int]:
    """Return the lines of a function's file as it was loaded, if its loader keeps them, and the number of its first."""
    loader = function.__globals__.get("__loader__")
    if isinstance(loader, KeepingLoader) and function.__code__.co_filename == loader.path:
        return loader.get_source("").splitlines(keepends=True), function.__code__.co_firstlineno
    whole, index = inspect.findsource(function)
    return whole, index + 1


def has_yield(node: ast.AST) -> bool:
    """Return whether a yield is anywhere in ``node``."""
    return any(isinstance(x, ast.Yield | ast.YieldFrom) for x in ast.walk(node))


def yield_of(statement: ast.stmt) -> ast.Yield | ast.YieldFrom | None:
    """Return the yield that is the whole value of a statement, or None."""
    value = getattr(statement, "value", None) if isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign) else None
    return value if isinstance(value, ast.Yield | ast.YieldFrom) else None


def is_range(node: ast.expr) -> TypeGuard[ast.Call]:
    """Return whether ``node`` is a call written ``range(...)``."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"


class _Check:
    """Refuses what the language does not have, with file, line and reason."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def run(self) -> None:
        tree = self.source.tree
        a = tree.args
        if a.vararg or a.kwarg:
            raise self.source.refuse(tree, f"{tree.name!r} takes star-arguments")
        for parameter in self.source.parameters:
            self.name(tree, parameter)
            if parameter in self.source.records and parameter in self.source.stored:
                raise self.source.refuse(tree, f"{parameter!r} is a record and cannot be assigned")
        for statement in tree.body:
            self.statement(statement)
        self.one_yield_a_line()
        _flow.Flow(self.source.local, self.unassigned).run(tree.body, frozenset(self.source.parameters))

    def unassigned(self, name: ast.Name) -> None:
        raise self.source.refuse(name, f"{name.id!r} may be read before it is assigned")

    def name(self, node: ast.AST, name: str) -> None:
        if name.startswith(RESERVED):
            raise self.source.refuse(node, f"the name {name!r} begins with {RESERVED!r}, which is reserved")

    def one_yield_a_line(self) -> None:
        seen: set[int] = set()
        for node in ast.walk(self.source.tree):
            if isinstance(node, ast.Yield | ast.YieldFrom):
                if node.lineno in seen:
                    raise self.source.refuse(node, "two yields stand on one line; a line is what names a request")
                seen.add(node.lineno)

    def statement(self, s: ast.stmt) -> None:
        if type(s) in _REFUSED_STATEMENTS:
            raise self.source.refuse(s, f"{_REFUSED_STATEMENTS[type(s)]} cannot be lowered")
        match s:
            case ast.Expr(value=ast.Constant(value=str())) | ast.Pass() | ast.Break() | ast.Continue():
                return
            case ast.Expr():
                self.value(s.value)
            case ast.Assign():
                for target in s.targets:
                    self.target(target, tuples=yield_of(s) is None)
                if yield_of(s) is not None and len(s.targets) > 1:
                    raise self.source.refuse(s, "the value of a yield goes to one name")
                self.value(s.value)
            case ast.AnnAssign():
                self.target(s.target, tuples=False)
                if s.value is not None:
                    self.value(s.value)
            case ast.AugAssign():
                self.target(s.target, tuples=False)
                self.operator(s, s.op, s.value)
                self.expression(s.value)
            case ast.If() | ast.While():
                self.expression(s.test)
            case ast.For():
                self.loop(s)
            case ast.Return():
                if s.value is not None:
                    self.expression(s.value)
            case _:
                raise self.source.refuse(s, f"{type(s).__name__} cannot be lowered")
        if isinstance(s, ast.For | ast.While) and s.orelse:
            raise self.source.refuse(s.orelse[0], "else of a loop cannot be lowered; set a flag before break")
        for child in _children(s):
            self.statement(child)

    def loop(self, s: ast.For) -> None:
        self.target(s.target, tuples=not has_yield(s))
        self.expression(s.iter)
        if not has_yield(s):
            return
        if not is_range(s.iter) or "range" in self.source.local:
            raise self.source.refuse(s.iter, "a for loop around yields or return goes over range(...) only")
        call = s.iter
        if call.keywords or not 1 <= len(call.args) <= 3:
            raise self.source.refuse(call, "range takes one to three arguments")

    def target(self, node: ast.expr, tuples: bool) -> None:
        if isinstance(node, ast.Name):
            self.name(node, node.id)
            return
        if isinstance(node, ast.Tuple) and tuples:
            for element in node.elts:
                self.target(element, tuples)
            return
        what = "a name or a tuple of names" if tuples else "one name"
        raise self.source.refuse(node, f"only {what} can be assigned here, not {ast.unparse(node)!r}")

    def value(self, node: ast.expr) -> None:
        """Check the value of a statement, which may be a yield."""
        if not isinstance(node, ast.Yield | ast.YieldFrom):
            self.expression(node)
            return
        if not isinstance(node.value, ast.Call):
            form = "yield load(...)" if isinstance(node, ast.Yield) else "yield from subroutine(...)"
            raise self.source.refuse(node, f"a yield has the form `{form}`")
        self.expression(node.value, strings=True)

    def expression(self, node: ast.expr, strings: bool = False) -> None:
        """Check an expression; ``strings``: the arguments of the call may be string literals."""
        if isinstance(node, ast.Yield | ast.YieldFrom):
            raise self.source.refuse(node, "a yield is in the middle of an expression; give its value a name first")
        if type(node) in _REFUSED_EXPRESSIONS:
            raise self.source.refuse(node, f"{_REFUSED_EXPRESSIONS[type(node)]} cannot be lowered")
        if not isinstance(node, _EXPRESSIONS):
            raise self.source.refuse(node, f"{type(node).__name__} cannot be lowered")
        match node:
            case ast.Name():
                self.name(node, node.id)
            case ast.Constant():
                self.constant(node)
            case ast.BinOp():
                self.operator(node, node.op, node.right)
            case ast.Compare() if any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
                raise self.source.refuse(node, "`is` cannot be lowered; compare integers with ==")
            case ast.Call() if any(k.arg is None for k in node.keywords):
                raise self.source.refuse(node, "star-arguments cannot be lowered")
        for child in _operands(node):
            if not (strings and isinstance(child, ast.Constant) and isinstance(child.value, str)):
                self.expression(child)

    def constant(self, node: ast.Constant) -> None:
        if not isinstance(node.value, int):
            kind = f"{ast.unparse(node)} is not an integer"
            if isinstance(node.value, str):
                kind = "a string may only name the sync of a request, as in: yield put(flag, 1, sync='tail')"
            raise self.source.refuse(node, kind)
        if not -(2**63) <= node.value < 2**63:
            raise self.source.refuse(node, f"{node.value} does not fit into 64 bits with a sign")

    def operator(self, node: ast.AST, op: ast.operator, right: ast.expr) -> None:
        if isinstance(op, ast.Div):
            raise self.source.refuse(node, "/ gives a float; locals are integers, use //")
        if isinstance(op, ast.MatMult):
            raise self.source.refuse(node, "@ cannot be lowered")
        if isinstance(op, ast.Pow):
            exponent = right.value if isinstance(right, ast.Constant) else None
            if not isinstance(exponent, int) or not 0 <= exponent < 64:
                raise self.source.refuse(node, "the exponent of ** must be an integer literal from 0 to 63")


def _children(s: ast.stmt) -> Iterator[ast.stmt]:
    for field in ("body", "orelse"):
        yield from getattr(s, field, ())


def _operands(node: ast.expr) -> Iterator[ast.expr]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield child
        elif isinstance(child, ast.keyword):
            yield child.value
