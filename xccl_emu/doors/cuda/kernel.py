"""Kernels in CUDA C++: a ``__global__`` function of a source, compiled with our headers; a thread of it is a core."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from xccl_emu.base.errors import ConfigError, KernelError
from xccl_emu.doors.cuda import ptx
from xccl_emu.doors.cuda.lowering import INCLUDE, LOWERING
from xccl_emu.lang import Site, foreign, heads
from xccl_emu.lang.foreign import compiler, image
from xccl_emu.lang.requests import NO_ACQUIRE
from xccl_emu.protocol.bench import READINGS, Bench

STACK_WORDS = 256
"""Words of its stack that a kernel may have live at a request, if nothing is said."""

KEPT = tuple(f"xccl_{name}" for name in (
    "thread", "block", "block_dim", "grid_dim", "rank", "ranks", "rank_bytes", "said", "came", "wrote",
    "shared", "lanes", "meetings", "apart",
))  # fmt: skip
"""Parameters in front of the kernel's own: who a thread is, where it says that it has come to a barrier, how far it
has come, to which ranks it has written, where its block's shared variables are, where lanes of its warps
meet, how often it has met each, two bits for a lane, and where on a die others see a rank's memory, negative in a
kernel that no other follows."""
_GOES_ON = ("xccl_came", "xccl_wrote", "xccl_meetings")
"""What of these goes on from a kernel of a stream to the next one."""
SIZE_BITS, RANKS_MOST, WARP, MET_BITS, ENDED_BITS = 20, 32, 32, 8, 18
"""Bits of a size in a word that has three; ranks, which are bits of one; threads of a warp; bits of a count of its
meetings, and of one of its barriers with these, after which kernels are counted."""
OUT_OF_SCOPE, NOT_NAMED = 0xCD00, 0xCD01
"""Codes of stops (`launch.STOPS`)."""
MEETING_BYTES, SHARED_MOST = 32, 1 << 20
"""A lane's place in a room of a meeting: two lines, which take turns; and more bytes than any block shares."""

_NUMBERS = {
    "SIZE_BITS": SIZE_BITS, "RANKS_MOST": RANKS_MOST, "WARP": WARP, "MET_BITS": MET_BITS, "ENDED_BITS": ENDED_BITS,
    "OUT_OF_SCOPE": OUT_OF_SCOPE, "NOT_NAMED": NOT_NAMED, "MEETING_BYTES": MEETING_BYTES, "SHARED_MOST": SHARED_MOST,
}  # fmt: skip
"""What the headers have to know."""
_PARAM = re.compile(r".*?[\s*&](\w+)(?:\s*\[\w*\])?", re.DOTALL)
_OPENS = {
    "scopes": re.compile(r"bar(?:rier)?\.|(?:(?:fence|membar)\.\w+|\w+\.(?:release|acq_rel))\.(?!sys\b)"),
    "vectors": re.compile(r"ld\.(?:\w+\.)+v\d"),
    "reads": re.compile(r"(?:ld|atom)\.(?:volatile|mmio|relaxed|release)"),
}
"""By a reading: matches names of what is read so: ordered for a block or a GPU, polled vectors, and relaxed reads."""
_FLAGS = ("-ffp-contract=off", "-fcxx-exceptions", "-fignore-exceptions")
_INLINED = "#pragma clang attribute push(__attribute__((always_inline)), apply_to = function)"


class Build(NamedTuple):
    """A case's choices of how a kernel is compiled, in addition to its template."""

    defines: Mapping[str, str | int]
    include: tuple[Path, ...]
    """Folders of headers, which are searched after ours."""
    read: tuple[str, ...] = (READINGS["scopes"][1], READINGS["vectors"][2], READINGS["reads"][1])
    """How it is read, by what is in `_OPENS`: no request is dropped, none is of several elements, reads acquire."""
    boundary: str = ""
    """How its end is read, if another kernel follows it."""
    blocks: int = 1
    """How many blocks meet there."""


