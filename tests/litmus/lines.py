"""A tiny model of writes that become visible in units, and of lines that are read in them; independent of the emulator.

Memory is a row of cells of 4 bytes on one die, a unit so many of them.  A write covers cells next to each other, and
becomes visible unit by unit: under `sc` and `fifo` in order, under `relaxed` each when it likes, but behind the
thread's earlier ones to the same unit.  A line is read unit by unit, in any order, each at a moment at which its own
flags are in.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple


class Write(NamedTuple):
    """Cells from ``first`` on get these values; the thread goes on at once."""

    first: int
    values: tuple[int, ...]


class Line(NamedTuple):
    """Cells from ``first`` on are read until those that are flags have, or with ``equal`` False have not, a value."""

    first: int
    cells: int
    flags: int
    """A bit for each cell."""
    value: int
    equal: bool = True


Program = Sequence[Sequence[Write | Line]]
Piece = tuple[int, tuple[int, ...]]
Outcome = tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]
"""Memory, and of each thread what its lines have read, one behind the other."""


class State(NamedTuple):
    """State of a run: where threads are, which cells of a line are read, what is under way, and memory."""

    pcs: tuple[int, ...]
    reads: tuple[tuple[tuple[int, int], ...], ...]
    """For each thread: (place, value) of cells that its lines have read, sorted."""
    flying: tuple[tuple[Piece, ...], ...]
    memory: tuple[int, ...]


def outcomes(program: Program, cells: int, unit: int, order: str) -> tuple[set[Outcome], bool]:
    """All that may come out, and whether a thread may wait for ever; memory is zero at first."""
    start = State((0,) * len(program), ((),) * len(program), ((),) * len(program), (0,) * cells)
    seen, stack, final, stuck = {start}, [start], set[Outcome](), False
    while stack:
        state = stack.pop()
        following = set(_successors(program, unit, order, state))
        if not following:
            done = all(pc == len(ops) for pc, ops in zip(state.pcs, program, strict=True))
            stuck |= not done
            if done:
                final.add((state.memory, tuple(tuple(value for _, value in read) for read in state.reads)))
        stack.extend(following - seen)
        seen |= following
    return final, stuck


def _successors(program: Program, unit: int, order: str, state: State) -> Iterator[State]:
    for t, ops in enumerate(program):
        if state.pcs[t] < len(ops):
            op = ops[state.pcs[t]]
            if isinstance(op, Write):
                flying = (*state.flying[t], *_pieces(op, unit))
                yield _moved(state, t)._replace(flying=_with(state.flying, t, flying))
            else:
                yield from _reads(ops, unit, state, t, op)
        for k, piece in enumerate(state.flying[t]):
            earlier = state.flying[t][:k]
            held = any(other[0] // unit == piece[0] // unit for other in earlier) if order == "relaxed" else k > 0
            if not held:
                left = (*earlier, *state.flying[t][k + 1 :])
                memory = list(state.memory)
                memory[piece[0] : piece[0] + len(piece[1])] = piece[1]
                yield state._replace(flying=_with(state.flying, t, left), memory=tuple(memory))


def _reads(ops: Sequence[Write | Line], unit: int, state: State, t: int, line: Line) -> Iterator[State]:
    """One more unit of a line is read."""
    base = sum(op.cells for op in ops[: state.pcs[t]] if isinstance(op, Line))
    have = {place for place, _ in state.reads[t]}
    size = min(unit, line.cells)
    for first in range(0, line.cells, size):
        places = range(first, first + size)
        flags = [state.memory[line.first + i] for i in places if line.flags >> i & 1]
        if base + first in have or any((flag == line.value) != line.equal for flag in flags):
            continue
        new = [(base + i, state.memory[line.first + i]) for i in places]
        reads = tuple(sorted((*state.reads[t], *new)))
        read = state._replace(reads=_with(state.reads, t, reads))
        yield _moved(read, t) if len(reads) == base + line.cells else read


def _pieces(write: Write, unit: int) -> Iterator[Piece]:
    """A write cut where units begin."""
    cut: Mapping[int, list[int]] = {}
    for i, value in enumerate(write.values):
        cut = {**cut, (write.first + i) // unit: [*cut.get((write.first + i) // unit, []), value]}
    for number, values in cut.items():
        yield max(number * unit, write.first), tuple(values)


def _moved(state: State, t: int) -> State:
    return state._replace(pcs=_with(state.pcs, t, state.pcs[t] + 1))


def _with(row: tuple[Any, ...], t: int, value: Any) -> tuple[Any, ...]:
    return (*row[:t], value, *row[t + 1 :])
