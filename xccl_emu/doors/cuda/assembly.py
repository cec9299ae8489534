"""Inline assembly of a kernel in CUDA C++: each instruction of PTX becomes a call of our header, in a clang's IR."""

import re
from collections.abc import Generator, Iterator
from typing import TypeAlias

from xccl_emu.base.errors import KernelError
from xccl_emu.doors.cuda import ptx
from xccl_emu.lang import requests as rq
from xccl_emu.lang.foreign import rewriting
from xccl_emu.lang.foreign.rewriting import TYPE, VALUE

Made: TypeAlias = Generator[str, None, str]
"""Instructions of the IR, and the value that they make."""

CALL = re.compile(r'\s*(?:(\S+) = )?call (.*?) asm (?:sideeffect )?"([^"]*)", "[^"]*"\((.*)\)(?: #\d+|, |$)')
"""A call of an assembly: its result and that one's type, the text, and what is given."""
_GIVEN = re.compile(rf"({TYPE}) (?:\w+ )*?({VALUE})(?:, |$)")
_ESCAPE = re.compile(r"\\([0-9A-F]{2})|\$([(|)$])")
_PLAIN = {"(": "{", "|": "|", ")": "}", "$": "$"}
_NUMBER = re.compile(r"\$(\d+)|\$\{(\d+)(?::\w)?\}")
_ADDRESS = re.compile(r"\[\s*(\$\S+?)\s*(?:\+\s*(-?\d+)\s*)?\]")
_LITERAL = re.compile(r"-?\d+")


class Assembly:
    """An inline assembly, which writes words of 8 bytes for its outputs."""

    def __init__(self, module: rewriting.Module, row: str, found: re.Match[str]) -> None:
        self.module, self.row = module, row
        self.result, kind, text, given = found.groups()
        self.text = _ESCAPE.sub(lambda code: chr(int(code[1], 16)) if code[1] else _PLAIN[code[2]], text)
        self.kinds = [each.strip() for each in kind.strip("{} ").split(",")] if self.result else []
        self.values = [*((each, "") for each in self.kinds), *_GIVEN.findall(given)]
        """Type and value of each operand; no value of an output."""
        self.outputs: dict[int, str] = {}

    def lines(self) -> Iterator[str]:
        """Calls and other instructions in its place; raises KernelError, with the line, for what has no request."""
        try:
            for instruction in ptx.instructions(self.text):
                yield from _Call(self, instruction).lines()
        except KernelError as error:
            raise self.module.error(self.row, str(error)) from None
        if missing := [i for i in range(len(self.kinds)) if i not in self.outputs]:
            raise self.module.error(self.row, f"no instruction writes the output %{missing[0]} of this assembly")
        yield from self._results()

    def _results(self) -> Iterator[str]:
        """Make the call's result: a value, or a struct of several."""
        if len(self.kinds) == 1:
            yield from self.module.of_word(self.result, self.kinds[0], self.outputs[0])
            return
        before, whole = "poison", f"{{ {', '.join(self.kinds)} }}"
        for i, kind in enumerate(self.kinds):
            value, made = self.module.new(), self.result if i == len(self.kinds) - 1 else self.module.new()
            yield from self.module.of_word(value, kind, self.outputs[i])
            yield f"  {made} = insertvalue {whole} {before}, {kind} {value}, {i}"
            before = made


