"""Kernels in Ascend C: a ``__global__`` function of a source, compiled with our header."""

import json
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xccl_emu.base.errors import ConfigError, KernelError
from xccl_emu.base.options import must_be_one_of
from xccl_emu.doors.ascendc import sites, structs
from xccl_emu.lang import foreign, heads, maps
from xccl_emu.lang.foreign import compiler, pointers
from xccl_emu.protocol.bench import BOTH, READINGS, Bench

STACK_WORDS = 256
"""Words of its stack that a kernel may have live at a request, if nothing is said."""

BARRIERS = tuple(sites.BARRIER)
"""How `PipeBarrier` of all pipes and `SyncAll` are read: all that was issued is visible, or the pipes are empty."""

GOES_BY = {"PipeBarrier": ("barrier",), "SyncAll": ("sync_all", "barrier")}
"""Reading of `READINGS` that a kernel with such a call has."""

RANGES = 12
"""Byte ranges that a core keeps of what may be used too early, where hazards are open."""

EVENTS = ("binary", "counted")
"""How events of `FetchEventID` are read: set or not, none again before it is consumed; or counted."""

INCLUDE = Path(__file__).with_name("include")
_LAUNCHES = INCLUDE / "xccl_launches.h"
KEPT = ("block_idx", "block_num")
"""Parameters in front of the kernel's own: what `GetBlockIdx` and `GetBlockNum` return.  `GetHcclContext` follows."""

_PARAM = re.compile(r"(?:(?:const|__gm__)\s+)*[\w:]+\s*[*&]?\s*(\w+)")


class Reads(NamedTuple):
    """How a kernel is compiled where documents leave something open."""

    how: Mapping[str, str]
    """By the name of a reading (`READINGS`)."""
    chosen: tuple[str, ...] = ()
    """Readings that no run changes."""
    cut: tuple[str, ...] = ()
    """What is switched off, where hazards are open."""


class Build(NamedTuple):
    """How a case has a kernel compiled, in addition to its template."""

    defines: Mapping[str, str | int]
    contexts: int
    events: str
    include: tuple[Path, ...]
    """Folders of headers, which are searched after ours."""
    paddings: tuple[tuple[int, int], ...] = ()
    """Bytes and bits of each value that `DataCopyPad` pads with."""


