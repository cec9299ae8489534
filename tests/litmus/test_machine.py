"""The machine has exactly the outcomes of the litmus suite, found by exploring one small interpreting kernel.

Each thread runs on a core of its own die and gets its program as one integer, so that nothing but the program itself
touches memory. What it read it keeps in a register and returns when all its operations are issued; a return waits
until everything is visible, so it hides no outcome. Each address has a 32-byte granule of its own.
"""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.lang import atomic_add, fence, kernel, load, mtu_in, put, quiet, store, ub_load, ub_store
from xccl_emu.machine.explore import Explored

from .model import Op, Outcome, Program, fifo, outcomes, relaxed, sc
from .on_machine import outcomes_at, reached, whole
from .suite import FENCE_COLUMNS, FENCE_TESTS, TESTS, Column, Litmus
from .test_model import ONE_HOME, ORDERS, OWN_HOME, programs

WRITE, READ, WAIT, FETCH_ADD, PULL, AWAIT_PULL, PUT = range(1, 8)
QUIET, FENCE = range(2)  # what a WAIT has for an address
PENDING = 255  # no value of a program; stands in the data buffer until a read has completed
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


@kernel
def interpret(program, pulled, home, dies, stride):
    """Run up to five operations of 12 bits: kind (3), address (2), value (4), slot (3); return slots of 8 bits."""
    seen = 0
    while program > 0:
        kind = program & 7
        where = program >> 3 & 3
        address = home + (dies >> 2 * where & 3) * stride + where * 32
        value = program >> 5 & 15
        slot = program >> 9 & 7
        program = program >> 12
        if kind == WRITE:
            yield store(address, value)
        elif kind == READ:
            word = yield load(address)
            seen |= word << 8 * slot
        elif kind == PUT:
            yield put(address, value)
        elif kind == WAIT:
            if where == FENCE:
                yield fence()
            else:
                yield quiet()
        elif kind == FETCH_ADD:
            word = yield atomic_add(address, value)
            seen |= word << 8 * slot
        elif kind == PULL:
            yield ub_store(8 * slot, PENDING, 8)
            yield mtu_in(address, 8 * slot, 8)
        elif kind == AWAIT_PULL:  # not by an event: a flag would keep the reads behind it from overtaking
            word = PENDING
            while word == PENDING:
                word = yield ub_load(8 * slot, 8)
    if pulled > 0:
        yield quiet()
        for i in range(5):
            if pulled >> i & 1:
                word = yield ub_load(8 * i, 8)
                seen |= word << 8 * i
    return seen


def encode(
    ops: tuple[Op, ...], asynchronous: bool, addresses: list[str], puts: str = "n"
) -> tuple[int, int, list[str]]:
    """A thread as (program, mask of slots read asynchronously, register of each slot).

    As in the model: an address that the thread has written is read by a scalar load, and a write waits for the
    thread's reads of its address.  ``puts`` says of each write in turn whether mtu-out makes it (y) or a store.
    """
    steps: list[tuple[int, int, int, int]] = []
    registers: list[str] = []
    pending: dict[str, int] = {}
    written: set[str] = set()
    pulled = 0
    for op in ops:
        if op[0] == "f" or op[0] == "s":
            if op[0] == "f":
                pending.clear()
            steps.append((WAIT, QUIET if op[0] == "f" else FENCE, 0, 0))
            continue
        at = addresses.index(op[1])
        if op[0] == "r":
            kind = PULL if asynchronous and op[1] not in written else READ
            if kind == PULL:
                pending[op[1]] = len(registers)
                pulled |= 1 << len(registers)
            steps.append((kind, at, 0, len(registers)))
            registers.append(op[2])
            continue
        if op[1] in pending:
            steps.append((AWAIT_PULL, 0, 0, pending.pop(op[1])))
        written.add(op[1])
        if op[0] == "w":
            by_put = puts[sum(step[0] in (WRITE, PUT) for step in steps) % len(puts)] == "y"
            steps.append((PUT if by_put else WRITE, at, op[2], 0))
        else:
            steps.append((FETCH_ADD, at, op[3], len(registers)))
            registers.append(op[2])
    assert len(steps) <= 5
    assert len(registers) <= 5
    words = (kind | at << 3 | value << 5 | slot << 9 for kind, at, value, slot in steps)
    program = sum(word << 12 * i for i, word in enumerate(words))
    return program, pulled, registers


def run(program: Program, column: Column) -> tuple[set[Outcome], Explored]:
    """All outcomes of a litmus program on the machine, named as the model names them."""
    order, own_die, asynchronous = MACHINE[column]
    return run_at(program, order, OWN_HOME if own_die else ONE_HOME, asynchronous)


def run_at(
    program: Program, order: str, home: Mapping[str, int], asynchronous: bool = False, puts: str = "n"
) -> tuple[set[Outcome], Explored]:
    """As `run`, with each address on the die that ``home`` says."""
    return outcomes_at(program, order, home, interpret, lambda t, at: encode(tuple(program[t]), asynchronous, at, puts))


def _wrong(tests: tuple[Litmus, ...], column: Column) -> list[str]:
    """Tests whose asked outcome, or whose whole set of outcomes, is not as tabled and as the model has it."""
    wrong = []
    for test in tests:
        found, explored = run(test.program, column)
        as_tabled = reached(test.asked, found) == test.allows(column)
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
    found, explored = run(program, column)
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
        program = test.test.program
        found, explored = run_at(program, order, test.home, puts=puts)
        as_tabled = reached(test.test.asked, found) == (test.expected[FENCE_COLUMNS.index(order)] == "A")
        if not (as_tabled and whole(explored) and found == outcomes(program, MODEL[order](test.home))):
            wrong.append(test.name)
    assert wrong == []


@settings(max_examples=60)
@given(
    programs(kinds="wwwwrssfu", addresses="xyz", length=4),
    st.sampled_from(FENCE_COLUMNS),
    st.sampled_from([ONE_HOME, OWN_HOME, {"x": 0, "y": 0, "z": 1}, {"x": 1, "y": 0, "z": 1}]),
    st.booleans(),
)
def test_random_programs_with_fences_have_the_outcomes_of_the_model(
    program: Program, order: str, home: Mapping[str, int], asynchronous: bool
) -> None:
    """Any small program with fences, over one die and over several: the same outcomes as in the model."""
    found, explored = run_at(program, order, home, asynchronous)
    assert explored.complete
    model = {"sc": sc(asynchronous), "relaxed": relaxed(asynchronous, home), "fifo": fifo(home, pulls=asynchronous)}
    assert found == outcomes(program, model[order])
