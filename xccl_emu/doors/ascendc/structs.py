"""Structs of a kernel's sources, read as text: their fields, and what a build makes of the host's tiling macros."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import must_be_one_of
from xccl_emu.lang import heads

TYPES = {
    **{f"{sign}int{8 * n}_t": f"{sign or 'i'}{n}" for sign in ("u", "") for n in (1, 2, 4, 8)},
    "float": "f4", "int": "i4", "bool": "u1", "Mc2InitTiling": "u8", "Mc2CcTiling": "u8",
}  # fmt: skip
"""Types that a field may have, as NumPy has them."""

FROM_HOST = "XCCL_TILING"
"""The macro whose text is the structs that a build would make (`host_tiling`)."""

DEFINED = re.compile(r"\bBEGIN_TILING_DATA_DEF\(\s*(\w+)\s*\)(.*?)\bEND_TILING_DATA_DEF\b", re.DOTALL)
"""A struct in the host's macros: its name, and its fields."""
_DEFINED_FIELD = re.compile(r"\bTILING_DATA_FIELD_DEF(_ARR|_STRUCT)?\(([^()]*)\)")
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
_NAME = r"\w+(?:\s*\[\d+\])?"
_FIELD = re.compile(rf"(?:const\s+)?(\w+)\s+({_NAME}(?:\s*,\s*{_NAME})*)")


class StructField(NamedTuple):
    """A field of a struct: its type is of `TYPES`, or the name of another struct."""

    name: str
    type: str
    shape: tuple[int, ...]


def read(file: Path) -> str:
    """Return a source without its comments; raises ConfigError if it cannot be read."""
    try:
        return heads.bare(file.read_text("utf-8", errors="replace"))
    except OSError as error:
        raise ConfigError("file", str(file), f"cannot be read ({error.strerror})") from error


def with_included(file: Path, text: str, folders: Sequence[Path] = ()) -> str:
    """Return a source without comments, then the files of its and further folders that it includes, each once."""
    found, waiting = {file.resolve(): heads.bare(text)}, [file.resolve()]
    while waiting:
        at = waiting.pop(0)
        for name in _INCLUDE.findall(found[at]):
            paths = [folder / name for folder in (at.parent, file.parent, *folders) if (folder / name).is_file()]
            if paths and (path := paths[0].resolve()) not in found:
                found[path] = read(path)
                waiting.append(path)
    return "\n".join(found.values())


def fields_of(text: str, struct: str, file: str) -> Iterator[StructField]:
    """Yield the fields of a struct in a text without comments; raises ConfigError for what is none, naming the file."""
    found = re.search(rf"\bstruct\s+{re.escape(struct)}\s*\{{([^}}]*)\}}", text)
    if found is None:
        raise ConfigError("struct", struct, f"{file} and what it includes have no such struct")
    for declared in (re.sub(r"\s*=.*", "", each.strip()) for each in found[1].split(";") if each.strip()):
        match = _FIELD.fullmatch(declared)
        if match is None:
            raise ConfigError("struct", struct, f"field `{declared}`: must be of {', '.join(TYPES)} or a struct")
        for each in match[2].split(","):
            name, _, size = each.strip().rstrip("]").partition("[")
            yield StructField(name.strip(), match[1], (int(size),) if size else ())


def dtype_of(text: str, struct: str, file: str) -> np.dtype[np.void]:
    """Return the type of a struct as a compiler lays it out; raises ConfigError as `fields_of`."""
    of_fields: list[tuple[str, Any, tuple[int, ...]]] = [
        (each.name, TYPES.get(each.type) or dtype_of(text, each.type, file), each.shape)
        for each in fields_of(text, struct, file)
    ]
    return np.dtype(of_fields, align=True)


def structs_of(text: str) -> dict[str, str]:
    """Return the structs of C++ by name that a build makes of the host's macros, of a text without comments."""
    found = {}
    for name, body in DEFINED.findall(text):
        fields = []
        for kind, given in _DEFINED_FIELD.findall(body):
            parts = [each.strip() for each in given.split(",")]
            if len(parts) != (3 if kind == "_ARR" else 2):
                raise ConfigError("struct", name, f"TILING_DATA_FIELD_DEF{kind}({given}): has other arguments")
            fields.append(f"{parts[0]} {parts[-1]}{f'[{parts[1]}]' if kind == '_ARR' else ''};")
        found[name] = f"struct {name} {{ {' '.join(fields)} }};"
    return found


def host_tiling(header: str | Path, struct: str) -> dict[str, str]:
    """Say what a build makes of a header with the host's tiling macros, for ``defines`` of `ascend_kernel`.

    ``GET_TILING_DATA`` of the kernel then reads this struct; its layout is C's.  Raises ConfigError for a header that
    cannot be read, or a struct that it does not define.
    """
    found = structs_of(read(Path(header)))
    if struct not in found:
        raise ConfigError("struct", struct, must_be_one_of(struct, found) if found else f"{header} defines none")
    return {FROM_HOST: f"{' '.join(found.values())} using xccl_tiling_default = {struct};"}
