"""What every bench gives: rows with what was published, what was emulated, and how far they are apart."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from xccl_emu.base import words as w
from xccl_emu.papers.bench.published import Published

EMULATED, FAILED = "emulated", "failed"

Configuration = Mapping[str, int | float | str | bool]


@dataclass(frozen=True)
class Wire:
    """What a row takes at published rates alone, without any start-up: for a line (`bench.baseline`)."""

    kind: str
    """Rows of a kind share the start-up that is fitted to them."""
    us: float
    """Bytes of a die at the rates of their paths."""
    starts: int = 1
    """How often something starts."""
    gib: float = 0.0
    """GiB that are moved, for a row of bandwidth."""


@dataclass(frozen=True)
class Result(w.Printed):
    """One row of a bench: tables, JSON and CSV are made of these alone."""

    RECORD = "Row"
    FIRST = (
        "bench", "what", "published", "emulated", "unit", "role", "relation", "error_percent", "met", "wrong",
        "configuration",
    )  # fmt: skip
    bench: Annotated[str, "name of the bench"]
    what: Annotated[str, "what was measured"]
    emulated: Annotated[float | None, "null if the emulator has no such thing; `note` says why"]
    unit: Annotated[str, "unit of both"]
    published: Annotated[float | None, "null if nothing was published"] = None
    role: Annotated[str, "what the published number may be used for"] = "emulated"
    """One of `published.ROLES`, or ``"emulated"`` without a published number; `FAILED` of what could not be run."""
    relation: Annotated[str, "`=`, or `<` and `>` for a bound"] = "="
    source: Annotated[str, "where it was published"] = ""
    configuration: Annotated[Configuration, w.CONFIGURATION] = field(default_factory=dict)
    wrong: w.Wrong = None
    note: Annotated[str, "what to know of the row"] = ""
    kind: w.Kind = ""
    """For a latency: whose it is, and whether the launch is in it."""
    extra: Annotated[Mapping[str, float], "what others measured, or what follows from it", w.As("beside")] = field(
        default_factory=dict
    )
    """Further numbers by name, such as what others measured: shown too, never compared."""
    swept: tuple[str, ...] | None = None
    """The sizes that differ, where a case was run at several of them; None for what is no case."""
    machine: str = ""
    """Name of the fabric that the published number is of."""
    wire: Wire | None = None
    """None where there is no line."""
    low: Annotated[float | None, "lower end of the 80% interval of `emulated`; null without `--band`"] = None
    high: Annotated[float | None, "upper end of it"] = None
    """Ends of the 80% interval of what is emulated (`bench.band`); None where nobody asked for it."""

    @classmethod
    def of(cls, row: Published, emulated: float | None, *, bench: str = "", **more: Any) -> "Result":
        """Return what was emulated for a published row."""
        bench = bench or row.measurement
        return cls(
            bench, row.what, emulated, row.unit, row.value, row.role, row.relation, row.source, kind=row.kind,
            machine=row.machine, **more,
        )  # fmt: skip

    def size(self, name: str) -> int | float | str | bool:
        """A value of the configuration; for a list of numbers that are all the same, this number."""
        return even(self.configuration[name])

    @property
    def key(self) -> tuple[str, str, str]:
        """Bench, name and configuration: the same row of another run has the same."""
        return self.bench, self.what, repr(sorted(self.configuration.items()))

    @property
    def table(self) -> str:
        """The bench whose published rows these are, of a baseline as well."""
        return self.bench.partition(", ")[0]

    @property
    def baseline(self) -> str:
        """The name of what was computed in place of emulating it: its bench is called ``"bench, baseline"``."""
        return self.bench.partition(", ")[2]

    @property
    def error_percent(self) -> Annotated[float | None, "signed: above 0 if the emulated value is larger"]:
        """Signed: above 0 if the emulated value is larger; None for bounds and where one of the two is missing."""
        if self.emulated is None or not self.published or self.relation != "=":
            return None
        return 100.0 * (self.emulated - self.published) / self.published

    @property
    def inside(self) -> bool | None:
        """Return True if what was published is in the interval; None for bounds and for rows without one of the two."""
        if self.error_percent is None or self.low is None or self.high is None:
            return None
        return self.low <= float(self.published or 0) <= self.high

    @property
    def met(self) -> Annotated[bool | None, "whether a bound holds, or an exact value came out"]:
        """Return True if a bound holds or an exact value came out; None for other rows."""
        if self.published is None or (self.relation == "=" and self.role != "exact"):
            return None
        if self.emulated is None:
            return False
        if self.relation == "<":
            return self.emulated < self.published
        return self.emulated > self.published if self.relation == ">" else self.emulated == self.published

    @property
    def failed(self) -> bool:
        """Return True if the command must end with exit code 1: wrong data, or an exact row that differs."""
        return bool(self.wrong) or (self.role == "exact" and not self.met)


def even(value: int | float | str | bool) -> int | float | str | bool:
    """The number of a list such as ``4,4,4``; anything else as it is."""
    parts = set(value.split(",")) if isinstance(value, str) else set()
    return int(one) if len(parts) == 1 and (one := parts.pop()).isdecimal() else value


def total_wrong(counts: Iterable[int | None]) -> int | None:
    """Add up all wrong elements; None if nothing was compared."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


