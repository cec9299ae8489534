"""``xccl-emu campaign``: many small programs at random, on which the judges of this package must agree."""

from pathlib import Path
from typing import Annotated

import typer


def campaign(
    programs: Annotated[int, typer.Option(min=1, help="How many programs are judged.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the campaign.")] = 0,
    first: Annotated[int, typer.Option(min=0, help="Number of the first program.")] = 0,
    orders: Annotated[str, typer.Option(help="Memory orders, with commas between them.")] = "relaxed,fifo,sc",
    workers: Annotated[int | None, typer.Option(min=1, help="Processes [default: one for each core]")] = None,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help='On the cluster of this Dask scheduler, or "local".')
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for programs on which judges contradict each other.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Begin nothing more after so long.")] = None,
    shrink: Annotated[float, typer.Option(min=0, help="Seconds for making the smallest findings smaller.")] = 60.0,
    replay: Annotated[Path | None, typer.Option(metavar="FILE", help="Judge a program that was kept again.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Judge small random programs by every judge there is, and tell where two contradict each other.

    Each program runs on two to four cores that share a few words.  Three exhaustive searches, brute force as far as it
    comes, and sampled schedules under the monitor say what they think of it, under each memory order.  What one has
    verified no other may refute, and every violation must show when its actions are taken again.

    \b
      xccl-emu campaign                                   a thousand programs
      xccl-emu campaign --programs 100000 --out found     an hour on two cores; findings as files
      xccl-emu campaign --seed 7 --first 4711 --programs 1
      xccl-emu campaign --replay found/7-4711.json        does it still contradict?
      xccl-emu campaign --programs 1000000 --seconds 3600 --dask tcp://scheduler:8786

    A program depends on the seed and its number alone.  At the end each kind of contradiction is shown by a program
    that was made as small as possible, as text that `xccl_emu.campaign.programs.program` reads.

    Exit code: 0 no contradictions, 1 some, 2 wrong usage, 3 a worker was killed, 130 interrupted.
    """
    from xccl_emu.cli.campaign_job import CampaignOptions, run_campaign, save, show

    order_names = tuple(orders.split(","))
    options = CampaignOptions(programs, seed, first, order_names, workers, dask, out, seconds, shrink, replay, as_json)
    summary, code = run_campaign(options)
    show(summary, as_json)
    if out is not None and replay is None:
        save(summary, out)
    raise typer.Exit(code)
