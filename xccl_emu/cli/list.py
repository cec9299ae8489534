"""``xccl-emu list``: which protocols there are, and what can be chosen of one."""

import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xccl_emu.cli.app import App
from xccl_emu.cli.options import AsJson

if TYPE_CHECKING:
    from xccl_emu.protocol.case import Size
    from xccl_emu.protocol.registry import Known

_COLUMNS = 80


def list_protocols(
    protocol: Annotated[
        str | None, typer.Argument(metavar="PROTOCOL", help="A name, or FILE.py:NAME [default: all names].")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the protocols by family, or one's sizes, synchronizations and configurations to be proved.

    \b
      xccl-emu list
      xccl-emu list sendrecv
      xccl-emu list examples/prefix_sum/prefix_sum.py:PrefixSum
    """
    from xccl_emu.protocol.registry import known, names

    if protocol is not None:
        shown = _one(protocol)
    else:
        each = [(name, known(name)) for name in names()]
        shown = {"protocols": [{"protocol": name, "family": it.family, "about": it.preset.about} for name, it in each]}
    if as_json:
        from xccl_emu.cli.schema import print_json

        return print_json("list", shown)
    typer.echo("\n".join(_names(shown["protocols"]) if protocol is None else _text(shown)))


def _one(name: str) -> dict[str, Any]:
    """Papers, sizes, synchronizations and proofs of a protocol."""
    from xccl_emu.protocol.case import sizes_of
    from xccl_emu.protocol.registry import known, make, proofs_of

    it = known(name)
    sizes = [_described(it, size) for size in sizes_of(it.maker)]
    proofs = {what: dict(case.configuration) for what, case in proofs_of(name).items()}
    papers = [str(paper) for paper in getattr(it.maker, "papers", ())]
    return {
        "protocol": name, "about": it.preset.about, "papers": papers, "sizes": sizes,
        "synchronizations": list(make(name).syncs), "proofs": proofs,
    }  # fmt: skip


def _described(it: "Known", size: "Size") -> dict[str, Any]:
    """A size, its default under this name, and its value on the whole pod."""
    default = it.preset.sizes.get(size.name, size.default)
    on_pod = (it.preset.on_pod or {}).get(size.name, default)
    return vars(size) | {"default": default, "on_pod": on_pod}


def sizes_text(it: "Known") -> Iterator[str]:
    """A line for each size that can be chosen, with the default of a run."""
    from xccl_emu.protocol.case import sizes_of

    for size in sizes_of(it.maker):
        yield _size_text(_described(it, size))


def _names(protocols: list[dict[str, str]]) -> Iterator[str]:
    """A block for each family of several lines, and one for the others; a name with a suffix is in its stem's line."""
    families: dict[str, dict[str, str]] = {}
    for each in protocols:
        families.setdefault(each["family"], {})[each["protocol"]] = each["about"]
    lines = {title: list(_lines(family)) for title, family in sorted(families.items())}
    large = {title: own for title, own in lines.items() if len(own) > 1}
    others = {"others": [own[0] for title, own in lines.items() if title not in large]}
    width = max(len(name) for own in lines.values() for name, _ in own) + 4
    for title, own in {**large, **others}.items():
        yield title
        for name, about in own:
            start, below = f"  {name}".ljust(width), " " * width
            yield textwrap.fill(about, _COLUMNS, initial_indent=start, subsequent_indent=below, break_on_hyphens=False)


def _lines(family: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each stem of a family, and what it is, with its suffixes."""
    for stem in (name for name in family if _stem(name, family) == name):
        suffixes = [name.removeprefix(stem) for name in family if _stem(name, family) == stem != name]
        yield stem, family[stem] + (f" (also {', '.join(suffixes)})" if suffixes else "")


def _stem(name: str, family: Iterable[str]) -> str:
    """The shortest name of a family that a name is, or adds a suffix to."""
    return min((other for other in family if f"{name}-".startswith(f"{other}-")), key=len)


def _text(case: dict[str, Any]) -> Iterator[str]:
    yield f"{case['protocol']}: {case['about']}"
    yield from (f"  {paper}" for paper in case["papers"])
    yield "sizes"
    yield from map(_size_text, case["sizes"])
    yield "synchronizations"
    yield from (f"  {sync}" for sync in case["synchronizations"])
    yield "to be proved"
    for what, configuration in case["proofs"].items():
        yield f"  {what}: {' '.join(f'{name}={value}' for name, value in configuration.items())}"


def _size_text(size: dict[str, Any]) -> str:
    ends = f"{size['least']} to {size['most']}" if size["most"] is not None else f"from {size['least']} on"
    bounds = f" ({ends})" if size["least"] is not None else ""
    of = f" (one of {', '.join(map(str, size['choices']))})" if size["choices"] else ""
    on, _, off = size["also"].partition("/")
    others = f"--{on}, --{off or f'no-{on}'}" if size["choices"] == (0, 1) else f"--{on}"
    also = f" (also {others})" if on else ""
    on_pod = "" if size["on_pod"] == size["default"] else f" [run: {size['on_pod']}]"
    name = f"  --{size['name'].replace('_', '-')} {size['default']}".rstrip()
    return f"{name}{on_pod}{bounds}{of}{also}  {size['help']}".rstrip()


app = App.of(list_protocols)
