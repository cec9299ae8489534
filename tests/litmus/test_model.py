"""The explorer reproduces the suite's columns, and behaves as memory orders must on random programs."""

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from .model import Op, Order, Program, fifo, outcomes, reachable, relaxed, sc
from .suite import COLUMNS, TESTS, Column, Litmus

ONE_HOME: Mapping[str, int] = dict.fromkeys("xyz", 0)
OWN_HOME: Mapping[str, int] = {addr: die for die, addr in enumerate("xyz")}
HOMES: tuple[Mapping[str, int], ...] = (ONE_HOME, OWN_HOME, {"x": 0, "y": 0, "z": 1}, {"x": 1, "y": 0, "z": 1})
ORDERS: dict[Column, Order] = {
    "sc": sc(),
    "tso": fifo(ONE_HOME),
    "c": relaxed(),
    "d": relaxed(pulls=True),
    "fifo_one": fifo(ONE_HOME),
    "fifo_two": fifo(OWN_HOME),
    "fifo_one_async": fifo(ONE_HOME, pulls=True),
    "fifo_two_async": fifo(OWN_HOME, pulls=True),
}
# fetch_add used as the flag, or as a quiet, after a plain write to another address of the same die.
ATOMIC_MUST_JOIN_FIFO = ("MP+rmwflag", "SB+rmwother", "BAR2")


@st.composite
def programs(
    draw: st.DrawFn, threads: int = 2, length: int = 3, kinds: str = "wwrrfu", addresses: str = "xy"
) -> Program:
    """Programs of at most `threads` x `length` operations; registers and written values are distinct."""
    one = st.lists(st.tuples(st.sampled_from(kinds), st.sampled_from(addresses)), min_size=1, max_size=length)
    shape = draw(st.lists(one, min_size=1, max_size=threads))
    return [[_op(kind, addr, t * length + i + 1) for i, (kind, addr) in enumerate(ops)] for t, ops in enumerate(shape)]


def _op(kind: str, addr: str, number: int) -> Op:
    if kind == "w":
        return ("w", addr, number)
    if kind == "r":
        return ("r", addr, f"r{number}")
    if kind == "f":
        return ("f",)
    return ("s",) if kind == "s" else ("u", addr, f"r{number}", 5)


def _named(name: str) -> Litmus:
    return next(test for test in TESTS if test.name == name)


def test_suite_is_complete_and_well_formed() -> None:
    """The suite has 66 distinct tests, asks only for names that its programs use, and fills every column."""
    assert len(TESTS) == len({test.name for test in TESTS}) == 66
    assert len({(test.program, *test.asked.items()) for test in TESTS}) == 66
    for test in TESTS:
        registers = {f"{t}:{op[2]}" for t, ops in enumerate(test.program) for op in ops if op[0] in ("r", "u")}
        assert test.asked.keys() <= registers | set(test.addresses), test.name
        assert tuple(test.allows) == COLUMNS, test.name


@pytest.mark.parametrize("column", COLUMNS)
def test_explorer_reproduces_the_column(column: Column) -> None:
    """For each of the 66 tests the explorer reaches the asked outcome exactly where the column says A."""
    wrong = [test.name for test in TESTS if reachable(test.program, ORDERS[column], test.asked) != test.allows[column]]
    assert wrong == []


def test_fifo_with_each_address_on_its_own_die_equals_relaxed() -> None:
    """With a die for each address `fifo` has exactly the outcomes of `relaxed`, not only the asked ones."""
    for test in TESTS:
        for pulls in (False, True):
            assert outcomes(test.program, fifo(OWN_HOME, pulls=pulls)) == outcomes(test.program, relaxed(pulls))


def test_columns_that_must_be_equal_are() -> None:
    """TSO is `fifo` on one die in all 66 tests (an atomic drains its die's FIFO), and c and d are `fifo` on many."""
    for test in TESTS:
        assert test.allows["fifo_one"] == test.allows["tso"], test.name
        assert test.allows["fifo_two"] == test.allows["c"], test.name
        assert test.allows["fifo_two_async"] == test.allows["d"], test.name


