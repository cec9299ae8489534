"""`xccl-emu bench NAME`: repeat the published measurements, and show them next to the published numbers."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from xccl_emu.base import early
from xccl_emu.base.errors import ConfigError, UnfinishedError
from xccl_emu.base.jobs import Job, Stopped, collect
from xccl_emu.base.options import Modelled, option
from xccl_emu.base.sizes import parse_size
from xccl_emu.base.stage import silent
from xccl_emu.cli import ending
from xccl_emu.cli.app import CTX, JSON, App, Protocol, command_of, file, parameter
from xccl_emu.cli.cases import ANY_SIZE, CaseGroup, sizes_from
from xccl_emu.cli.files import check_plot
from xccl_emu.cli.shown import counting, stages
from xccl_emu.papers import measurements
from xccl_emu.papers.cli.perf import Perf, case_jobs, price_rows

if TYPE_CHECKING:
    from xccl_emu.papers.bench.result import Result
    from xccl_emu.papers.bench.setting import Setting

    Make = Callable[[Setting], Iterable[Result]]

T = TypeVar("T")
_SOON_S = 2.0
"""Within which nobody asks how far it is."""
app = App(cls=CaseGroup, no_args_is_help=True)

_Percent = Annotated[float, typer.Option(help="How far a row may move from --against, in percent.", min=0, metavar="X")]
_Band = Annotated[bool, typer.Option("--band", help="Say each row's 80% interval: runs at all constants' ends, too.")]
_Memory = Annotated[
    str | None,
    typer.Option(help="Most memory that it takes, such as 8GB or 512MiB [default: what is free]", metavar="SIZE"),
]
OUTPUTS = (
    JSON,
    file("csv", "Write the rows to a CSV file as well; to Parquet if it is named *.parquet."),
    file("plot", "Draw them to a PNG, SVG or PDF file."),
    file("against", "Compare with the rows of an earlier --json, a file; exit code 1 if one has moved."),
    parameter("tolerance", _Percent, 0.0),
    parameter("band", _Band, False),
    parameter("memory", _Memory),
)
"""How every bench shows its rows, and what it may take for them."""


@app.callback(subcommand_metavar="NAME [OPTIONS]...")
def _group() -> None:
    """Make published measurements again in virtual time: what was published, what comes out, and the error.

    \b
      xccl-emu bench fused                    one of those below
      xccl-emu bench dispatch --help          its options
      xccl-emu bench all-gather --ranks 8,16  one of xccl-emu list
      xccl-emu bench case --help              the options of these
      xccl-emu bench fused --memory 8GB       payload moves where it fits

    A row's role says what its published number may be used for: an "input" was put in as it is, free constants are
    fitted to "fit" rows, "check" rows are compared and never fitted to, "shown" ones are not scored, "exact" ones must
    come out exactly. FILE.py:NAME is a protocol too. Errors are signed. Exit code 1 if data that was moved is wrong, an
    exact row differs, or a row moved from --against; 3 if some of many points or benches failed, or found no room in
    memory (times are the same without payload, so rows say which were not compared): the others are shown. Ctrl-C and
    SIGTERM end it with 130 and 143, and what is done is shown.
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
    memory: str | None

    @property
    def bytes(self) -> int:
        """Memory that it may take; ConfigError for what is no size."""
        from xccl_emu.base.free_memory import available_bytes

        return available_bytes() if self.memory is None else min(available_bytes(), parse_size("--memory", self.memory))


class Partial(UnfinishedError):
    """Some results, and why there are no more."""

    def __init__(self, stopped: Stopped, results: "list[Result]") -> None:
        super().__init__(stopped.why)
        self.stopped, self.results = stopped, results


