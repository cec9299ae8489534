"""Requests that signal: the axioms have the tables, and the machine exactly the outcomes of the axioms."""

import itertools
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.lang import fence, kernel, load, put, put_signal, quiet, ub_store
from xccl_emu.machine.explore import Explored

from .axioms import allowed, rules
from .model import Outcome, Program
from .on_machine import outcomes_at, reached, whole
from .signals import COLUMNS, TESTS
from .suite import Op

ORDERS = ("", "no-order", "relaxed", "strong")
KINDS = ("", "r", "f", "s", *(f"w {order}" for order in ORDERS), *(f"> {order}" for order in ORDERS))
ADDRESSES = "uxyz"


@kernel
def interpret(first, rest, home, dies, stride):
    """Run up to eight operations of 15 bits: kind (4), two addresses (2), two values (2), adds (1), slot (2)."""
    seen = 0
    program = first
    n = 0
    while program > 0:
        kind = program & 15
        where = program >> 4 & 3
        other = program >> 6 & 3
        address = home + (dies >> 2 * where & 3) * stride + where * 32
        signal = home + (dies >> 2 * other & 3) * stride + other * 32
        value = program >> 8 & 3
        told = program >> 10 & 3
        how = 1 + (program >> 12 & 1)
        slot = program >> 13 & 3
        program = program >> 15
        if program == 0:
            program = rest
            rest = 0
        if kind == 1:
            word = yield load(address)
            seen |= word << 8 * slot
        elif kind == 2:
            yield quiet()
        elif kind == 3:
            yield fence()
        elif kind == 4:
            yield put(address, value)
        elif kind == 5:
            yield put(address, value, order="no-order")
        elif kind == 6:
            yield put(address, value, order="relaxed")
        elif kind == 7:
            yield put(address, value, order="strong")
        elif kind >= 8:
            yield ub_store(8 * n, value, 8)
            if kind == 8:
                yield put_signal(8 * n, address, 8, signal, told, how)
            elif kind == 9:
                yield put_signal(8 * n, address, 8, signal, told, how, order="no-order")
            elif kind == 10:
                yield put_signal(8 * n, address, 8, signal, told, how, order="relaxed")
            else:
                yield put_signal(8 * n, address, 8, signal, told, how, order="strong")
            n = n + 1
    return seen


def encode(
    ops: Sequence[Op], asks: Sequence[str], signals: Sequence[bool], addresses: list[str]
) -> tuple[int, int, list[str]]:
    """A thread as two words and the registers of its slots."""
    words, registers = [], list[str]()
    for k, (op, order) in enumerate(zip(ops, asks, strict=True)):
        if signals[k]:
            continue
        behind = ops[k + 1] if k + 1 < len(ops) and signals[k + 1] else None
        what = ">" if behind else op[0]
        kind = KINDS.index(f"{what} {order}" if what in "w>" else what)
        word = kind | (addresses.index(op[1]) if len(op) > 1 else 0) << 4
        word |= op[2] << 8 if op[0] == "w" else len(registers) << 13
        if behind:
            word |= addresses.index(behind[1]) << 6 | behind[2] << 10 | (behind[0] == "a") << 12
        words.append(word)
        registers += [op[2]] if op[0] == "r" else []
    first, rest = (sum(word << 15 * i for i, word in enumerate(half)) for half in (words[:4], words[4:]))
    return first, rest, registers


def run(
    program: Program, asks: Sequence[Sequence[str]], signals: Sequence[Sequence[bool]], order: str,
    home: Mapping[str, int],
) -> tuple[set[Outcome], Explored]:  # fmt: skip
    """All outcomes of a program on the machine, all of whose writes are mtu-out's."""
    return outcomes_at(program, order, home, interpret, lambda t, at: encode(program[t], asks[t], signals[t], at))


@pytest.mark.parametrize("column", range(2))
def test_the_axioms_reproduce_the_table(column: int) -> None:
    """The axioms allow the outcome that is asked for exactly where the column says A; under sc and fifo a signal is
    one more write."""
    wrong = []
    for test in TESTS:
        found = allowed(test.program, rules(COLUMNS[column], test.home), test.asks, test.signals)
        if reached(test.asked, found) != (test.expected[column] == "A"):
            wrong.append(test.name)
        for order in ("sc", "fifo"):
            strict = rules(order, test.home)
            assert allowed(test.program, strict, test.asks, test.signals) == allowed(test.program, strict), test.name
    assert wrong == []


@pytest.mark.parametrize("order", ["sc", "fifo", *COLUMNS])
def test_the_machine_has_the_outcomes_of_the_axioms(order: str) -> None:
    """Exactly their outcomes, in all four orders; under sc not where a read overtakes a write in mtu-out's queue."""
    wrong = []
    for test in TESTS:
        if order == "sc" and test.name == "SB":
            continue
        found, explored = run(test.program, test.asks, test.signals, order, test.home)
        if not whole(explored) or found != allowed(test.program, rules(order, test.home), test.asks, test.signals):
            wrong.append(test.name)
    assert wrong == []


def _requests(thread: int, mine: str, theirs: str) -> st.SearchStrategy[list[tuple[Op, str, bool]]]:
    """What a thread that writes to some addresses asks for, now and then with a signal, and reads of others."""
    order, value = st.sampled_from(ORDERS), st.integers(1, 3)
    write = st.tuples(st.sampled_from(mine), value, order).map(lambda w: [(("w", w[0], w[1]), w[2], False)])
    signal = st.tuples(write, st.booleans(), value).map(
        lambda s: [*s[0], (("a" if s[1] else "w", mine.replace(s[0][0][0][1], "")[0], s[2]), s[0][0][1], True)]
    )
    read = st.sampled_from(theirs).map(lambda address: [(("r", address, ""), "", False)])
    wait = st.sampled_from("fs").map(lambda kind: [((kind,), "", False)])
    return st.lists(signal | signal | write | read | wait, max_size=4).map(lambda parts: [*itertools.chain(*parts)])


@settings(max_examples=60)
@given(st.tuples(_requests(0, "xy", "zu"), _requests(1, "zu", "xy")), st.integers(0, 2), st.sampled_from(COLUMNS))
def test_random_programs_have_the_outcomes_of_the_axioms(
    threads: tuple[list[tuple[Op, str, bool]], ...], die: int, order: str
) -> None:
    """Two threads that write to two words each, with signals or without, and read those of the other, have exactly the
    outcomes of the axioms."""
    program = [
        [("r", op[1], f"r{k}") if op[0] == "r" else op for k, (op, _, _) in enumerate(thread)] for thread in threads
    ]
    asks, signals = ([[item[k] for item in thread] for thread in threads] for k in (1, 2))
    if not any(op[0] not in "fs" for ops in program for op in ops):
        return
    home = {"x": 0, "y": 0, "z": die, "u": die}
    found, explored = run(program, asks, signals, order, home)
    assert explored.complete
    assert found == allowed(program, rules(order, home), asks, signals)
    assert found <= allowed(program, rules("unordered", home), asks, signals)