class AscendKernel(foreign.CKernel):
    """A kernel in Ascend C; its parameters are integers, and addresses where the source has ``GM_ADDR``."""

    language = heads.ASCEND_C

    def __init__(
        self, file: Path, name: str, template: str, reads: Reads, build: Build, stack_words: int
    ) -> None:  # fmt: skip
        self.reads, self.build = reads, build
        self.ranges = tuple(f"range{i}" for i in range(2 * RANGES)) if reads.how["hazards"] == "open" else ()
        more = (*(("events",) if build.events == "counted" else ()), *(("paddings",) if build.paddings else ()))
        self.kept = (*KEPT, *(f"context{i}" for i in range(build.contexts)), *more, *self.ranges)
        super().__init__(file, name, stack_words)
        self._template = template
        self._read = dict[str, AscendKernel]()

    def read(self, bench: Bench, without: Collection[str]) -> "AscendKernel":
        """The same as a run reads what its source leaves open; `without` are names that it switches off."""
        called = {site.sync.partition(",")[0] for site in self.sites}
        asked = {name for call in GOES_BY if call in called for name in GOES_BY[call]} - {*self.reads.chosen}
        how = {**self.reads.how, **{name: bench.reading(name) for name in sorted(asked | {"hazards"})}}
        cut = tuple(sorted(without)) if how["hazards"] == "open" else ()
        reads = self.reads._replace(how=how, cut=cut)
        if reads == self.reads:
            return self
        read = AscendKernel(self.file, self.name, self._template, reads, self.build, self.stack_words)
        return self._read.setdefault(repr(reads), read)

    def _names(self) -> tuple[str, ...]:
        listed = [each.strip() for each in self._head[2].split(",") if each.strip() not in ("", "void")]
        found = [_PARAM.fullmatch(each) for each in listed]
        wrong = [each for each, match in zip(listed, found, strict=True) if match is None]
        if wrong:
            raise KernelError(f"{self._where}: parameter `{wrong[0]}` of {self.name!r}: must be a type and a name")
        return (*self.kept, *(match[1] for match in found if match is not None))

    def call(self, arguments: str, first: int) -> str:
        """The expression that calls the kernel."""
        own = range(first + len(self.kept), first + len(self.params))
        given = ", ".join(f"xccl_argument{{{arguments}[{i}]}}" for i in own)
        return f"{self.name}{self._template}({given})"

    def _unit(self) -> compiler.Unit:
        defines = [f"#define {name} {value}" for name, value in self.build.defines.items()]
        known = [f"#define XCCL_FUNCTIONS {', '.join(map(str, sorted(maps.KNOWN)))}"]
        known += [f"#define XCCL_BARRIER_IS_VISIBLE {int(self.reads.how['barrier'] == 'visible')}"]
        known += [f"#define XCCL_SYNC_ALL_DRAINS {int(self.reads.how['sync_all'] == 'drains')}"]
        known += [f"#define XCCL_CONTEXTS {self.build.contexts}"]
        known += [f"#define XCCL_EVENTS_WORD {self.kept.index('events') if self.build.events == 'counted' else 0}"]
        paddings = "".join(f"{{{nbytes}, {bits}u}}, " for nbytes, bits in self.build.paddings)
        known += [f"#define XCCL_PADDINGS_WORD {self.kept.index('paddings') if paddings else 0}"]
        known += [f"#define XCCL_PADDINGS {paddings}"]
        known += [f"#define XCCL_HAZARDS_WORD {len(self.kept) - len(self.ranges) if self.ranges else 0}"]
        asks = "GetSize" in structs.with_included(self.file, self.text, self.build.include)
        known += [f"#define XCCL_SIZED(...) {'__VA_ARGS__' * asks}"]
        cut = "".join(f"{json.dumps(each)}, " for each in self.reads.cut)
        known += [f"#define XCCL_RANGES {RANGES}", f"#define XCCL_CUT {cut}"]
        head = "\n".join([sites.enumeration(), *known, *defines])
        flags = tuple(f"-I{each}" for each in (INCLUDE, *self.build.include))
        return compiler.Unit(
            (self.file,), self.name, len(self.params), f"{self.call('arguments', 0)}; xccl_returned(0);",
            self.stack_words, head=head, flags=flags, kept=len(self.kept), tables=self._tables,
            follows=pointers.IN_SPACES,
        )  # fmt: skip

    def before(self, kernels: tuple[foreign.CKernel, ...], counted: bool) -> "AscendKernel":
        """A stream of launches; raises KernelError for kernels that are not compiled alike."""
        alike = [each for each in kernels if isinstance(each, AscendKernel) and each.built == self.built]
        if len(alike) < len(kernels):
            names = ", ".join(each.name for each in kernels)
            alike_in = "with one barrier, events, defines, paddings and include"
            raise KernelError(f"{names}: kernels of one stream are all in Ascend C, {alike_in}")
        return AscendStream(tuple(alike), counted)

    @property
    def built(self) -> tuple[object, ...]:
        """Return how the kernel is compiled, except for its template."""
        return self.reads, self.build

    def _more(self) -> tuple[sites.SourceCall, ...]:
        """Calls in addition to the source's."""
        return ()

    def _tables(self, text: str) -> str:
        found = sites.calls(text, str(INCLUDE), str(compiler.HERE))
        return sites.tables([*found, *self._more()], self.file.name, self.reads.how["barrier"], bool(self.ranges))


