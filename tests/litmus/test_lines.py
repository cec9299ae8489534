"""The machine reads lines, and makes writes visible, in units of any size as the model of `lines` does."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.lang import kernel, mtu_out, poll_line_eq, poll_line_ne, put, ub_load, ub_store
from xccl_emu.machine.explore import explore
from xccl_emu.machine.pod import ORDERS, Pod
from xccl_emu.machine.spec import small_pod

from .lines import Line, Outcome, Program, Write, outcomes

CELLS = 8
WRITE, EQUAL, UNEQUAL = 1, 2, 3
UNITS = {4: (1, 1), 8: (1, 2), 16: (1, 4), 32: (1, 8), 64: (4, 4), 128: (4, 8)}
"""Bytes that are atomic: words of a cell, cells of a unit."""


@kernel
def interpret(program, home, words):
    """Up to three operations of 19 bits: kind (2), first cell (3), cells (4), flags (8), value (2); a cell is written
    with its value in each word, and read as its first word."""
    seen, ub = 0, 0
    while program > 0:
        cells, value = program >> 5 & 15, program >> 17 & 3
        nbytes, address = 4 * words * cells, home + 4 * words * (program >> 2 & 7)
        flags = 0
        for cell in range(cells):
            flags |= (program >> 9 + cell & 1) << words * cell
        if program & 3 == WRITE:
            for i in range(words * cells):
                yield ub_store(ub + 4 * i, value)
            yield mtu_out(ub, address, nbytes)
        elif program & 3 == EQUAL:
            yield poll_line_eq(address, ub, nbytes, flags, value << 32 | value)
        else:
            yield poll_line_ne(address, ub, nbytes, flags, value << 32 | value)
        if program & 3 != WRITE:
            for i in range(cells):
                word = yield ub_load(ub + 4 * words * i)
                seen = seen << 2 | word
        ub += nbytes
        program = program >> 19
    return seen


def encode(ops: list[Write | Line]) -> int:
    """A thread as one integer."""
    words = []
    for op in ops:
        if isinstance(op, Write):
            words.append(WRITE | op.first << 2 | len(op.values) << 5 | op.values[0] << 17)
        else:
            kind = EQUAL if op.equal else UNEQUAL
            words.append(kind | op.first << 2 | op.cells << 5 | op.flags << 9 | op.value << 17)
    return sum(word << 19 * i for i, word in enumerate(words))


def run(program: Program, atomic_bytes: int, order: str) -> tuple[set[Outcome], bool]:
    """All outcomes on the machine, as the model has them, and whether a run may block."""
    words, _ = UNITS[atomic_bytes]
    spec = small_pod(len(program), app_bytes=256, meta_bytes=0, managed_bytes=0, ub_bytes=512, flight_granules=40)
    pod = Pod(spec.with_(atomic_bytes=atomic_bytes), order=order)
    memory = pod.alloc(0, 4 * words * CELLS)
    assert memory.address % 128 == 0
    for thread, ops in enumerate(program):
        args = {"program": encode(list(ops)), "home": memory.address, "words": words}
        pod.launch(interpret, thread, [0], args, [pod.grant(memory, "rw")])
    found = explore(pod, [(memory.address, memory.nbytes)])
    assert found.complete
    assert not found.errors
    reads = [sum(op.cells for op in ops if isinstance(op, Line)) for ops in program]
    return {_named(outcome, words, reads) for outcome in found.outcomes}, found.deadlocks > 0


def _named(outcome: tuple[int, ...], words: int, reads: list[int]) -> Outcome:
    in_memory, seen = outcome[: words * CELLS // 2], outcome[words * CELLS // 2 :]
    all_words = [word >> shift & 3 for word in in_memory for shift in (0, 32)]
    values = tuple(tuple(one >> 2 * (n - 1 - i) & 3 for i in range(n)) for one, n in zip(seen, reads, strict=True))
    return tuple(all_words[::words]), values


def lines() -> st.SearchStrategy[Line]:
    """A line of four cells or of eight, with at least one flag."""

    def line(cells: int, half: int, flags: int, value: int, equal: bool) -> Line:
        first = 4 * half if cells == 4 else 0
        return Line(first, cells, flags % ((1 << cells) - 1) + 1, value, equal)

    sizes, flags = st.sampled_from([4, 8]), st.integers(0, 254)
    return st.builds(line, sizes, st.integers(0, 1), flags, st.integers(0, 2), st.booleans())


def writes() -> st.SearchStrategy[Write]:
    """A value to cells next to each other."""
    sizes = st.integers(0, CELLS - 1).flatmap(lambda first: st.tuples(st.just(first), st.integers(1, CELLS - first)))
    return st.builds(lambda where, value: Write(where[0], (value,) * where[1]), sizes, st.integers(1, 2))


programs = st.tuples(st.lists(writes(), min_size=1, max_size=2), st.lists(lines(), min_size=1, max_size=1))

LL = (Write(0, (1, 1, 1, 1)),), (Line(0, 4, 0b1010, 1),)


def flag_behind(cells: int) -> Program:
    """A line whose last cell is its flag, as that of LL128 is."""
    return (Write(0, (1,) * cells),), (Line(0, cells, 1 << cells - 1, 1),)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("atomic_bytes", UNITS)
def test_lines_have_the_outcomes_of_the_model(atomic_bytes: int, order: str) -> None:
    """A line with two flags and one with a flag at its end: exactly the outcomes of the model, for each unit; and the
    flags say that data are in exactly where each flag becomes visible with its data."""
    _, unit = UNITS[atomic_bytes]
    cells = 8 if unit > 1 else 4  # eight that become visible by themselves do so in 40,320 orders
    for program, needs in ((LL, 2), (flag_behind(cells), cells)):
        found, blocks = run(program, atomic_bytes, order)
        assert (found, blocks) == outcomes(program, CELLS, unit, order)
        whole = all(read == (1,) * len(read) for _, (_, read) in found)
        assert whole == (unit >= needs)  # a line is read in any order, so that of the writes does not help
        assert not blocks


@settings(max_examples=60, deadline=None)
@given(programs, st.sampled_from(sorted(UNITS)), st.sampled_from(ORDERS[:3]))  # the model keeps writes to one cell
def test_random_lines_have_the_outcomes_of_the_model(program: Program, atomic_bytes: int, order: str) -> None:
    """Any writes and any line: the same outcomes as in the model, and it blocks where that does."""
    assert run(program, atomic_bytes, order) == outcomes(program, CELLS, UNITS[atomic_bytes][1], order)


@kernel
def put_words(home):
    """Write a granule by mtu-out."""
    yield put(home, 1, 2, 3, 4)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("atomic_bytes", UNITS)
def test_a_put_goes_in_units_and_loses_nothing(atomic_bytes: int, order: str) -> None:
    """All four words of a put arrive, whatever becomes visible at once."""
    pod = Pod(small_pod(2, app_bytes=256, atomic_bytes=atomic_bytes), order=order)
    granule = pod.alloc(0, 32)
    pod.launch(put_words, 0, [0], {"home": granule.address}, [pod.grant(granule, "rw")])
    assert {outcome[:4] for outcome in explore(pod, [(granule.address, 32)]).outcomes} == {(1, 2, 3, 4)}
