"""Which names are surely assigned where (definite assignment), over syntax trees without nested functions."""

import ast
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field

Assigned = frozenset[str] | None
"""The names that are surely assigned at a point; None where control never comes."""


def meet(a: Assigned, b: Assigned) -> Assigned:
    """Return what is surely assigned where two ways join."""
    if a is None or b is None:
        return b if a is None else a
    return a & b


def names(node: ast.AST, context: type[ast.expr_context]) -> list[ast.Name]:
    """Return the names under ``node`` that are read (``ast.Load``) or assigned (``ast.Store``)."""
    return [n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, context)]


@dataclass
class Flow:
    """Walks statements in order of control and reports every read of a local name that may be unassigned."""

    local: Container[str]
    on_unassigned: Callable[[ast.Name], None]
    _breaks: list[Assigned] = field(default_factory=list)

    def run(self, body: Sequence[ast.stmt], assigned: Assigned) -> Assigned:
        """Walk ``body`` with these names assigned; return what is assigned where it falls off its end."""
        for statement in body:
            if assigned is None:
                break
            assigned = self._statement(statement, assigned)
        return assigned

    def _read(self, node: ast.AST | None, assigned: frozenset[str]) -> None:
        for name in names(node, ast.Load) if node is not None else ():
            if name.id in self.local and name.id not in assigned:
                self.on_unassigned(name)

    def _statement(self, s: ast.stmt, assigned: frozenset[str]) -> Assigned:
        match s:
            case ast.Assign(targets=targets, value=value):
                self._read(value, assigned)
                return assigned.union(*({n.id for n in names(t, ast.Store)} for t in targets))
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                self._read(value, assigned)
                return assigned if value is None else assigned | {name}
            case ast.AugAssign(target=ast.Name(id=name) as target, value=value):
                if name in self.local and name not in assigned:
                    self.on_unassigned(target)
                self._read(value, assigned)
                return assigned | {name}
            case ast.Expr(value=value):
                self._read(value, assigned)
                return assigned
            case ast.Return(value=result):
                self._read(result, assigned)
                return None
            case ast.If(test=test, body=body, orelse=orelse):
                self._read(test, assigned)
                return meet(self.run(body, assigned), self.run(orelse, assigned))
            case ast.While() | ast.For():
                return self._loop(s, assigned)
            case ast.Break():
                self._breaks[-1] = meet(self._breaks[-1], assigned)
                return None
            case ast.Continue():
                return None
        return assigned

    def _loop(self, s: ast.While | ast.For, assigned: frozenset[str]) -> Assigned:
        # Nothing is ever unassigned, so what holds where the loop is entered holds at every later turn too.
        self._read(s.test if isinstance(s, ast.While) else s.iter, assigned)
        inside = assigned if isinstance(s, ast.While) else assigned | {n.id for n in names(s.target, ast.Store)}
        self._breaks.append(None)
        self.run(s.body, inside)
        broken = self._breaks.pop()
        return broken if isinstance(s, ast.While) and is_true(s.test) else meet(assigned, broken)


def is_true(test: ast.expr) -> bool:
    """Return whether a test is a literal that is always true."""
    return isinstance(test, ast.Constant) and bool(test.value)


_ALWAYS_WORK = frozenset({"abs", "bool", "int", "len", "max", "min"})


def may_fail(node: ast.AST) -> bool:
    """Return whether arithmetic in rewritten code may fail: a division, a call, an index, each by no literal."""
    return any(_may_fail(each) for each in ast.walk(node))


def _may_fail(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(op=op, right=by) | ast.AugAssign(op=op, value=by) if isinstance(op, ast.FloorDiv | ast.Mod):
            return not isinstance(by, ast.Constant) or not by.value
        case ast.Subscript(slice=index):
            return not isinstance(index, ast.Constant)
        case ast.Call(func=ast.Name(id=name)):
            return name not in _ALWAYS_WORK
    return isinstance(node, ast.Raise)
