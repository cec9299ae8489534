"""What bench does with a case: a row for each combination of sizes; collectives are timed as nccl-tests time them."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.jobs import Job
from xccl_emu.base.options import Modelled, must_be_one_of, option
from xccl_emu.base.sizes import sizes_from
from xccl_emu.cli.cases import number_or_text

if TYPE_CHECKING:
    from xccl_emu.check.trial import Trial
    from xccl_emu.papers.bench.result import Result
    from xccl_emu.papers.bench.setting import Setting
    from xccl_emu.protocol.case import Case, Collective
    from xccl_emu.protocol.sequence import Sizes

TYPES = {"bf16": "bfloat16", "fp16": "half"}
"""Types of elements, and what nccl-tests call them."""
PRICE = "what a run takes longer with a synchronization than without it"
"""Kind of the rows of prices."""


@dataclass(frozen=True)
class Perf(Modelled):
    """Time a protocol at every combination of its sizes: --dies 2,4,8 --elements 1024,65536.

    The time is virtual, from the beginning of the first core to the end of the last. algbw is the payload over the
    time, busbw what the links would have to carry, as nccl-tests define both; a case says its payload and its factor.

    With --price follows what each synchronization costs: xccl-emu bench case dispatch --ranks 8 --price --band.

    Collectives are timed as nccl-tests time them, with its options: -b 1K -e 1M -f 4 -n 5 -w 1 -d half -o sum.
    """

    begin: str | None = option(None, "Payload to begin with, as 8, 32K or 1M.", named=("-b",), metavar="BYTES")
    end: str | None = option(None, "Payload to end with.", named=("-e",), metavar="BYTES")
    factor: int = option(2, "From a payload to the next.", named=("-f",), least=2)
    iterations: int = option(3, "Calls that are timed.", named=("-n",), least=1)
    warmup: int = option(1, "Calls before them.", named=("-w",), least=0)
    dtype: str | None = option(None, "bfloat16 or half.", named=("-d",), metavar="TYPE")
    op: str | None = option(None, "sum, or none where nothing is reduced.", named=("-o",), metavar="OP")
    no_data: bool = option(False, "Move no payload and check nothing: the same times, faster.")
    price: bool = option(False, "Say what each synchronization costs: the time with it minus the time without it.")

    def __post_init__(self) -> None:
        if self.dtype is not None and self.type_of is None:
            raise ConfigError(f"-d {self.dtype}: {must_be_one_of(self.dtype, TYPES.values())}")
        if self.end is not None and self.begin is None:
            raise ConfigError(f"-e {self.end}: needs -b")

    @property
    def type_of(self) -> str | None:
        """The type of the elements as cases have it."""
        return next((ours for ours, theirs in TYPES.items() if self.dtype in (ours, theirs)), None)

    def sizes(self) -> Sequence[int | None]:
        """Bytes of each payload; None for the case's own."""
        if self.begin is None:
            return [None]
        return sizes_from(self.begin, self.end or self.begin, self.factor)


def grid(sizes: "Sizes") -> Iterator[dict[str, int | str]]:
    """Yield all combinations of sizes, each of them one value or several between commas, none empty."""
    for name, value in sizes.items():
        if "" in str(value).split(","):
            option = f"--{name.replace('_', '-')} {value}"
            raise ConfigError(f"{option}: must be a value, or several with commas between them")
    several = [[number_or_text(part) for part in str(value).split(",")] for value in sizes.values()]
    for values in itertools.product(*several):
        yield dict(zip(sizes, values, strict=True))


def case_jobs(protocol: str, sizes: "Sizes", perf: Perf, setting: "Setting") -> "list[Job[Result]]":
    """The time of each combination of sizes, from the first core's beginning to the last one's end; or of a call."""
    from xccl_emu.papers.bench.result import even
    from xccl_emu.protocol.case import Collective
    from xccl_emu.protocol.registry import make

    cases = [make(protocol, **chosen) for chosen in grid(sizes)]  # what is wrong with one is said before any runs
    collectives = [case for case in cases if isinstance(case, Collective)]
    if len(collectives) == len(cases):
        timed = [point for case in collectives for point in points(case, perf)]
        return [Job(f"{case.payload_bytes} bytes", partial(measure, protocol, case, perf, setting)) for case in timed]
    if replace(perf, no_data=False, price=False, fabric=Perf.fabric, cost=()) != Perf():
        raise ConfigError(f"-b, -e, -f, -n, -w, -d and -o apply only to collectives; {protocol} is none")
    taken = {name: {even(case.configuration[name]) for case in cases} for name in cases[0].configuration}
    swept = tuple(name for name, values in taken.items() if len(values) > 1)
    return [Job(_named(case, swept), partial(_timed, protocol, case, swept, setting)) for case in cases]


