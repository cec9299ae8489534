"""What ``xccl-emu campaign`` does and prints."""

import os
from pathlib import Path
from tempfile import TemporaryFile

import typer

from xccl_emu.campaign.ends import JUDGE
from xccl_emu.campaign.judge import JUDGES
from xccl_emu.campaign.programs import ORDERS
from xccl_emu.campaign.run import (
    REFUTED,
    CampaignPlan,
    CampaignSummary,
    ContradictedProgram,
    SmallestExample,
    campaign,
    find_examples,
    judge_again,
)
from xccl_emu.campaign.smallest import TOTAL
from xccl_emu.check.verdict import NO_VIOLATION, UNFINISHED, VERIFIED
from xccl_emu.cli import ending
from xccl_emu.cli.campaign import CampaignOptions
from xccl_emu.cli.cases import check_seconds
from xccl_emu.cli.files import writing
from xccl_emu.cli.schema import print_json
from xccl_emu.cli.shown import counting
from xccl_emu.errors import ConfigError

_PROGRAMS = 1000
"""Drawn programs, if nothing else is asked for."""


def act(options: CampaignOptions, as_json: bool) -> None:
    """Run the command; raises ``typer.Exit`` with its code."""
    summary, code = run_campaign(options, as_json)
    show(summary, options, as_json)
    if options.out is not None and options.replay is None:
        save(summary, options.out)
    raise typer.Exit(code)


def run_campaign(options: CampaignOptions, quiet: bool) -> tuple[CampaignSummary, int]:
    """Judge what the command line asks for; the summary and the exit code."""
    check_seconds(options.seconds)
    plan = plan_of(options)
    if options.replay is not None:
        summary = judge_again(ContradictedProgram.load(options.replay), plan)
    else:
        _make_folder(options.out)
        summary = _watched(options, plan, quiet)
        if not summary.interrupted:
            find_examples(summary, plan.budget, options.shrink)
    stopped = ending.BY_SIGNAL.get(summary.stopped, ending.UNFINISHED if summary.killed else 0)
    return summary, ending.WRONG if summary.wrong else stopped


def plan_of(options: CampaignOptions) -> CampaignPlan:
    """Return which programs the command line asks for, and by whom they are judged."""
    orders, ends = tuple(options.orders.split(",")), options.ends or options.enumerate
    programs = options.programs or (max(1, TOTAL - options.first) if options.enumerate else _PROGRAMS)
    return CampaignPlan(programs, options.seed, options.first, orders, ends=ends, enumerated=options.enumerate)


def save(summary: CampaignSummary, folder: Path) -> None:
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


def _watched(options: CampaignOptions, plan: CampaignPlan, quiet: bool) -> CampaignSummary:
    """The campaign, with a line on stderr that says how far it is."""
    workers = options.workers or len(os.sched_getaffinity(0))
    with counting("campaign", plan.programs, quiet) as count:

        def report(summary: CampaignSummary) -> None:
            rate = summary.programs / summary.seconds
            count(summary.programs, f"{rate:.0f} a second, {len(summary.findings)} contradict")

        return campaign(plan, workers, options.dask, options.seconds, report)


def show(summary: CampaignSummary, options: CampaignOptions, as_json: bool) -> None:
    """Print what the programs came to."""
    if as_json:
        return print_json("campaign", {"seed": options.seed} | summary.to_json())
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


def _show_verdicts(summary: CampaignSummary) -> None:
    sorts = (VERIFIED, REFUTED, UNFINISHED, NO_VIOLATION)
    typer.echo(f"{'':24}" + "".join(f"{name:>20}" for name in sorts))
    for order in ORDERS:
        for judge in (*JUDGES, JUDGE):
            counts = [summary.count(order, judge, name) for name in sorts]
            if any(counts):
                typer.echo(f"{order + ', ' + judge:24}" + "".join(f"{count:20,}" for count in counts))


def _show_programs(summary: CampaignSummary, options: CampaignOptions) -> None:
    for example in summary.examples:
        typer.echo(f"\n{example.order}: {example.kind} ({_again(options, example)})\n{example.case}")
    if not summary.examples:
        for finding in summary.findings[:10]:
            typer.echo(f"\n{_again(options, finding)}\n{finding.case}")


def _again(options: CampaignOptions, one: ContradictedProgram | SmallestExample) -> str:
    """The options that judge a program again."""
    if options.enumerate:
        return f"--enumerate --first {one.number} --programs 1"
    return f"{'--ends ' * options.ends}--seed {one.seed} --first {one.number} --programs 1"
