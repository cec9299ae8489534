"""The machine as steps: what each core, pipe, descriptor and die may do next, one thing at a time."""

from collections.abc import Iterator

from . import cache
from .pipes import descriptors, head, mtu_in
from .program import MTU_OUT, VECTOR, Program, lands_first
from .scalar import requests
from .state import Broken, State, land


def steps(program: Program, state: State) -> Iterator[State | Broken]:
    """Every state that one step leads to."""
    for core in range(len(program.cores)):
        if state.kernels[core].pc < len(program.cores[core].ops):
            yield from requests(program, state, core)
        yield from mtu_in(program, state, core)
        for pipe in (VECTOR, MTU_OUT):
            if state.queues[4 * core + pipe]:
                yield from head(program, state, core, pipe)
        yield from descriptors(program, state, core)
        yield from cache.evictions(program, state, core)
    for i, write in enumerate(state.flight):
        if not any(lands_first(program, older, write) for older in state.flight[:i]):
            after = state.copy()
            after.flight = state.flight[:i] + state.flight[i + 1 :]
            land(program, after, write)
            yield after
