"""Caches of scalar units (docs/machine.md): lines that nobody keeps coherent, written back whole."""

from collections.abc import Iterator

from .program import LINE, SCALAR, Program
from .state import State, Told, take_off, write_of

Line = tuple[int, bytes, bool]
"""Where it begins, what it holds, and whether it was changed."""


def through(
    program: Program, state: State, core: int, addr: int, nbytes: int, data: bytes | None = None
) -> bytes | None:
    """A load, or a store of ``data``, through a core's cache: its bytes, or None where it has to wait.

    No line is fetched where none is free, or while it is still being written back.
    """
    first, at = addr // LINE * LINE, addr % LINE
    lines = {line[0]: line for line in state.caches[core]}
    returning = any(
        (write.core, write.part, write.addr // LINE * LINE) == (core, "line", first) for write in state.flight
    )
    if first not in lines and (returning or len(lines) == program.lines):
        return None
    _, there, changed = lines.get(first) or (first, bytes(state.memory[first : first + LINE]), False)
    if data is not None:
        there, changed = there[:at] + data + there[at + nbytes :], True
    lines[first] = (first, there, changed)
    state.caches[core] = tuple(sorted(lines.values()))
    return there[at : at + nbytes]


def drop(program: Program, state: State, core: int, first: int) -> None:
    """A line leaves the cache; a changed one is written back whole, as a store is."""
    for line in state.caches[core]:
        if line[0] == first and line[2]:
            number = state.kernels[core].pc
            pieces = [(first, first + LINE)] if program.order == "sc" else program.pieces(first, LINE)
            for begin, behind in pieces:
                data = line[1][begin - first : behind - first]
                write = write_of(program, state, core, SCALAR, number, begin, begin, data, part="line")
                take_off(program, state, write)
    state.caches[core] = tuple(line for line in state.caches[core] if line[0] != first)


def is_changed(state: State, core: int, first: int) -> bool:
    """Does a core's cache hold this line, and was it changed?"""
    return any(line[0] == first and line[2] for line in state.caches[core])


def evictions(program: Program, state: State, core: int) -> Iterator[State]:
    """Each line may leave the cache at any moment, and one does when its core returns, or needs room for another."""
    ops, kernel = program.cores[core].ops, state.kernels[core]
    full = (
        len(state.caches[core]) == program.lines and kernel.pc < len(ops) and ops[kernel.pc].kind in ("load", "store")
    )
    needed = kernel.pc == len(ops) or full
    for first, _, _ in state.caches[core]:
        after = state.copy()
        drop(program, after, core, first)
        after.told.append(Told("return" if needed else "evict", core))
        yield after


def is_eviction(state: State) -> bool:
    """Did the step to this state evict a line without need?"""
    return any(isinstance(one, Told) and one.what == "evict" for one in state.told)
