"""A tiny model of the data caches of scalar units, by brute force; it shares nothing with the emulator.

Memory is a row of cells on one die; a cell becomes visible at once, and a line has two.  Threads store and load through
a cache of their own.  Everything else goes past it: a put stands in a queue before it takes off, a poll reads memory.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

CELLS, LINE = 4, 2


class Op(NamedTuple):
    """``kind`` is one of `KINDS`."""

    kind: str
    cell: int = 0
    value: int = 0


KINDS = "RWDPAF"
"""Load, store, clean a line, poll for a value, put, quiet; the letters of `program`."""
Program = Sequence[Sequence[Op]]
Piece = tuple[int, int, bool]
"""A cell, its value in flight, and whether a line is written back."""
Line = tuple[int, tuple[int, ...], bool]
"""Its number, what the cache has of it, and whether that was changed."""
Outcome = tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]
"""Memory, and what each thread has loaded."""


class Thread(NamedTuple):
    """Where it is, what it has loaded, its cache, its queue of puts, and what it has in flight."""

    pc: int = 0
    loaded: tuple[int, ...] = ()
    cache: tuple[Line, ...] = ()
    queue: tuple[tuple[int, int], ...] = ()
    flying: tuple[Piece, ...] = ()


State = tuple[tuple[int, ...], tuple[Thread, ...]]


def program(text: str) -> list[list[Op]]:
    """Threads, divided by ``|``, of operations: ``R0``, ``W01`` (1 to cell 0), ``D0``, ``P01``, ``A01``, ``F``."""
    return [[Op(one[0], *map(int, one[1:])) for one in thread.split()] for thread in text.split("|")]


def outcomes(threads: Program, order: str) -> tuple[set[Outcome], bool]:
    """All that may come out of memory that is zero at first; whether a run may be stuck until a line is evicted."""
    start: State = ((0,) * CELLS, (Thread(),) * len(threads))
    seen, stack, final, stuck = {start}, [start], set[Outcome](), False
    while stack:
        memory, states = state = stack.pop()
        following = list(_successors(threads, order, state))
        if all(thread.pc > len(ops) for thread, ops in zip(states, threads, strict=True)):
            final.add((memory, tuple(thread.loaded for thread in states)))
        else:
            stuck |= not any(must for _, must in following)
        new = {after for after, _ in following} - seen
        stack.extend(new)
        seen |= new
    return final, stuck


def _successors(threads: Program, order: str, state: State) -> Iterator[tuple[State, bool]]:
    """What may come next, and whether it comes sooner or later: no line need ever be evicted."""
    memory, states = state
    for t, ops in enumerate(threads):
        thread = states[t]

        def put_back(memory: tuple[int, ...], thread: Thread, t: int = t) -> State:
            return memory, (*states[:t], thread, *states[t + 1 :])

        for after, now in _own(ops, order, memory, thread):
            yield put_back(now, after), True
        for line in thread.cache:
            if line[2] and thread.pc <= len(ops):
                after, now = _written_back(thread, line, order, memory)
                yield put_back(now, after), False
        if thread.queue:
            (cell, value), *left = thread.queue
            after, now = _take_off(thread._replace(queue=tuple(left)), [(cell, value, False)], order, memory)
            yield put_back(now, after), True
        for k, (cell, value, _) in enumerate(thread.flying):
            earlier = thread.flying[:k]
            if not (earlier if order == "fifo" else [one for one in earlier if one[0] == cell]):
                after = thread._replace(flying=earlier + thread.flying[k + 1 :])
                yield put_back(_with(memory, cell, value), after), True


def _own(
    ops: Sequence[Op], order: str, memory: tuple[int, ...], thread: Thread
) -> Iterator[tuple[Thread, tuple[int, ...]]]:
    """What a thread's next operation may do, or its return, which writes back one line after the other."""
    drained = not thread.queue and not thread.flying
    if thread.pc == len(ops):
        changed = [line for line in thread.cache if line[2]]
        if changed:
            yield _written_back(thread, changed[0], order, memory)
        elif drained:
            yield thread._replace(pc=thread.pc + 1, cache=()), memory
    if thread.pc >= len(ops):
        return
    kind, cell, value = ops[thread.pc]
    on = thread._replace(pc=thread.pc + 1)
    if kind == "A":
        yield on._replace(queue=(*on.queue, (cell, value))), memory
    elif (kind == "P" and memory[cell] == value) or (kind == "F" and drained):
        yield on, memory
    elif kind == "D":
        line = _find(thread, cell)
        if line is not None and line[2]:
            yield _written_back(on, line, order, memory)
        else:
            yield _without(on, cell // LINE), memory
    elif kind in "RW":
        for held in _lines(thread, cell, memory):
            words = held[1] if kind == "R" else _with(held[1], cell % LINE, value)
            loaded = (*on.loaded, words[cell % LINE]) if kind == "R" else on.loaded
            after = _without(on, cell // LINE)
            cache = (*after.cache, (held[0], words, held[2] or kind == "W"))
            yield after._replace(cache=tuple(sorted(cache)), loaded=loaded), memory


def _lines(thread: Thread, cell: int, memory: tuple[int, ...]) -> Iterator[Line]:
    """What a thread may find in the line of a cell: what it has, and what is in memory, if it need not have that."""
    held, number = _find(thread, cell), cell // LINE
    if held is not None:
        yield held
    under_way = any(back and one // LINE == number for one, _, back in thread.flying)
    if (held is None and not under_way) or (held is not None and not held[2]):
        yield number, memory[number * LINE : number * LINE + LINE], False


def _find(thread: Thread, cell: int) -> Line | None:
    return next((line for line in thread.cache if line[0] == cell // LINE), None)


def _without(thread: Thread, number: int) -> Thread:
    return thread._replace(cache=tuple(line for line in thread.cache if line[0] != number))


def _written_back(
    thread: Thread, line: Line, order: str, memory: tuple[int, ...]
) -> tuple[Thread, tuple[int, ...]]:
    pieces = [(line[0] * LINE + i, word, True) for i, word in enumerate(line[1])]
    return _take_off(_without(thread, line[0]), pieces, order, memory)


def _take_off(
    thread: Thread, pieces: list[Piece], order: str, memory: tuple[int, ...]
) -> tuple[Thread, tuple[int, ...]]:
    if order != "sc":
        return thread._replace(flying=(*thread.flying, *pieces)), memory
    for cell, value, _ in pieces:
        memory = _with(memory, cell, value)
    return thread, memory


def _with(values: tuple[int, ...], at: int, value: int) -> tuple[int, ...]:
    return (*values[:at], value, *values[at + 1 :])
