"""Kernels in C and C++: a function of a source file is used wherever a kernel written in Python is."""

import ctypes
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from xccl_emu import lang
from xccl_emu.base.errors import ConfigError, KernelError
from xccl_emu.lang import heads
from xccl_emu.lang.foreign import compiler, image
from xccl_emu.lang.operations import orders_of

STACK_WORDS = 96
"""Words of its stack that a kernel may have live at a request, if nothing is said."""

_STREAM_WORDS = 24
"""Words that the loop of a stream of launches takes of the stack, in addition to a row of its table."""

_PARAM = re.compile(r"\s*(?:const\s+)?int64_t\s+(\w+)\s*")


class CStep:
    """The step function of an image: its address, and a call of it from Python, which returns what it returns."""

    def __init__(self, address: int) -> None:
        self.address = address
        self._call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(address)

    def __call__(self, state: Any, base: int) -> int:
        """Run one step."""
        operation: int = self._call(ctypes.addressof(ctypes.c_char.from_buffer(memoryview(state))), base)
        return operation


class CKernel(lang.Kernel):
    """A kernel in C or C++; it is compiled when something but its name and parameters is first asked for."""

    language = heads.C

    def __init__(self, file: Path, name: str, stack_words: int) -> None:
        self.file, self.name = file, name
        self.in_turn: tuple[CKernel, ...] = ()
        self.__name__ = name
        self.text = _read(file)
        self._head = self._found()
        self.params = self._names()
        self.stack_words = stack_words

    def _found(self) -> re.Match[str]:
        head = re.search(self.language.pattern.format(name=re.escape(self.name)), heads.expanded(self.text))
        if head is None:
            example = self.language.example.format(name=self.name)
            raise KernelError(f"{self.file}: no kernel {self.name!r}: it begins with `{example}`")
        return head

    def _names(self) -> tuple[str, ...]:
        listed = [each for each in self._head[2].split(",") if each.strip() not in ("", "void")]
        found = [_PARAM.fullmatch(each) for each in listed]
        wrong = [each.strip() for each, match in zip(listed, found, strict=True) if match is None]
        if wrong:
            raise KernelError(f"{self._where}: parameter `{wrong[0]}` of {self.name!r}: must be `int64_t` and a name")
        return tuple(match[1] for match in found if match is not None)

    @property
    def _line(self) -> int:
        return self._head.string.count("\n", 0, self._head.start()) + 1

    @property
    def _where(self) -> str:
        return f"{self.file}:{self._line}"

    @property
    def generator(self) -> Any:
        """Raises KernelError: there is no generator, so no debugger and no subroutine."""
        raise KernelError(
            f"{self._where}: {self.name!r} is written in C: it has no plain form (`generators=True`), and no kernel in "
            f"Python can call it, or share a stream of launches with it"
        )

    def call(self, arguments: str, first: int) -> str:
        """Return the C expression that calls the kernel with words of an array, from number ``first`` on."""
        return f"{self.name}({', '.join(f'{arguments}[{first + i}]' for i in range(len(self.params)))})"

    def before(self, kernels: "tuple[CKernel, ...]", counted: bool) -> "CKernel":
        """Return a stream of launches, this kernel's first; raises KernelError for kernels of two kinds."""
        return CStream(kernels, counted)

    def _unit(self) -> compiler.Unit:
        call = self.call("arguments", 0)
        call = f"{call}; xccl_returned(0);" if self._head[1] == "void" else f"xccl_returned({call});"
        return compiler.Unit((self.file,), self.name, len(self.params), call, self.stack_words)

    @functools.cached_property
    def _made(self) -> tuple[image.Image, compiler.Made]:
        made = compiler.made(self._unit())
        code = image.Image(made.elf)
        if code.has_data:
            raise KernelError(self._writable(code.writable))
        code.load()
        return code, made

    def _writable(self, names: list[str]) -> str:
        name = (names or ["a variable"])[0].partition(".")[0]
        found = re.search(rf"\b{re.escape(name)}\b", self.text)
        where = f"{self.file}:{self.text.count(chr(10), 0, found.start()) + 1}" if found else str(self.file)
        return (
            f"{where}: {name!r} is global or static and can be written: all that a kernel keeps must be on its stack, "
            f"or in memory that it asks the machine for; make it const, or a local variable"
        )

    @property
    def records(self) -> dict[str, type]:
        """None: each parameter is an integer."""
        return {}

    @property
    def touches(self) -> dict[lang.rights.Word, tuple[lang.rights.Touch, ...]]:
        """None: what it touches its launch says."""
        return {}

    @functools.cached_property
    def source(self) -> str:
        """The text that was compiled, with what it includes."""
        return self._made[1].text

    @functools.cached_property
    def sites(self) -> tuple[lang.Site, ...]:
        """The place of each request in the source, as `Kernel.sites`.

        Raises:
            KernelError: if the source does not compile, or a request asks for an order that there is not.
        """
        return tuple(self._site(place) for place in self._made[0].places())

    def _site(self, place: image.ForeignRequest) -> lang.Site:
        file = self.file.parent / place.file
        if place.order not in (known := orders_of(place.operation)):
            raise KernelError(f"{file}:{place.line}: order={place.order!r}: must be one of {known}")
        text = _line_of(str(file), place.line)
        calling, _, line = place.caller.rpartition(":")
        callers = ((str(self.file.parent / calling), int(line)),) if calling else ()
        return lang.Site(
            str(file), place.line, text, place.operation, place.step, place.sync, callers, order=place.order
        )  # fmt: skip

    @functools.cached_property
    def places(self) -> tuple[lang.Site, ...]:
        """Return where a step may fail: after the kernel's head or a request, by number + 1, then lines of the code."""
        head = self._line_at(str(self.file), self._line, "return")
        return (head, *self.sites, *(self._line_at(file, line, "") for file, line in self._made[0].lines()))

    def _line_at(self, file: str, line: int, operation: str) -> lang.Site:
        path = str(self.file.parent / file)
        return lang.Site(path, line, _line_of(path, line) if line else "", operation, 0, "")

    @functools.cached_property
    def registers(self) -> tuple[str, ...]:
        """The parameters, how many words of the stack are live, and these words from the top down."""
        return (*self.params, "live", *(f"stack{i}" for i in range(self.stack_words)))

    @property
    def n_registers(self) -> int:
        """Return how many registers the kernel needs."""
        return len(self.registers)

    @functools.cached_property
    def step(self) -> lang.Step:
        """The step function, which returns a status where it fails, as `entry` does."""
        return CStep(self._made[0].symbols["xccl_emu_step"])

    @property
    def entry(self) -> lang.Step:
        """Return what the machine calls in the run that begins."""
        step = self.step
        image.begin()
        return step

    def plain_step(self) -> lang.Step:
        """Raises KernelError: there is no plain form."""
        return super().plain_step() if self.generator else self.step


