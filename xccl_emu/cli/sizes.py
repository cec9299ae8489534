"""``xccl-emu sizes``: how large the buffers of a protocol are: it lays a case out, and adds up what has a name."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from xccl_emu.base import words as w
from xccl_emu.base.errors import ConfigError
from xccl_emu.cli.app import JSON, SET, WORDS, App, command_of, print_json
from xccl_emu.cli.cases import ANY_SIZE, check_runs, named
from xccl_emu.cli.shown import right, stdout_console, table

if TYPE_CHECKING:
    from xccl_emu.machine.pod import Pod
    from xccl_emu.protocol.case import Case

_NAME = re.compile(r"die\d+\.(?:app\.|meta\.|managed\.)?([^.\[]*[^.\[\d])")
"""The part of a label that all elements of a region have."""
_AREAS = ("app data", "metadata", "managed data")


@dataclass(frozen=True)
class SizesOptions:
    """Print what buffers a protocol takes on each die, area by area, and what published libraries reserve for it.

    The areas of a die are app data (the caller's tensors), metadata (flags and counts) and managed data (what peers
    write into); a core has a data buffer. Of dies that differ the largest is shown. Nothing is run; data are drawn as
    for a run, so large ones take a while.

    \b
      xccl-emu sizes sendrecv --slots 8 --granules 2048
      xccl-emu sizes deepep-ll --ranks 8 --granules 224 --tokens 128
      xccl-emu sizes fused --ranks 16 --granules 224 --tokens 128 --json
      xccl-emu sizes ring_all_gather.py:ring_all_gather --dies 8

    Exit code: 0, 2 wrong usage.
    """

    protocol: str = ""
    sizes: dict[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Region(w.Printed):
    """Buffers of one name on a die, all together."""

    area: Annotated[str, "`app data`, `metadata` or `managed data`"]
    region: Annotated[str, "what they are called in reports"]
    count: Annotated[int, "how many there are"]
    bytes: Annotated[int, "bytes of all of them, with what is between them"]


@dataclass(frozen=True)
class Sizes(w.Printed):
    """What a case takes, in bytes of a die, and of a core's data buffer."""

    protocol: w.Protocol
    configuration: w.Configuration
    n_dies: Annotated[int, "dies of the pod"]
    app_bytes: Annotated[int, "app data, of the die that has most"]
    meta_bytes: Annotated[int, "metadata of a die"]
    managed_bytes: Annotated[int, "managed data of a die"]
    ub_bytes: Annotated[int, "data buffer of a core"]
    regions: Annotated[list[Region], "what has a name there"]
    published_bytes: Annotated[dict[str, int], "bytes that published libraries reserve for the same, by formula"]


def act(options: SizesOptions, words: list[str] | None, more: list[str] | None, as_json: bool) -> None:
    """Run the command."""
    from xccl_emu.protocol.case import Case
    from xccl_emu.protocol.registry import make

    options = named(options, words, more)
    if not options.protocol:
        raise ConfigError("PROTOCOL: must be a name of xccl-emu list, or FILE.py:NAME")
    case = make(options.protocol, **options.sizes)
    assert isinstance(case, Case)
    check_runs(case)
    found = sizes(options.protocol, case)
    if as_json:
        return print_json("sizes", found)
    show(found)


def sizes(name: str, case: "Case") -> Sizes:
    """Return what a case takes of the pod that it makes; raises what making it raises."""
    pod = case.build("sc", payload=False).pod
    spec = pod.spec
    return Sizes(
        name, dict(case.configuration), spec.n_dies, pod.app_used, spec.meta_bytes, spec.managed_bytes, spec.ub_bytes,
        [*_regions(pod)], dict(case.published_bytes),
    )  # fmt: skip


def _regions(pod: "Pod") -> Iterator[Region]:
    """Yield what is named, by area and name; of each name the die that has most of it."""
    counts: dict[tuple[int, str], Counter[int]] = defaultdict(Counter)
    nbytes: dict[tuple[int, str], Counter[int]] = defaultdict(Counter)
    for start, end, label in pod.labels.ranges():
        die, offset = divmod(start, pod.spec.die_bytes)
        if die < pod.spec.n_dies and (named := _NAME.match(label)):
            area = sum(offset >= begin for begin in (pod.spec.meta_start, pod.spec.managed_start))
            counts[area, named[1]][die] += 1
            nbytes[area, named[1]][die] += end - start
    for (area, region), sums in sorted(nbytes.items()):
        ((die, most),) = sums.most_common(1)
        yield Region(_AREAS[area], region, counts[area, region][die], most)


def show(found: Sizes) -> None:
    """Print it for people."""
    areas = table("area", "region", *right("count", "bytes", ""), title=f"{found.protocol}: one of {found.n_dies} dies")
    totals = dict(zip(_AREAS, (found.app_bytes, found.meta_bytes, found.managed_bytes), strict=True))
    for area, total in totals.items():
        areas.add_row(f"[bold]{area}[/]", "", "", f"[bold]{total:,}[/]", _round(total))
        for each in found.regions:
            if each.area == area:
                areas.add_row("", each.region, f"{each.count:,}", f"{each.bytes:,}", _round(each.bytes))
    areas.add_row("[bold]data buffer[/]", "of each core", "", f"[bold]{found.ub_bytes:,}[/]", _round(found.ub_bytes))
    console = stdout_console()
    console.print(" ".join(f"{name}={value}" for name, value in found.configuration.items()), highlight=False)
    console.print(areas)
    for formula, nbytes in found.published_bytes.items():
        console.print(f"{formula}: {nbytes:,} bytes, {_round(nbytes)}", highlight=False)


def _round(nbytes: int) -> str:
    """Return text such as ``8.25 GiB``."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= unit:
            return f"{nbytes / unit:.4g} {name}"
    return ""


app = App.of(
    command_of(SizesOptions, act, SET, JSON, first=(WORDS,)),
    no_args_is_help=True, context_settings=ANY_SIZE,
)  # fmt: skip