class CudaKernel(foreign.CKernel):
    """A kernel in CUDA C++; its parameters are integers, addresses, and the bits or the places of anything else."""

    language = heads.CUDA

    def __init__(self, file: Path, called: str, build: Build, stack_words: int) -> None:
        super().__init__(file, called.partition("<")[0].rpartition("::")[2], stack_words)
        self.build, self._called = build, called
        self._read = dict[tuple[tuple[str, ...], str, int], CudaKernel]()

    def read(self, bench: Bench) -> "CudaKernel":
        """Return it as a run reads scopes, if it has one that is smaller than the system, and vectors that it polls."""
        read = tuple(
            bench.reading(name) if self.opens(name) else usual
            for name, usual in zip(_OPENS, self.build.read, strict=True)
        )
        return self._with(self.build._replace(read=read))

    def ending(self, boundary: str, blocks: int) -> "CudaKernel":
        """Return it as a run reads its end, where another kernel follows it in these blocks."""
        return self._with(self.build._replace(boundary=boundary, blocks=blocks))

    def _with(self, build: Build) -> "CudaKernel":
        if build == self.build:
            return self
        other = CudaKernel(self.file, self._called, build, self.stack_words)
        return self._read.setdefault((build.read, build.boundary, build.blocks), other)

    def opens(self, name: str) -> bool:
        """Return whether what it does depends on a reading."""
        return any(_OPENS[name].match(site.sync) for site in self.sites)

    @property
    def is_wide(self) -> bool:
        """Return whether what it orders for a block or a GPU is for all ranks."""
        return self.build.read[0] == "wide"

    @property
    def is_whole(self) -> bool:
        """Return whether it makes accesses of several elements at once."""
        return self.build.read[1] == "whole"

    @property
    def acquires(self) -> bool:
        """Return whether all its reads of flags acquire."""
        return self.build.read[2] == "acquire"

    def _site(self, place: image.ForeignRequest) -> Site:
        site = super()._site(place)
        return replace(site, order="") if self.acquires and site.order == NO_ACQUIRE else site

    def _names(self) -> tuple[str, ...]:
        listed = [each for each in re.split(r",(?![^<>]*>)", self._head[2]) if each.strip() not in ("", "void")]
        found = [_PARAM.fullmatch(each.strip()) for each in listed]
        wrong = [each.strip() for each, match in zip(listed, found, strict=True) if match is None]
        if wrong:
            raise KernelError(f"{self._where}: parameter `{wrong[0]}` of {self.name!r}: must be a type and a name")
        return (*KEPT, *(match[1] for match in found if match is not None))

    def call(self, arguments: str, first: int) -> str:
        """The expression that calls the kernel."""
        own = range(first + len(KEPT), first + len(self.params))
        given = ", ".join(f"xccl_argument{{{arguments}[{i}]}}" for i in own)
        return f"{self._called}({given})"

    def _unit(self) -> compiler.Unit:
        words = ", ".join(name.upper() for name in KEPT)
        atomics = ", ".join(f"XCCL_ATOMIC_{name}" for name in ptx.ATOMICS)
        meetings = ", ".join(f"XCCL_LEARN_{name}" for name in (*ptx.SHUFFLES, *ptx.MODES["vote"]))
        numbers = ", ".join(f"XCCL_{name} = {value}" for name, value in _NUMBERS.items())
        known = [f"enum {{ {each} }};" for each in (words, f"{atomics}, XCCL_ATOMICS", meetings, numbers)]
        known += [f"#define XCCL_IS_WIDE {int(self.is_wide)}"]
        known += [f"#define XCCL_IS_LOCAL {int(self.build.boundary == READINGS['boundary'][2])}"]
        known += [f"#define XCCL_BLOCKS {self.build.blocks}"]
        known += [f"#define XCCL_IS_WHOLE {int(self.is_whole)}", '#include "xccl_cuda.h"']
        known += [_INLINED, '#include "cuda_runtime.h"']
        known += [f"#define {name} {value}" for name, value in self.build.defines.items()]
        flags = (*_FLAGS, *(f"-I{each}" for each in (INCLUDE, *self.build.include)))
        return compiler.Unit(
            (self.file,), self.name, len(self.params), f"{self.call('arguments', 0)}; xccl_returned(0);",
            self.stack_words, before="#pragma clang attribute pop", head="\n".join(known), flags=flags,
            kept=len(KEPT), follows=LOWERING,
        )  # fmt: skip

    def shared_bytes(self, more: int = 0) -> int:
        """Bytes of the shared variables of a block, with the bytes of those whose size a launch says.

        Raises ConfigError for none if the kernel has such ones, and for fewer than none.
        """
        made = self._made[0]
        if more < made.is_shared_open:
            raise ConfigError("shared", more, f"must be the bytes of what is `extern __shared__` in {self.name}")
        return made.shared_bytes + more

    def before(self, kernels: tuple[foreign.CKernel, ...], counted: bool) -> "CudaKernel":
        """A stream of launches; raises KernelError for kernels that are not compiled alike, or in no `Gpus.streams`."""
        alike = [each for each in kernels if isinstance(each, CudaKernel) and each.built == self.built]
        if counted or len(alike) < len(kernels) or not self.build.boundary:
            names = ", ".join(each.name for each in kernels)
            alike_in = "with one set of defines and include, and are launched after `Gpus.streams`"
            raise KernelError(f"{names}: kernels of one stream are all in CUDA C++, {alike_in}")
        return CudaStream(tuple(alike))

    @property
    def built(self) -> Build:
        """Return how it is compiled, except for what it has no part in."""
        return self.build._replace(read=())


