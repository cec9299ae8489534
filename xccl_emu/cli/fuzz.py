"""``xccl-emu fuzz``: sequences of calls of one protocol, drawn and judged."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from xccl_emu.base.errors import ConfigError, OutputError, ReplayError
from xccl_emu.base.options import Spread, one_of, option
from xccl_emu.base.sizes import some
from xccl_emu.cli import ending
from xccl_emu.cli.app import JSON, SET, WORDS, App, command_of, print_json
from xccl_emu.cli.cases import ANY_SIZE, check_seconds, check_syncs, named
from xccl_emu.cli.check import verdict_table
from xccl_emu.cli.files import check_file, protocol_of, replayed, save_witness
from xccl_emu.cli.shown import counting, file_of, stdout_console

if TYPE_CHECKING:
    from xccl_emu.fuzz.run import FailingSequence, FuzzSummary

EXAMPLES, WITHOUT_END = 200, 100_000


@dataclass(frozen=True)
class FuzzOptions(Spread):
    """Call a protocol again and again on one pod, with sizes that change, and judge what happens.

    Sequences are drawn from the sizes of the protocol: calls back to back on one communicator where it can make them,
    communicators one after the other or at the same time, ranks with nothing to do, a call replayed with its arguments
    frozen, hosts that launch apart, one fault. Each is judged on drawn schedules, and on every schedule if it is small.
    What is found is made short, calls first, then the schedule, and kept as a file that replays.

    Sizes of the protocol are options: --ranks 2. Those that are given are the same in all sequences.

    \b
      xccl-emu fuzz dispatch                       two hundred sequences
      xccl-emu fuzz sendrecv --path dma --seconds 60
      xccl-emu fuzz examples/prefix_sum/prefix_sum.py:PrefixSum --dies 2
      xccl-emu fuzz dispatch --replays 2           can a graph have captured it?
      xccl-emu fuzz --replay witnesses/found.json  show it again
      xccl-emu fuzz dispatch --seconds 3600 --dask tcp://scheduler:8786

    Exit code: 0 nothing found, 1 a violation, 2 wrong usage, 3 a worker was killed or a part failed, 130 Ctrl-C,
    143 SIGTERM; more of them: xccl-emu --help.
    """

    protocol: str | None = None
    sizes: dict[str, int | str] = field(default_factory=dict)
    examples: int | None = option(None, "Sequences [default: 200, or as many as --seconds allow]", least=1)
    seconds: float | None = option(None, "Begin nothing more after so long; what is compiled first does not count.")
    seed: int = option(0, "Seed of sequences and schedules.", least=0)
    order: str = option("relaxed", "Memory order: sc, fifo, relaxed or unordered.")
    without: tuple[str, ...] = option((), "Switch a synchronization off; may be given again.", metavar="SYNC")
    fault: tuple[str, ...] = option(
        (), "What breaks in a sequence: stop, cut, stall, duplicate, corrupt, or one fault as in check; may be given"
        " again [default: what the protocol says it tolerates]", metavar="KIND",
    )  # fmt: skip
    schedules: int = option(120, "Schedules that are drawn of each sequence.", least=1)
    states: int = option(20000, "Most states of a search of every schedule of a sequence; 0 for none.", least=0)
    calls: int = option(6, "Most calls of a sequence.", least=1)
    replays: int = option(
        0, "Replays of each call, as a captured graph has them: other data, the same arguments and addresses, fields as"
        " they were left. Each begins with the pod at rest; nothing else is drawn but sizes.", least=0,
    )  # fmt: skip
    replay: Path | None = option(None, "Show what a file that was kept shows, and draw nothing.")
    out: Path | None = option(None, "File to keep what is found in [default: named by the protocol]")


@dataclass(frozen=True)
class Result:
    """What the command came to."""

    summary: "FuzzSummary"
    protocol: str
    """The user's name of it."""
    replayed: bool = False
    unsaved: str = ""
    """Why nothing was kept."""

    @property
    def exit_code(self) -> int:
        """1 for a finding, else whether it came to an end, and judged anything."""
        from xccl_emu.check.verdict import VIOLATION

        if self.replayed:
            return ending.WRONG if self.summary.findings[0].verdict.verdict == VIOLATION else ending.UNFINISHED
        if self.summary.findings:
            return ending.WRONG
        if self.summary.interrupted:
            return ending.BY_SIGNAL[self.summary.stopped]
        return ending.UNFINISHED if self.summary.ended is not None or not self.summary.judged else 0


def act(options: FuzzOptions, words: list[str] | None, more: list[str] | None, as_json: bool) -> None:
    """Run the command; raises ``typer.Exit`` with its code, and OutputError if a finding cannot be kept."""
    result = run_fuzz(named(options, words, more), as_json)
    show(result, as_json)
    if result.unsaved:
        raise OutputError(result.unsaved)
    result.summary.raise_bug()
    raise typer.Exit(result.exit_code)


def run_fuzz(options: FuzzOptions, quiet: bool) -> Result:
    """Fuzz, or replay; ConfigError for what the command line cannot mean."""
    _check(options)
    if options.replay is not None:
        return _replay(options, options.replay)
    assert options.protocol is not None
    summary = _watched(options, options.protocol, quiet)
    result = Result(summary, options.protocol)
    return _kept(options, result) if summary.findings else result


