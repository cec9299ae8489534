"""One program judged by every judge there is: three searches, brute force, sampled schedules, replays of witnesses.

What contradicts what: ``verified`` and any violation under the same order, or under an order that allows less; a
violation that brute force, where it came to its end, does not have; and a violation whose actions do not show it.
What is unfinished contradicts nothing.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise

from xccl_emu.base.errors import ConfigError, DeadlockError, ReplayError, RunError
from xccl_emu.check import verdict as kinds
from xccl_emu.check.faults import Fault, adds_nothing, check_fits, parse
from xccl_emu.check.messages import SET_AGAIN
from xccl_emu.check.reach import Reach, reach_of
from xccl_emu.check.sampling import sample
from xccl_emu.check.search import every_fault
from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.exhaustive import Found, Search
from xccl_emu.check.search.recovery import WithoutDie
from xccl_emu.check.search.setup import Setup
from xccl_emu.check.trial import Trial
from xccl_emu.guards.campaign.generate import ANY_END, NOTHING, SPOILED, ProgramCase
from xccl_emu.guards.campaign.programs import ORDERS, Outcome, Small
from xccl_emu.machine import driver
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.explore import Explored, explore
from xccl_emu.machine.pod import Pod

SEARCHES = ("full", "less", "merged", "breadth first")
BRUTE_FORCE, SAMPLING = "brute force", "sampling"
JUDGES = (*SEARCHES, BRUTE_FORCE, SAMPLING)
MACHINE_KINDS = (
    kinds.AREA_VIOLATION, kinds.ASSERTION, kinds.LEFTOVER, kinds.BAD_INSTRUCTION, kinds.ARITHMETIC, kinds.UNDEFINED,
    kinds.MISSING_RIGHT,
)  # fmt: skip
WEAKER = {"sc": ("relaxed", "unordered"), "fifo": ("relaxed", "unordered"), "relaxed": ("unordered",)}
"""By order, those that allow every run of it."""
WALK_STEPS, QUIET_WALKS = 2_000, 1
"""Far more than a small program takes that comes to an end; and few walks, so that facts are met in the search."""
_MOMENTS = (1, 2, 3, 5)
"""Moments at which something breaks in drawn schedules: counts of actions of a die, or numbers of writes."""
_UNSEEN = (kinds.DATA_RACE, kinds.TORN_METADATA, kinds.UNWRITTEN_READ)
"""What brute force with a fault does not judge, and where a die begins again there may be more of than without."""
OTHER_END = "another end"
"""Kind that brute force reports for wrong bytes at an end."""


@dataclass(frozen=True)
class JudgeBudget:
    """How much each judge may do."""

    states: int = 20_000
    brute: int = 2_000
    """States of brute force."""
    ends: int = 20_000
    """States of the graph by which choices are judged (`campaign.ends`)."""
    schedules: int = 60
    seconds: float = 2.0
    """Limit of each search, and of sampling."""
    bytes: int = 1 << 30
    """What a search may keep of states; given, so that no search asks what is free."""


BUDGET = JudgeBudget()


@dataclass(frozen=True)
class Contradiction:
    """Two judges that cannot both be right, or a judge that cannot."""

    order: str
    kind: str
    """The same for contradictions of the same nature, for example ``full verified; brute force deadlock``."""
    text: str


@dataclass
class JudgedProgram:
    """What all judges say of one program under one order."""

    order: str
    verdicts: dict[str, str] = field(default_factory=dict)
    """By judge: `verdict.VERIFIED`, `verdict.UNFINISHED`, the kind of a violation; of brute force, all of them."""
    states: int = 0
    schedules: int = 0
    contradictions: list[Contradiction] = field(default_factory=list)

    def contradict(self, kind: str, text: str) -> None:
        """Note a contradiction."""
        self.contradictions.append(Contradiction(self.order, kind, text))


@dataclass(eq=False)
class Scene:
    """A program under one order, with what is expected of it."""

    small: Small
    order: str
    outcome: Outcome | None
    budget: JudgeBudget
    fault: str = ""

    @cached_property
    def pod(self) -> Pod:
        """Return the pod for all judges; each leaves it as it was."""
        return self.small.pod(self.order)

    @cached_property
    def trial(self) -> Trial:
        """Return the trial to judge, on the pod of the scene."""
        return self.small.trial_on(self.pod, self.outcome)

    @cached_property
    def naive(self) -> Explored:
        """Run brute force and return what it finds."""
        observed, gives_up = self.small.observed(self.pod), self.small.gives_up
        return explore(self.pod, observed, self.budget.brute, gives_up=gives_up)

    @cached_property
    def reach(self) -> Reach:
        """Return the sites that brute force reaches, and those where it waits."""
        return reach_of(self.pod, self.naive.sites)

    def wrong(self) -> list[str]:
        """Kinds of what brute force has found."""
        wrong = [kinds.DEADLOCK] if self.naive.deadlocks else []
        wrong += ["error"] if self.naive.errors else []
        return wrong + ([OTHER_END] if self.has_other_end() else [])

    def has_other_end(self) -> bool:
        """Return whether some run ends with other bytes than expected: of each range, where dies own theirs."""
        if (outcome := self.outcome) is None:
            return False
        n_words = [nbytes >> 3 for _, nbytes in self.small.observed(self.pod)]
        ends = [0, *accumulate([sum(n_words)] if self.small.together else n_words)]
        right = outcome if isinstance(outcome, frozenset) else {outcome}
        known = {(first, end): {words[first:end] for words in right} for first, end in pairwise(ends)}
        return any(words[first:end] not in of for (first, end), of in known.items() for words in self.naive.outcomes)


def judge(case: ProgramCase, orders: Sequence[str] = ORDERS, budget: JudgeBudget = BUDGET) -> list[JudgedProgram]:
    """Return the verdicts of all judges on a program, under each order.

    Where the full search refutes it, the others are asked under one of the orders only, to save time.  Brute force that
    does not come to its end under `sc` would not where more may happen, and is not asked there.
    """
    strong = Scene(case.small, "sc", None, budget, case.fault)
    if not strong.naive.complete:
        budget = replace(budget, brute=0)
    scenes = {order: Scene(case.small, order, None, budget, case.fault) for order in orders} | {"sc": strong}
    outcome, judged = outcome_of(case, strong), dict[str, JudgedProgram]()
    for n, order in enumerate(orders):
        scenes[order].outcome = outcome
        judged[order] = judge_scene(scenes[order], thorough=case.pick % len(orders) == n)
    for order in judged:
        for weaker in WEAKER.get(order, ()):
            if weaker in judged:
                _compare_orders(judged[weaker], judged[order])
    return list(judged.values())


def outcome_of(case: ProgramCase, scene: Scene) -> Outcome | None:
    """The words that a case expects, of the ends that brute force finds in a scene; None for nothing, or no end.

    Where there are several ends most often nothing is expected, because any expectation of one would be refuted.  Of
    any end sometimes one is left out.
    """
    if case.expects == NOTHING:
        return None
    n = case.small.n_words()
    ends = sorted({words[:n] for words in scene.naive.outcomes})
    if case.expects == ANY_END:
        return frozenset(ends[case.pick % 3 == 0 and len(ends) > 1 :]) or None
    if not ends or (len(ends) > 1 and case.pick % 4):
        return None
    words = ends[case.pick % len(ends)]
    if case.expects == SPOILED:
        spoiled = case.pick % n
        words = (*words[:spoiled], words[spoiled] ^ 1, *words[spoiled + 1 :])
    return words


def verdict_of(found: Found) -> str:
    """``verified``, ``unfinished`` or the kind of the violation."""
    if found.violation:
        return found.kind
    return kinds.UNFINISHED if found.reason else kinds.VERIFIED


# ---- one order


def judge_scene(scene: Scene, thorough: bool = True, judges: Sequence[str] = JUDGES) -> JudgedProgram:
    """Return the verdicts of judges on a program under one order.

    Only the full search if that refutes it, unless ``thorough``, or has more states than it may visit: the others have
    as many.
    """
    judged = JudgedProgram(scene.order)
    for name in [name for name in SEARCHES if name in judges]:
        _search(judged, scene, name, thorough, thorough and SAMPLING in judges and not scene.small.spins)
        refuted = _violated(judged.verdicts[name]) and not thorough
        if name == SEARCHES[0] and (refuted or judged.states > scene.budget.states):
            return judged
    judged.states += scene.naive.states
    quiet = kinds.VERIFIED if scene.naive.complete else kinds.UNFINISHED
    judged.verdicts[BRUTE_FORCE] = "; ".join(scene.wrong()) or quiet
    if SAMPLING in judges and kinds.VERIFIED in (judged.verdicts.get("full"), judged.verdicts.get("merged")):
        _sample(judged, scene)
    _compare_judges(judged)
    if SAMPLING in judges and scene.small != scene.small.acquiring and not scene.small.spins:
        _compare_reads(judged, scene)
    if scene.fault and judged.verdicts.get(SEARCHES[0]) == kinds.VERIFIED:
        with suppress(ConfigError):  # the die is not there
            _break(judged, scene, parse(scene.fault, scene.pod.spec))
            _recover(judged, scene, parse(scene.fault, scene.pod.spec))
    return judged


def _search(judged: JudgedProgram, scene: Scene, name: str, founded: bool, monitored: bool) -> None:
    found = searched(scene.trial, name, scene.budget)
    judged.states += found.states
    judged.verdicts[name] = verdict_of(found)
    if found.complete and (wrong := _wrong_reach(scene, found)):
        judged.contradict(f"{name} verified: {wrong}", "")
    if not found.violation:
        return
    wrong = _unfounded(scene, found) if founded else ""
    wrong = wrong or _not_shown(scene, found, monitored)
    if wrong:
        judged.contradict(f"{name} {found.kind}: {wrong}", f"{found.message}\n{found.actions.tolist()}")


def _wrong_reach(scene: Scene, found: Found) -> str:
    """Return what a search wrongly reports as needed by no run, judged by complete brute force."""
    if not scene.naive.complete or scene.wrong():
        return ""
    said, true = reach_of(scene.pod, found.sites), scene.reach
    if not set(said.never_waited) <= set(true.never_waited):
        return "brute force waits where nobody is said to"
    return "" if said.never_reached == true.never_reached else "brute force reaches other places"


def searched(trial: Trial, name: str, budget: JudgeBudget) -> Found:
    """Run one of `SEARCHES` and return what it finds."""
    search = Search(
        Setup(trial, full=name != "merged", most=name != "less"),
        max_states=budget.states,
        seconds=budget.seconds,
        progress=None,
        max_bytes=budget.bytes,
        breadth_first=name == "breadth first",
    )
    search.walk_steps, search.quiet_walks = WALK_STEPS, QUIET_WALKS
    return search.run()


def _sample(judged: JudgedProgram, scene: Scene) -> None:
    small, trial = scene.small.acquiring, scene.trial
    trial = trial if small == scene.small else small.trial_on(small.pod(scene.order), scene.outcome)
    drawn = _first(judged, trial, scene.budget)
    judged.verdicts[SAMPLING] = drawn.violation.kind if drawn.violation else kinds.NO_VIOLATION


def _first(judged: JudgedProgram, trial: Trial, budget: JudgeBudget) -> sample.Sampled:
    """Draw the first schedules of a trial."""
    drawn = sample.sample(trial, schedules=budget.schedules, seconds=budget.seconds)
    judged.schedules += drawn.schedules
    return drawn


def _compare_reads(judged: JudgedProgram, scene: Scene) -> None:
    """Compare schedules in which reads do not acquire with the same in which they do; also with a quiet after each."""
    for small, fenced in ((scene.small, False), (scene.small.with_quiets, True)):
        if small is not None:
            trials = (each.trial(scene.order, None) for each in (small, small.acquiring))
            loose, tight = (_first(judged, trial, scene.budget) for trial in trials)
            if _misses(loose, tight) or (fenced and _misses(tight, loose)):
                where = "a quiet after each read" if fenced else "reads that do not acquire"
                judged.contradict(f"{SAMPLING}: {where}", f"{loose}; {tight}")


def _misses(one: sample.Sampled, other: sample.Sampled) -> bool:
    """Return whether one has found nothing in the schedules in which the other has found something."""
    return other.violation is not None and (one.schedules, one.violation is None) > (other.schedules, False)


def _break(judged: JudgedProgram, scene: Scene, fault: Fault) -> None:
    """Compare what is proved of runs with a fault, brute force with that fault, and schedules drawn with it."""
    if check_fits(fault, scene.pod.spec, scene.order):
        return
    proved, shown, by_brute = adds_nothing(fault, scene.trial.may_wait(fault)), "", fault.kind != "stall"
    if by_brute:
        found = with_fault(scene, fault, scene.trial)
        judged.states += found.states
        if found.actions is not None:
            seen = sample.replay(scene.trial, found.actions, found.loop)
            shown = "the monitor sees nothing" if seen is None else seen.kind
        if shown and (proved or seen is None):
            judged.contradict(f"{fault.kind} {'' if proved else 'not '}proved; brute force: {shown}", str(scene.fault))
        proved = proved or (not found.reason and found.actions is None)
    for moment in _MOMENTS if by_brute else (None,):
        schedules = scene.budget.schedules // len(_MOMENTS)
        drawn = sample.sample(scene.trial, schedules=schedules, fault=replace(fault, at=moment))
        judged.schedules += drawn.schedules
        if proved and drawn.violation and not (fault.kind == "revive" and _is_unseen(drawn.violation)):
            judged.contradict(f"{fault.kind} proved; {SAMPLING} {drawn.violation.kind}", drawn.violation.message)


def _is_unseen(violation: kinds.Violation) -> bool:
    return violation.kind in _UNSEEN or SET_AGAIN in violation.message


def _recover(judged: JudgedProgram, scene: Scene, fault: Fault) -> None:
    """Compare search and brute force on whether all others return after a stop."""
    if fault.kind != "stop" or check_fits(fault, scene.pod.spec, scene.order):
        return
    brute = with_fault(scene, fault, replace(scene.trial, may_block=False))
    found = without_die(scene, fault)
    judged.states += brute.states + found.states
    if not brute.reason and not found.reason and bool(found.violation) != (brute.actions is not None):
        said = "does not recover" if found.violation else "recovers"
        judged.contradict(f"stop: search {said}; brute force does not agree", str(scene.fault))


def with_fault(scene: Scene, fault: Fault, trial: Trial) -> every_fault.FoundWithFault:
    """Run brute force on the trial of a scene where something breaks at any moment."""
    return every_fault.FaultySearch(trial, fault, max_states=scene.budget.brute, seconds=scene.budget.seconds).run()


def without_die(scene: Scene, fault: Fault) -> Found:
    """Search whether all others return after the stop of a die."""
    trial, most = replace(scene.trial, may_block=False), scene.budget
    search = WithoutDie(Setup(trial, True), fault.source, max_states=most.states, seconds=most.seconds, progress=None)
    return search.run()


# ---- what contradicts what


def _compare_judges(judged: JudgedProgram) -> None:
    """Note a contradiction where a search says verified and another judge found a violation."""
    verified = [name for name in SEARCHES if judged.verdicts.get(name) == kinds.VERIFIED]
    wrong = {name: verdict for name, verdict in judged.verdicts.items() if _violated(verdict)}
    for other, verdict in wrong.items() if verified else ():
        judged.contradict(f"{', '.join(verified)} verified; {other} {verdict}", str(judged.verdicts))


def _compare_orders(weaker: JudgedProgram, judged: JudgedProgram) -> None:
    """Note a contradiction where an order is verified and one that allows less has a violation."""
    found = judged.verdicts["full"]
    if weaker.verdicts["full"] == kinds.VERIFIED and _violated(found):
        judged.contradict(f"full verified under {weaker.order}; full {found}", str(judged.verdicts))


def _violated(verdict: str) -> bool:
    return verdict not in (kinds.VERIFIED, kinds.UNFINISHED, kinds.NO_VIOLATION)


def _unfounded(scene: Scene, found: Found) -> str:
    """Why a violation cannot be, as the complete brute force knows; empty if it can, or nobody knows."""
    naive = scene.naive
    if not naive.complete:
        return ""
    if found.kind == kinds.DEADLOCK and not naive.deadlocks and (len(found.parts) == 1 or naive.outcomes):
        return "brute force has no deadlock"  # it knows none in one part while another part goes on for ever
    if found.kind == kinds.WRONG_BITS and scene.small.together and not scene.has_other_end():
        return "brute force has no other end"
    foreseen = found.violation == cs.SET_TWICE
    if foreseen and scene.small.fits_queues() and not any("while it is still set" in error for error in naive.errors):
        return "brute force sets no event twice"
    if found.kind in MACHINE_KINDS and not foreseen and found.message not in naive.errors:
        return "brute force has no such error"
    return ""


def _not_shown(scene: Scene, found: Found, monitored: bool) -> str:
    """Why the actions of a violation do not show it, on the machine alone or under the monitor."""
    ended = replayed(scene.trial, found)
    if ended == "not enabled":
        return f"replay ends with {ended}"
    others_go_on = ended == "open" and (len(found.parts) > 1 or scene.small.scalar_cache)  # or a line is evicted
    if others_go_on:
        return ""
    return _ended_otherwise(found, ended) or (_not_seen(scene, found) if monitored else "")


def _ended_otherwise(found: Found, ended: str) -> str:
    if found.violation in (cs.DEADLOCK, cs.WRONG_BITS) and ended != found.kind:
        return f"replay ends with {ended}"
    runs_into = found.kind in MACHINE_KINDS and found.violation != cs.SET_TWICE
    return "replay ends with another error" if runs_into and ended != found.message else ""


def replayed(trial: Trial, found: Found) -> str:
    """Return how the actions of a violation end on the machine: a kind, a message, ``open``, ``not enabled``, ``done``.

    The trial is as it was before.
    """
    pod = trial.pod
    memory, state = pod.memory.copy(), pod.state.copy()
    pod.state[[ms.N_ACTIVE, ms.N_ACTIVE_DIES, ms.N_LIVE]] = 0  # a search before it may have begun
    try:
        driver.raise_for(pod, driver.drive_replay(pod, found.actions)[0])
        return kinds.WRONG_BITS if trial.wrong_bytes() else "done"
    except DeadlockError:
        return kinds.DEADLOCK
    except ReplayError as error:
        return "not enabled" if "not enabled" in str(error) else "open"
    except RunError as error:
        return str(error)
    finally:
        pod.memory[:], pod.state[:] = memory, state


def _not_seen(scene: Scene, found: Found) -> str:
    """Why the actions of a violation do not show it under the monitor."""
    try:
        shown = sample.replay(scene.trial, found.actions, found.loop)
    except ReplayError:
        return "the monitor cannot replay it"
    return "" if shown is not None else "the monitor sees nothing"