class CudaStream(CudaKernel):
    """Kernels in CUDA C++ that one thread runs one after the other, as `lang.in_turn`."""

    def __init__(self, kernels: tuple[CudaKernel, ...]) -> None:
        first, stream = kernels[0], foreign.InTurn(kernels)
        chosen = zip(Build._field_defaults["read"], *(each.build.read for each in kernels), strict=True)
        read = tuple(next((one for one in each if one != usual), usual) for usual, *each in chosen)
        super().__init__(first.file, first._called, first.build._replace(read=read), stream.stack_words)
        self.in_turn = kernels
        self.name = self.__name__ = stream.name
        self.params = (*KEPT, "table", "launches")

    def _unit(self) -> compiler.Unit:
        kept = [i for i, name in enumerate(KEPT) if name not in _GOES_ON]
        said = "".join(f"xccl_keep({i}, row[{1 + i}]); " for i in kept)
        stream = foreign.InTurn(self.in_turn)
        before = stream.defines(lambda i, call: f"if (row[0] == {i}) {call};", said)
        table, launches = (f"arguments[{len(KEPT) + i}]" for i in range(2))
        unit = super()._unit()
        return replace(
            unit, files=stream.files, name=self.name,
            before=f'{before}#include "xccl_launches.h"\n{unit.before}',
            call=f"xccl_launches({table}, {launches}); xccl_returned(0);",
        )  # fmt: skip


def cuda_kernel(
    file: str | Path, name: str, template: str = "", defines: Mapping[str, str | int] | None = None,
    stack_words: int = STACK_WORDS, include: str | Path | Iterable[str | Path] = (),
) -> CudaKernel:  # fmt: skip
    """A kernel of a source in CUDA C++.

    Parameters
    ----------
    file: the source; as a rule ``Path(__file__).with_name("all_reduce.cu")``.
    name: of a ``__global__`` function in it, after its namespaces: ``"vllm::cross_device_reduce_1stage"``.
    template: its arguments if it is a template, for example ``"float, 2"``.
    defines: macros in front of the source.
    stack_words: words of 8 bytes of its stack that may be live at a request; they are registers of each core.
    include: a folder of headers that the source includes, or several, searched after its own folder and our headers; a
        file means the folder in which it is.

    Raises ConfigError for a folder that there is not, and ConfigError and KernelError as `lang.foreign.c_kernel` does.
    """
    if not isinstance(stack_words, int) or stack_words < 1:
        raise ConfigError("stack_words", stack_words, "must be a whole number from 1 on")
    called = f"{name}<{template}>" if template else name
    build = Build(dict(defines or {}), compiler.folders(include))
    return CudaKernel(Path(file).absolute(), called, build, stack_words)
