"""Fitting the free constants of the model: to rows of role ``fit``, six of Table 7 and one of HIXL, and to no other.

The free constants are those that `Costs` marks as fitted.  What is fitted is the timed run itself: each step of the
search runs the kernels again under other costs.  Errors are relative, as rows of 116 and 152 us are to count alike.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base import words as w
from xccl_emu.base.errors import ConfigError
from xccl_emu.papers.bench import fused, links, published
from xccl_emu.papers.bench.published import Published
from xccl_emu.papers.bench.result import Result
from xccl_emu.papers.bench.setting import Setting
from xccl_emu.timing.costs import FITTED, Costs

OFF_PERCENT = 3.0
"""How far a row may be off before a constant counts as moved too far."""

_SEARCH: dict[str, Any] = {"diff_step": 0.03, "xtol": 1e-2, "ftol": 5e-2, "max_nfev": 6}
"""Steps wide enough to move a time by more than one transfer; it ends when a step gains less than 5% of the squares."""

Measure = Callable[[Costs], Mapping[str, float]]
"""What is emulated for each row, by its name and in its unit, under some costs."""


def free_constants() -> tuple[str, ...]:
    """Names of the constants that are fitted."""
    return tuple(f.name for f in fields(Costs) if f.metadata["kind"] == FITTED)


@dataclass(frozen=True)
class FittedConstants(w.Printed):
    """What a fit found, and what it rests on."""

    FIRST = ("constants", "intervals", "sensitivity", "evaluations")
    constants: Annotated[Mapping[str, float], "fitted constants; units are in their names"]
    rows: tuple[Published, ...]
    """Rows that the constants were fitted to."""
    emulated: Mapping[str, float]
    """Emulated value of each row under these constants."""
    sensitivity: Annotated[Mapping[str, Mapping[str, float]], "percent of a row per percent of a constant"]
    intervals: Annotated[Mapping[str, tuple[float, float]], "how far each may be before a row is off by 3%"]
    """By constant: how far down and up it may be, the others fitted again, with no row off by over `OFF_PERCENT`."""
    evaluations: Annotated[int, "how often all rows were run"]

    def residual_percent(self, row: Published) -> float:
        """Signed: above 0 if what is emulated is larger."""
        return 100.0 * (self.emulated[row.what] - row.value) / row.value

    @property
    def results(self) -> Annotated[list[Result], "the rows"]:
        """Return the rows, with what is emulated."""
        return [Result.of(row, self.emulated[row.what]) for row in self.rows]

    @property
    def mape_percent(self) -> Annotated[float, "mean absolute error"]:
        """Mean absolute residual."""
        return float(np.mean([abs(self.residual_percent(row)) for row in self.rows]))


def fit(rows: Sequence[Published], times: Measure, start: Costs, report: Callable[[str], None]) -> FittedConstants:
    """Least squares over the free constants, within their ranges.

    rows: those to fit to, all of role ``fit``; times: gives their emulated times; start: where to begin, and
    every other constant; report: is called with each run of all rows.

    Raises ConfigError for a row of another role, and for fewer rows than constants.
    """
    from scipy.optimize import least_squares  # optional: the extra "fit"

    names = free_constants()
    _check(rows, names)
    low, high = np.array([_range(name) for name in names]).T
    seen: dict[tuple[float, ...], Mapping[str, float]] = {}

    def residuals(x: NDArray[np.float64]) -> NDArray[np.float64]:
        key = tuple(float(f"{value:.6g}") for value in x * high)
        if key not in seen:
            seen[key] = times(replace(start, **dict(zip(names, key, strict=True))))
            values = ", ".join(f"{name} {value:g}" for name, value in zip(names, key, strict=True))
            report(f"{len(seen)}: {values}: {_worst(rows, seen[key])}")
        return np.array([seen[key][row.what] / row.value - 1.0 for row in rows])

    first = np.array([getattr(start, name) for name in names]) / high
    found = least_squares(residuals, first, bounds=(low / high, np.ones(len(names))), **_SEARCH)
    best = tuple(float(f"{value:.6g}") for value in found.x * high)
    residuals(found.x)
    return FittedConstants(
        dict(zip(names, best, strict=True)), tuple(rows), seen[best],
        _sensitivity(names, rows, found.jac, found.x, seen[best]), _intervals(names, found, high), len(seen),
    )  # fmt: skip


def _check(rows: Sequence[Published], names: Sequence[str]) -> None:
    for row in rows:
        if row.role != "fit":
            raise ConfigError(f"role={row.role!r} of {row.measurement}, {row.what}: a fit is to rows of role 'fit'")
    if len(rows) < len(names):
        raise ConfigError(f"rows: {len(rows)} of them cannot determine {len(names)} constants: {', '.join(names)}")


def _range(name: str) -> tuple[float, float]:
    (low, high) = next(f.metadata["range"] for f in fields(Costs) if f.name == name)
    return low, high


def _worst(rows: Sequence[Published], emulated: Mapping[str, float]) -> str:
    errors = {row.what: 100 * (emulated[row.what] / row.value - 1) for row in rows}
    worst = max(errors, key=lambda what: abs(errors[what]))
    mape = sum(map(abs, errors.values())) / len(errors)
    return f"MAPE {mape:.2f}%, worst {worst} {errors[worst]:+.1f}%"


def _sensitivity(
    names: Sequence[str], rows: Sequence[Published], jac: Any, x: NDArray[Any], emulated: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    return {
        name: {row.what: float(jac[i, j] * x[j] * row.value / emulated[row.what]) for i, row in enumerate(rows)}
        for j, name in enumerate(names)
    }


def _intervals(names: Sequence[str], found: Any, high: NDArray[Any]) -> dict[str, tuple[float, float]]:
    """Profiles of the constants, where rows depend on them as they do at the end of the search (they nearly do)."""
    ends = {}
    for j, name in enumerate(names):
        moved = -_reach(found.fun, found.jac, j, -1.0), _reach(found.fun, found.jac, j, 1.0)
        low, most = ((found.x[j] + step) * high[j] for step in moved)
        ends[name] = max(low, _range(name)[0]), min(most, _range(name)[1])
    return ends


def _reach(residuals: NDArray[Any], jac: NDArray[Any], j: int, sign: float) -> float:
    """Return how far a constant may move one way, the others making up for it, until a row is off by too much."""
    others = np.delete(jac, j, axis=1)

    def worst(step: float) -> float:
        moved = residuals + sign * step * jac[:, j]
        again, *_ = np.linalg.lstsq(others, -moved, rcond=None)
        return 100 * float(np.abs(moved + others @ again).max())

    inside, outside = 0.0, 1.0
    if worst(inside) > OFF_PERCENT:
        return 0.0
    for _ in range(40):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if worst(middle) <= OFF_PERCENT else (inside, middle)
    return inside


def as_toml(found: FittedConstants) -> str:
    """The fit as the file that `Costs` reads its fitted constants from, with its report."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: FittedConstants) -> Iterator[str]:
    yield "# Written by `xccl-emu fit`; do not edit. Fitted to the rows below (role \"fit\") and to nothing else."
    yield "[constants]"
    yield from (f"{name} = {value:g}" for name, value in found.constants.items())
    yield ""
    yield "[report]"
    yield f"constants = {len(found.constants)}"
    yield f"rows = {len(found.rows)}"
    yield f"evaluations = {found.evaluations}"
    yield f"mape_percent = {found.mape_percent:.2f}"
    yield ""
    yield f"# How far each may be, the others fitted again, with no row off by more than {OFF_PERCENT:g}%."
    yield "[intervals]"
    yield from (f"{name} = [{low:.4g}, {high:.4g}]" for name, (low, high) in found.intervals.items())
    for row in found.rows:
        yield ""
        yield "[[row]]"
        yield f'what = "{row.what}"'
        yield f'unit = "{row.unit}"'
        yield f"published = {row.value:g}"
        yield f"emulated = {found.emulated[row.what]:.2f}"
        yield f"residual_percent = {found.residual_percent(row):.2f}"
        share = ", ".join(f"{name} = {by_row[row.what]:.3f}" for name, by_row in found.sensitivity.items())
        yield f"percent_per_percent = {{ {share} }}"


def fit_rows() -> tuple[Published, ...]:
    """Return all rows that may be fitted to: six rows of Table 7 and one of HIXL."""
    return (*published.rows("fused", "fit"), *published.rows("hixl", "fit"))


def fit_published(setting: Setting, report: Callable[[str], None]) -> FittedConstants:
    """Fit to them."""
    rows = fit_rows()
    latencies = fused.measure(setting, [row for row in rows if row.measurement == "fused"])
    copies = [row for row in rows if row.measurement == "hixl"]

    def times(costs: Costs) -> dict[str, float]:
        copied = links.hixl(replace(setting, costs=costs), copies)
        return {**latencies(costs), **{result.what: float(result.emulated or 0) for result in copied}}

    return fit(rows, times, setting.costs, report)