def test_suite_tells_whether_atomics_join_the_fifo() -> None:
    """If atomics overtook the die's FIFO, three tests that `fifo` forbids on one die would be allowed, no others."""
    wider = [test.name for test in TESTS if reachable(test.program, _overtaking(test), test.asked)]
    allowed = [test.name for test in TESTS if test.allows["fifo_one"]]
    assert set(wider) - set(allowed) == set(ATOMIC_MUST_JOIN_FIFO)
    assert set(allowed) <= set(wider)


def _overtaking(test: Litmus) -> Order:
    """`fifo` on one die, but addresses that only atomics write have a channel each."""
    ops = [op for thread in test.program for op in thread]
    atomic_only = {op[1] for op in ops if op[0] == "u"} - {op[1] for op in ops if op[0] == "w"}
    return Order(lambda thread, addr: (thread, addr if addr in atomic_only else "fifo"))


def test_writes_of_two_cores_of_one_die_share_its_fifo() -> None:
    """A relay by a neighbour on the same die keeps the data in front of the flag; from another die it does not."""
    relay = _named("ISA2")
    home = {"x": 0, "y": 1, "z": 0}
    assert not reachable(relay.program, fifo(home, die=[0, 0, 1]), relay.asked)
    assert reachable(relay.program, fifo(home, die=[0, 2, 1]), relay.asked)


def test_fifo_orders_only_what_goes_to_the_same_die() -> None:
    """Data and flag on one die arrive in order whatever the rest does; a relay over a second die loses the order."""
    message, relay = _named("MP2w"), _named("ISA2")
    assert not reachable(message.program, fifo({"x": 0, "y": 0, "z": 0}), message.asked)
    assert not reachable(message.program, fifo({"x": 1, "y": 0, "z": 0}), message.asked)
    assert reachable(message.program, fifo({"x": 0, "y": 0, "z": 1}), message.asked)
    assert reachable(relay.program, fifo({"x": 2, "y": 1, "z": 2}), relay.asked)


def test_late_reads_alone_break_message_passing() -> None:
    """Even when every write is visible at once, asynchronous reads without a quiet between them miss the data."""
    quiet_writer, quiet_both = _named("MP+f+po"), _named("MP+f+f")
    assert reachable(quiet_writer.program, sc(pulls=True), quiet_writer.asked)
    assert not reachable(quiet_both.program, sc(pulls=True), quiet_both.asked)


@settings(max_examples=100, deadline=None)
@given(programs())
def test_orders_are_nested(program: Program) -> None:
    """sc, fifo on one die, fifo on many, and relaxed allow ever more; asynchronous reads only add outcomes."""
    chain = [sc(), fifo(ONE_HOME), fifo(OWN_HOME), relaxed(), relaxed(pulls=True)]
    sets = [outcomes(program, order) for order in chain]
    assert all(narrow <= wide for narrow, wide in itertools.pairwise(sets))
    assert sets[1] <= outcomes(program, fifo(ONE_HOME, pulls=True)) <= sets[-1]


@settings(max_examples=100, deadline=None)
@given(programs(), st.sampled_from(COLUMNS))
def test_a_quiet_after_every_operation_restores_sc(program: Program, column: Column) -> None:
    """With a quiet behind each operation a program has its sequentially consistent outcomes alone, in every order."""
    awaited: Program = [[part for op in thread for part in (op, _op("f", "x", 0))] for thread in program]
    assert outcomes(awaited, ORDERS[column]) == outcomes(program, sc())


@settings(max_examples=100, deadline=None)
@given(programs(threads=1, length=6))
@example([[("w", "x", 1), ("w", "x", 2), ("r", "x", "a")]])  # two own writes in flight: the younger one is seen
def test_one_thread_sees_itself_in_order(program: Program) -> None:
    """A thread alone has one outcome, that of running its operations one by one, in every order."""
    expected = {op[1]: 0 for op in program[0] if op[0] != "f"}
    for op in program[0]:
        if op[0] in ("r", "u"):
            expected[f"0:{op[2]}"] = expected[op[1]]
        if op[0] == "w":
            expected[op[1]] = op[2]
        elif op[0] == "u":
            expected[op[1]] += op[3]
    for column in COLUMNS:
        assert outcomes(program, ORDERS[column]) == {frozenset(expected.items())}, column
