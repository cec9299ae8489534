"""The fit: what it rests on, that it finds what is there to find, and that the release has what it found."""

import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from importlib.resources import files

import pytest

from xccl_emu.base.errors import ConfigError
from xccl_emu.papers.bench import published
from xccl_emu.papers.bench.fit import OFF_PERCENT, as_toml, fit, fit_rows, free_constants
from xccl_emu.timing.costs import Costs

pytest.importorskip("scipy")

ROWS = fit_rows()
TRUE = {"skew_us": 10.0, "launch_us": 6.0, "dma_less_us": 0.7}
WEIGHTS = {"dispatch": (2.0, 1.0, 0.0), "combine": (0.0, 1.0, 0.0), "write": (0.0, 0.0, 60.0)}


def pretend(costs: Costs) -> Mapping[str, float]:
    """Times that depend on the free constants as the kernels' do: dispatch on two, combine and copies on one."""
    times = {}
    for i, row in enumerate(ROWS):
        weights = WEIGHTS[row.what.split()[0]]
        grows = [1.0 if name == "launch_us" else 1 + 0.1 * i for name in TRUE]
        moved = [w * getattr(costs, name) * grow for w, name, grow in zip(weights, TRUE, grows, strict=True)]
        times[row.what] = 60.0 + sum(moved)
    return times


MADE = pretend(replace(Costs(), **TRUE))
MADE_ROWS = [replace(row, value=MADE[row.what]) for row in ROWS]


def test_a_fit_finds_the_constants_that_rows_were_made_with() -> None:
    """Rows made with known constants are fitted to a fraction of a percent, and the report has a residual for each."""
    steps: list[str] = []
    found = fit(MADE_ROWS, pretend, Costs(), steps.append)
    assert found.mape_percent < 0.3
    assert found.constants["launch_us"] == pytest.approx(TRUE["launch_us"], rel=0.2)
    assert len(steps) == found.evaluations
    for name, (low, high) in found.intervals.items():
        assert low < found.constants[name] < high
    written = tomllib.loads(as_toml(found))
    assert set(written["constants"]) == set(free_constants())
    assert [row["what"] for row in written["row"]] == [row.what for row in ROWS]


def test_nothing_is_fitted_to_other_rows() -> None:
    """A row that is there to be checked is refused, and so are fewer rows than constants."""
    check = published.rows("fused", "check")[0]
    with pytest.raises(ConfigError, match="role='check'"):
        fit([*ROWS, check], pretend, Costs(), print)
    with pytest.raises(ConfigError, match="2 of them cannot determine 3"):
        fit(ROWS[:2], pretend, Costs(), print)


def test_at_the_end_of_an_interval_a_row_is_off() -> None:
    """A constant that alone moves one row may be as far off as that row may; beyond it the row is off by more."""
    found = fit(MADE_ROWS, pretend, replace(Costs(), **TRUE), lambda _: None)
    for end in found.intervals["dma_less_us"]:
        row = ROWS[-1].what
        off = pretend(replace(Costs(), **{**TRUE, "dma_less_us": end}))[row] / MADE[row] - 1
        assert 100 * abs(off) == pytest.approx(OFF_PERCENT, rel=0.05)


def test_the_release_has_at_most_four_fitted_constants_and_their_report() -> None:
    """What `Costs` marks as fitted is what the file has, from the seven rows for it, none at the end of its range."""
    written = tomllib.loads(files("xccl_emu.timing").joinpath("fitted.toml").read_text("utf-8"))
    assert len(free_constants()) <= 4
    assert written["constants"] == {name: getattr(Costs(), name) for name in free_constants()}
    told = {row["what"]: row["published"] for row in written["row"]}
    assert told == {row.what: row.value for row in ROWS}
    for constant in fields(Costs):
        if constant.name in free_constants():
            low, high = constant.metadata["range"]
            assert low + 0.02 * (high - low) < getattr(Costs(), constant.name) < high - 0.02 * (high - low)
            assert set(written["intervals"]) == set(free_constants())
