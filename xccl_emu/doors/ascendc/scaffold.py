"""A case for an operator, written from what its folder says; what it does not say is a hole with a name.

A hole is a line with ``# to fill:``, which raises ToFillError (`launch.to_fill`) until something is in its place.
"""

import json
import keyword
import os
import re
from collections.abc import Iterator
from pathlib import Path
from string import Template

from xccl_emu.doors.ascendc import structs
from xccl_emu.doors.ascendc.operator_folder import Operator, OperatorPart
from xccl_emu.protocol.case import Case

TYPES = {
    "DT_FLOAT": ("float32", "float"), "DT_FLOAT16": ("float16", "half"), "DT_BF16": ("bfloat16", "bfloat16_t"),
    "DT_BOOL": ("bool", "bool"),
    **{f"DT_{sign}INT{n}": (f"{sign}int{n}".lower(), f"{sign}int{n}_t".lower())
       for sign in ("", "U") for n in (8, 16, 32, 64)},
}  # fmt: skip
"""Types of NumPy and of C by the name in a declaration."""

_CONTEXT = re.compile(r"\bGetHcclContext<\s*(?:HCCL_GROUP_ID_)?(\w+)\s*>")
_KEY = re.compile(r"\bTILING_KEY_IS\(\s*(\w+)\s*\)")
_HOLE = re.compile(r'to_fill\("([^"]*)"\).*# to fill:')

_CASE = Template('''\
"""The operator $name; `grep "# to fill:"` lists what its folder does not say.

xccl-emu check $file:$name
"""

from dataclasses import dataclass
from pathlib import Path

${imports}import numpy as np
from xccl_emu.doors import ascendc
from xccl_emu.doors.ascendc import to_fill
from xccl_emu.protocol import Bench, Case, Regions, $makers

FOLDER = Path(__file__).parent / $path
TYPES = {
$types}
"""The types of inputs and outputs, one for each combination that is declared."""


@dataclass(frozen=True)
class $name(Case):
    """The operator on each rank, which is a die."""

    ranks: int = size(2, "Ranks, each on a die.")
    cores: int = size(1, "Cores of a die, which are blocks of the kernel.", most=48)
$sizes
    def lay_out(self, bench: Bench) -> None:
        """Inputs, outputs, windows and tiling values of each rank."""
        defines = {
$defines        }
        kernel = ascendc.ascend_kernel(FOLDER / $source, "$kernel", defines=defines, contexts=$contexts)
        given = self.typed({
$input        })
        wanted = self.typed({
$output        })
        regions = Regions(self.ranks)
        # regions.managed(name, nbytes), for flags regions.meta(name, nbytes), None for what another rank has
        windows = {
$windows        }
        room = $tiling_bytes + sum(each[0].nbytes + 32 for each in (*given.values(), *wanted.values()))
        ub_bytes = to_fill("bytes of the data buffer")  # to fill: what InitBuffer takes in all, or 196608, a core's
        pod = bench.pod(regions.tight_pod(app_bytes=room, ub_bytes=ub_bytes, cores=self.cores))
        regions.place(bench, pod)
        for me in range(self.ranks):
            inputs = {name: bench.filled(me, each[me], name) for name, each in given.items()}
            outputs = {name: bench.wanted(me, each[me], name) for name, each in wanted.items()}
            args = {
$args                **{name: buffer.address for name, buffer in (inputs | outputs).items()},
            }
            grants = [
                *(pod.grant(buffer, "r") for buffer in inputs.values()),
                *(pod.grant(buffer, "w") for buffer in outputs.values()),
$grants            ]
            tiling = {
$tiling            }
            held = ascendc.Tiling("$struct", tiling)
            ascendc.launch(bench, pod, kernel, me, range(self.cores), args, grants, held)

    def typed(self, arrays: dict) -> dict:
        """Arrays in the types that are declared, [ranks, ...]; None is left out."""
        there = {name: array for name, array in arrays.items() if array is not None}
        return {name: np.asarray(array, TYPES[name][$column]) for name, array in there.items()}
''')


def text_of(operator: Operator, output: Path) -> str:
    """Return the case for an operator as it is written to a file; raises ConfigError as `structs.fields_of`."""
    columns = max((len(part.types) for part in operator.found.values()), default=1)
    contexts = max((int(each) + 1 if each.isdecimal() else 1 for each in _CONTEXT.findall(operator.text)), default=0)
    column = "self.combination" if columns > 1 else "0"
    blocks: dict[str, list[str]] = {each: [] for each in ("types", "input", "output", "windows", "args", "grants")}
    for name, kind in operator.parameters.items():
        _add_parameter(blocks, operator, name, kind)
    for i in range(contexts):
        hint = f'ascendc.constant(bytes of the struct that has windows["context{i}"].at(rank) of each rank)'
        _add_window(blocks, f"context{i}", hint)
    for part in (each for each in operator.parts if each.kind != "Attr" and each not in operator.found.values()):
        hint = "no parameter of the kernel has this name or its place; drop the line if none is meant"
        blocks[part.kind.lower()].append(_hole(part.name, f"parameter of {part.name}", hint))
    blocks["sizes"] = [*_sizes(operator, columns)]
    blocks["defines"] = [*_defines(operator, column)]
    blocks["tiling"] = [*_values(operator, operator.struct)]
    depth = {"types": 4, "sizes": 4, "args": 16, "grants": 16, "tiling": 16}
    parts = {name: "".join(f"{' ' * depth.get(name, 12)}{line}\n" for line in blocks[name]) for name in blocks}
    return _CASE.substitute(
        parts,
        name=operator.name, file=re.sub(r"[^\w.-]", "_", output.name), makers="choice, " * (columns > 1) + "size",
        imports="import ml_dtypes  # noqa: F401, since NumPy knows bfloat16 by it\n" * ("bfloat16" in parts["types"]),
        path=json.dumps(os.path.relpath(operator.folder, output.parent)), column=column,
        source=json.dumps(operator.file.relative_to(operator.folder).as_posix()), kernel=operator.kernel,
        contexts=contexts, struct=operator.struct,
        tiling_bytes=64 + structs.dtype_of(operator.struct_text, operator.struct, operator.struct_file).itemsize,
    )  # fmt: skip


