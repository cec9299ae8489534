"""Accesses of a kernel in CUDA C++ become requests, in the IR of a clang.

A pointer in CUDA may lead to memory of a GPU or to a variable on the stack.  An access whose pointer is made of a
variable in its function is left alone; any other calls a function of our header (``xccl_cuda.h``), which the compiler
drops where inlining shows that it is a variable, and which looks at the address when it runs if not.  Inline assembly
is PTX, read by `ptx`; our headers' functions are PTX too, so `ptx.TABLE` alone says what anything means.

All functions are inlined before this pass (``always_inline``), so the place of an access is its line in the kernel's
own files, however deep in headers it is, and its caller is known.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from xccl_emu.base.errors import KernelError
from xccl_emu.doors.cuda import ptx
from xccl_emu.lang.foreign import image, rewriting
from xccl_emu.lang.foreign.rewriting import BITS, TYPE, VALUE

INCLUDE = Path(__file__).with_name("include")

_CONSTRAINT = re.compile(r'"([=+&]*)[hlfdq]"(?=\s*\()')
_HEAD = re.compile(r"define .*@(\w+)\((.*)\)")
_LINKAGE = re.compile(r"(?<=define )(?:(?:linkonce_odr|weak_odr|dso_local|hidden|internal) )*(?!.*@xccl_body\()")
_BYVAL = re.compile(r"ptr [^,]*\bbyval\([^)]*\)[^,]* (%\w+)")
_MADE = re.compile(rf"\s*(\S+) = (?:alloca\b|getelementptr\b.*?, ptr ({VALUE})(?:,|$))")
_CONSTANT = re.compile(r"(@\S+) = .*\bconstant\b")
_LOAD = re.compile(rf"\s*(\S+) = load (volatile )?({TYPE}), ptr ({VALUE}), align \d+(?=,|$)")
_STORE = re.compile(rf"\s*store (?:volatile )?({TYPE}) ({VALUE}), ptr ({VALUE}), align \d+(?=,|$)")
_ANY = re.compile(rf"\s*(?:\S+ = load|store) .*?, ptr ({VALUE}), align \d+(?=,|$)")
_MOVE = re.compile(
    rf"\s*call void @llvm\.mem(?:cpy|move|set)\.\S*\(ptr (?:align (\d+) )?({VALUE}), "
    rf"(?:(i8)|ptr(?: align (\d+))?) ({VALUE}), i64 ({VALUE}), i1 "
)
_ASM = re.compile(r'\s*(?:(\S+) = )?call (.*?) asm (?:sideeffect )?"([^"]*)", "([^"]*)"\((.*)\)(?: #\d+|, |$)')
_GIVEN = re.compile(rf"({TYPE}) (?:\w+ )*?({VALUE})(?:, |$)")
_ATOMIC = re.compile(r"\s*(?:\S+ = )?(?:atomicrmw|cmpxchg|fence|load atomic|store atomic)\b")
_ESCAPE = re.compile(r"\\([0-9A-F]{2})")
_NUMBER = re.compile(r"\$(?:\{(\d+)(?::\w)?\}|(\d+))")
_ADDRESS = re.compile(r"\[\s*(\$\S+?)\s*(?:\+\s*(-?\d+)\s*)?\]")


def compiled(text: str) -> str:
    """The text of a source without PTX's kinds of registers, which no other processor has: their types say as much."""
    return _CONSTRAINT.sub(r'"\1r"', text)


def lowered(ir: str, source: str) -> str:
    """The IR of a source with requests in place of accesses by pointers, and of PTX.

    Raises:
        KernelError: with file and line of what has no request.
    """
    return "\n".join(_Lowered(ir.splitlines(), source).lines()) + "\n"


