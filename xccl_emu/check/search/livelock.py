"""Livelock in the graph of all states: states from which no run comes to an end, and a loop that shows it."""

import numpy as np
from numpy.typing import NDArray

from xccl_emu.check.search.device import edge

Edges = NDArray[np.int64]
"""Transitions, [n, `edge.WORDS`]; ``TO`` is -1 where a run ends."""


def reaches_end(n: int, edges: Edges) -> NDArray[np.bool_]:
    """From which of ``n`` states some run comes to an end."""
    ending = np.zeros(n, np.bool_)
    while edge.spread_back(edges, ending):
        pass
    return ending


def fair_loop(edges: Edges, ending: NDArray[np.bool_]) -> tuple[int, Edges]:
    """A state, and transitions, (process, choice) [n, 2], that lead from it back to it without ever coming near an end.

    The states of the loop can be reached from each other and nothing else can be reached from them, and a process that
    can move in one of them moves in the loop: that it goes on for ever is not the fault of an unfair schedule.
    """
    lost = edges[~ending[edges[:, edge.FROM]]]
    state = _in_bottom(lost)
    bottom = lost[np.isin(lost[:, edge.FROM], list(_reached(lost[:, edge.FROM], lost[:, edge.TO], state)))]
    here, loop = state, list[int]()
    for process in np.unique(bottom[:, edge.PROCESS]):
        loop += _way(bottom, here, edge.PROCESS, process)
        here = int(bottom[loop[-1], edge.TO])
    if here != state:
        loop += _way(bottom, here, edge.TO, state)
    return state, bottom[loop][:, [edge.PROCESS, edge.CHOICE]]


def _in_bottom(lost: Edges) -> int:
    """A state that can be reached again from whatever can be reached from it."""
    state = int(lost[0, edge.FROM])
    while True:
        ahead = _reached(lost[:, edge.FROM], lost[:, edge.TO], state)
        never_back = ahead - _reached(lost[:, edge.TO], lost[:, edge.FROM], state)
        if not never_back:
            return min(ahead)
        state = min(never_back)


def _reached(sources: NDArray[np.int64], targets: NDArray[np.int64], state: int) -> set[int]:
    """The states that can be reached from one, with itself."""
    after: dict[int, list[int]] = {}
    for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
        after.setdefault(source, []).append(target)
    seen, waiting = {state}, [state]
    while waiting:
        new = [target for target in after.get(waiting.pop(), ()) if target not in seen]
        seen.update(new)
        waiting += new
    return seen


def _way(edges: Edges, state: int, column: int, value: int) -> list[int]:
    """The shortest way, as rows of ``edges``, from a state to and over a transition with a value in a column."""
    ways: dict[int, list[int]] = {state: []}
    for here in iter(waiting := [state]):
        for row in np.flatnonzero(edges[:, edge.FROM] == here).tolist():
            if edges[row, column] == value:
                return [*ways[here], row]
            target = int(edges[row, edge.TO])
            if target not in ways:
                ways[target] = [*ways[here], row]
                waiting.append(target)
    raise AssertionError("states of a bottom component reach each other")
