"""Does every core of the other dies return, whenever a die stops?  And how far is that, in actions on shared memory?

What a stop takes away are the actions of the die's cores, and from some moment on the deliveries of its writes.  So all
runs after a stop are in the graph of all states without a fault, where the transitions of that die are left out
(docs/soundness.md).  The graph is the reduced one of `exhaustive`, with one change: no flag that the die writes is
taken for visible early, since a die may stop between any two of them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.check.device import fault_codes
from xccl_emu.check.faults import encode
from xccl_emu.check.search import exhaustive, livelock
from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device import dfs, edge
from xccl_emu.check.search.device.run_local import PER_CORE
from xccl_emu.check.search.setup import Setup

FOR_EVER = -1
"""In place of a number of steps: states have a cycle, so there is no longest run."""


class WithoutDie(exhaustive.Search):
    """A search of what others do when a die stops; of what it finds, ``actions`` is a schedule with the stop."""

    def __init__(self, setup: Setup, die: int, **limits: Any) -> None:
        super().__init__(setup, **limits)
        self.die, self.steps = die, 0
        """``steps``: from a stop to the last return, at most; `FOR_EVER` if no number bounds them."""
        per_die = setup.pod.spec.cores_per_die
        self._stopped = {i for i, core in enumerate(setup.cores) if core // per_die == die}
        setup.explore_writes(sum(1 << i for i in self._stopped))

    def _start(self, members: Sequence[int]) -> None:
        super()._start(members)
        self.setup.checker[cs.SPARED] = self.setup.explored

    def _search(self, members: Sequence[int]) -> exhaustive.Violating | None:
        ck = self.setup.checker
        self._start(members)
        if self._some_do_not_return(members, self._all_transitions()):  # which are free again then
            found = self._nearest(members)
        else:
            found = self._violation(members) if self._begins_again() else None
        self.found.states += int(ck[cs.STATES])
        self.found.transitions += int(ck[cs.TRANSITIONS])
        return found

    def _begins_again(self) -> bool:
        """Has the search met what `explore_flags` may rule out, with which it begins again?"""
        ck = self.setup.checker
        return ck[cs.VIOLATION] in exhaustive.BY_CLOCKS and not ck[cs.JOINING]

    def _some_do_not_return(self, members: Sequence[int], edges: livelock.Edges) -> bool:
        """Return whether from some state others do not all return, if this search has come to its end."""
        ck = self.setup.checker
        if ck[cs.RESTART] or self.found.reason or self._begins_again():
            return False
        if ck[cs.VIOLATION] or ck[cs.LIMIT] or ck[cs.DOUBT]:
            self.found.reason = _DIFFERS if ck[cs.VIOLATION] else self._limit()
            return False
        if self._stopped.isdisjoint(members):
            return False
        n, others = int(ck[cs.STATES]), self._by_others(members, edges)
        self.steps = _longer(self.steps, longest(n, others))
        _, ending = self._undelivered(members, n, others)
        return not ending.all()

    def _nearest(self, members: Sequence[int]) -> exhaustive.Violating | None:
        """The state nearest to the start from which others do not all return, and a loop if they go on."""
        ck, (queue, edges) = self.setup.checker, self._again_breadth_first(members)
        left, ending = self._undelivered(members, len(queue), self._by_others(members, edges))
        if ck[cs.RESTART] or self.found.reason:
            return None
        if ck[cs.VIOLATION] or ck[cs.LIMIT] or ending.all():
            self.found.reason = self._limit() if ck[cs.LIMIT] else _DIFFERS
            return None
        lost = np.flatnonzero(~ending)
        stuck = np.setdiff1d(lost, left[:, edge.FROM])
        what, state, loop = cs.DEADLOCK, int(stuck[0]) if len(stuck) else 0, np.zeros((0, 2), np.int64)
        if not len(stuck):
            what, (state, loop) = cs.LIVELOCK, livelock.fair_loop(left, ending)
        witness = np.zeros(0, np.int64)
        return exhaustive.Violating(what, members, witness, exhaustive.path_to(queue, state), loop, 0)

    def _by_others(self, members: Sequence[int], edges: livelock.Edges) -> livelock.Edges:
        """Transitions of other cores and of all dies, and the ends in which these cores have returned."""
        process: NDArray[np.int64] = edges[:, edge.PROCESS]
        spared = np.isin(process // PER_CORE, [m for m, i in enumerate(members) if i in self._stopped])
        left: livelock.Edges = edges[~spared & (edges[:, edge.TO] >= 0) | (process == edge.RETURNED)]
        return left

    def _undelivered(
        self, members: Sequence[int], n: int, edges: livelock.Edges
    ) -> tuple[livelock.Edges, NDArray[np.bool_]]:
        """Transitions without those that make a write of the die visible, and which of ``n`` states end by them."""
        dies = sorted({self.setup.cores[i] // self.setup.pod.spec.cores_per_die for i in members})
        left = edges[edges[:, edge.PROCESS] != len(members) * PER_CORE + dies.index(self.die)]
        return left, livelock.reaches_end(n, left)

    def _retrace(self, violation: exhaustive.Violating) -> None:
        """Write down the actions on the way, then the stop, then the actions of the loop."""
        ck, args = self.setup.checker, self._args
        self.found.reason = exhaustive.NOT_AGAIN
        ck[cs.RECORDING] = 1
        if not self._follow(violation) or ck[cs.LIMIT]:
            return
        dfs.make_visible(*args[:3])
        before = int(ck[cs.RECORDED])
        dfs.follow(*args, violation.loop)
        dfs.make_visible(*args[:3])
        taken = ck[ck[cs.RECORD_BASE] : ck[cs.RECORD_BASE] + ck[cs.RECORDED]].copy()
        broken = [encode(fault_codes.STOP, self.die)]
        broken += [encode(fault_codes.CUT, self.die, fault_codes.ANY_TARGET)] if self.setup.pod.order != "sc" else []
        self.found.actions = np.concatenate([taken[:before], np.array(broken, np.int64), taken[before:]])
        self.found.violation, self.found.loop, self.found.reason = violation.what, len(taken) - before, ""

    def _describe(self) -> None:
        """The replay of the schedule says what it shows."""


_DIFFERS = "the search after a stop finds a violation that the search without a fault does not: please report this"


def longest(n: int, edges: NDArray[np.int64], begins: NDArray[np.int64] | None = None) -> int:
    """The most transitions of a way from one of ``n`` states, or of those that it ``begins`` with, to an end.

    An end is a row whose ``TO`` is negative, and what lies after it is not counted.  `FOR_EVER` if there is a cycle.
    """
    ended = np.unique(edges[edges[:, edge.TO] < 0, edge.FROM])
    inner = edges[edges[:, edge.TO] >= 0][:, [edge.FROM, edge.TO]]
    inner = inner[~np.isin(inner[:, 0], ended)]
    inner = inner[np.argsort(inner[:, 1], kind="stable")]
    first = np.searchsorted(inner[:, 1], np.arange(n + 1))
    open_, far = np.bincount(inner[:, 0], minlength=n), np.zeros(n, np.int64)
    ready, done = np.flatnonzero(open_ == 0), 0
    while len(ready):
        done += len(ready)
        counts = first[ready + 1] - first[ready]
        rows = np.repeat(first[ready] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        before = inner[rows, 0]
        np.maximum.at(far, before, np.repeat(far[ready], counts) + 1)
        np.subtract.at(open_, before, 1)
        ready = np.unique(before[open_[before] == 0])
    if done < n:
        return FOR_EVER
    return int((far if begins is None else far[begins]).max(initial=0))


def _longer(one: int, other: int) -> int:
    return FOR_EVER if FOR_EVER in (one, other) else max(one, other)
