"""``xccl-emu compare``: the protocols side by side, by what each die asks of others."""

import json
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from xccl_emu.cli.cases import split_sizes
from xccl_emu.cli.ending import WRONG
from xccl_emu.cli.options import JSON, WORDS, command_of
from xccl_emu.options import option


@dataclass(frozen=True)
class CompareOptions:
    """Run one layer by every protocol, and print what each die asks of other dies.

    The numbers are counts of the run and no formulas: of requests for the memory of another die, the mean over the
    dies and, in brackets, the most. Rows and outputs are compared with the oracle; the exit code is 1 if any is wrong.
    """

    ranks: int = option(18, "Dies with experts, one each.", least=2, most=768)
    attention: int = option(
        10, "Attention dies, where these and experts are on different ones.", least=1, most=767
    )  # fmt: skip
    tokens: int = option(8, "Tokens of each rank or attention die.", least=1)
    hidden: int = option(7168, "Elements of a hidden state, a multiple of 32.", least=32)
    top_k: int = option(8, "Routed experts of a token.", least=1, most=15)
    cores: int = option(2, "Cores of a rank, of an attention die, of a stream.", least=1, most=16)
    seed: int = option(0, "Seed of the payload and the routing.", least=0)


def _compare(options: CompareOptions, words: list[str] | None, as_json: bool) -> None:
    from xccl_emu.cli.compare_job import as_markdown, run

    named, sizes = split_sizes(words or ())
    if named:
        from xccl_emu.cli.case_job import compare as compare_cases

        result = compare_cases(named, sizes)
    else:
        result = run(options)
    typer.echo(json.dumps(asdict(result)) if as_json else as_markdown(result))
    if result.wrong:
        typer.echo(f"xccl-emu: {result.wrong} elements are wrong", err=True)
        raise typer.Exit(WRONG)


_PROTOCOLS = WORDS.replace(
    annotation=Annotated[
        list[str] | None,
        typer.Argument(help="Protocols to compare [default: those of a layer of experts].", show_default=False),
    ]
)
compare = command_of(CompareOptions, _compare, JSON, first=(_PROTOCOLS,))
