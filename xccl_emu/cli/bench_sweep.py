"""`--sweep` of a bench: all points of a grid, with a bar that says how many are done."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from xccl_emu.bench.result import Result
from xccl_emu.bench.setting import Setting
from xccl_emu.bench.sweep import in_order, on_dask, on_processes, parse_axes, points
from xccl_emu.cli.memory import available_bytes

T = TypeVar("T")


def sweep(
    bench: str, words: Sequence[str], cores: int, dask: str | None, setting: Setting, quiet: bool
) -> list[Result]:
    """Run a bench at every point of a grid; raises ConfigError for what is no grid or does not fit the memory."""
    made = points(bench, parse_axes(words), cores, setting)
    done = on_dask(made, dask) if dask else on_processes(made, available_bytes())
    return in_order(_watched(done, len(made), quiet))


def _watched(done: Iterator[T], total: int, quiet: bool) -> Iterator[T]:
    console = Console(stderr=True, quiet=quiet)
    columns = (TextColumn("sweep"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield from progress.track(done, total=total)
