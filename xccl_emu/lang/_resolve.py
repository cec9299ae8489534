"""What the names in a kernel mean: constants become literals, plain functions are emitted next to the step function."""

import ast
import builtins
import copy
import dataclasses
import enum
import inspect
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from xccl_emu.lang import requests as rq
from xccl_emu.lang._source import BUILTINS, RESERVED, Source, read
from xccl_emu.lang.abi import TURNS_MAX
from xccl_emu.lang.rights import Record, is_record

CONSTRUCTORS: dict[Callable[..., Any], str] = {
    value: name
    for name, value in vars(rq).items()
    if isinstance(value, FunctionType) and value.__module__ == rq.__name__
}
"""Every request constructor, with its name."""


def value_of(source: Source, node: ast.expr) -> Any:
    """Return the object that a global name, or an attribute of a module, class or frozen instance, means."""
    if isinstance(node, ast.Attribute):
        owner = value_of(source, node.value)
        frozen = dataclasses.is_dataclass(owner) and owner.__dataclass_params__.frozen  # type: ignore[union-attr]
        if not (isinstance(owner, ModuleType | type | enum.Enum) or frozen):
            what = "a module, a class or a frozen dataclass"
            raise source.refuse(node, f"{ast.unparse(node)!r} is not an attribute of {what}")
        if not hasattr(owner, node.attr):
            raise source.refuse(node, f"{ast.unparse(node)!r} is not defined")
        return getattr(owner, node.attr)
    if not isinstance(node, ast.Name):
        raise source.refuse(node, f"{ast.unparse(node)!r} is neither a name nor an attribute of a module")
    if node.id in source.local:
        raise source.refuse(node, f"{node.id!r} is a local integer; it has no attributes and cannot be called")
    function = source.function
    free = function.__code__.co_freevars
    if node.id in free and function.__closure__ is not None:
        cell = function.__closure__[free.index(node.id)]
        try:
            return cell.cell_contents
        except ValueError:
            raise source.refuse(node, f"{node.id!r} is not defined yet") from None
    if node.id in function.__globals__:
        return function.__globals__[node.id]
    if node.id in BUILTINS:
        return getattr(builtins, node.id)
    if hasattr(builtins, node.id):
        raise source.refuse(node, f"the builtin {node.id!r} cannot be lowered; there are {', '.join(sorted(BUILTINS))}")
    raise source.refuse(node, f"{node.id!r} is not defined")


class Decorated:
    """Base of what the decorator makes of a generator function."""

    _generator: Any

    @property
    def generator(self) -> FunctionType:
        """The undecorated generator function."""
        function: FunctionType = self._generator
        return function


def plain(value: Any) -> Any:
    """Return the function that a kernel or a compiled function was made of, and anything else as it is."""
    return value.generator if isinstance(value, Decorated) else getattr(value, "py_func", value)


def literal(value: Any) -> ast.expr | None:
    """Return a constant of the language (an integer, or a tuple of them) as an expression, or None."""
    if isinstance(value, tuple) and type(value) is tuple:
        elements = [literal(v) for v in value]
        return ast.Tuple([e for e in elements if e is not None], ast.Load()) if None not in elements else None
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return ast.Constant(value if isinstance(value, bool) else int(value))
    return None


def left_shift_count(count: int) -> int:
    """Return the count of a shift to the left; emitted with kernels that shift by a variable."""
    if count < 0 or count > 63:
        raise ValueError("the count of a shift to the left is not in 0 to 63")
    return count


def right_shift_count(count: int) -> int:
    """Return the count of a shift to the right; emitted with kernels that shift by a variable."""
    if count < 0:
        raise ValueError("negative shift count")
    return min(count, 63)


TURNS = f"{RESERVED}turns"
"""What says how often loops of a step and its functions may still turn before the next request; never a register."""
TURNS_AT_FIRST = f"{TURNS} = {TURNS_MAX}"


