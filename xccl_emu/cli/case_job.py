"""What bench and compare do with a case."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

from xccl_emu.bench.result import Result, even
from xccl_emu.bench.setting import Setting
from xccl_emu.bench.traffic import Comparison, TrafficLine, line_of
from xccl_emu.cli.bench_sweep import all_or_partial
from xccl_emu.cli.perf import Perf
from xccl_emu.cli.perf_job import bandwidths, measure, points
from xccl_emu.errors import ConfigError, UnfinishedError
from xccl_emu.protocol.case import Case
from xccl_emu.protocol.collective import Collective
from xccl_emu.protocol.registry import make
from xccl_emu.protocol.sequence import Sizes


def grid(sizes: Sizes) -> Iterator[dict[str, int | str]]:
    """Yield all combinations of sizes, each of them one value or several between commas, none empty."""
    from xccl_emu.cli.cases import number_or_text

    for name, value in sizes.items():
        if "" in str(value).split(","):
            option = f"--{name.replace('_', '-')} {value}"
            raise ConfigError(f"{option}: must be a value, or several with commas between them")
    several = [[number_or_text(part) for part in str(value).split(",")] for value in sizes.values()]
    for values in itertools.product(*several):
        yield dict(zip(sizes, values, strict=True))


def bench(protocol: str, sizes: Sizes, perf: Perf, setting: Setting) -> list[Result]:
    """The time of each combination of sizes, from the first core's beginning to the last one's end; or of a call."""
    cases = [make(protocol, **chosen) for chosen in grid(sizes)]  # what is wrong with one is said before any runs
    if all(isinstance(case, Collective) for case in cases):
        measured = [point for case in cases for point in points(cast(Collective, case), perf)]
        return all_or_partial((measure(protocol, point, perf, setting) for point in measured), list)
    if replace(perf, no_data=False, fabric=Perf.fabric, cost=()) != Perf():
        raise ConfigError(f"-b, -e, -f, -n, -w, -d and -o apply only to collectives; {protocol} is none")
    taken = {name: {even(case.configuration[name]) for case in cases} for name in cases[0].configuration}
    swept = tuple(name for name, values in taken.items() if len(values) > 1)
    return all_or_partial(_all_that_can_be(protocol, cases, swept, setting), list)


def _all_that_can_be(
    protocol: str, cases: Sequence[Case], swept: tuple[str, ...], setting: Setting
) -> Iterator[Result]:
    """Yield the time of each; raises UnfinishedError at the end if some cannot be laid out, ConfigError if none can."""
    failed = list[ConfigError]()
    for case in cases:
        try:
            result = _timed(protocol, case, swept, setting)
        except ConfigError as error:
            where = " ".join(f"{name}={case.configuration[name]}" for name in swept)
            failed.append(ConfigError(f"{where}: {error}"))
        else:
            yield result
    if len(failed) == len(cases):
        raise failed[0]
    if failed:
        lines = "".join(f"\n  {error}" for error in failed)
        raise UnfinishedError(f"{len(failed)} of {len(cases)} cannot be:{lines}")


def _timed(protocol: str, case: Case, swept: tuple[str, ...], setting: Setting) -> Result:
    configuration = {**case.configuration, **setting.fabric_words}
    what = " ".join(f"{name}={configuration[name]}" for name in swept or configuration)
    with setting.stage(what):
        trial, us = setting.run(case)
    extra = bandwidths(case, us) if case.payload_bytes and us else {}
    wrong = sum(trial.wrong_bytes().values()) if setting.data else None
    return Result(protocol, what, us, "us", configuration=configuration, wrong=wrong, extra=extra, swept=swept)


# ---- side by side


def compare(protocols: Sequence[str], sizes: Sizes) -> Comparison:
    """Return what the dies of each role ask of other dies, of several protocols of the same sizes."""
    lines, wrong = list[TrafficLine](), 0
    short = {protocol: protocol.rpartition(":")[2] for protocol in protocols}
    titles = short if len({*short.values()}) == len(short) else {protocol: protocol for protocol in protocols}
    for protocol in protocols:
        trial = make(protocol, **sizes).build("sc")
        spec = trial.pod.spec
        roles = trial.roles or {"die": sorted({core // spec.cores_per_die for core in trial.pod.active_cores()})}
        trial.pod.run()
        traffic, reserved = trial.pod.traffic(), (spec.managed_bytes, spec.meta_bytes)
        lines += [line_of(titles[protocol], role, traffic, list(dies), reserved) for role, dies in roles.items()]
        wrong += sum(trial.wrong_bytes().values())
    return Comparison(dict(sizes), lines, wrong)