def _bench(make: "Make", output: Output, model: Modelled, seed: int = 0, no_data: bool = False) -> None:
    """Run a bench and show its rows; exit code 1 if one of them failed, 3 if some could not be made."""
    from xccl_emu.base.free_memory import peak_bytes
    from xccl_emu.papers.bench import baseline
    from xccl_emu.papers.bench.result import FAILED, ONCE, BenchRows
    from xccl_emu.papers.bench.setting import Setting
    from xccl_emu.papers.cli.bench_show import check_csv, show, write_csv
    from xccl_emu.timing import topologies

    check_csv(output.csv)
    before = baseline.read(output.against) if output.against else {}
    check_plot(output.plot)
    fabric, costs = topologies.model(model.fabric, model.cost)
    setting = Setting(fabric, costs, stages(quiet=output.as_json), seed, not no_data, output.bytes).keeping()
    results, failure = _made(make, setting, _sayer(output.as_json))
    if output.band and (failure is None or not failure.stopped.code):
        results, failure = _made(partial(banded, results, make, output.as_json), setting)
    results = [setting.scored(result) for result in results]
    several = len({result.bench for result in results if result.wire}) > 1
    results += [*baseline.alpha_beta(results), *(baseline.alpha_beta(results, ONCE) if several else ())]
    moved = baseline.moved(results, before, output.tolerance) if output.against else []
    stopped = "" if failure is None else str(failure)
    show(BenchRows(results, seed, setting.data, stopped, moved, peak_bytes()), output.as_json, "bench")
    if output.csv is not None:
        write_csv(results, output.csv)
    if output.plot is not None:
        from xccl_emu.papers.cli.bench_plot import draw

        draw([result for result in results if result.role != FAILED], output.plot, setting.fabric)
    if failure is not None:
        failure.stopped.end()
    for line in [] if output.as_json else moved:
        typer.echo(line)
    if moved or any(result.failed for result in results):
        raise typer.Exit(ending.WRONG)


def _made(
    make: "Make", setting: "Setting", say: "Callable[[Result], None]" = lambda row: None
) -> "tuple[list[Result], Partial | None]":
    """The rows, and why there are not more of them; ``say`` is given each that is not made with all others."""
    from xccl_emu.papers.bench.result import FAILED

    rows: list[Result] = []
    try:
        made = make(setting)
        for row in made:
            rows.append(row)
            if not isinstance(made, list):
                say(row)
    except Partial as error:
        return error.results, error
    except BaseException as error:
        if not rows or not (code := early.put_off(error)):
            raise
        return rows, Partial(Stopped(early.SAID[code], code), rows)
    left = [f"\n  {row.what}: {row.note}" for row in rows if row.role == FAILED]
    return rows, Partial(Stopped(f"not all of it found room in memory:{''.join(left)}"), rows) if left else None


def _sayer(quiet: bool) -> "Callable[[Result], None]":
    """A function that says each row on stderr as soon as the command has taken longer than two seconds."""
    waiting, started = list[str](), time.monotonic()

    def say(row: "Result") -> None:
        from xccl_emu.papers.cli.bench_show import row_text

        waiting.append(row_text(row))
        while not quiet and waiting and time.monotonic() - started > _SOON_S:
            ending.say(waiting.pop(0))

    return say


def _case(perf: Perf, ctx: typer.Context, protocol: str, **output: Any) -> None:
    def make(setting: "Setting") -> "Sequence[Result]":
        sizes = sizes_from(ctx.args)
        jobs = case_jobs(protocol, sizes, perf, setting)
        rows = rows_of_jobs(
            protocol, jobs, True, lambda done: [*done.values()], lambda _: protocol, workers=1
        )  # stages of a run say how far it is
        if perf.price:
            rows += price_rows(protocol, sizes, perf, setting)
            setting.granted.clear()  # runs without a synchronization have clocks of their own
        return rows

    _bench(make, Output(**output), perf, no_data=perf.no_data)


CASE = (CTX, parameter("protocol", Protocol, CTX.default))
app.command("case", hidden=True, context_settings=ANY_SIZE)(command_of(Perf, _case, *OUTPUTS, first=CASE))


def _measure(made: measurements.Measurement, **output: Any) -> None:
    words = made.words if isinstance(made, measurements.Swept) else []

    def make(setting: "Setting") -> "Iterable[Result]":
        if not isinstance(made, measurements.Swept) or not words:
            rows = made.rows(setting)
            explained = setting.explained(made.name, rows)
            return [*explained] if isinstance(rows, list) else explained
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
    shown = Output(**output)
    _bench(lambda setting: sensitivities(setting, shown.as_json), shown, options, options.seed)


app.command("sensitivity")(command_of(Sensitivity, _sensitivity, *OUTPUTS))


@dataclass(frozen=True)
class Every(measurements.Measurement):
    """Run all benches with rows to check, and more, on all cores as far as the memory goes; then the scoreboard.

    The scoreboard has all check rows by table: how far the model is off, and an alpha-beta line. What two benches have
    in common is run once. What assumed constants do says: bench sensitivity
    """


def _every(options: Every, **output: Any) -> None:
    shown = Output(**output)
    _bench(lambda setting: every_bench(setting, shown.as_json), shown, options, options.seed, options.no_data)