def turn() -> list[ast.stmt]:
    """Return what begins a loop's body, so that the loop has an end."""
    return ast.parse(f"{TURNS} -= 1\nif {TURNS} < 0:\n    raise TimeoutError()").body


def _with_ends(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the body of a plain function, with an end for each of its loops."""
    for loop in (node for s in body for node in ast.walk(s) if isinstance(node, ast.While | ast.For)):
        loop.body[:0] = turn()
    return body


class Functions:
    """The plain functions that a kernel calls, each emitted once under a generated name."""

    def __init__(self) -> None:
        self.names: dict[FunctionType, str] = {}
        self.trees: dict[str, ast.FunctionDef] = {}
        """The function of each name; its parameters are plain, for every call gives all of them in order."""
        self._open: list[FunctionType] = []

    def name(self, function: FunctionType, source: Source, node: ast.AST) -> str:
        """Return the name that ``function`` has in the lowered text, emitting it first if it is new."""
        if function in self._open:
            raise source.refuse(node, f"{function.__name__!r} calls itself; recursion cannot be lowered")
        if function not in self.names:
            self._open.append(function)
            text_name = f"{RESERVED}f{len(self._open) + len(self.names)}_{function.__name__}"
            self.trees[text_name] = self._emit(read(function), text_name)
            self._open.pop()
            self.names[function] = text_name
        return self.names[function]

    def guard(self, function: Callable[[int], int]) -> str:
        """Return the name that a function of this module has in the lowered text, emitting it as it is."""
        assert isinstance(function, FunctionType)
        name = f"{RESERVED}f0_{function.__name__}"
        if function not in self.names:
            self.names[function] = name
            self.trees[name] = definition(function, name)
        return name

    def _emit(self, source: Source, text_name: str) -> ast.FunctionDef:
        rewriter = Rewriter(source, {n: ast.Name(n, ast.Load()) for n in source.local}, self)
        parameters = ast.arguments([], [ast.arg(n) for n in source.parameters], None, [], [], None, [])
        body = [rewriter.statement(s) for s in source.tree.body if not is_empty(s)] or [ast.Pass()]
        body = _with_ends(body)
        return ast.fix_missing_locations(ast.FunctionDef(text_name, parameters, body, []))


def definition(function: Callable[..., Any], name: str) -> ast.FunctionDef:
    """Return the definition of a function of this package, under another name."""
    tree = ast.parse(inspect.getsource(function)).body[0]
    assert isinstance(tree, ast.FunctionDef)
    tree.name = name
    return tree


Given = TypeVar("Given")


def bind(
    function: FunctionType, call: ast.Call, source: Source, rewritten: Callable[[ast.expr], Given]
) -> dict[str, ast.expr | Given]:
    """Return the rewritten argument of each parameter, defaults included."""
    given = [rewritten(a) for a in call.args]
    keywords = {k.arg: rewritten(k.value) for k in call.keywords if k.arg is not None}
    try:
        bound = inspect.signature(function).bind(*given, **keywords)
    except TypeError as error:
        raise source.refuse(call, f"{ast.unparse(call.func)}(...): {error}") from None
    bound.apply_defaults()
    arguments: dict[str, ast.expr | Given] = {}
    for name, value in bound.arguments.items():
        default = ast.Constant(value) if isinstance(value, str) else literal(value)
        expression: Any = value if isinstance(value, ast.expr | Record) else default
        if expression is None:
            raise source.refuse(call, f"the default of {name!r}, {value!r}, is neither an integer nor a string")
        arguments[name] = expression
    return arguments


def is_empty(s: ast.stmt) -> bool:
    """Return whether a statement is a docstring, a pass or a bare annotation."""
    bare = isinstance(s, ast.AnnAssign) and s.value is None
    return bare or isinstance(s, ast.Pass) or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))


class Rewriter(ast.NodeTransformer):
    """Copies the code of one function with every name resolved and constant expressions computed.

    ``local`` gives what each local name becomes: another name, or the literal or record that a parameter is bound to.
    """

    def __init__(self, source: Source, local: Mapping[str, ast.expr | Record], functions: Functions) -> None:
        self.source = source
        self.local = local
        self.functions = functions

    def expression(self, node: ast.expr) -> ast.expr:
        """Return ``node`` rewritten."""
        result = self.visit(copy.deepcopy(node))
        assert isinstance(result, ast.expr)
        return result

    def statement(self, node: ast.stmt) -> ast.stmt:
        """Return a statement without yields rewritten."""
        result = self.visit(copy.deepcopy(node))
        assert isinstance(result, ast.stmt)
        return result

    def argument(self, node: ast.expr) -> ast.expr | Record:
        """Return an argument rewritten; other than `expression` it may be a record, or a string that names a sync."""
        if isinstance(node, ast.Constant):
            return node
        if isinstance(node, ast.Name) and isinstance(bound := self.local.get(node.id), ast.Constant | Record):
            return bound
        made = self._record(node) if isinstance(node, ast.Call) else None
        return self.expression(node) if made is None else made

    def _record(self, node: ast.Call) -> Record | None:
        """Return the record that ``Shape(...)`` or ``shape._replace(...)`` makes; None if a call is neither."""
        f = node.func
        if isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name):
            old = self.local.get(f.value.id)
            if isinstance(old, Record):
                return self._replaced(old, node) if f.attr == "_replace" else None
        root = f
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and root.id in self.source.local:
            return None
        kind = value_of(self.source, f)
        return self._constructed(kind, node) if is_record(kind) else None

    def _replaced(self, old: Record, node: ast.Call) -> Record:
        given = {k.arg: self.expression(k.value) for k in node.keywords if k.arg is not None}
        unknown = [name for name in given if name not in old.fields]
        if node.args or unknown:
            known = ", ".join(old.fields)
            raise self.source.refuse(node, f"_replace takes fields of {old.kind.__name__} by name: {known}")
        return Record(old.kind, {**old.fields, **given})

    def _constructed(self, kind: type, node: ast.Call) -> Record:
        """Return a new record; as in Python, fields come in order or by name, and may have defaults."""
        given = [self.expression(a) for a in node.args]
        named = {k.arg: self.expression(k.value) for k in node.keywords if k.arg is not None}
        try:
            bound = inspect.signature(kind).bind(*given, **named)
        except TypeError as error:
            raise self.source.refuse(node, f"{ast.unparse(node.func)}(...): {error}") from None
        bound.apply_defaults()
        values = {name: v if isinstance(v, ast.expr) else literal(v) for name, v in bound.arguments.items()}
        fields = {name: value for name, value in values.items() if value is not None}
        if len(fields) < len(values):
            bad = next(name for name in values if name not in fields)
            raise self.source.refuse(node, f"the default of {bad!r} in {kind.__name__} is no integer")
        return Record(kind, fields)

    def stored(self, name: str) -> str:
        """Return what a local name that is assigned becomes."""
        renamed = self.local[name]
        assert isinstance(renamed, ast.Name)
        return renamed.id

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Store):
            return ast.copy_location(ast.Name(self.stored(node.id), ast.Store()), node)
        if node.id not in self.source.local:
            return self._constant(node)
        bound = self.local[node.id]
        if isinstance(bound, ast.Constant):
            if not isinstance(bound.value, int):
                raise self.source.refuse(node, f"{node.id!r} is a string; it may only name the sync of a request")
            return ast.copy_location(ast.Constant(bound.value), node)
        if isinstance(bound, Record):
            how = f"read a field of it, or pass it whole to a subroutine that takes a {bound.kind.__name__}"
            raise self.source.refuse(node, f"{node.id!r} is a record, not an integer: {how}")
        assert isinstance(bound, ast.Name)
        return ast.copy_location(ast.Name(bound.id, ast.Load()), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        owner = self.local.get(node.value.id) if isinstance(node.value, ast.Name) else None
        return self._field(owner, node) if isinstance(owner, Record) else self._constant(node)

    def _field(self, record: Record, node: ast.Attribute) -> ast.expr:
        if node.attr not in record.fields:
            known = ", ".join(record.fields)
            raise self.source.refuse(node, f"{ast.unparse(node)!r}: {record.kind.__name__} has the fields {known}")
        return ast.copy_location(copy.deepcopy(record.fields[node.attr]), node)

    def _constant(self, node: ast.expr) -> ast.expr:
        value = value_of(self.source, node)
        result = literal(value)
        if result is None:
            what = "a function, not a value" if callable(value) else "no integer of 64 bits and no tuple of them"
            raise self.source.refuse(node, f"{ast.unparse(node)!r} is {what}")
        return ast.fix_missing_locations(ast.copy_location(result, node))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        value = value_of(self.source, node.func)
        function = plain(value)
        label = ast.unparse(node.func)
        if isinstance(function, FunctionType) and function in CONSTRUCTORS:
            raise self.source.refuse(node, f"the request {label}(...) does nothing without yield")
        if inspect.isgeneratorfunction(function):
            raise self.source.refuse(node, f"the subroutine {label}(...) does nothing without yield from")
        if isinstance(function, FunctionType):
            name = self.functions.name(function, self.source, node)
            arguments = [*bind(function, node, self.source, self.expression).values()]
            return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), arguments, []), node)
        if getattr(value, "__module__", "") != "builtins" or getattr(value, "__name__", "") not in BUILTINS:
            raise self.source.refuse(node, f"{label!r} is not a plain Python function")
        if node.keywords:
            raise self.source.refuse(node, f"{label} takes no arguments by name here")
        arguments = [self.expression(a) for a in node.args]
        return ast.copy_location(ast.Call(ast.Name(value.__name__, ast.Load()), arguments, []), node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        assert isinstance(node.target, ast.Name)
        target = ast.Name(self.stored(node.target.id), ast.Store())
        return ast.copy_location(ast.Assign([target], self.expression(node.value), lineno=node.lineno), node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        operation = self.generic_visit(node)
        assert isinstance(operation, ast.BinOp)
        operation.right = self._shift_count(operation.op, operation.right)
        return self._folded(operation)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        operation = self.generic_visit(node)
        assert isinstance(operation, ast.AugAssign)
        operation.value = self._shift_count(operation.op, operation.value)
        return operation

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        return self._folded(self.generic_visit(node))

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        return self._folded(self.generic_visit(node))

    def _shift_count(self, op: ast.operator, count: ast.expr) -> ast.expr:
        """Return the count of a shift, guarded: the processor looks at six bits of it, Python at all."""
        if not isinstance(op, ast.LShift | ast.RShift):
            return count
        if not isinstance(count, ast.Constant):
            name = self.functions.guard(left_shift_count if isinstance(op, ast.LShift) else right_shift_count)
            return ast.Call(ast.Name(name, ast.Load()), [count], [])
        if not isinstance(count.value, int) or not 0 <= count.value < 64:
            raise self.source.refuse(count, f"{ast.unparse(count)} is no shift count from 0 to 63")
        return count

    def _folded(self, node: ast.AST) -> ast.expr:
        """Return the value of an operation on literals, any other operation as it is."""
        assert isinstance(node, ast.expr)
        operands = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        if not all(isinstance(o, ast.Constant) for o in operands):
            return node
        expression = ast.fix_missing_locations(ast.Expression(node))
        try:
            value = eval(compile(expression, "<literal>", "eval"), {"__builtins__": {}})
        except ZeroDivisionError:
            return node  # It may never be reached; where it is, it fails as in plain Python.
        result = literal(value)
        if result is None:
            raise self.source.refuse(node, f"{ast.unparse(node)} does not fit into 64 bits with a sign")
        return ast.copy_location(result, node)
