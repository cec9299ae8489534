"""The axioms agree with the explorer, with the tables and with the machine: the same outcomes, in both directions."""

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from . import orders, requests, signals
from .axioms import allowed, allowed_of, rules
from .model import Program, fifo, outcomes, relaxed, sc
from .on_machine import ASKED, reached, run, run_test, whole
from .suite import FENCE_TESTS, TESTS, Litmus, Op
from .test_model import HOMES, programs

OLD = (*TESTS, *FENCE_TESTS)
TABLES = {"orders": orders, "requests": requests, "signals": signals}


def test_the_axioms_are_the_explorers_orders() -> None:
    """The axioms allow of all 90 older tests, under sc, fifo and relaxed, exactly what the explorer reaches."""
    wrong = []
    for test in OLD:
        for name, order in {"sc": sc(), "fifo": fifo(test.home), "relaxed": relaxed(home=test.home)}.items():
            if allowed_of(test, name) != outcomes(test.program, order):
                wrong.append((test.name, name))
    assert wrong == []


@settings(max_examples=60, deadline=None)
@given(programs(kinds="wwwrrsfu", addresses="xyz", length=4), st.sampled_from(HOMES))
def test_the_axioms_are_the_explorers_orders_for_random_programs(program: Program, home: Mapping[str, int]) -> None:
    """So they do of any small program."""
    for name, order in {"sc": sc(), "fifo": fifo(home), "relaxed": relaxed(home=home)}.items():
        assert allowed(program, rules(name, home)) == outcomes(program, order)


@pytest.mark.parametrize(("table", "order"), [(name, order) for name in TABLES for order in TABLES[name].COLUMNS])
def test_the_axioms_reproduce_the_tables(table: str, order: str) -> None:
    """The axioms allow the outcome that is asked for exactly where the column says A."""
    tests = TABLES[table].TESTS
    assert [t.name for t in tests if reached(t.asked, allowed_of(t, order)) != t.allows[order]] == []


@pytest.mark.parametrize("order", ["sc", "fifo"])
def test_orders_that_keep_all_ask_nobody(order: str) -> None:
    """Under sc and fifo it does not matter what a request asks for, and a signal is one more write."""
    for test in (*requests.TESTS, *signals.TESTS):
        assert allowed_of(test, order) == allowed(test.program, rules(order, test.home)), test.name


# ---- the machine


def disagrees(test: Litmus, order: str, puts: str = "n") -> bool:
    """Has the machine other outcomes than the axioms?"""
    found, explored = run_test(test, order, puts)
    return not whole(explored) or found != allowed_of(test, order)


def tells_who_writes(table: str, test: Litmus, order: str) -> bool:
    """Can a thread see that mtu-out's writes leave late: does it read what it has written, or, under sc, anything
    behind a write; or draw on atomics, which wait as the order says for what has left?"""
    for ops in test.program:
        for k, op in enumerate(ops):
            written = [before[1] for before in ops[:k] if before[0] in "wa"]
            if op[0] == "r" and (op[1] in written or (order == "sc" and written)):
                return True
    return table == "requests" and any(op[0] in "uc" for ops in test.program for op in ops)


@pytest.mark.parametrize(
    ("table", "order", "puts"),
    [
        *((table, order, "n") for table in ("orders", "requests") for order in orders.COLUMNS),
        *(("orders", "unordered", puts) for puts in ("y", "yn", "ny")),
        *(("requests", order, "y") for order in requests.COLUMNS),
        *(("signals", order, "y") for order in orders.COLUMNS),
    ],
)
def test_the_machine_has_the_outcomes_of_the_axioms(table: str, order: str, puts: str) -> None:
    """Exactly their outcomes of every test of a table, by stores (n), by mtu-out (y) and by both in turn."""
    tests = [t for t in TABLES[table].TESTS if puts == "n" or not tells_who_writes(table, t, order)]
    assert [test.name for test in tests if disagrees(test, order, puts)] == []


def test_the_machine_has_the_outcomes_of_older_tests_under_unordered_too() -> None:
    """They were written before there was that order."""
    assert [test.name for test in OLD if disagrees(test, "unordered")] == []


