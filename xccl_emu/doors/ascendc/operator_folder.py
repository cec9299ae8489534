"""The folder of an operator as its authors publish it, read without a compiler: declaration, tiling struct, kernel."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import must_be_one_of
from xccl_emu.doors.ascendc import structs
from xccl_emu.lang import heads

_CLASS = re.compile(r"\bclass\s+(\w+)\s*:\s*public\s+(?:\w+::)*OpDef\b")
_PART = re.compile(r'->\s*(Input|Output|Attr)\(\s*"(\w+)"\s*\)([^;]*)')
_TYPES = re.compile(r"\.DataType(?:List)?\(\s*\{([^}]*)\}")
_INTEGER = re.compile(r"\.Int\(\s*([^()]*?)\s*\)")
_KERNEL = re.compile(heads.ASCEND_C.pattern.format(name=r"(?P<name>\w+)"))
_PARAMETER = re.compile(r"(.*?)(\w+)", re.DOTALL)
_NAMED = re.compile(r"\b(?:REGISTER_TILING_DEFAULT|GET_TILING_DATA_WITH_STRUCT)\(\s*(?:\w+::)*(\w+)\s*[,)]")
_REGISTERED = r"\bREGISTER_TILING_DATA_CLASS\(\s*{}\s*,\s*(?:\w+::)*(\w+)\s*\)"
_STRUCT = re.compile(r"\bstruct\s+\w+\s*\{")

PARTS = {
    "declaration": "`class NAME : public OpDef` in op_host/*.cpp",
    "tiling struct": "BEGIN_TILING_DATA_DEF in a header, or a struct in a header with tiling in its name",
    "kernel": '`extern "C" __global__ __aicore__ void NAME(` in op_kernel/*.cpp',
}
"""The parts of an operator, and where each is looked for."""


class OperatorPart(NamedTuple):
    """An input, output or attribute as it is declared."""

    kind: str
    name: str
    types: tuple[str, ...]
    """As ``DT_FLOAT``, one for each of the operator's combinations."""
    default: str | None
    """The default of an attribute that is an integer, which may be empty; None for anything else."""
    may_be_missing: bool

    @classmethod
    def of(cls, kind: str, name: str, said: str) -> "OperatorPart":
        """Return what the calls after its name say."""
        types, value = _TYPES.search(said), _INTEGER.search(said)
        named = tuple(each.split("::")[-1].strip() for each in types[1].split(",")) if types else ()
        return cls(kind, name, named, value and value[1], "OPTIONAL" in said)


class Operator(NamedTuple):
    """An operator, as far as its folder says."""

    folder: Path
    name: str
    parts: list[OperatorPart]
    kernel: str
    file: Path
    """The kernel's source."""
    text: str
    """The source with what it includes, without comments."""
    parameters: Mapping[str, str]
    """Types of the kernel's parameters by name."""
    found: Mapping[str, OperatorPart]
    """What a parameter is, if it is an input or output."""
    struct: str
    struct_text: str
    """A text with the tiling struct, and with the structs in it."""
    struct_file: str
    header: Path | None
    """The header with the host's macros, or None if the kernel's source has the struct."""


def read(folder: Path, op: str = "") -> Operator:
    """Return the operator of a folder, by the name of its class if there are several.

    Raises ConfigError, naming the parts that are missing and what was looked for, for what is no such folder.
    """
    if not folder.is_dir():
        raise ConfigError(f"PATH {folder}: must be the folder of an operator, with op_host and op_kernel in it")
    host, device = ({file: structs.read(file) for file in _sources(folder / part)} for part in ("op_host", "op_kernel"))
    split = [_CLASS.split(text) for text in host.values()]
    declared = {name: said for each in split for name, said in zip(each[1::2], each[2::2], strict=True)}
    tilings = {file: text for file, text in (host | device).items() if _has_tiling(file, text)}
    sources = {file: text for file, text in device.items() if file.suffix != ".h"}
    kernels = {found["name"]: (file, found[3]) for file, text in sources.items() for found in _KERNEL.finditer(text)}
    there = zip(PARTS.items(), (declared, tilings, kernels), strict=True)
    if missing := [f"no {part}: looked for {what}" for (part, what), found in there if not found]:
        raise ConfigError(f"PATH {folder}: is no folder of an operator; {'; '.join(missing)}")
    if op and op not in declared:
        raise ConfigError("op", op, must_be_one_of(op, declared))
    if not op and len(declared) > 1:
        raise ConfigError(f"PATH {folder}: declares several operators; --op must be one of {', '.join(declared)}")
    name = op or next(iter(declared))
    same = [each for each in kernels if _plain(each) == _plain(name)] or [*kernels]
    if len(same) > 1 or (len(declared) > 1 and _plain(same[0]) != _plain(name)):
        raise ConfigError(f"PATH {folder}: none of the kernels {', '.join(kernels)} has the name of {name}")
    file, given = kernels[same[0]]
    parts = [OperatorPart.of(*found) for found in _PART.findall(declared[name])]
    columns = max((len(part.types) for part in parts), default=1)
    parts = [part._replace(types=part.types * columns) if len(part.types) == 1 else part for part in parts]
    parameters = {each[2]: each[1].strip() for part in given.split(",") if (each := _PARAMETER.fullmatch(part.strip()))}
    text = structs.with_included(file, sources[file])
    tiling = _tiling_of(folder, name, text, tilings)
    return Operator(folder, name, parts, same[0], file, text, parameters, _matched(parts, parameters), *tiling)


def _sources(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix in (".cpp", ".cc", ".h") and file.is_file())


def _plain(name: str) -> str:
    """Return what ``PassOn``, ``pass_on`` and ``passOnGM`` have in common."""
    return name.replace("_", "").lower().removesuffix("gm")


def _has_tiling(file: Path, text: str) -> bool:
    is_header = file.suffix == ".h" and "tiling" in file.name.lower()
    return bool(structs.DEFINED.search(text) or (is_header and _STRUCT.search(text)))


def _tiling_of(folder: Path, name: str, text: str, tilings: Mapping[Path, str]) -> tuple[str, str, str, Path | None]:
    """Return the kernel's tiling struct, a text with it, and the header if it is in the host's macros alone."""
    of_host = {struct: file for file, found in tilings.items() for struct in structs.structs_of(found)}
    named = _NAMED.search(text) or re.search(_REGISTERED.format(name), "\n".join(tilings.values()))
    struct = named[1] if named else next(reversed(of_host), "")
    if struct and re.search(rf"\bstruct\s+{struct}\s*\{{", text):
        return struct, text, "the kernel's source", None
    if struct not in of_host:
        looked = f"looked for {PARTS['tiling struct']}, and what the kernel includes"
        raise ConfigError(f"PATH {folder}: no tiling struct {struct or 'that the kernel names'}; {looked}")
    header = of_host[struct]
    return struct, "\n".join(structs.structs_of(tilings[header]).values()), header.name, header


def _matched(parts: list[OperatorPart], parameters: Mapping[str, str]) -> dict[str, OperatorPart]:
    """Return what parameters are by name, or else by place, since inputs and outputs come first."""
    tensors = [part for part in parts if part.kind != "Attr"]
    own = [each for each in parameters if not each.lower().startswith(("tiling", "workspace"))]
    by_name = {each: part for each in own for part in tensors if _plain(each) == _plain(part.name)}
    is_by_place = len(by_name) < len(tensors) == len(own)
    return dict(zip(own, tensors, strict=True)) if is_by_place else by_name
