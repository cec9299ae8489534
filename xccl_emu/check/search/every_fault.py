"""Every schedule with one fault at any moment, by brute force: nothing is reduced, and what breaks is an action.

For small pods.  It judges what a protocol must keep when something has broken: the bytes of cores that have returned,
errors that it has not declared, and, where cores may not wait for ever, that each run comes to an end.  Races and reads
of what nobody has written it leaves to the search without a fault.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.check.faults import Fault
from xccl_emu.check.messages import too_long
from xccl_emu.check.search import livelock, recovery
from xccl_emu.check.search.device import edge
from xccl_emu.check.search.device import faulty_runs as device
from xccl_emu.check.search.exhaustive import Progress, bytes_for_states, too_many_bytes
from xccl_emu.check.trial import Trial
from xccl_emu.machine import driver
from xccl_emu.machine.clock import working_seconds
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.explore import PLAIN, restore, save
from xccl_emu.machine.driver import begin
from xccl_emu.machine.explore import changing

_SLICE, _COUNTED = 1 << 10, 14
_BYTES_USUAL = 1 << 30
"""Most bytes for states and edges if nobody says how many."""
_FULL = {
    device.STACK_FULL: ("stack", "ids"), device.TABLE_FULL: ("table", "before"), device.EDGES_FULL: ("edges",),
}  # fmt: skip
"""Arrays of a graph that have no room left, by why a search pauses."""


@dataclass(frozen=True)
class FoundWithFault:
    """What the search came to."""

    states: int
    transitions: int
    reason: str
    """Why it is unfinished; empty if it has visited every state, or found something."""
    actions: NDArray[np.int64] | None
    """A schedule, with the fault, that ends in what is wrong; None if nothing is."""
    loop: int = 0
    """For a livelock: how many actions at the end lead from a state back to it."""
    steps: int | None = None
    """Where no core may wait for ever: actions from the fault to the last return, at most; negative if nothing bounds
    them."""
    ends: str = ""
    """How runs ended in which something broke, in words."""


class FaultySearch:
    """One search; `run` returns what it found, the pod is afterwards as it was."""

    def __init__(
        self, trial: Trial, fault: Fault, *, max_states: int, seconds: float | None, max_bytes: int | None = None,
        progress: Progress | None = None,
    ) -> None:  # fmt: skip
        self._trial, self._pod, self._max_states, self._seconds = trial, trial.pod, max_states, seconds
        self._progress = progress
        self._max_bytes = max_bytes or min(_BYTES_USUAL, bytes_for_states(None))
        target = fault.target_on(trial.pod)
        begin(self._pod)
        memory, state = self._pod.memory, self._pod.state
        self._space = (memory, state, memory.view(np.uint64), state.view(np.uint64))
        broken = (PLAIN, ms.FAULT_CUT, ms.FAULT_HAPPENED + 1 - ms.FAULT_CUT)
        lost, revived = (PLAIN, ms.LOST_START, 2), (PLAIN, ms.REVIVED, 1)
        self._parts = np.concatenate([changing(self._pod), np.array([broken, lost, revived], np.int64)])
        words = np.array([fault.number, fault.source, target, trial.may_wait(fault)], np.int64)
        self._asked = device.Asked(words, *_codes(trial), *trial.results(), self._owners())
        n = 1 << 12
        self._graph = device.Graph(
            stack=np.zeros((64, int(self._parts[:, 2].sum())), np.uint64),
            ids=np.zeros(64, np.int64),
            table=np.zeros((n, 3), np.uint64),
            before=np.zeros((n // 2, 2), np.int64),
            edges=np.zeros((0 if trial.may_wait(fault) else n, 4), np.int64),
        )
        self._counted = np.zeros(_COUNTED, np.int64)

    def run(self) -> FoundWithFault:
        """Visit every state; raises KernelError where the arithmetic of a kernel fails."""
        root = self._graph.stack[:1].copy()
        try:
            with np.errstate(over="ignore"), driver.arithmetic_of(self._pod.kernels):
                save(self._space, self._parts, root, 0)
                self._graph.stack[1] = root[0]
                self._counted[[device.STACK, device.STATES]] = 1, 1
                reason = self._search()
        finally:
            restore(self._space, self._parts, root, 0)
            self._pod.state[[ms.N_ACTIVE, ms.N_ACTIVE_DIES, ms.N_LIVE]] = 0
        return self._found(reason)

    def _search(self) -> str:
        """Why it did not come to its end."""
        started, counted, why = working_seconds(), self._counted, device.PAUSED
        while why != device.ENDED:
            counted[device.SLICE] = _SLICE
            why = device.search(self._space, self._parts, self._asked, self._graph, counted, self._max_states)
            if why == device.ENDED and self._learns():
                why = device.PAUSED
            if self._progress is not None:
                seen, moved = int(counted[device.STATES]), int(counted[device.TRANSITIONS])
                self._progress(seen, moved, working_seconds() - started)
            if too_many := self._trial.too_many:
                return too_many
            if counted[device.STATES] > self._max_states:
                return f"more than {self._max_states} states"
            if self._seconds is not None and working_seconds() - started > self._seconds and why != device.ENDED:
                return too_long(self._seconds)
            if not self._grow(_FULL.get(why, ())):
                return f"{too_many_bytes(self._max_bytes)}, by brute force"
        return ""

    def _grow(self, full: Sequence[str]) -> bool:
        """Twice the room for what is full, unless that takes too much memory; what was before is there meanwhile."""
        before = {name: getattr(self._graph, name) for name in full}
        if sum(array.nbytes for array in (*self._graph, *2 * (*before.values(),))) > self._max_bytes:
            return False
        self._graph = self._graph._replace(**{name: _twice(name, array) for name, array in before.items()})
        return True

    def _found(self, reason: str) -> FoundWithFault:
        counted = self._counted
        states, transitions = int(counted[device.STATES]), int(counted[device.TRANSITIONS])
        if counted[device.FOUND]:
            code = int(counted[device.CODE])
            last = [code] if counted[device.FOUND] == device.ERROR_FOUND else []
            return FoundWithFault(
                states, transitions, "", np.array([*self._path(int(counted[device.NODE])), *last], np.int64)
            )
        edges = self._graph.edges[: int(counted[device.EDGES])]
        if not reason and len(edges):
            ending = livelock.reaches_end(states, edges)
            if not ending.all():
                state, loop = livelock.fair_loop(edges, ending)
                round_ = (loop[:, 0] << ms.CHOICE_BITS | loop[:, 1]).tolist()
                actions = np.array([*self._path(state), *round_], np.int64)
                return FoundWithFault(states, transitions, "", actions, len(round_))
        names = {"right": device.RIGHT, "blocked": device.BLOCKED, "in a declared error": device.DECLARED}
        names |= {"given up at the link": device.GIVEN_UP} if counted[device.GIVEN_UP] else {}
        ends = ", ".join(f"{int(counted[i]):,} {name}" for name, i in names.items())
        steps = _after_fault(states, edges) if len(edges) and not reason else None
        return FoundWithFault(states, transitions, reason, None, steps=steps, ends=ends)

    def _path(self, state: int) -> list[int]:
        """Actions that lead to a state."""
        path = list[int]()
        while state:
            state, code = map(int, self._graph.before[state])
            path.append(code)
        return path[::-1]

    def _learns(self) -> bool:
        """Return whether the bytes that stopped it are right though nobody knew: then it goes on with that state."""
        counted = self._counted
        if counted[device.FOUND] != device.WRONG_BITS:
            return False
        if not self._trial.expected[int(counted[device.WHICH])].learns(self._pod.memory):
            return False
        counted[device.FOUND], counted[device.STACK] = 0, counted[device.STACK] + 1
        what, data = self._trial.results()
        self._asked = self._asked._replace(expected=what, data=data)
        return True

    def _owners(self) -> NDArray[np.int64]:
        """List the cores that own each expectation, [n, 2]: its number, the block of a core."""
        each = enumerate(self._trial.expected)
        rows = [(number, self._pod.core_base(core)) for number, one in each for core in self._trial.owners(one)]
        return np.array(rows, np.int64).reshape(-1, 2)


def _after_fault(n: int, edges: livelock.Edges) -> int:
    """The longest way from where something has broken to an end (`recovery.longest`)."""
    broken, inner = np.zeros(n, bool), edges[edges[:, edge.TO] >= 0]
    begins = inner[inner[:, edge.PROCESS] < 0, edge.TO]
    ahead = begins
    while len(ahead):
        broken[ahead] = True
        ahead = inner[broken[inner[:, edge.FROM]] & ~broken[inner[:, edge.TO]], edge.TO]
    return recovery.longest(n, edges[broken[edges[:, edge.FROM]]], begins)


def _codes(trial: Trial) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Errors that are declared after a fault, and without one."""
    return np.array([*trial.stops], np.int64), np.array(sorted(trial.gives_up), np.int64)


def _twice(name: str, array: NDArray[Any]) -> NDArray[Any]:
    twice = np.zeros((2 * len(array), *array.shape[1:]), array.dtype)
    if name == "table":
        return device.move_all(array, twice)
    twice[: len(array)] = array
    return twice
