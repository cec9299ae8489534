"""The axiomatic model agrees with the explorer and with the machine: the same sets of outcomes, in both directions."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from . import orders
from .axioms import allowed, rules
from .model import Program, fifo, outcomes, relaxed, sc
from .on_machine import reached, whole
from .suite import FENCE_TESTS, TESTS, Litmus
from .test_machine import run_at
from .test_model import ONE_HOME, OWN_HOME, programs

HOMES: tuple[Mapping[str, int], ...] = (ONE_HOME, OWN_HOME, {"x": 0, "y": 0, "z": 1}, {"x": 1, "y": 0, "z": 1})
OLD: list[tuple[Litmus, Mapping[str, int]]] = [(test, ONE_HOME) for test in TESTS]
OLD += [(test.test, test.home) for test in FENCE_TESTS]


def test_the_axioms_are_the_explorers_orders() -> None:
    """Of all 90 older tests the axioms allow under sc, fifo and relaxed exactly what the explorer reaches."""
    wrong = []
    for test, home in OLD:
        for name, order in {"sc": sc(), "fifo": fifo(home), "relaxed": relaxed(home=home)}.items():
            if allowed(test.program, rules(name, home)) != outcomes(test.program, order):
                wrong.append((test.name, name))
    assert wrong == []


@settings(max_examples=60, deadline=None)
@given(programs(kinds="wwwrrsfu", addresses="xyz", length=4), st.sampled_from(HOMES))
def test_the_axioms_are_the_explorers_orders_for_random_programs(program: Program, home: Mapping[str, int]) -> None:
    """So they do of any small program."""
    for name, order in {"sc": sc(), "fifo": fifo(home), "relaxed": relaxed(home=home)}.items():
        assert allowed(program, rules(name, home)) == outcomes(program, order)


@pytest.mark.parametrize("column", range(4))
def test_the_axioms_reproduce_the_tables(column: int) -> None:
    """The axioms allow the outcome that is asked for exactly where the column says A."""
    wrong = []
    for test in orders.TESTS:
        found = allowed(test.test.program, rules(orders.COLUMNS[column], test.home))
        if reached(test.test.asked, found) != (test.expected[column] == "A"):
            wrong.append(test.name)
    assert wrong == []


@pytest.mark.parametrize("order", orders.COLUMNS)
def test_the_machine_has_the_outcomes_of_the_axioms(order: str) -> None:
    """The machine has exactly their outcomes of every test of `orders`, and under unordered of the older ones too."""
    wrong = []
    tests = [(test.test, test.home) for test in orders.TESTS]
    for test, home in tests + OLD * (order == "unordered"):
        found, explored = run_at(test.program, order, home)
        if not whole(explored) or found != allowed(test.program, rules(order, home)):
            wrong.append(test.name)
    assert wrong == []


@pytest.mark.parametrize("puts", ["y", "yn", "ny"])
def test_unordered_does_not_ask_which_pipe_writes(puts: str) -> None:
    """With mtu-out in place of stores the outcomes are the same, where no thread reads what it has written."""
    for test in orders.TESTS:
        written = [{op[1] for op in ops if op[0] == "w"} for ops in test.test.program]
        reads = (op[1] in w for ops, w in zip(test.test.program, written, strict=True) for op in ops if op[0] == "r")
        if not any(reads):
            found, _ = run_at(test.test.program, "unordered", test.home, puts=puts)
            assert found == allowed(test.test.program, rules("unordered", test.home)), test.name


@settings(max_examples=60)
@given(programs(kinds="wwwwrrssfu", addresses="xy", length=4), st.sampled_from(HOMES))
def test_random_programs_have_the_outcomes_of_the_axioms(program: Program, home: Mapping[str, int]) -> None:
    """Any small program has under unordered the same outcomes on the machine as by the axioms, and all of relaxed's."""
    found, explored = run_at(program, "unordered", home)
    assert explored.complete
    assert found == allowed(program, rules("unordered", home))
    assert found >= allowed(program, rules("relaxed", home))


@pytest.mark.nojit
@pytest.mark.boundscheck
def test_a_few_tests_in_plain_python_too() -> None:
    """Two stores to one word, fenced or not, have the same outcomes without the JIT and with bounds checks."""
    for test in orders.TESTS[:3]:
        found, _ = run_at(test.test.program, "unordered", test.home)
        assert found == allowed(test.test.program, rules("unordered", test.home))