@dataclass(frozen=True)
class RoleScore(w.Printed):
    """How far the rows of a role are off: mean absolute percentage error, and the largest, signed."""

    RECORD = "Score"
    of: Annotated[str, "`emulated`, or the name of a baseline"]
    role: Annotated[str, "what the published number may be used for"]
    n_rows: Annotated[int, "rows that were scored"]
    mape_percent: Annotated[float | None, "mean absolute error; null where all rows are bounds"]
    max_percent: Annotated[float | None, "largest error, signed"]
    worst: Annotated[str, "the row that has it"]
    inside: Annotated[int | None, "rows whose published number is in the interval; null without `--band`"] = None
    banded: Annotated[int, "rows that have an interval"] = 0
    n_bounds: Annotated[int, "rows that are a bound"] = 0
    held: Annotated[int, "bounds that hold"] = 0


@dataclass(frozen=True)
class TableScore(w.Printed):
    """How far the check rows of a bench are off: a row of the scoreboard."""

    table: Annotated[str, "name of the bench, `all`, or `all with a line`"]
    score: Annotated[RoleScore, w.INLINE]


def score(results: Iterable[Result], role: str, of: str = EMULATED) -> RoleScore | None:
    """Return the score of the rows of a role that have an error or are a bound; None if there are none."""
    rows = [r for r in results if r.role == role]
    bounds = [r.met for r in rows if r.relation != "="]
    errors = [(r.error_percent, f"{r.bench}: {r.what}") for r in rows]
    known = [(error, what) for error, what in errors if error is not None]
    kept = len(bounds), sum(map(bool, bounds))
    if not known:
        return RoleScore(of, role, 0, None, None, "", None, 0, *kept) if bounds else None
    largest, worst = max(known, key=lambda one: abs(one[0]))
    banded = [r.inside for r in rows if r.inside is not None]
    mape, inside = math.fsum(abs(error) for error, _ in known) / len(known), sum(banded) if banded else None
    return RoleScore(of, role, len(known), mape, largest, worst, inside, len(banded), *kept)


def scores(results: Sequence[Result]) -> list[RoleScore]:
    """Return the scores of fit rows and of check rows, then the same for each baseline."""
    return [
        s
        for of, rows in _grouped(results, lambda one: one.baseline or EMULATED).items()
        for role in ("fit", "check")
        if (s := score(rows, role, of)) is not None
    ]


ALPHA_BETA, ONCE = "alpha-beta", "alpha-beta once"
"""Names of the lines that rows are compared with: refitted to each table, and fitted once (`bench.baseline`)."""
ALL, LINED = "all", "all with a line"
"""Names of the scoreboard's last rows: all that is emulated, and the rows that have a line."""


def by_table(results: Sequence[Result]) -> dict[str, dict[str, RoleScore]]:
    """The scoreboard: by bench that has check rows the scores of these, emulated or computed, and by each line.

    After several benches come the scores of all together.
    """
    rows = [one for one in results if one.role == "check"]
    groups = _grouped(rows, lambda one: one.table)
    if len(groups) > 1:
        lines = {(one.table, one.what) for one in rows if one.baseline in (ALPHA_BETA, ONCE)}
        groups[LINED] = [one for one in rows if (one.table, one.what) in lines]
        groups[ALL] = [one for one in rows if not one.baseline]
    return {table: {s.of: s for s in scores(group)} for table, group in groups.items() if group}


HEADS = ("table", "rows", "model", "line", "refitted", "in their intervals", "bounds that hold")


def board(results: Sequence[Result]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of the scoreboard, under `HEADS`; a line is fitted once for all tables, or refitted to each."""
    for table, of in by_table(results).items():
        model = of.get(EMULATED) or next(iter(of.values()))
        lines = (of[name].mape_percent if name in of else None for name in (ONCE, ALPHA_BETA))
        errors = ("" if each is None else f"{each:.1f}%" for each in (model.mape_percent, *lines))
        inside = "" if model.inside is None else f"{model.inside} of {model.banded}"
        bounds = f"{model.held} of {model.n_bounds}" if model.n_bounds else ""
        yield table, str(model.n_rows or ""), *errors, inside, bounds


@dataclass(frozen=True)
class Rows(w.Printed):
    """Rows and their scores."""

    results: Annotated[Sequence[Result], "the rows"]

    @property
    def scores(self) -> Annotated[list[RoleScore], "fit rows and check rows, then the same of each baseline"]:
        """Return the scores by role."""
        return scores(self.results)

    @property
    def tables(self) -> Annotated[list[TableScore], "the scoreboard: what is emulated, and lines"]:
        """Return the scores of check rows by bench."""
        return [TableScore(name, one) for name, of in by_table(self.results).items() for one in of.values()]

    @property
    def wrong(self) -> w.Wrong:
        """Return how much is wrong in all rows."""
        return total_wrong(result.wrong for result in self.results)

    @property
    def failed(self) -> Annotated[bool, "whether data is wrong, or an exact row differs"]:
        """Return True if one of the rows has failed."""
        return any(result.failed for result in self.results)


@dataclass(frozen=True)
class BenchRows(Rows):
    """What a bench has measured."""

    FIRST = ("seed", "data", "stopped", "moved", "peak_bytes")
    seed: w.Seed
    data: Annotated[bool, "whether payload was moved and compared"]
    stopped: w.Stopped
    moved: Annotated[Sequence[str], "rows that moved from `--against`, a line each"]
    peak_bytes: Annotated[int, "most memory that one of its processes had, measured"] = 0


def _grouped(results: Iterable[Result], name: Callable[[Result], str]) -> dict[str, list[Result]]:
    by: dict[str, list[Result]] = {}
    for result in results:
        by.setdefault(name(result), []).append(result)
    return by


def payload_gb_s(result: Result) -> float:
    """Bytes of the payload over the time; between two dies this is the bandwidth of the bus, too."""
    return int(result.configuration["bytes"]) / float(result.emulated or 1) / 1000
