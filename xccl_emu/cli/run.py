"""``xccl-emu run``: one protocol, run on the whole pod and held against its oracle."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from xccl_emu import runs
from xccl_emu.cli.app import App
from xccl_emu.cli.cases import ANY_SIZE, CaseGroup, sizes_from
from xccl_emu.cli.ending import WRONG
from xccl_emu.cli.options import JSON, AsJson, command_of

if TYPE_CHECKING:
    from xccl_emu.cli.case_job import CaseResult
    from xccl_emu.cli.site_show import SiteResult

app = App(cls=CaseGroup, help="Run a protocol and hold its result against the oracle.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Run a protocol and hold its result against the oracle; FILE.py:NAME is a protocol too."""


@app.command(hidden=True, context_settings=ANY_SIZE)
def case(
    ctx: typer.Context,
    protocol: Annotated[str, typer.Argument(help="FILE.py:NAME, or a name of xccl-emu list.", show_default=False)],
    order: Annotated[str, typer.Option(help="Memory order: sc, fifo or relaxed.")] = "sc",
    policy: Annotated[str, typer.Option(help="Which core steps next: round-robin or random.")] = "round-robin",
    as_json: AsJson = False,
) -> None:
    """Run a protocol once and compare what is in memory with what must be there; exit code 1 if a byte is wrong.

    Sizes of the protocol are options too: --dies 4. xccl-emu list FILE.py:NAME shows them.
    """
    from xccl_emu.cli.case_job import RunOptions
    from xccl_emu.cli.case_job import run as run_case
    from xccl_emu.cli.show import Stages

    options = RunOptions(order, policy, Stages(quiet=as_json), lambda note: typer.echo(f"xccl-emu: {note}", err=True))
    _show(run_case(protocol, sizes_from(ctx.args, protocol), options), as_json)


def _show(result: "CaseResult | SiteResult", as_json: bool) -> None:
    typer.echo(json.dumps(result.to_json()) if as_json else result.told())
    if result.wrong:
        raise typer.Exit(WRONG)


def _run(run: runs.Run, as_json: bool) -> None:
    """Run it and print its result; exit code 1 if an element is wrong."""
    from xccl_emu.cli.show import Stages, print_result

    result = run.start(Stages(quiet=as_json), lambda note: typer.echo(f"xccl-emu: {note}", err=True))
    if as_json:
        typer.echo(json.dumps(asdict(result)))
    else:
        print_result(result.table(), result.closing())
    if result.wrong:
        raise typer.Exit(WRONG)


for _name, _kind in runs.found().items():
    app.command(_name)(command_of(_kind, _run, JSON))
