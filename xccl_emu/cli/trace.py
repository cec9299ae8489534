"""``xccl-emu trace``: a timed run as a picture for Perfetto."""

import json
from pathlib import Path
from typing import Annotated

import typer

from xccl_emu.cli.cases import sizes_from, sizes_of
from xccl_emu.cli.check import PROTOCOLS
from xccl_emu.cli.ending import WRONG


def trace(
    ctx: typer.Context,
    protocol: Annotated[
        str, typer.Argument(help=f"One of {', '.join(PROTOCOLS)}; or FILE.py:NAME.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="File to write; JSON, whatever it is called.")] = Path("trace.json"),
    dies: Annotated[
        str | None, typer.Option(help='Dies to show, as in "0,1" or "0-3,8" [default: all that take part]')
    ] = None,
    sizes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A size of the protocol; also as --NAME VALUE."),
    ] = None,
    fabric: Annotated[str, typer.Option(help="cloudmatrix384, or atlas-800t-a2.")] = "cloudmatrix384",
    place: Annotated[
        str, typer.Option(help="Where the dies are: packed (die by die on the chips), chips or nodes (one on each).")
    ] = "packed",
    events: Annotated[
        int, typer.Option(min=1, help="Most slices and ends of arrows; what begins later is left out, and counted.")
    ] = 200_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Run a protocol in virtual time, and write what every pipe did as a trace for Perfetto (ui.perfetto.dev).

    Each process is a die and each thread a pipe of a core: the scalar unit, mtu-in, vector, mtu-out, DMA. A slice is
    an action that took time, named "step 3: put, tail" by the step of the paper and the synchronization. On the
    scalar unit, "waits:" stands before what it waited for, and "issue" where it queues what a pipe then does. Click a
    slice to see its source line, its bytes, and what it reads or writes. An arrow leads from a write to who saw it:
    from a flag to the poll, from data to the transfer that read it. Counters tell what each link carries.

    The sizes are those of `xccl-emu check`: small. Ask for more with --set; a name that does not exist prints all.

    \b
      xccl-emu trace sendrecv --set slots=1 --set chunks=2 --out t.json    the eight steps, one after the other
      xccl-emu trace sendrecv --set cores=4 --set pieces=256 --place nodes
      xccl-emu trace dispatch --set ranks=8 --set tokens=16 --set pieces=224 --dies 0,1
      xccl-emu trace fused --set ranks=8 --set cores=8 --set tokens=16 --set top_k=4 --set pieces=224
      xccl-emu trace a2e --set attention=4 --set experts=6 --set tokens=8

    Exit code: 0, 1 if the run fails or bytes are wrong, 2 wrong usage.
    """
    from xccl_emu.cli.trace_job import Options, run

    result = run(Options(protocol, out, dies, {**sizes_of(sizes or ()), **sizes_from(ctx.args)}, fabric, place, events))
    typer.echo(json.dumps(result.to_json()) if as_json else result.told())
    if result.wrong:
        raise typer.Exit(WRONG)
