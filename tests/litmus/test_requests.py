"""Requests that ask for an order: the axioms have the tables, and the machine exactly the outcomes of the axioms."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.lang import atomic_add, compare_swap, fence, kernel, load, put, quiet, store
from xccl_emu.machine.explore import Explored

from .axioms import allowed, rules
from .model import Outcome, Program
from .on_machine import outcomes_at, reached, whole
from .requests import COLUMNS, TESTS
from .test_axioms import HOMES
from .test_model import programs

KINDS = (
    "", "r", "w", "w no-order", "w relaxed", "w strong", "put", "put no-order", "put relaxed", "put strong", "f", "s",
    "u", "u no-order", "u relaxed", "u strong", "c", "c no-order", "c relaxed", "c strong",
)  # fmt: skip


@kernel
def interpret(first, rest, home, dies, stride):
    """Run up to eight operations of 14 bits: kind (5), address (2), value (4), slot (3); return slots of 8 bits."""
    seen = 0
    program = first
    while program > 0:
        kind = program & 31
        where = program >> 5 & 3
        address = home + (dies >> 2 * where & 3) * stride + where * 32
        value = program >> 7 & 15
        slot = program >> 11 & 7
        program = program >> 14
        if program == 0:
            program = rest
            rest = 0
        word = 0
        if kind == 1:
            word = yield load(address)
        elif kind == 2:
            yield store(address, value)
        elif kind == 3:
            yield store(address, value, order="no-order")
        elif kind == 4:
            yield store(address, value, order="relaxed")
        elif kind == 5:
            yield store(address, value, order="strong")
        elif kind == 6:
            yield put(address, value)
        elif kind == 7:
            yield put(address, value, order="no-order")
        elif kind == 8:
            yield put(address, value, order="relaxed")
        elif kind == 9:
            yield put(address, value, order="strong")
        elif kind == 10:
            yield quiet()
        elif kind == 11:
            yield fence()
        elif kind == 12:
            word = yield atomic_add(address, value)
        elif kind == 13:
            word = yield atomic_add(address, value, order="no-order")
        elif kind == 14:
            word = yield atomic_add(address, value, order="relaxed")
        elif kind == 15:
            word = yield atomic_add(address, value, order="strong")
        elif kind == 16:
            word = yield compare_swap(address, value & 3, value >> 2)
        elif kind == 17:
            word = yield compare_swap(address, value & 3, value >> 2, order="no-order")
        elif kind == 18:
            word = yield compare_swap(address, value & 3, value >> 2, order="relaxed")
        elif kind == 19:
            word = yield compare_swap(address, value & 3, value >> 2, order="strong")
        seen |= word << 8 * slot
    return seen


def encode(ops: Sequence[tuple], asks: Sequence[str], addresses: list[str], puts: str) -> tuple[int, int, list[str]]:
    """A thread as two words and the registers of its slots; ``puts`` says of each write if mtu-out makes it (y)."""
    words, registers, writes = [], list[str](), 0
    for op, order in zip(ops, asks, strict=True):
        what = op[0]
        if what == "w":
            what, writes = "put" if puts[writes % len(puts)] == "y" else "w", writes + 1
        kind = KINDS.index(f"{what} {order}" if order else what)
        at = addresses.index(op[1]) if len(op) > 1 else 0
        value = op[2] if op[0] == "w" else op[3] if op[0] == "u" else 0
        value = op[3] | op[4] << 2 if op[0] == "c" else value
        words.append(kind | at << 5 | value << 7 | len(registers) << 11)
        registers += [op[2]] if op[0] in ("r", "u", "c") else []
    first, rest = (sum(word << 14 * i for i, word in enumerate(half)) for half in (words[:4], words[4:]))
    return first, rest, registers


def run(
    program: Program, asks: Sequence[Sequence[str]], order: str, home: Mapping[str, int], puts: str = "n"
) -> tuple[set[Outcome], Explored]:
    """All outcomes of a program on the machine."""
    return outcomes_at(program, order, home, interpret, lambda t, at: encode(program[t], asks[t], at, puts))


@pytest.mark.parametrize("column", range(2))
def test_the_axioms_reproduce_the_table(column: int) -> None:
    """The axioms allow the outcome that is asked for exactly where the column says A; sc and fifo ask nobody."""
    wrong = []
    for test in TESTS:
        found = allowed(test.test.program, rules(COLUMNS[column], test.home), test.asks)
        if reached(test.test.asked, found) != (test.expected[column] == "A"):
            wrong.append(test.name)
        for order in ("sc", "fifo"):
            strict = rules(order, test.home)
            assert allowed(test.test.program, strict, test.asks) == allowed(test.test.program, strict), test.name
    assert wrong == []


@pytest.mark.parametrize(
    ("order", "puts"), [("sc", "n"), ("fifo", "n"), *((order, puts) for order in COLUMNS for puts in "ny")]
)
def test_the_machine_has_the_outcomes_of_the_axioms(order: str, puts: str) -> None:
    """Exactly their outcomes, by stores and by mtu-out (which leaves late: so not where its thread has atomics)."""
    wrong = []
    for test in TESTS:
        if puts == "y" and any(op[0] in ("u", "c") for ops in test.test.program for op in ops):
            continue
        found, explored = run(test.test.program, test.asks, order, test.home, puts)
        if not whole(explored) or found != allowed(test.test.program, rules(order, test.home), test.asks):
            wrong.append(test.name)
    assert wrong == []


@settings(max_examples=80)
@given(
    programs(kinds="wwwwwrrsfu", addresses="xy", length=4), st.sampled_from(HOMES), st.sampled_from(COLUMNS), st.data()
)
def test_random_programs_have_the_outcomes_of_the_axioms(
    program: Program, home: Mapping[str, int], order: str, data: st.DataObject
) -> None:
    """Any small program, asking for any orders, has the outcomes of the axioms, and under `relaxed` no others than
    under `unordered`; some of its additions are compare-and-swaps."""
    orders = st.sampled_from(["", "no-order", "relaxed", "strong"])
    swap = st.sampled_from([(0, 1), (0, 3), (1, 2), (2, 3)])
    program = [
        [("c", op[1], op[2], *data.draw(swap)) if op[0] == "u" and data.draw(st.booleans()) else op for op in ops]
        for ops in program
    ]
    asks = [[data.draw(orders) if op[0] in ("w", "u", "c") else "" for op in ops] for ops in program]
    found, explored = run(program, asks, order, home)
    assert explored.complete
    assert found == allowed(program, rules(order, home), asks)
    assert found <= allowed(program, rules("unordered", home), asks)
