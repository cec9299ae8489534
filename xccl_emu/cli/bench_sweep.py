"""What a bench runs in many processes, with a bar that says how many are done: `--sweep`, and all benches."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from xccl_emu import measurements
from xccl_emu.bench import band, sensitivity
from xccl_emu.bench.processes import ProcessJob, on_processes
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
    return all_or_partial(_watched("sweep", done, len(made), quiet), in_order)


def sensitivities(setting: Setting, quiet: bool, before: Sequence[Result] = ()) -> list[Result]:
    """Run everything with each assumed constant at both ends of its range; the results come after those ``before``.

    Raises ConfigError if one does not fit the memory, and `Partial` if some failed.
    """
    jobs = sensitivity.jobs(setting)
    done = on_processes(jobs, available_bytes())
    return all_or_partial(_watched("runs", done, len(jobs), quiet), sensitivity.results_of, before)


def banded(
    results: Sequence[Result], setting: Setting, make: Callable[[Setting], Sequence[Result]], quiet: bool
) -> list[Result]:
    """Give the rows of a bench their intervals."""

    def watch(ends: list[sensitivity.End]) -> Iterator[sensitivity.End]:
        with counting("constants", len(ends), quiet) as count:
            for number, end in enumerate(ends):
                count(number, f"{end.constant} {end.value:g}")
                yield end

    return band.with_bands(results, replace(setting, stage=silent), make, watch)


def every_bench(setting: Setting, quiet: bool, ends: bool = True) -> list[Result]:
    """Run all benches, and if ``ends`` is set those at the ends of ranges as `sensitivities` does.

    Raises ConfigError if one does not fit the memory, and `Partial` if some failed.
    """
    kinds = [(kind, kind.suite) for kind in measurements.found().values() if kind.suite is not None]
    kinds.sort(key=lambda one: one[1].turn)
    quietly = replace(setting, stage=silent)
    jobs = [
        ProcessJob(f"bench {kind.name}", partial(_rows_of, kind, quietly), suite.bytes_needed(setting.data))
        for kind, suite in kinds
    ]

    def in_order(done: list[tuple[int, list[Result]]]) -> list[Result]:
        return [row for _, rows in sorted(done, key=lambda one: kinds[one[0]][1].place) for row in rows]

    done = _watched("benches", on_processes(jobs, available_bytes()), len(jobs), quiet)
    rows = all_or_partial(done, in_order)
    return sensitivities(setting, quiet, rows) if ends else rows


def _rows_of(kind: type[measurements.Measurement], setting: Setting) -> list[Result]:
    """The rows of a measurement, in any process."""
    return kind().rows_in_suite(setting)


class Partial(UnfinishedError):
    """Some results, and why there are no more; with the exit code of the signal that has ended it, or 0."""

    def __init__(self, message: str, results: list[Result], code: int) -> None:
        super().__init__(message)
        self.results, self.code = results, code


def all_or_partial(
    done: Iterator[T], in_order: Callable[[list[T]], list[Result]], before: Sequence[Result] = ()
) -> list[Result]:
    """Return the results ``before`` and all others in order; raises `Partial` if a failure or a signal leaves some."""
    kept: list[T] = []
    try:
        for one in done:
            kept.append(one)
    except BaseException as error:
        results = [*before, *in_order(kept)]
        code = ending.put_off(error) if results else 0
        if not results or not (code or isinstance(error, UnfinishedError)):
            raise
        why = {number: said for said, number in ending.BY_SIGNAL.items()}.get(code, str(error))
        raise Partial(why, results, code) from error
    return [*before, *in_order(kept)]


def _watched(name: str, done: Iterator[T], total: int, quiet: bool) -> Iterator[T]:
    with counting(name, total, quiet) as count:
        for number, one in enumerate(done, start=1):
            count(number, name)
            if not quiet and not sys.stderr.isatty():
                ending.say(f"{name}: {number} of {total} done")
            yield one
