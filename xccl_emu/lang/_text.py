"""The step function in plain Python: one case for each tree of blocks, chosen by the program counter.

Loaded, its integers wrap around at 64 bits like machine code's; the text leaves that out.
"""

import ast
import hashlib
import linecache
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from xccl_emu.lang import abi
from xccl_emu.lang._blocks import PLACE, RESULT_NAME, Ask, Branch, Done, Jump
from xccl_emu.lang._resolve import TURNS, TURNS_AT_FIRST
from xccl_emu.lang._shape import BlockTree, KernelShape
from xccl_emu.lang._source import RESERVED
from xccl_emu.lang.requests import OP_RETURN

STATE, BASE, PC, INT, WRAPPED = (RESERVED + n for n in ("state", "base", "pc", "int", "wrapped"))
GROWING = (ast.Add, ast.Sub, ast.Mult, ast.Pow, ast.LShift, ast.FloorDiv)
_STATUSES = {ZeroDivisionError: abi.DIVISION_BY_ZERO, IndexError: abi.BAD_INDEX, TimeoutError: abi.ENDLESS}

_SHARED = f"global {TURNS}"

INT64_MAX = (1 << 63) - 1


def text(shape: KernelShape, functions: Iterable[ast.FunctionDef], name: str) -> str:
    """Return the source of a step function and of the plain functions that it calls."""
    texts = [_helper_text(tree) for tree in functions]
    turns = shape.turns or any(_SHARED in each for each in texts)
    return "\n\n".join((f"{INT} = int", *texts, _Step(shape, turns).text(name)))


def _helper_text(tree: ast.FunctionDef) -> str:
    """Return the source of a plain function, whose loops take their turns from those that the step has left."""
    counts = any(isinstance(node, ast.Name) and node.id == TURNS for node in ast.walk(tree))
    body = [*ast.parse(_SHARED).body, *tree.body] if counts else tree.body
    return ast.unparse(ast.fix_missing_locations(ast.FunctionDef(tree.name, tree.args, body, [])))


class _Step:
    """Writes the step function."""

    def __init__(self, shape: KernelShape, turns: bool) -> None:
        self.shape = shape
        self.turns = turns

    def text(self, name: str) -> str:
        cases = []
        for root, tree in self.shape.trees.items():
            keyword = "if" if root == 0 else "elif"
            body = "\n".join((*self._loads(tree), *self._block(tree, root, frozenset())))
            cases.append(f"{keyword} {PC} == {self.shape.pc[root]}:\n{textwrap.indent(body, '    ')}")
        done = [*self._words([ast.Constant(OP_RETURN)] + [ast.Constant(0)] * 7), f"return {OP_RETURN}"]
        cases.append("else:\n" + textwrap.indent("\n".join(done), "    "))
        head = [
            f"{PC} = {INT}({word(abi.PC)})",
            f"{RESULT_NAME} = {INT}({word(abi.RESULT)})",
            f"{word(abi.RESULT)} = 0",
            *([_SHARED, TURNS_AT_FIRST] if self.turns else ()),
            "while True:",
            textwrap.indent("\n".join(cases), "    "),
        ]
        return f"def {name}({STATE}, {BASE}):\n" + textwrap.indent("\n".join(head), "    ") + "\n"

    def _register(self, name: str) -> str:
        return word(abi.REGISTERS + self.shape.registers[name])

    def _loads(self, tree: BlockTree) -> list[str]:
        return [f"{n} = {INT}({self._register(n)})" for n in self.shape.loads(tree)]

    def _stores(self, target: int, changed: frozenset[str]) -> list[str]:
        return [f"{self._register(n)} = {n} | 0" for n in self.shape.stores(target, changed)]

    def _zeros(self, tree: BlockTree, resume: int | None) -> list[str]:
        return [f"{self._register(n)} = 0" for n in self.shape.zeros(tree, resume)]

    def _block(self, tree: BlockTree, b: int, changed: frozenset[str]) -> list[str]:
        block = self.shape.blocks[b]
        lines = [ast.unparse(s.node) for s in block.body]
        changed = changed.union(*(s.stores for s in block.body))
        match block.exit:
            case Jump(target):
                return lines + self._go(tree, target, changed)
            case Branch(test, then, orelse):
                for head, target in ((f"if {ast.unparse(test)}:", then), ("else:", orelse)):
                    lines += [head, textwrap.indent("\n".join(self._go(tree, target, changed)), "    ")]
                return lines
            case Ask(words, site, resume):
                lines += self._words([*words[:7], ast.Constant(site), *words[7:]])
                lines += self._stores(resume, changed) + self._zeros(tree, resume)
                return [*lines, f"{word(abi.PC)} = {self.shape.pc[resume]}", f"return {ast.unparse(words[0])}"]
            case Done(value):
                lines += self._words([ast.Constant(OP_RETURN), value] + [ast.Constant(0)] * 6)
                lines += self._zeros(tree, None)
                return [*lines, f"{word(abi.PC)} = {abi.DONE}", f"return {OP_RETURN}"]
        raise AssertionError("a block without an exit was reached")

    def _go(self, tree: BlockTree, target: int, changed: frozenset[str]) -> list[str]:
        if self.shape.inside(tree, target):
            return self._block(tree, target, changed)
        return [*self._stores(target, changed), f"{PC} = {self.shape.pc[target]}"]

    def _words(self, words: Sequence[ast.expr]) -> list[str]:
        # All words are computed before any is written: an operand that fails (x // 0) leaves the last request whole.
        first, then = [], []
        for i, value in enumerate(words):
            text = ast.unparse(value)
            if not isinstance(value, ast.Constant):
                if not isinstance(value, ast.Name):
                    first.append(f"{RESERVED}w{i} = {text}")
                    text = f"{RESERVED}w{i}"
                text += " | 0"  # Refuses a float.
            then.append(f"{word(abi.REQUEST + i)} = {text}")
        return first + then


