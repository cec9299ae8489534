"""`xccl-emu bench NAME`: repeat the published measurements, and show them next to the published numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xccl_emu import measurements
from xccl_emu.cli import ending
from xccl_emu.cli.app import App
from xccl_emu.cli.cases import ANY_SIZE, CaseGroup, sizes_from
from xccl_emu.cli.files import check_plot
from xccl_emu.cli.options import CTX, JSON, Protocol, command_of, file, parameter
from xccl_emu.cli.perf import Perf
from xccl_emu.errors import ConfigError
from xccl_emu.options import Modelled, option

if TYPE_CHECKING:
    from xccl_emu.bench.result import Result
    from xccl_emu.bench.setting import Setting
    from xccl_emu.cli.bench_sweep import Partial

    Make = Callable[[Setting], Sequence[Result]]

app = App(cls=CaseGroup, no_args_is_help=True)

_Percent = Annotated[float, typer.Option(help="How far a row may move from --against, in percent.", min=0, metavar="X")]
_Band = Annotated[bool, typer.Option("--band", help="Say each row's 80% interval: runs at all constants' ends, too.")]
OUTPUTS = (
    JSON,
    file("csv", "Write the rows to a CSV file as well; to Parquet if it is named *.parquet."),
    file("plot", "Draw them to a PNG, SVG or PDF file."),
    file("against", "Compare with the rows of an earlier --json, a file; exit code 1 if one has moved."),
    parameter("tolerance", _Percent, 0.0),
    parameter("band", _Band, False),
)
"""How every bench shows its rows."""


@app.callback(subcommand_metavar="NAME [OPTIONS]...")
def _group() -> None:
    """Make published measurements again in virtual time: what was published, what comes out, and the error.

    \b
      xccl-emu bench fused                    one of those below
      xccl-emu bench dispatch --help          its options
      xccl-emu bench all-gather --ranks 8,16  one of xccl-emu list
      xccl-emu bench case --help              the options of these

    A row's role says what its published number may be used for: an "input" was put in as it is, free constants are
    fitted to "fit" rows, "check" rows are compared and never fitted to, "shown" ones are not scored, "exact" ones must
    come out exactly. FILE.py:NAME is a protocol too. Errors are signed. Exit code 1 if data that was moved is wrong, an
    exact row differs, or a row moved from --against; 3 if some of many points or benches failed: the others are shown.
    Ctrl-C and SIGTERM end it with 130 and 143, and what is done is shown.
    """


@dataclass(frozen=True)
class Output:
    """How the rows are shown."""

    as_json: bool
    csv: Path | None
    plot: Path | None
    against: Path | None
    tolerance: float
    band: bool


def _bench(make: "Make", output: Output, model: Modelled, seed: int = 0, no_data: bool = False) -> None:
    """Run a bench and show its rows; exit code 1 if one of them failed, 3 if some could not be made."""
    from xccl_emu.bench import against, baseline
    from xccl_emu.bench.setting import Setting
    from xccl_emu.cli.bench_show import check_csv, show, write_csv
    from xccl_emu.cli.shown import stages
    from xccl_emu.machine.free_memory import available_bytes
    from xccl_emu.timing import topologies

    check_csv(output.csv)
    before = against.read(output.against) if output.against else {}
    check_plot(output.plot)
    fabric, costs = topologies.model(model.fabric, model.cost)
    setting = Setting(fabric, costs, stages(quiet=output.as_json), seed, not no_data, available_bytes())
    results, failure = _made(make, setting)
    if output.band and failure is None:
        from xccl_emu.cli.bench_sweep import banded

        results = banded(results, setting, make, output.as_json)
    results = [setting.scored(result) for result in results]
    results += baseline.alpha_beta(results)
    moved = against.moved(results, before, output.tolerance) if output.against else []
    about = {"seed": seed, "data": setting.data, "stopped": "" if failure is None else str(failure), "moved": moved}
    show(results, output.as_json, "bench", about)
    if output.csv is not None:
        write_csv(results, output.csv)
    if output.plot is not None:
        from xccl_emu.cli.bench_plot import draw

        draw(results, output.plot, setting.fabric)
    if failure is not None:
        ending.raise_by(failure.code)
        raise failure
    for line in [] if output.as_json else moved:
        typer.echo(line)
    if moved or any(result.failed for result in results):
        raise typer.Exit(ending.WRONG)


def _made(make: "Make", setting: "Setting") -> "tuple[Sequence[Result], Partial | None]":
    """The rows, and why there are not more of them."""
    from xccl_emu.cli.bench_sweep import Partial

    try:
        return make(setting), None
    except Partial as error:
        return error.results, error


def _case(perf: Perf, ctx: typer.Context, protocol: str, **output: Any) -> None:
    from xccl_emu.cli.case_job import bench as bench_case

    def make(setting: "Setting") -> "Sequence[Result]":
        return bench_case(protocol, sizes_from(ctx.args), perf, setting)

    _bench(make, Output(**output), perf, no_data=perf.no_data)


CASE = (CTX, parameter("protocol", Protocol, CTX.default))
app.command("case", hidden=True, context_settings=ANY_SIZE)(command_of(Perf, _case, *OUTPUTS, first=CASE))


def _measure(made: measurements.Measurement, **output: Any) -> None:
    words = made.words if isinstance(made, measurements.Swept) else []

    def make(setting: "Setting") -> "Sequence[Result]":
        if not isinstance(made, measurements.Swept) or not words:
            return made.rows(setting)
        from xccl_emu.cli.bench_sweep import sweep

        return sweep(made.name, words, made.cores_used, made.dask, setting, output["as_json"])

    if made.own_fabric and made.fabric != measurements.Measurement.fabric:
        raise ConfigError(f"--fabric {made.fabric}: bench {made.name} has the fabric of its paper")
    _bench(make, Output(**output), made, made.seed, made.no_data)


for _name, _kind in measurements.found().items():
    app.command(_name)(command_of(_kind, _measure, *OUTPUTS))


@dataclass(frozen=True)
class Sensitivity(Modelled):
    """How far results move when a constant that no published row determines is at an end of its plausible range.

    Every constant of the model that is neither published nor fitted, one at a time; takes some minutes.
    """

    seed: int = option(0, "Seed of payloads and routings.", least=0)


def _sensitivity(options: Sensitivity, **output: Any) -> None:
    from xccl_emu.cli.bench_sweep import sensitivities

    shown = Output(**output)
    _bench(lambda setting: sensitivities(setting, shown.as_json), shown, options, options.seed)


app.command("sensitivity")(command_of(Sensitivity, _sensitivity, *OUTPUTS))


@dataclass(frozen=True)
class Every(measurements.Measurement):
    """Run all benches, on all cores as far as the memory goes; what two have in common is run once.

    Sensitivity comes last, but with --band, which says of each row what the constants do to it.
    """


def _every(options: Every, **output: Any) -> None:
    from xccl_emu.cli.bench_sweep import every_bench

    shown = Output(**output)
    _bench(
        lambda setting: every_bench(setting, shown.as_json, ends=not shown.band),
        shown, options, options.seed, options.no_data,
    )  # fmt: skip


app.command("all")(command_of(Every, _every, *OUTPUTS))
