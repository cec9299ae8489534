"""What a bench runs in many processes, with a bar that says how many are done: `--sweep`, and all benches."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from xccl_emu.bench import sensitivity, suite
from xccl_emu.bench.processes import on_processes
from xccl_emu.bench.result import Result
from xccl_emu.bench.setting import Setting
from xccl_emu.bench.sweep import in_order, on_cluster, on_this_machine, parse_axes, points
from xccl_emu.cli.memory import available_bytes

T = TypeVar("T")


def sweep(
    bench: str, words: Sequence[str], cores: int, dask: str | None, setting: Setting, quiet: bool
) -> list[Result]:
    """Run a bench at every point of a grid; raises ConfigError for what is no grid or does not fit the memory."""
    made = points(bench, parse_axes(words), cores, setting)
    done = on_cluster(made, dask) if dask else on_this_machine(made, available_bytes())
    return in_order(_watched("sweep", done, len(made), quiet))


def sensitivities(setting: Setting, quiet: bool) -> list[Result]:
    """Run everything with each assumed constant at both ends of its range; raises ConfigError if one does not fit."""
    jobs = sensitivity.jobs(setting.seed)
    done = on_processes(jobs, available_bytes())
    return sensitivity.results_of(_watched("runs", done, len(jobs), quiet))


def every_bench(setting: Setting, quiet: bool) -> list[Result]:
    """Run all benches; raises ConfigError if one does not fit the memory."""
    jobs = suite.jobs(setting.seed, setting.data)
    done = on_processes(jobs, available_bytes())
    return suite.in_order(_watched("benches", done, len(jobs), quiet))


def _watched(name: str, done: Iterator[T], total: int, quiet: bool) -> Iterator[T]:
    console = Console(stderr=True, quiet=quiet)
    columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield from progress.track(done, total=total)
