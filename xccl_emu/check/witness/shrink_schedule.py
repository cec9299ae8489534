"""Makes the schedule of a violation short and easy to follow: delta debugging over its actions.

Parts of the schedule are dropped, and what is then not enabled is skipped; what is left is kept if it still ends in the
same kind of violation.  Where a violation shows only at the end of a run (a deadlock, wrong bits) the rest of the run
is made up: each actor goes as far as it gets.  Then granules of a transfer are taken together, and actions of one core
are moved next to each other.  A schedule is only ever replaced by one that the judge has seen fail.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ReplayError
from xccl_emu.check import verdict
from xccl_emu.check.trial import Trial
from xccl_emu.check.witness.highlight import RACES
from xccl_emu.machine.clock import working_seconds
from xccl_emu.machine.device import layout as ms

Judge = Callable[[Trial, NDArray[np.int64]], verdict.Violation | None]
"""Replays a schedule on a fresh trial under all detectors; the violation it found, with the actions up to there."""

Progress = Callable[[int, int], None]
"""Called with how many actions are left and how many schedules have been tried."""

_ENDS_LATE = (verdict.DEADLOCK, verdict.WRONG_BITS)
_SOURCE_LINE = re.compile(r"\(([^()]*:\d+)")
_MADE_UP_MAX = 1 << 14  # more actions than the first schedule has: a candidate that never ends is given up


@dataclass(frozen=True, eq=False)
class _Found:
    """A schedule that ends in the violation."""

    violation: verdict.Violation
    names: NDArray[np.int64]
    """[n, NAME_WORDS] of its actions."""
    cost: tuple[int, int, int, int]
    """Actions, sum of the answers, changes of core, changes of actor."""


def shrink(
    trial: Trial, violation: verdict.Violation, judge: Judge, *, seconds: float = 10.0, progress: Progress | None = None
) -> verdict.Violation:
    """The same violation by a shorter schedule, or as it was if there is no better one within the time.

    ``trial`` must be fresh; it is left as it was.  Raises CapacityError if its pod is too large to copy.
    """
    if violation.kind == verdict.LIVELOCK or not len(violation.actions):
        return violation
    shrinker = Shrinker(trial, violation, judge, seconds, progress)
    try:
        return shrinker.run()
    finally:
        trial.pod.restore(shrinker.fresh)


def signature(violation: verdict.Violation) -> tuple[str, frozenset[str]]:
    """Return what must stay the same: the kind, and where it is not seen at the end of a run only, the source lines."""
    lines = frozenset() if violation.kind in _ENDS_LATE else frozenset(_SOURCE_LINE.findall(violation.message))
    return violation.kind, lines


class Shrinker:
    """One search for a shorter schedule."""

    def __init__(
        self, trial: Trial, violation: verdict.Violation, judge: Judge, seconds: float, progress: Progress | None
    ) -> None:
        from xccl_emu.check.witness.device import attempts
        from xccl_emu.check.witness.replayer import Replayer

        self._device, self._trial, self._pod = attempts, trial, trial.pod
        self._judge, self._progress = judge, progress
        self._deadline = working_seconds() + seconds
        self._original, self._wanted = violation, signature(violation)
        self._seen: set[bytes] = set()
        self.tried = 0
        self.fresh = self._pod.snapshot()
        Replayer(self._pod)
        self._started = self._pod.memory.copy(), self._pod.state.copy()
        room = len(violation.actions) + _MADE_UP_MAX
        self._codes = np.zeros(room, np.int64)
        self._names = np.zeros((room, attempts.NAME_WORDS), np.int64)

    def run(self) -> verdict.Violation:
        """Shrink until nothing helps any more or the time is up."""
        found = self._first()
        if found is None:
            return self._original
        self._wanted = signature(found.violation)
        before = None
        while before != found.cost and not self._late():
            before = found.cost
            found = self._drop(found)
            found = self._improve(found, self._coarser)
            found = self._improve(found, self._regrouped)
        original = self._original
        return replace(found.violation, found_by=original.found_by, found_after=original.found_after)

    # ---- candidates

    def _drop(self, found: _Found) -> _Found:
        """Drop runs of actions, long runs first, the late ones first."""
        size = len(found.names)
        while size:
            start = len(found.names) - size
            while start > -size and not self._late():
                names = np.delete(found.names, slice(max(start, 0), start + size), axis=0)
                found = self._try(names, found) or found
                start = min(start, len(found.names)) - size
            size //= 2
        return found

    def _improve(self, found: _Found, candidates: Callable[[_Found], Iterator[NDArray[np.int64]]]) -> _Found:
        """Take the first candidate that is better, and start over, until none is."""
        better: _Found | None = found
        while better is not None:
            found = better
            tries = (self._try(names, found) for names in candidates(found) if not self._late())
            better = next((one for one in tries if one is not None), None)
        return found

    def _coarser(self, found: _Found) -> Iterator[NDArray[np.int64]]:
        """With the whole of a transfer, or all that a die has in flight, in place of one granule; smaller answers."""
        device = self._device
        for i, name in enumerate(found.names):
            if name[device.KIND] == device.ANSWER:
                for answer in range(name[device.CHOICE]):
                    names = found.names.copy()
                    names[i, 2] = answer
                    yield names
            elif name[device.CHOICE] != ms.CHOICE_ALL and name[device.KIND] != device.NEXT:
                names = found.names.copy()
                names[i, 1:3] = device.HEAD if name[device.KIND] == device.HEAD else device.NEXT, ms.CHOICE_ALL
                yield names

    def _regrouped(self, found: _Found) -> Iterator[NDArray[np.int64]]:
        """With two groups of actions of one core, or then of one actor, next to each other."""
        for who in (self._cores_of(found.names), found.names[:, 0]):
            starts = [*np.flatnonzero(np.diff(who, prepend=-1)).tolist(), len(who)]
            last: dict[int, int] = {}
            for group, (start, end) in enumerate(pairwise(starts)):
                earlier = last.get(int(who[start]))
                last[int(who[start])] = group
                if earlier is not None:
                    a, b = starts[earlier], starts[earlier + 1]
                    yield _exchanged(found.names, b, start, end)
                    yield _exchanged(found.names, a, b, start)

    def _cores_of(self, names: NDArray[np.int64]) -> NDArray[np.int64]:
        """The core of each action; where a write becomes visible the one that wrote it."""
        performed = np.isin(names[:, 1], (self._device.DELIVERY, self._device.FAULTY_DELIVERY))
        return np.where(performed, names[:, 3], names[:, 0] // ms.ACTORS_PER_CORE)

    # ---- trying one

    def _first(self) -> _Found | None:
        """The violation as it was found, with each action named."""
        actions = np.asarray(self._original.actions, np.int64)
        names = np.zeros((len(actions), self._device.NAME_WORDS), np.int64)
        names[:, 0], names[:, 1], names[:, 2] = actions >> ms.CHOICE_BITS, self._device.RAW, actions & ms.CHOICE_ALL
        return self._try(names, None)

    def _try(self, names: NDArray[np.int64], best: _Found | None) -> _Found | None:
        """Return what comes of a schedule if it ends in the violation and is better than the best."""
        codes, taken = self._attempt(np.ascontiguousarray(names))
        if codes is None or codes.tobytes() in self._seen:
            return None
        self._seen.add(codes.tobytes())
        if best is not None and self._cost(taken) >= best.cost:
            return None
        self._pod.restore(self.fresh)
        try:
            violation = self._judge(self._trial, codes)
        except ReplayError:  # the judge does not come to the end of it, so it shows nothing
            return None
        if violation is None or not self._alike(violation, best):
            return None
        n = len(violation.actions)
        found = _Found(violation, taken[:n], self._cost(taken[:n]))
        return found if best is None or found.cost < best.cost else None

    def _alike(self, violation: verdict.Violation, best: _Found | None) -> bool:
        """Return whether it is the one wanted.  At first any of its kind is: a search may blame other lines."""
        if best is not None:
            return signature(violation) == self._wanted
        return violation.kind == self._wanted[0] or {violation.kind, self._wanted[0]} <= set(RACES)

    def _attempt(self, names: NDArray[np.int64]) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
        """Take what can be taken of the named actions; None if that surely does not end as it should."""
        self.tried += 1
        if self._progress is not None:
            self._progress(len(names), self.tried)
        self._pod.memory[:], self._pod.state[:] = self._started
        late = self._wanted[0] in _ENDS_LATE
        machine = (self._pod.memory, self._pod.state)
        n, ended = self._device.attempt(*machine, names, late, self._codes, self._names)
        ends = {verdict.DEADLOCK: self._device.STUCK, verdict.WRONG_BITS: self._device.DONE}
        stopped = ended == self._device.STUCK and (self._codes[:n] < 0).any()  # wrong bits show without an end then
        if ended != ends.get(self._wanted[0], ended) and not stopped:
            return None, self._names[:0]
        return self._codes[:n].copy(), self._names[:n].copy()

    def _cost(self, names: NDArray[np.int64]) -> tuple[int, int, int, int]:
        cores, actors = self._cores_of(names), names[:, 0]
        answers = int(names[names[:, 1] == self._device.ANSWER, 2].sum())
        return len(names), answers, int(np.count_nonzero(np.diff(cores))), int(np.count_nonzero(np.diff(actors)))

    def _late(self) -> bool:
        return working_seconds() > self._deadline


def _exchanged(names: NDArray[np.int64], a: int, b: int, c: int) -> NDArray[np.int64]:
    """With rows a to b and b to c in the other order."""
    return np.concatenate([names[:a], names[b:c], names[a:b], names[c:]])
