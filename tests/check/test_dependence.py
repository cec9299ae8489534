"""The table of dependences is what the machine does: both orders of two actions, in each state of small programs."""

from collections import Counter
from itertools import product

import pytest

from xccl_emu.check.device import dependence as table
from xccl_emu.guards.campaign.programs import ORDERS
from xccl_emu.lang import requests as rq

from .dependence_programs import KINDS, MORE, beside, judge_small, pairs
from .dependence_support import RELEASED, WAITED, Judge, Result, rows_of

Cell = tuple[int, int, int, int]
"""The number of a row, two effects, and what came of them, orders or an enabling."""


@pytest.fixture(scope="module")
def judged() -> Result:
    """What both orders of all pairs have shown, under each order."""
    judge = Judge()
    for small, order, memory in beside():
        judge_small(judge, small, order, memory)
    for order in ORDERS:
        for small, memory in pairs(KINDS):
            judge_small(judge, small, order, memory)
    return judge.result


def cells() -> set[Cell]:
    """All that the table says: of each row each two effects, both orders of them or an enabling."""
    found = set()
    for n, row in enumerate(table.TABLE):
        for a, b, how in product(
            range(table.EFFECTS), range(table.EFFECTS), (table.DIFFER | table.PREVENT, table.ENABLE)
        ):
            if row.one >> a & row.other >> b & 1 and row.how & how:
                found.add((n, a, b, how))
    return found


def said(cell: Cell) -> str:
    """A cell, to be read."""
    n, one, other, how = cell
    came = "enabled" if how == table.ENABLE else "in both orders"
    return f"{table.NAMES[one]} x {table.NAMES[other]}, {came}: {table.TABLE[n].why}"


def test_no_two_actions_differ_without_a_row(judged: Result) -> None:
    """Where two actions do not commute, or one prevents or enables the other, a row of the table says so."""
    assert judged.states > 20_000
    assert judged.pairs > 10_000
    assert not judged.unsaid, "\n".join(judged.unsaid.values())


def test_every_cell_is_shown_by_a_program(judged: Result) -> None:
    """What the table says of two effects happens, or the row says why it stays; and what is shown is not excused."""
    shown = Counter[Cell]()
    for of in (judged.shown, judged.with_others):
        for (n, one, other, _, how), times in of.items():
            shown[n, one, other, how] += times
            if table.TABLE[n].one >> other & table.TABLE[n].other >> one & 1 and how != table.ENABLE:
                shown[n, other, one, how] += times
    never = {cell for cell in cells() if not shown[cell]}
    assert not [said(cell) for cell in sorted(never) if not table.TABLE[cell[0]].kept]
    assert not [row.why for n, row in enumerate(table.TABLE) if row.kept and n not in {cell[0] for cell in never}]


def test_no_row_says_what_others_say(judged: Result) -> None:
    """Each row is the only one that has some difference: without it the table would be wrong."""
    alone = {key[0] for key in judged.shown}
    assert not [row.why for n, row in enumerate(table.TABLE) if n not in alone]


@pytest.mark.nightly
def test_no_further_two_actions_differ_without_a_row() -> None:
    """More kinds of instructions, each with every other."""
    judge = Judge()
    for order in ORDERS:
        for small, memory in pairs(KINDS, MORE):
            judge_small(judge, small, order, memory)
    assert not judge.result.unsaid, "\n".join(judge.result.unsaid.values())


@pytest.mark.parametrize("row", [row for row in rq.TABLE if row.waits], ids=lambda row: row.name)
def test_a_wait_has_its_cell(row: rq.Operation) -> None:
    """What the row of a request waits for is enabled by its release, as the table says, and something releases it."""
    one, other = WAITED[row.waits], RELEASED[row.waits]
    assert any(each.how & table.ENABLE and each.one >> one & each.other >> other & 1 for each in table.TABLE)
    released = {each.releases for each in rq.TABLE} | {"memory" for each in rq.TABLE if each.writes} | {"visible"}
    assert row.waits in released


def test_a_row_less_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the row of additions of two widths, two of the programs show a difference that no row has."""
    rows = tuple(row for row in table.TABLE if "carries" not in row.why)
    monkeypatch.setattr(table, "TABLE", rows)
    rows_of.cache_clear()
    judge = Judge()
    for small, memory in pairs({"add": KINDS["add"], "add_out": KINDS["add_out"]}):
        judge_small(judge, small, "relaxed", memory)
    rows_of.cache_clear()
    assert [text for text in judge.result.unsaid.values() if ": differ (2)" in text]