@dataclass
class _Lowered(rewriting.Module):
    """A module whose pointers are plain."""

    own: set[str] = field(default_factory=set)
    """Pointers into variables of the function at hand, and to constants."""

    def lines(self) -> Iterator[str]:
        """The lines of the module; sites are at its end."""
        constants = {match[1] for row in self.rows if (match := _CONSTANT.match(row))}
        is_ours = False
        for row in self.rows:
            if head := _HEAD.match(row):
                self.own, is_ours = constants | {*_BYVAL.findall(head[2])}, head[1].startswith("xccl_ours_")
                row = _LINKAGE.sub("internal ", row)  # what is inlined everywhere, and its sites, fall away
            if is_ours or not row.startswith("  ") or row.lstrip().startswith("#"):
                yield row
            else:
                yield from self._instruction(row)
        yield from self.site_records()

    def _instruction(self, row: str) -> Iterator[str]:
        if (made := _MADE.match(row)) and (made[2] is None or made[2] in self.own):
            self.own.add(made[1])
        if _ATOMIC.match(row):
            raise self.refused(row, "an atomic access of the compiler is no PTX: use atomicAdd, cuda::atomic_ref or asm")
        if found := _ASM.match(row):
            yield from self._assembly(row, found)
        elif found := _MOVE.match(row):
            yield from self._move(row, found)
        elif (found := _ANY.match(row)) and found[1] not in self.own and self._is_of_kernel(row):
            yield from self._access(row)
        else:
            yield row

    def _access(self, row: str) -> Iterator[str]:
        if found := _LOAD.match(row):
            result, is_volatile, kind, pointer = found.groups()
            word, site = self.new(), self._site(row, "load", "ld.volatile" if is_volatile else "")
            called = f"@xccl_ours_read({site}, ptr {pointer}, i64 {BITS.get(kind, 64) // 8})"
            yield f"  {word} = call i64 {called}{self.debug(row)}"
            yield from self.of_word(result, kind, word)
        elif found := _STORE.match(row):
            kind, value, pointer = found.groups()
            word = self.new()
            yield from self.to_word(word, kind, value)
            called = f"({self._site(row, 'store')}, ptr {pointer}, i64 {word}, i64 {BITS.get(kind, 64) // 8})"
            yield f"  call void @xccl_ours_write{called}{self.debug(row)}"
        else:
            raise self.refused(row, "no request is known for an access of this type")

    def _move(self, row: str, found: re.Match[str]) -> Iterator[str]:
        align, target, byte, of_source, source, nbytes = found.groups()
        if (target in self.own and (byte or source in self.own)) or not self._is_of_kernel(row):
            yield row
            return
        sizes = (int(each) for each in (align or 1, of_source or 8, nbytes if nbytes.isdigit() else 1))
        step = f"i64 {math.gcd(8, *sizes)}"
        store = f"{self._site(row, 'store')}, ptr {target}"
        if byte:
            given = f"fill({store}, i8 {source}, i64 {nbytes}, {step})"
        else:
            given = f"copy({self._site(row, 'load')}, {store}, ptr {source}, i64 {nbytes}, {step})"
        yield f"  call void @xccl_ours_{given}{self.debug(row)}"

    # ---- PTX

    def _assembly(self, row: str, found: re.Match[str]) -> Iterator[str]:
        result, kind, text, constraints, given = found.groups()
        text = _ESCAPE.sub(lambda code: chr(int(code[1], 16)), text)
        for escaped, plain in (("$(", "{"), ("$)", "}"), ("$|", "|"), ("$$", "$")):
            text = text.replace(escaped, plain)
        kinds = [each.strip() for each in kind.strip("{} ").split(",")] if result else []
        values = [*((kind, "") for kind in kinds), *((kind, value) for kind, value in _GIVEN.findall(given))]
        outputs: dict[int, str] = {}
        try:
            for instruction in ptx.instructions(text):
                yield from _Call(self, row, instruction, values, outputs).lines()
        except KernelError as error:
            raise self._named(row, str(error)) from None
        yield from self._results(row, result, kinds, outputs)

    def _named(self, row: str, why: str) -> KernelError:
        file, line = self.place(row)
        return KernelError(f"{Path(file or self.source)}:{line}: {why}")

    def _results(self, row: str, result: str | None, kinds: list[str], outputs: dict[int, str]) -> Iterator[str]:
        if result is None:
            return
        if missing := [i for i in range(len(kinds)) if i not in outputs]:
            raise self._named(row, f"${missing[0]} of this assembly is an output, and no instruction writes it")
        made = result
        if len(kinds) == 1:
            yield from self.of_word(made, kinds[0], outputs[0])
            return
        before, whole = "poison", f"{{ {', '.join(kinds)} }}"
        for i, kind in enumerate(kinds):
            value, made = self.new(), result if i == len(kinds) - 1 else self.new()
            yield from self.of_word(value, kind, outputs[i])
            yield f"  {made} = insertvalue {whole} {before}, {kind} {value}, {i}"
            before = made

    # ---- places

    def place(self, row: str) -> tuple[str, int]:
        """The line of the kernel's own files that an instruction is of."""
        return next(self._places(row), (self.source, 0))

    def _places(self, row: str) -> Iterator[tuple[str, int]]:
        return (each for each in self.places(row) if not each[0].startswith((str(INCLUDE), rewriting.CALL)))

    def _is_of_kernel(self, row: str) -> bool:
        """Whether a line of the kernel's own files comes to this: else it takes the host's arguments."""
        return any(True for _ in self._places(row))

    def _site(self, row: str, request: str, name: str = "", order: str = "") -> str:
        """A site of that line, with what calls its function; a name goes with the line."""
        (file, line), *callers = [*self._places(row)] or [(self.source, 0)]
        is_main = (Path(self.source).parent / file) == Path(self.source)
        sync = f"{name}, line {line}{'' if is_main else f' of {Path(file).name}'}" if name else ""
        caller = f"{callers[0][0]}:{callers[0][1]}" if callers and callers[0][1] else ""
        return self.site(rewriting.Asked(file, line, request, sync, caller, order))


