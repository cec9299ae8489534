"""Topologies: a fabric and the costs of its cores from a TOML file, each field checked; files of `fabrics` by name.

The paths are a table by class (`CLASSES`).  Each has a medium and the rates of ``read`` and ``write``, or of ``both``.
Networks of the same dies are ``[[beside]]``, and ``[costs]`` has constants that differ from the release's.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import must_be_one_of
from xccl_emu.timing.costs import Costs
from xccl_emu.timing.fabric import Cpus, Fabric, Rate
from xccl_emu.timing.fabric import Path as Route

T = TypeVar("T")

CLASSES = ("same_die", "sibling_die", "same_node", "other_node", "node_cpu", "other_cpu")
"""Classes of paths by number, as the file calls them; the last two where there are CPUs."""


def read(path: Path) -> tuple[Fabric, Costs]:
    """Return the fabric of a file, and its costs; ConfigError names the file, the entry, and what would be right."""
    try:
        given = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    costs = _table(given.pop("costs", {}), f"{path}: costs")
    return _fabric(given, f"{path}: "), moved(Costs(), costs, f"{path}: costs.")


def moved(costs: Costs, given: Mapping[str, Any], where: str) -> Costs:
    """Costs with some constants given again; ConfigError for a name that there is not, or what is no number."""
    known = [each.name for each in fields(Costs)]
    for name, value in given.items():
        if name not in known:
            raise ConfigError(f"{where}{name}: no such constant; there are {', '.join(known)}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{where}{name} = {value!r}: must be a number")
    try:
        return replace(costs, **given)
    except ConfigError as error:
        raise ConfigError(f"{where}{error}") from error


def costs_of(words: Sequence[str], costs: Costs) -> Costs:
    """Costs changed by ``name=value`` words; ConfigError for one that is none."""
    given = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            given[name] = float(value)
        except ValueError:
            raise ConfigError(f"--cost {word}: must be NAME=VALUE, such as poll_ns=100") from None
        if name == "dma_engines" and given[name].is_integer():
            given[name] = int(value.partition(".")[0])
    return moved(costs, given, "--cost ")


def _fabric(given: Mapping[str, Any], where: str) -> Fabric:
    paths = _table(given.get("paths"), f"{where}paths")
    unknown = sorted(set(paths) - set(CLASSES))
    if unknown:
        raise ConfigError(f"{where}paths.{unknown[0]}: {must_be_one_of(unknown[0], CLASSES)}")
    needed = CLASSES if set(paths) & set(CLASSES[4:]) or "cpus" in given else CLASSES[:4]
    missing = [name for name in needed if name not in paths]
    if missing:
        raise ConfigError(f"{where}paths.{missing[0]}: is missing; must be a table with medium, read and write")
    parts: dict[str, Any] = {"paths": tuple(_route(paths[name], f"{where}paths.{name}") for name in needed)}
    if "cpus" in given:
        parts["cpus"] = _made(Cpus, given["cpus"], f"{where}cpus")
    name = "beside"
    others = given.get(name, [])
    if not isinstance(others, list):
        raise ConfigError(f"{where}{name}: must be tables, [[{name}]]")
    parts[name] = tuple(_fabric(_table(each, f"{where}{name}"), f"{where}{name}.") for each in others)
    return _made(Fabric, {**given, **parts}, where.removesuffix(": ").removesuffix("."), made=frozenset(parts))


def _route(given: Any, where: str) -> Route:
    table = dict(_table(given, where))
    if "both" in table:
        table["read"] = table["write"] = table.pop("both")
    rates = {way: _made(Rate, table.get(way), f"{where}.{way}") for way in ("read", "write")}
    return _made(Route, {**table, **rates}, where, made=frozenset(rates))


def _table(given: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where}: must be a table" if given is not None else f"{where}: is missing; must be a table")
    return given


def _made(kind: type[T], given: Any, where: str, made: frozenset[str] = frozenset()) -> T:
    """A record of the entries of a table; ``made`` ones are records already."""
    table, known = _table(given, where), {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    for name, value in table.items():
        if name not in known:
            raise ConfigError(f"{where}.{name}: no such entry; there are {', '.join(known)}")
        if name not in made and not _fits(value, hints[name]):
            raise ConfigError(f"{where}.{name} = {value!r}: must be {_WORDS.get(hints[name], 'a table')}")
    missing = [name for name, each in known.items() if name not in table and each.default is MISSING]
    if missing:
        raise ConfigError(f"{where}.{missing[0]}: is missing; must be {_WORDS.get(hints[missing[0]], 'a table')}")
    try:
        return kind(**table)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


_WORDS: dict[Any, str] = {
    int: "a whole number", float: "a number", str: "a string", bool: "true or false",
}  # fmt: skip


def _fits(value: Any, kind: Any) -> bool:
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if kind is float:
        return isinstance(value, int | float) and math.isfinite(value)
    return kind in (int, str) and isinstance(value, kind)


NAMES = ("cloudmatrix384", "atlas-800t-a2", "atlas-900-a3", "h20", "h100", "h800", "mi300x")
"""By which the command knows them."""


def model(name: str, costs: Sequence[str] = ()) -> tuple[Fabric, Costs]:
    """Return a fabric by its name or its file, and the costs there, changed by ``name=value`` words.

    Raises ConfigError for another name, a file that is no fabric, and a word that is no cost.
    """
    if name in NAMES:
        with as_file(files("xccl_emu.timing") / "fabrics" / f"{name}.toml") as path:
            fabric, there = read(path)
    elif name.endswith(".toml"):
        fabric, there = read(Path(name))
    else:
        raise ConfigError(f"--fabric {name}: must be FILE.toml or one of {', '.join(NAMES)}")
    return fabric, costs_of(costs, there)


def topology(name: str) -> Fabric:
    """Return a fabric by its name or its file; ConfigError for another name."""
    return model(name)[0]


CLOUDMATRIX384 = topology("cloudmatrix384")
"""CloudMatrix384 3.2-3.3 and Table 1: seven UB sub-planes, one tier within a node and two between nodes."""

RDMA = CLOUDMATRIX384.networks[1]
"""CloudMatrix384 3.2-3.3: the plane to other supernodes, on links of its own."""

VPC = CLOUDMATRIX384.networks[2]
"""CloudMatrix384 3.2-3.3: the datacenter's network, one card a node, which its dies share."""

ATLAS_800T_A2 = topology("atlas-800t-a2")
"""MixServe IV-A: four servers of eight NPUs, full-mesh HCCS inside, RoCE between, a port a chip."""

H20 = topology("h20")
"""MixServe IV-A: two servers of eight GPUs, NVLink inside, InfiniBand between."""