class _Call:
    """An instruction as calls of the functions of ``xccl_cuda.h``."""

    def __init__(self, assembly: Assembly, instruction: ptx.Instruction) -> None:
        self.assembly, self.module, self.of = assembly, assembly.module, instruction

    def lines(self) -> Iterator[str]:
        """The instructions of the IR."""
        if self.of.row.publishes:
            sites = (self._site("poll", named=True), self._quiet())
            yield from self._called("publish", *sites, f"i64 {int(self.of.scope == 'sys')}")
        asks = {"load": self._load, "store": self._store, "atomic": self._atomic, "barrier": self._barrier,
                "meeting": self._meeting}
        if self.of.row.request:
            yield from asks[self.of.row.request]()

    def _load(self) -> Iterator[str]:
        pointer, targets = (yield from self._pointer(1)), self._several(0)
        if len(targets) == 1:
            word = self.module.new()
            given = (self._read("load"), f"ptr {pointer}", f"i64 {self.of.nbytes}")
            yield from self._called("read", *given, result=word)
            yield from self._written(targets[0], word)
            return
        for place, some in self._lines(targets):
            words, at = self.module.new(), (yield from self._moved(pointer, place))
            sites = [self._read(each) for each in ("load_line", "load")]
            yield from self._called("read_vector", *sites, f"ptr {at}", *self._sizes(some), result=words, kind="i128")
            for i, target in enumerate(some):
                element = yield from self._element(words, i)
                yield from self._written(target, element)

    def _store(self) -> Iterator[str]:
        pointer, values = (yield from self._pointer(0)), self._several(1)
        strong = f"i64 {int(self.of.row.order != 'weak')}"
        if len(values) == 1:
            word, nbytes = (yield from self._word(values[0])), self.of.nbytes
            given = f"ptr {pointer}", f"i64 {word}", f"i64 {nbytes}", strong
            yield from self._called("write", self._site("store"), *given)
            return
        for place, some in self._lines(values):
            words = yield from self._packed(some)
            at = yield from self._moved(pointer, place)
            sites = [self._site(each) for each in ("store_line", "store")]
            yield from self._called("write_vector", *sites, f"ptr {at}", f"i128 {words}", *self._sizes(some), strong)

    def _lines(self, several: list[str]) -> Iterator[tuple[int, list[str]]]:
        """The parts of a vector that may be one access, up to 16 bytes, and where they begin."""
        most = rq.LINE_BYTES // self.of.nbytes
        for first in range(0, len(several), most):
            yield first * self.of.nbytes, several[first : first + most]

    def _sizes(self, several: list[str]) -> tuple[str, str]:
        return f"i64 {len(several) * self.of.nbytes}", f"i64 {self.of.nbytes}"

    def _element(self, words: str, i: int) -> Made:
        """An element of a line, as a word with its sign."""
        bits, moved, element, word = 8 * self.of.nbytes, *(self.module.new() for _ in range(3))
        yield f"  {moved} = lshr i128 {words}, {bits * i}"
        yield f"  {element} = trunc i128 {moved} to i{bits}"
        yield f"  {word} = sext i{bits} {element} to i64" if bits < 64 else f"  {word} = add i64 {element}, 0"
        return word

    def _packed(self, several: list[str]) -> Made:
        """Elements as a line."""
        bits, line = 8 * self.of.nbytes, "0"
        for i, value in enumerate(several):
            element, wide, moved, made = (self.module.new() for _ in range(4))
            word = yield from self._word(value)
            yield f"  {element} = trunc i64 {word} to i{bits}" if bits < 64 else f"  {element} = add i64 {word}, 0"
            yield f"  {wide} = zext i{bits} {element} to i128"
            yield f"  {moved} = shl i128 {wide}, {bits * i}"
            yield f"  {made} = or i128 {line}, {moved}"
            line = made
        return line

    def _atomic(self) -> Iterator[str]:
        of, is_red = self.of, self.of.row.opcode == "red"
        given = of.operands[1 if is_red else 2 :]
        if not of.mode or of.kind == "f" or of.nbytes not in (4, 8) or of.elements > 1:
            raise self._refused("an atomic of this operation and type")
        if len(given) != (2 if of.mode == "cas" else 1):
            raise self._refused("an atomic with these operands")
        pointer = yield from self._pointer(0 if is_red else 1)
        old = self.module.new()
        value = yield from self._word(given[-1])
        compare = (yield from self._word(given[0])) if of.mode == "cas" else "0"
        sites = [self._read(each) for each in ("load", "compare_swap", "atomic_add")]
        how = ptx.ATOMICS.index(of.mode) + len(ptx.ATOMICS) * (of.kind == "s")
        words = (f"i64 {how}", f"i64 {value}", f"i64 {compare}", f"i64 {of.nbytes}")
        yield from self._called("atomic", *sites, f"ptr {pointer}", *words, result=old)
        if not is_red:
            yield from self._written(of.operands[0], old)

    def _barrier(self) -> Iterator[str]:
        if self.of.mode:
            yield from self._met("strong", self.of.operands[0], "0")
            return
        if self.of.operands != ("0",):
            raise self._refused("a barrier other than 0, or of some of the block's threads,")
        named = [self._site(each, True) for each in ("arrive", "await_group", "poll")]
        yield from self._called("barrier", self._site("store", True, "strong"), self._quiet(), *named)

    def _meeting(self) -> Iterator[str]:
        """Lanes of a warp meet, and one of them learns what others have brought."""
        of, found = self.of, self.module.new()
        if of.kind == "f" or of.nbytes != 4 or len(of.operands) != (5 if of.mode in ptx.SHUFFLES else 3):
            raise self._refused("lanes that meet with these operands and this type")
        given = ["0", "0"]
        for i, operand in enumerate(of.operands[2:-1]):
            given[i] = yield from self._word(operand)
        met = yield from self._met("", of.operands[-1], of.operands[1])
        how = (ptx.SHUFFLES + ptx.MODES["vote"]).index(of.mode)
        words = [f"i64 {each}" for each in (how, *given, *met)]
        yield from self._called("learn", self._site("load"), self._site("fail"), *words, result=found)
        yield from self._written(of.operands[0], found)

    def _met(self, order: str, mask: str, brought: str) -> Generator[str, None, tuple[str, str]]:
        """A request that all lanes of a mask make, who bring a word each; mask and word."""
        said = (self._quiet(), self._site("store", named=True, order=order))
        sites = (*said, self._site("store_line", order=order), self._site("poll", named=True), self._site("fail"))
        words = (yield from self._word(mask)), (yield from self._word(brought))
        yield from self._called("meet", *sites, *(f"i64 {each}" for each in words), f"i64 {int(bool(order))}")
        return words

    # ---- calls and operands

    def _site(self, request: str, named: bool = False, order: str = "") -> str:
        return self.module.site(self.assembly.row, request, self.of.name if named else "", order)

    def _read(self, request: str) -> str:
        return self._site(request, self.of.row.named, self.of.row.asks)

    def _quiet(self) -> str:
        return self._site("quiet", True, self.of.row.quiet_asks)

    def _called(self, name: str, *given: str, result: str = "", kind: str = "i64") -> Iterator[str]:
        said = f"{result} = call {kind}" if result else "call void"
        yield f"  {said} @xccl_ours_{name}({', '.join(given)}){self.module.debug(self.assembly.row)}"

    def _operand(self, place: int) -> str:
        if place >= len(self.of.operands) or not self.of.nbytes:
            raise self._refused("an access with these operands")
        return self.of.operands[place]

    def _several(self, place: int) -> list[str]:
        """The elements of a vector, or the one that is none."""
        given = self._operand(place)
        several = [each.strip() for each in given.strip("{}").split(",")] if given.startswith("{") else [given]
        if len(several) != self.of.elements:
            raise self._refused("an access with these operands")
        return several

    def _pointer(self, place: int) -> Made:
        """An address; a call before looks at whether it is in the scope of the instruction."""
        found = _ADDRESS.fullmatch(self._operand(place))
        if found is None:
            raise self._refused("an address that is no operand of the assembly,")
        kind, pointer = self._value(found[1])
        if kind not in ("ptr", "i64"):
            raise self._refused("an address of 32 bits, as __cvta_generic_to_shared makes it,")
        if kind == "i64":
            address, pointer = pointer, self.module.new()
            yield f"  {pointer} = inttoptr i64 {address} to ptr"
        pointer = yield from self._moved(pointer, int(found[2] or 0))
        if self.of.row.order != "weak" and self.of.scope != "sys":
            scope = ptx.SCOPES[self.of.scope]
            yield from self._called("scope", self._site("fail"), f"ptr {pointer}", f"i64 {scope}")
        return pointer

    def _moved(self, pointer: str, nbytes: int) -> Made:
        if not nbytes:
            return pointer
        made = self.module.new()
        yield f"  {made} = getelementptr i8, ptr {pointer}, i64 {nbytes}"
        return made

    def _place(self, operand: str) -> int:
        """The number of an operand of the assembly."""
        found = _NUMBER.fullmatch(operand)
        if found is None or int(found[1] or found[2]) >= len(self.assembly.values):
            raise self._refused(f"the operand `{operand}`")
        return int(found[1] or found[2])

    def _value(self, operand: str) -> tuple[str, str]:
        kind, value = self.assembly.values[self._place(operand)]
        if not value:
            raise self._refused(f"`{operand}`, an output that is read,")
        return kind, value

    def _word(self, operand: str) -> Made:
        if _LITERAL.fullmatch(operand):
            return operand
        (kind, value), word = self._value(operand), self.module.new()
        yield from self.module.to_word(word, kind, value)
        return word

    def _written(self, operand: str, word: str) -> Iterator[str]:
        """An output becomes a word, without a sign if the instruction's type has none."""
        if self.of.kind != "s" and self.of.nbytes < 8:
            whole, word = word, self.module.new()
            yield f"  {word} = and i64 {whole}, {(1 << 8 * self.of.nbytes) - 1}"
        self.assembly.outputs[self._place(operand)] = word

    def _refused(self, what: str) -> KernelError:
        return KernelError(f"`{self.of.text}`: {what} is not in xccl_emu's table of PTX")
