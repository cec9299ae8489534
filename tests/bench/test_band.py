"""Intervals: which constants they come from, and whether they are what drawing all constants at once gives."""

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli_support import as_json
from xccl_emu.base.errors import UnfinishedError
from xccl_emu.lang.requests import OPERATIONS
from xccl_emu.papers.bench import band, published
from xccl_emu.papers.bench.fused import FusedLayer
from xccl_emu.papers.bench.layers import Layer
from xccl_emu.papers.bench.links import hixl
from xccl_emu.papers.bench.result import Result, score
from xccl_emu.papers.bench.setting import Setting
from xccl_emu.papers.cli.bench import Partial, banded
from xccl_emu.timing import costs
from xccl_emu.timing.costs import Costs

BARE = Setting(data=False)
LAYER = FusedLayer(BARE, Layer(4, 8, 2048, 8, 2, 4))
"""Small enough to be run some hundred times."""


def two_rows(setting: Setting) -> list[Result]:
    """A dispatch, and a copy by DMA, which hang on constants that are not the same."""
    dispatch = setting.operator_us(LAYER.run(setting.costs).dispatch)
    return [Result("fused", "small", dispatch, "us"), *hixl(setting, published.rows("hixl")[16:17])]


@given(st.lists(st.integers(-1000, 1000)))
def test_moves_are_added_in_squares(eighths: list[int]) -> None:
    """Each side by itself: none is above the sum of its moves, nor below the largest."""
    moves = [each / 8 for each in eighths]
    down, up = costs.in_squares(moves)
    for got, some in ((-down, [-m for m in moves if m < 0]), (up, [m for m in moves if m > 0])):
        assert max(some, default=0.0) * (1 - 1e-9) <= got <= sum(some) * (1 + 1e-9)


def test_what_is_known_has_no_range() -> None:
    """A constant that somebody has set is left alone; fitted ones go as far as the report of their fit says."""
    ranges = costs.ranges()
    assert {"skew_us", "launch_us", "dma_less_us", "load_ns"} <= set(ranges)
    assert ranges["skew_us"][0] < Costs().skew_us < ranges["skew_us"][1] < 40
    named = {name for name, _ in costs.ends(replace(Costs(), skew_us=0.0, load_ns=31.0))}
    assert named == set(ranges) - {"skew_us", "load_ns"}
    assert all(value != getattr(Costs(), name) for name, value in costs.ends(Costs()))


def drawn(rng: np.random.Generator) -> Costs:
    """Return all constants at once, each with a tenth of its values beyond either end of its range."""
    values = {}
    for name, (low, high) in costs.ranges().items():
        usual, far = getattr(Costs(), name), rng.standard_normal() / 1.2816
        value = usual + far * (high - usual if far > 0 else usual - low)
        values[name] = min(8, max(1, round(value))) if name in ("dma_engines", "dma_in_flight") else max(value, low / 8)
    return Costs(**values)


def test_intervals_are_those_of_drawn_constants() -> None:
    """Eight of ten draws of all constants are in the interval, and as many are below it as above, nearly."""
    rows = band.with_bands(two_rows(BARE), [job.run() for job in band.jobs(BARE, two_rows)])
    rng, below, above, n = np.random.default_rng(5), [0, 0], [0, 0], 150
    for _ in range(n):
        for i, one in enumerate(two_rows(replace(BARE, costs=drawn(rng)))):
            assert rows[i].low is not None
            assert rows[i].high is not None
            assert one.emulated is not None
            below[i] += one.emulated < rows[i].low
            above[i] += one.emulated > rows[i].high
    for i, _ in enumerate(rows):
        assert 0.7 < 1 - (below[i] + above[i]) / n < 0.92
        assert max(below[i], above[i]) < 0.25 * n


