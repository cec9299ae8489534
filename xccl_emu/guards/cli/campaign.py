"""``xccl-emu campaign``: many small programs at random, on which the judges of this package must agree."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

import typer

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import Spread, option
from xccl_emu.cli import ending
from xccl_emu.cli.app import JSON, App, command_of, print_json
from xccl_emu.cli.cases import check_seconds
from xccl_emu.cli.files import writing
from xccl_emu.cli.shown import counting

if TYPE_CHECKING:
    from xccl_emu.guards.campaign.run import CampaignPlan, CampaignSummary, ContradictedProgram, SmallestExample

_PROGRAMS = 1000
"""Drawn programs, if nothing else is asked for."""


@dataclass(frozen=True)
class CampaignOptions(Spread):
    """Judge random programs by search, brute force and sampling, and report disagreements.

    Each program runs on some cores that share a few words.  Three exhaustive searches, brute force as far as it comes,
    and sampled schedules under the monitor say what they think of it, under each memory order; of some that are
    verified also what a fault may do.  What one has verified no other may refute, and every violation must show when
    its actions are taken again.

    \b
      xccl-emu campaign                                a thousand programs
      xccl-emu campaign --programs 100000 --out found  an hour on two cores
      xccl-emu campaign --seed 7 --first 4711 --programs 1
      xccl-emu campaign --replay found/7-4711.json     is it still so?
      xccl-emu campaign --ends                         each choice, by its ends
      xccl-emu campaign --enumerate --programs 2048    two requests, all of them
      xccl-emu campaign --seconds 3600 --dask tcp://scheduler:8786

    Within a version a program depends on the seed and its number alone.  At the end each kind of contradiction is shown
    by a program that was made as small as possible, as text that `xccl_emu.guards.campaign.programs.program` reads.

    With --ends only the full search is judged, in another way.  An end is what a run leaves in memory, a deadlock, or
    an error.  What the search takes without trying anything else must keep all ends that runs from there have, by brute
    force; what it tries must have all of them together.  So a mistake shows that changes no verdict.  With --enumerate
    this is asked of every program of two requests, then of all of two by one core and one by another.

    Exit code: 0 no contradictions, 1 some, 2 wrong usage, 3 a worker was killed or a part failed, 130 Ctrl-C, 143
    SIGTERM.
    """

    programs: int | None = option(None, "How many programs are judged [default: 1000, or all smallest]", least=1)
    seed: int = option(0, "Seed of the campaign.", least=0)
    first: int = option(0, "Number of the first program.", least=0)
    orders: str = option("sc,fifo,relaxed,unordered", "Memory orders, with commas between them.")
    out: Path | None = option(None, "Folder for programs on which judges contradict each other.", metavar="DIR")
    seconds: float | None = option(None, "Begin nothing more after so long.")
    shrink: float = option(60.0, "Seconds for making the smallest findings smaller.", least=0)
    replay: Path | None = option(None, "Judge a program that was kept again.")
    ends: bool = option(False, "Judge each choice of the full search by the ends that it must keep.")
    enumerate: bool = option(False, "Take the smallest programs, all of them in turn, and judge by --ends.")


def act(options: CampaignOptions, as_json: bool) -> None:
    """Run the command; raises ``typer.Exit`` with its code."""
    summary, code = run_campaign(options, as_json)
    show(summary, options, as_json)
    if options.out is not None and options.replay is None:
        save(summary, options.out)
    summary.raise_bug()
    raise typer.Exit(code)


def run_campaign(options: CampaignOptions, quiet: bool) -> "tuple[CampaignSummary, int]":
    """Judge what the command line asks for; the summary and the exit code."""
    from xccl_emu.guards.campaign.run import ContradictedProgram, find_examples, judge_again

    check_seconds(options.seconds)
    plan = plan_of(options)
    if options.replay is not None:
        summary = judge_again(ContradictedProgram.load(options.replay), plan)
    else:
        _make_folder(options.out)
        summary = _watched(options, plan, quiet)
        if not summary.interrupted:
            find_examples(summary, plan.budget, options.shrink)
    stopped = ending.BY_SIGNAL.get(summary.stopped, 0 if summary.ended is None else ending.UNFINISHED)
    return summary, ending.WRONG if summary.wrong else stopped


def plan_of(options: CampaignOptions) -> "CampaignPlan":
    """Return which programs the command line asks for, and by whom they are judged."""
    from xccl_emu.guards.campaign.run import CampaignPlan
    from xccl_emu.guards.campaign.smallest import TOTAL

    orders, ends = tuple(options.orders.split(",")), options.ends or options.enumerate
    programs = options.programs or (max(1, TOTAL - options.first) if options.enumerate else _PROGRAMS)
    return CampaignPlan(programs, options.seed, options.first, orders, ends=ends, enumerated=options.enumerate)


def save(summary: "CampaignSummary", folder: Path) -> None:
    """Write each program on which judges contradict each other to a file; OutputError if one cannot be written."""
    for finding in summary.findings:
        with writing("--out", folder):
            finding.save(folder)


def _make_folder(out: Path | None) -> None:
    try:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=out):
                pass
    except (OSError, ValueError) as error:
        raise ConfigError(f"--out {out}: no file can be written there ({error})") from error


def _watched(options: CampaignOptions, plan: "CampaignPlan", quiet: bool) -> "CampaignSummary":
    """The campaign, with a line on stderr that says how far it is."""
    from xccl_emu.guards.campaign.run import campaign

    with counting("campaign", plan.programs, quiet) as count:

        def report(summary: "CampaignSummary") -> None:
            rate = summary.programs / summary.seconds
            count(summary.programs, f"{rate:.0f} a second, {len(summary.findings)} contradict")

        return campaign(plan, options.processes, options.dask, options.seconds, report)


def show(summary: "CampaignSummary", options: CampaignOptions, as_json: bool) -> None:
    """Print what the programs came to."""
    if as_json:
        return print_json("campaign", summary)
    rate = f", {summary.programs / summary.seconds:.1f} a second" if summary.seconds else ""
    typer.echo(f"{summary.programs:,} programs{rate}, {summary.states:,} states, {summary.schedules:,} schedules")
    if summary.stopped:
        typer.echo(f"stopped: {summary.stopped}")
    _show_verdicts(summary)
    judged, verified = summary.share
    if judged:
        typer.echo(f"judged by ends: {judged:,} of {verified:,} that the search verified ({judged / verified:.0%})")
    found = f"{len(summary.findings):,} programs on which judges contradict each other"
    typer.echo(found + (":" if summary.findings else ""))
    for key, times in summary.wrong.most_common():
        typer.echo(f"  {times:6,}  {key}")
    _show_programs(summary, options)


def _show_verdicts(summary: "CampaignSummary") -> None:
    from xccl_emu.check.verdict import NO_VIOLATION, UNFINISHED, VERIFIED
    from xccl_emu.guards.campaign.ends import JUDGE
    from xccl_emu.guards.campaign.judge import JUDGES
    from xccl_emu.guards.campaign.programs import ORDERS
    from xccl_emu.guards.campaign.run import REFUTED

    sorts = (VERIFIED, REFUTED, UNFINISHED, NO_VIOLATION)
    typer.echo(f"{'':24}" + "".join(f"{name:>20}" for name in sorts))
    for order in ORDERS:
        for judge in (*JUDGES, JUDGE):
            counts = [summary.count(order, judge, name) for name in sorts]
            if any(counts):
                typer.echo(f"{order + ', ' + judge:24}" + "".join(f"{count:20,}" for count in counts))


def _show_programs(summary: "CampaignSummary", options: CampaignOptions) -> None:
    for example in summary.examples:
        typer.echo(f"\n{example.order}: {example.kind} ({_again(options, example)})\n{example.case}")
    if not summary.examples:
        for finding in summary.findings[:10]:
            typer.echo(f"\n{_again(options, finding)}\n{finding.case}")


def _again(options: CampaignOptions, one: "ContradictedProgram | SmallestExample") -> str:
    """The options that judge a program again."""
    if options.enumerate:
        return f"--enumerate --first {one.number} --programs 1"
    return f"{'--ends ' * options.ends}--seed {one.seed} --first {one.number} --programs 1"


app = App.of(command_of(CampaignOptions, act, JSON))
