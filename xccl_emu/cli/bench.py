"""`xccl-emu bench NAME`: the published measurements, made again, with what was published beside."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xccl_emu.cli.app import App
from xccl_emu.cli.cases import ANY_SIZE, CaseGroup, sizes_from
from xccl_emu.cli.ending import WRONG
from xccl_emu.errors import ConfigError, UnfinishedError

if TYPE_CHECKING:
    from xccl_emu.bench.result import Result
    from xccl_emu.bench.setting import Setting

app = App(
    cls=CaseGroup,
    help="Make published measurements again in virtual time: what was published, what comes out, and the error.",
    no_args_is_help=True,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON and nothing else.")]
Csv = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the rows to a CSV file as well.")]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw them to a PNG, SVG or PDF file.")]
NoData = Annotated[bool, typer.Option("--no-data", help="Move no payload and check nothing: the same times, faster.")]
Sweep = Annotated[
    list[str] | None,
    typer.Option("--sweep", metavar="AXIS=FROM:TO", help="Every point of ep=8:768 batch=1:128 (default: 128)."),
]
MoreAxes = Annotated[list[str] | None, typer.Argument(metavar="[AXIS=FROM:TO]...", help="More axes of --sweep.")]
Dask = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Sweep on this Dask scheduler's cluster, or: local")]
Cores = Annotated[int, typer.Option(min=1, max=48, help="Cores used on each die.")]
TRANSFERS_MAX = 1000
"""As `bench.sendrecv.TRANSFERS_MAX`, which is not imported before a bench runs."""
BATCHES = "1,2,4,8,16,32,64,128"
Seed = Annotated[int, typer.Option(min=0, help="Seed of payloads and routings.")]


@app.callback()
def _group() -> None:
    """Make published measurements again in virtual time: what was published, what comes out, and the error.

    A row's role says what its published number may be used for: an "input" was put in as it is, free constants are
    fitted to "fit" rows, "check" rows are compared and never fitted to, "shown" ones are not scored, "exact" ones must
    come out exactly. FILE.py:NAME is a protocol too. Errors are signed. Exit code 1 if data that was moved is wrong,
    or an exact row differs; 3 if some of many points or benches failed: the others are shown.
    """


def _bench(
    make: "Callable[[Setting], Sequence[Result]]",
    as_json: bool,
    csv: Path | None,
    plot: Path | None = None,
    seed: int = 0,
    no_data: bool = False,
) -> None:
    """Run a bench and show its rows; exit code 1 if one of them failed, 3 if some could not be made."""
    from xccl_emu.bench.memory import available_bytes
    from xccl_emu.bench.setting import Setting
    from xccl_emu.cli.bench_show import check_csv, show, write_csv
    from xccl_emu.cli.show import Stages

    check_csv(csv)
    if plot is not None:
        from xccl_emu.cli.bench_plot import check_plot

        check_plot(plot)
    setting = Setting(stage=Stages(quiet=as_json), seed=seed, data=not no_data, free_bytes=available_bytes())
    results, failure = _made(make, setting)
    told: dict[str, object] = {"seed": seed, "data": setting.data}
    show(results, as_json, told | ({"unfinished": str(failure)} if failure else {}))
    if csv is not None:
        write_csv(results, csv)
    if plot is not None:
        from xccl_emu.cli.bench_plot import draw

        draw(results, plot, setting.fabric)
    if failure is not None:
        raise failure
    if any(result.failed for result in results):
        raise typer.Exit(WRONG)


def _made(
    make: "Callable[[Setting], Sequence[Result]]", setting: "Setting"
) -> "tuple[Sequence[Result], UnfinishedError | None]":
    """The rows, and why there are not more of them."""
    from xccl_emu.cli.bench_sweep import Partial

    try:
        return make(setting), None
    except Partial as error:
        return error.results, error


def _axes(
    sweep: list[str] | None, axes: list[str] | None, dask: str | None, fixed: Mapping[str, tuple[object, object]] = {}
) -> list[str]:
    """The axes of a sweep, none if it is none; ``fixed`` has value and default of options that go without one."""
    if not sweep:
        if axes or dask:
            raise ConfigError(f"{axes[0] if axes else f'--dask {dask}'}: goes with --sweep")
        return []
    if given := [f"{name} {value}" for name, (value, default) in fixed.items() if value != default]:
        raise ConfigError(f"{given[0]}: does not go with --sweep, whose axes are ep and batch")
    return [*sweep, *(axes or [])]


def _sweep(
    bench: str, axes: list[str], cores: int, dask: str | None, as_json: bool, csv: Path | None, plot: Path | None,
    seed: int, no_data: bool,
) -> None:  # fmt: skip
    from xccl_emu.cli.bench_sweep import sweep

    _bench(lambda setting: sweep(bench, axes, cores, dask, setting, as_json), as_json, csv, plot, seed, no_data)


@app.command(hidden=True, context_settings=ANY_SIZE)
def case(
    ctx: typer.Context,
    protocol: Annotated[str, typer.Argument(help="FILE.py:NAME, or a name of xccl-emu list.", show_default=False)],
    as_json: AsJson = False,
    csv: Csv = None,
    plot: Plot = None,
) -> None:
    """Time a protocol at every combination of its sizes: --dies 2,4,8 --elements 1024,65536.

    The time is virtual, from the beginning of the first core to the end of the last. algbw is the payload over the
    time, busbw what the links would have to carry, as nccl-tests define both; a case says its payload and its factor.
    """
    from xccl_emu.cli.case_job import bench as bench_case

    _bench(lambda setting: bench_case(protocol, sizes_from(ctx.args), setting), as_json, csv, plot)


@app.command()
def links(as_json: AsJson = False, csv: Csv = None, plot: Plot = None, seed: Seed = 0, no_data: NoData = False) -> None:
    """Latency of 512 bytes and bandwidth of each path and direction, by kernels that read and write (Table 1)."""
    from xccl_emu.bench.links import links as make

    _bench(make, as_json, csv, plot, seed, no_data)


@app.command()
def sendrecv(
    begin: Annotated[str, typer.Option("-b", help="Least size; K, M and G are powers of 1024.")] = "1K",
    end: Annotated[str, typer.Option("-e", help="Largest size.")] = "64M",
    factor: Annotated[int, typer.Option("-f", help="From a size to the next.")] = 2,
    iterations: Annotated[
        int, typer.Option("-n", min=1, max=TRANSFERS_MAX, help="Transfers that the time is the mean of.")
    ] = 1,
    warmup: Annotated[int, typer.Option("-w", min=0, max=TRANSFERS_MAX, help="Transfers before them.")] = 1,
    cores: Annotated[str, typer.Option(help="Numbers of cores on each side.")] = "2,4,8,16,32,48",
    to: Annotated[str, typer.Option(help="Where the receiver is: sibling, node, pod, or several.")] = "pod",
    path: Annotated[str, typer.Option(help="mtu, dma or zero-copy.")] = "mtu",
    slots: Annotated[int, typer.Option(min=1, help="Slots of each core's ring.")] = 4,
    as_json: AsJson = False,
    csv: Csv = None,
    plot: Plot = None,
    seed: Seed = 0,
    no_data: NoData = False,
) -> None:
    """Send and receive between two dies, as nccl-tests do: each size on each number of cores (Figure 5).

    Random bytes are moved and compared; "#wrong" counts bytes that did not arrive as they were sent. Time is virtual:
    it has no noise, and is that of the kernels, without their launch.
    """
    from xccl_emu.bench.sendrecv import Sweep
    from xccl_emu.bench.sendrecv import sendrecv as make
    from xccl_emu.bench.sizes import parse_size, parse_whole, sizes_from

    sweep = Sweep(
        sizes=sizes_from(parse_size("-b", begin), parse_size("-e", end), factor), cores=parse_whole("--cores", cores),
        to=list(dict.fromkeys(to.split(","))), iterations=iterations, warmup=warmup, path=path, slots=slots,
    )  # fmt: skip
    _bench(lambda setting: make(setting, sweep), as_json, csv, plot, seed, no_data)


@app.command()
def dispatch(
    ranks: Annotated[int, typer.Option(min=2, max=768, help="Ranks, one a die.")] = 128,
    batches: Annotated[str, typer.Option(help="Tokens of each rank.")] = BATCHES,
    cores: Cores = 48,
    sweep: Sweep = None,
    axes: MoreAxes = None,
    dask: Dask = None,
    as_json: AsJson = False,
    csv: Csv = None,
    plot: Plot = None,
    seed: Seed = 0,
    no_data: NoData = False,
) -> None:
    """Pull dispatch and combine by batch, and which of them is faster (Figure 6).

    With --sweep, every EP degree with every batch instead, on all cores: bench dispatch --sweep ep=8:768 batch=1:128.
    A range doubles from its beginning, and has its end.
    """
    if words := _axes(sweep, axes, dask, {"--ranks": (ranks, 128), "--batches": (batches, BATCHES)}):
        return _sweep("dispatch", words, cores, dask, as_json, csv, plot, seed, no_data)
    from xccl_emu.bench.dispatch import dispatch as make
    from xccl_emu.bench.sizes import parse_whole

    numbers = parse_whole("--batches", batches)
    _bench(lambda setting: make(setting, ranks, numbers, cores), as_json, csv, plot, seed, no_data)


@app.command()
def fused(
    sweep: Sweep = None,
    axes: MoreAxes = None,
    dask: Dask = None,
    as_json: AsJson = False,
    csv: Csv = None,
    plot: Plot = None,
    seed: Seed = 0,
    no_data: NoData = False,
) -> None:
    """FusedDispatch and FusedCombine with 128 tokens on 8 to 256 ranks (Table 7), beside DeepEP on H800 and baselines.

    The baselines are no emulation: a line through the fit rows over the bytes that leave a die, and between them.

    With --sweep, every EP degree with every batch instead, on all cores, with uniform choices and no skew of starts.
    """
    if words := _axes(sweep, axes, dask):
        return _sweep("fused", words, 48, dask, as_json, csv, plot, seed, no_data)
    from xccl_emu.bench.suite import table7 as make

    _bench(make, as_json, csv, plot, seed, no_data)


@app.command()
def a2e(as_json: AsJson = False, csv: Csv = None, plot: Plot = None, seed: Seed = 0, no_data: NoData = False) -> None:
    """A2E and E2A: one call of one of the domains, 160 attention dies of 96 tokens and 288 expert dies."""
    from xccl_emu.bench.a2e import a2e as make

    _bench(make, as_json, csv, plot, seed, no_data)


@app.command()
def iteration(
    as_json: AsJson = False, csv: Csv = None, plot: Plot = None, seed: Seed = 0, no_data: NoData = False
) -> None:
    """Dispatch and combine in an iteration of decode: 288 dies, 60 tokens each (Figure 20)."""
    from xccl_emu.bench.iteration import iteration as make

    _bench(make, as_json, csv, plot, seed, no_data)


@app.command()
def tpot(as_json: AsJson = False, csv: Csv = None, plot: Plot = None, seed: Seed = 0, no_data: NoData = False) -> None:
    """The decode budget of disaggregated attention and experts, with emulated A2E and E2A put in."""
    from xccl_emu.bench.tpot import tpot as make

    _bench(make, as_json, csv, plot, seed, no_data)


@app.command()
def ablation(
    as_json: AsJson = False, csv: Csv = None, plot: Plot = None, seed: Seed = 0, no_data: NoData = False
) -> None:
    """The fused operators on 64 dies with each optimization switched off alone, and the ratio to the whole."""
    from xccl_emu.bench.ablation import ablation as make

    _bench(make, as_json, csv, plot, seed, no_data)


@app.command()
def buffers(as_json: AsJson = False, csv: Csv = None, plot: Plot = None, no_data: NoData = False) -> None:
    """Sizes that must come out exactly: messages, buffers and metadata, as the protocols lay them out on the pod."""
    from xccl_emu.bench.buffers import buffers as make

    _bench(make, as_json, csv, plot, no_data=no_data)


@app.command()
def sensitivity(as_json: AsJson = False, csv: Csv = None, plot: Plot = None, seed: Seed = 0) -> None:
    """How far results move when a constant that no published row determines is at an end of its plausible range.

    Every constant of the model that is neither published nor fitted, one at a time; takes some minutes.
    """
    from xccl_emu.cli.bench_sweep import sensitivities

    _bench(lambda setting: sensitivities(setting, as_json), as_json, csv, plot, seed)


@app.command("all")
def every(as_json: AsJson = False, csv: Csv = None, plot: Plot = None, seed: Seed = 0, no_data: NoData = False) -> None:
    """Everything, on all cores as far as the memory goes; A2E is run once for its own rows and for the budget."""
    from xccl_emu.cli.bench_sweep import every_bench

    _bench(lambda setting: every_bench(setting, as_json), as_json, csv, plot, seed, no_data)
