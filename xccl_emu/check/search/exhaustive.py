"""Exhaustive search of a trial: learn who uses what, search each part, and report what was found."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.free_memory import available_bytes
from xccl_emu.base.sizes import size_text
from xccl_emu.check.device.accesses import NAMED, TAKEN
from xccl_emu.check.messages import too_long
from xccl_emu.check.search import limits, livelock
from xccl_emu.check.search.describe import describe, spinning
from xccl_emu.check.search.device import bfs, dfs, edge, frames
from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.setup import Setup
from xccl_emu.machine import driver
from xccl_emu.machine.clock import working_seconds
from xccl_emu.machine.device import layout as ms

Progress = Callable[[int, int, float], None]
"""Called now and then with states, transitions, seconds."""

_SHARE = 0.5
"""What of the free memory a search may take."""
_SLICE_FIRST, _SLICE_MAX, _SLICE_SECONDS = 1 << 10, 1 << 18, 0.05
_WALKS, _QUIET_WALKS, _WALK_STEPS, _WALK_PIECE = 200, 12, 100_000, 1_000
BESIDE_STATES = 20_000
"""Before a search goes further it asks whether drawn schedules show something: a tenth of a second, once.  Depth first
may come to what the first of them shows after millions of states; of most cases that are wrong few states show it."""
SHOWN_BESIDE = "a drawn schedule shows a violation"

_OF_ALL = (cs.DEADLOCK, cs.WRONG_BITS, cs.LIVELOCK)
"""Violations of a part that rest on what all others do."""

BY_CLOCKS = (cs.RACE_INSIDE, cs.SET_TWICE)
"""Violations inside of a core that what other cores answer may rule out."""

Graph = tuple[NDArray[np.int64], NDArray[np.int64]]
"""How each state was reached, [states, `bfs.QUEUE_WORDS`], and the transitions, [n, `edge.WORDS`]."""


_WORDS = {
    cs.RACE: cs.WORDS_OF_RACE,
    cs.RACE_INSIDE: cs.WORDS_OF_RACE,
    cs.UNWRITTEN: cs.WORDS_OF_READ,
    cs.WRONG_BITS: cs.WORDS_OF_BITS,
    cs.TOO_EARLY: cs.WORDS_OF_BITS,
}
"""How many words of its witness set a violation apart from others of its kind; of the rest, none."""

_ENDS_AFTER_ALL = "depth first some state has no way to an end, and breadth first each has one: please report this"
NOT_AGAIN = "the path to a violation, followed again, does not lead there: please report this"


@dataclass(frozen=True, eq=False)
class Violating:
    """What a part of the cores violates, and how it comes to that."""

    what: int
    members: Sequence[int]
    witness: NDArray[np.int64]
    path: NDArray[np.int64]
    """Mover and choice of each transition, [n, 2]; after them, of a livelock, the transitions of its loop."""
    loop: NDArray[np.int64]
    hash: int
    """Fingerprint of the state in which it was found."""


@dataclass
class Found:
    """What a search came to."""

    violation: int = 0
    """`checker_state.RACE` and so on."""
    complete: bool = False
    kind: str = ""
    message: str = ""
    witness: list[int] = field(default_factory=list)
    actions: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    signature: tuple[int, ...] = ()
    """By which the violation can be set aside; also of one whose path does not lead there again."""
    sites: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """What runs have shown of each site (`check.reach`)."""
    reason: str = ""
    states: int = 0
    transitions: int = 0
    actions_taken: int = 0
    cycles: bool = False
    """Perhaps a state can be reached from itself: then only this search has shown that its runs come to an end."""
    loop: int = 0
    """For a livelock: how many actions at the end lead from a state back to it."""
    parts: list[list[int]] = field(default_factory=list)

    def rests_on(self) -> str:
        """Say what a complete search was built on."""
        if len(self.parts) == 1:
            return ""
        return f"{len(self.parts)} parts of the cores share nothing that any of them writes, and were searched apart"


def bytes_for_states(given: int | None) -> int:
    """Return how many bytes a search may keep of states: as given, or `_SHARE` of what is free now."""
    return given or int(_SHARE * available_bytes())


def too_many_bytes(most: int) -> str:
    """Why a search ends that would keep more."""
    return f"states that take more than {size_text(most)} of memory"


class Search:
    """One exhaustive search; `run` returns what it found, the pod is afterwards as it was."""

    walk_steps = _WALK_STEPS
    """Transitions of a walk that learns who uses what, at most: so far goes one that spins for ever."""
    quiet_walks = _QUIET_WALKS
    """Walks in a row that show nothing new, before the search begins.  With fewer it begins again more often."""

    def __init__(
        self,
        setup: Setup,
        *,
        max_states: int,
        seconds: float | None,
        progress: Progress | None,
        max_bytes: int | None = None,
        breadth_first: bool = False,
        aside: Sequence[tuple[int, ...]] = (),
        draw: Callable[[], bool] | None = None,
    ) -> None:
        """``draw`` is called once, after `BESIDE_STATES`: if it has found something the search ends, by `SHOWN_BESIDE`.

        ``aside`` has the signatures of violations that the search is to pass by, at most `ASIDE_MAX`.

        What is known of states takes at most ``max_bytes``, or `_SHARE` of the memory that is free now.
        """
        self.setup, self.max_states, self.seconds, self.progress = setup, max_states, seconds, progress
        self.max_bytes = bytes_for_states(max_bytes)
        self.breadth_first, self._draw = breadth_first, draw
        self.apart = True
        """Whether parts that share nothing are searched apart."""
        self.found = Found()
        self.started = self._looked = working_seconds()
        self._slice = _SLICE_FIRST
        self._args = (setup.memory, setup.state, setup.checker, setup.rows, setup.named)
        self._aside = set(aside)
        setup.checker[cs.N_ASIDE] = len(aside)
        for k, signature in enumerate(aside):
            place = cs.ASIDE + k * cs.ASIDE_WORDS
            setup.checker[place : place + len(signature)] = signature

    def run(self) -> Found:
        """Learn, search part after part, and begin again whenever something was taken for what it is not."""
        try:
            with np.errstate(over="ignore"), driver.arithmetic_of(self.setup.pod.kernels):
                self._learn()
                while not self.found.reason and not self._search_parts():
                    self.found.reason = too_long(self.seconds or 0.0) if self._is_late() else ""
            if self.found.violation:
                self._describe()
            self.found.sites = self.setup.named.copy()
            return self.found
        finally:
            self.setup.reset(range(len(self.setup.cores)))

    # ---- who uses what

    def _learn(self) -> None:
        """Take random walks until some in a row have shown nothing new; what they show is frozen as it is seen.

        Where the time is over before, that is why there is no search.
        """
        ck, quiet = self.setup.checker, 0
        for number in range(_WALKS):
            ck[cs.WALK_1], ck[cs.WALK_2] = number + 1, number + 1
            before = self.setup.table().copy()
            self.setup.reset(range(len(self.setup.cores)))
            dfs.begin(*self._args)
            self._walk()
            if self._is_late():
                self.found.reason = too_long(self.seconds or 0.0)
                return
            quiet = quiet + 1 if np.array_equal(before, self.setup.table()) else 0
            if quiet == self.quiet_walks:
                return

    def _walk(self) -> None:
        """A random walk from here; what it shows is frozen."""
        left = self.walk_steps
        while dfs.walk(*self._args, min(left, _WALK_PIECE)) and left > _WALK_PIECE and not self._is_late():
            left -= _WALK_PIECE
        self.setup.freeze()

    def _is_late(self) -> bool:
        return self.seconds is not None and working_seconds() - self.started > self.seconds

    # ---- searching

    def _search_parts(self) -> bool:
        """Search every part by one frozen table; False if something was seen that is not in it, so all begins again.

        What a part cannot do by itself, such as going on, another one might, if they did share something after all: so
        such a violation counts only if all other parts have been searched to their end; else the whole is searched.
        """
        everyone = list(range(len(self.setup.cores)))
        self.setup.named &= NAMED | TAKEN  # what walks and earlier searches have reached may be none of this table's
        self.found = Found(parts=self.setup.components() if self.apart else [everyone])
        violations: list[Violating] = []
        for members in self.found.parts:
            violation = self._search(members)
            if self.setup.checker[cs.RESTART]:
                self._walk()
                return False
            if violation is not None and violation.what in BY_CLOCKS and not self.setup.checker[cs.JOINING]:
                self.setup.explore_flags()
                return False
            if violation is not None and violation.what not in _OF_ALL:
                violations = [violation]
                break
            violations += [] if violation is None else [violation]
        assert self.setup.all_frozen(), "what was seen is what the search went by"
        if len(self.found.parts) > 1 and violations and violations[0].what in _OF_ALL:
            if len(violations) > 1 or self.found.reason:
                self.apart = False
                return False
        if violations:
            self._retrace(violations[0])
        self.found.complete = not self.found.violation and not self.found.reason
        return True

    def _search(self, members: Sequence[int]) -> "Violating | None":
        """Search one part; what it violates."""
        ck = self.setup.checker
        self._start(members)
        if self.breadth_first:
            self._judge_livelock(*self._breadth_first())
        else:
            self._depth_first()
            self.found.cycles |= bool(ck[cs.CYCLES])
            if ck[cs.LOST] and not (ck[cs.VIOLATION] or ck[cs.LIMIT] or ck[cs.RESTART] or self.found.reason):
                self._judge_livelock(*self._again_breadth_first(members), expected=not self.setup.state[ms.CACHE_LINES])
        self.found.states += int(ck[cs.STATES])
        self.found.transitions += int(ck[cs.TRANSITIONS])
        self.found.actions_taken += int(ck[cs.ACTIONS])
        if ck[cs.VIOLATION]:
            return self._violation(members)
        if ck[cs.LIMIT] or ck[cs.DOUBT]:
            self.found.reason = self.found.reason or self._limit()
        return None

    def _start(self, members: Sequence[int]) -> None:
        ck = self.setup.checker
        self.setup.reset(members)
        ck[[cs.TRANSITIONS, cs.ACTIONS, cs.CYCLES, cs.N_OPEN, cs.LOST, cs.DOUBT]] = 0
        if ck[cs.STATES]:  # a search has counted there
            ck[ck[cs.ON_PATH] : ck[cs.ON_PATH] + cs.ON_PATH_WORDS] = 0
        ck[cs.STATES], ck[cs.STATES_MAX] = 1, self._until() - self.found.states
        dfs.begin(*self._args)

    def _until(self) -> int:
        """Return after how many states schedules are drawn, or the search ends."""
        return self.max_states if self._draw is None else min(BESIDE_STATES, self.max_states)

    def _depth_first(self) -> None:
        ids, edges = np.zeros(0, np.int64), np.zeros((0, edge.WORDS), np.int64)
        self._go_deep(dfs.StatesKnown(self._fingerprints(1 << 10), _room_for_open(1 << 9), ids, edges))

    def _all_transitions(self) -> NDArray[np.int64]:
        """Search depth first; returns the transitions of all states, but those that spared cores make."""
        table, edges = self._fingerprints(1 << 13), np.zeros((1 << 13, edge.WORDS), np.int64)
        known = self._go_deep(dfs.StatesKnown(table, _room_for_open(1 << 9), np.zeros(table.size, np.int64), edges))
        return known.edges[: int(self.setup.checker[cs.N_EDGES])]

    def _go_deep(self, known: dfs.StatesKnown) -> dfs.StatesKnown:
        """Search depth first to the end, or to a limit; returns what is known then."""
        why, self.setup.checker[cs.N_EDGES] = dfs.PAUSED, 0
        while why != dfs.ENDED and not self.found.reason:
            why = dfs.depth_first(*self._args, known, self._slice)
            known = self._grown(known) if why == dfs.TABLE_FULL else known
            self._look(why)
        return known

    def _grown(self, known: dfs.StatesKnown) -> dfs.StatesKnown:
        """Twice the room for what is full, as far as memory affords it."""
        ck, states = self.setup.checker, known.table.nbytes + known.ids.nbytes
        opened, edges = sum(array.nbytes for array in known.opened), known.edges.nbytes
        if len(known.edges) and ck[cs.N_EDGES] + edge.ROOM > len(known.edges):
            if self._affords(states + opened + 3 * edges):
                return known._replace(edges=np.concatenate([known.edges, np.zeros_like(known.edges)]))
        elif 2 * ck[cs.STATES] >= known.table.size:
            if self._affords(3 * states + opened + edges):
                table, ids = np.zeros(2 * known.table.size, np.uint64), np.zeros(2 * known.ids.size, np.int64)
                dfs.move_all(known.table, known.ids, table, ids)
                return known._replace(table=table, ids=ids)
        elif self._affords(states + 3 * opened + edges):
            room = _room_for_open(2 * known.opened.hashes.size)
            frames.number_all(ck, known.opened, room)
            return known._replace(opened=room)
        return known

    def _affords(self, nbytes: int) -> bool:
        """May what is known of states take ``nbytes``, with the log?  Else the search is unfinished."""
        log = 8 * int(self.setup.checker[cs.LOG] - self.setup.checker[cs.LOG_BASE])
        if nbytes + log > self.max_bytes:
            self.found.reason = too_many_bytes(self.max_bytes)
        return not self.found.reason

    def _fingerprints(self, size: int) -> NDArray[np.uint64]:
        """A hash set, of a power of two of places, with the state that the search begins with."""
        table = np.zeros(size, np.uint64)
        begun = max(1, int(self.setup.checker[cs.HASH]) & 0xFFFFFFFFFFFFFFFF)
        table[begun & (size - 1)] = begun
        return table

    def _breadth_first(self) -> "Graph":
        """Search breadth first; returns how each state was reached, and all transitions."""
        ck, size, why = self.setup.checker, 1 << 15, dfs.PAUSED
        table, ids = self._fingerprints(size), np.zeros(size, np.int64)
        queue, edges = np.zeros((size // 2, bfs.QUEUE_WORDS), np.int64), np.zeros((size, edge.WORDS), np.int64)
        ck[cs.QUEUE_HEAD], ck[cs.QUEUE_TAIL], ck[cs.N_EDGES] = 0, 1, 0
        while why != dfs.ENDED and not self.found.reason:
            why = bfs.breadth_first(*self._args, (table, ids, queue, edges), self._slice)
            of_states = table.nbytes + ids.nbytes + queue.nbytes
            if why == dfs.TABLE_FULL and ck[cs.N_EDGES] + edge.ROOM > len(edges):
                if self._affords(of_states + 3 * edges.nbytes):
                    edges = np.concatenate([edges, np.zeros_like(edges)])
            elif why == dfs.TABLE_FULL and self._affords(3 * of_states + edges.nbytes):
                old, old_ids = table, ids
                table, ids = np.zeros(2 * old.size, np.uint64), np.zeros(2 * old.size, np.int64)
                dfs.move_all(old, old_ids, table, ids)
                queue = np.concatenate([queue, np.zeros_like(queue)])
            self._look(why)
        return queue[: int(ck[cs.QUEUE_TAIL])], edges[: int(ck[cs.N_EDGES])]

    def _again_breadth_first(self, members: Sequence[int]) -> "Graph":
        """The part once more, breadth first: for what is nearest to its start.  Counts are as they were."""
        ck = self.setup.checker
        kept = {word: int(ck[word]) for word in (cs.STATES, cs.TRANSITIONS, cs.ACTIONS)}
        self._start(members)
        graph = self._breadth_first()
        for word, value in kept.items():
            ck[word] = value
        return graph

    def _judge_livelock(self, queue: NDArray[np.int64], edges: NDArray[np.int64], expected: bool = False) -> None:
        """If some state has no way to an end: the shortest path to such states that never leave each other again.

        If that is ``expected``, and no state is one, the search is not over: one of two judges is wrong.
        """
        ck, depth = self.setup.checker, queue[:, bfs.DEPTH_OF]
        self.found.cycles |= bool(ck[cs.CYCLES])
        self.found.cycles |= bool((depth[edges[:, edge.TO]] <= depth[edges[:, edge.FROM]]).any())
        if self.found.reason or ck[cs.LIMIT] or ck[cs.VIOLATION] or ck[cs.RESTART]:
            return
        ending = livelock.reaches_end(len(queue), edges)
        if ending.all():
            self.found.reason = _ENDS_AFTER_ALL if expected else ""
        elif (cs.LIVELOCK,) not in self._aside:
            ck[cs.VIOLATION] = cs.LIVELOCK
            state, self._loop = livelock.fair_loop(edges, ending)
            self._path = path_to(queue, state)

    def _look(self, why: int) -> None:
        """Report progress, stop at a limit, and choose how much to do until the next look."""
        ck, now = self.setup.checker, working_seconds()
        elapsed, spent, self._looked = now - self.started, now - self._looked, now
        if ck[cs.VIOLATION] in (cs.WRONG_BITS, cs.TOO_EARLY) and not ck[cs.RESTART] and self.setup.learns():
            self.found.reason = self.setup.trial.too_many
            ck[cs.VIOLATION], ck[cs.RESTART] = 0, not self.found.reason
        if spent < _SLICE_SECONDS:
            self._slice = min(2 * self._slice, _SLICE_MAX)
        else:
            self._slice = max(self._slice // 2, 1)
        states = self.found.states + int(ck[cs.STATES])
        if self.progress is not None:
            self.progress(states, self.found.transitions + int(ck[cs.TRANSITIONS]), elapsed)
        if why == dfs.ENDED or self.found.reason:
            return
        if self._draw is not None and states > BESIDE_STATES:
            draw, self._draw = self._draw, None
            self.found.reason = SHOWN_BESIDE if draw() else ""
            ck[cs.STATES_MAX] = self._until() - self.found.states
        if self.found.reason:
            return
        if states > self.max_states:
            self.found.reason = f"more than {self.max_states} states"
        elif self._is_late():
            self.found.reason = too_long(self.seconds or 0.0)

    def _limit(self) -> str:
        """Say which limit was met."""
        pod, ck = self.setup.pod, self.setup.checker
        loop = f", in a loop of {spinning(pod, ck)}" if ck[cs.LIMIT] == cs.LIMIT_SPIN else ""
        return limits.met(pod, ck, self.setup.cores) + loop

    # ---- a violation

    def _violation(self, members: Sequence[int]) -> "Violating":
        """Return what was found, and the path that leads there."""
        ck = self.setup.checker
        what, witness = int(ck[cs.VIOLATION]), ck[cs.WITNESS : cs.WITNESS + 12].copy()
        if what == cs.LIVELOCK:
            return Violating(what, members, witness, self._path, self._loop, 0)
        start, depth = int(ck[cs.FRAMES]), int(ck[cs.DEPTH])
        kept = ck[start : start + (depth + 1) * frames.WORDS].reshape(-1, frames.WORDS)
        path = kept[:, [frames.PROCESS, frames.N]].copy()
        path[:, 1] -= 1
        path = path[path[:, 1] >= 0]  # in the last state nothing was taken, if it is the end or the beginning
        return Violating(what, members, witness, path, path[:0], int(ck[cs.HASH]))

    def _retrace(self, violation: "Violating") -> None:
        """Follow the path again, which must end in the same violation and state, and write down the actions on it."""
        ck, words = self.setup.checker, violation.witness[: _WORDS.get(violation.what, 0)]
        self.found.signature, self.found.reason = (violation.what, *words.tolist()), NOT_AGAIN
        self._follow(violation)
        if not self._same(violation):
            return
        ck[cs.RECORDING] = 1
        if not self._follow(violation) or ck[cs.LIMIT]:
            return
        if violation.what == cs.LIVELOCK:
            dfs.make_visible(*self._args[:3])
            before = int(ck[cs.RECORDED])
            dfs.follow(*self._args, violation.loop)
            dfs.make_visible(*self._args[:3])
            self.found.loop = int(ck[cs.RECORDED]) - before
        if violation.what == cs.MACHINE and not self.setup.state[ms.ERROR]:
            return
        self.found.violation, self.found.reason = violation.what, ""
        self.found.witness = [int(word) for word in violation.witness]

    def _follow(self, violation: "Violating") -> bool:
        """Take the transitions of the path; could all be taken, or have they shown a violation before?"""
        recording = int(self.setup.checker[cs.RECORDING])
        self.setup.reset(violation.members)
        self.setup.checker[cs.RECORDING] = recording
        dfs.begin(*self._args)
        taken = dfs.follow(*self._args, violation.path)
        return bool(taken == len(violation.path) or self.setup.checker[cs.VIOLATION])

    def _same(self, violation: "Violating") -> bool:
        """Has a path led to the violation again?"""
        ck = self.setup.checker
        if violation.what == cs.LIVELOCK:
            before = int(ck[cs.HASH])
            return bool(dfs.follow(*self._args, violation.loop) == len(violation.loop) and ck[cs.HASH] == before)
        if violation.what in (cs.DEADLOCK, cs.WRONG_BITS):
            dfs.judge_here(*self._args[:3])
        return bool(ck[cs.VIOLATION] == violation.what and ck[cs.HASH] == violation.hash and not ck[cs.RESTART])

    def _describe(self) -> None:
        """Put what was found into words, the pod standing where it was found."""
        ck = self.setup.checker
        first = int(ck[cs.RECORD_BASE])
        taken = ck[first : first + int(ck[cs.RECORDED])].copy()
        self.setup.pod.state[ms.ACTIONS] = len(taken)
        kind, message, more = describe(self.setup.trial, self.found.violation, self.found.witness)
        self.found.kind, self.found.message, self.found.actions = kind, message, np.concatenate([taken, more])


def _room_for_open(n: int) -> frames.Opened:
    """Room for ``n`` open states."""
    return frames.Opened(np.zeros(2 * n, np.int64), np.zeros(n, np.uint64))


def path_to(queue: NDArray[np.int64], state: int) -> NDArray[np.int64]:
    """Mover and choice of each transition on the way to a state, [n, 2]."""
    steps = []
    while state:
        steps.append(queue[state, [bfs.PROCESS, bfs.CHOICE]])
        state = int(queue[state, bfs.PARENT])
    return np.array(steps[::-1], np.int64).reshape(-1, 2)
