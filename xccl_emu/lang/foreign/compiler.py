"""Compiles a kernel in C or C++ to an image that runs at one address: found or refused, cached by content.

An image is a linked file without relocations, without a library and without anything that could be written: what a
kernel keeps is in its core's words alone.
"""

import functools
import hashlib
import importlib.util
import json
import mmap
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from xccl_emu.base.errors import ConfigError, KernelError
from xccl_emu.jit import cache
from xccl_emu.lang import _machine_code, abi
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.foreign import dead, image, rewriting

HERE = Path(__file__).parent

C_SUFFIX = ".c"

_FLAGS = ["-g", "-O2", "-fPIE", "-fvisibility=hidden", "-fno-stack-protector", "-fstack-clash-protection"]
_FLAGS += ["-fno-asynchronous-unwind-tables", "-ftrivial-auto-var-init=zero"]
_OF_C = ["-x", "c", "-std=gnu11"]
_OF_CXX = ["-x", "c++", "-std=gnu++20", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-fno-finite-loops"]
_OF_CXX += ["-fdata-sections"]  # image.ld finds places of requests in templates by their names
_RAW = "surrogateescape"
"""How assembly is read: what text is outside of strings and file names; a clang has raw bytes in strings."""
_COVERAGE = ["-fsanitize-coverage=trace-pc"]
_OF_KERNEL = ["-iquote", ".", f"-I{HERE}", *_COVERAGE]
_OF_GCC = ["-fwhole-program"]
"""No other kernel of the file is compiled."""
_TO_IR = ["-S", "-emit-llvm", "-"]
_LAUNCH = re.compile(r"\b\w+\s*<<<[^;]*?>>>\s*\([^;]*\)(?=\s*;)")
_ON_X86 = ["-fcf-protection=none", *dead.FLAGS]
_OF_ABI = (
    "PC", "DONE", "RESULT", "REQUEST", "REGISTERS", "PLACES", "DIVISION_BY_ZERO", "STACK_FULL", "FAULT", "ENDLESS",
    "POINTER", "REQUEST_WORDS", "LONGEST_REQUEST_WORDS",
)  # fmt: skip
_COUNT = "__sanitizer_cov_trace_pc"
_CALLS, _JUMPS = ("bl", "b") if platform.machine() == "aarch64" else ("call", "jmp")
_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?')
_PLACE = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")
_LINK = ["-nostdlib", "-nostartfiles", "-static", "-no-pie", "-Wl,--build-id=none"]


@dataclass(frozen=True)
class Unit:
    """What is compiled: source files, and a statement that calls what is in them."""

    files: tuple[Path, ...]
    name: str
    n_params: int
    call: str
    """The call of the kernel, with ``arguments[0]`` and so on."""
    stack_words: int
    before: str = ""
    """Lines in front of the function that calls."""
    head: str = ""
    """Lines in front of all."""
    flags: tuple[str, ...] = ()
    """More of them for the compiler."""
    kept: int = 0
    """How many of the first arguments stay in the core's registers."""
    tables: Callable[[str], str] | None = None
    """What else is compiled, made of the text that the preprocessor leaves; by the other fields alone."""
    follows: rewriting.Lowering | None = None
    """It may follow pointers to memory of the machine, so a clang is chosen if there is one."""

    @property
    def file(self) -> Path:
        """The first of the files, in whose folder the compiler runs."""
        return self.files[0]

    @property
    def is_c(self) -> bool:
        """Return whether it is C, not C++."""
        return self.file.suffix == C_SUFFIX

    @property
    def entry(self) -> str:
        """The text that is compiled: the files, and a function that calls the kernel."""
        linkage = "" if self.is_c else 'extern "C" '
        shown = [file.name if file.parent == self.file.parent else str(file) for file in self.files]
        lines = [self.head, '#include "xccl_emu.h"', *map(self._included, self.files, shown), self.before]
        lines += [f'# 1 "{rewriting.CALL}{self.name}"', f"{linkage}void xccl_returned(int64_t value);"]
        lines += [f"{linkage}XCCL_ENTRY void xccl_body(const int64_t *arguments) {{", self.call, "}\n"]
        return "\n".join(lines)

    def _included(self, file: Path, shown: str) -> str:
        """A line that includes a file; or its text without the launches ``name<<<...>>>(...)`` of its host side."""
        text = file.read_text("utf-8", "replace") if self.follows else ""
        bare = _LAUNCH.sub(lambda found: "\n" * found[0].count("\n"), text)
        return f'#include "{shown}"' if bare == text else f'# 1 "{os.path.join(".", shown)}"\n{bare}'

    @property
    def words(self) -> list[str]:
        """Return what `runtime.c` has to know, as definitions."""
        known = {
            **{name: getattr(abi, name) for name in _OF_ABI}, "PARAMS": self.n_params, "STACK_WORDS": self.stack_words,
            "BLOCKS_MAX": abi.TURNS_MAX, "TOP": image.TOP, "ROOM_BYTES": image.ROOM_BYTES,
            "GUARD_BYTES": image.GUARD_BYTES, "PAGE_BYTES": mmap.PAGESIZE, "READ_WRITE": image.READ_WRITE,
            "POLL_ANY": rq.OP_POLL_ANY, "KEPT": self.kept, "HIGH": ops.LOAD_LINE.high,
        }  # fmt: skip
        return [f"-DXCCL_{name}=({value})" for name, value in known.items()]


@dataclass(frozen=True)
class Made:
    """An image, and the text that it was made of, headers in and lines out."""

    elf: bytes
    text: str


def compiler(is_c: bool, environ: Mapping[str, str], follows: bool = False) -> list[str]:
    """The command: ``$CC`` or ``$CXX``, a usual name on the path, or zig's; the first clang of them for `Unit.follows`.

    Raises:
        KernelError: if there is none, or if this machine is none that kernels in C run on.
    """
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        raise KernelError(f"{sys.platform} on {platform.machine()}: kernels in C run on Linux, on x86_64 and aarch64")
    variable, usual = ("CC", ("cc", "gcc", "clang")) if is_c else ("CXX", ("c++", "g++", "clang++"))
    if environ.get(variable):
        return shlex.split(environ[variable])
    found = [[at] for name in usual if (at := shutil.which(name, path=environ.get("PATH")))]
    if importlib.util.find_spec("ziglang"):
        found.append([sys.executable, "-m", "ziglang", "cc" if is_c else "c++"])
    if found:
        return next((each for each in found if follows and is_clang(each)), found[0])
    raise KernelError(
        f"no compiler for {'C' if is_c else 'C++'}: set {variable}, put one of {', '.join(usual)} on the path, "
        f"or install the extra: pip install 'xccl_emu[cpp]'"
    )


def folders(include: str | Path | Iterable[str | Path]) -> tuple[Path, ...]:
    """The folders of headers, each once; raises ConfigError for one that there is not."""
    found = [Path(each).absolute() for each in ([include] if isinstance(include, str | Path) else include)]
    for each in found:
        if not each.exists():
            raise ConfigError("include", str(each), "must be a folder of headers, or a file in one: there is none here")
    return tuple(dict.fromkeys(each if each.is_dir() else each.parent for each in found))


@dataclass(frozen=True)
class _Build:
    """How a unit is compiled on this machine."""

    unit: Unit
    command: list[str]
    lowering: rewriting.Lowering | None
    """How pointers to memory of the machine become requests."""

    @property
    def flags(self) -> list[str]:
        """Return flags of all that is compiled."""
        return [*_FLAGS, *(_ON_X86 if platform.machine() == "x86_64" else ())]

    @property
    def of_kernel(self) -> list[str]:
        """Return flags of the kernel's source."""
        more = self.lowering.flags if self.lowering else ()
        alone = [] if is_clang(self.command) else _OF_GCC
        return [*self.flags, *(_OF_C if self.unit.is_c else _OF_CXX), *_OF_KERNEL, *alone, *self.unit.flags, *more]

    @property
    def words(self) -> list[str]:
        """Return `Unit.words`, and whether pointers that the machine may know are followed blindly."""
        return [*self.unit.words, f"-DXCCL_IS_BLIND={int(bool(self.unit.follows) and not self.lowering)}"]

    def run(self, *arguments: str, text: str | None = None) -> bytes:
        """Return what the compiler writes, of the unit or of another text."""
        unit = self.unit
        given = unit.entry if text is None else text
        return run([*self.command, *arguments], given, str(unit.file), repr(unit.name), unit.file.parent)

    def assembly(self, at: Path) -> str:
        """Return the kernel's assembly, made in a folder."""
        made = str(at / "kernel.s")
        if self.lowering:
            ir = at / "kernel.ll"
            text = self.lowering.text and self.lowering.text(self.run(*self.of_kernel, "-E", "-").decode())
            self.run(*self.of_kernel, *self.lowering.to_ir, *_TO_IR, "-o", str(ir), text=text)
            ir.write_text(self.lowering.lowered(ir.read_text(), str(self.unit.file)))
            self.run(*self.flags, *_COVERAGE, "-ferror-limit=0", "-S", str(ir), "-o", made)
        else:
            self.run(*self.of_kernel, "-S", "-", "-o", made)
        own = (str(HERE), *(flag[2:] for flag in self.unit.flags if flag.startswith("-I")))
        counted = "".join(_counted((at / "kernel.s").read_text("utf-8", _RAW)))
        lines = dead.cleared(counted) if platform.machine() == "x86_64" else counted.splitlines(keepends=True)
        return "".join(_located(lines, self.unit.file.parent, own))


_Stamps = tuple[tuple[str, int, int], ...]
_made_before: dict[tuple[Unit, tuple[str, ...]], tuple[_Stamps, Made]] = {}


def made(unit: Unit) -> Made:
    """The image of a unit: the one of before if no file has changed, from the cache, or compiled now.

    Raises:
        KernelError: with the compiler's diagnostics if the unit does not compile or link, for a pointer that no request
            can be made of, and as `compiler` does.
    """
    command = compiler(unit.is_c, os.environ, unit.follows is not None)
    key = replace(unit, tables=None), tuple(command)
    stamps, before = _made_before.get(key, ((), None))
    if before and stamps == _stamps(path for path, *_ in stamps):
        return before
    build = _Build(unit, command, _lowering(unit, command))
    whole = build.run(*build.of_kernel, "-E", "-").decode()
    stamps = _stamps(_files(unit, whole))
    tables = unit.tables(whole) if unit.tables else ""
    text = "\n".join(line for line in whole.splitlines() if not line.startswith("#"))
    own = [(HERE / name).read_text() for name in ("runtime.c", "image.ld", "compiler.py", "dead.py")]
    own += [file.read_text() for file in (build.lowering.files if build.lowering else ())]
    parts = [_version(tuple(command)), *command, *build.of_kernel, *_LINK, *build.words, *own, whole, tables]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    path = str(_machine_code.folder() / f"{unit.name}-{digest[:32]}.o")
    elf = cache.read_kept(path)
    if elf is None:
        cache.tell_compiling("kernels")
        with_tables = replace(unit, before=f"{unit.before}\n{tables}")
        elf = _linked(replace(build, unit=with_tables), image.address_of(digest))
        cache.keep(path, elf)
    _made_before[key] = stamps, Made(elf, text)
    return _made_before[key][1]


def _lowering(unit: Unit, command: list[str]) -> rewriting.Lowering | None:
    """Return the lowering by which this compiler makes requests; raises KernelError if it has none, and must."""
    if unit.follows is None or is_clang(command):
        return unit.follows
    if unit.follows.is_needed:
        raise KernelError(
            f"{unit.file}: {shlex.join(command)} is no clang, which this kernel needs: set CXX to one, or install the "
            f"extra: pip install 'xccl_emu[cpp]'"
        )
    return None


def _files(unit: Unit, whole: str) -> set[str]:
    """Return what a text comes from: files by their markers, and folders in which another file could be found first."""
    named = {os.path.join(unit.file.parent, name) for name in re.findall(r'^# \d+ "([^"<]+)"', whole, re.MULTILINE)}
    return named | {*map(os.path.dirname, named), *(flag[2:] for flag in unit.flags if flag.startswith("-I"))}


def _stamps(paths: Iterable[str]) -> _Stamps:
    """Return when each file that there is was changed, and its size."""
    found = ((path, os.stat(path)) for path in sorted(paths) if os.path.exists(path))
    return tuple((path, stat.st_mtime_ns, stat.st_size) for path, stat in found)


def _linked(build: _Build, address: int) -> bytes:
    with tempfile.TemporaryDirectory(prefix="xccl_emu-") as folder:
        at = Path(folder)
        script, assembly, kernel, runtime, whole = (
            str(at / name) for name in ("image.ld", "located.s", "kernel.o", "runtime.o", "image")
        )
        Path(script).write_text((HERE / "image.ld").read_text().replace("XCCL_ADDRESS", f"{address:#x}"))
        Path(assembly).write_text(build.assembly(at), "utf-8", _RAW)
        build.run("-c", assembly, "-o", kernel)
        build.run(*build.flags, *_OF_C, "-ffreestanding", *build.words, "-c", str(HERE / "runtime.c"), "-o", runtime)
        build.run(*_LINK, f"-Wl,-T,{script}", kernel, runtime, "-o", whole)
        return Path(whole).read_bytes()


def _counted(assembly: str) -> Iterator[str]:
    """Lines of assembly; what jumps to itself counts too: compilers count no block that has nothing else in it."""
    here: set[str] = set()
    for line in assembly.splitlines(keepends=True):
        words = line.split()
        if words[:1] == [_JUMPS] and words[1] in here:
            yield f"\t{_CALLS}\t{_COUNT}\n"
        if line.endswith(":\n"):
            here.add(line[:-2])
        elif words and not words[0].startswith((".", "#", "//")):
            here.clear()
        yield line


def _located(assembly: Iterable[str], folder: Path, own: tuple[str, ...]) -> Iterator[str]:
    """Lines of assembly, and a table of lines of the source (`runtime.c`): 0 in no file, or one of our own."""
    files, rows = dict[str, str](), list[str]()
    for line in assembly:
        yield line
        if file := _FILE.match(line):
            files[file[1]] = str(folder / file[2] / (file[3] or ""))
        elif place := _PLACE.match(line):
            name = files[place[1]]
            shown = 0 if name.startswith(own) or not Path(name).is_file() else int(place[2])
            yield f".Lxccl_line{len(rows)}:\n"
            rows.append(f"\t.quad .Lxccl_line{len(rows)}, .Lxccl_file{place[1]}, {shown}\n")
    yield '\t.section xccl_lines,"a"\n'
    yield from rows
    yield '\t.section .rodata.xccl_files,"a"\n'
    yield from (f".Lxccl_file{number}:\n\t.asciz {json.dumps(name)}\n" for number, name in files.items())


def is_clang(command: Sequence[str]) -> bool:
    """Return whether a command is a clang, by what it says of its version."""
    return "clang" in _version(tuple(command))


@functools.cache
def _version(command: Sequence[str]) -> str:
    try:
        return subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:  # as `run` says
        return ""


def run(command: Sequence[str], text: str, of: str, name: str, folder: Path | None = None) -> bytes:
    """Return what a compiler writes that reads a text, in a folder; ``of`` and ``name`` say in errors what it is.

    Raises:
        KernelError: if the compiler cannot be run, or with its diagnostics.
    """
    try:
        done = subprocess.run(command, input=text.encode(), capture_output=True, check=False, cwd=folder)
    except OSError as error:
        raise KernelError(f"{of}: the compiler cannot be run: {shlex.join(command[:3])}: {error}") from error
    if done.returncode:
        message = done.stderr.decode(errors="replace").strip()
        raise KernelError(f"{of}: {name} does not compile:\n{message}")
    return done.stdout
