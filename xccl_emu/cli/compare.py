"""``xccl-emu compare``: the protocols side by side, by what each die asks of others."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from xccl_emu.cli.cases import split_sizes
from xccl_emu.cli.ending import WRONG


def compare(
    ctx: typer.Context,
    protocols: Annotated[
        list[str] | None,
        typer.Argument(help="Protocols to compare [default: those of a layer of experts].", show_default=False),
    ] = None,
    ranks: Annotated[int, typer.Option(min=2, max=768, help="Dies with experts, one each.")] = 18,
    attention: Annotated[
        int, typer.Option(min=1, max=767, help="Attention dies, where these and experts are on different ones.")
    ] = 10,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens of each rank or attention die.")] = 8,
    hidden: Annotated[int, typer.Option(min=32, help="Elements of a hidden state, a multiple of 32.")] = 7168,
    top_k: Annotated[int, typer.Option(min=1, max=15, help="Routed experts of a token.")] = 8,
    cores: Annotated[int, typer.Option(min=1, max=16, help="Cores of a rank, of an attention die, of a stream.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the payload and the routing.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Run one layer by every protocol, and print what each die asks of other dies.

    The numbers are counts of the run and no formulas: of requests for the memory of another die, the mean over the
    dies and, in brackets, the most. Rows and outputs are compared with the oracle; the exit code is 1 if any is wrong.
    """
    from xccl_emu.cli.compare_job import CompareOptions, as_markdown, run

    named, sizes = split_sizes([*(protocols or ()), *ctx.args])
    if named:
        from xccl_emu.cli.case_job import compare as compare_cases

        result = compare_cases(named, sizes)
    else:
        result = run(CompareOptions(ranks, attention, tokens, hidden, top_k, cores, seed))
    typer.echo(json.dumps(asdict(result)) if as_json else as_markdown(result))
    if result.wrong:
        typer.echo(f"xccl-emu: {result.wrong} elements are wrong", err=True)
        raise typer.Exit(WRONG)
