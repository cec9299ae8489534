"""All executions of a program: how they can end, whether one comes to a stop, whether one has a race."""

from typing import NamedTuple

from .cache import is_eviction
from .machine import steps
from .program import Program
from .races import History, Race
from .state import GIVEN_UP, Broken, State, returned


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


def explore(program: Program, max_states: int = 20_000) -> Found:
    """Every outcome, deadlock and error; without races."""
    start = State(program)
    waiting, known = [start], {start.key(program.order)}
    outcomes, errors, deadlock = set[bytes](), set[str](), False
    while waiting and len(known) <= max_states:
        state = waiting.pop()
        stuck = True
        for after in steps(program, state):
            stuck = stuck and not isinstance(after, Broken) and is_eviction(after)
            if isinstance(after, Broken):
                errors |= {after.why} - {GIVEN_UP}
            elif (key := after.key(program.order)) not in known:
                known.add(key)
                waiting.append(after)
        if stuck:
            done = [returned(program, state, core) for core in range(len(program.cores))]
            if any(done[event[0]] for event in state.events):
                errors.add(LEFT)
            elif all(done):
                outcomes.add(bytes(state.memory))
            else:
                deadlock = True
    return Found(frozenset(outcomes), deadlock, frozenset(errors), None, len(known), not waiting)


def find_race(program: Program, max_states: int = 20_000) -> tuple[Race | None, bool]:
    """A race of some execution, if there is one; and whether all executions were looked at, or one was found."""
    start = (State(program), History(program))
    waiting, known = [start], {(start[0].key(program.order), start[1].key())}
    while waiting and len(known) <= max_states:
        state, history = waiting.pop()
        for after in steps(program, state):
            if isinstance(after, Broken):
                continue
            longer = history.after(after.told)
            if isinstance(longer, Race):
                return longer, True
            for core, kernel in enumerate(after.kernels):
                if kernel.pc < len(program.cores[core].ops) and (race := longer.polled(core, kernel.pc)):
                    return race, True
            key = (after.key(program.order), longer.key())
            if key not in known:
                known.add(key)
                waiting.append((after, longer))
    return None, not waiting