@pytest.mark.parametrize("number", [0, 1])
def test_constants_of_operations_that_nobody_asked_for_move_nothing(number: int) -> None:
    """Runs at both ends of a constant that a bench leaves out are as long to the picosecond; and it leaves some out."""

    def one_row(setting: Setting) -> list[Result]:
        group = FusedLayer(setting, Layer(4, 8, 2048, 8, 2, 4)) if number == 0 else None
        if group is not None:
            return [Result("fused", "small", setting.operator_us(group.run(setting.costs).combine), "us")]
        return [*hixl(setting, published.rows("hixl")[16:17])]

    setting = Setting(data=False)
    (usual,) = one_row(setting)
    ends, made = costs.ends(setting.costs), {job.name for job in band.jobs(setting, one_row)}
    left_out = {each: costs for each, costs in ends.items() if f"{each[0]} {each[1]:g}" not in made}
    assert {name for name, _ in left_out} > ({"dma_start_us", "fence_ns"}, {"core_gb_s", "vector_start_ns"})[number]
    for each in left_out.values():
        assert one_row(replace(setting, costs=each))[0].emulated == usual.emulated


def test_no_bench_has_a_clock_of_its_own() -> None:
    """All runs of benches are timed by a clock of their setting, so that it knows which operations were granted."""
    sources = {path.name: path.read_text("utf-8") for path in Path(band.__file__).parent.glob("*.py")}
    assert [name for name, text in sources.items() if "VirtualTime(" in text] == ["setting.py"]


def test_every_constant_that_may_be_left_out_is_one_of_the_clock() -> None:
    """What `READ_FOR` names is a constant, and the operations are ones that there are."""
    assert set(band.READ_FOR) <= {field.name for field in fields(Costs)}
    assert frozenset.union(*band.READ_FOR.values()) <= set(OPERATIONS)
    assert band.moves("fence_ns", ())
    assert band.moves("poll_ns", {"return"})
    assert not band.moves("fence_ns", {"return"})


def test_fitted_rows_have_the_interval_of_the_fit() -> None:
    """It is as wide as residuals are, and no run moves it."""
    row = Result("fused", "a", 100.0, "us", 101.0, "fit")
    (one,) = band.with_bands([row], [[replace(row, emulated=200.0)]])
    assert one.low == pytest.approx(200 - one.high)
    assert one.high == pytest.approx(100 + band.fit_percent())
    assert 1 < band.fit_percent() < 3


def test_a_run_that_fails_leaves_rows_without_intervals() -> None:
    """A row is as it was if one end of a range has no result, and what is raised says which."""

    def make(setting: Setting) -> list[Result]:
        raise UnfinishedError("no end")

    row = Result("fused", "a", 100.0, "us")
    with pytest.raises(Partial, match=r"failed:\n  clock_ns 0\.5: no end") as raised:
        banded([row], make, True, BARE)
    assert raised.value.results == [row]


def test_rows_inside_are_counted() -> None:
    """A published number in its interval counts, one beside it does not, nor does a bound or a row without one."""

    def row(published: float | None, low: float | None, relation: str = "=") -> Result:
        high = None if low is None else low + 10
        return Result("tables", "a", 10.0, "us", published, "check", relation, low=low, high=high)

    rows: Sequence[Result] = [row(12, 5), row(20, 5), row(12, 5, "<"), row(None, 5), row(11, None)]
    found = score(rows, "check")
    assert found is not None
    assert (found.inside, found.n_rows) == (1, 3)
    without = score(rows[-1:], "check")
    assert without is not None
    assert without.inside is None


def test_the_command_says_intervals() -> None:
    """With --band each row is in an interval that is not empty; without it there is none."""
    words = ("bench", "dispatch", "--ranks", "2", "--batches", "1", "--no-data")
    assert [row["low"] for row in as_json(*words)["results"]] == [None, None]
    for row in as_json(*words, "--band")["results"]:
        assert row["low"] < row["emulated"] < row["high"]
        assert math.isfinite(row["high"])
