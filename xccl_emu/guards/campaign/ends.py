"""Each choice of a search judged by the ends that it must keep: what no comparison of verdicts can see.

What the search takes by itself must leave all ends that runs had before it; what it tries in a state must have all of
them together; states that it takes for one must have the same; and the ends that it comes to must be the ends
of the program.  No action is named and no two are compared, so it holds for whatever a reduction rests on.

The search writes down every choice: what it takes by itself, and all that it tries in each state.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from xccl_emu.check import verdict as kinds
from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device import linked, watch
from xccl_emu.check.search.device.run_local import PER_CORE
from xccl_emu.check.search.exhaustive import Graph, Search
from xccl_emu.check.search.setup import Setup
from xccl_emu.check.trial import Trial
from xccl_emu.guards.campaign.generate import ProgramCase
from xccl_emu.guards.campaign.judge import QUIET_WALKS, WALK_STEPS, JudgeBudget, JudgedProgram, Scene, verdict_of
from xccl_emu.lang.requests import DMA, MTU_IN, MTU_OUT, OPERATIONS, SCALAR, VECTOR
from xccl_emu.machine.ends import Ends, ends
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


JUDGE = "ends"
BY_ENDS = "full verified; ends are lost:"
"""How contradictions of this kind begin."""
_PIPES = {SCALAR: "scalar", MTU_IN: "mtu-in", VECTOR: "vector", MTU_OUT: "mtu-out", DMA: "dma"}
Sets = NDArray[np.uint64]


def judge_ends(case: ProgramCase, orders: Sequence[str], budget: JudgeBudget) -> list[JudgedProgram]:
    """Return the full search's verdict under each order, and whether each choice of what it verifies keeps all ends.

    What is expected of memory is no matter, nor is a fault.  Data buffers that were written hold other values at each
    place.
    """
    small = replace(case.small, filled=not case.small.fresh)
    return [judge_by_ends(Scene(small, order, None, budget)) for order in orders]


def judge_by_ends(scene: Scene) -> JudgedProgram:
    """Judge a case by its ends under one order."""
    return judge_trial(scene.trial, scene.small.observed(scene.pod), scene.budget)


def judge_trial(trial: Trial, observe: Sequence[tuple[int, int]], budget: JudgeBudget) -> JudgedProgram:
    """Judge a trial by its ends, which differ if observed memory does, as `machine.explore` takes it."""
    judged = JudgedProgram(trial.pod.order)
    search = WatchedSearch(Setup(trial, full=True), max_states=budget.states, seconds=budget.seconds)
    search.walk_steps, search.quiet_walks = WALK_STEPS, QUIET_WALKS
    found = search.run()
    judged.states = found.states
    judged.verdicts["full"] = verdict_of(found)
    if judged.verdicts["full"] != kinds.VERIFIED:
        return judged
    graph = ends(trial.pod, search.choices.rows(), observe, budget.ends)
    judged.verdicts[JUDGE] = kinds.UNFINISHED if graph is None else kinds.VERIFIED
    if graph is not None:
        judged.states += graph.states
        wrong = next(wrong_choices(search.choices, graph, len(found.parts) == 1), None)
        if wrong is not None:  # those after it follow from it most often
            judged.verdicts[JUDGE] = "ends are lost"
            judged.contradict(f"{BY_ENDS} {wrong[0]}", wrong[1])
    return judged


def wrong_choices(choices: SearchHistory, graph: Ends, whole: bool) -> Iterator[tuple[str, str]]:
    """Yield each step of a search that loses ends or comes to others: its kind, and the ends."""
    sets = graph.sets[1:]
    tried, met = defaultdict[tuple[int, int], list[SearchStep]](list), dict[tuple[int, int], int]()
    for step in choices.steps:
        if step.alone and not np.array_equal(sets[step.before], sets[step.after]):
            yield f"{_name(step)} by itself", _differ(graph, sets[step.before], sets[step.after])
        if not step.alone:
            tried[step.part, step.found[0]].append(step)
    for (part, found), steps in tried.items():
        for state, one in [(steps[0].before, found), *((step.after, step.found[1]) for step in steps)]:
            known = met.setdefault((part, one), state)
            if not np.array_equal(sets[state], sets[known]):
                yield "one state in place of two", _differ(graph, sets[state], sets[known])
        together = np.bitwise_or.reduce([sets[step.after] for step in steps])
        if not np.array_equal(sets[steps[0].before], together):
            names = ", ".join(sorted({_name(step) for step in steps}))
            yield (
                f"{names}: more can come out than what is tried leads to",
                _differ(graph, sets[steps[0].before], together),
            )
    last = [sets[state] for key, state in met.items() if key not in tried] or [graph.sets[0]] * (not choices.steps)
    if whole and last and not np.array_equal(graph.sets[0], np.bitwise_or.reduce(last)):
        yield "other ends than brute force", _differ(graph, graph.sets[0], np.bitwise_or.reduce(last))


def _name(step: SearchStep) -> str:
    """Return the name of the operation that was taken, or of the pipe whose transition it was."""
    if step.alone:
        return OPERATIONS[step.operation] if step.operation >= 0 else _PIPES[step.what >> 16 & 255]
    return "a delivery" if step.operation == watch.DELIVERY else _PIPES[step.who % PER_CORE]


def _differ(graph: Ends, before: Sets, after: Sets) -> str:
    parts = (("lost", before & ~after), ("new", after & ~before))
    return "; ".join(f"{word}: {' | '.join(graph.of(bits))}" for word, bits in parts if bits.any())
