"""Alpha-beta beside published rows, and rows beside those of an earlier run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xccl_emu.base.errors import ConfigError
from xccl_emu.papers.bench import baseline
from xccl_emu.papers.bench.result import Result, Wire, by_table, scores
from xccl_emu.papers.bench.setting import Setting
from xccl_emu.timing import topologies


def row(what: str, published: float, wire: Wire | None, **more: object) -> Result:
    """A check row that the model hits."""
    made = Result("tables", what, published, "us", published, "check", machine="CloudMatrix384", wire=wire)
    return replace(made, **more)  # type: ignore[arg-type]


@given(st.floats(0.1, 100), st.lists(st.floats(1, 1000), min_size=1, max_size=6), st.integers(1, 64))
def test_a_line_finds_the_start_up_that_rows_have(alpha: float, wires: list[float], starts: int) -> None:
    """Rows that are made by alpha-beta are met by it, in time and in bandwidth."""
    took = [us + starts * alpha for us in wires]
    rows = [row(f"{i}", took[i], Wire("copy", us, starts)) for i, us in enumerate(wires)]
    rows += [row(f"{i}, gib", 8e6 / took[i], Wire("copy", us, starts, 8.0)) for i, us in enumerate(wires)]
    lines = [*baseline.alpha_beta(rows)]
    assert [line.bench for line in lines] == ["tables, alpha-beta"] * len(rows)
    assert all(abs(line.error_percent or 0) < 1e-6 for line in lines)


def test_a_start_up_is_never_below_nothing() -> None:
    """Rows that are faster than their bytes get the bytes alone."""
    (line,) = baseline.alpha_beta([row("fast", 5.0, Wire("copy", 10.0))])
    assert line.emulated == 10.0


def test_only_rows_with_bytes_have_a_line_and_kinds_have_their_own() -> None:
    """Another kind, or another machine, does not move the start-up; what is shown alone has none."""
    rows = [
        row("a", 20.0, Wire("one", 10.0)), row("b", 40.0, Wire("two", 10.0)), row("c", 7.0, None),
        row("d", 90.0, Wire("one", 10.0), machine="H800"), row("e", 90.0, Wire("one", 10.0), role="shown"),
    ]  # fmt: skip
    assert [(line.what, line.emulated) for line in baseline.alpha_beta(rows)] == [("a", 20), ("b", 40), ("d", 90)]


def test_both_scores_stand_beside_each_other_by_table() -> None:
    """The same rows count for the model and for the line, and rows without a line for neither."""
    rows = [row("a", 20.0, Wire("one", 10.0)), row("b", 40.0, Wire("one", 10.0)), row("c", 7.0, None, emulated=14.0)]
    found = by_table([*rows, *baseline.alpha_beta(rows)])
    assert {name: (one.n_rows, one.mape_percent > 0) for name, one in found["tables"].items()} == {
        "emulated": (2, False), "alpha-beta": (2, True),
    }  # fmt: skip
    assert [one.n_rows for one in scores(rows)] == [3]


def test_several_tables_are_scored_together_as_well() -> None:
    """The sum has the rows of all tables that have a line, for the model and for the line, and stands first."""
    rows = [row(name, us, Wire(name, 10.0), bench=f"bench {name}") for name, us in (("a", 20.0), ("b", 40.0))]
    found = by_table([*rows, row("c", 7.0, None, emulated=14.0), *baseline.alpha_beta(rows)])
    assert {name: {of: one.n_rows for of, one in scored.items()} for name, scored in found.items()} == {
        "all of these": {"emulated": 2, "alpha-beta": 2}, "bench a": {"emulated": 1, "alpha-beta": 1},
        "bench b": {"emulated": 1, "alpha-beta": 1},
    }  # fmt: skip


def test_bytes_at_published_rates() -> None:
    """Seven eighths of a die's bytes leave it; beyond the node they share its ports, unless they have others."""
    ub, h800 = topologies.topology("cloudmatrix384"), topologies.topology("h800")
    assert baseline.spread_us(ub, 8, 137_000) == pytest.approx(7 / 8)
    assert baseline.spread_us(ub, 32, 1e6) == pytest.approx(1000 / 32 * (15 / 137 + 16 / 135))
    assert baseline.spread_us(h800, 16, 1e6) == pytest.approx(1000 / 16 * max(7 / 160, 8 / 50))


def test_rows_are_scored_on_the_machine_that_they_are_of() -> None:
    """On another fabric a published number stands beside, and no more."""
    one = row("a", 20.0, None)
    assert Setting().scored(one) == one
    other = Setting(fabric=topologies.topology("h800"))
    assert other.scored(one).role == "shown"
    assert other.scored(replace(one, machine="H800")).role == "check"
    assert Setting().scored(replace(one, machine="H800", configuration={"fabric": "H800"})).role == "check"


def test_what_has_moved_since(tmp_path: Path) -> None:
    """A row that moved by more than the tolerance, one that is new, and one that is gone: each is a line."""
    path, before = tmp_path / "before.json", [row("a", 20.0, None), row("b", 40.0, None), row("c", 1.0, None)]
    path.write_text(json.dumps({"results": [one.to_json() for one in before]}), "utf-8")
    old = baseline.read(path)
    assert baseline.moved(before, old, 0.0) == []
    now = [replace(before[0], emulated=21.0), before[1], replace(before[2], what="d")]
    lines = baseline.moved(now, old, 1.0)
    assert [line.partition(":")[2].split(",")[0] for line in lines] == [
        " a: 20.0 -> 21.0 us", " d: new", " c: no longer there",
    ]  # fmt: skip
    assert len(baseline.moved(now, old, 6.0)) == 2


@pytest.mark.parametrize("text", [None, "", "{}", '{"results": [{"bench": 1}]}', '{"results": 3}'])
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str | None) -> None:
    """With its name, and what it has to be."""
    path = tmp_path / "b.json"
    if text is not None:
        path.write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=r"--against .*b\.json: must be what xccl-emu bench --json wrote"):
        baseline.read(path)
