"""Pointers into memory of the machine: where a kernel follows one, a request is made of it.

To clang such a pointer is one into another address space (`SPACES`): that is what the header's ``__gm__`` and
``__ubuf__`` say.  So types, overloads and casts are checked as the vendor's compiler does, a clang too, and loads and
stores are known in its IR before anything is optimized.  There each becomes a call of ``xccl_follow`` with a site.

Why not otherwise: ``__gm__ T *`` cannot be a class, since it is a pointer by its syntax.  The checks of sanitizers,
which g++ has too, announce an access and leave it to happen.  To carry out an instruction after its fault takes a
decoder for each processor.  g++ has no address spaces in C++, and no IR: what it compiles is stopped where it follows a
pointer (`abi.POINTER`).

The IR is text that goes back into the compiler that wrote it: no other LLVM reads it, so no version of it is too new
for one.  Each instruction with such a pointer must have a shape that is known here, or it is refused by its line.
"""

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from xccl_emu.base.errors import KernelError
from xccl_emu.lang import requests as rq


class Space(NamedTuple):
    """An address space: its name in the source, and the requests that read and write it."""

    name: str
    load: str
    store: str


SPACES = {1: Space("__gm__", "load", "store"), 2: Space("__ubuf__", "ub_load", "ub_store")}
"""The spaces by number, which the header takes from the macros of `defines`."""

FIRST_SITE = 1 << 20
"""Number of the first site here, after those that a header makes."""

_BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "half": 16, "bfloat": 16, "float": 32, "double": 64}
_PTR = r"ptr(?: addrspace\(\d+\))?"
_NESTED = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
_VALUE = rf'(?:%"[^"]*"|@"[^"]*"|[%@]?[\w.$+-]+(?: (?:\w+ )*{_NESTED})?)'
_TYPE = rf"(?:{'|'.join(_BITS)}|{_PTR})"
_AT = rf"ptr addrspace\((\d+)\) ({_VALUE}), align \d+(?=,|$)"
_NUMBERS = re.compile(r"@\S+ = private unnamed_addr constant (?!.*@).*\binttoptr \(i64 ")
"""A constant of pointers that are numbers, from which an array of them on the stack is filled."""
_LOAD = re.compile(rf"\s*(\S+) = load (?:volatile )?({_TYPE}), {_AT}")
_STORE = re.compile(rf"\s*store (?:volatile )?({_TYPE}) ({_VALUE}), {_AT}")
_MOVED = re.compile(rf"\s*(?:\S+ = load (?:volatile )?{_PTR}|store (?:volatile )?{_PTR} {_VALUE}), ptr [^a]")
_PLAIN = re.compile(
    r"\s*(?:\S+ = )?(?:(?:alloca|getelementptr|ptrtoint|inttoptr|icmp|phi|select|freeze|ret|extractvalue|"
    r"insertvalue)\b|(?:tail |musttail )?call (?!.*(?:@llvm\.(?!lifetime)|\basm\b)))"
)
_HEAD = re.compile(
    r"define (?:(?:linkonce_odr|dso_local|hidden|internal) )*(?!available|.*@xccl_(?:body|follow)\()(.*) (#\d+)"
)
_KEPT_APART = re.compile(r'attributes (#\d+) = [^"]*\b(?:noinline|optnone)\b')
_RECORD = re.compile(r"!(\d+) = (?:distinct )?!(\w+\(.*\))$")
_DEBUG = re.compile(r", !dbg !(\d+)")


def defines() -> list[str]:
    """Return the macros by which the header's qualifiers are address spaces."""
    return [f"-DXCCL_SPACE{space.name.rstrip('_')}={number}" for number, space in SPACES.items()]


def lowered(ir: str, source: str) -> str:
    """The IR of a source with a request in place of each load and store in the spaces of the machine.

    Raises:
        KernelError: with file and line of an instruction that uses such a pointer in another way.
    """
    return "\n".join(_Lowered(ir.splitlines(), source).lines()) + "\n"


