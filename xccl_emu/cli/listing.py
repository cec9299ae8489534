"""``xccl-emu list``: which protocols there are, and what can be chosen of one."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xccl_emu.cli.options import AsJson

if TYPE_CHECKING:
    from xccl_emu.protocol.case import Size
    from xccl_emu.protocol.registry import Known


def list_protocols(
    protocol: Annotated[
        str | None, typer.Argument(metavar="PROTOCOL", help="A name, or FILE.py:NAME [default: all names].")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the protocols; or of one its sizes, its synchronizations, and the configurations that are to be proved.

    \b
      xccl-emu list
      xccl-emu list sendrecv
      xccl-emu list examples/prefix_sum/prefix_sum.py:PrefixSum
    """
    told = _all() if protocol is None else _one(protocol)
    typer.echo(json.dumps(told) if as_json else "\n".join(_names(told) if protocol is None else _text(told)))


def _all() -> dict[str, str]:
    """A sentence on each protocol, by name."""
    from xccl_emu.protocol.registry import known, names

    return {name: known(name).preset.about for name in names()}


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
    """A size, its default that of the name, and what it is on the whole pod if that is another."""
    default = it.preset.sizes.get(size.name, size.default)
    on_pod = (it.preset.on_pod or {}).get(size.name, default)
    return vars(size) | {"default": default} | ({} if on_pod == default else {"on_pod": on_pod})


def sizes_text(it: "Known") -> Iterator[str]:
    """A line for each size that can be chosen, with the default of a run."""
    from xccl_emu.protocol.case import sizes_of

    for size in sizes_of(it.maker):
        yield _size_text(_described(it, size))


def _names(told: dict[str, str]) -> Iterator[str]:
    width = max(map(len, told))
    for name, sentence in told.items():
        yield f"{name:{width}}  {sentence}"


def _text(told: dict[str, Any]) -> Iterator[str]:
    yield f"{told['protocol']}: {told['about']}"
    yield from (f"  {paper}" for paper in told["papers"])
    yield "sizes"
    yield from map(_size_text, told["sizes"])
    yield "synchronizations"
    yield from (f"  {sync}" for sync in told["synchronizations"])
    yield "to be proved"
    for what, configuration in told["proofs"].items():
        yield f"  {what}: {' '.join(f'{name}={value}' for name, value in configuration.items())}"


def _size_text(size: dict[str, Any]) -> str:
    ends = f"{size['least']} to {size['most']}" if size["most"] is not None else f"from {size['least']} on"
    bounds = f" ({ends})" if size["least"] is not None else ""
    of = f" (one of {', '.join(map(str, size['choices']))})" if size["choices"] else ""
    on, _, off = size["also"].partition("/")
    others = f"--{on}, --{off or f'no-{on}'}" if size["choices"] == (0, 1) else f"--{on}"
    also = f" (also {others})" if on else ""
    on_pod = f" [run: {size['on_pod']}]" if "on_pod" in size else ""
    name = f"  --{size['name'].replace('_', '-')} {size['default']}".rstrip()
    return f"{name}{on_pod}{bounds}{of}{also}  {size['help']}".rstrip()
