"""Heads of kernels in C, C++, Ascend C and CUDA C++: the kernels of a source, and a short case in Python for one."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from xccl_emu.base.errors import ConfigError

SUFFIXES = (".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hh", ".hpp")
"""Files with these suffixes may have kernels, and no case."""

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)\((\w+)\)((?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE)
_STRUCT = re.compile(r"\b(?:GET_TILING_DATA_WITH_STRUCT|REGISTER_TILING_DEFAULT)\s*\(\s*(\w+)")
_CASE = '''\
# {stem}_case.py, in the folder of {file}
from pathlib import Path

import numpy as np
from xccl_emu.{module} import {imported}
{pod_from}

SOURCE = Path(__file__).with_name("{file}")


@protocol
def {name}(bench: Bench):
    """The kernel on one core of one die."""
    pod = {pod}
    {lines}
    # to fill: what lies in memory, more dies and cores; `bench.wanted` says what must be there in the end
'''


@dataclass(frozen=True)
class Language:
    """How a kernel begins in one of the languages, and how a case takes it."""

    name: str
    pattern: str
    """Matches a head, with ``{name}`` for the kernel's; its groups are the result and the parameters."""
    example: str
    module: str
    imported: str
    kernel: str
    """How a case makes a kernel of a name."""
    launch: str
    pod: str = "bench.pod(small_pod(1, app_bytes=1 << 16, ub_bytes=1 << 12))"
    pod_from: str = "from xccl_emu.machine import small_pod\nfrom xccl_emu.protocol import Bench, protocol"
    """The pod of a case, and what it is made from."""


C = Language(
    "C or C++", r"\bXCCL_KERNEL\s+(void|int64_t)\s+{name}\s*\(([^)]*)\)", "XCCL_KERNEL void {name}(",
    "lang.foreign", "c_kernel", "c_kernel(SOURCE, {name!r})", "pod.launch(kernel, 0, [0], {args}, {grants})",
)  # fmt: skip
ASCEND_C = Language(
    "Ascend C", r"(?:\w+\s+)*__global__\s+__aicore__\s+(void)\s+{name}\s*\(([^)]*)\)",
    'extern "C" __global__ __aicore__ void {name}(', "doors", "ascendc", "ascendc.ascend_kernel(SOURCE, {name!r})",
    "ascendc.launch(bench, pod, kernel, 0, [0], {args}, {grants}{tiling})",
)  # fmt: skip
CUDA = Language(
    "CUDA C++",
    r"__global__\s+(?!__aicore__)(?:\w+\s+)*?(?:__launch_bounds__\s*\([^)]*\)\s*)?(void)\s+"
    r"(?:__launch_bounds__\s*\([^)]*\)\s*)?{name}\s*\(([^)]*)\)",
    "__global__ void {name}(", "doors", "cuda", "cuda.cuda_kernel(SOURCE, {name!r})",
    "gpus.launch(kernel, 0, {args}, {grants}{tiling}, grid=1, block=1)",
    "(gpus := cuda.gpus(bench, Regions(1), 1, 1, app_bytes=1 << 16)).pod",
    "from xccl_emu.protocol import Bench, Regions, protocol",
)  # fmt: skip


@dataclass(frozen=True)
class Head:
    """A kernel that a source has."""

    language: Language
    name: str
    line: int
    params: tuple[str, ...]
    addresses: frozenset[str]
    """Parameters that are addresses, if the source says so."""

    def case(self, file: Path, text: str) -> str:
        """The source of the shortest case that launches it."""
        struct = _STRUCT.search(text) if "tiling" in self.params else None
        params = [each for each in self.params if each != "tiling" or struct is None]
        buffers = [each for each in params if each in self.addresses]
        numbers = [each for each in params if each not in buffers]
        given = [*(f'"{name}": {name}.address' for name in buffers), *(f'"{name}": 1' for name in numbers)]
        lines = [f'{name} = bench.filled(0, np.zeros(512, np.int64), "{name}")' for name in buffers]
        lines += [f"kernel = {self.language.kernel.format(name=self.name)}"]
        lines += [f'tiling = ascendc.Tiling("{struct[1]}", {{}})  # to fill: its fields'] if struct else []
        grants = ", ".join(f'pod.grant({name}, "rw")' for name in buffers)
        launch = self.language.launch.format(
            args=f"{{{', '.join(given)}}}", grants=f"[{grants}]", tiling=", tiling" if struct else ""
        )
        return _CASE.format(
            stem=file.stem, file=file.name, module=self.language.module, imported=self.language.imported,
            pod=self.language.pod, pod_from=self.language.pod_from, name=self.name,
            lines="\n    ".join([*lines, launch]),
        )  # fmt: skip


def bare(text: str) -> str:
    """A source without its comments, with as many lines and characters."""
    return _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def expanded(text: str) -> str:
    """A source as `bare`, with the kernels that a macro of one parameter declares, each where it is used."""
    text = bare(text)
    for name, param, body in _MACRO.findall(text):
        if "__global__" in body:
            line, of_param = body.replace("\\\n", " "), re.compile(rf"(?:##\s*)?\b{param}\b(?:\s*##)?")
            used = re.compile(rf"^[ \t]*{name}\(\s*(\w+)\s*\)", re.MULTILINE)
            text = used.sub(lambda use, line=line, of=of_param: of.sub(use[1], line), text)  # type: ignore[misc]
    return text


def heads(text: str) -> Iterator[Head]:
    """The kernels of a source, of one language after the other."""
    text = expanded(text)
    for language in (C, ASCEND_C, CUDA):
        for found in re.finditer(language.pattern.format(name=r"(?P<name>\w+)"), text):
            *_, listed = found.groups()
            declared = [each.replace("*", " * ").split() for each in listed.split(",")]
            given = {words[-1]: words for words in declared if words not in ([], ["void"])}
            of_addresses = {name for name, words in given.items() if language is C or {"GM_ADDR", "*"} & {*words}}
            line = text.count("\n", 0, found.start("name")) + 1
            yield Head(language, found["name"], line, tuple(given), frozenset(of_addresses))


def no_case(protocol: str, file: Path, name: str) -> ConfigError:
    """The error for a kernel's source in the place of a case's: it shows the kernels, and a case for one of them."""
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        return ConfigError(f"protocol {protocol!r}: {file} cannot be read ({error})")
    found = list(heads(text))
    begins = f"protocol {protocol!r}: must be FILE.py:NAME; {file.name} has no case, "
    if not found:
        examples = " or ".join(f"`{each.example.format(name='NAME')}`" for each in (C, ASCEND_C, CUDA))
        return ConfigError(f"{begins}and no kernel either, which begins with {examples}")
    listed = ", ".join(f"{each.name} (line {each.line})" for each in found)
    chosen = next((each for each in found if each.name == name), None)
    if chosen is None and name:
        return ConfigError(f"{begins}and its kernels are {listed}: there is none called {name}")
    chosen = chosen or found[0]
    return ConfigError(
        f"{begins}but kernels in {chosen.language.name}: {listed}. This is a case for {chosen.name}; save it, and say "
        f"`xccl-emu check {file.stem}_case.py:{chosen.name}`:\n\n{chosen.case(file, bare(text))}"
    )
