"""A search whose every choice is written down: what it takes by itself, and all that it tries in each state."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device import linked, watch
from xccl_emu.check.search.exhaustive import Graph, Search
from xccl_emu.check.search.setup import Setup
from xccl_emu.machine.explore import changing

_STATES_AT_ONCE = 4
"""States that are expanded before what was written down is fetched."""


@dataclass(frozen=True)
class SearchStep:
    """A step of a search, from a state to another one, by their numbers in `SearchHistory`."""

    part: int
    """In which part of the cores that are searched apart."""
    alone: bool
    """Was it taken by itself, so that nothing else was tried?"""
    who: int
    """Number of the core, of a step that was taken by itself, else of the process (`run_local.PER_CORE`)."""
    what: int
    """What `linked.execute` takes, of a step that was taken by itself; else the number of the choice."""
    operation: int
    """What was taken by itself."""
    found: tuple[int, int]
    """Fingerprints by which the search knows the states."""
    before: int
    after: int


@dataclass
class SearchHistory:
    """All that a search did since it last began."""

    steps: dict[SearchStep, None] = field(default_factory=dict)
    states: dict[bytes, int] = field(default_factory=dict)
    """The number of each state, by the words that a run can change."""

    def rows(self) -> NDArray[np.uint64]:
        """The states in the order of their numbers, as `machine.ends` takes them."""
        words = np.frombuffer(b"".join(self.states), np.uint64)
        return words.reshape(len(self.states), -1) if self.states else np.zeros((0, 0), np.uint64)


class WatchedSearch(Search):
    """Breadth first, which tries each transition of a state by itself."""

    def __init__(self, setup: Setup, *, max_states: int, seconds: float | None) -> None:
        super().__init__(setup, max_states=max_states, seconds=seconds, progress=None, breadth_first=True)
        self.choices, self._part = SearchHistory(), 0
        self._parts = changing(setup.pod)

    def _search_parts(self) -> bool:
        self.choices, self._part = SearchHistory(), 0
        return super()._search_parts()

    def _start(self, members: Sequence[int]) -> None:
        ck, room = self.setup.checker, int(self.setup.checker[cs.RECORD_BASE])
        self._part += 1
        ck[room + watch.N_PARTS], ck[room + watch.ROW_WORDS] = len(self._parts), self._parts[:, 2].sum()
        ck[room + watch.PARTS : room + watch.PARTS + self._parts.size] = self._parts.ravel()
        self._forget()
        for place, (aside, function) in watch.WATCHING.items():
            ck[cs.HANDLES + aside] = ck[cs.HANDLES + place]
            ck[cs.HANDLES + place] = linked.handle_of(function)
        super()._start(members)
        self._slice = _STATES_AT_ONCE

    def _breadth_first(self) -> Graph:
        try:
            return super()._breadth_first()
        finally:
            for place, (aside, _) in watch.WATCHING.items():
                self.setup.checker[cs.HANDLES + place] = self.setup.checker[cs.HANDLES + aside]

    def _look(self, why: int) -> None:
        self._fetch()
        super()._look(why)
        self._slice = _STATES_AT_ONCE

    def _forget(self) -> None:
        ck, room = self.setup.checker, int(self.setup.checker[cs.RECORD_BASE])
        ck[room + watch.USED] = room + watch.PARTS + self._parts.size

    def _fetch(self) -> None:
        """Take what was written down since the last time."""
        ck, room = self.setup.checker, int(self.setup.checker[cs.RECORD_BASE])
        words, first = int(ck[room + watch.ROW_WORDS]), room + watch.PARTS + self._parts.size
        written = ck[first : int(ck[room + watch.USED])].reshape(-1, watch.STEP_WORDS + 2 * words)
        known = self.choices.states
        for row in written:
            head, states = row[: watch.STEP_WORDS].tolist(), row[watch.STEP_WORDS :].reshape(2, words)
            before, after = (known.setdefault(state.tobytes(), len(known)) for state in states)
            alone, who, what, operation, *found = head
            step = SearchStep(self._part, bool(alone), who, what, operation, (found[0], found[1]), before, after)
            self.choices.steps[step] = None
        self._forget()