def word(offset: int) -> str:
    """Return the text of one word of the core."""
    return f"{STATE}[{BASE} + {offset}]"


# ---- loading


def kept(text: str, name: str) -> str:
    """Keep a text where tracebacks, debuggers and `_source` look lines up; return the name of its file."""
    file = f"<{name} {hashlib.sha256(text.encode()).hexdigest()[:20]}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    return file


def load(text: str, name: str) -> Callable[[Any, int], int]:
    """Execute the text of a step function and return the function."""
    file = kept(text, name)
    tree = ast.fix_missing_locations(_Wrapping().visit(ast.parse(text)))
    space: dict[str, Any] = {WRAPPED: wrapped, "abs": lambda x: wrapped(abs(x)), "divmod": _wrapped_divmod}
    exec(compile(tree, file, "exec"), space)
    step: Callable[[Any, int], int] = space[name]
    return step


def with_status(step: Callable[[Any, int], int]) -> Callable[[Any, int], int]:
    """A step function that returns what machine code would return where arithmetic fails."""

    def called(state: Any, base: int) -> int:
        try:
            return step(state, base)
        except (ValueError, *_STATUSES) as error:
            return _status_of(error)

    return called


def _status_of(error: Exception) -> int:
    trace = error.__traceback__
    while trace is not None and PLACE not in trace.tb_frame.f_locals:
        trace = trace.tb_next
    if trace is None:
        raise error
    kind = next((status for of, status in _STATUSES.items() if isinstance(error, of)), abi.BAD_VALUE)
    return kind - abi.PLACES * int(trace.tb_frame.f_locals[PLACE])


def wrapped(value: Any) -> Any:
    """Return an integer reduced to 64 bits, and anything else as it is."""
    if isinstance(value, int) and not ~INT64_MAX <= value <= INT64_MAX:
        return ((value + INT64_MAX + 1) & (2 * INT64_MAX + 1)) - INT64_MAX - 1
    return value


def _wrapped_divmod(a: int, b: int) -> tuple[int, int]:
    return wrapped(a // b), a % b


class _Wrapping(ast.NodeTransformer):
    """Wraps every operation whose result may have more than 64 bits."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        of_state = isinstance(node.value, ast.Name) and node.value.id == STATE
        return node if of_state else self.generic_visit(node)  # type: ignore[return-value]

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        return _wrapping(node) if isinstance(node.op, GROWING) else node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return _wrapping(node) if isinstance(node.op, ast.USub) else node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        assert isinstance(node.target, ast.Name)
        value = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
        return ast.copy_location(ast.Assign([node.target], self.visit(value)), node)


def _wrapping(node: ast.expr) -> ast.expr:
    return ast.copy_location(ast.Call(ast.Name(WRAPPED, ast.Load()), [node], []), node)
