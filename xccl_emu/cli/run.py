"""``xccl-emu run``: one protocol, run on the whole pod and held against its oracle."""

from typing import Annotated

import typer

from xccl_emu.cli.app import App
from xccl_emu.cli.cases import ANY_SIZE, CaseGroup, sizes_from
from xccl_emu.cli.ending import WRONG
from xccl_emu.cli.options import AsJson, Protocol

app = App(cls=CaseGroup, no_args_is_help=True)


@app.callback(subcommand_metavar="NAME [SIZES]...")
def _group() -> None:
    """Run a protocol and hold its result against the oracle.

    NAME is one of xccl-emu list, or FILE.py:NAME. Sizes of the protocol are options.

    \b
      xccl-emu run dispatch --ranks 32
      xccl-emu run dispatch --help  its sizes, also of the whole pod
    """


@app.command(hidden=True, context_settings=ANY_SIZE)
def case(
    ctx: typer.Context,
    protocol: Protocol,
    order: Annotated[str, typer.Option(metavar="ORDER", help="Memory order: sc, fifo, relaxed or unordered.")] = "sc",
    policy: Annotated[
        str, typer.Option(metavar="POLICY", help="Which core steps next: round-robin or random.")
    ] = "round-robin",
    as_json: AsJson = False,
) -> None:
    """Run a protocol, and compare what is in memory with what must be there; exit code 1 if anything is wrong.

    Sizes of the protocol are options too: --dies 4. xccl-emu run NAME --help and xccl-emu list NAME show them. What
    has sizes for the whole pod runs there, call after call, bit for bit against an independent NumPy oracle: "wrong"
    counts what differs. Anything else runs on a pod that it just fits.
    """
    from xccl_emu.cli.run_job import RunOptions
    from xccl_emu.cli.run_job import run as run_case
    from xccl_emu.cli.schema import print_json
    from xccl_emu.cli.shown import stages

    options = RunOptions(order, policy, stages(quiet=as_json), lambda note: typer.echo(f"xccl-emu: {note}", err=True))
    result = run_case(protocol, sizes_from(ctx.args, protocol), options)
    if as_json:
        print_json("run", result.to_json())
    else:
        typer.echo(result.render())
    if result.wrong:
        raise typer.Exit(WRONG)
