"""The fit: what it rests on, that it finds what is there to find, and that the release has what it found."""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files

import pytest

from xccl_emu.bench import published
from xccl_emu.bench.fit import as_toml, fit, free_constants
from xccl_emu.errors import ConfigError
from xccl_emu.timing.costs import Costs

pytest.importorskip("scipy")

ROWS = published.rows("fused", "fit")
TRUE = {"skew_us": 10.0, "launch_us": 6.0, "barrier_ns": 3000.0, "issue_cycles": 12.0}
WEIGHTS = {"dispatch": (2.0, 1.0, 0.002, 0.5), "combine": (0.0, 1.0, 0.0, 0.3)}


def pretend(costs: Costs) -> Mapping[str, float]:
    """Times that depend on the free constants as those of the kernels do: dispatch on all, combine on two."""
    times = {}
    for i, row in enumerate(ROWS):
        weights = WEIGHTS[row.what.split()[0]]
        grows = [1.0 if name == "launch_us" else 1 + 0.1 * i for name in TRUE]
        moved = [w * getattr(costs, name) * grow for w, name, grow in zip(weights, TRUE, grows, strict=True)]
        times[row.what] = 60.0 + sum(moved)
    return times


def test_a_fit_finds_the_constants_that_rows_were_made_with() -> None:
    """Rows made with known constants are fitted to a fraction of a percent, and the report has a residual for each."""
    made = pretend(replace(Costs(), **TRUE))
    rows = [replace(row, value=made[row.what]) for row in ROWS]
    steps: list[str] = []
    found = fit(rows, pretend, Costs(), steps.append)
    assert found.mape_percent < 0.3
    assert found.constants["launch_us"] == pytest.approx(TRUE["launch_us"], rel=0.2)
    assert len(steps) == found.evaluations
    written = tomllib.loads(as_toml(found))
    assert set(written["constants"]) == set(free_constants())
    assert [row["what"] for row in written["row"]] == [row.what for row in ROWS]


def test_nothing_is_fitted_to_other_rows() -> None:
    """A row that is there to be checked is refused, and so are fewer rows than constants."""
    check = published.rows("fused", "check")[0]
    with pytest.raises(ConfigError, match="role='check'"):
        fit([*ROWS, check], pretend, Costs(), print)
    with pytest.raises(ConfigError, match="3 of them cannot determine 4"):
        fit(ROWS[:3], pretend, Costs(), print)


def test_the_release_has_at_most_four_fitted_constants_and_their_report() -> None:
    """What `Costs` marks as fitted is what the file has, from the six rows for it; every other constant says why."""
    written = tomllib.loads(files("xccl_emu.timing").joinpath("fitted.toml").read_text("utf-8"))
    assert len(free_constants()) <= 4
    assert written["constants"] == {name: getattr(Costs(), name) for name in free_constants()}
    told = {row["what"]: row["published_us"] for row in written["row"]}
    assert told == {row.what: row.value for row in ROWS}