@dataclass
class _Call:
    """An instruction of PTX as calls of our header's functions."""

    module: _Lowered
    row: str
    instruction: ptx.Instruction
    values: list[tuple[str, str]]
    """Type and value of each operand of the assembly; no value of an output."""
    outputs: dict[int, str]
    """What it writes is put here, as words."""

    def lines(self) -> Iterator[str]:
        """The instructions of the IR."""
        of = self.instruction
        if of.row.publishes and of.row.request != "atomic":
            yield from self._published()
        yield from {
            "load": self._load, "store": self._store, "atomic": self._atomic, "barrier": self._barrier,
            "": lambda: iter(()),
        }[of.row.request]()  # fmt: skip

    def _site(self, request: str, named: bool, order: str = "") -> str:
        return self.module._site(self.row, request, self.instruction.name if named else "", order)

    def _published(self) -> Iterator[str]:
        is_for_all = f"i64 {int(self.instruction.scope == 'sys')}"
        yield from self._called("publish", self._site("poll", True), self._site("quiet", True), is_for_all)

    def _called(self, name: str, *given: str, result: str = "") -> Iterator[str]:
        said = f"{result} = call i64" if result else "call void"
        yield f"  {said} @xccl_ours_{name}({', '.join(given)}){self.module.debug(self.row)}"

    def _load(self) -> Iterator[str]:
        of = self.instruction
        targets, (address, offset) = self._several(0), self._address(1)
        pointer = yield from self._checked(address, offset)
        for i, target in enumerate(targets):
            at, word = self.module.new(), self.module.new()
            yield f"  {at} = getelementptr i8, ptr {pointer}, i64 {i * of.nbytes}"
            yield from self._called("read", self._site("load", of.row.named), f"ptr {at}", f"i64 {of.nbytes}", result=word)
            yield from self._kept(target, word)

    def _store(self) -> Iterator[str]:
        of = self.instruction
        pointer = yield from self._checked(*self._address(0))
        for i, value in enumerate(self._several(1)):
            at = self.module.new()
            word = yield from self._word(value)
            yield f"  {at} = getelementptr i8, ptr {pointer}, i64 {i * of.nbytes}"
            yield from self._called("write", self._site("store", False), f"ptr {at}", f"i64 {word}", f"i64 {of.nbytes}")

    def _atomic(self) -> Iterator[str]:
        of = self.instruction
        if not of.atomic or of.kind == "f" or of.nbytes not in (4, 8) or of.elements > 1:
            raise self._refused("an atomic of this operation and type")
        is_red = of.row.opcode == "red"
        if of.row.publishes:
            yield from self._published()
        pointer = yield from self._checked(*self._address(0 if is_red else 1))
        words = []
        for operand in of.operands[1 if is_red else 2 :]:
            words.append((yield from self._word(operand)))
        compare = words.pop(0) if of.atomic == "cas" and len(words) == 2 else "0"
        if len(words) != 1:
            raise self._refused("an atomic with these operands")
        sites = [self._site(each, True) for each in ("load", "compare_swap", "atomic_add")]
        how = ptx.ATOMICS.index(of.atomic) + (len(ptx.ATOMICS) if of.kind == "s" else 0)
        old = self.module.new()
        given = (f"ptr {pointer}", f"i64 {how}", f"i64 {words[0]}", f"i64 {compare}", f"i64 {of.nbytes}")
        yield from self._called("atomic", *sites, *given, result=old)
        if not is_red:
            yield from self._kept(of.operands[0], old)

    def _barrier(self) -> Iterator[str]:
        if self.instruction.operands != ("0",):
            raise self._refused("a barrier other than 0, or of some of the block's threads,")
        sites = [self._site("store", True, "strong")]
        sites += [self._site(each, True) for each in ("quiet", "arrive", "await_group")]
        yield from self._called("barrier", *sites)

    # ---- operands

    def _several(self, place: int) -> list[str]:
        given = self._operand(place)
        several = [each.strip() for each in given.strip("{}").split(",")] if given.startswith("{") else [given]
        if len(several) != self.instruction.elements or self.instruction.nbytes == 0:
            raise self._refused("an access with these operands")
        return several

    def _operand(self, place: int) -> str:
        if place >= len(self.instruction.operands):
            raise self._refused("an access with these operands")
        return self.instruction.operands[place]

    def _address(self, place: int) -> tuple[tuple[str, str], int]:
        found = _ADDRESS.fullmatch(self._operand(place))
        if found is None:
            raise self._refused("an address that is no operand of the assembly,")
        kind, value = self._value(found[1])
        if kind not in ("ptr", "i64"):
            raise self._refused("an address of 32 bits, as __cvta_generic_to_shared makes it,")
        return (kind, value), int(found[2] or 0)

    def _checked(self, address: tuple[str, str], offset: int) -> Iterator[str]:
        """Yield what makes a pointer, and looks at whether it is in the instruction's scope; return it."""
        of, pointer, (kind, value) = self.instruction, value_of(address), address
        if kind == "i64":
            pointer = self.module.new()
            yield f"  {pointer} = inttoptr i64 {value} to ptr"
        if offset:
            base, pointer = pointer, self.module.new()
            yield f"  {pointer} = getelementptr i8, ptr {base}, i64 {offset}"
        if of.row.order != "weak" and of.scope != "sys":
            yield from self._called("scope", self._site("fail", False), f"ptr {pointer}", f"i64 {ptx.SCOPES[of.scope]}")
        return pointer

    def _value(self, operand: str) -> tuple[str, str]:
        found = _NUMBER.fullmatch(operand)
        number = int(found[1] or found[2]) if found else -1
        if not 0 <= number < len(self.values) or not self.values[number][1]:
            raise self._refused(f"the operand `{operand}`")
        return self.values[number]

    def _word(self, operand: str) -> Iterator[str]:
        if re.fullmatch(r"-?\d+", operand):
            return operand
        (kind, value), word = self._value(operand), self.module.new()
        yield from self.module.to_word(word, kind, value)
        return word

    def _kept(self, operand: str, word: str) -> Iterator[str]:
        """An output becomes a word, which has no sign if the instruction's type has none."""
        found, of = _NUMBER.fullmatch(operand), self.instruction
        if found is None:
            raise self._refused(f"the operand `{operand}`")
        if of.kind != "s" and of.nbytes < 8:
            whole, word = word, self.module.new()
            yield f"  {word} = and i64 {whole}, {(1 << 8 * of.nbytes) - 1}"
        self.outputs[int(found[1] or found[2])] = word

    def _refused(self, what: str) -> KernelError:
        return KernelError(f"`{self.instruction.text}`: {what} is not in xccl_emu's table of PTX")


def value_of(operand: tuple[str, str]) -> str:
    """The value of an operand without its type."""
    return operand[1]


LOWERING = rewriting.Lowering(
    lowered,
    (f"-DXCCL_CONSTANTS={image.CONSTANTS}", f"-DXCCL_LOCAL={image.TOP - image.ROOM_BYTES - image.GUARD_BYTES}"),
    ("-O0", "-Xclang", "-disable-O0-optnone", "-fno-sanitize-coverage=trace-pc", "-fno-sanitize=all"),
    (Path(__file__), Path(ptx.__file__), Path(rewriting.__file__)),
    compiled,
    is_needed=True,
)
"""Plain pointers, and PTX."""