class AscendStream(AscendKernel):
    """Kernels in Ascend C that one core runs one after the other, as `lang.in_turn`."""

    def __init__(self, kernels: tuple[AscendKernel, ...], counted: bool) -> None:
        first, stream = kernels[0], foreign.InTurn(kernels)
        super().__init__(first.file, first.name, "", first.reads, first.build, stream.stack_words)
        self.in_turn, self.counted = kernels, counted
        self.name = self.__name__ = stream.name
        self.params = (*self.kept, "table", "launches", *(("done",) if counted else ()))

    def _unit(self) -> compiler.Unit:
        kept = "".join(f"xccl_keep({i}, row[{1 + i}]); " for i in range(len(self.kept)))
        stream = foreign.InTurn(self.in_turn)
        before = stream.defines(lambda i, call: f"if (row[0] == {i}) {{ {kept}{call}; }}", COUNTED=int(self.counted))
        given = [f"arguments[{len(self.kept) + i}]" for i in range(2 + self.counted)] + ["0"] * (not self.counted)
        return replace(
            super()._unit(), files=stream.files, name=self.name,
            before=f'{before}#include "{_LAUNCHES.name}"', call=f"xccl_launches({', '.join(given)}); xccl_returned(0);",
        )  # fmt: skip

    def _more(self) -> tuple[sites.SourceCall, ...]:
        return (sites.SourceCall(str(_LAUNCHES), 1, _LAUNCHES.stem, ""),)


def ascend_kernel(
    file: str | Path, name: str, template: str = "", barrier: str = "",
    defines: Mapping[str, str | int] | None = None, stack_words: int = STACK_WORDS, contexts: int = 0,
    events: str = "binary", include: str | Path | Iterable[str | Path] = (), paddings: Sequence[Any] = (),
) -> AscendKernel:  # fmt: skip
    """A kernel of a source in Ascend C.

    Parameters
    ----------
    file: the source; as a rule ``Path(__file__).with_name("ring.cpp")``.
    name: of a ``__global__ __aicore__`` function in it.
    template: its arguments if it is a template, for example ``"half, 2"``.
    barrier: how ``PipeBarrier<PIPE_ALL>`` is read, of `BARRIERS`; empty for as the run reads it (`Bench.reading`).
    defines: macros in front of the source.
    events: how events of ``FetchEventID`` are read, of `EVENTS`.
    paddings: NumPy scalars, ``np.float32(0)`` for example, that `DataCopyPad` of the source may pad with.
    contexts: how many addresses `GetHcclContext` knows, as ``context0`` and so on among the arguments.
    stack_words: words of 8 bytes of its stack that may be live at a request; they are registers of each core.
    include: a folder of headers that the source includes, or several, searched after its own folder and our header; a
        file means the folder in which it is.

    Raises ConfigError for a folder that there is not, and ConfigError and KernelError as `lang.foreign.c_kernel` does.
    """
    if barrier and barrier not in BARRIERS:
        raise ConfigError("barrier", barrier, must_be_one_of(barrier, BARRIERS))
    if events not in EVENTS:
        raise ConfigError("events", events, must_be_one_of(events, EVENTS))
    if not isinstance(stack_words, int) or stack_words < 1:
        raise ConfigError("stack_words", stack_words, "must be a whole number from 1 on")
    for value in paddings:
        if not isinstance(value, np.generic):
            raise ConfigError("paddings", value, "must be NumPy scalars, for example np.float32(0)")
    held = tuple((value.itemsize, int.from_bytes(np.array(value).tobytes(), sys.byteorder)) for value in paddings)
    given = f"<{template}>" if template else ""
    weakest = {name: of[-1] if of[0] == BOTH else of[0] for name, of in READINGS.items()}
    reads = Reads(weakest | {"barrier": barrier}, ("barrier",)) if barrier else Reads(weakest)
    build = Build(dict(defines or {}), contexts, events, compiler.folders(include), held)
    return AscendKernel(Path(file).absolute(), name, given, reads, build, stack_words)
