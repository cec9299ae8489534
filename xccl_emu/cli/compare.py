"""``xccl-emu compare``: the protocols side by side, by what each die asks of others."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from xccl_emu.cli.cases import split_sizes
from xccl_emu.cli.ending import WRONG
from xccl_emu.cli.options import JSON, WORDS, command_of
from xccl_emu.runs.compare import LayerCompared


def _compare(options: LayerCompared, words: list[str] | None, as_json: bool) -> None:
    from xccl_emu.bench.traffic import as_markdown

    named, sizes = split_sizes(words or ())
    if named:
        from xccl_emu.cli.case_job import compare as compare_cases

        result = compare_cases(named, sizes)
    else:
        from xccl_emu.runs.compare_job import run

        result = run(options)
    typer.echo(json.dumps(asdict(result)) if as_json else as_markdown(result))
    if result.wrong:
        typer.echo(f"xccl-emu: {result.wrong} elements are wrong", err=True)
        raise typer.Exit(WRONG)


_PROTOCOLS = WORDS.replace(
    annotation=Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROTOCOL", help="To compare [default: all that run a layer of experts].", show_default=False
        ),
    ]
)
compare = command_of(LayerCompared, _compare, JSON, first=(_PROTOCOLS,))
