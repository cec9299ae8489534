"""``xccl-emu check``: is a protocol right under every schedule and memory order, and if not, which one breaks it?"""

import json
from pathlib import Path
from typing import Annotated

import typer

from xccl_emu.cli.cases import protocol_and_sizes, sizes_of
from xccl_emu.errors import OutputError


def check(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROTOCOL [--SIZE VALUE]...", help="A name of xccl-emu list, or FILE.py:NAME.", show_default=False
        ),
    ] = None,
    order: Annotated[str | None, typer.Option(help="Memory order: sc, fifo or relaxed [default: relaxed]")] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="exhaustive, portfolio, random, pct, weights, eager, late or lifo [default: exhaustive, and where that"
            " meets a limit the portfolio of the others behind it]"
        ),
    ] = None,
    more: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A size of the protocol; also as --NAME VALUE."),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(metavar="SYNC", help="Switch a synchronization off; may be given again.")
    ] = None,
    each_sync: Annotated[
        bool, typer.Option("--each-sync", help="Switch off each synchronization by itself: which ones are needed?")
    ] = False,
    fault: Annotated[
        str,
        typer.Option(
            help="What breaks, at a drawn moment or after n: stop:die1[@n], cut:0-1[@n], stall:0-1, duplicate:0-1[@n],"
            " corrupt:0-1[@n]; schedules are drawn then."
        ),
    ] = "",
    schedules: Annotated[int | None, typer.Option(min=1, help="Most schedules that are drawn.")] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Most seconds of each check, without those of compiling [default: 75]")
    ] = None,
    states: Annotated[int | None, typer.Option(min=1, help="Most states that are searched.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of drawn schedules.")] = 0,
    breadth_first: Annotated[
        bool, typer.Option("--breadth-first", help="Search for a violation with the fewest transitions.")
    ] = False,
    certify: Annotated[
        bool,
        typer.Option(
            "--certify",
            help="Then ask the same by brute force and by drawn schedules, which share nothing with the search.",
        ),
    ] = False,
    certify_seconds: Annotated[
        float | None, typer.Option(help="Seconds of each such certificate, with --certify [default: 30]")
    ] = None,
    replay: Annotated[Path | None, typer.Option(help="Show the violation of a replay file again.")] = None,
    out: Annotated[Path | None, typer.Option(help="Replay file to write [default: named by what was found]")] = None,
    chart: Annotated[Path | None, typer.Option(help="Write the violation as a Mermaid sequence chart too.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write it as a trace for Perfetto (ui.perfetto.dev) too.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Check a protocol on a small pod under every schedule and every order in which writes become visible.

    The answer is one of: verified (every schedule was covered), no violation found (by so many drawn schedules),
    violation (with the run that shows it as a table, and as a file that replays), unfinished, unsupported.

    Sizes of the protocol are options: --ranks 3 --tokens 2,0. xccl-emu list PROTOCOL shows them, with their ranges.

    \b
      xccl-emu list sendrecv                                   what can be chosen, and switched off
      xccl-emu check sendrecv                                  four slots, eight chunks
      xccl-emu check sendrecv --slots 2 --chunks 5 --cores 2
      xccl-emu check sendrecv --without "data before tail"     what is that quiet for?
      xccl-emu check --replay sendrecv-relaxed-data-race.json  show it again
      xccl-emu check sendrecv --slots 1 --chunks 1 --certify   ask brute force too
      xccl-emu check dispatch --each-sync                      which synchronizations are needed?
      xccl-emu check sendrecv --fault stop:die1                does it ever take wrong bits for right?
      xccl-emu check fused --double-buffered 0                 one buffer for both, and what is overwritten
      xccl-emu check examples/ring_all_reduce/all_reduce.py:RingAllReduce --dies 2 --each-sync
      xccl-emu check moe --ranks 8 --tokens 4 --policy portfolio --seconds 60

    Exit code: 0 verified or no violation found, 1 violation, 2 wrong usage, 3 unfinished or unsupported; more of them:
    xccl-emu --help.
    """
    from xccl_emu.cli.check_job import CheckOptions, Job
    from xccl_emu.cli.check_show import Ticker, draw, show

    protocol, sizes = protocol_and_sizes(words or ())
    options = CheckOptions(
        protocol=protocol, sizes={**sizes_of(more or ()), **sizes}, order=order, policy=policy,
        without=tuple(without or ()), each_sync=each_sync, fault=fault, schedules=schedules, seconds=seconds,
        states=states, seed=seed, breadth_first=breadth_first, certify=certify, certify_seconds=certify_seconds,
        replay=replay, out=out, chart=chart, trace=trace,
    )  # fmt: skip
    with Ticker(quiet=as_json) as ticker:
        result = Job(options, ticker).run()
    if as_json:
        typer.echo(json.dumps(result.to_json()))
    else:
        show(result)
    if result.unsaved:
        raise OutputError(result.unsaved)
    draw(result)
    raise typer.Exit(result.exit_code)

