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

from xccl_emu.doors.cuda import assembly, ptx
from xccl_emu.lang import requests as rq
from xccl_emu.lang.foreign import image, rewriting
from xccl_emu.lang.foreign.rewriting import BITS, TYPE, VALUE

INCLUDE = Path(__file__).with_name("include")

_CONSTRAINT = re.compile(r'"([=+&]*)[hlfdq]"(?=\s*\()')
_HEAD = re.compile(r"define .*@(\w+)\((.*)\)")
_SCOPE = r"(?:(?:linkonce_odr|weak_odr|dso_local|hidden|internal) )*"
_LINKAGE = re.compile(rf"(?<=define ){_SCOPE}(?!.*@xccl_body\()")
_VARIABLE = re.compile(rf"(@\S+ = ){_SCOPE}(?=global )")
_BYVAL = re.compile(r"ptr [^,]*\bbyval\([^)]*\)[^,]* (%\w+)")
_MADE = re.compile(rf"\s*(\S+) = (?:alloca\b|getelementptr\b.*?, ptr ({VALUE})(?:,|$))")
_SHARED = ('section "xccl_shared"', image.SHARED_DYNAMIC)
_SHARED_OPEN = re.compile(r"extern static __attribute__\(\(section\(\"xccl_shared\"\)\)\)([^;]*);")
_LAUNCH = re.compile(r"\b\w+\s*<[^<>;{}]*>\s*<<<[^;]*?>>>\s*\([^;]*\)(?=\s*;)")
"""A launch of a template; `compiler` drops others."""
_CONSTANT = re.compile(r"(@\S+) = .*\bconstant\b")
_LOAD = re.compile(rf"\s*(\S+) = load (volatile )?({TYPE}), ptr ({VALUE}), align \d+(?=,|$)")
_STORE = re.compile(rf"\s*store (volatile )?({TYPE}) ({VALUE}), ptr ({VALUE}), align \d+(?=,|$)")
_ACCESS = re.compile(rf"\s*(?:\S+ = load|store) (?:.*?, ptr ({VALUE}), align \d+(?=,|$))?")
"""Any load or store; if its form is known, its pointer too."""
_MOVE = re.compile(
    rf"\s*call void @llvm\.mem(?:cpy|move|set)\.\S*\(ptr (?:align (\d+) )?({VALUE}), "
    rf"(?:(i8)|ptr(?: align (\d+))?) ({VALUE}), i64 ({VALUE}), i1 "
)
_ATOMIC = re.compile(r"\s*(?:\S+ = )?(?:atomicrmw|cmpxchg|fence|load atomic|store atomic)\b")


def compiled(text: str) -> str:
    """The text of a source without PTX's kinds of registers, which no other processor has: their types say as much.

    All shared variables whose size a launch says have one name for the linker, as they have one place.
    """
    text = _LAUNCH.sub(lambda found: "\n" * found[0].count("\n"), text)
    return _SHARED_OPEN.sub(rf'extern\1 __asm__("{image.SHARED_DYNAMIC}");', _CONSTRAINT.sub(r'"\1r"', text))


def lowered(ir: str, source: str) -> str:
    """The IR of a source with requests in place of accesses by pointers, and of PTX.

    Raises:
        KernelError: with file and line of what has no request.
    """
    module = _Lowered(ir.splitlines(), source, (rewriting.CALL, str(INCLUDE)))
    return "\n".join(module.lines()) + "\n"


