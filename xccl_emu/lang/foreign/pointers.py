"""Pointers into memory of the machine: where a kernel follows one, a request is made of it.

To clang such a pointer is one into another address space (`SPACES`): that is what the header's ``__gm__`` and
``__ubuf__`` say.  So types, overloads and casts are checked as the vendor's compiler does, a clang too, and loads and
stores are known in its IR before anything is optimized.  There each becomes a call of ``xccl_follow`` with a site.

Why not otherwise: ``__gm__ T *`` cannot be a class, since it is a pointer by its syntax.  The checks of sanitizers,
which g++ has too, announce an access and leave it to happen.  To carry out an instruction after its fault takes a
decoder for each processor.  g++ has no address spaces in C++, and no IR: what it compiles is stopped where it follows a
pointer (`abi.POINTER`).

Each instruction with such a pointer must have a shape that is known here, or it is refused by its line.
"""

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from xccl_emu.base.errors import KernelError
from xccl_emu.lang import requests as rq
from xccl_emu.lang.foreign import image, rewriting
from xccl_emu.lang.foreign.rewriting import BITS, PTR, TYPE, VALUE


class Space(NamedTuple):
    """An address space: its name in the source, and the requests that read and write it."""

    name: str
    load: str
    store: str


SPACES = {1: Space("__gm__", "load", "store"), 2: Space("__ubuf__", "ub_load", "ub_store")}
"""The spaces by number, which the header takes from macros."""

_AT = rf"ptr addrspace\((\d+)\) ({VALUE}), align \d+(?=,|$)"
_NUMBERS = re.compile(r"@\S+ = private unnamed_addr constant (?!.*@).*\binttoptr \(i64 ")
"""A constant of pointers that are numbers, from which an array of them on the stack is filled."""
_LOAD = re.compile(rf"\s*(\S+) = load (?:volatile )?({TYPE}), {_AT}")
_STORE = re.compile(rf"\s*store (?:volatile )?({TYPE}) ({VALUE}), {_AT}")
_MOVED = re.compile(rf"\s*(?:\S+ = load (?:volatile )?{PTR}|store (?:volatile )?{PTR} {VALUE}), ptr [^a]")
_PLAIN = re.compile(
    r"\s*(?:\S+ = )?(?:(?:alloca|getelementptr|ptrtoint|inttoptr|icmp|phi|select|freeze|ret|extractvalue|"
    r"insertvalue)\b|(?:tail |musttail )?call (?!.*(?:@llvm\.(?!lifetime)|\basm\b)))"
)
_HEAD = re.compile(
    r"define (?:(?:linkonce_odr|dso_local|hidden|internal) )*(?!available|.*@xccl_(?:body|follow)\()(.*) (#\d+)"
)
_KEPT_APART = re.compile(r'attributes (#\d+) = [^"]*\b(?:noinline|optnone)\b')


def lowered(ir: str, source: str) -> str:
    """The IR of a source with a request in place of each load and store in the spaces of the machine.

    Raises:
        KernelError: with file and line of an instruction that uses such a pointer in another way.
    """
    return "\n".join(_Lowered(ir.splitlines(), source).lines()) + "\n"


@dataclass
class _Lowered(rewriting.Module):
    """A module whose accesses are in the spaces."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.apart = {match[1] for row in self.rows if (match := _KEPT_APART.match(row))}

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
        yield from self.site_records()

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
            raise self.refused(row, "a pointer to memory of the machine and a plain one are not cast into each other")
        if load and int(load[3]) in SPACES:
            yield from self._load(row, load)
        elif store and int(store[3]) in SPACES:
            yield from self._store(row, store)
        elif _MOVED.match(row) or _PLAIN.match(row):
            yield row
        else:
            raise self.refused(row, "no request is known for what follows this pointer")

    def _load(self, row: str, match: re.Match[str]) -> Iterator[str]:
        result, kind, space, pointer = match.groups()
        nbytes = str(BITS.get(kind, 64) // 8)
        word = yield from self._asked(row, SPACES[int(space)].load, int(space), pointer, nbytes, "0")
        yield from self.of_word(result, kind, word)

    def _store(self, row: str, match: re.Match[str]) -> Iterator[str]:
        kind, value, space, pointer = match.groups()
        word, nbytes = self.new(), str(BITS.get(kind, 64) // 8)
        yield from self.to_word(word, kind, value)
        yield from self._asked(row, SPACES[int(space)].store, int(space), pointer, word, nbytes)

    def _asked(
        self, row: str, request: str, space: int, pointer: str, one: str, other: str
    ) -> Generator[str, None, str]:
        """Yield a call that asks; return the name of its result."""
        address, word = self.new(), self.new()
        site = self.site(row, request)
        code = rq.OPERATIONS.index(request)
        yield f"  {address} = ptrtoint ptr addrspace({space}) {pointer} to i64"
        asked = f"{site}, i64 {code}, i64 {address}, i64 {one}, i64 {other}"
        yield f"  {word} = call i64 @xccl_follow({asked}){self.debug(row)}"
        return word


IN_SPACES = rewriting.Lowering(
    lowered,
    (*(f"-DXCCL_SPACE{space.name.rstrip('_')}={number}" for number, space in SPACES.items()),
     f"-DXCCL_CONSTANTS={image.CONSTANTS}"),
    ("-Xclang", "-disable-llvm-passes"),
    (Path(__file__), Path(rewriting.__file__)),
)  # fmt: skip
"""The qualifiers of the header are address spaces."""
