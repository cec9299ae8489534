"""All executions of a program: how they can end, whether one comes to a stop, whether one has a race."""

from collections.abc import Iterator
from typing import NamedTuple

from .cache import is_eviction
from .machine import steps
from .program import Program
from .races import History, Race
from .state import GIVEN_UP, Broken, State, begun_again, returned


class Found(NamedTuple):
    """What the executions of a program come to."""

    outcomes: frozenset[bytes]
    """What memory holds when all cores have returned."""
    deadlock: bool
    errors: frozenset[str]
    race: Race | None
    states: int
    complete: bool
    """False if there were more states than allowed."""


LEFT = "a core returns with an event that is still set"


NOT_AGAIN = -1
"""As a die that begins again once, at any moment: none does, or it has."""


def _steps(program: Program, state: State, again: int) -> Iterator[tuple[State | Broken, int]]:
    """Every state that one step leads to, and which die may still begin again there."""
    yield from ((after, again) for after in steps(program, state))
    if again != NOT_AGAIN:
        yield begun_again(program, state, again), NOT_AGAIN


def explore(program: Program, max_states: int = 20_000, again: int = NOT_AGAIN) -> Found:
    """Every outcome, deadlock and error; without races.  A die may begin ``again``, once."""
    start = State(program)
    waiting, known = [(start, again)], {(start.key(program.order), again)}
    outcomes, errors, deadlock = set[bytes](), set[str](), False
    while waiting and len(known) <= max_states:
        state, again = waiting.pop()
        stuck = True
        for after, left in _steps(program, state, again):
            stuck = stuck and (left != again or (not isinstance(after, Broken) and is_eviction(after)))
            if isinstance(after, Broken):
                errors |= {after.why} - {GIVEN_UP}
            elif (key := (after.key(program.order), left)) not in known:
                known.add(key)
                waiting.append((after, left))
        if stuck:
            done = [returned(program, state, core) for core in range(len(program.cores))]
            if any(done[event[0]] for event in state.events):
                errors.add(LEFT)
            elif all(done):
                outcomes.add(bytes(state.memory))
            else:
                deadlock = True
    return Found(frozenset(outcomes), deadlock, frozenset(errors), None, len(known), not waiting)


def find_race(program: Program, max_states: int = 20_000, again: int = NOT_AGAIN) -> tuple[Race | None, bool]:
    """A race of some execution, if there is one; and whether all executions were looked at, or one was found."""
    start = (State(program), History(program), again)
    waiting, known = [start], {(start[0].key(program.order), start[1].key(), again)}
    while waiting and len(known) <= max_states:
        state, history, again = waiting.pop()
        for after, left in _steps(program, state, again):
            if isinstance(after, Broken):
                continue
            longer = history.after(after.told)
            if isinstance(longer, Race):
                return longer, True
            for core, kernel in enumerate(after.kernels):
                if kernel.pc < len(program.cores[core].ops) and (race := longer.polled(core, kernel.pc)):
                    return race, True
            key = (after.key(program.order), longer.key(), left)
            if key not in known:
                known.add(key)
                waiting.append((after, longer, left))
    return None, not waiting