@dataclass
class _Lowered:
    """A module, and what is added to it."""

    rows: list[str]
    source: str
    sites: dict[tuple[str, int, str], int] = field(default_factory=dict)
    """The numbers of sites by file, line and request."""
    n_values: int = 0

    def __post_init__(self) -> None:
        self.apart = {match[1] for row in self.rows if (match := _KEPT_APART.match(row))}
        found = (_RECORD.match(row) for row in self.rows if row.startswith("!"))
        self.records = {m[1]: m[2] for m in found if m}

    def lines(self) -> Iterator[str]:
        """The lines of the module; sites are at its end."""
        spaces = "|".join(map(str, SPACES))
        mentions = re.compile(rf"addrspace\((?:{spaces})\)")
        for row in self.rows:
            row = self._inlined(row)
            if not mentions.search(row) or row.startswith("!") or row.lstrip().startswith(("#dbg", ";")):
                yield row
            elif not row.startswith(" "):
                yield self._outside(row)
            else:
                yield from self._instruction(row)
        yield from self._records()

    def _inlined(self, row: str) -> str:
        """A line, but for heads of functions: they are inlined, as subroutines in Python are, and leave no frames."""
        head = _HEAD.match(row)
        if head is None or head[2] in self.apart:
            return row
        return f"define internal {head[1]} alwaysinline {head[2]}{row[head.end() :]}"

    def _outside(self, row: str) -> str:
        """A line outside of a function: a head, a type, or a variable, which can have no place in the machine."""
        if row.startswith("@") and not _NUMBERS.match(row):
            raise KernelError(f"{self.source}: a variable in memory of the machine, or with its address: `{row[:99]}`")
        return row

    def _instruction(self, row: str) -> Iterator[str]:
        load, store = _LOAD.match(row), _STORE.match(row)
        if "addrspacecast" in row:
            raise self._refused(row, "a pointer to memory of the machine and a plain one are not cast into each other")
        if load and int(load[3]) in SPACES:
            yield from self._load(row, load)
        elif store and int(store[3]) in SPACES:
            yield from self._store(row, store)
        elif _MOVED.match(row) or _PLAIN.match(row):
            yield row
        else:
            raise self._refused(row, "no request is known for what follows this pointer")

    def _load(self, row: str, match: re.Match[str]) -> Iterator[str]:
        result, kind, space, pointer = match.groups()
        bits = _BITS.get(kind, 64)
        word = yield from self._asked(row, SPACES[int(space)].load, int(space), pointer, str(bits // 8), "0")
        if bits < 64:
            narrow = self._new() if kind[0] != "i" else result
            yield f"  {narrow} = trunc i64 {word} to i{bits}"
            word = narrow
        if kind.startswith("ptr"):
            yield f"  {result} = inttoptr i64 {word} to {kind}"
        elif kind[0] != "i":
            yield f"  {result} = bitcast i{bits} {word} to {kind}"
        elif bits == 64:
            yield f"  {result} = add i64 {word}, 0"

    def _store(self, row: str, match: re.Match[str]) -> Iterator[str]:
        kind, value, space, pointer = match.groups()
        bits, word = _BITS.get(kind, 64), self._new()
        if kind.startswith("ptr"):
            yield f"  {word} = ptrtoint {kind} {value} to i64"
        elif kind[0] == "i":
            yield f"  {word} = sext i{bits} {value} to i64" if bits < 64 else f"  {word} = add i64 {value}, 0"
        else:
            raw = self._new()
            yield f"  {raw} = bitcast {kind} {value} to i{bits}"
            yield f"  {word} = zext i{bits} {raw} to i64" if bits < 64 else f"  {word} = add i64 {raw}, 0"
        yield from self._asked(row, SPACES[int(space)].store, int(space), pointer, word, str(bits // 8))

    def _asked(
        self, row: str, request: str, space: int, pointer: str, one: str, other: str
    ) -> Generator[str, None, str]:
        """Yield a call that asks; return the name of its result."""
        address, word, debug = self._new(), self._new(), _DEBUG.search(row)
        site = self.sites.setdefault((*self._place(row), request), len(self.sites))
        code = rq.OPERATIONS.index(request)
        yield f"  {address} = ptrtoint ptr addrspace({space}) {pointer} to i64"
        asked = f"ptr @xccl_pointer.{site}, i64 {code}, i64 {address}, i64 {one}, i64 {other}"
        yield f"  {word} = call i64 @xccl_follow({asked}){debug[0] if debug else ''}"
        return word

    def _new(self) -> str:
        self.n_values += 1
        return f"%xccl.{self.n_values}"

    def _place(self, row: str) -> tuple[str, int]:
        """Return file and line of an instruction, as debug information has them."""
        debug = _DEBUG.search(row)
        if debug is None:
            return self.source, 0
        scope = self._of(debug[1], "scope")
        file = self._of(scope, "file")
        return self._file(file), int(self._text(debug[1], "line") or self._text(scope, "line") or 0)

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

    def _refused(self, row: str, why: str) -> KernelError:
        file, line = self._place(row)
        shown = row.strip().partition(", !dbg")[0]
        return KernelError(f"{file or self.source}:{line}: {why}: `{shown}`")

    def _records(self) -> Iterator[str]:
        """A ``struct xccl_site`` for each site."""
        texts = dict.fromkeys(text for file, _, request in self.sites for text in ("", file, request))
        names = {text: f"@xccl_pointer.text.{i}" for i, text in enumerate(texts)}
        for text, name in names.items():
            raw = text.encode()
            data = "".join(f"\\{byte:02X}" for byte in (*raw, 0))
            yield f'{name} = private unnamed_addr constant [{len(raw) + 1} x i8] c"{data}"'
        for (file, line, request), site in self.sites.items():
            fields = [f"i64 {FIRST_SITE + site}", f"ptr {names[request]}", f"ptr {names[file]}", f"i64 {line}"]
            fields += [f"ptr {names['']}", "i64 0", f"ptr {names['']}", "i64 0"]
            kinds = ", ".join(each.partition(" ")[0] for each in fields)
            value = f"{{ {kinds} }} {{ {', '.join(fields)} }}"
            yield f'@xccl_pointer.{site} = internal constant {value}, section "xccl_sites", align 64'
