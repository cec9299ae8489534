"""What ``xccl-emu litmus`` does and prints."""

from collections.abc import Sequence
from typing import Any

import typer
from rich.markup import escape
from rich.table import Table

from xccl_emu.ascendc import BARRIERS, litmus
from xccl_emu.ascendc.litmus import LitmusTest, MachineModel, Outcome
from xccl_emu.cli import ending
from xccl_emu.cli.console import stdout_console
from xccl_emu.cli.litmus import LitmusOptions
from xccl_emu.cli.schema import print_json
from xccl_emu.cli.shown import counting, right
from xccl_emu.errors import ConfigError
from xccl_emu.sizes import some

_CHOICES = {"emulate": ("", *litmus.ORDERS), "barrier": BARRIERS, "homes": tuple(litmus.HOMES)}


def act(options: LitmusOptions, programs: list[str] | None, as_json: bool) -> None:
    """Run the command; raises ``typer.Exit`` with its code."""
    for name, choices in _CHOICES.items():
        if getattr(options, name) not in choices:
            raise ConfigError(f"--{name} {getattr(options, name)!r}: must be one of {', '.join(filter(None, choices))}")
    if options.read is not None and (programs or options.emulate):
        raise ConfigError("--read: takes no programs and no --emulate: the programs come from the file")
    if options.emulate and as_json:
        raise ConfigError("--emulate: prints a results file, which is CSV; leave out --json")
    chosen = litmus.named(programs or ())
    if options.read is not None:
        return _read(options, as_json)
    if options.emulate:
        return typer.echo(_emulated(options, chosen), nl=False)
    _list(options, chosen, as_json)


def _emulated(options: LitmusOptions, programs: Sequence[LitmusTest]) -> str:
    counted, machine = dict[str, dict[Outcome, int]](), (options.emulate, options.barrier, options.homes)
    for program in programs:
        counted[program.name] = litmus.counted(program, litmus.ran(program, *machine, options.rounds, options.seed))
    return litmus.csv_of(counted)


# ---- what is allowed


def _list(options: LitmusOptions, programs: Sequence[LitmusTest], as_json: bool) -> None:
    shown = list[dict[str, Any]]()
    with counting("litmus", len(programs), quiet=as_json) as count:
        for i, program in enumerate(programs):
            count(i, program.name)
            shown.append({
                "program": program.name, "threads": program.texts, "outcomes": [*_allowed(program, options.homes)],
            })  # fmt: skip
    if as_json:
        return print_json("litmus", {"homes": options.homes, "litmus": shown})
    table = Table("program", "outcome", *litmus.ORDERS, title="what may come", title_style="")
    for each in shown:
        name = each["program"]
        table.add_row(name, f"[bold]{escape(' || '.join(each['threads']))}[/]", end_section=False)
        for one in each["outcomes"]:
            table.add_row("", one["outcome"], *(_cell(one["allowed"], order) for order in litmus.ORDERS))
        table.add_section()
    console = stdout_console()
    console.print(table)
    console.print(
        "empty: where PipeBarrier only says that pipes are empty, not that writes are visible", highlight=False
    )


def _allowed(program: LitmusTest, homes: str) -> list[dict[str, Any]]:
    """List each outcome, and the orders that allow it by each reading of a barrier."""
    found = {
        (barrier, order): litmus.allowed(program, order, barrier, homes)
        for barrier in BARRIERS for order in litmus.ORDERS
    }  # fmt: skip
    return [
        {"outcome": litmus.text_of(outcome), "allowed": {
            barrier: [order for order in litmus.ORDERS if outcome in found[barrier, order]] for barrier in BARRIERS
        }}
        for outcome in sorted(frozenset().union(*found.values()), key=litmus.text_of)
    ]  # fmt: skip


def _cell(allowed: dict[str, list[str]], order: str) -> str:
    readings = [barrier for barrier in BARRIERS if order in allowed[barrier]]
    return "yes" if len(readings) == len(BARRIERS) else "".join(readings)


# ---- what is refuted


def _read(options: LitmusOptions, as_json: bool) -> None:
    assert options.read is not None
    results = litmus.read(options.read)
    models = litmus.models(results, options.homes)
    left, runs = litmus.strongest(models), sum(sum(counts.values()) for counts in results.values())
    if as_json:
        shown = [_named(model) | {"refuted_by": _refutations(model)} for model in models]
        chosen = [_named(model) for model in left]
        print_json("litmus", {"homes": options.homes, "n_rounds": runs, "models": shown, "set": chosen})
    else:
        _show(models, left, f"{some(runs, 'rounds')} of {some(len(results), 'programs')}")
    raise typer.Exit(0 if left else ending.WRONG)


def _named(model: MachineModel) -> dict[str, Any]:
    return {"order": model.order, "barrier": model.barrier}


def _refutations(model: MachineModel) -> list[dict[str, Any]]:
    return [
        {"program": name, "outcome": litmus.text_of(outcome), "count": n} for name, outcome, n in model.refuted_by
    ]  # fmt: skip


def _show(models: Sequence[MachineModel], left: Sequence[MachineModel], what: str) -> None:
    table = Table("order", "barrier", "", "by", "outcome", *right("times"), title=what, title_style="")
    for model in models:
        worst = max(_refutations(model), key=lambda each: each["count"], default=None)
        found = ("[red]refuted[/]", *map(str, worst.values())) if worst else ("[green]not refuted[/]", "", "", "")
        table.add_row(model.order, model.barrier, *found)
    console = stdout_console()
    console.print(table)
    for model in left:
        says = f"--order {model.order} --barrier {model.barrier}"
        console.print(f"set {says}: the results fit, and refute what is stronger", highlight=False)
    if not left:
        console.print(
            "no order and no reading of a barrier has all of these outcomes: the emulator has no such machine"
        )
    else:
        console.print("what did not come may still come: a weaker machine is never refuted", highlight=False)