def holes_of(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each hole."""
    return ((n, found[1]) for n, line in enumerate(text.splitlines(), 1) if (found := _HOLE.search(line)))


def _hole(key: str, what: str, hint: str) -> str:
    """Return a line of a mapping, or of a list for an empty key."""
    return f'{key and f"{json.dumps(key)}: "}to_fill("{what}"),  # to fill: {hint}'


def _add_parameter(blocks: dict[str, list[str]], operator: Operator, name: str, kind: str) -> None:
    part = operator.found.get(name)
    if part is not None:
        _add_tensor(blocks, name, part)
    elif name.lower().startswith("workspace"):
        if len(re.findall(rf"\b{name}\b", operator.text)) == 1:
            blocks["args"].append(f'"{name}": 0,  # the kernel does not use it')
            return
        region = f'"{name}": regions.managed("{name}", to_fill("bytes of {name}")),  # to fill: of a rank'
        blocks["windows"].append(region)
        blocks["args"].append(f'"{name}": windows["{name}"].at(me),')
        blocks["grants"].append(f'windows["{name}"].grant(me, "rw"),')
    elif "GM_ADDR" in kind or "*" in kind:
        if not name.lower().startswith("tiling"):
            _add_window(blocks, name, f'windows["{name}"].at(rank) of its rank')
    else:
        blocks["args"].append(_hole(name, f"value of {name}", kind))


def _add_tensor(blocks: dict[str, list[str]], name: str, part: OperatorPart) -> None:
    known = [TYPES.get(each, ("",))[0] for each in part.types]
    types = f'"{name}": {json.dumps(known)},'
    if not known or not all(known):
        types = _hole(name, f"types of {name}", f"names of NumPy for {json.dumps(part.types)}")
    blocks["types"].append(types)
    missing = "; None: left out" if part.may_be_missing else ""
    what = f"input {name}" if part.kind == "Input" else f"oracle of {name}"
    blocks[part.kind.lower()].append(_hole(name, what, f"array [ranks, ...], {' or '.join(part.types)}{missing}"))
    if part.may_be_missing:
        blocks["args"].append(f'"{name}": 0,  # unless it is given')


def _add_window(blocks: dict[str, list[str]], name: str, hint: str) -> None:
    """Add what is neither declared nor tiling: its area, owner and rights are in nothing that is read."""
    blocks["windows"].append(_hole(name, f"region of {name}", "a region, or None"))
    blocks["args"].append(_hole(name, f"address of {name}", hint))
    blocks["grants"].append(_hole("", f"grant of {name}", 'REGION.grant(rank, "r"), "w" or "rw"; None: any rank'))


def _sizes(operator: Operator, columns: int) -> Iterator[str]:
    if columns > 1:
        yield f'combination: int = choice(0, "Which types, of those that are declared.", of=range({columns}))'
    for part in (each for each in operator.parts if each.default is not None):
        is_known = str(part.default).removeprefix("-").isdecimal()
        taken = keyword.iskeyword(part.name) or hasattr(Case, part.name) or part.name in ("ranks", "cores", "typed")
        line = f'{part.name}{"_attr" * taken}: int = size({{}}, "Attribute {part.name}.", least={{}})'
        hole = line.format(f'to_fill("default of {part.name}")', 0) + "  # to fill: small"
        yield line.format(part.default, min(0, int(str(part.default)))) if is_known else hole


def _defines(operator: Operator, column: str) -> Iterator[str]:
    if operator.header is not None:
        header = operator.header.relative_to(operator.folder).as_posix()
        yield f'**ascendc.host_tiling(FOLDER / {json.dumps(header)}, "{operator.struct}"),'
    for part in operator.found.values():
        macro, of_c = f"DTYPE_{part.name.upper()}", [TYPES.get(each, ("", ""))[1] for each in part.types]
        if re.search(rf"\b(?:ORIG_)?{macro}\b", operator.text) and of_c:
            hole = _hole(macro, f"type of {part.name}", f"in C, for {json.dumps(part.types)}")
            yield f'"{macro}": {json.dumps(of_c)}[{column}],' if all(of_c) else hole
            yield f'"ORIG_{macro}": {json.dumps(part.types)}[{column}],'
    if keys := dict.fromkeys(_KEY.findall(operator.text)):
        yield _hole("TILING_KEY_VAR", "tiling key", f"the kernel asks for {', '.join(keys)}")


def _values(operator: Operator, struct: str, path: str = "") -> Iterator[str]:
    for each in structs.fields_of(operator.struct_text, struct, operator.struct_file):
        if each.type.startswith("Mc2"):
            yield f'"{each.name}": 0,  # nobody reads it here'
        elif each.type in structs.TYPES:
            several = f"{list(each.shape)} of " if each.shape else ""
            yield _hole(each.name, f"tiling {path}{each.name}", f"{several}{each.type}")
        else:
            yield f'"{each.name}": {{'
            yield from (f"    {line}" for line in _values(operator, each.type, f"{path}{each.name}."))
            yield "},"
