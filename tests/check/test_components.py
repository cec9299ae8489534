"""Ways to an end, seen depth first by components: against reachability in drawn graphs."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device import frames
from xccl_emu.machine.device import layout as ms

STATES_MAX = 9
Graph = list[list[int]]


class Path:
    """The search of a graph by what keeps its frames; fingerprints are such that they meet in hash tables."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        on_path = cs.HEADER + (STATES_MAX + 2) * frames.WORDS
        self.ck, self.st = np.zeros(on_path + cs.ON_PATH_WORDS, np.int64), np.zeros(ms.CACHE_LINES + 1, np.int64)
        self.ck[[cs.FRAMES, cs.FRAMES_END, cs.ON_PATH]] = cs.HEADER, on_path, on_path
        self.opened, self.seen = frames.Opened(np.zeros(2, np.int64), np.zeros(1, np.uint64)), {0}

    def visit(self, state: int) -> None:
        """A state and all that it leads to; one that leads to nothing is an end."""
        ck = self.ck
        ck[cs.HASH] = 64 * state
        self._make_room()
        frames.open_frame(ck)
        frames.enter(ck, self.opened)
        frame = ck[cs.FRAMES] + ck[cs.DEPTH] * frames.WORDS
        for to in self.graph[state]:
            self._make_room()
            if to in self.seen:
                frames.meet(self.st, ck, self.opened, frame, 64 * to)
            else:
                self.seen.add(to)
                ck[cs.DEPTH] += 1
                self.visit(to)
        frames.leave(ck, self.opened, frame, not self.graph[state])

    def _make_room(self) -> None:
        while frames.are_many(self.ck, self.opened):
            n = self.opened.places.size
            larger = frames.Opened(np.zeros(2 * n, np.int64), np.zeros(n, np.uint64))
            frames.number_all(self.ck, self.opened, larger)
            self.opened = larger


def closure(graph: Graph) -> NDArray[np.bool_]:
    """Which states lead to which, by one transition or more."""
    to = np.zeros((len(graph), len(graph)), np.bool_)
    for state, targets in enumerate(graph):
        to[state, targets] = True
    for middle in range(len(graph)):
        to |= to[:, [middle]] & to[[middle]]
    return to


def graphs(n: int) -> st.SearchStrategy[Graph]:
    """Graphs of ``n`` states, some of which lead to nothing."""
    return st.lists(st.lists(st.integers(0, n - 1), max_size=3, unique=True), min_size=n, max_size=n)


@given(st.integers(1, STATES_MAX).flatmap(graphs))
def test_states_without_a_way_to_an_end_are_seen(graph: Graph) -> None:
    """There are cycles, and states that no end is reached from, exactly where reachability says so."""
    path, to = Path(graph), closure(graph)
    path.visit(0)
    reached = [0, *np.flatnonzero(to[0])]
    is_end = np.array([not targets for targets in graph])
    assert bool(path.ck[cs.CYCLES]) == bool(to.diagonal()[reached].any())
    assert bool(path.ck[cs.LOST]) == (not (is_end | (to & is_end).any(axis=1))[reached].all())
    assert (path.ck[cs.DEPTH], path.ck[cs.N_OPEN]) == (-1, 0)
    assert not path.opened.places.any(), "all were closed"
    assert not path.ck[path.ck[cs.ON_PATH] :].any(), "none is on the path"
