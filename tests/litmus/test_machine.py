"""The machine has exactly the outcomes of the litmus suite, and of any small program those of the model."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.machine.explore import Explored

from .model import Outcome, Program, fifo, outcomes, relaxed, sc
from .on_machine import reached, run, run_test, whole
from .suite import FENCE_COLUMNS, FENCE_TESTS, TESTS, Column, Litmus
from .test_model import HOMES, ONE_HOME, ORDERS, OWN_HOME, programs

MACHINE: Mapping[Column, tuple[str, bool, bool]] = {
    "sc": ("sc", False, False),
    "c": ("relaxed", False, False),
    "d": ("relaxed", False, True),
    "fifo_one": ("fifo", False, False),
    "fifo_two": ("fifo", True, False),
    "fifo_one_async": ("fifo", False, True),
    "fifo_two_async": ("fifo", True, True),
}
"""Column: the machine's order, whether each address has a die of its own, whether reads are asynchronous."""


def run_as(program: Program, column: Column) -> tuple[set[Outcome], Explored]:
    """All outcomes of a litmus program on the machine of a column."""
    order, own_die, asynchronous = MACHINE[column]
    return run(program, order, OWN_HOME if own_die else ONE_HOME, pulls=asynchronous)


def _wrong(tests: tuple[Litmus, ...], column: Column) -> list[str]:
    """Tests whose asked outcome, or whose whole set of outcomes, is not as tabled and as the model has it."""
    wrong = []
    for test in tests:
        found, explored = run_as(test.program, column)
        as_tabled = reached(test.asked, found) == test.allows[column]
        if not (as_tabled and whole(explored) and found == outcomes(test.program, ORDERS[column])):
            wrong.append(test.name)
    return wrong


@pytest.mark.parametrize("column", MACHINE)
def test_the_machine_has_the_outcomes_of_the_column(column: Column) -> None:
    """All 66 tests: the asked outcome exactly where the column says A, and exactly the model's set of outcomes."""
    assert _wrong(TESTS, column) == []


@pytest.mark.nojit
@pytest.mark.boundscheck
@pytest.mark.parametrize("column", MACHINE)
def test_a_few_tests_in_plain_python_too(column: Column) -> None:
    """Message passing and an atomic have the same outcomes without the JIT and with bounds checks."""
    few = tuple(test for test in TESTS if test.name in ("MP+f+po", "INC+W", "CoRW1"))
    assert len(few) == 3
    assert _wrong(few, column) == []


@settings(max_examples=30)
@given(programs(), st.sampled_from(sorted(MACHINE)))
def test_random_programs_have_the_outcomes_of_the_model(program: Program, column: Column) -> None:
    """Any small program has the same set of outcomes on the machine as in the model, in every column."""
    found, explored = run_as(program, column)
    assert explored.complete
    assert found == outcomes(program, ORDERS[column])


# ---- fences

MODEL = {"sc": lambda home: sc(), "relaxed": lambda home: relaxed(home=home), "fifo": fifo}


@pytest.mark.parametrize(
    ("order", "puts"),
    [*((order, "n") for order in FENCE_COLUMNS), ("fifo", "y"), *(("relaxed", p) for p in ("y", "yn", "ny"))],
)
def test_fences_order_what_goes_to_one_die_and_wait_for_nothing(order: str, puts: str) -> None:
    """All tests of fences, by stores, by mtu-out and by both in turn: as tabled, and exactly the model's outcomes.

    Writes of mtu-out take off late, which only `relaxed` cannot tell from a store in flight.
    """
    wrong = []
    for test in FENCE_TESTS:
        found, explored = run_test(test, order, puts)
        as_tabled = reached(test.asked, found) == test.allows[order]
        if not (as_tabled and whole(explored) and found == outcomes(test.program, MODEL[order](test.home))):
            wrong.append(test.name)
    assert wrong == []


@settings(max_examples=60)
@given(
    programs(kinds="wwwwrssfu", addresses="xyz", length=4),
    st.sampled_from(FENCE_COLUMNS),
    st.sampled_from(HOMES),
    st.booleans(),
)
def test_random_programs_with_fences_have_the_outcomes_of_the_model(
    program: Program, order: str, home: Mapping[str, int], asynchronous: bool
) -> None:
    """Any small program with fences, over one die and over several: the same outcomes as in the model."""
    found, explored = run(program, order, home, pulls=asynchronous)
    assert explored.complete
    model = {"sc": sc(asynchronous), "relaxed": relaxed(asynchronous, home), "fifo": fifo(home, pulls=asynchronous)}
    assert found == outcomes(program, model[order])
