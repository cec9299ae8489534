"""A module of LLVM's IR in which a kernel's accesses become calls that make requests, each with a site.

The IR is text that goes back into the compiler that wrote it: no other LLVM reads it, so no version of it is too new
for one.  A `Lowering` says which accesses (`pointers` those in address spaces), and how the IR is made.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from xccl_emu.base.errors import KernelError

FIRST_SITE = 1 << 20
"""Number of the first site here, after those that a header makes."""

CALL = "the call of "
"""What begins the name of the file that calls a kernel, which nobody has written."""

BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "half": 16, "bfloat": 16, "float": 32, "double": 64}
"""Bits of the types that a request may read or write; a pointer has 64."""
PTR = r"ptr(?: addrspace\(\d+\))?"
_NESTED = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
VALUE = rf'(?:%"[^"]*"|@"[^"]*"|[%@]?[\w.$+-]+(?: (?:\w+ )*{_NESTED})?)'
TYPE = rf"(?:{'|'.join(BITS)}|{PTR})"
_RECORD = re.compile(r"!(\d+) = (?:distinct )?!(\w+\(.*\))$")
_DEBUG = re.compile(r", !dbg !(\d+)")


class Lowering(NamedTuple):
    """A way in which what a kernel does by pointers becomes requests, where a clang compiles it."""

    lowered: Callable[[str, str], str]
    """The IR with requests, of the IR and the name of the source."""
    flags: tuple[str, ...]
    """For all that this compiler makes of the source."""
    to_ir: tuple[str, ...]
    """For the IR."""
    files: tuple[Path, ...]
    """Where this is written: an edit compiles each kernel again."""
    text: Callable[[str], str] | None = None
    """What is compiled, of the text that the preprocessor leaves; None for that text."""
    is_needed: bool = False
    """Nothing else will do; if not, other compilers take the source, and kernels end where they follow a pointer."""


class Asked(NamedTuple):
    """A site: where in the source, what is asked for, by which name, from where its function is called, which order."""

    file: str
    line: int
    request: str
    sync: str = ""
    caller: str = ""
    order: str = ""


@dataclass
class Module:
    """A module, and what is added to it."""

    rows: list[str]
    source: str
    headers: tuple[str, ...] = (CALL,)
    """How names of files begin that are ours: an access there is of the line that comes to it."""
    sites: dict[Asked, int] = field(default_factory=dict)
    """The numbers of sites."""
    n_values: int = 0

    def __post_init__(self) -> None:
        found = (_RECORD.match(row) for row in self.rows if row.startswith("!"))
        self.records = {m[1]: m[2] for m in found if m}

    def new(self) -> str:
        """A name that no value has."""
        self.n_values += 1
        return f"%xccl.{self.n_values}"

    # ---- values as words of a request

    def of_word(self, result: str, kind: str, word: str) -> Iterator[str]:
        """Instructions that make a value of a type of a word."""
        bits = BITS.get(kind, 64)
        if bits < 64:
            narrow = self.new() if kind[0] != "i" else result
            yield f"  {narrow} = trunc i64 {word} to i{bits}"
            word = narrow
        if kind.startswith("ptr"):
            yield f"  {result} = inttoptr i64 {word} to {kind}"
        elif kind[0] != "i":
            yield f"  {result} = bitcast i{bits} {word} to {kind}"
        elif bits == 64:
            yield f"  {result} = add i64 {word}, 0"

    def to_word(self, word: str, kind: str, value: str) -> Iterator[str]:
        """Instructions that make a word of a value, sign-extended if it is an integer."""
        bits = BITS.get(kind, 64)
        if kind.startswith("ptr"):
            yield f"  {word} = ptrtoint {kind} {value} to i64"
        elif kind[0] == "i":
            yield f"  {word} = sext i{bits} {value} to i64" if bits < 64 else f"  {word} = add i64 {value}, 0"
        else:
            raw = self.new()
            yield f"  {raw} = bitcast {kind} {value} to i{bits}"
            yield f"  {word} = zext i{bits} {raw} to i64" if bits < 64 else f"  {word} = add i64 {raw}, 0"

    # ---- places

    def debug(self, row: str) -> str:
        """Return the text that says the place of an instruction, for another one of that place."""
        found = _DEBUG.search(row)
        return found[0] if found else ""

    def places(self, row: str) -> Iterator[tuple[str, int]]:
        """File and line of an instruction, as debug information has them; then of calls that are inlined around it."""
        found = _DEBUG.search(row)
        at = found[1] if found else ""
        while at:
            scope = self._of(at, "scope")
            line = self._text(at, "line") or self._text(scope, "line")
            file = self._file(self._of(scope, "file"))
            if not file.startswith(self.headers):
                yield file, int(line or 0)
            at = self._of(at, "inlinedAt")

    def place(self, row: str) -> tuple[str, int]:
        """The first of its places."""
        return next(self.places(row), (self.source, 0))

    def site(self, row: str, request: str, name: str = "", order: str = "") -> str:
        """The operand that is a site of an instruction, as a call takes it; the line goes with a name."""
        (file, line), *callers = [*self.places(row)] or [(self.source, 0)]
        is_main = Path(self.source).parent / file == Path(self.source)
        sync = f"{name}, line {line}{'' if is_main else f' of {Path(file).name}'}" if name else ""
        caller = "{}:{}".format(*callers[0]) if callers else ""
        asked = Asked(file, line, request, sync, caller, order)
        return f"ptr @xccl_pointer.{self.sites.setdefault(asked, len(self.sites))}"

    def error(self, row: str, why: str) -> KernelError:
        """The error for an instruction, with its place."""
        file, line = self.place(row)
        return KernelError(f"{Path(file or self.source)}:{line}: {why}")

    def refused(self, row: str, why: str) -> KernelError:
        """The error for an instruction that has no request, which it shows."""
        return self.error(row, f"{why}: `{row.strip().partition(', !dbg')[0]}`")

    def _of(self, record: str, name: str) -> str:
        found = re.search(rf"\b{name}: !(\d+)", self.records.get(record, ""))
        return found[1] if found else ""

    def _text(self, record: str, name: str) -> str:
        found = re.search(rf'\b{name}: "?([^",)]*)', self.records.get(record, ""))
        return found[1] if found else ""

    def _file(self, record: str) -> str:
        """A file: a clang parts a path of another folder from the prefix that it has in common with the kernel's."""
        folder, name = self._text(record, "directory"), self._text(record, "filename")
        return name if Path(folder) == Path(self.source).parent else str(Path(folder) / name)

    def site_records(self) -> Iterator[str]:
        """A ``struct xccl_site`` for each site."""
        texts = dict.fromkeys(each for at in self.sites for each in ("", *at) if isinstance(each, str))
        names = {text: f"@xccl_pointer.text.{i}" for i, text in enumerate(texts)}
        for text, name in names.items():
            raw = text.encode()
            data = "".join(f"\\{byte:02X}" for byte in (*raw, 0))
            yield f'{name} = private unnamed_addr constant [{len(raw) + 1} x i8] c"{data}"'
        for at, site in self.sites.items():
            fields = [f"i64 {FIRST_SITE + site}", f"ptr {names[at.request]}", f"ptr {names[at.file]}", f"i64 {at.line}"]
            fields += [f"ptr {names[at.sync]}", "i64 0", f"ptr {names[at.order]}"]
            fields += [f"ptr {names[at.caller]}" if at.caller else "i64 0"]
            kinds = ", ".join(each.partition(" ")[0] for each in fields)
            value = f"{{ {kinds} }} {{ {', '.join(fields)} }}"
            yield f'@xccl_pointer.{site} = internal constant {value}, section "xccl_sites", align 64'
