"""Alpha-beta beside published rows, and rows beside those of an earlier run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xccl_emu.base.errors import ConfigError
from xccl_emu.papers.bench import baseline
from xccl_emu.papers.bench.result import BenchRows, Result, Wire, board, by_table, scores
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
    """All check rows count for the model, those that have a line for it; what is shown or fitted to for neither."""
    rows = [row("a", 20.0, Wire("one", 10.0)), row("b", 40.0, Wire("one", 10.0)), row("c", 7.0, None, emulated=14.0)]
    rows += [replace(rows[0], what="d", role="fit"), replace(rows[0], what="e", role="shown")]
    found = by_table([*rows, *baseline.alpha_beta(rows)])
    assert {name: (one.n_rows, one.mape_percent) for name, one in found["tables"].items() if name == "emulated"} == {
        "emulated": (3, pytest.approx(100 / 3))
    }
    assert found["tables"]["alpha-beta"].n_rows == 2
    assert (found["tables"]["alpha-beta"].mape_percent or 0) > 0
    assert [(one.role, one.n_rows) for one in scores(rows)] == [("fit", 1), ("check", 3)]


def test_bounds_are_counted_and_have_no_error() -> None:
    """A table of bounds alone is on the scoreboard, with how many hold."""
    rows = [row(name, 2.0, None, relation=">", emulated=us) for name, us in (("a", 1.0), ("b", 3.0))]
    assert [*board(rows)] == [("tables", "", "", "", "", "", "1 of 2")]
    assert board_json(rows) == {"n_rows": 0, "mape_percent": None, "n_bounds": 2, "held": 1}


def board_json(rows: list[Result]) -> dict[str, object]:
    """Some words of the only row of the scoreboard in JSON."""
    (one,) = BenchRows(rows, 0, False, "", []).to_json()["tables"]
    return {name: one[name] for name in ("n_rows", "mape_percent", "n_bounds", "held")}


def test_a_line_is_fitted_once_for_all_tables() -> None:
    """Two machines share the start-up of a kind: each is off by what the other wants; refitted, neither is."""
    rows = [row("a", 20.0, Wire("one", 10.0)), row("b", 60.0, Wire("one", 40.0), machine="H800", bench="others")]
    once = {line.bench: line.emulated for line in baseline.alpha_beta(rows, baseline.ONCE)}
    start = (10 / 20 / 20 + 20 / 60 / 60) / (1 / 400 + 1 / 3600)
    assert [*once] == ["tables, alpha-beta once", "others, alpha-beta once"]
    assert [*once.values()] == pytest.approx([10 + start, 40 + start])
    made = [*rows, *baseline.alpha_beta(rows), *baseline.alpha_beta(rows, baseline.ONCE)]
    assert [cells[:2] for cells in board(made)] == [
        ("tables", "1"), ("others", "1"), ("all with a line", "2"), ("all", "2"),
    ]  # fmt: skip
    (_, _, model, line, refitted, *_), *_ = board(made)
    assert (model, refitted) == ("0.0%", "0.0%")
    assert line != "0.0%"


def test_several_tables_are_scored_together_as_well() -> None:
    """One sum has the rows of all tables that have a line, for the model and for the line; the other has all rows."""
    rows = [row(name, us, Wire(name, 10.0), bench=f"bench {name}") for name, us in (("a", 20.0), ("b", 40.0))]
    found = by_table([*rows, row("c", 7.0, None, emulated=14.0), *baseline.alpha_beta(rows)])
    assert {name: {of: one.n_rows for of, one in scored.items()} for name, scored in found.items()} == {
        "bench a": {"emulated": 1, "alpha-beta": 1}, "bench b": {"emulated": 1, "alpha-beta": 1},
        "tables": {"emulated": 1}, "all with a line": {"emulated": 2, "alpha-beta": 2}, "all": {"emulated": 3},
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