@settings(max_examples=60)
@given(programs(kinds="wwwwrrssfu", addresses="xy", length=4), st.sampled_from(HOMES))
def test_random_programs_have_the_outcomes_of_the_axioms(program: Program, home: Mapping[str, int]) -> None:
    """Any small program has under unordered the same outcomes on the machine as by the axioms, and all of relaxed's."""
    found, explored = run(program, "unordered", home)
    assert explored.complete
    assert found == allowed(program, rules("unordered", home))
    assert found >= allowed(program, rules("relaxed", home))


@settings(max_examples=80)
@given(
    programs(kinds="wwwwwrrsfu", addresses="xy", length=4), st.sampled_from(HOMES), st.sampled_from(requests.COLUMNS),
    st.data(),
)  # fmt: skip
def test_random_requests_have_the_outcomes_of_the_axioms(
    program: Program, home: Mapping[str, int], order: str, data: st.DataObject
) -> None:
    """Any small program, asking for any orders, has the outcomes of the axioms, and under `relaxed` no others than
    under `unordered`; some of its additions are compare-and-swaps."""
    swap = st.sampled_from([(0, 1), (0, 3), (1, 2), (2, 3)])
    program = [
        [("c", op[1], op[2], *data.draw(swap)) if op[0] == "u" and data.draw(st.booleans()) else op for op in ops]
        for ops in program
    ]
    asks = [[data.draw(st.sampled_from(ASKED)) if op[0] in "wuc" else "" for op in ops] for ops in program]
    found, explored = run(program, order, home, asks)
    assert explored.complete
    assert found == allowed(program, rules(order, home), asks)
    assert found <= allowed(program, rules("unordered", home), asks)


def _requests(mine: str, theirs: str) -> st.SearchStrategy[list[tuple[Op, str, bool]]]:
    """What a thread that writes to some addresses asks for, now and then with a signal, and reads of others."""
    order, value = st.sampled_from(ASKED), st.integers(1, 3)
    write = st.tuples(st.sampled_from(mine), value, order).map(lambda w: [(("w", w[0], w[1]), w[2], False)])
    signal = st.tuples(write, st.booleans(), value).map(
        lambda s: [*s[0], (("a" if s[1] else "w", mine.replace(s[0][0][0][1], "")[0], s[2]), s[0][0][1], True)]
    )
    read = st.sampled_from(theirs).map(lambda address: [(("r", address, ""), "", False)])
    wait = st.sampled_from("fs").map(lambda kind: [((kind,), "", False)])
    return st.lists(signal | signal | write | read | wait, max_size=4).map(lambda parts: [*itertools.chain(*parts)])


@settings(max_examples=60)
@given(st.tuples(_requests("xy", "zu"), _requests("zu", "xy")), st.integers(0, 2), st.sampled_from(signals.COLUMNS))
def test_random_signals_have_the_outcomes_of_the_axioms(
    threads: tuple[list[tuple[Op, str, bool]], ...], die: int, order: str
) -> None:
    """Two threads that write to two words each, with signals or without, and read those of the other, have exactly the
    outcomes of the axioms."""
    program = [
        [("r", op[1], f"r{k}") if op[0] == "r" else op for k, (op, _, _) in enumerate(thread)] for thread in threads
    ]
    asks, signalled = ([[item[k] for item in thread] for thread in threads] for k in (1, 2))
    if not any(op[0] not in "fs" for ops in program for op in ops):
        return
    home = {"x": 0, "y": 0, "z": die, "u": die}
    found, explored = run(program, order, home, asks, signalled, puts="y")
    assert explored.complete
    assert found == allowed(program, rules(order, home), asks, signalled)
    assert found <= allowed(program, rules("unordered", home), asks, signalled)


@pytest.mark.nojit
@pytest.mark.boundscheck
def test_a_few_tests_in_plain_python_too() -> None:
    """Two stores to one word, fenced or not, have the same outcomes without the JIT and with bounds checks."""
    for test in orders.TESTS[:3]:
        assert not disagrees(test, "unordered"), test.name