class InTurn(NamedTuple):
    """Kernels in C that one core runs one after the other: what a stream of them is made of, whatever compiles it."""

    kernels: tuple[CKernel, ...]

    @property
    def name(self) -> str:
        """Name them all."""
        return "_then_".join(each.name for each in self.kernels)

    @property
    def files(self) -> tuple[Path, ...]:
        """Return their sources, each once."""
        return tuple(dict.fromkeys(each.file for each in self.kernels))

    @property
    def row_words(self) -> int:
        """Return the words of a row of the table: which kernel is next, and what it is given."""
        return 1 + max(len(each.params) for each in self.kernels)

    @property
    def stack_words(self) -> int:
        """Return the words of their stack that may be live at a request."""
        return max(each.stack_words for each in self.kernels) + self.row_words + _STREAM_WORDS

    def defines(self, call: Callable[[int, str], str], first: str = "", **more: int) -> str:
        """Return what a header that runs them reads: ``call`` has the call of a kernel, by its number, as a statement.

        first: statements before any of them.
        """
        calls = [call(i, each.call("row", 1)) for i, each in enumerate(self.kernels)]
        known = {"ROW_WORDS": self.row_words, **more, "CALL(row)": f"{first}{' '.join(calls)}"}
        return "".join(f"#define XCCL_{name} {value}\n" for name, value in known.items())


class CStream(CKernel):
    """Kernels in C that one core runs one after the other, as `lang.in_turn`."""

    def __init__(self, kernels: tuple[CKernel, ...], counted: bool) -> None:
        first = kernels[0]
        if other := next((each for each in kernels if type(each) is not CKernel), None):
            raise KernelError(f"{other.name!r}: kernels of one stream are all in C, or all in Ascend C")
        if len({each.file.suffix == compiler.C_SUFFIX for each in kernels}) > 1:
            names = ", ".join(f"{each.name} ({each.file.name})" for each in kernels)
            raise KernelError(f"{names}: kernels of one stream are all in C or all in C++")
        stream = InTurn(kernels)
        super().__init__(first.file, first.name, stream.stack_words)
        self.in_turn, self.counted = kernels, counted
        self.name = self.__name__ = stream.name
        self.params = ("table", "launches", *(("done",) if counted else ()))

    def _unit(self) -> compiler.Unit:
        stream = InTurn(self.in_turn)
        before = stream.defines(lambda i, call: f"if (row[0] == {i}) (void){call};", COUNTED=int(self.counted))
        call = f"xccl_in_turn(arguments[0], arguments[1], {'arguments[2]' if self.counted else 0}); xccl_returned(0);"
        before += '#include "xccl_in_turn.h"'
        return compiler.Unit(stream.files, self.name, len(self.params), call, self.stack_words, before)


def c_kernel(file: str | Path, name: str, stack_words: int = STACK_WORDS) -> CKernel:
    """A kernel of a source file in C (``.c``) or C++ (any other suffix).

    Parameters
    ----------
    file: the source; as a rule ``Path(__file__).with_name("ping.c")``.
    name: of a function in it that begins with ``XCCL_KERNEL``.
    stack_words: words of 8 bytes of its stack that may be live at a request; they are registers of each core.

    Raises ConfigError for a file that cannot be read, or a number of words below 1, and KernelError if there is no
    such function, or, when the kernel is first used, if it does not compile.
    """
    if not isinstance(stack_words, int) or stack_words < 1:
        raise ConfigError("stack_words", stack_words, "must be a whole number from 1 on")
    return CKernel(Path(file).absolute(), name, stack_words)


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("file", str(file), f"a kernel's source cannot be read ({error})") from error


@functools.cache
def _lines_of(file: str) -> list[str]:
    return _read(Path(file)).splitlines()


def _line_of(file: str, line: int) -> str:
    lines = _lines_of(file)
    return lines[line - 1].strip() if line <= len(lines) else ""
