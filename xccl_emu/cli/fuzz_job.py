"""What ``xccl-emu fuzz`` does and prints."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import typer

from xccl_emu.check.faults import KINDS, parse
from xccl_emu.check.verdict import VIOLATION
from xccl_emu.check.witness.render import print_others, print_witness
from xccl_emu.check.witness.replay_file import Witness
from xccl_emu.cli import ending
from xccl_emu.cli.cases import check_seconds, check_syncs, named
from xccl_emu.cli.check_show import verdict_table
from xccl_emu.cli.console import stdout_console
from xccl_emu.cli.files import check_file, protocol_of, replayed, save_witness
from xccl_emu.cli.fuzz import FuzzOptions
from xccl_emu.cli.schema import print_json
from xccl_emu.cli.shown import counting, file_of
from xccl_emu.errors import ConfigError, OutputError, ReplayError
from xccl_emu.fuzz.judge import SequenceBudget
from xccl_emu.fuzz.run import FailingSequence, FuzzPlan, FuzzSummary, fuzz
from xccl_emu.machine.state import ORDERS
from xccl_emu.protocol.registry import make, names
from xccl_emu.protocol.sequence import Sequence
from xccl_emu.sizes import some

EXAMPLES, WITHOUT_END = 200, 100_000


@dataclass(frozen=True)
class Result:
    """What the command came to."""

    summary: FuzzSummary
    protocol: str
    """As the user names it."""
    order: str
    seed: int
    kept: Path | None = None
    replayed: bool = False
    unsaved: str = ""
    """Why nothing was kept."""

    @property
    def exit_code(self) -> int:
        """1 for a finding, else whether it came to an end, and judged anything."""
        if self.replayed:
            return ending.WRONG if self.summary.findings[0].verdict.verdict == VIOLATION else ending.UNFINISHED
        if self.summary.findings:
            return ending.WRONG
        if self.summary.interrupted:
            return ending.BY_SIGNAL[self.summary.stopped]
        return ending.UNFINISHED if self.summary.killed or not self.summary.judged else 0


def act(options: FuzzOptions, words: list[str] | None, more: list[str] | None, as_json: bool) -> None:
    """Run the command; raises ``typer.Exit`` with its code, and OutputError if a finding cannot be kept."""
    result = run_fuzz(named(options, words, more), as_json)
    show(result, as_json)
    if result.unsaved:
        raise OutputError(result.unsaved)
    raise typer.Exit(result.exit_code)


def run_fuzz(options: FuzzOptions, quiet: bool) -> Result:
    """Fuzz, or replay; ConfigError for what the command line cannot mean."""
    _check(options)
    if options.replay is not None:
        return _replay(options, options.replay)
    assert options.protocol is not None
    summary = _watched(options, options.protocol, quiet)
    result = Result(summary, options.protocol, options.order, options.seed)
    return _kept(options, result) if summary.findings else result


def _check(options: FuzzOptions) -> None:
    if options.protocol is None and options.replay is None:
        raise ConfigError(f"PROTOCOL: must be one of {', '.join(names())}, or FILE.py:NAME")
    if options.order not in ORDERS:
        raise ConfigError(f"order={options.order!r}: must be one of {', '.join(ORDERS)}")
    check_seconds(options.seconds)
    for fault in options.fault:
        if fault not in KINDS:
            parse(fault)
    check_file("--out", options.out)
    if options.protocol is not None and options.replay is None:
        case = make(options.protocol, **options.sizes)
        case.build(options.order)
        check_syncs(case, options.without)


def _watched(options: FuzzOptions, protocol: str, quiet: bool) -> FuzzSummary:
    """The campaign, with a line on stderr that says how far it is."""
    examples = options.examples or (EXAMPLES if options.seconds is None else WITHOUT_END)
    budget = SequenceBudget(
        options.order, options.without, options.schedules, options.states, options.calls, faults=options.fault
    )
    file, colon, name = protocol.rpartition(":")
    if Path(file).is_file():  # workers of a cluster have folders of their own
        protocol = f"{Path(file).resolve()}{colon}{name}"
    plan = FuzzPlan(protocol, options.sizes, examples, options.seed, budget)
    workers = options.workers or len(os.sched_getaffinity(0))
    with counting("fuzz", examples, quiet) as count:

        def report(summary: FuzzSummary) -> None:
            count(summary.sequences, f"{some(summary.calls, 'calls')}, {some(summary.schedules, 'schedules')}")

        return fuzz(plan, workers, options.dask, options.seconds, report)


# ---- what is found is kept


def _kept(options: FuzzOptions, result: Result) -> Result:
    found = result.summary.findings[0]
    path, unsaved = save_witness(found.sequence(result.protocol), found.verdict, options.out)
    return replace(result, kept=path, unsaved=unsaved)


def _replay(options: FuzzOptions, path: Path) -> Result:
    """Return what the schedule of a file shows."""
    try:
        witness = Witness.load(path)
        if "stages" not in witness.configuration:
            raise ReplayError("is of xccl-emu check, which shows it again")
        protocol = options.protocol or protocol_of(witness, path)
        sequence = Sequence.read(protocol, witness.configuration)
    except ReplayError as error:
        raise ConfigError(f"--replay {path}: {error}") from error
    verdict = replayed(witness, sequence, path)
    finding = FailingSequence(verdict, str(witness.configuration["stages"]), witness.fault)
    summary = FuzzSummary(protocol, findings=[finding])
    return Result(summary, protocol, witness.order, options.seed, path, replayed=True)


# ---- what is printed


def show(result: Result, as_json: bool) -> None:
    """Print it."""
    if as_json:
        kept = None if result.kept is None else str(result.kept)
        about = {"order": result.order, "seed": result.seed, "replay_file": kept}
        return print_json("fuzz", result.summary.to_json() | about)
    for found in result.summary.findings[:1]:
        _show_finding(found, result)
    if not result.replayed:
        typer.echo(_counts(result.summary))
    if result.kept is not None and not result.replayed:
        typer.echo(f"show it again: xccl-emu fuzz --replay {result.kept}{file_of(result.protocol)}")


def _counts(summary: FuzzSummary) -> str:
    found = "a violation" if summary.findings else f"nothing found{summary.stopped and f', {summary.stopped}'}"
    return (
        f"{summary.protocol}: {found}; {some(summary.sequences, 'sequences')} of {some(summary.calls, 'calls')} in"
        f" {summary.seconds:.1f} s; {summary.judged:,} judged on {some(summary.schedules, 'schedules')},"
        f" {summary.proved:,} of them on every one ({some(summary.states, 'states')})"
    )


def _show_finding(found: FailingSequence, result: Result) -> None:
    console, sequence = stdout_console(), found.sequence(result.protocol)
    if found.verdict.violation is not None:
        print_witness(console, sequence.build(found.verdict.order, found.verdict.without), found.verdict.violation)
        print_others(console, found.verdict.others)
        console.print()
    for number, stage in enumerate(sequence.stages, 1):
        console.print(f"communicator {number}: {stage}", highlight=False, markup=False)
    console.print(verdict_table(replace(found.verdict, configuration={})))  # which is printed above it
