"""The matrix of docs/soundness.md: no cell is empty, and the functions and programs that it names are there."""

import ast
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

import xccl_emu
from xccl_emu.check.device.dependence import TABLE

from .attacks import ATTACKS
from .traps import NAMED

UNSHOWN_MOST = 0
"""Conditions of which no program is known that fails without them: fewer are better, more are refused."""
PLACES = ("check.search.device.", "check.sampling.device.", "check.search.", "check.device.", "check.", "")


@pytest.fixture(scope="module")
def tools(repository: Path) -> Any:
    """`tools/soundness.py` and `tools/judge.py`."""
    sys.path.insert(0, str(repository / "tools"))
    yield importlib.import_module("soundness"), importlib.import_module("judge")
    sys.path.remove(str(repository / "tools"))


def defined(name: str) -> bool:
    """Does a function, as the matrix names it, stand in the package?  Its file is read, not imported."""
    package = Path(xccl_emu.__file__).parent
    module, _, rest = name.rpartition(".")
    for place in PLACES:
        for file, qualified in ((module, rest), (module.rpartition(".")[0], f"{module.rpartition('.')[2]}.{rest}")):
            path = package.joinpath(*f"{place}{file}".split(".")).with_suffix(".py")
            if path.is_file() and qualified in _functions(path):
                return True
    return False


def _functions(path: Path) -> set[str]:
    found = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return found


def test_no_cell_is_empty(tools: Any) -> None:
    """Each reduction says of each feature what must hold, who asks and what shows it, or why they do not meet."""
    matrix = tools[0].Matrix()
    assert len(matrix.reductions) == 8
    empty = [
        (reduction, feature)
        for reduction, feature, cell in matrix.cells()
        if not (cell.get("apart") or all(cell.get(key) for key in ("when", "asks", "shows")))
    ]
    assert not empty
    known = {*matrix.reductions, "reductions", "features", "otherwise"}
    assert not set(matrix.data) - known
    assert not {each for name in matrix.reductions for each in matrix.data.get(name, ())} - set(matrix.features)


def test_functions_that_ask_are_there(tools: Any) -> None:
    """A condition is asked by a function of the package."""
    asks = {cell["asks"] for _, _, cell in tools[0].Matrix().cells() if "asks" in cell}
    assert [name for name in sorted(asks) if not defined(name)] == []
    assert not defined("classify.no_such_function")


def test_who_answers_for_a_dependence_is_there() -> None:
    """Each row of the table names functions of the search, or says in a sentence why none must ask."""
    assert [(row.why, name) for row in TABLE for name in row.by if " " not in name and not defined(name)] == []
    assert all(row.by for row in TABLE)


def test_programs_that_show_a_condition_are_there(tools: Any, repository: Path) -> None:
    """What fails without a condition is a trap, an attack, a planted mistake or a test that there is."""
    names = {
        "trap": set(NAMED),
        "attack": {attack.name for attack in ATTACKS},
        "planted": {mistake.name for mistake in tools[1].MISTAKES},
    }
    gone = []
    for reduction, feature, cell in tools[0].Matrix().cells():
        for shown in cell.get("shows", ()):
            kind, _, name = shown.partition(": ")
            if kind == "test":
                file, _, function = name.partition("::")
                there = function in _functions(repository / "tests" / file)
            else:
                there = shown == tools[0].NONE_YET or name in names.get(kind, ())
            gone += [] if there else [(reduction, feature, shown)]
    assert gone == []


def test_conditions_that_nothing_shows_become_fewer(tools: Any) -> None:
    """Their number is the one that is written here: one more is refused, and one less is to be kept."""
    assert tools[0].Matrix().unshown() == UNSHOWN_MOST


def test_the_page_has_the_matrix(tools: Any) -> None:
    """The table of the page is the one that the tool writes."""
    page = tools[0].PAGE.read_text("utf-8")
    assert tools[0].make(page) == page