def _named(case: "Case", names: Iterable[str]) -> str:
    """Some sizes of a case, in words."""
    return " ".join(f"{name}={case.configuration[name]}" for name in names)


def _timed(protocol: str, case: "Case", swept: tuple[str, ...], setting: "Setting") -> "Result":
    from xccl_emu.papers.bench.result import Result

    configuration = {**case.configuration, **setting.fabric_words}
    what = _named(case, swept) or " ".join(f"{name}={value}" for name, value in configuration.items())
    with setting.stage(what):
        trial, us = setting.run(case)
        ends = {name: setting.run(part)[1] for name, part in case.up_to.items()}
    extra = bandwidths(case, us) if case.payload_bytes and us else {}
    before = 0.0
    for name, end in ends.items():
        extra[f"{name} us"], before = end - before, end
    wrong = sum(trial.wrong_bytes().values()) if setting.data else None
    return Result(protocol, what, us, "us", configuration=configuration, wrong=wrong, extra=extra, swept=swept)


def price_rows(protocol: str, sizes: "Sizes", perf: Perf, setting: "Setting") -> "Iterator[Result]":
    """Yield what each synchronization costs that a run comes to, of one call at each combination of sizes."""
    from xccl_emu.papers.bench.result import Result
    from xccl_emu.protocol.case import Collective
    from xccl_emu.protocol.registry import make
    from xccl_emu.timing.price import Prices

    made = [make(protocol, **chosen) for chosen in grid(sizes)]
    cases = [point for case in made for point in (points(case, perf) if isinstance(case, Collective) else [case])]
    for case in cases:
        prices = Prices(case, (), setting.fabric, setting.costs, banded=False, data=setting.data)
        configuration = {**case.configuration, **setting.fabric_words}
        for name in prices.reached:
            with setting.stage(f"without {name}"):
                price = prices.of([name])
            note = f"without it {price.why}" if price.why else ""
            yield Result(protocol, name, price.us, "us", configuration=configuration, note=note, kind=PRICE)


# ---- a collective: out of place and in place, calls after a warmup


def points(case: "Collective", perf: Perf) -> "list[Collective]":
    """The case at each size; ConfigError for another operation, or sizes that it cannot have."""
    if perf.op not in (None, case.redop):
        raise ConfigError(f"-o {perf.op}: must be {case.redop} for {case.name}")
    typed: Any = replace(case, **{"dtype": perf.type_of} if perf.type_of else {})  # type: ignore[type-var]
    return [typed if nbytes is None else typed.of_bytes(nbytes) for nbytes in perf.sizes()]


def measure(protocol: str, case: "Collective", perf: Perf, setting: "Setting") -> "Result":
    """A row: microseconds of a call out of place, and in place as an extra number."""
    from xccl_emu.papers.bench.result import Result

    where = "".join(f", {name}" for name in setting.fabric_words.values())
    what = f"{case.payload_bytes} bytes, {case.configuration['ranks']} ranks{where}"
    with setting.stage(f"{protocol} {what}"):
        out, wrong = _per_call(case, perf, 0, setting)
        inside, wrong_inside = _per_call(case, perf, 1, setting)
    row: dict[str, int | float | str | bool] = {
        "size": case.payload_bytes or 0, "count": case.count, "type": TYPES[case.dtype], "redop": case.redop,
        "root": -1, "iterations": perf.iterations, "warmup": perf.warmup,
    }  # fmt: skip
    row |= setting.fabric_words | ({} if setting.data else {"data": False})
    others = {name: value for name, value in case.configuration.items() if name not in ("calls", "in_place", "dtype")}
    extra = {**bandwidths(case, out), "in-place us": inside, **bandwidths(case, inside, "in-place ")}
    if not setting.data:
        return Result(protocol, what, out, "us", configuration=row | others, extra=extra)
    extra |= {"#wrong": wrong, "in-place #wrong": wrong_inside}
    return Result(protocol, what, out, "us", configuration=row | others, wrong=wrong + wrong_inside, extra=extra)


