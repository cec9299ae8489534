"""``xccl-emu list``: which protocols there are, and what can be chosen of one."""

import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from xccl_emu.cli.app import App, AsJson, print_json

if TYPE_CHECKING:
    from xccl_emu.protocol.registry import Described, Known, ListedSize, Named

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
    from xccl_emu.protocol.registry import Named, NamedProtocols, known, names

    if protocol is not None:
        one = _described(protocol)
        return print_json("list", one) if as_json else typer.echo("\n".join(_text(one)))
    each = [(name, known(name)) for name in names()]
    found = [Named(name, it.family, it.preset.about) for name, it in each]
    return print_json("list", NamedProtocols(found)) if as_json else typer.echo("\n".join(_names(found)))


def _described(name: str) -> "Described":
    """Papers, sizes, synchronizations and proofs of a protocol."""
    from xccl_emu.protocol.registry import Described, known, make, proofs_of

    it = known(name)
    sizes = [*it.listed()]
    proofs = {what: case.configuration for what, case in proofs_of(name).items()}
    papers = [str(paper) for paper in getattr(it.maker, "papers", ())]
    return Described(name, it.preset.about, papers, sizes, tuple(make(name).syncs), proofs)


def sizes_text(it: "Known") -> Iterator[str]:
    """A line for each size that can be chosen, with the default of a run."""
    yield from map(_size_text, it.listed())


def _names(protocols: "list[Named]") -> Iterator[str]:
    """A block for each family of several lines, and one for the others; a name with a suffix is in its stem's line."""
    families: dict[str, dict[str, str]] = {}
    for each in protocols:
        families.setdefault(each.family, {})[each.protocol] = each.about
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


def _text(of: "Described") -> Iterator[str]:
    yield f"{of.protocol}: {of.about}"
    yield from (f"  {paper}" for paper in of.papers)
    yield "sizes"
    yield from map(_size_text, of.sizes)
    yield "synchronizations"
    yield from (f"  {sync}" for sync in of.synchronizations)
    yield "to be proved"
    for what, configuration in of.proofs.items():
        yield f"  {what}: {' '.join(f'{name}={value}' for name, value in configuration.items())}"


def _size_text(listed: "ListedSize") -> str:
    size = listed.size
    ends = f"{size.least} to {size.most}" if size.most is not None else f"from {size.least} on"
    bounds = f" ({ends})" if size.least is not None else ""
    of = f" (one of {', '.join(map(str, size.choices))})" if size.choices else ""
    on, _, off = size.also.partition("/")
    others = f"--{on}, --{off or f'no-{on}'}" if size.is_switch else f"--{on}"
    also = f" (also {others})" if on else ""
    on_pod = "" if listed.on_pod == size.default else f" [run: {listed.on_pod}]"
    name = f"  --{size.name.replace('_', '-')} {size.default}".rstrip()
    return f"{name}{on_pod}{bounds}{of}{also}  {size.help}".rstrip()


app = App.of(list_protocols)