@dataclass
class _Lowered(rewriting.Module):
    """A module whose pointers are plain."""

    own: set[str] = field(default_factory=set)
    """Pointers into variables of the function at hand, and to constants."""

    def lines(self) -> Iterator[str]:
        """The lines of the module; sites are at its end."""
        constants = {match[1] for row in self.rows if (match := _CONSTANT.match(row))}
        has_shared = any(row.startswith("@") and any(each in row for each in _SHARED) for row in self.rows)
        is_ours = is_called = has_release = False
        for row in self.rows:
            if row.startswith("declare ") and "@xccl_has_" in row:
                continue
            if head := _HEAD.match(row):
                self.own, is_ours = constants | {*_BYVAL.findall(head[2])}, head[1].startswith("xccl_ours_")
                row = _LINKAGE.sub("internal ", row)  # what is inlined everywhere, and its sites, fall away
                is_called = head[1] == "xccl_body"  # where all that the kernel calls is inlined
            row = _VARIABLE.sub(r"\1internal ", row)  # so do variables of the host
            if is_ours or not row.startswith("  ") or row.lstrip().startswith("#"):
                yield row
            else:
                made = [*self._instruction(row)]
                has_release |= is_called and any("@xccl_ours_publish(" in each for each in made)
                yield from made
        for what, is_there in (("shared", has_shared), ("release", has_release)):
            yield f"define internal i64 @xccl_has_{what}() alwaysinline {{ ret i64 {int(is_there)} }}"
        yield from self.site_records()

    def _instruction(self, row: str) -> Iterator[str]:
        if (made := _MADE.match(row)) and (made[2] is None or made[2] in self.own):
            self.own.add(made[1])
        if _ATOMIC.match(row):
            raise self.refused(row, "an atomic access of the compiler: use atomicAdd, cuda::atomic_ref or PTX")
        if found := assembly.CALL.match(row):
            yield from assembly.Assembly(self, row, found).lines()
        elif "@llvm.mem" in row and not self._is_ours(row):
            yield from self._move(row)
        elif (found := _ACCESS.match(row)) and found[1] not in self.own and not self._is_ours(row):
            yield from self._access(row)
        else:
            yield row

    def _is_ours(self, row: str) -> bool:
        """Return whether no line of the kernel's own files comes to this: it takes the arguments of the host then."""
        return bool(self.debug(row)) and not any(self.places(row))

    def _access(self, row: str) -> Iterator[str]:
        if found := _LOAD.match(row):
            result, is_volatile, kind, pointer = found.groups()
            named = ("ld.volatile", rq.NO_ACQUIRE) if is_volatile else ()
            word, site = self.new(), self.site(row, "load", *named)
            called = f"@xccl_ours_read({site}, ptr {pointer}, i64 {BITS.get(kind, 64) // 8})"
            yield f"  {word} = call i64 {called}{self.debug(row)}"
            yield from self.of_word(result, kind, word)
        elif found := _STORE.match(row):
            is_volatile, kind, value, pointer = found.groups()
            word, nbytes = self.new(), BITS.get(kind, 64) // 8
            yield from self.to_word(word, kind, value)
            called = f"{self.site(row, 'store')}, ptr {pointer}, i64 {word}, i64 {nbytes}, i64 {int(bool(is_volatile))}"
            yield f"  call void @xccl_ours_write({called}){self.debug(row)}"
        else:
            raise self.refused(row, "no request is known for an access of this type")

    def _move(self, row: str) -> Iterator[str]:
        found = _MOVE.match(row)
        if found is None:
            raise self.refused(row, "no request is known for a copy of this form")
        align, target, byte, of_source, source, nbytes = found.groups()
        if target in self.own and (byte or source in self.own):
            yield row
            return
        sizes = (int(each) for each in (align or 1, of_source or 8, nbytes if nbytes.isdigit() else 1))
        load_line, load, store_line, store = (
            self.site(row, each) for each in ("load_line", "load", "store_line", "store")
        )
        if byte:
            given = f"fill({store}, ptr {target}, i8 {source}, i64 {nbytes}, i64 {math.gcd(8, *sizes)})"
        else:
            sites, step = f"{load_line}, {load}, {store_line}, {store}", math.gcd(rq.LINE_BYTES, *sizes)
            given = f"copy({sites}, ptr {target}, ptr {source}, i64 {nbytes}, i64 {step})"
        yield f"  call void @xccl_ours_{given}{self.debug(row)}"


LOWERING = rewriting.Lowering(
    lowered,
    (f"-DXCCL_CONSTANTS={image.CONSTANTS}", f"-DXCCL_LOCAL={image.TOP - image.ROOM_BYTES - image.GUARD_BYTES}"),
    ("-O0", "-Xclang", "-disable-O0-optnone", "-fno-sanitize-coverage=trace-pc", "-fno-sanitize=all"),
    tuple(map(Path, (__file__, assembly.__file__, ptx.__file__, rewriting.__file__))),
    compiled,
    is_needed=True,
)
"""Plain pointers, and PTX."""
