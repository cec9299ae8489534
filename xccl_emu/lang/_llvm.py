"""The step function for LLVM: what `_text` says in Python, said again in instructions.

It has the signature ``int64 step(int64 *state, int64 base)`` and returns the operation of the request, or one of the
negative numbers in `abi` where arithmetic fails.  There are no bounds checks here, not with NUMBA_BOUNDSCHECK either:
every index is the base and a constant, and a launch refuses a kernel with more registers than its core has.
"""

import ast
from collections.abc import Mapping, Sequence

from xccl_emu.lang import abi
from xccl_emu.lang._blocks import PLACE, RESULT_NAME, Ask, Branch, Done, Jump
from xccl_emu.lang._ir import integer
from xccl_emu.lang._resolve import TURNS
from xccl_emu.lang._shape import BlockTree, KernelShape
from xccl_emu.lang._statements import PlainFunctions, Statements
from xccl_emu.lang.requests import OP_RETURN

STEP = "xccl_emu_step"
"""The symbol of the function."""

HEAD = f"define i64 @{STEP}(i64* noalias %state, i64 %base) nounwind"

PRELUDE = """
declare i64 @llvm.abs.i64(i64, i1)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)

define internal i64 @quotient(i64 %a, i64 %b) alwaysinline nounwind {
  %negates = icmp eq i64 %b, -1
  %by = select i1 %negates, i64 1, i64 %b
  %q = sdiv i64 %a, %by
  %r = call i64 @remainder(i64 %a, i64 %b)
  %rest = srem i64 %a, %by
  %differs = icmp ne i64 %r, %rest
  %less = zext i1 %differs to i64
  %floor = sub i64 %q, %less
  %negative = sub i64 0, %a
  %result = select i1 %negates, i64 %negative, i64 %floor
  ret i64 %result
}

define internal i64 @remainder(i64 %a, i64 %b) alwaysinline nounwind {
  %negates = icmp eq i64 %b, -1
  %by = select i1 %negates, i64 1, i64 %b
  %rest = srem i64 %a, %by
  %signs = xor i64 %rest, %by
  %differ = icmp slt i64 %signs, 0
  %left = icmp ne i64 %rest, 0
  %down = and i1 %differ, %left
  %more = select i1 %down, i64 %by, i64 0
  %result = add i64 %rest, %more
  ret i64 %result
}
"""
"""Division as Python has it, for a divisor that is not 0: the processor rounds to 0, and traps at INT64_MIN // -1."""


class StepCode(Statements):
    """The code of the step function."""

    def __init__(self, shape: KernelShape, program: PlainFunctions) -> None:
        super().__init__(program)
        self._shape = shape
        self._labels = {root: self.label() for root in shape.trees}
        self._core = self.new("getelementptr i64, i64* %state, i64 %base")
        self.assign(RESULT_NAME, self._load(abi.RESULT))
        self._store(abi.RESULT, "0")
        self.assign(TURNS, str(abi.TURNS_MAX))
        returned = self.label()
        self._enter(returned)
        for tree in shape.in_order():
            self.begin(self._labels[tree.root])
            for name in shape.loads(tree):
                self.assign(name, self._load(self._register(name)))
            self._block(tree, tree.root, frozenset())
        self.begin(returned)
        self.end(f"ret i64 {self._request([ast.Constant(OP_RETURN), *[ast.Constant(0)] * 7])}")

    def _enter(self, otherwise: str) -> None:
        """Go where the program counter says: to the beginning or to right after a request."""
        resumed = [x.exit.resume for x in self._shape.blocks if isinstance(x.exit, Ask)]
        entries = [b for b in dict.fromkeys([0, *resumed]) if b in self._labels]
        table = " ".join(f"i64 {self._shape.pc[b]}, label %{self._labels[b]}" for b in entries)
        self.end(f"switch i64 {self._load(abi.PC)}, label %{otherwise} [ {table} ]")

    def fail(self, status: int | str) -> None:
        """Return a status with the place, as `abi.PLACES` has it."""
        place = self.new(f"mul i64 {integer(self.read(PLACE))}, {abi.PLACES}")
        super().fail(self.new(f"sub i64 {status}, {place}"))

    # ---- words of the core

    def _at(self, word: int) -> str:
        return self.new(f"getelementptr i64, i64* {self._core}, i64 {word}")

    def _load(self, word: int) -> str:
        return self.new(f"load i64, i64* {self._at(word)}")

    def _store(self, word: int, value: str) -> None:
        self.do(f"store i64 {value}, i64* {self._at(word)}")

    def _register(self, name: str) -> int:
        return abi.REGISTERS + self._shape.registers[name]

    # ---- blocks

    def _block(self, tree: BlockTree, b: int, changed: frozenset[str]) -> None:
        block = self._shape.blocks[b]
        self.statements([s.node for s in block.body])
        changed = changed.union(*(s.stores for s in block.body))
        match block.exit:
            case Jump(target):
                self._go_on(tree, target, changed)
            case Branch(test, then, orelse):
                yes, no = self.label(), self.label()
                self.jump(test, yes, no)
                for label, target in ((yes, then), (no, orelse)):
                    self.begin(label)
                    self._go_on(tree, target, changed)
            case Ask(words, site, resume):
                operation = self._request([*words[:7], ast.Constant(site), *words[7:]])
                self._keep(resume, changed)
                self._leave(tree, resume, self._shape.pc[resume], operation)
            case Done(value):
                operation = self._request([ast.Constant(OP_RETURN), value, *[ast.Constant(0)] * 6])
                self._leave(tree, None, abi.DONE, operation)
            case None:
                raise AssertionError("a block without an exit was reached")

    def _go_on(self, tree: BlockTree, target: int, changed: frozenset[str]) -> None:
        if self._shape.inside(tree, target):
            self._block(tree, target, changed)
            return
        self._keep(target, changed)
        self.go(self._labels[target])

    def _keep(self, target: int, changed: frozenset[str]) -> None:
        for name in self._shape.stores(target, changed):
            self._store(self._register(name), integer(self.read(name)))

    def _request(self, words: Sequence[ast.expr]) -> str:
        """Write a request once all its words are computed; return its operation."""
        values = [integer(self.value(w)) for w in words]
        for i, value in enumerate(values):
            self._store(abi.REQUEST + i, value)
        return values[0]

    def _leave(self, tree: BlockTree, resume: int | None, pc: int, operation: str) -> None:
        for name in self._shape.zeros(tree, resume):
            self._store(self._register(name), "0")
        self._store(abi.PC, str(pc))
        self.end(f"ret i64 {operation}")


def instructions(shape: KernelShape, functions: Mapping[str, ast.FunctionDef]) -> str:
    """Return the module of a step function; TypeError if a value in it is not an integer."""
    program = PlainFunctions(functions)
    step = StepCode(shape, program)
    texts = [PRELUDE]
    for head, code in [(HEAD, step), *((helper.head, helper) for helper in program.helpers.values())]:
        texts.append("\n".join((f"{head} {{", *code.slots, *code.lines, "}")))
    return "\n".join(texts)