def _per_call(case: "Collective", perf: Perf, in_place: int, setting: "Setting") -> tuple[float, int]:
    """Microseconds of a call after the warmup, and wrong elements of all calls."""
    times = [0.0]
    for calls in (perf.warmup, perf.warmup + perf.iterations):
        if calls:
            trial, us = setting.run(replace(case, in_place=in_place, calls=calls))  # type: ignore[type-var]
            times.append(us)
    return (times[-1] - times[-2]) / perf.iterations, wrong_elements(trial)


def wrong_elements(trial: "Trial") -> int:
    """Elements of two bytes that are not what is expected."""
    import numpy as np

    memory = trial.pod.memory
    fixed = [each for each in trial.expected if each.judge is None]
    pairs = [(memory[e.address : e.address + len(e.data)], np.frombuffer(e.data, np.uint8)) for e in fixed]
    return sum(int(np.count_nonzero((is_ != must).reshape(-1, 2).any(1))) for is_, must in pairs)


def bandwidths(case: "Case", us: float, prefix: str = "") -> dict[str, float]:
    """Return algorithm and bus bandwidth, as nccl-tests define them."""
    algbw = (case.payload_bytes or 0) / us / 1000
    return {f"{prefix}algbw GB/s": algbw, f"{prefix}busbw GB/s": algbw * case.bus_factor}


# ---- as nccl-tests print it


_FRONT = "{:>10}  {:>12}  {:>8}  {:>6}  {:>6}"
_SIDE = "  {:>7}  {:>6}  {:>6} {:>6}"


def lines(results: Sequence["Result"]) -> Iterator[str]:
    """The table of nccl-tests, of results of one protocol on as many ranks."""
    first, sizes = results[0].configuration, [result.configuration["size"] for result in results]
    fabric = f"fabric {first['fabric']} " if "fabric" in first else ""
    yield (
        f"# {results[0].bench} nRanks {first['ranks']} {fabric}minBytes {min(sizes)} maxBytes {max(sizes)} "
        f"warmup iters: {first['warmup']} iters: {first['iterations']} validation: {int(first.get('data', True))}"
    )
    yield "#"
    yield "# " + _FRONT.format(*[""] * 5) + "           out-of-place                       in-place          "
    sides = _SIDE.format("time", "algbw", "busbw", "#wrong"), _SIDE.format("(us)", "(GB/s)", "(GB/s)", "")
    yield "# " + _FRONT.format("size", "count", "type", "redop", "root") + 2 * sides[0]
    yield "# " + _FRONT.format("(B)", "(elements)", "", "", "") + 2 * sides[1]
    for result in results:
        words = (result.configuration[name] for name in ("size", "count", "type", "redop", "root"))
        yield "  " + _FRONT.format(*words) + "".join(_side(result, us, prefix) for us, prefix in _sides(result))
    if all(result.wrong is not None for result in results):
        wrong = sum(result.wrong or 0 for result in results)
        yield f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}"
    buses = [result.extra[f"{prefix}busbw GB/s"] for result in results for _, prefix in _sides(result)]
    yield f"# Avg bus bandwidth    : {sum(buses) / len(buses):g}"


def _sides(result: "Result") -> Iterator[tuple[float, str]]:
    yield result.emulated or 0.0, ""
    yield result.extra["in-place us"], "in-place "


def _side(result: "Result", us: float, prefix: str) -> str:
    digits = 0 if us >= 10000 else 1 if us >= 100 else 2
    algbw, busbw = (f"{result.extra[f'{prefix}{name} GB/s']:.2f}" for name in ("algbw", "busbw"))
    wrong = "N/A" if result.wrong is None else f"{result.extra[f'{prefix}#wrong']:.0f}"
    return f"  {us:>7.{digits}f}  {algbw:>6}  {busbw:>6}  {wrong:>5}"
