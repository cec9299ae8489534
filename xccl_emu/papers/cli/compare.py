"""``xccl-emu compare``: the protocols side by side, by what each die asks of others."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import typer

from xccl_emu.base.options import option
from xccl_emu.cli.app import CTX, JSON, App, command_of, print_json, words
from xccl_emu.cli.cases import ANY_SIZE, split_sizes
from xccl_emu.cli.ending import WRONG
from xccl_emu.cli.shown import right, spinner, stdout_console, table

if TYPE_CHECKING:
    from rich.table import Table

    from xccl_emu.papers.bench.compare import Comparison
    from xccl_emu.protocol.sequence import Sizes


@dataclass(frozen=True)
class LayerCompared:
    """Run one layer of experts by every protocol, and print what each die asks of other dies; or protocols by name.

    \b
      xccl-emu compare                              a layer by all that run one
      xccl-emu compare --ranks 288 --attention 160  a large deployment
      xccl-emu compare all-reduce-ring all-reduce-one-shot --ranks 4

    Of protocols that are named the options are sizes that all of them have; xccl-emu list NAME shows them.

    The numbers are counts of the run and no formulas: of requests for the memory of another die, the mean over the
    dies and, in brackets, the most. Rows and outputs are compared with the oracle; the exit code is 1 if any is wrong.
    """

    ranks: int = option(18, "Dies with experts, one each.", least=2, most=768)
    attention: int = option(10, "Attention dies, where these and experts are on different ones.", least=1, most=767)
    tokens: int = option(8, "Tokens of each rank or attention die.", least=1)
    hidden: int = option(7168, "Elements of a hidden state, a multiple of 32.", least=32)
    top_k: int = option(8, "Routed experts of a token.", least=1, most=15)
    cores: int = option(2, "Cores of a rank, of an attention die, of a stream.", least=1, most=16)
    seed: int = option(0, "Seed of the payload and the routing.", least=0)


def _compare(options: LayerCompared, ctx: typer.Context, words: list[str] | None, as_json: bool) -> None:
    from xccl_emu.papers.bench import compare

    named, sizes = split_sizes(words or ())
    with spinner("compare", as_json):
        if named:
            result = compared(named, _given(options, ctx) | sizes)
        else:
            result = compare.compare(**asdict(options))
    if as_json:
        print_json("compare", result)
    elif sys.stdout.isatty():
        stdout_console().print(_table(*compare.cells(result)))
    else:
        typer.echo(compare.as_markdown(result))
    if result.wrong:
        typer.echo(f"xccl-emu: {result.wrong} elements are wrong", err=True)
        raise typer.Exit(WRONG)


def compared(protocols: Sequence[str], sizes: "Sizes") -> "Comparison":
    """Return what the dies of each role ask of other dies, of several protocols of the same sizes."""
    from xccl_emu.papers.bench.compare import Comparison, TrafficLine, line_of
    from xccl_emu.protocol.registry import make

    lines, wrong = list[TrafficLine](), 0
    short = {protocol: protocol.rpartition(":")[2] for protocol in protocols}
    titles = short if len({*short.values()}) == len(short) else {protocol: protocol for protocol in protocols}
    for protocol in protocols:
        trial = make(protocol, **sizes).build("sc")
        spec = trial.pod.spec
        roles = trial.roles or {"die": sorted({core // spec.cores_per_die for core in trial.pod.active_cores()})}
        trial.pod.run()
        traffic, reserved = trial.pod.traffic(), (spec.managed_bytes, spec.meta_bytes)
        lines += [line_of(titles[protocol], role, traffic, list(dies), reserved) for role, dies in roles.items()]
        wrong += sum(trial.wrong_bytes().values())
    return Comparison(dict(sizes), lines, wrong)


def _table(head: Sequence[str], *rows: Sequence[str]) -> "Table":
    """Return a table for a terminal; a pipe gets Markdown."""
    shown = table(*head[:2], *right(*head[2:]), box=None, pad_edge=False)
    for column in shown.columns:
        column.overflow = "fold"
    for row in rows:
        shown.add_row(*row)
    return shown


def _given(options: LayerCompared, ctx: typer.Context) -> dict[str, int | str]:
    """Options that were given: the named protocols have sizes of these names, or refuse them."""
    values: dict[str, int | str] = asdict(options)
    sources = {name: getattr(ctx.get_parameter_source(name), "name", "") for name in values}
    return {name: value for name, value in values.items() if sources[name] == "COMMANDLINE"}


_PROTOCOLS = words("words", "PROTOCOL", "To compare [default: all that run a layer of experts].")
app = App.of(command_of(LayerCompared, _compare, JSON, first=(CTX, _PROTOCOLS)), context_settings=ANY_SIZE)