def _check(options: FuzzOptions) -> None:
    from xccl_emu.check.faults import KINDS, parse
    from xccl_emu.machine.state import ORDERS
    from xccl_emu.protocol.registry import known, make, names
    from xccl_emu.protocol.sequence import Sequence, Stage, replayed

    if options.replay is not None and options.replays:
        said = f"--replays {options.replays}"
        raise ConfigError(f"{said}: cannot be combined with --replay; the file says what is replayed")
    if options.protocol is None and options.replay is None:
        raise ConfigError(f"PROTOCOL: must be one of {', '.join(names())}, or FILE.py:NAME")
    one_of("order", options.order, ORDERS)
    check_seconds(options.seconds)
    for fault in options.fault:
        if fault not in KINDS:
            parse(fault)
    check_file("--out", options.out)
    if options.protocol is not None and options.replay is None:
        case = make(options.protocol, **options.sizes)
        case.build(options.order)
        check_syncs(case, options.without)
        if options.replays:
            if "seed" not in case.configuration:
                raise ConfigError("--replays", options.replays, f"{case.name} has no seed, so no other data")
            stage = Stage(options.sizes)
            Sequence(known(options.protocol), (stage, replayed(stage, 1))).build(options.order)


def _watched(options: FuzzOptions, protocol: str, quiet: bool) -> "FuzzSummary":
    """The campaign, with a line on stderr that says how far it is."""
    from xccl_emu.fuzz.judge import SequenceBudget
    from xccl_emu.fuzz.run import FuzzPlan, fuzz

    examples = options.examples or (EXAMPLES if options.seconds is None else WITHOUT_END)
    budget = SequenceBudget(
        options.order, options.without, options.schedules, options.states, max(options.calls, 1 + options.replays),
        faults=options.fault, replays=options.replays,
    )  # fmt: skip
    file, colon, name = protocol.rpartition(":")
    if Path(file).is_file():  # workers of a cluster have folders of their own
        protocol = f"{Path(file).resolve()}{colon}{name}"
    plan = FuzzPlan(protocol, options.sizes, examples, options.seed, budget)
    with counting("fuzz", examples, quiet) as count:

        def report(summary: "FuzzSummary") -> None:
            count(summary.sequences, f"{some(summary.calls, 'calls')}, {some(summary.schedules, 'schedules')}")

        return fuzz(plan, options.processes, options.dask, options.seconds, report)


# ---- what is found is kept


def _kept(options: FuzzOptions, result: Result) -> Result:
    found = result.summary.findings[0]
    kept = save_witness(found.sequence(result.protocol), found.verdict, options.out)
    result.summary.replay_file, unsaved = kept
    return replace(result, unsaved=unsaved)


def _replay(options: FuzzOptions, path: Path) -> Result:
    """Return what the schedule of a file shows."""
    from xccl_emu.check.witness.replay_file import Witness
    from xccl_emu.fuzz.run import FailingSequence, FuzzSummary
    from xccl_emu.protocol.sequence import Sequence

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
    summary = FuzzSummary(protocol, [finding], witness.order, options.seed, path)
    return Result(summary, protocol, replayed=True)


# ---- what is printed


def show(result: Result, as_json: bool) -> None:
    """Print it."""
    if as_json:
        return print_json("fuzz", result.summary)
    for found in result.summary.findings[:1]:
        _show_finding(found, result)
    if not result.replayed:
        typer.echo(_counts(result.summary))
    kept = result.summary.replay_file
    if kept is not None and not result.replayed:
        typer.echo(f"show it again: xccl-emu fuzz --replay {kept}{file_of(result.protocol)}")


def _counts(summary: "FuzzSummary") -> str:
    found = "a violation" if summary.findings else f"nothing found{summary.stopped and f', {summary.stopped}'}"
    return (
        f"{summary.protocol}: {found}; {some(summary.sequences, 'sequences')} of {some(summary.calls, 'calls')} in"
        f" {summary.seconds:.1f} s; {summary.judged:,} judged on {some(summary.schedules, 'schedules')},"
        f" {summary.proved:,} of them on every one ({some(summary.states, 'states')})"
    )


def _show_finding(found: "FailingSequence", result: Result) -> None:
    from xccl_emu.check.witness.render import print_others, print_witness

    console, sequence = stdout_console(), found.sequence(result.protocol)
    if found.verdict.violation is not None:
        print_witness(console, sequence.build(found.verdict.order, found.verdict.without), found.verdict.violation)
        print_others(console, found.verdict.others)
        console.print()
    for number, stage in enumerate(sequence.stages, 1):
        console.print(f"communicator {number}: {stage}", highlight=False, markup=False)
    console.print(verdict_table(replace(found.verdict, configuration={})))  # which is printed above it


app = App.of(
    command_of(FuzzOptions, act, SET, JSON, first=(WORDS,)),
    no_args_is_help=True, context_settings=ANY_SIZE,
)  # fmt: skip
