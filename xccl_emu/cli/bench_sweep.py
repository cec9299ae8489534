"""What a bench runs in many processes, with a bar that says how many are done: `--sweep`, and all benches."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from xccl_emu import measurements
from xccl_emu.bench import band, sensitivity
from xccl_emu.bench.processes import Job, on_processes
from xccl_emu.bench.result import Result
from xccl_emu.bench.setting import Setting
from xccl_emu.bench.sweep import in_order, on_cluster, on_this_machine, parse_axes, points
from xccl_emu.cli import ending
from xccl_emu.cli.shown import counting
from xccl_emu.errors import UnfinishedError
from xccl_emu.machine.free_memory import available_bytes
from xccl_emu.stage import silent

T = TypeVar("T")


def sweep(
    bench: str, words: Sequence[str], cores: int, dask: str | None, setting: Setting, quiet: bool
) -> list[Result]:
    """Run a bench at every point of a grid; raises ConfigError for what is no grid or does not fit the memory, and
    `Partial` with the points that are done if others failed."""
    made = points(bench, parse_axes(words), cores, setting)
    done = on_cluster(made, dask) if dask else on_this_machine(made, available_bytes())
    return _all_or_partial(_watched("sweep", done, len(made), quiet), in_order)


def sensitivities(setting: Setting, quiet: bool) -> list[Result]:
    """Run everything with each assumed constant at both ends of its range; raises ConfigError if one does not fit."""
    jobs = sensitivity.jobs(setting)
    done = on_processes(jobs, available_bytes())
    return sensitivity.results_of(_watched("runs", done, len(jobs), quiet))


def banded(
    results: Sequence[Result], setting: Setting, make: Callable[[Setting], Sequence[Result]], quiet: bool
) -> list[Result]:
    """Give the rows of a bench their intervals."""

    def told(ends: list[sensitivity.End]) -> Iterator[sensitivity.End]:
        with counting("constants", len(ends), quiet) as count:
            for number, end in enumerate(ends):
                count(number, f"{end.constant} {end.value:g}")
                yield end

    return band.with_bands(results, replace(setting, stage=silent), make, told)


def every_bench(setting: Setting, quiet: bool, ends: bool = True) -> list[Result]:
    """Run all benches, and if ``ends`` is set those at the ends of ranges as `sensitivities` does.

    Raises ConfigError if one does not fit the memory, and `Partial` if some failed.
    """
    kinds = [(kind, kind.suite) for kind in measurements.found().values() if kind.suite is not None]
    kinds.sort(key=lambda one: one[1].turn)
    quietly = replace(setting, stage=silent)
    jobs = [
        Job(f"bench {kind.name}", partial(_rows_of, kind, quietly), suite.bytes_needed(setting.data))
        for kind, suite in kinds
    ]

    def in_order(done: list[tuple[int, list[Result]]]) -> list[Result]:
        return [row for _, rows in sorted(done, key=lambda one: kinds[one[0]][1].place) for row in rows]

    done = _watched("benches", on_processes(jobs, available_bytes()), len(jobs), quiet)
    return [*_all_or_partial(done, in_order), *(sensitivities(setting, quiet) if ends else [])]


def _rows_of(kind: type[measurements.Measurement], setting: Setting) -> list[Result]:
    """The rows of a measurement, in any process."""
    return kind().rows_in_suite(setting)


class Partial(UnfinishedError):
    """Some results, and why there are no more."""

    def __init__(self, message: str, results: list[Result]) -> None:
        super().__init__(message)
        self.results = results


def _all_or_partial(done: Iterator[T], in_order: Callable[[list[T]], list[Result]]) -> list[Result]:
    """All results in order; `Partial` if some jobs have failed and others have not."""
    kept: list[T] = []
    try:
        for one in done:
            kept.append(one)
    except BaseException as error:
        if not kept or not (isinstance(error, UnfinishedError) or ending.goes_on(error)):
            raise
        why = str(error) if isinstance(error, UnfinishedError) else "stopped by Ctrl-C"
        raise Partial(why, in_order(kept)) from error
    return in_order(kept)


def _watched(name: str, done: Iterator[T], total: int, quiet: bool) -> Iterator[T]:
    with counting(name, total, quiet) as count:
        for number, one in enumerate(done, start=1):
            count(number, name)
            if not quiet and not sys.stderr.isatty():
                ending.say(f"{name}: {number} of {total} done")
            yield one
