"""``xccl-emu litmus``: what small programs may come to on each machine, and which machines a results file refutes."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xccl_emu.base import words as w
from xccl_emu.base.errors import ConfigError
from xccl_emu.base.jobs import Job, collect
from xccl_emu.base.options import Spread, must_be_one_of, option
from xccl_emu.base.sizes import some
from xccl_emu.cli import ending
from xccl_emu.cli.app import JSON, App, command_of, print_json, words
from xccl_emu.cli.shown import counting, escape, right, stdout_console, table

if TYPE_CHECKING:
    from xccl_emu.doors.ascendc.litmus import LitmusTest, MachineModel, Outcome


@dataclass(frozen=True)
class LitmusOptions(Spread):
    """Distinguish memory orders and readings of barriers and loads by litmus programs, on hardware by an operator.

    Without options: the programs, and what each may come to under each order, as a search of the operator finds it.
    With a results file of a machine (`program,outcome,count`): which orders and readings it refutes, and what to set.

    \b
      xccl-emu litmus SB MP CoWW MP_f_po
      xccl-emu litmus SB MP CoWW --emulate fifo > results.csv
      xccl-emu litmus --read results.csv

    W and R write and read by the scalar unit, C and P by copies; F is PipeBarrier<PIPE_ALL>, S is
    PipeBarrier<PIPE_MTE3>. What did not come in a run may still come: a results file refutes models, and proves none.
    docs/machine.md says how the operator is run on hardware, in Ascend C or in CUDA C++. It needs a C++ compiler.

    Exit code: 0, 1 if the results refute every model that there is, 3 if some of the programs failed: the others are
    shown.
    """

    read: Path | None = option(None, "Results of a machine, as CSV.")
    emulate: str = option("", "Print the results of an emulated machine of this order.", metavar="ORDER")
    barrier: str = option("visible", "How the emulated machine reads a barrier: visible or empty.")
    loads: str = option("awaited", "How it and the list make reads: awaited, or in flight until a fence (flight).")
    homes: str = option("one", "Where cells are: one (all with thread 0) or own (a die for each).")
    rounds: int = option(1000, "Rounds of each program on the emulated machine.", least=1, most=1_000_000)
    seed: int = option(0, "Of its random schedules.", least=0)


Loads = Annotated[str, "how reads are made: `awaited`, or `flight`: later than what follows them, up to a fence"]


@dataclass(frozen=True)
class LitmusOutcome(w.Printed):
    """What a litmus program may come to."""

    outcome: Annotated[str, "registers as `1:a=0`, and last values of cells as `x=1`"]
    allowed: Annotated[dict[str, list[str]], "the memory orders that allow it, by reading of a barrier"]


@dataclass(frozen=True)
class LitmusProgram(w.Printed):
    """A litmus program."""

    program: Annotated[str, "its name or text"]
    threads: Annotated[Sequence[str], "the operations of each thread"]
    outcomes: Annotated[list[LitmusOutcome], "what it may come to"]


@dataclass(frozen=True)
class LitmusAllowed(w.Printed):
    """What litmus programs may come to."""

    homes: Annotated[str, "where cells are: `one` or `own`"]
    loads: Loads
    litmus: Annotated[list[LitmusProgram], "the programs, and what each may come to"]


@dataclass(frozen=True)
class Refutation(w.Printed):
    """An outcome that a model does not allow."""

    program: Annotated[str, "its name or text"]
    outcome: Annotated[str, "registers as `1:a=0`, and last values of cells as `x=1`"]
    count: Annotated[int, "how often it came"]


@dataclass(frozen=True)
class ModelSetting(w.Printed):
    """What a pod is set to."""

    RECORD = "Setting"
    order: w.Order
    barrier: Annotated[str, "how a barrier is read: `visible` or `empty`"]
    loads: Loads


@dataclass(frozen=True)
class JudgedModel(w.Printed):
    """A machine as the emulator has it."""

    RECORD = "Model"
    setting: Annotated[ModelSetting, w.INLINE]
    refuted_by: Annotated[list[Refutation], "the outcomes that it does not allow"]


@dataclass(frozen=True)
class LitmusRead(w.Printed):
    """What a results file says of each machine."""

    homes: Annotated[str, "where cells are: `one` or `own`"]
    made_by: Annotated[list[str], "what the file says of the machine that made it"]
    n_rounds: Annotated[int, "rounds of all programs"]
    models: Annotated[list[JudgedModel], "every machine that there is, strongest first"]
    left: Annotated[
        list[ModelSetting], "what nothing refutes, but for machines that are weaker than another one of these",
        w.As("set"),
    ]  # fmt: skip
    in_flight: Annotated[
        list[str], "programs with outcomes that fit since loads are in flight, which no other command has"
    ]  # fmt: skip


def act(options: LitmusOptions, programs: list[str] | None, as_json: bool) -> None:
    """Run the command; raises ``typer.Exit`` with its code."""
    from xccl_emu.doors.ascendc import BARRIERS, litmus

    all_of = {"emulate": ("", *litmus.ORDERS), "barrier": BARRIERS}
    all_of |= {"loads": litmus.LOADS, "homes": tuple(litmus.HOMES)}
    for name, choices in all_of.items():
        if (given := getattr(options, name)) not in choices:
            raise ConfigError(f"--{name} {given!r}: {must_be_one_of(given, [*filter(None, choices)])}")
    if options.read is not None and (programs or options.emulate):
        raise ConfigError("--read: takes no programs and no --emulate: the programs come from the file")
    for name in ("workers", "dask"):
        if getattr(options, name) is not None and (options.read is not None or options.emulate):
            raise ConfigError(f"--{name} {getattr(options, name)}: takes no --read and no --emulate")
    if options.emulate and as_json:
        raise ConfigError("--emulate: prints a results file, which is CSV; leave out --json")
    chosen = litmus.named(programs or ())
    if options.read is not None:
        return _read(options, as_json)
    if options.emulate:
        return typer.echo(_emulated(options, chosen), nl=False)
    _list(options, chosen, as_json)


def _emulated(options: LitmusOptions, programs: Sequence["LitmusTest"]) -> str:
    from xccl_emu.doors.ascendc import litmus

    counted, machine = dict[str, "dict[Outcome, int]"](), (options.emulate, options.barrier, options.homes)
    for program in programs:
        counts, tests = Counter["Outcome"](), litmus.variants(program, options.loads)
        share, more = divmod(options.rounds, len(tests))
        for number, test in enumerate(tests):
            if rounds := share + (number < more):
                counts += litmus.counted(test, litmus.ran(test, *machine, rounds, options.seed))
        counted[program.name] = counts
    return litmus.csv_of(counted)


# ---- what is allowed


def _list(options: LitmusOptions, programs: Sequence["LitmusTest"], as_json: bool) -> None:
    jobs = [Job(program.name, partial(_may_come, program, options.homes, options.loads)) for program in programs]
    with counting("litmus", len(jobs), quiet=as_json) as count:
        done = collect(
            jobs, lambda one, ended: count(ended, one.job.name), workers=options.processes, dask=options.dask
        )
    if done.done:
        shown = [done.done[number] for number in sorted(done.done)]
        if as_json:
            print_json("litmus", LitmusAllowed(options.homes, options.loads, shown))
        else:
            _show_allowed(shown)
    done.end()


def _may_come(program: "LitmusTest", homes: str, loads: str) -> LitmusProgram:
    """Find all that a program may come to, in any process."""
    return LitmusProgram(program.name, program.texts, _allowed(program, homes, loads))


def _show_allowed(shown: Sequence[LitmusProgram]) -> None:
    from xccl_emu.doors.ascendc import litmus

    found = table("program", "outcome", *litmus.ORDERS, title="what may come", title_style="")
    for each in shown:
        found.add_row(each.program, f"[bold]{escape(' || '.join(each.threads))}[/]", end_section=False)
        for one in each.outcomes:
            found.add_row("", one.outcome, *(_cell(one.allowed, order) for order in litmus.ORDERS))
        found.add_section()
    console = stdout_console()
    console.print(found)
    console.print(
        "empty: where PipeBarrier only says that pipes are empty, not that writes are visible", highlight=False
    )


def _allowed(program: "LitmusTest", homes: str, loads: str) -> list[LitmusOutcome]:
    """List each outcome, and the orders that allow it by each reading of a barrier."""
    from xccl_emu.doors.ascendc import BARRIERS, litmus

    found = {
        (barrier, order): frozenset().union(
            *(litmus.allowed(test, order, barrier, homes) for test in litmus.variants(program, loads))
        )
        for barrier in BARRIERS for order in litmus.ORDERS
    }  # fmt: skip
    return [
        LitmusOutcome(litmus.text_of(outcome), {
            barrier: [order for order in litmus.ORDERS if outcome in found[barrier, order]] for barrier in BARRIERS
        })
        for outcome in sorted(frozenset().union(*found.values()), key=litmus.text_of)
    ]  # fmt: skip


def _cell(allowed: dict[str, list[str]], order: str) -> str:
    readings = [barrier for barrier, orders in allowed.items() if order in orders]
    return "yes" if len(readings) == len(allowed) else "".join(readings)


# ---- what is refuted


def _read(options: LitmusOptions, as_json: bool) -> None:
    from xccl_emu.doors.ascendc import litmus

    assert options.read is not None
    results, machine = litmus.read(options.read), litmus.made_by(options.read)
    models = litmus.models(results, options.homes)
    left, runs = litmus.strongest(models), sum(sum(counts.values()) for counts in results.values())
    in_flight = litmus.by_flight_alone(models, left)
    if as_json:
        shown = [JudgedModel(_setting(model), _refutations(model)) for model in models]
        print_json("litmus", LitmusRead(options.homes, machine, runs, shown, [*map(_setting, left)], in_flight))
    else:
        for line in machine:
            typer.echo(line)
        _show(models, left, in_flight, f"{some(runs, 'rounds')} of {some(len(results), 'programs')}")
    raise typer.Exit(0 if left else ending.WRONG)


def _setting(model: "MachineModel") -> ModelSetting:
    return ModelSetting(model.order, model.barrier, model.loads)


def _refutations(model: "MachineModel") -> list[Refutation]:
    from xccl_emu.doors.ascendc import litmus

    return [Refutation(name, litmus.text_of(outcome), n) for name, outcome, n in model.refuted_by]


def _show(
    models: Sequence["MachineModel"], left: Sequence["MachineModel"], in_flight: Sequence[str], what: str
) -> None:  # fmt: skip
    rows = table("order", "barrier", "loads", "", "by", "outcome", *right("times"), title=what, title_style="")
    for model in models:
        worst = max(_refutations(model), key=lambda each: each.count, default=None)
        found = ("[green]not refuted[/]", "", "", "") if worst is None else (
            "[red]refuted[/]", worst.program, worst.outcome, str(worst.count)
        )  # fmt: skip
        rows.add_row(model.order, model.barrier, model.loads, *found)
    console = stdout_console()
    console.print(rows)
    for line in _said(left, in_flight):
        console.print(line, highlight=False)


def _said(left: Sequence["MachineModel"], in_flight: Sequence[str]) -> Iterator[str]:
    """Say what to set, and what that does not have."""
    for model in left:
        fits = "fit where loads are in flight" if in_flight else "fit"
        yield f"set --order {model.order} --barrier {model.barrier}: the results {fits}, and refute what is stronger"
    if in_flight:
        yield f"loads in flight: only a load that is made later than what follows it explains {', '.join(in_flight)}"
        yield "check makes each load in program order, in CUDA C++ too: that is stronger, and it sees no such outcome"
        yield "not concerned: a load that is awaited before what follows, as a poll is, or has a fence after it"
    if left:
        yield "what did not come may still come: a weaker machine is never refuted"
    else:
        yield "no order, and no reading of barriers and loads, has all of these outcomes: there is no such machine here"


_PROGRAMS = words("programs", "PROGRAM", "Names of programs [default: all].")
app = App.of(command_of(LitmusOptions, act, JSON, first=(_PROGRAMS,)))
