"""``xccl-emu compare``: the protocols side by side, by what each die asks of others."""

from dataclasses import asdict

import typer

from xccl_emu.cli.app import App
from xccl_emu.cli.cases import ANY_SIZE, split_sizes
from xccl_emu.cli.ending import WRONG
from xccl_emu.cli.options import CTX, JSON, command_of, words
from xccl_emu.runs.compare import LayerCompared


def _compare(options: LayerCompared, ctx: typer.Context, words: list[str] | None, as_json: bool) -> None:
    from xccl_emu.bench.traffic import as_markdown
    from xccl_emu.cli.schema import print_json
    from xccl_emu.cli.show import spinner

    named, sizes = split_sizes(words or ())
    with spinner("compare", as_json):
        if named:
            from xccl_emu.cli.case_job import compare as compare_cases

            result = compare_cases(named, _given(options, ctx) | sizes)
        else:
            from xccl_emu.runs.compare_job import run

            result = run(options)
    if as_json:
        print_json("compare", asdict(result))
    else:
        typer.echo(as_markdown(result))
    if result.wrong:
        typer.echo(f"xccl-emu: {result.wrong} elements are wrong", err=True)
        raise typer.Exit(WRONG)


def _given(options: LayerCompared, ctx: typer.Context) -> dict[str, int | str]:
    """Options that were given: the named protocols have sizes of these names, or refuse them."""
    values: dict[str, int | str] = asdict(options)
    sources = {name: getattr(ctx.get_parameter_source(name), "name", "") for name in values}
    return {name: value for name, value in values.items() if sources[name] == "COMMANDLINE"}


_PROTOCOLS = words("words", "PROTOCOL", "To compare [default: all that run a layer of experts].")
app = App.of(command_of(LayerCompared, _compare, JSON, first=(CTX, _PROTOCOLS)), context_settings=ANY_SIZE)