app.command("all")(command_of(Every, _every, *OUTPUTS))


# ---- many jobs, with a bar that says how many are done


def sweep(
    bench: str, words: Sequence[str], cores: int, dask: str | None, setting: "Setting", quiet: bool
) -> "list[Result]":
    """Run a bench at every point of a grid; raises ConfigError for what is no grid, and as `rows_of_jobs`."""
    from xccl_emu.papers.bench.sweep import in_order, jobs, parse_axes, points

    made = points(bench, parse_axes(words), cores, setting)
    return rows_of_jobs("sweep", jobs(made), quiet, lambda done: in_order(done.values()), lambda _: bench, dask=dask,
                        free_bytes=math.inf if dask else setting.free_bytes)  # fmt: skip


def sensitivities(setting: "Setting", quiet: bool) -> "list[Result]":
    """Run everything with each assumed constant at both ends of its range; raises as `rows_of_jobs`."""
    from xccl_emu.papers.bench.sensitivity import jobs, results_of

    ends = jobs(setting)
    return rows_of_jobs("runs", ends, quiet, results_of, lambda _: "sensitivity", free_bytes=setting.free_bytes)


def banded(results: "list[Result]", make: "Make", quiet: bool, setting: "Setting") -> "list[Result]":
    """Give the rows of a bench their intervals, from runs one by one: each may take all memory and all cores.

    Raises `Partial` with the rows as they are if one of them fails, or a signal comes.
    """
    from xccl_emu.papers.bench import band

    ends = band.jobs(setting, partial(_whole, make))
    with counting("constants", len(ends), quiet) as count:
        found = collect(ends, lambda one, ended: count(ended, one.job.name), workers=1)
    if found.stopped is not None:
        raise Partial(found.stopped, results)
    return band.with_bands(results, found.done.values())


def _whole(make: "Make", setting: "Setting") -> "Sequence[Result]":
    """All rows of a bench; raises what keeps it from making some."""
    results, failure = _made(make, setting)
    if failure is not None:
        failure.stopped.end()
    return results


def every_bench(setting: "Setting", quiet: bool) -> "list[Result]":
    """Run all benches that take part (`Suite`); raises as `rows_of_jobs`."""
    kinds = [(kind, kind.suite) for kind in measurements.found().values() if kind.suite is not None]
    kinds.sort(key=lambda one: one[1].turn)
    quietly = replace(setting, stage=silent).keeping()
    jobs = [
        Job(f"bench {kind.name}", partial(_rows_of, kind, quietly), suite.bytes_needed(setting.data))
        for kind, suite in kinds
    ]

    def in_order(done: "Mapping[int, list[Result]]") -> "list[Result]":
        return [row for number in sorted(done, key=lambda one: kinds[one][1].place) for row in done[number]]

    name_of = [kind.name for kind, _ in kinds].__getitem__
    return rows_of_jobs("benches", jobs, quiet, in_order, name_of, free_bytes=setting.free_bytes)


def _rows_of(kind: type[measurements.Measurement], setting: "Setting") -> "list[Result]":
    """The rows of a measurement, in any process."""
    return [*setting.explained(kind.name, kind().rows_in_suite(setting))]


def rows_of_jobs(
    name: str, jobs: Sequence[Job[T]], quiet: bool, in_order: "Callable[[dict[int, T]], list[Result]]",
    bench_of: Callable[[int], str], *, free_bytes: float = math.inf, **where: Any,
) -> "list[Result]":  # fmt: skip
    """Return what all jobs found, by their numbers, in order.

    A job that would need more than ``free_bytes`` has them for itself, and says what found no room.

    Raises `Partial` if a failure or a signal leaves some, with a row for each that failed; and where nothing is done
    the error of the first, if all failed in the same way.
    """
    from xccl_emu.papers.bench.result import FAILED, Result

    jobs = [replace(job, bytes_needed=int(min(job.bytes_needed, free_bytes))) for job in jobs]
    where |= {"free_bytes": free_bytes, "advice": "take --no-data, or less"}
    with counting(name, len(jobs), quiet, every_s=0) as count:
        found = collect(jobs, lambda _, ended: count(ended, name), **where)
    made, stopped = in_order(found.done), found.stopped
    if stopped is None:
        return made
    if not made:
        found.end()
    rows = [Result(bench_of(one.number), one.job.name, None, "", role=FAILED, note=one.failure) for one in found.failed]
    raise Partial(stopped, made + rows)
